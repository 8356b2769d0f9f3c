//! Runs plans. An [`Engine`] is a plan with its weights in place, shared by any number of [`Context`]s; a
//! context owns its memory and serves one caller at a time; a [`ContextPool`] lends contexts to threads.
//!
//! - `bind`: sizes of inputs to symbols, profiles;
//! - `outline`: what of a program does not depend on sizes: segments, lifetimes, whose memory a value shares;
//! - `arena`: where values lie at given sizes;
//! - `pose`: a step at given sizes; `resolve`: a segment at given sizes, with its kernels prepared; `placement`: the same for whoever proves a plan;
//! - `frame`: one program, run segment by segment; `run`: what a run is; `feed`: what it is given; `memory`: what it
//!   writes to; `prepared`: its segments at the sizes that were met; `results`: what it left; `launch` and `capture`: kernels, one by one or captured and replayed, `branches`: on several
//!   streams; `control`: bodies; `host`: what happens on host values; `transfer`: copies between memories; `clock`:
//!   times on devices;
//! - `faults`: what kernels on a device found wrong with values; `code`: where compiled code comes from;
//! - `scratch`: memory of the caller's, or shared by engines; `weights`: in place, in every form that is read; `needs`: what memory all of it takes;
//! - `engine`, `context`, `pool`: what users hold; `state`: how a context runs; `states`: inputs that are earlier outputs; `buffer`, `device`, `ports`: owned
//!   memory; `pending`: runs beside the caller; `pipeline`: runs that overlap with each other's copies; `lane`: engines one after
//!   the other in one memory; `runner`, `lending`: the threads and locks below these.
//!
//! The runtime parses no model and compiles nothing: it links neither ONNX nor the compiler.

#![allow(unsafe_code)]

mod arena;
mod bind;
mod branches;
mod buffer;
mod capture;
mod clock;
mod code;
mod context;
mod control;
mod device;
mod distrust;
mod engine;
mod error;
mod faults;
mod feed;
mod frame;
mod host;
mod lane;
mod launch;
mod lending;
mod memory;
mod needs;
mod outline;
mod pending;
mod pipeline;
mod placement;
mod pool;
mod ports;
mod pose;
mod prepared;
mod resolve;
mod results;
mod run;
mod runner;
mod scratch;
mod state;
mod states;
mod streaming;
mod sync;
mod transfer;
mod view;
mod weights;

pub use branches::DEFAULT_STREAMS;
pub use buffer::{Bindings, Buffer, HostBuffer};
pub use clock::Phases;
pub use code::CodeFrom;
pub use context::{Context, ContextOptions, Profiled, StepTime};
pub use device::{DeviceBuffer, DeviceTarget, DeviceView};
pub use engine::{Engine, EngineOptions, PortInfo, VERSION, fits, plugins_are_here};
pub use error::{Error, ErrorKind, RunError, RunErrorKind};
pub use lane::{Lane, LaneStage, LaneValue, Proof, lane_sizes};
pub use needs::{ContextMemory, MemoryNeeds, TargetNeeds};
pub use pending::Pending;
pub use pipeline::Pipeline;
pub use placement::{Place, PlacedStep, Placement, Space};
pub use planish_kernel::{Address, Memory, MemoryInfo, MemoryKind, Wait};
pub use pool::{ContextPool, Lease};
pub use pose::{problem_of, tactic_at};
pub use run::Observed;
pub use scratch::{Allocator, Scratch};
pub use states::{Sequence, StatePair, States};
pub use view::{Outputs, View};
