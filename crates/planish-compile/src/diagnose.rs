//! Where a plan departs from the model in floats, and what keeps it from that: `planish debug accuracy`.
//!
//! Three runs over each sample. The reference computes the float model, all values of it that the plan has too
//! (`truth`). The plan runs as it is: how far each step's output is off by then has *accumulated*. And it runs with every
//! step reading the reference's values, rounded as the plan stores them: what is off then is the step's *own* error. A
//! step that stands out is taken apart (`cause`): is it the rounding of what it reads, of what it writes, or what it
//! multiplies with? From that follow the layers to keep in fp32 (`pins`).
//!
//! Nothing is built again for it.

mod cause;
mod distance;
pub(crate) mod pins;
mod reference;
mod stored;
mod truth;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use planish_ir::{Graph, Node, ValueId};
use planish_kernel::{Arithmetic, Backend};
use planish_op::{Op, Value};
use planish_plan::{Plan, Program, Step, StepKind};
use planish_runtime::{Engine, Observed, tactic_at};
use planish_tensor::{DefaultFloatMode, Tensor};

use crate::error::{BuildError, BuildErrorKind};
use crate::options::{BuildOptions, Precision};
pub use cause::Cause;
use cause::Suspect;
use distance::Distance;
pub use reference::float_reference;
use stored::Stored;
use truth::Truths;

/// A step whose own error is this many times that of the middle one stands out. Sound plans in INT8 of trained models
/// have steps of up to three times (Fashion-MNIST's classifier, ResNet-18, MobileNet v2).
const OUTLIER: f64 = 4.0;
/// Own errors below this are not worth a word: sums in f32, with Winograd's transforms, stay far below it.
const NEGLIGIBLE: f64 = 1e-4;
/// Steps that are taken apart, the worst first.
const MAX_SUSPECTS: usize = 24;

/// What is to be looked into.
#[derive(Debug)]
pub struct Diagnose<'a> {
    pub plan: &'a Plan,
    /// The backends of the plan's targets, the host's first.
    pub backends: &'a [Arc<dyn Backend>],
    /// The optimized graph that the plan was built from, with its weights ([`crate::recover`]).
    pub graph: &'a Graph,
    /// The same model in floats, with values of the same names where it has them ([`crate::optimized`]).
    pub reference: &'a Graph,
}

/// How far a step is off.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct StepError {
    /// Its number in the plan.
    pub step: usize,
    /// The layer that it computes: its product, or the last of its nodes.
    pub layer: String,
    /// All nodes that are fused into it.
    pub nodes: String,
    pub ops: String,
    /// The tactic that computes it.
    pub tactic: String,
    /// What it computes in: `i8`, `f16`, …
    pub precision: &'static str,
    /// The value that is compared, as the float model names it.
    pub value: String,
    /// Relative L2 error of the step alone, given what the reference read; infinite where a number became none.
    pub own: f64,
    /// The same after all steps before it.
    pub accumulated: f64,
}

/// A place where the plan departs.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Departure {
    /// Which of [`Diagnosis::steps`] brings it in.
    pub at: usize,
    pub cause: Cause,
    /// Relative L2 error that it makes at the output of a step.
    pub error: f64,
    /// The layers that [`crate::BuildOptions::fp32_layers`] must name to be rid of it.
    pub pins: Vec<String>,
}

/// What was found.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The steps that could be compared, in their order.
    pub steps: Vec<StepError>,
    /// Where the plan departs, in the order of the steps.
    pub departures: Vec<Departure>,
    /// Relative L2 error of each output.
    pub outputs: Vec<(String, f64)>,
    /// The own error from which on a step stands out.
    pub limit: f64,
    pub n_samples: usize,
    /// Steps whose outputs the float model has not.
    pub n_not_compared: usize,
}

impl Diagnosis {
    /// The departure with the largest error.
    pub fn worst(&self) -> Option<&Departure> {
        self.departures.iter().max_by(|a, b| a.error.total_cmp(&b.error))
    }

    /// The layers to keep in fp32, each once, in the order of the steps.
    pub fn pins(&self) -> Vec<String> {
        let mut pins: Vec<String> = Vec::new();
        for pin in self.departures.iter().flat_map(|departure| &departure.pins) {
            if !pins.contains(pin) {
                pins.push(pin.clone());
            }
        }
        pins
    }
}

/// What steps made of the reference's values, by their numbers.
type Alone = HashMap<usize, Vec<Option<Tensor>>>;

/// What is summed up over samples.
#[derive(Default)]
struct Sums {
    own: BTreeMap<usize, Distance>,
    accumulated: BTreeMap<usize, Distance>,
    outputs: BTreeMap<usize, Distance>,
    /// Of values that are rounded when they are stored.
    rounding: HashMap<u32, Distance>,
}

