//! Every step on tensors that the plan itself produced: small ones against the reference at every element; larger ones
//! against other kernels at every element, and against the reference where the two differ most, at corners, tile edges,
//! tails and random points. What is done follows from counts of the plan's own sizes.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hasher};

use planish_kernel::{Arithmetic, Backend, Tactic};
use planish_op::{Op, Value};
use planish_plan::{Check, Home, Outcome, Plan, Program, Step, StepKind};
use planish_runtime::{Engine, Observed, problem_of, tactic_at};
use planish_tensor::{Bytes, DType, Tensor};

use super::points::{
    Allowance, Expected, expected, expected_everywhere, flat, is_sum_of_products, point_of, sample, widened,
    widened_region,
};
use super::rows_of_region::cut_rows;
use super::witness::{suspects, witness};
use super::work::{Work, work_of};
use super::{Guilty, skipped};

/// Half the distance between 1 and the next f32.
const EPSILON: f64 = 5.96e-8;
/// Sums in f32 of n terms err by about the square root of n roundings; this many times that is allowed.
const SUM_SLACK: f64 = 2.0;
/// Winograd's transforms add and multiply intermediate values that are larger than the result: F(4x4) has
/// factors up to 5 in each of three transforms, F(2x2) none above 1.
const WINOGRAD4_SLACK: f64 = 16.0;
const WINOGRAD2_SLACK: f64 = 4.0;
/// Transcendental functions and norms in f32: a few units in the last place of the largest intermediate value.
const FUNCTION_SLACK: f64 = 64.0;

/// Half the distance between 1 and the next f16, bf16 and tf32.
const F16_EPSILON: f64 = 1.0 / 2048.0;
const BF16_EPSILON: f64 = 1.0 / 256.0;
const TF32_EPSILON: f64 = 1.0 / 2048.0;
/// A result of 16 bits is rounded once where a kernel does all in one; a kernel that keeps a value between two
/// nodes of its region in 16 bits (probabilities of attention) rounds twice.
const LOW_ROUNDINGS: f64 = 2.0;
/// Tensor cores add products of 16 bits in f32 and cut off instead of rounding, some bits short of f32: errors of
/// one sign add up to several times those of rounded sums.
const TENSOR_CORE_SLACK: f64 = 8.0;
/// Both factors of a product are rounded to tf32, in either direction: over n terms such errors add up like the
/// square root of n. This many times that is allowed.
const TF32_SLACK: f64 = 6.0;

/// What the reference may compute of one step, and of all steps at one set of sizes, in multiplications and additions:
/// a tenth of a second, and a third.
const MAX_STEP_REFERENCE: u64 = 150_000_000;
const MAX_REFERENCE: u64 = 500_000_000;
/// Values are computed once, magnitudes of terms another time.
const REFERENCE_PASSES: u64 = 2;
/// What other kernels may compute at one set of sizes, and the weights that may be packed for them: some tenths of a
/// second. Beyond it, steps whose problem and tactic were compared at every element before get points alone.
const MAX_WITNESS: u64 = 25_000_000_000;
const MAX_WITNESS_BYTES: u64 = 128 << 20;
/// Elements that may be brought into other layouts for it.
const MAX_WITNESS_ELEMENTS: u64 = 64 << 20;
/// Nodes in front of the last layer of a step are evaluated whole; beyond this a few rows of the batch must do.
const MAX_INNER: u64 = 100_000_000;
/// Of a body that runs again and again the first trips are compared.
const MAX_TRIPS: usize = 2;

/// A step: the steps of control flow with their bodies that it is inside of, and its number there.
pub(super) type StepPlace = (Vec<(usize, usize)>, usize);

/// What is kept over runs at several sizes.
pub(super) struct Steps<'a> {
    engine: &'a Engine,
    weights: &'a [Tensor],
    /// Other kernels on the host, for a second opinion.
    witness: &'a dyn Backend,
    threads: usize,
    /// From the model's own bytes: other models are looked at in other places.
    seed: u64,
    /// Steps that were compared at any sizes.
    pub(super) compared: HashSet<StepPlace>,
    /// Why steps were not, by the first reason met.
    pub(super) reasons: HashMap<StepPlace, String>,
    /// Problems and tactics that were compared at every element, and at points at least.
    thorough: HashSet<(String, String)>,
    seen: HashSet<(String, String)>,
}

