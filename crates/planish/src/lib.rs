//! Planish: a trained model in, a tuned and checked plan out, run fast and safely.
//!
//! ```no_run
//! use planish::{Builder, Device, Engine, View};
//!
//! let plan = Builder::new("model.onnx")?.threads(2).build()?;
//! plan.save("model.plan")?;
//! let engine = Engine::new(plan, Device::Cpu)?;       // Send + Sync, clones share the weights
//! let mut context = engine.context()?;                // or engine.pool(3)
//! let pixels = vec![0.0f32; 3 * 224 * 224];
//! let outputs = context.run(&[("x", View::new(&[1, 3, 224, 224], &pixels)?)])?;
//! println!("{:?}", outputs.at(0).map(|view| view.dims().to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Context`] serves one caller at a time. [`Context::run`] blocks and may borrow; [`Context::run_async`] owns:
//! the buffers move into the run and come back when it is waited for, so nobody can change them under it.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Bindings, Builder, Device, Engine};
//!
//! let graph = r#"graph "g" {
//!     input %x: f32[n,4]
//!     %y: f32[n,4] = Relu(%x)
//!     output %y
//! }"#;
//! let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
//! let mut context = Engine::new(plan, Device::Cpu)?.context()?;
//!
//! let mut x = context.input_buffer("x", &[2, 4])?;                  // aligned, typed, owned
//! x.as_mut_slice::<f32>().unwrap().copy_from_slice(&[1., -2., 3., -4., 5., -6., 7., -8.]);
//! let y = context.output_buffer("y", &[2, 4])?;                     // written in place
//! let pending = context.run_async(Bindings::new().input("x", x).output("y", y))?;
//! // ... work of the caller's own ...
//! let done = pending.wait()?;
//! let y = done.get_output("y").unwrap();
//! assert_eq!(y.as_slice::<f32>().unwrap(), [1., 0., 3., 0., 5., 0., 7., 0.]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Plan::open`] takes a plan from its file. Without the feature `build` that is the only way to one: a
//! program that only runs plans links no parser of models and no compiler.

#[cfg(feature = "build")]
mod builder;
mod engine;
mod error;
mod plan;

#[cfg(feature = "build")]
pub use builder::Builder;
pub use engine::{Device, Engine};
pub use error::{Error, ErrorKind};
pub use plan::Plan;
#[cfg(feature = "build")]
pub use planish_compile::{
    BuildOptions, PassesReport, Progress, TacticLock, TacticSelector, TimingCache, TimingDiff, TimingEntry,
    TimingKey,
};
pub use planish_op::Value;
pub use planish_plan::{Profile, SymbolRange};
pub use planish_runtime::{
    Bindings, Context, ContextOptions, ContextPool, HostBuffer, Lease, Outputs, Pending, PortInfo, Profiled,
    View,
};
pub use planish_tensor::{DType, Tensor};
