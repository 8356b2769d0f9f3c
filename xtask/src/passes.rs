//! `cargo xtask passes`: models before and after the passes, over the reference, and which pass did what.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_import::import_file;
use planish_ir::Graph;
use planish_op::{Op, Value};
use planish_passes::{IntegerShare, Options as PassOptions, Report};
use planish_tensor::{DType, Dim, Tensor};
use planish_testing::Random;

use crate::conformance::case;
use crate::scratch;

/// Relative L2 distance of single-precision outputs before and after the passes. Folded weights are rounded
/// once more and recognized functions fewer times (6e-8 each); a deep network of 650 nodes makes 1e-5 of it,
/// most stay below 1e-6.
const SINGLE: f64 = 2e-5;
/// The same where a node works in half precision: values near the edge between two numbers fall to either
/// side (5e-4), layer after layer.
const HALF: f64 = 1e-2;
/// The same where a node quantizes: a value near the edge between two steps may take the other one, and a
/// step is 1/256 of a tensor's range.
const QUANTIZED: f64 = 5e-2;
/// The least root mean square that an output is measured against: below it rounding of the intermediate
/// values, which are near 1, is all there is.
const RMS_FLOOR: f64 = 1e-3;
/// Share of integer outputs (indices, labels) that may differ: ties broken by the last bit.
const INTEGER_SHARE: f64 = 1e-2;

/// Which models a command takes.
#[derive(clap::Args)]
pub(crate) struct Models {
    /// Models, or folders with models.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Only models whose file name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
}

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    models: Models,
    /// Run each pass alone too, not only all of them in order.
    #[arg(long)]
    each: bool,
    /// Print hits and refusals of every pass.
    #[arg(long)]
    explain: bool,
    /// Passes that do not run.
    #[arg(long)]
    disable: Vec<String>,
    /// Only the first so many steps.
    #[arg(long)]
    stop_after: Option<usize>,
    /// Do not run the models; count hits only.
    #[arg(long)]
    no_run: bool,
    /// Print the graph after the passes.
    #[arg(long)]
    print: bool,
    /// Keep the integers of quantized models, as for a CPU that multiplies them.
    #[arg(long)]
    integers: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let files = options.models.files()?;
    println!("{:<32} {:>6} {:>6} {:>9} {:>9}  verdict", "model", "nodes", "left", "passes ms", "rel. L2");
    let mut n_failed = 0;
    for file in &files {
        if let Err(error) = check(file, options) {
            n_failed += 1;
            println!("{:<32} FAILED: {error:#}", stem(file));
        }
    }
    println!("\n{} models, {n_failed} failed", files.len());
    Ok(n_failed == 0)
}

impl Models {
    /// The ONNX files among them and in folders among them, sorted.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path.is_dir() {
                let entries = std::fs::read_dir(path).with_context(|| path.display().to_string())?;
                files.extend(entries.flatten().map(|entry| entry.path()));
            } else {
                files.push(path.clone());
            }
        }
        let is_model = |file: &Path| file.extension().is_some_and(|end| end == "onnx");
        files.retain(|file| is_model(file) && stem(file).contains(&self.filter));
        files.sort();
        if files.is_empty() {
            bail!("no model matches; give .onnx files or folders that hold them");
        }
        Ok(files)
    }
}

pub(crate) fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

