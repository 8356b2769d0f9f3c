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
pub use planish_runtime::{Context, ContextOptions, ContextPool, Lease, Outputs, PortInfo, Profiled, View};
pub use planish_tensor::{DType, Tensor};
