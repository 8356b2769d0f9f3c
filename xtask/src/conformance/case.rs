//! One conformance test: a model, sets of inputs, and the outputs that ONNX expects.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};
use planish::Device;
use planish_import::{Imported, import_file};
use planish_ir::Graph;
use planish_op::{Value, ValueType};
use planish_plan::StepKind;

use super::quantized::{Short, shortcomings};
use super::slow::on_reference;
use crate::compare::{Tolerance, difference};
use crate::scratch;

/// What ONNX's own runner grants every backend.
const TOLERANCE: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-7 };

/// How far a model is compiled before it runs.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// As imported, on the reference.
    Raw,
    /// After the passes, on the reference.
    Optimized,
    /// As a plan that was written to bytes and read back, on the CPU backend.
    Plan,
    /// The same, built as a user builds it: with the self-check.
    Checked,
    /// The same for a model whose inputs have open sizes, wherever the operators allow that.
    Open,
    /// As a plan that the program `planish` built, on every twentieth test.
    Command,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stage::Raw => "raw",
            Stage::Optimized => "optimized",
            Stage::Plan => "plan",
            Stage::Checked => "checked",
            Stage::Open => "open",
            Stage::Command => "command",
        })
    }
}

pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The importer refuses the model by name.
    Unsupported(String),
}

pub(crate) struct Report {
    /// The operator that the test is about: that of the first node.
    pub(crate) op: String,
    pub(crate) outcome: Outcome,
    /// What a plan of it is made of, where there is one.
    pub(crate) placed: Option<Placed>,
    /// Its steps that are no kernels of integers, likewise.
    pub(crate) short: Option<Vec<(Short, String)>>,
    /// Its steps that no kernel computes, likewise.
    pub(crate) on_reference: Option<Vec<String>>,
}

/// Which steps of a plan run where, bodies of control flow included; transfers are none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Placed {
    pub(crate) n_device: usize,
    /// The operators of those on the host, copies left out.
    pub(crate) on_host: Vec<String>,
    /// Keys of the compiled code.
    pub(crate) code: Vec<String>,
}

impl Placed {
    fn of(plan: &planish_plan::Plan) -> Placed {
        let code = plan.code.iter().map(|code| code.key.clone()).collect();
        let mut placed = Placed { code, ..Placed::default() };
        placed.count(&plan.program);
        placed
    }

    fn count(&mut self, program: &planish_plan::Program) {
        for step in &program.steps {
            if let StepKind::Control(control) = &step.kind {
                control.bodies.iter().for_each(|body| self.count(body));
            }
            let ops = step.region.ops();
            if matches!(step.kind, StepKind::Transfer) {
                continue;
            } else if step.target != 0 {
                self.n_device += 1;
            } else if ops != "Identity" {
                self.on_host.push(ops);
            }
        }
    }
}

pub(crate) fn run(folder: &Path, stage: Stage, device: Device) -> Report {
    let op = first_op(folder).unwrap_or_else(|| "?".into());
    let imported = match import_file(&folder.join("model.onnx")) {
        Ok(imported) => imported,
        Err(error) => {
            use planish_import::ImportErrorKind::{Unsupported, UnsupportedType};
            let outcome = match error.kind() {
                Unsupported(_) | UnsupportedType { .. } => Outcome::Unsupported(error.to_string()),
                _ => Outcome::Failed(error.to_string()),
            };
            return Report { op, outcome, placed: None, short: None, on_reference: None };
        }
    };
    // A panic is a failure of this test, not of the run.
    let (mut placed, mut short, mut slow) = (None, None, None);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        check(&imported, folder, stage, device, |plan| {
            placed = Some(Placed::of(plan));
            short = Some(shortcomings(&plan.program));
            slow = Some(on_reference(&plan.program));
        })
    }));
    let outcome = match checked {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(error)) => Outcome::Failed(format!("{error:#}")),
        Err(_) => Outcome::Failed("panicked".to_string()),
    };
    Report { op, outcome, placed, short, on_reference: slow }
}

fn first_op(folder: &Path) -> Option<String> {
    let bytes = fs::read(folder.join("model.onnx")).ok()?;
    let model = planish_onnx::read(&bytes).ok()?;
    Some(model.graph.nodes.first()?.op_type.to_string())
}