fn check(file: &Path, options: &Options) -> Result<()> {
    let graph = import_file(file)?.graph;
    let mut disabled = options.disable.clone();
    disabled.extend(options.integers.then(|| "fold_dequantized_weights".to_string()));
    let pass_options = PassOptions {
        disabled,
        stop_after: options.stop_after,
        explain: options.explain,
        verify_each: true,
        ..PassOptions::default()
    };
    let pipeline = planish_passes::standard();
    let start = Instant::now();
    let (mut after, mut report) = pipeline.run(graph.clone(), &pass_options)?;
    if options.integers {
        let integers = PassOptions { disabled: Vec::new(), stop_after: None, ..pass_options.clone() };
        let (arranged, mut more) = planish_passes::integers(DType::U8).run(after, &integers)?;
        after = arranged;
        report.passes.append(&mut more.passes);
        let share = IntegerShare::of(&after, &|_| Some(1));
        println!("{:<32} {} of {} layers multiply integers", stem(file), share.n_integer, share.n_layers);
    }
    let passes_ms = start.elapsed().as_secs_f64() * 1e3;
    same_interface(&graph, &after)?;
    let sizes = (graph.nodes().len(), after.nodes().len());
    let line = |distance: &str, verdict: &str| {
        println!(
            "{:<32} {:>6} {:>6} {passes_ms:>9.1} {distance:>9}  {verdict}",
            stem(file),
            sizes.0,
            sizes.1
        );
    };
    if options.no_run {
        line("-", &hits(&report));
    } else {
        let inputs = inputs(file, &graph)?;
        let expected = planish_ir::interpret(&graph, inputs.clone()).context("before the passes")?;
        let measure = |after: &Graph| -> Result<f64> {
            distance(after, &planish_ir::interpret(after, inputs.clone())?, &expected)
        };
        match measure(&after) {
            Ok(found) => line(&format!("{found:.1e}"), &hits(&report)),
            Err(error) => {
                // The first step after which the outputs differ.
                let mut sound = 0;
                let mut broken = options.stop_after.unwrap_or(pipeline.names().len());
                while broken - sound > 1 {
                    let middle = sound + (broken - sound) / 2;
                    let options = PassOptions { stop_after: Some(middle), ..pass_options.clone() };
                    let (after, _) = pipeline.run(graph.clone(), &options)?;
                    if measure(&after).is_ok() { sound = middle } else { broken = middle }
                }
                let guilty = pipeline.names().nth(broken.saturating_sub(1)).unwrap_or("none");
                return Err(error.context(format!("step {broken}, pass `{guilty}`")));
            }
        }
        if options.each {
            for name in pipeline.names() {
                let others: Vec<String> =
                    pipeline.names().filter(|other| *other != name).map(String::from).collect();
                let alone = PassOptions { disabled: others, ..pass_options.clone() };
                let (after, report) = pipeline.run(graph.clone(), &alone)?;
                if report.hits(name) > 0 {
                    same_interface(&graph, &after)?;
                    measure(&after).with_context(|| format!("pass `{name}` alone"))?;
                }
            }
        }
    }
    if options.explain {
        print!("{report}");
    }
    if options.print {
        println!("{after}");
    }
    Ok(())
}

/// The passes with hits, and how many.
fn hits(report: &Report) -> String {
    let mut names: Vec<&str> = report.passes.iter().map(|entry| entry.pass).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| report.hits(name) > 0 && seen.insert(*name));
    names.into_iter().map(|name| format!("{name} {}", report.hits(name))).collect::<Vec<_>>().join(", ")
}

pub(crate) fn same_interface(before: &Graph, after: &Graph) -> Result<()> {
    for (what, a, b) in
        [("inputs", before.inputs(), after.inputs()), ("outputs", before.outputs(), after.outputs())]
    {
        let is_same = |(a, b): (&planish_ir::ValueId, &planish_ir::ValueId)| {
            let (a, b) = (before.value(*a), after.value(*b));
            a.name == b.name && planish_ir::refines(&a.ty, &b.ty)
        };
        if a.len() != b.len() || !a.iter().zip(b).all(is_same) {
            let list = |graph: &Graph, ids: &[planish_ir::ValueId]| -> Vec<String> {
                ids.iter().map(|id| format!("{}: {}", graph.value(*id).name, graph.value(*id).ty)).collect()
            };
            bail!("the {what} were {}, they are {}", list(before, a).join(", "), list(after, b).join(", "));
        }
    }
    Ok(())
}

/// The inputs that `cargo xtask models` keeps for a model of this name, else random ones.
pub(crate) fn inputs(file: &Path, graph: &Graph) -> Result<Vec<Value>> {
    let stored = scratch().join("models").join(stem(file)).join("test_data_set_0");
    if stored.is_dir() {
        return case::values(&stored, "input", |_| Some(case::Kind::Tensor));
    }
    let mut numbers = Random::new(1);
    let sizes = sizes(graph)?;
    let mut tensor = |&id| {
        let value = graph.value(id);
        let ty = value.ty.as_tensor().with_context(|| format!("input `{}` is not a tensor", value.name))?;
        let shape = ty.shape.as_ref().and_then(|shape| shape.eval(&sizes));
        let shape = shape.with_context(|| format!("input `{}` is {}", value.name, value.ty))?;
        Ok(Value::from(random(ty.dtype, &shape, &mut numbers)?))
    };
    graph.inputs().iter().map(&mut tensor).collect()
}

