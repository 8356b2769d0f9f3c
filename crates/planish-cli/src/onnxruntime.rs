//! ONNX Runtime beside us, where its Python package can be found: in a process of its own, with arrays in files.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use planish::io::npy;
use planish::{Error, ErrorKind, Sample};

use crate::compare::NamedOutputs;
use crate::scratch::Scratch;

const SCRIPT: &str = include_str!("onnxruntime.py");

/// Whether the package is there, and its version.
pub(crate) fn version(python: &Path) -> Result<String> {
    let mut command = Command::new(python);
    command.args(["-c", "import onnxruntime; print(onnxruntime.__version__)"]).stdin(Stdio::null());
    let lacking = |why: String| anyhow!(Error::new(ErrorKind::Lacking, why));
    let name = python.display();
    let output = command.output().map_err(|error| {
        lacking(format!("ONNX Runtime is run by Python, and {name} does not start: {error}; give --python"))
    })?;
    if !output.status.success() {
        return Err(lacking(format!(
            "{name} has no package onnxruntime; `{name} -m pip install onnxruntime`, or --python of one that has it"
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The outputs of a model for every sample.
pub(crate) fn run(python: &Path, model: &Path, samples: &[Sample]) -> Result<Vec<NamedOutputs>> {
    let scratch = Scratch::new("onnxruntime")?;
    let file = |stem: &str, number: usize| scratch.path().join(format!("{stem}_{number:06}.npz"));
    for (number, sample) in samples.iter().enumerate() {
        for (name, tensor) in &sample.inputs {
            let dtype = tensor.dtype();
            if npy::stored_type(dtype) != dtype {
                bail!("numpy has no {dtype}, so that `{name}` cannot be given to ONNX Runtime");
            }
        }
        npy::save_archive(&file("in", number), &sample.inputs)?;
    }
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).arg(model).arg(scratch.path()).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("cannot start {}", python.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
        bail!("ONNX Runtime does not run {}: {last}", model.display());
    }
    let names =
        std::fs::read_to_string(scratch.path().join("names.txt")).context("ONNX Runtime named no outputs")?;
    let names: Vec<&str> = names.lines().collect();
    let read = |number: usize| -> Result<NamedOutputs> {
        let arrays = npy::read_archive(&file("out", number), &npy::accept_all)?;
        let one = |(at, name): (usize, &&str)| {
            let found = arrays.iter().find(|(known, _)| *known == format!("output {at}"));
            let (_, tensor) = found.with_context(|| format!("ONNX Runtime gave no output `{name}`"))?;
            Ok((name.to_string(), tensor.clone()))
        };
        names.iter().enumerate().map(one).collect()
    };
    (0..samples.len()).map(read).collect()
}
