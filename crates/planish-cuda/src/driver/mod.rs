//! The driver in two floors: `api` has its functions and turns status codes into errors, the rest are owned
//! things that free themselves: contexts, streams, events, memory, modules, captured graphs.

mod api;
mod context;
mod event;
mod graph;
pub(crate) mod image;
mod memory;
mod module;
mod stream;
mod tensor_map;

pub use context::{Context, count};
pub use event::{Event, Timing};
pub use graph::{Capturing, ExecutableGraph};
pub(crate) use memory::pinned_memory_age;
pub use memory::{DeviceMemory, Pinned};
pub use module::{Function, Module};
pub use stream::Stream;
pub use tensor_map::{Swizzle, TensorMap, Windows};