fn check(
    imported: &Imported,
    folder: &Path,
    stage: Stage,
    device: Device,
    look: impl FnOnce(&planish_plan::Plan),
) -> Result<()> {
    let mut graph = reparsed(&imported.graph)?;
    if stage == Stage::Optimized {
        let options = planish_passes::Options { verify_each: true, ..planish_passes::Options::default() };
        let (after, _) = planish_passes::standard().run(graph.clone(), &options)?;
        crate::passes::same_interface(&graph, &after)?;
        graph = reparsed(&after)?;
    }
    let mut tune_at = Vec::new();
    if stage == Stage::Open {
        // Where an operator needs to know a size beforehand, the model stays as it is.
        graph = graph.untie(&|dim| dim.as_const().is_some()).unwrap_or(graph);
        tune_at = first_sizes(&graph, folder)?;
    }
    let graph = &graph;
    let engine = match stage {
        Stage::Raw | Stage::Optimized => None,
        Stage::Plan => Some(reloaded(graph, device, false, tune_at)?),
        Stage::Checked | Stage::Open => Some(reloaded(graph, device, true, tune_at)?),
        Stage::Command => Some(by_command(&folder.join("model.onnx"))?),
    };
    if let Some(engine) = &engine {
        look(engine.record());
    }
    let mut context = engine.map(|engine| engine.context()).transpose()?;
    // A device launches its steps at the first run, captures them at the second, and replays that from then on.
    let n_runs = if device == Device::Cpu { 1 } else { 3 };
    let mut n_sets = 0;
    for set in 0.. {
        let data = folder.join(format!("test_data_set_{set}"));
        if !data.is_dir() {
            break;
        }
        n_sets += 1;
        let type_of = |ids: &[planish_ir::ValueId], idx: usize| ids.get(idx).map(|&id| &graph.value(id).ty);
        let inputs = values(&data, "input", |idx| type_of(graph.inputs(), idx).map(kind_of_type))?;
        let mut actual = Vec::new();
        for run in 0..n_runs {
            actual = match &mut context {
                Some(context) => context.run_values(&inputs)?,
                None => planish_ir::interpret(graph, inputs.clone())?,
            };
            let expected = values(&data, "output", |idx| actual.get(idx).map(kind_of_value))?;
            if actual.len() != expected.len() {
                return Err(anyhow!("{} outputs, expected {}", actual.len(), expected.len()));
            }
            for (idx, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                if let Some(why) = difference(actual, expected, TOLERANCE) {
                    let again = if run > 0 { format!(", in run {run}") } else { String::new() };
                    return Err(anyhow!("output {idx} {why}{again}"));
                }
            }
        }
        for (&id, value) in graph.outputs().iter().zip(&actual) {
            let ty = &graph.value(id).ty;
            if !fits(value, ty) {
                return Err(anyhow!(
                    "output `{}` was inferred as {ty}, which {value:?} is not",
                    graph.value(id).name
                ));
            }
        }
    }
    if n_sets == 0 { Err(anyhow!("the test has no data")) } else { Ok(()) }
}

/// The sizes that the inputs of the first set give to the graph's symbols.
fn first_sizes(graph: &Graph, folder: &Path) -> Result<Vec<(String, i64)>> {
    let kind = |idx: usize| graph.inputs().get(idx).map(|id| kind_of_type(&graph.value(*id).ty));
    let inputs = values(&folder.join("test_data_set_0"), "input", kind)?;
    let mut sizes = Vec::new();
    for (id, value) in graph.inputs().iter().zip(&inputs) {
        let shape = graph.value(*id).ty.as_tensor().and_then(|ty| ty.shape.as_ref());
        let (Some(shape), Some(tensor)) = (shape, value.as_tensor()) else { continue };
        for (dim, &size) in shape.iter().zip(tensor.shape()) {
            sizes.extend(dim.as_symbol().map(|symbol| (symbol.to_string(), size as i64)));
        }
    }
    Ok(sizes)
}

/// An engine of the plan that the program builds of this file.
fn by_command(model: &Path) -> Result<planish::Engine> {
    let plan =
        scratch().join(format!("conformance.{}.{:?}.plan", std::process::id(), std::thread::current().id()));
    let mut command = Command::new(built_program()?);
    command.arg("build").arg(model).arg("-o").arg(&plan).args(["--tune-level", "0", "--device", "cpu"]);
    let output = command.output().context("cannot start planish")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(anyhow!(
            "planish build: {}, {}",
            output.status,
            said.lines().last().unwrap_or("no message")
        ));
    }
    let engine = planish::Plan::open(&plan).map(|plan| planish::Engine::new(plan, Device::Cpu));
    fs::remove_file(&plan)?;
    Ok(engine??)
}

