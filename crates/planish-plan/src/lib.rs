//! The plan: what is run, in which order, with which kernels and weights; and its file.
//!
//! - [`record`]: the structures of a plan. They are written for the file: every field has its encoding, and
//!   what is stored never changes its meaning;

mod record;

pub use record::{
    Certificate, Check, Control, Evidence, Home, Outcome, Plan, PlanTarget, Profile, Program, Step, StepKind,
    SymbolRange, Timing, Value, Variant, Weight,
};