/// Looks into a plan on samples, each a tensor for every input by name.
pub fn diagnose(
    what: &Diagnose<'_>,
    samples: &[Vec<(String, Tensor)>],
    options: &BuildOptions,
) -> Result<Diagnosis, BuildError> {
    let _mode = DefaultFloatMode::enter();
    let program = &what.plan.program;
    let engine = Engine::new(what.plan.clone(), what.backends.to_vec())?;
    let mut context = engine.context()?;
    let stored = stored::of_plan(program, what.graph, what.reference);
    let mut wanted: Vec<&str> = stored.iter().flatten().map(|stored| &*stored.name).collect();
    wanted.extend(program.outputs.iter().map(|&value| program.values[value as usize].name.as_str()));
    let mut truths = Truths::new(what, &wanted, samples.len(), options)?;
    let mut sums = Sums::default();
    let mut first: Option<(HashMap<String, Tensor>, Alone)> = None;
    for (number, sample) in samples.iter().enumerate() {
        options.tell("compare", number, samples.len());
        options.go_on()?;
        let truth = truths.of(sample)?;
        let inputs = in_order(program, sample)?;
        let mut observer = |observed: Observed| {
            if let Some((at, distance)) = compared(program, &stored, &truth, &observed) {
                sums.accumulated.entry(at).or_default().add(&distance);
            }
        };
        let outputs = context.observe(&inputs, &mut observer)?;
        for (at, (&value, output)) in program.outputs.iter().zip(&outputs).enumerate() {
            let wanted = truth.get(&program.values[value as usize].name);
            if let (Some(wanted), Some(got)) = (wanted, output.as_tensor()) {
                sums.outputs.entry(at).or_default().add(&Distance::between(got, wanted));
            }
        }
        let mut rounded: HashMap<u32, Tensor> = HashMap::new();
        let mut stand_ins = |value: u32| {
            let stored = stored[value as usize].as_ref()?;
            if let Some(known) = rounded.get(&value) {
                return Some(known.clone());
            }
            let tensor = stored.encode(truth.get(&stored.name)?)?;
            rounded.insert(value, tensor.clone());
            Some(tensor)
        };
        let mut alone = Alone::new();
        let mut observer = |observed: Observed| {
            if let Some((at, distance)) = compared(program, &stored, &truth, &observed) {
                sums.own.entry(at).or_default().add(&distance);
                alone.insert(at, observed.outputs);
            }
        };
        context.observe_alone(&inputs, &mut stand_ins, &mut observer)?;
        for (&value, tensor) in &rounded {
            let Some(stored) = &stored[value as usize] else { continue };
            if let (Some(back), Some(want)) = (stored.decode(tensor), truth.get(&stored.name)) {
                sums.rounding.entry(value).or_default().add(&Distance::between(&back, want));
            }
        }
        first.get_or_insert((truth, alone));
    }
    let mut found = errors(&engine, what.graph, &stored, &sums);
    found.n_samples = samples.len();
    if let Some((truth, alone)) = &first {
        let suspects = Suspect { program, stored: &stored, truth, alone, sums: &sums, what };
        found.departures = suspects.departures(&found);
    }
    Ok(found)
}

/// A step's output against the reference's: the first that the float model has.
fn compared(
    program: &Program,
    stored: &[Option<Stored>],
    truth: &HashMap<String, Tensor>,
    observed: &Observed,
) -> Option<(usize, Distance)> {
    if !observed.path.is_empty() {
        return None;
    }
    let (place, stored) = output_of(&program.steps[observed.step], stored)?;
    let got = stored.decode(observed.outputs.get(place)?.as_ref()?)?;
    Some((observed.step, Distance::between(&got, truth.get(&stored.name)?)))
}

/// The output by which a step is compared.
fn output_of<'s>(step: &Step, stored: &'s [Option<Stored>]) -> Option<(usize, &'s Stored)> {
    let known = |(place, value): (usize, &Option<u32>)| Some((place, stored[(*value)? as usize].as_ref()?));
    step.outputs.iter().enumerate().find_map(known)
}

/// A sample's tensors in the order of the program's inputs.
fn in_order(program: &Program, sample: &[(String, Tensor)]) -> Result<Vec<Value>, BuildError> {
    let one = |&input: &u32| {
        let name = &program.values[input as usize].name;
        let found = sample.iter().find(|(known, _)| known == name);
        found.map(|(_, tensor)| Value::Tensor(tensor.clone())).ok_or_else(|| {
            BuildError::new(BuildErrorKind::WrongInputs, format!("a sample has no value for `{name}`"))
        })
    };
    program.inputs.iter().map(one).collect()
}