/// How a run under observation ended.
#[derive(Default)]
pub(super) struct Ran {
    pub(super) checks: Vec<Check>,
    pub(super) guilty: Option<Guilty>,
    /// Why it ended before the last step.
    pub(super) ended: Option<String>,
    /// Whether its outputs are numbers, all of them.
    pub(super) is_finite: bool,
}

/// Where an output of a step is looked at.
struct Look<'a> {
    output: usize,
    points: &'a [Vec<usize>],
    /// Those of the points that other kernels say something else of, the worst first.
    suspects: &'a [Vec<usize>],
    got: &'a Tensor,
    allowance: Allowance,
}

/// What may be spent at one set of sizes.
struct Budget {
    reference: u64,
    witness: u64,
    witness_bytes: u64,
    witness_elements: u64,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        weights: &'a [Tensor],
        witness: &'a dyn Backend,
        threads: usize,
    ) -> Steps<'a> {
        let seed = seed_of(engine.plan());
        let (compared, reasons) = (HashSet::new(), HashMap::new());
        let (thorough, seen) = (HashSet::new(), HashSet::new());
        Steps { engine, weights, witness, threads, seed, compared, reasons, thorough, seen }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Runs a plan once under observation and compares its kernel steps, those in bodies too. `within` is where the
    /// program of `engine` stands in the plan's, if it is a body. `at` names sizes and inputs; unless `all` are to be
    /// compared, steps are left out that are the same problem by the same tactic as one before.
    pub(super) fn run(
        &mut self,
        engine: &Engine,
        within: &[(usize, usize)],
        inputs: &[Value],
        (at, all): (&str, bool),
    ) -> Ran {
        let mut ran = Ran::default();
        let mut written = Written::default();
        let mut trips: HashMap<StepPlace, usize> = HashMap::new();
        let mut budget = Budget {
            reference: MAX_REFERENCE,
            witness: MAX_WITNESS,
            witness_bytes: MAX_WITNESS_BYTES,
            witness_elements: MAX_WITNESS_ELEMENTS,
        };
        let plan = engine.plan();
        let mut observe = |observed: Observed| {
            if ran.guilty.is_some() {
                return;
            }
            let place = ([within, &observed.path[..]].concat(), observed.step);
            let trip = trips.entry(place.clone()).or_default();
            *trip += 1;
            if *trip > MAX_TRIPS {
                return;
            }
            let Some(program) = program_at(&plan.program, &observed.path) else { return };
            let step = &program.steps[observed.step];
            let mut subject = subject(&place, step);
            if let Some(why) = written.changed(program, step, &observed) {
                let subject = format!("memory of {subject}{at}");
                ran.checks.push(Check {
                    subject,
                    n_points: 0,
                    worst: f64::INFINITY,
                    outcome: Outcome::Failed(why),
                });
            }
            written.keep(step, &observed);
            let tactic = tactic_at(step, &observed.sizes);
            let key = problem_of(program, step, &observed.sizes, self.threads)
                .map(|problem| (problem.key(), tactic.map(Tactic::to_string).unwrap_or_default()));
            if let Ok(key) = &key
                && !(all && *trip == 1)
                && self.seen.contains(key)
            {
                self.compared.insert(place);
                return;
            }
            let mut check =
                self.step(program, step, tactic, &observed, key.as_ref().ok(), &place, &mut budget);
            match &check.outcome {
                Outcome::Skipped(why) => {
                    self.reasons.entry(place).or_insert_with(|| why.clone());
                }
                Outcome::Passed | Outcome::Failed(_) => {
                    self.seen.extend(key.ok());
                    self.compared.insert(place);
                }
            }
            if let (Outcome::Failed(why), Some(tactic)) = (&check.outcome, tactic) {
                let tactic = tactic.clone();
                let what = format!("`{}` by {}{at}: {why}", step.name, tactic.name);
                ran.guilty = Some(Guilty { what, tactic });
            }
            subject.push_str(&check.subject);
            subject.push_str(at);
            check.subject = subject;
            ran.checks.push(check);
        };
        let ended = engine.context().and_then(|mut context| context.observe(inputs, &mut observe));
        let is_finite = |value: &Value| match value.as_tensor() {
            Some(tensor) if tensor.dtype().is_float() => tensor.to_f64s().iter().all(|x| x.is_finite()),
            _ => true,
        };
        ran.is_finite = ended.as_ref().is_ok_and(|outputs| outputs.iter().all(is_finite));
        ran.ended = ended.err().map(|error| error.to_string());
        ran
    }

    /// Compares one step; the subject of the check says how.
    #[expect(clippy::too_many_arguments, reason = "a step and where it stands")]
    fn step(
        &mut self,
        program: &Program,
        step: &Step,
        tactic: Option<&Tactic>,
        observed: &Observed,
        key: Option<&(String, String)>,
        place: &StepPlace,
        budget: &mut Budget,
    ) -> Check {
        if matches!(&step.kind, StepKind::Kernel { slow: true, .. }) {
            return skipped("", IS_REFERENCE.to_string());
        }
        let weight = |value: u32| match &program.values[value as usize].home {
            Home::Weight(weight) => self.weights.get(*weight as usize).map(aligned),
            _ => None,
        };
        let is_constant = |value: u32| matches!(program.values[value as usize].home, Home::Weight(_));
        let is_weight: Vec<bool> = step.inputs.iter().map(|value| value.is_some_and(is_constant)).collect();
        let inputs: Vec<Option<Value>> = step
            .inputs
            .iter()
            .zip(&observed.inputs)
            .map(|(value, seen)| seen.clone().or_else(|| value.and_then(weight)).map(Value::Tensor))
            .collect();
        let work = problem_of(program, step, &observed.sizes, self.threads).ok().and_then(|p| work_of(&p));
        let cost = work.map_or(0, |work| REFERENCE_PASSES * work.all);
        let is_cheap = cost <= MAX_STEP_REFERENCE.min(budget.reference);
        let mut by = Vec::new();
        let mut others = Vec::new();
        if is_cheap {
            budget.reference -= cost;
        } else if let Some(work) = work {
            let is_new = key.is_none_or(|key| !self.thorough.contains(key));
            if let Some(found) = self.ask(step, tactic, &inputs, &is_weight, observed, work, is_new, budget) {
                (others, by) = (found.outputs, found.by);
            }
        }
        let is_witnessed = !others.is_empty();
        if is_cheap || is_witnessed {
            self.thorough.extend(key.cloned());
        }
        let seed = self.seed ^ hash_of(place);
        let mut tally = Tally::default();
        for (output, got) in observed.outputs.iter().enumerate() {
            let Some(got) = got else { continue };
            let allowance = allowance(step, tactic, &inputs, got.dtype());
            let outcome = if is_cheap {
                expected_everywhere(&step.region, &inputs, output, allowance).and_then(|expected| {
                    tally.compare(&got.to_f64s(), &expected, &|at| point_of(at, got.shape()))
                })
            } else {
                let other = others.get(output).filter(|other| other.shape() == got.shape());
                let suspects: Vec<Vec<usize>> = other.map_or(Vec::new(), |other| {
                    suspects(got, other).into_iter().map(|at| point_of(at, got.shape())).collect()
                });
                let points = points_to_check(got, &suspects, seed, is_witnessed);
                let look = Look { output, points: &points, suspects: &suspects, got, allowance };
                self.at_points(step, work, &inputs, &look, &mut tally)
            };
            match outcome {
                Ok(true) => {}
                Ok(false) => break,
                // What the reference cannot compute at points says nothing about the kernel.
                Err(why) => return skipped("", why),
            }
        }
        let mut subject = match (is_cheap, is_witnessed) {
            (true, _) => ", every element".to_string(),
            (_, true) => format!(", every element against {}", by.join(" and ")),
            (false, false) => ", at points".to_string(),
        };
        if let Some(tactic) = tactic {
            subject = format!(" by {}{subject}", tactic.name);
        }
        tally.check(subject)
    }

    /// What other kernels make of a step, where counts allow it.
    #[expect(clippy::too_many_arguments, reason = "what the decision hangs on")]
    fn ask(
        &self,
        step: &Step,
        tactic: Option<&Tactic>,
        inputs: &[Option<Value>],
        is_weight: &[bool],
        observed: &Observed,
        work: Work,
        is_new: bool,
        budget: &mut Budget,
    ) -> Option<super::witness::Witness> {
        let tensors = || inputs.iter().flatten().filter_map(Value::as_tensor);
        let weights = tensors().zip(is_weight).filter(|(_, is_weight)| **is_weight);
        let bytes: u64 = weights.map(|(tensor, _)| tensor.bytes().len() as u64).sum();
        let elements = tensors().chain(observed.outputs.iter().flatten()).map(|tensor| tensor.len() as u64);
        let elements = elements.sum::<u64>() * step.region.nodes.len() as u64;
        // A problem that was not seen before may take what is left of the whole again.
        let times = if is_new { 2 } else { 1 };
        let fits = work.heavy <= times * budget.witness
            && bytes <= times * budget.witness_bytes
            && elements <= times * budget.witness_elements;
        if !fits {
            return None;
        }
        budget.witness = budget.witness.saturating_sub(work.heavy);
        budget.witness_bytes = budget.witness_bytes.saturating_sub(bytes);
        budget.witness_elements = budget.witness_elements.saturating_sub(elements);
        let region = widened_region(&step.region);
        let inputs: Vec<Option<Value>> = inputs.iter().map(widened).collect();
        let name = tactic.map_or("", |tactic| tactic.name.as_str());
        witness(self.witness, &region, &inputs, is_weight, name, self.threads).ok()
    }

    /// Compares an output with the reference at points; `Ok(false)` once one is wrong.
    fn at_points(
        &self,
        step: &Step,
        work: Option<Work>,
        inputs: &[Option<Value>],
        look: &Look<'_>,
        tally: &mut Tally,
    ) -> Result<bool, String> {
        let Look { output, points, suspects, got, allowance } = *look;
        let is_large = work.is_some_and(|work| REFERENCE_PASSES * work.inner > MAX_INNER);
        let cut = is_large.then(|| cut_rows(&step.region, inputs, got.shape(), points, suspects)).flatten();
        let values = got.to_f64s();
        let pick = |points: &[Vec<usize>]| -> Vec<f64> {
            points.iter().map(|point| values[flat(point, got.shape())]).collect()
        };
        let Some(cut) = cut else {
            let expected = expected(&step.region, inputs, output, points, allowance)?;
            return tally.compare(&pick(points), &expected, &|at| points[at].clone());
        };
        for row in cut {
            let expected = expected(&step.region, &row.inputs, output, &row.inner_points, allowance)?;
            if !tally.compare(&pick(&row.points), &expected, &|at| row.points[at].clone())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The steps by kernels, in bodies too, that were never compared, each with the reason if there is one.
    pub(super) fn not_compared(&self) -> Vec<(StepPlace, String, Option<String>)> {
        let mut list = Vec::new();
        self.collect(&self.engine.plan().program, &mut Vec::new(), &mut list);
        list
    }

    fn collect(
        &self,
        program: &Program,
        path: &mut Vec<(usize, usize)>,
        list: &mut Vec<(StepPlace, String, Option<String>)>,
    ) {
        for (idx, step) in program.steps.iter().enumerate() {
            match &step.kind {
                StepKind::Kernel { slow: false, .. } => {
                    let place = (path.clone(), idx);
                    if !self.compared.contains(&place) {
                        let why = self.reasons.get(&place).cloned();
                        list.push((place, step.name.clone(), why));
                    }
                }
                StepKind::Control(control) => {
                    for (number, body) in control.bodies.iter().enumerate() {
                        path.push((idx, number));
                        self.collect(body, path, list);
                        path.pop();
                    }
                }
                StepKind::Kernel { slow: true, .. } | StepKind::Transfer | StepKind::Evaluate => {}
            }
        }
    }
}

/// From the model's own bytes, so that equal builds are equal and other models are looked at in other places.
pub(super) fn seed_of(plan: &Plan) -> u64 {
    u64::from_le_bytes(plan.source.first_chunk().copied().unwrap_or_default())
}

/// A weight at an address that its type allows: one in a mapped file may lie anywhere, and the reference would copy all
/// of it for every point.
fn aligned(weight: &Tensor) -> Tensor {
    let bytes = weight.bytes();
    if bytes.as_ptr().addr().is_multiple_of(size_of::<u64>()) {
        return weight.clone();
    }
    let copied = Bytes::from_vec(bytes.to_vec());
    Tensor::from_bytes(weight.dtype(), weight.shape(), copied).unwrap_or_else(|_| weight.clone())
}

const IS_REFERENCE: &str = "it is the reference";

/// The program of a body.
pub(super) fn program_at<'p>(program: &'p Program, path: &[(usize, usize)]) -> Option<&'p Program> {
    path.iter().try_fold(program, |program, &(step, body)| match &program.steps.get(step)?.kind {
        StepKind::Control(control) => control.bodies.get(body),
        StepKind::Kernel { .. } | StepKind::Transfer | StepKind::Evaluate => None,
    })
}

