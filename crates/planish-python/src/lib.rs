//! The extension module of the `planish` package: models, builds, plans and engines for Python.
//!
//! - `build`, `model`, `plan`, `calibration`, `engine`, `context`: what Python calls; `everyday`: batches and sliding windows;
//!   `pipeline`: several engines in one memory; `function_plugin`: operators that Python computes;
//! - `runs`: how a call goes; `borrowed`: arrays on their way in, `memory`: on their way out,
//!   `on_device`: those of GPUs, `addresses`: memory that callers vouch for; `protocols`: the C structures
//!   of both, `element_type`: their types;
//! - `port`: what inputs and outputs are; `samples`, `progress`: iterables and callbacks of Python's;
//! - `errors`: exceptions by kind.
//!
//! What is better said in Python is in the folder `python/planish`: exceptions, views, the facades of other runtimes.

#![allow(unsafe_code)]

mod addresses;
mod borrowed;
mod build;
mod calibration;
mod context;
mod element_type;
mod engine;
mod errors;
mod everyday;
mod function_plugin;
mod memory;
mod metadata;
mod model;
mod on_device;
mod pipeline;
mod plan;
mod port;
mod progress;
mod protocols;
mod runs;
mod samples;

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the command line and gives its exit code. It is the process's only one.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| planish_cli::run(arguments))
}

/// What a device is, in words; for `auto`, the one that it stands for here.
///
/// >>> planish.describe("cpu") != ""
/// True
#[pyfunction]
#[pyo3(signature = (device="auto"))]
fn describe(py: Python<'_>, device: &str) -> PyResult<String> {
    let device = plan::parse_device(py, device)?;
    errors::OrRaise::or_raise(py.detach(|| device.describe()), py)
}

/// Whether a file that begins with these bytes is a plan.
///
/// >>> planish.is_plan(b"no plan")
/// False
#[pyfunction]
fn is_plan(beginning: &[u8]) -> bool {
    planish::record::is_plan(beginning)
}

/// Loads the plugins of a file, operators of one's own, and gives their names: a .cu text, or a shared library, whose code then
/// runs with the rights of this process.
///
/// >>> planish.load_plugin("no such file")
/// Traceback (most recent call last):
/// ...
/// planish.errors.BadOption: plugin no such file: ...
#[pyfunction]
fn load_plugin(py: Python<'_>, path: PathBuf) -> PyResult<Vec<String>> {
    let plugins = errors::OrRaise::or_raise(py.detach(|| planish::plugin::load(path)), py)?;
    Ok(plugins.iter().map(|plugin| plugin.identity().to_string()).collect())
}

/// The declarations of all plugins of this process: those of `load_plugin` and `plugin`, and of libraries that are loaded.
///
/// >>> @planish.plugin('''planish-plugin 1
/// ... op: my.ops::Thrice
/// ... version: 1
/// ... types: T = float32
/// ... inputs: x: T[n]
/// ... outputs: y: T[n]
/// ... tolerance: float32 1e-6
/// ... reference: y = Mul(x, 3)
/// ... ''')
/// ... def thrice(x):
/// ...     return 3 * x
/// >>> any("op: my.ops::Thrice" in text for text in planish.plugin_declarations())
/// True
#[pyfunction]
fn plugin_declarations(py: Python<'_>) -> PyResult<Vec<String>> {
    errors::OrRaise::or_raise(planish::plugin::discover(), py)?;
    Ok(planish::plugin::loaded().iter().map(|plugin| plugin.text().to_string()).collect())
}

/// Has the libraries of `nvidia-*` wheels looked for in these folders of packages too.
#[pyfunction]
fn look_in_packages(folders: Vec<PathBuf>) {
    planish::cuda::look_in_packages(folders);
}

#[pymodule]
mod _planish {
    #[pymodule_export]
    use super::build::{build, calibrate};
    #[pymodule_export]
    use super::calibration::Calibration;
    #[pymodule_export]
    use super::context::{Pool, PyContext};
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::function_plugin::register_plugin;
    #[pymodule_export]
    use super::metadata::Metadata;
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::pipeline::{Host, Pipeline, Repeat, Stage};
    #[pymodule_export]
    use super::plan::{Plan, load, plan_metadata};
    #[pymodule_export]
    use super::port::TensorInfo;
    #[pymodule_export]
    use super::{describe, is_plan, load_plugin, look_in_packages, main, plugin_declarations};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