/// The errors of steps and outputs, and from where on one stands out.
fn errors(engine: &Engine, graph: &Graph, stored: &[Option<Stored>], sums: &Sums) -> Diagnosis {
    let plan = engine.plan();
    let program = &plan.program;
    let mut found = Diagnosis::default();
    for (idx, step) in program.steps.iter().enumerate() {
        let StepKind::Kernel { .. } = step.kind else { continue };
        let (Some(own), Some((_, stored))) = (sums.own.get(&idx), output_of(step, stored)) else {
            found.n_not_compared += 1;
            continue;
        };
        found.steps.push(StepError {
            step: idx,
            layer: layer_of(graph, program, step),
            nodes: step.name.clone(),
            ops: step.region.ops(),
            tactic: tactic_at(step, &plan.header.tuned_at)
                .map_or_else(String::new, |tactic| tactic.name.clone()),
            precision: precision_of(step, stored),
            value: stored.name.clone(),
            own: own.relative(),
            accumulated: sums.accumulated.get(&idx).map_or(f64::NAN, Distance::relative),
        });
    }
    let of_output = |(at, distance): (&usize, &Distance)| {
        (program.values[program.outputs[*at] as usize].name.clone(), distance.relative())
    };
    found.outputs = sums.outputs.iter().map(of_output).collect();
    // Steps in full precision would hide what is usual for those that round.
    let is_low = |error: &&StepError| error.precision != F32;
    let has_low = found.steps.iter().any(|error| is_low(&error));
    let among = found.steps.iter().filter(|error| !has_low || is_low(error));
    let mut own: Vec<f64> = among.map(|error| error.own).collect();
    own.sort_by(f64::total_cmp);
    let middle = own.get(own.len() / 2).copied().unwrap_or(0.0);
    found.limit = (OUTLIER * middle).max(NEGLIGIBLE);
    found
}

const F32: &str = "f32";

/// What a step computes or stores its result in, whichever is less precise.
fn precision_of(step: &Step, stored: &Stored) -> &'static str {
    match step.numeric.element {
        Arithmetic::F32 => stored.precision(),
        element => element.name(),
    }
}

/// The node that a step is about, as patterns of names see it: its product, or the last of its nodes.
pub fn layer_of(graph: &Graph, program: &Program, step: &Step) -> String {
    let nodes = &step.region.nodes;
    let is_rounding = |op: &Op| {
        matches!(op, Op::QuantizeLinear(_) | Op::DequantizeLinear(_) | Op::Cast(_) | Op::Identity(_))
    };
    let product = nodes.iter().find(|node| is_layer(&node.op));
    let last = || nodes.iter().rev().find(|node| !is_rounding(&node.op));
    let Some(found) = product.or_else(last).or(nodes.last()) else { return step.name.clone() };
    if !found.name.is_empty() {
        return found.name.clone();
    }
    // A node without a name goes by that of its output, which only the graph knows.
    let outputs =
        step.outputs.iter().flatten().filter_map(|value| graph.find(&program.values[*value as usize].name));
    let mut open: Vec<ValueId> = outputs.collect();
    for _ in 0..MAX_LOOKED_AT {
        let Some(id) = (!open.is_empty()).then(|| open.remove(0)) else { break };
        let Some(node) = graph.value(id).producer.map(|node| graph.node(node)) else { continue };
        if node.name.is_empty() && node.op.name() == found.op.name() {
            return graph.value(id).name.to_string();
        }
        open.extend(node.inputs.iter().flatten());
    }
    step.name.clone()
}

/// The layers of a plan's graph that are of low precision: their data is dequantized, or of 16 bits. In tf32 all are, and
/// patterns of names do not reach them. Where 16 bits are only what weights and factors are rounded to, as on a CPU, types do
/// not tell, and all layers count but those that the caller has named.
pub fn low_layers(graph: &Graph, precision: Precision) -> Vec<String> {
    let dtype = |id: &Option<ValueId>| id.and_then(|id| graph.value(id).ty.as_tensor().map(|ty| ty.dtype));
    let is_dequantized = |id: &Option<ValueId>| {
        let made_by =
            |id: &Option<ValueId>| id.and_then(|id| graph.value(id).producer).map(|node| graph.node(node));
        let maker = made_by(id);
        // Attention reads numbers of 8 bits as floats of 16.
        let before = match maker {
            Some(Node { op: Op::Cast(_), inputs, .. }) => inputs.first().and_then(made_by),
            _ => maker,
        };
        matches!(before, Some(Node { op: Op::DequantizeLinear(_), .. }))
    };
    let is_stored = |node: &Node| node.outputs.first().and_then(dtype) == precision.storage();
    let are_stored = graph.nodes().any(|(_, node)| is_stored(node));
    let is_low = |node: &Node| match precision {
        Precision::Int8 | Precision::Fp8 => node.inputs.first().is_some_and(is_dequantized),
        Precision::Fp16 | Precision::Bf16 => is_stored(node) || !are_stored,
        Precision::Fp32 | Precision::Tf32 => false,
    };
    let low = graph.nodes().filter(|(_, node)| is_layer(&node.op) && is_low(node));
    low.map(|(_, node)| pins::label(graph, node)).collect()
}

/// Values that are followed back from a step's output to its layer.
const MAX_LOOKED_AT: usize = 256;

/// Operators that multiply: what `--layer-precision` is mostly about.
pub fn is_layer(op: &Op) -> bool {
    matches!(
        op,
        Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_) | Op::Einsum(_) | Op::Attention(_)
    )
}
