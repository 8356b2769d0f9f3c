//! Contexts as their users see them: buffers, errors, profiles, determinism, many threads.

#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

use planish::{Profile, SymbolRange};

mod buffers;
mod determinism;
#[cfg(target_arch = "x86_64")]
mod float_modes;
mod hostile;
mod leases;
mod panics;
mod shapes;

fn profile(min: i64, opt: i64, max: i64) -> Profile {
    Profile { ranges: vec![SymbolRange { symbol: "batch".into(), min, opt, max }] }
}