/// Sizes for the symbols of the inputs that inference accepts: 1 for first dimensions, one candidate for all others.
fn sizes(graph: &Graph) -> Result<impl Fn(&str) -> Option<i64> + use<>> {
    const CANDIDATES: [i64; 8] = [16, 32, 64, 128, 224, 256, 512, 640];
    let shapes = || graph.inputs().iter().filter_map(|id| graph.value(*id).ty.as_tensor()?.shape.as_ref());
    let first: Vec<String> =
        shapes().filter_map(|shape| shape.get(0)?.as_symbol().map(String::from)).collect();
    let bind = |first: Vec<String>, size: i64| {
        move |name: &str| Some(if first.iter().any(|known| known == name) { 1 } else { size })
    };
    let is_open = shapes().flat_map(|shape| shape.iter()).any(|dim: &Dim| dim.as_const().is_none());
    for size in CANDIDATES {
        if !is_open || graph.specialize(&bind(first.clone(), size)).is_ok() {
            return Ok(bind(first, size));
        }
    }
    bail!("no usual size fits the open dimensions")
}

/// Values that most models take: floats between -1 and 1, integers 0 or 1.
fn random(dtype: DType, shape: &[usize], numbers: &mut Random) -> Result<Tensor> {
    let count: usize = shape.iter().product();
    let mut next = || if dtype.is_float() { 2.0 * numbers.unit() - 1.0 } else { numbers.unit().round() };
    let values: Vec<f64> = (0..count).map(|_| next()).collect();
    Ok(Tensor::from_f64s(dtype, shape, &values)?)
}

/// The largest distance of an output; an error if it is beyond what is granted.
fn distance(graph: &Graph, actual: &[Value], expected: &[Value]) -> Result<f64> {
    let quantizes = |op: &Op| matches!(op, Op::QuantizeLinear(_) | Op::DynamicQuantizeLinear(_));
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let granted = if graph.nodes().any(|(_, node)| quantizes(&node.op)) {
        QUANTIZED
    } else if graph.values().any(|(_, value)| value.ty.as_tensor().is_some_and(|ty| is_half(ty.dtype))) {
        HALF
    } else {
        SINGLE
    };
    let mut worst: f64 = 0.0;
    for (idx, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        worst =
            worst.max(value_distance(actual, expected, granted).with_context(|| format!("output {idx}"))?);
    }
    Ok(worst)
}

fn value_distance(actual: &Value, expected: &Value, granted: f64) -> Result<f64> {
    match (actual, expected) {
        (Value::Tensor(actual), Value::Tensor(expected)) => tensor_distance(actual, expected, granted),
        (Value::Sequence(actual), Value::Sequence(expected)) if actual.len() == expected.len() => {
            let pairs = actual.iter().zip(expected);
            let distances = pairs.map(|(actual, expected)| value_distance(actual, expected, granted));
            distances.sum::<Result<f64>>()
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(0.0),
        (Value::Optional(Some(actual)), Value::Optional(Some(expected))) => {
            value_distance(actual, expected, granted)
        }
        _ => bail!("another kind of value"),
    }
}

fn tensor_distance(actual: &Tensor, expected: &Tensor, granted: f64) -> Result<f64> {
    if actual.dtype() != expected.dtype() || actual.shape() != expected.shape() {
        let describe = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.shape());
        bail!("{}, before it was {}", describe(actual), describe(expected));
    }
    let (a, e) = (actual.to_f64s(), expected.to_f64s());
    let (found, granted) = if actual.dtype().is_float() {
        let same =
            |(a, e): (&f64, &f64)| a.is_finite() || e.is_finite() || a == e || a.is_nan() == e.is_nan();
        if a.iter().zip(&e).any(|(a, e)| a.is_finite() != e.is_finite()) || !a.iter().zip(&e).all(same) {
            bail!("NaN or infinity on one side only");
        }
        let finite = || a.iter().zip(&e).filter(|(a, _)| a.is_finite());
        let error: f64 = finite().map(|(a, e)| (a - e) * (a - e)).sum();
        let norm: f64 = finite().map(|(_, e)| e * e).sum();
        let norm = norm.sqrt().max(RMS_FLOOR * (a.len() as f64).sqrt());
        (if error == 0.0 { 0.0 } else { error.sqrt() / norm }, granted)
    } else {
        let n_different = a.iter().zip(&e).filter(|(a, e)| a != e).count();
        (n_different as f64 / a.len().max(1) as f64, INTEGER_SHARE)
    };
    if found > granted {
        bail!("distance {found:.2e}, at most {granted:.0e} is granted");
    }
    Ok(found)
}
