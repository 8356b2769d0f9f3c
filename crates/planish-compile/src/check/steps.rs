//! Every step against the reference, on tensors that the plan itself produced.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use planish_kernel::{Arithmetic, Tactic};
use planish_op::{Op, Value};
use planish_plan::{Check, Home, Outcome, Plan, Step, StepKind};
use planish_runtime::{Engine, Observed, tactic_at};
use planish_tensor::{DType, Tensor};

use super::points::{Allowance, expected, is_sum_of_products, sample};
use super::{Guilty, skipped};
use crate::error::BuildError;

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

/// Runs the plan once under observation and compares every kernel step. `at` names the sizes, if they are not those
/// that it was tuned at.
pub(super) fn check(
    engine: &Engine,
    plan: &Plan,
    weights: &[Tensor],
    inputs: &[Value],
    (sizes, at): (&[(String, i64)], &str),
    checks: &mut Vec<Check>,
) -> Result<Option<Guilty>, BuildError> {
    let mut guilty = None;
    let mut written = Written::default();
    let mut observe = |observed: Observed| {
        let step = &plan.program.steps[observed.step];
        if let Some(why) = written.changed(plan, step, &observed) {
            let subject = format!("memory of step {}: {}{at}", observed.step, step.name);
            checks.push(Check { subject, n_points: 0, worst: f64::INFINITY, outcome: Outcome::Failed(why) });
        }
        written.keep(step, &observed);
        let tactic = tactic_at(step, sizes);
        let mut check = check_step(plan, weights, step, tactic, &observed);
        check.subject.push_str(at);
        if let (Outcome::Failed(why), Some(tactic)) = (&check.outcome, tactic)
            && guilty.is_none()
        {
            let tactic = tactic.clone();
            guilty = Some(Guilty { what: format!("`{}` by {}{at}: {why}", step.name, tactic.name), tactic });
        }
        checks.push(check);
    };
    let ran = engine.context().and_then(|mut context| context.observe(inputs, &mut observe));
    if let Err(error) = ran {
        // Made-up inputs may be outside what the model defines; that says nothing against the plan.
        checks.push(skipped(
            &format!("steps behind this{at}"),
            format!("the run on made-up inputs ended: {error}"),
        ));
    }
    Ok(guilty)
}

/// What values were when they were written: a step compared on what it read would not show that something else
/// was written there in between.
#[derive(Default)]
struct Written {
    hashes: HashMap<u32, (u64, usize)>,
}

impl Written {
    fn hash(tensor: &Tensor) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(tensor.bytes());
        hasher.finish()
    }

    /// Why a value that the step reads is not what was written.
    fn changed(&self, plan: &Plan, step: &Step, observed: &Observed) -> Option<String> {
        step.inputs.iter().zip(&observed.inputs).find_map(|(value, seen)| {
            let (value, seen) = ((*value)?, seen.as_ref()?);
            let (hash, maker) = self.hashes.get(&value)?;
            let name = &plan.program.values[value as usize].name;
            (Written::hash(seen) != *hash)
                .then(|| format!("`{name}` is no longer what step {maker} wrote: its memory was used again"))
        })
    }

    fn keep(&mut self, step: &Step, observed: &Observed) {
        for (value, made) in step.outputs.iter().zip(&observed.outputs) {
            if let (Some(value), Some(made)) = (value, made) {
                self.hashes.insert(*value, (Written::hash(made), observed.step));
            }
        }
    }
}

fn check_step(
    plan: &Plan,
    weights: &[Tensor],
    step: &Step,
    tactic: Option<&Tactic>,
    observed: &Observed,
) -> Check {
    let subject = format!("step {}: {}", observed.step, step.name);
    if matches!(&step.kind, StepKind::Kernel { slow: true, .. }) {
        return skipped(&subject, "it is the reference".to_string());
    }
    let weight = |value: u32| match &plan.program.values[value as usize].home {
        Home::Weight(weight) => weights.get(*weight as usize).cloned(),
        _ => None,
    };
    let inputs: Vec<Option<Value>> = step
        .inputs
        .iter()
        .zip(&observed.inputs)
        .map(|(value, seen)| seen.clone().or_else(|| value.and_then(weight)).map(Value::Tensor))
        .collect();
    let mut worst = 0.0f64;
    let mut n_points = 0;
    for (output, got) in observed.outputs.iter().enumerate() {
        let Some(got) = got else { continue };
        let points = sample(got.shape(), observed.step as u64);
        let values = got.to_f64s();
        let largest = values.iter().filter(|x| x.is_finite()).fold(0.0f64, |most, x| most.max(x.abs()));
        let expected = match expected(
            &step.region,
            &inputs,
            output,
            &points,
            allowance(step, tactic, &inputs, got.dtype()),
            largest,
        ) {
            Ok(expected) => expected,
            Err(why) => return skipped(&subject, why),
        };
        for ((point, want), bound) in points.iter().zip(&expected.values).zip(&expected.bounds) {
            let got = values[flat(point, got.shape())];
            n_points += 1;
            let same = got == *want || (got.is_nan() && want.is_nan());
            let error = (got - want).abs();
            let share = if same { 0.0 } else { error / bound.max(f64::MIN_POSITIVE) };
            if share.is_nan() || share > 1.0 {
                let outcome = Outcome::Failed(format!("{got:e} instead of {want:e} at {point:?}"));
                return Check {
                    subject,
                    n_points,
                    worst: if share.is_nan() { f64::INFINITY } else { share },
                    outcome,
                };
            }
            worst = worst.max(share);
        }
    }
    Check { subject, n_points, worst, outcome: Outcome::Passed }
}

fn flat(point: &[usize], shape: &[usize]) -> usize {
    point.iter().zip(shape).fold(0, |flat, (place, dim)| flat * dim + place)
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
fn is_movement(op: &Op) -> bool {
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
