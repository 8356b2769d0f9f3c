//! Operators of your own: loaded from files, or registered by this program.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::plugin::{self, Plugin};
//! use planish::{Builder, Device, Engine, Model, View};
//!
//! let declaration = "planish-plugin 1
//! op: my.ops::Twice
//! version: 1
//! types: T = float32
//! inputs: x: T[..., n]
//! outputs: y: T[..., n]
//! reference: y = Add(x, x)
//! ";
//! Plugin::function(declaration, |_task, slices| {
//!     let (x, y) = slices.pair::<f32, f32>(0, 0)?;
//!     y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
//!     Ok(())
//! })?
//! .register()?;
//!
//! let graph = r#"graph "g" {
//!     input %x: f32[rows,4]
//!     %y: f32[rows,4] = custom "my.ops" "Twice" 1 (%x)
//!     output %y
//! }"#;
//! let plan = Builder::from_graph(graph.parse()?).tune_level(0).device(Device::Cpu).build()?;
//! let mut context = Engine::new(plan, Device::Cpu)?.context()?;
//! let outputs = context.run(&[("x", View::new(&[1, 4], &[1f32, 2., 3., 4.])?)])?;
//! assert_eq!(outputs.at(0).unwrap().as_slice::<f32>().unwrap(), [2., 4., 6., 8.]);
//!
//! assert!(plugin::load("no such file").is_err());                   // a .cu file or a shared library
//! plugin::discover()?;                                              // in libraries that the process has loaded itself
//! let twice = plugin::loaded().remove(0);
//! assert!(plugin::check(&twice, Device::Cpu)?.iter().all(|check| check.failure.is_none()));
//! let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Add(%x, %x) output %y }"#;
//! let (model, n) = plugin::matched(&Model::from(graph.parse::<planish::graph::Graph>()?), &twice, None)?;
//! assert_eq!((n, model.graph().nodes().len()), (1, 1));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! docs/plugins.md has the language of declarations and the interfaces of C and CUDA.

use std::path::Path;
use std::sync::Arc;

pub use planish_plugin::{Operator, Place, Plugin, PluginError, Prepared, Run, Slices, Task, Threads};

use crate::{Error, ErrorKind};

fn told(error: PluginError) -> Error {
    Error::new(ErrorKind::BadOption, error.to_string())
}

/// Loads the plugins of a file and makes them known to the process: a `.cu` text, or a shared library, whose code then
/// runs with the rights of this process. Nothing but this call loads one.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Arc<Plugin>>, Error> {
    planish_plugin::load(path.as_ref()).map_err(told)
}

/// Finds plugins in libraries that the process has loaded by itself (`dlopen`, `ctypes.CDLL`). Models and engines that are
/// opened look, too.
pub fn discover() -> Result<(), Error> {
    planish_plugin::discover().map_err(told)
}

/// All plugins that are known to the process.
pub fn loaded() -> Vec<Arc<Plugin>> {
    planish_plugin::plugins()
}

#[cfg(feature = "build")]
pub use planish_compile::PluginCheck;

/// Tries a plugin against its own reference: every type that it takes, at declared and edge sizes, by each of its tactics,
/// on the backends of a device that it has code for. The plugin must be registered.
#[cfg(feature = "build")]
pub fn check(plugin: &Plugin, device: crate::Device) -> Result<Vec<PluginCheck>, Error> {
    let backends = device.backends()?;
    Ok(backends.iter().flat_map(|backend| planish_compile::check_plugin(plugin, &**backend)).collect())
}

/// A model with a plugin's operator wherever it computes a pattern, and how often that is: the plugin's own reference, or a
/// formula over the names of its inputs, outputs and attributes, as in `y = Mul(x, Sigmoid(x))`.
#[cfg(feature = "build")]
pub fn matched(
    model: &crate::Model,
    plugin: &Arc<Plugin>,
    pattern: Option<&str>,
) -> Result<(crate::Model, usize), Error> {
    let pattern = pattern.map_or(planish_compile::Pattern::Reference, planish_compile::Pattern::Text);
    let (graph, n) = planish_compile::match_plugin(model.graph(), plugin, pattern)?;
    Ok((crate::Model::from(graph), n))
}

/// The same, where the pattern is a small model: its inputs are named as the plugin's, and it has one output.
///
/// ```
/// use std::sync::Arc;
///
/// use planish::plugin::{Plugin, matched_by_model};
/// use planish::{Error, Model};
///
/// fn with_rope(model: &Model, rope: &Arc<Plugin>) -> Result<Model, Error> {
///     let (model, n_found) = matched_by_model(model, rope, &Model::open("rope_part.onnx")?)?;
///     println!("{n_found} places take the plugin");
///     Ok(model)
/// }
/// ```
#[cfg(feature = "build")]
pub fn matched_by_model(
    model: &crate::Model,
    plugin: &Arc<Plugin>,
    pattern: &crate::Model,
) -> Result<(crate::Model, usize), Error> {
    let pattern = planish_compile::Pattern::Graph(pattern.graph());
    let (graph, n) = planish_compile::match_plugin(model.graph(), plugin, pattern)?;
    Ok((crate::Model::from(graph), n))
}
