//! Any bytes as a model, read and imported and, if small, run: see `check_model` for what must hold.
//!
//! The first byte chooses: even, the rest is a file; odd, the rest describes one (see `built_model`).

#![no_main]

mod built_model;
mod check_model;

use check_model::Outcome;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    if choice % 2 == 0 {
        check_model::check(rest.to_vec(), true);
    } else {
        built_model::model(rest, &mut |file| check_model::check(file, false) != Outcome::Refused);
    }
});
