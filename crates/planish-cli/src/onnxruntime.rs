//! ONNX Runtime beside us, where its Python package can be found: in a process of its own, with arrays in files.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// Times a model: the inputs' file, runs at least 10, seconds at most. Prints a line for each run.
const TIMES: &str = "
import sys, time, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])
inputs = dict(numpy.load(sys.argv[2]))
runs, most = int(sys.argv[3]), float(sys.argv[4])
for _ in range(3):
    session.run(None, inputs)
times, began = [], time.perf_counter()
while len(times) < runs and (len(times) < min(10, runs) or time.perf_counter() - began < most):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
print(*times, sep='\\n')
";

/// The times of so many runs on the CPU, or of those that fit into the time.
pub(crate) fn times(
    python: &Path,
    model: &Path,
    inputs: &Path,
    runs: usize,
    most: Duration,
) -> Result<Vec<Duration>> {
    let mut command = Command::new(python);
    command
        .args(["-c", TIMES])
        .arg(model)
        .arg(inputs)
        .arg(runs.to_string())
        .arg(most.as_secs_f64().to_string());
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", python.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why");
    if !output.status.success() {
        bail!("ONNX Runtime does not run {}: {last}", model.display());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text.lines().filter_map(|line| line.trim().parse::<f64>().ok());
    Ok(seconds.filter_map(|seconds| Duration::try_from_secs_f64(seconds).ok()).collect())
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
