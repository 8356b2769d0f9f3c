//! Runs plans. An [`Engine`] is a plan with its weights in place, shared by any number of [`Context`]s; a
//! context owns its memory and serves one caller at a time; a [`ContextPool`] lends contexts to threads.
//!
//! - `bind`: sizes of inputs to symbols, profiles;
//! - `outline`: what of a program does not depend on sizes: segments, lifetimes, whose memory a value shares;
//! - `arena`: where values lie at given sizes;
//! - `resolve`: a segment at given sizes, with its kernels prepared; `placement`: the same for whoever proves a plan;
//! - `frame`: one program with its memory, run segment by segment; `control`: bodies; `host`: what happens on host
//!   values; `transfer`: copies between memories; `record`: launches recorded and replayed; `clock`: times on devices;
//! - `engine`, `context`, `pool`: what users hold; `buffer`, `device`, `runner`: owned memory and runs beside the
//!   caller.
//!
//! The runtime parses no model and compiles nothing: it links neither ONNX nor the compiler.

#![allow(unsafe_code)]

mod arena;
mod bind;
mod buffer;
mod clock;
mod context;
mod control;
mod device;
mod distrust;
mod engine;
mod error;
mod frame;
mod gather;
mod host;
mod outline;
mod placement;
mod pool;
mod record;
mod resolve;
mod runner;
mod transfer;
mod view;

pub use buffer::{Bindings, Buffer, HostBuffer};
pub use clock::Phases;
pub use context::{Context, ContextOptions, Profiled, StepTime};
pub use device::{DeviceBuffer, DeviceTarget, DeviceView};
pub use engine::{Engine, PortInfo, VERSION, fits};
pub use error::{RunError, RunErrorKind};
pub use frame::Observed;
pub use placement::{Place, PlacedStep, Placement, Space};
pub use planish_kernel::Wait;
pub use pool::{ContextPool, Lease};
pub use resolve::{problem_of, tactic_at};
pub use runner::Pending;
pub use view::{Outputs, View};