/// A step by its number, with those of the steps that it is inside of: `step 3.0.7: conv1` is step 7 of the first body
/// of step 3.
fn subject((path, step): &StepPlace, of: &Step) -> String {
    let outer: String = path.iter().map(|(step, body)| format!("{step}.{body}.")).collect();
    format!("step {outer}{step}: {}", of.name)
}

fn hash_of(place: &StepPlace) -> u64 {
    let numbers = place.0.iter().flat_map(|(step, body)| [*step, *body]).chain([place.1]);
    numbers.fold(0u64, |hash, number| (hash ^ number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Where an output is compared with the reference: sampled places, its extremes, and where other kernels say something
/// else.
fn points_to_check(got: &Tensor, suspects: &[Vec<usize>], seed: u64, besides: bool) -> Vec<Vec<usize>> {
    let mut points = sample(got.shape(), seed, besides);
    let values = got.to_f64s();
    let finite = || values.iter().enumerate().filter(|(_, x)| x.is_finite());
    let extremes = [
        finite().max_by(|a, b| a.1.total_cmp(b.1)),
        finite().min_by(|a, b| a.1.total_cmp(b.1)),
        values.iter().enumerate().find(|(_, x)| x.is_nan()),
        values.iter().enumerate().find(|(_, x)| x.is_infinite()),
    ];
    points.extend(extremes.into_iter().flatten().map(|(at, _)| point_of(at, got.shape())));
    points.extend_from_slice(suspects);
    points.sort_unstable();
    points.dedup();
    points
}

/// What was compared of a step so far.
#[derive(Default)]
struct Tally {
    n_points: u64,
    worst: f64,
    failure: Option<String>,
}

impl Tally {
    /// Compares numbers with what was expected; `Ok(false)` once one is wrong.
    fn compare(
        &mut self,
        got: &[f64],
        expected: &Expected,
        point: &dyn Fn(usize) -> Vec<usize>,
    ) -> Result<bool, String> {
        if got.len() != expected.values.len() {
            return Err(format!("{} elements instead of {}", got.len(), expected.values.len()));
        }
        for (at, ((got, want), bound)) in got.iter().zip(&expected.values).zip(&expected.bounds).enumerate() {
            self.n_points += 1;
            let same = got == want || (got.is_nan() && want.is_nan());
            let share = if same { 0.0 } else { (got - want).abs() / bound.max(f64::MIN_POSITIVE) };
            // A NaN is as wrong as can be.
            if share.is_nan() || share > 1.0 {
                self.worst = if share.is_nan() { f64::INFINITY } else { share };
                self.failure = Some(format!("{got:e} instead of {want:e} at {:?}", point(at)));
                return Ok(false);
            }
            self.worst = self.worst.max(share);
        }
        Ok(true)
    }

    fn check(self, subject: String) -> Check {
        let outcome = self.failure.map_or(Outcome::Passed, Outcome::Failed);
        Check { subject, n_points: self.n_points, worst: self.worst, outcome }
    }
}

/// A value: the path to its program, and its number there.
type StepValue = (Vec<(usize, usize)>, u32);

/// What values were when they were written: a step compared on what it read would not show that something else
/// was written there in between.
#[derive(Default)]
struct Written {
    /// By the path to its program and its number there: its hash, and the step that wrote it.
    hashes: HashMap<StepValue, (u64, usize)>,
}

impl Written {
    fn hash(tensor: &Tensor) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(tensor.bytes());
        hasher.finish()
    }

    /// Why a value that the step reads is not what was written.
    fn changed(&self, program: &Program, step: &Step, observed: &Observed) -> Option<String> {
        step.inputs.iter().zip(&observed.inputs).find_map(|(value, seen)| {
            let (value, seen) = ((*value)?, seen.as_ref()?);
            let (hash, maker) = self.hashes.get(&(observed.path.clone(), value))?;
            let name = &program.values[value as usize].name;
            (Written::hash(seen) != *hash)
                .then(|| format!("`{name}` is no longer what step {maker} wrote: its memory was used again"))
        })
    }

    fn keep(&mut self, step: &Step, observed: &Observed) {
        for (value, made) in step.outputs.iter().zip(&observed.outputs) {
            if let (Some(value), Some(made)) = (value, made) {
                self.hashes.insert((observed.path.clone(), *value), (Written::hash(made), observed.step));
            }
        }
    }
}

/// How far the step may be off.
fn allowance(step: &Step, tactic: Option<&Tactic>, inputs: &[Option<Value>], output: DType) -> Allowance {
    let tactic = tactic.map_or("", |tactic| tactic.name.as_str());
    let moves_only = step.region.nodes.iter().all(|node| is_movement(&node.op));
    if moves_only {
        return Allowance { of_terms: 0.0, of_value: 0.0, of_largest: 0.0 };
    }
    let main = step.region.nodes.iter().find(|node| is_sum_of_products(&node.op));
    let terms = main.map_or(1, |main| n_terms(&main.op, inputs));
    let kind = if tactic.contains("winograd4") {
        WINOGRAD4_SLACK
    } else if tactic.contains("winograd") {
        WINOGRAD2_SLACK
    } else {
        1.0
    };
    let of_largest = match main {
        // Winograd mixes neighbouring outputs, so its error follows the largest of them.
        Some(_) if kind > 1.0 => 4.0 * kind * EPSILON,
        Some(_) => 2.0 * EPSILON,
        None => FUNCTION_SLACK * EPSILON,
    };
    // What the result is rounded to, on top of what it is computed in.
    let low = LOW_ROUNDINGS
        * match output {
            DType::F16 => F16_EPSILON,
            DType::BF16 => BF16_EPSILON,
            _ => 0.0,
        };
    let root = (terms as f64).sqrt();
    let of_terms = match step.numeric.element {
        Arithmetic::F16 | Arithmetic::Bf16 => TENSOR_CORE_SLACK * EPSILON * (1.0 + root),
        Arithmetic::Tf32 => 2.0 * TF32_EPSILON * (TF32_SLACK / root).min(1.0),
        _ => SUM_SLACK * kind * EPSILON * (1.0 + root),
    };
    Allowance { of_terms, of_value: FUNCTION_SLACK * EPSILON + low, of_largest: of_largest + low }
}

/// How many products make one output.
fn n_terms(op: &Op, inputs: &[Option<Value>]) -> usize {
    let shape =
        |idx: usize| inputs.get(idx).and_then(Option::as_ref).and_then(Value::as_tensor).map(Tensor::shape);
    match op {
        Op::Conv(_) => shape(1).map_or(1, |dims| dims[1..].iter().product()),
        Op::ConvTranspose(_) => shape(1).map_or(1, |dims| dims[0] * dims[2..].iter().product::<usize>()),
        _ => shape(0).and_then(|dims| dims.last().copied()).unwrap_or(1),
    }
    .max(1)
}

/// Operators whose outputs are elements of their inputs.
pub(super) fn is_movement(op: &Op) -> bool {
    matches!(
        op,
        Op::Identity(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::Concat(_)
            | Op::Split(_)
            | Op::Slice(_)
            | Op::Gather(_)
            | Op::GatherElements(_)
            | Op::GatherND(_)
            | Op::ScatterND(_)
            | Op::ScatterElements(_)
            | Op::Expand(_)
            | Op::Tile(_)
            | Op::Pad(_)
            | Op::DepthToSpace(_)
            | Op::SpaceToDepth(_)
            | Op::Squeeze(_)
            | Op::Unsqueeze(_)
            | Op::Flatten(_)
            | Op::MaxPool(_)
            | Op::GlobalMaxPool(_)
            | Op::ArgMax(_)
            | Op::ArgMin(_)
            | Op::TopK(_)
    )
}