/// The program as it is now, built once.
fn built_program() -> Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        // Together with this program, of which all that they share is compiled already.
        cargo.args(["build", "--quiet", "--package", "planish-cli", "--package", "xtask"]);
        cargo.current_dir(crate::root());
        crate::python::run(&mut cargo).map_err(|error| format!("{error:#}"))?;
        Ok(crate::root().join("target/debug/planish"))
    };
    PROGRAM.get_or_init(build).as_deref().map_err(|why| anyhow!("{why}"))
}

/// An engine of the graph's plan, after a trip through the plan's bytes.
fn reloaded(
    graph: &Graph,
    device: Device,
    verify: bool,
    tune_at: Vec<(String, i64)>,
) -> Result<planish::Engine> {
    // Our own kernels are what is tested, where libraries have some too.
    let mut builder = planish::Builder::from_graph(graph.clone()).tactic_sources("-cudnn,-cublaslt")?;
    builder = builder.tune_level(0).threads(2).device(device);
    builder.options_mut().verify = verify;
    builder.options_mut().tune_at = tune_at;
    // These models are too small for a device; it is to compute them all the same.
    builder.options_mut().price_transfers = false;
    let plan = builder.build()?;
    let bytes = plan.record().to_bytes()?;
    let read = planish_plan::Plan::from_bytes(planish_tensor::Bytes::from_vec(bytes))?;
    anyhow::ensure!(read == *plan.record(), "the plan is another after it was written and read");
    Ok(planish::Engine::new(read.into(), device)?)
}

/// The graph, verified, printed as text and parsed back; an error if that is not the same graph. What runs is the
/// parsed one, so that the text form is held to the answers too.
pub(crate) fn reparsed(graph: &Graph) -> Result<Graph> {
    graph.verify().context("verifying")?;
    let printed = graph.print();
    let parsed = planish_ir::parse(&printed.text, &printed.constants).context("parsing the text form")?;
    graph.same_as(&parsed).map_err(|why| anyhow!("the text form gives another graph: {why}"))?;
    Ok(parsed)
}

/// Whether a value has the type that inference gave it, as far as numbers tell.
fn fits(value: &Value, ty: &ValueType) -> bool {
    match (value, ty) {
        (Value::Tensor(tensor), ValueType::Tensor(ty)) => {
            let shape_fits = ty.shape.as_ref().is_none_or(|shape| {
                let fits = |(dim, &size): (&planish_tensor::Dim, &usize)| {
                    dim.as_const().is_none_or(|number| usize::try_from(number) == Ok(size))
                };
                shape.rank() == tensor.rank() && shape.dims().iter().zip(tensor.shape()).all(fits)
            });
            tensor.dtype() == ty.dtype && shape_fits
        }
        (Value::Sequence(values), ValueType::Sequence(ty)) => values.iter().all(|value| fits(value, ty)),
        (Value::Optional(None), ValueType::Optional(_)) => true,
        (Value::Optional(Some(value)), ValueType::Optional(ty)) => fits(value, ty),
        // A loop may start with an optional and go on with its element.
        (value, ValueType::Optional(ty)) => fits(value, ty),
        _ => false,
    }
}

/// Which message a file of test data holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Tensor,
    Sequence,
    Optional,
}

pub(crate) fn kind_of_type(ty: &ValueType) -> Kind {
    match ty {
        ValueType::Tensor(_) => Kind::Tensor,
        ValueType::Sequence(_) => Kind::Sequence,
        ValueType::Optional(_) => Kind::Optional,
    }
}

pub(crate) fn kind_of_value(value: &Value) -> Kind {
    match value {
        Value::Tensor(_) => Kind::Tensor,
        Value::Sequence(_) => Kind::Sequence,
        Value::Optional(_) => Kind::Optional,
    }
}

/// The values of `stem_0.pb`, `stem_1.pb`, …; a file does not tell which message it holds.
pub(crate) fn values(data: &Path, stem: &str, kind: impl Fn(usize) -> Option<Kind>) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for idx in 0.. {
        let path = data.join(format!("{stem}_{idx}.pb"));
        if !path.is_file() {
            break;
        }
        let bytes = fs::read(&path)?;
        let value = match kind(idx) {
            Some(Kind::Sequence) => planish_onnx::read_sequence(&bytes).map(planish_onnx::Value::Sequence),
            Some(Kind::Optional) => planish_onnx::read_optional(&bytes).map(planish_onnx::Value::Optional),
            Some(Kind::Tensor) | None => planish_onnx::read_tensor(&bytes).map(planish_onnx::Value::Tensor),
        };
        values.push(planish_import::value(&value.with_context(|| path.display().to_string())?)?);
    }
    Ok(values)
}
