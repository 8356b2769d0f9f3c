//! What a backend computes and how: the vocabulary that compiler, runtime and backends share.
//!
//! - [`Region`]: operators wired together, the *meaning* of one step. The reference can always compute it, so
//!   every tactic has an oracle, and a plan needs no second description of what its steps do;
//! - [`Operand`] and [`Layout`]: how a value lies in memory;
//! - [`Problem`]: a region with the operands of one shape and the number types to compute in;
//! - [`Tactic`] and [`Candidate`]: one named way to solve a problem, with the layouts it wants and its cost;
//! - [`Budget`]: how many candidates a family of kernels may offer;
//! - [`axes`]: neighbouring axes that are one;
//! - [`movement`]: operators that only move data, as strided copies;
//! - [`quantized`]: regions around 8-bit integers, without the nodes that lead to floats and back;
//! - [`weight_only`]: products whose weight alone is stored as integers, likewise;
//! - [`norm`], [`resize`], [`attention`] and [`rotary`]: what regions of these operators ask for, and how operands lie;
//! - [`Fusion`]: which nodes one kernel may cover together, as most backends have it;
//! - [`pointwise`]: regions of element-wise operators as straight-line code, and epilogues;
//! - [`Backend`]: one that can compute, by its sides: [`Compiler`] proposes regions and candidates and packs weights,
//!   [`Device`] prepares kernels and owns memory, [`Host`] evaluates regions on host values;
//! - [`Queue`], [`Event`] and [`CapturedGraph`]: where launches are put, in what order, and how they are replayed;
//! - [`Code`]: compiled code that a plan carries for its kernels.
//!
//! Nothing here knows a file format, a graph or a device.

pub mod attention;
pub mod axes;
mod backend;
mod budget;
mod code;
mod compiler;
mod device;
mod error;
mod fault;
pub mod movement;
pub mod norm;
mod operand;
mod overlap;
pub mod pointwise;
mod problem;
mod product;
pub mod quantized;
mod queue;
pub mod recurrent;
mod region;
mod regions;
pub mod resize;
pub mod rotary;
mod strided;
mod tactic;
mod types;
pub mod weight_only;
mod whole;

pub use backend::{Backend, Host, Target};
pub use budget::Budget;
pub use code::Code;
pub use compiler::{Approximation, Compiler, OWN_SOURCE, Prices, REFERENCE_SOURCE, TakenSources};
pub use device::{Address, Call, Device, Kernel, Memory, MemoryInfo, MemoryKind};
pub use error::{KernelError, KernelErrorKind};
pub use fault::Fault;
pub use operand::{Layout, Operand, layouts_for};
pub use overlap::Within;
pub use problem::{Arithmetic, Numeric, Problem};
pub use product::product_sizes;
pub use queue::{CapturedGraph, Event, Queue, QueueOptions, Wait};
pub use region::{Ref, Region, RegionNode};
pub use regions::Fusion;
pub use tactic::{Candidate, PackedForm, PackedWeight, Tactic, Want, WeightUse};
pub use types::Inner;
pub use whole::{Proposal, Whole};
