//! Planish in C: what `include/planish.h` declares, which `tests/header.rs` makes of these files by cbindgen.
//!
//! - `status`: errors, and the one way in which a call goes: nothing unwinds into C;
//! - `given`: pointers, texts and structures on their way in and out;
//! - `ports`: what inputs and outputs are; `steps`: what a run consists of;
//! - `model`, `builder`, `calibration`, `plan`, `engine`, `context`: the objects, one file each; `binding`: the memory that a
//!   context is given; `metadata`: what a plan's file says of itself; `profile`: a run, step by step; `shapes`: sizes on their way out.

#![allow(unsafe_code)]

mod binding;
mod builder;
mod calibration;
mod context;
mod engine;
mod given;
mod metadata;
mod model;
mod plan;
mod ports;
mod profile;
mod shapes;
mod status;
mod steps;

pub use builder::*;
pub use calibration::*;
pub use context::*;
pub use engine::*;
pub use metadata::*;
pub use model::*;
pub use plan::*;
pub use ports::{PlanishTensorInfo, PlanishType};
pub use profile::*;
pub use shapes::{planish_engine_profile_count, planish_engine_profile_shape};
pub use status::*;
pub use steps::PlanishStep;

/// The version of this interface. Programs that were compiled with an older header of the same number run with every newer
/// library.
pub const PLANISH_ABI_VERSION: u32 = 1;
