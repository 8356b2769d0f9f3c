//! The CPU backend: instruction-set proofs, vector arithmetic, kernels, and the process's thread pool.
//!
//! Read in this order: [`isa`] (what this machine can run, as values that prove it), [`simd`] (one vocabulary
//! of vector arithmetic over the instruction sets), [`team`] (fork and join over the pool), then the kernels,
//! then `family` (how kernels become tactics) and `backend` (the table of families).

#![allow(unsafe_code)]

pub mod isa;
pub mod pointwise;
pub mod simd;
mod sync;
pub mod team;
mod workers;

#[cfg(target_arch = "x86_64")]
mod amx;
mod attention;
mod bottleneck;
pub mod conv;
pub mod depthwise;
pub mod dynquant;
mod filter;
pub mod gemm;
pub mod movement;
mod nbits;
pub mod norm;
pub mod peak;
pub mod pool;
mod qplain;
mod recurrent;
pub mod reduce;
pub mod resize;
pub mod rotary;
pub mod softmax;
pub mod spatial;
pub mod topk;
pub mod trees;
mod typed;
mod valued;
pub mod vecmath;

mod backend;
pub(crate) mod elements;
mod evaluate;
mod family;
mod formats;
mod found;
mod groups;
mod host;
mod lines;
mod live;
mod plainly;
mod plugin;
mod price;
mod regions;
mod shared;
#[cfg(test)]
mod trial;

pub use backend::{Cpu, SOURCES};
pub use evaluate::evaluate_region;

#[cfg(test)]
mod team_tests;
