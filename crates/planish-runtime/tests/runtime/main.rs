//! Contexts as their users see them: buffers, errors, profiles, determinism, many threads.

#[path = "../common/mod.rs"]
mod common;

use planish::{Profile, SymbolRange};

mod buffers;
mod determinism;
mod leases;
mod shapes;

fn profile(min: i64, opt: i64, max: i64) -> Profile {
    Profile { ranges: vec![SymbolRange { symbol: "batch".into(), min, opt, max }] }
}
