//! The whole plan against the reference where that is cheap, or against its nodes by kernels.

use std::sync::Arc;

use planish_ir::{Graph, interpret_within};
use planish_kernel::Backend;
use planish_op::{Op, Value};
use planish_plan::{Check, Outcome};
use planish_runtime::Engine;
use planish_tensor::{DType, Tensor};

use super::inputs::{Integers, Numbers};
use super::points::is_sum_of_products;
use super::{apart, skipped};
use crate::budget;
use crate::options::{BuildOptions, Precision};

/// The reference does some three of these a second on two cores; a check should not take longer than one.
pub(super) const MAX_REFERENCE_FLOPS: u64 = 2_500_000_000;
/// Relative L2 error of the outputs. Sound f32 plans are some 1e-6 off; a variance written as a difference of
/// squares was seen to make 6e-4 of that. Every step has been checked far more tightly before.
const MODEL_TOLERANCE: f64 = 2e-3;
/// The same where values are rounded to few bits on the way: one that falls to the other side of a boundary moves
/// by a whole step, 2^-8 of the range in 8 bits. The largest seen was 7e-3.
const COARSE_TOLERANCE: f64 = 5e-2;

/// The same for plans of lower precision against the model in f32: loose, since every layer of a deep network adds
/// its rounding, and made-up inputs are harsher than pictures. Real models err by some 2e-3 in f16 and tf32, and
/// eight times that in bf16.
const F16_TOLERANCE: f64 = 3e-2;
const TF32_TOLERANCE: f64 = 2e-2;
const BF16_TOLERANCE: f64 = 2e-1;

/// How inputs are made up on which runs were seen to succeed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeUp {
    pub(super) seed: u64,
    pub(super) integers: Integers,
}

impl MadeUp {
    pub(super) fn inputs(self, engine: &Engine, sizes: &[(String, i64)], number: u64) -> Option<Vec<Value>> {
        super::inputs::random(engine.plan(), sizes, self.seed.wrapping_add(number), self.integers)
    }
}

/// A model that is too large for the reference, and what its plan made of it: to be compared with its nodes by kernels,
/// which need weights of their own, once the plan's engine is closed.
pub(super) struct Large {
    subject: String,
    sizes: Vec<(String, i64)>,
    inputs: Vec<Value>,
    got: Result<Vec<Value>, String>,
}

impl Large {
    /// Compares the outputs with those of the nodes as the model has them.
    pub(super) fn against_nodes(
        self,
        graph: &Graph,
        backends: &[Arc<dyn Backend>],
        options: &BuildOptions,
    ) -> Check {
        let Large { subject, sizes, inputs, got } = self;
        let nodes = |graph: &Graph, inputs: &[Value]| apart::run(graph, &sizes, backends, options, inputs);
        match nodes(graph, &inputs) {
            Ok(expected) => {
                let other = Other { graph, inputs: &inputs, expected: &expected, run: &nodes };
                compare(&subject, got, &other, tolerance(graph, options), options.precision)
            }
            Err(why) => skipped(&subject, why),
        }
    }
}

/// The model's outputs against the reference's, at the cheapest of these sizes. Large models are run here and compared
/// later.
pub(super) fn against_reference(
    graph: &Graph,
    engine: &Engine,
    all_sizes: &[Vec<(String, i64)>],
    options: &BuildOptions,
    made_up: MadeUp,
    checks: &mut Vec<Check>,
) -> Option<Large> {
    let sizes = all_sizes.iter().min_by_key(|sizes| super::flops_at(graph, sizes))?;
    let flops = super::flops_at(graph, sizes);
    let is_large = flops > MAX_REFERENCE_FLOPS;
    let mut subject = match is_large {
        true => "whole model against its nodes without passes".to_string(),
        false => "whole model against the reference".to_string(),
    };
    if *sizes != engine.plan().header.tuned_at {
        subject.push_str(&super::at(sizes));
    }
    if flops > apart::MAX_FLOPS {
        let why =
            format!("{:.1} GFLOP are too many; steps, wires and memory were checked", flops as f64 / 1e9);
        checks.push(skipped(&subject, why));
        return None;
    }
    let inputs = made_up.inputs(engine, sizes, 0)?;
    if let Some(name) = deciding(graph) {
        let why = format!("`{name}` decides by comparing, and rounding may decide otherwise");
        checks.push(skipped(&subject, why));
        return None;
    }
    let got = || {
        let got = engine.context().and_then(|mut context| context.run_values(&inputs));
        got.map_err(|error| error.to_string())
    };
    if is_large {
        let got = got();
        return Some(Large { subject, sizes: sizes.clone(), inputs, got });
    }
    let reference = |graph: &Graph, inputs: &[Value]| {
        let made = interpret_within(graph, inputs.to_vec(), &budget::of_reference(options));
        made.map_err(|error| error.to_string())
    };
    checks.push(match reference(graph, &inputs) {
        Ok(expected) => {
            let other = Other { graph, inputs: &inputs, expected: &expected, run: &reference };
            compare(&subject, got(), &other, tolerance(graph, options), options.precision)
        }
        Err(error) => skipped(&subject, format!("the reference refuses made-up inputs: {error}")),
    });
    None
}

/// What computes a model's outputs from its inputs.
type Run<'a> = dyn Fn(&Graph, &[Value]) -> Result<Vec<Value>, String> + 'a;

/// Another way to compute a model, and what it made of it.
struct Other<'a> {
    graph: &'a Graph,
    inputs: &'a [Value],
    expected: &'a [Value],
    run: &'a Run<'a>,
}

/// By how much inputs are moved to see how sensitive a model is: what sums of a thousand terms in f32 are off.
const MOVE: f64 = 1.0 / (1 << 19) as f64;
/// The same for plans of lower precision: what it rounds by.
const F16_MOVE: f64 = 1.0 / 2048.0;
const BF16_MOVE: f64 = 1.0 / 256.0;
/// A plan rounds a little differently in every layer, moved inputs in the first alone: so many times as far as these
/// carry the outputs may the plan's be.
const MOVE_SLACK: f64 = 4.0;
/// In lower precision every layer rounds what it reads and its weights, each like a move of the inputs: together those
/// of n layers carry the outputs as far as the square root of n such moves, times this.
const LAYER_SLACK: f64 = 2.0;
/// Where a bound would be above this, rounding decides the outputs: nearly anything would pass.
const MOST_BOUND: f64 = 0.4;
/// Whether a value lies at a boundary is chance: inputs are moved so many times, each differently.
const MOVES: u64 = 3;

/// What a plan made of a model, compared with what another way made of it.
fn compare(
    subject: &str,
    got: Result<Vec<Value>, String>,
    other: &Other<'_>,
    tolerance: f64,
    precision: Precision,
) -> Check {
    let apart = match got.and_then(|got| farthest(&got, other.expected)) {
        Ok(apart) => apart,
        Err(why) => return failed(subject, f64::INFINITY, why),
    };
    if apart <= tolerance {
        return passed(subject, apart / tolerance);
    }
    let (by, slack, weights_too) = match precision {
        Precision::Fp16 | Precision::Tf32 => (F16_MOVE, layer_slack(other.graph), false),
        Precision::Bf16 => (BF16_MOVE, layer_slack(other.graph), false),
        // Values of few bits on the way: one that lies at a boundary between two may fall to the other side.
        Precision::Fp32 | Precision::Int8 | Precision::Fp8 if is_coarse(other.graph) => {
            (MOVE, MOVE_SLACK, true)
        }
        Precision::Fp32 | Precision::Int8 | Precision::Fp8 => (0.0, 0.0, false),
    };
    let own = (by > 0.0).then(|| own_move(other, by, weights_too)).flatten();
    let OwnMove { by: own, of } = own.unwrap_or(OwnMove { by: 0.0, of: "inputs" });
    let moved = format!("{own:.1e} when its {of} move by {by:.1e}");
    let bound = tolerance.max(slack * own);
    if bound > MOST_BOUND {
        let why = format!("rounding to few bits decides: the model itself moves by {moved}");
        return skipped(subject, why);
    }
    if apart <= bound {
        return passed(&format!("{subject}, which itself moves by {moved}"), apart / bound);
    }
    failed(subject, apart / bound, format!("relative L2 error {apart:.1e}"))
}

/// How many times as far as moved inputs carry them the outputs of a plan of lower precision may be off.
fn layer_slack(graph: &Graph) -> f64 {
    let n_layers = graph.nodes().filter(|(_, node)| is_sum_of_products(&node.op)).count();
    (LAYER_SLACK * (n_layers as f64).sqrt()).max(MOVE_SLACK)
}

/// How far a model's outputs move when something that they are computed from does.
struct OwnMove {
    by: f64,
    /// What was moved.
    of: &'static str,
}

/// How far the model's outputs move when its inputs do by little, or its weights, where these are moved too; `None` where it
/// has none that can.
fn own_move(other: &Other<'_>, by: f64, weights_too: bool) -> Option<OwnMove> {
    let apart = |graph: &Graph, inputs: &[Value], from: &[Value]| {
        let made = (other.run)(graph, inputs).ok()?;
        farthest(&made, from).ok().filter(|own| own.is_finite())
    };
    let most = |one: &dyn Fn(u64) -> Option<f64>| (0..MOVES).filter_map(one).reduce(f64::max);
    let has_floats = other.inputs.iter().any(|value| value.as_tensor().is_some_and(is_float));
    let by_inputs = has_floats.then(|| {
        most(&|seed| apart(other.graph, &moved_inputs(other.inputs, by, seed), other.expected))
            .map(|by| OwnMove { by, of: "inputs" })
    });
    // Inputs that are tokens cannot be moved, and those that are rounded at once are not by so little.
    let by_weights = weights_too.then(|| {
        let graph = in_floats(other.graph)?;
        // Held against itself, so that a pass which changes more than it should counts for nothing.
        let from = (other.run)(&graph, other.inputs).ok()?;
        most(&|seed| apart(&moved_weights(&graph, by, seed)?, other.inputs, &from))
            .map(|by| OwnMove { by, of: "weights" })
    });
    by_inputs.flatten().into_iter().chain(by_weights.flatten()).max_by(|a, b| a.by.total_cmp(&b.by))
}

/// The model with its weights as floats, each of which can be moved by itself: what products of integers are spelled by
/// reads them dequantized.
fn in_floats(graph: &Graph) -> Option<Graph> {
    let options = planish_passes::Options::default();
    let (graph, _) = planish_passes::standard().run(graph.clone(), &options).ok()?;
    planish_passes::dequantize_weights().run(graph, &options).ok().map(|(graph, _)| graph)
}

fn is_float(tensor: &Tensor) -> bool {
    tensor.dtype() == DType::F32
}

/// A tensor of f32 with each element larger or smaller by little.
fn moved(tensor: &Tensor, by: f64, signs: &mut Numbers) -> Option<Tensor> {
    let one = |x: f64| if signs.next() >> 63 == 0 { x * (1.0 + by) } else { x * (1.0 - by) };
    let values: Vec<f64> = tensor.to_f64s().into_iter().map(one).collect();
    Tensor::from_f64s(DType::F32, tensor.shape(), &values).ok()
}

/// The inputs, those of f32 moved.
fn moved_inputs(inputs: &[Value], by: f64, seed: u64) -> Vec<Value> {
    let mut signs = Numbers::new(seed);
    let mut one = |value: &Value| {
        let tensor = value.as_tensor().filter(|tensor| is_float(tensor))?;
        moved(tensor, by, &mut signs).map(Value::Tensor)
    };
    inputs.iter().map(|value| one(value).unwrap_or_else(|| value.clone())).collect()
}

/// The model with its constants of f32 moved, but for single numbers: a scale of a whole tensor moves all of it the same
/// way, and then nothing falls to another side. `None` where there are none.
fn moved_weights(graph: &Graph, by: f64, seed: u64) -> Option<Graph> {
    let mut signs = Numbers::new(seed);
    let mut all = graph.clone();
    let mut any = false;
    for (id, value) in graph.values() {
        let Some(tensor) = value.constant().filter(|tensor| is_float(tensor) && tensor.len() > 1) else {
            continue;
        };
        any |= all.set_elements(id, moved(tensor, by, &mut signs)?);
    }
    any.then_some(all)
}

/// The largest distance of an output.
fn farthest(got: &[Value], expected: &[Value]) -> Result<f64, String> {
    if got.len() != expected.len() {
        return Err(format!("{} outputs instead of {}", got.len(), expected.len()));
    }
    got.iter().zip(expected).try_fold(0.0, |most, (got, want)| Ok(larger(most, distance(got, want)?)))
}

/// How far a plan's outputs may be from another way to compute the model.
pub(super) fn tolerance(graph: &Graph, options: &BuildOptions) -> f64 {
    let own = if is_coarse(graph) { COARSE_TOLERANCE } else { MODEL_TOLERANCE };
    own.max(match options.precision {
        // A model of 8 bits is compared with itself: they are in the graph that counts as the model.
        Precision::Fp32 | Precision::Int8 | Precision::Fp8 => 0.0,
        Precision::Tf32 => TF32_TOLERANCE,
        Precision::Fp16 => F16_TOLERANCE,
        Precision::Bf16 => BF16_TOLERANCE,
    })
}

/// A node by which a small difference may become a large one.
pub(super) fn deciding(graph: &Graph) -> Option<&str> {
    graph.nodes().map(|(_, node)| node).find(|node| decides(&node.op)).map(|node| &*node.name)
}

/// Operators that turn a small difference into a large one: which of two nearly equal values is larger.
fn decides(op: &Op) -> bool {
    matches!(
        op,
        Op::TopK(_)
            | Op::NonMaxSuppression(_)
            | Op::NonZero(_)
            | Op::ArgMax(_)
            | Op::ArgMin(_)
            | Op::Unique(_)
    )
}

/// Whether values of few bits are computed anywhere.
fn is_coarse(graph: &Graph) -> bool {
    let coarse =
        |dtype: DType| !matches!(dtype, DType::F64 | DType::F32 | DType::I64 | DType::I32 | DType::Bool);
    graph.values().any(|(_, value)| value.ty.as_tensor().is_some_and(|ty| coarse(ty.dtype)))
        || graph.nodes().any(|(_, node)| node.bodies.iter().any(is_coarse))
}

/// The larger of two errors; NaN is the largest of all (`f64::max` would drop it).
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// Relative L2 distance of two values; sequences element by element. A NaN or an infinity in one of them alone makes it
/// infinite.
pub(super) fn distance(got: &Value, want: &Value) -> Result<f64, String> {
    match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => {
            if got.shape() != want.shape() || got.dtype() != want.dtype() {
                return Err(format!("an output of shape {:?} instead of {:?}", got.shape(), want.shape()));
            }
            let (mut error, mut norm) = (0.0, 0.0);
            for (x, y) in got.to_f64s().into_iter().zip(want.to_f64s()) {
                if x != y && !(x.is_nan() && y.is_nan()) {
                    if !(x.is_finite() && y.is_finite()) {
                        return Ok(f64::INFINITY);
                    }
                    error += (x - y).powi(2);
                }
                if y.is_finite() {
                    norm += y * y;
                }
            }
            // Numbers below the smallest normal one have no digits to be relative to.
            let least = match want.dtype() {
                DType::F64 => f64::MIN_POSITIVE,
                _ => want.len() as f64 * f64::from(f32::MIN_POSITIVE).powi(2),
            };
            Ok(if error == 0.0 { 0.0 } else { (error / norm.max(least)).sqrt() })
        }
        (Value::Sequence(got), Value::Sequence(want)) if got.len() == want.len() => {
            let mut distances = got.iter().zip(want).map(|(got, want)| distance(got, want));
            distances.try_fold(0.0, |most, distance| Ok(larger(most, distance?)))
        }
        (Value::Optional(None), Value::Optional(None)) => Ok(0.0),
        (Value::Optional(Some(got)), Value::Optional(Some(want))) => distance(got, want),
        _ => Err("an output of another kind".to_string()),
    }
}

pub(super) fn passed(subject: &str, worst: f64) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst, outcome: Outcome::Passed }
}

pub(super) fn failed(subject: &str, worst: f64, why: String) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst, outcome: Outcome::Failed(why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f32]) -> Value {
        Value::Tensor(Tensor::vector(values.to_vec()))
    }

    /// A model that rounds is judged by how far it moves itself; one that does not, by the bound alone.
    #[test]
    fn a_model_that_rounds_may_move_as_far_as_its_inputs_carry_it() {
        let rounds: Graph =
            "graph \"g\" { input %x: f32[2] const %s: f32[] = 1 %q: u8[2] = QuantizeLinear(%x, %s) \
                             %y: f32[2] = DequantizeLinear(%q, %s) output %y }"
                .parse()
                .unwrap();
        let plain: Graph =
            "graph \"g\" { input %x: f32[2] %y: f32[2] = Relu(%x) output %y }".parse().unwrap();
        let judged_in = |precision: Precision, graph: &Graph, got: &[f32], x: &[f32]| {
            let run = |graph: &Graph, inputs: &[Value]| {
                interpret_within(graph, inputs.to_vec(), &planish_op::Limits::default())
                    .map_err(|error| error.to_string())
            };
            let inputs = [vector(x)];
            let expected = run(graph, &inputs).unwrap();
            let other = Other { graph, inputs: &inputs, expected: &expected, run: &run };
            compare("all", Ok(vec![vector(got)]), &other, 1e-3, precision).outcome
        };
        let judged = |graph: &Graph, got: &[f32], x: &[f32]| judged_in(Precision::Fp32, graph, got, x);
        // 20.5 lies between 20 and 21: whoever moves it may round it to either.
        assert_eq!(judged(&rounds, &[200.0, 20.0], &[200.0, 20.5]), Outcome::Passed);
        assert_eq!(judged(&rounds, &[200.0, 21.0], &[200.0, 20.5]), Outcome::Passed);
        assert!(matches!(judged(&rounds, &[200.0, 40.0], &[200.0, 20.5]), Outcome::Failed(_)));
        // Nothing lies at a boundary.
        assert!(matches!(judged(&rounds, &[200.0, 21.0], &[200.0, 20.1]), Outcome::Failed(_)));
        assert!(matches!(judged(&plain, &[200.0, 21.0], &[200.0, 20.5]), Outcome::Failed(_)));
        // In 16 bits exp(9.5) is off by 9.5 times as much as its argument, but not by a tenth.
        let steep: Graph = "graph \"g\" { input %x: f32[2] %y: f32[2] = Exp(%x) output %y }".parse().unwrap();
        let (near, far) = ([1.01 * 9.5f32.exp(), 1.0], [1.1 * 9.5f32.exp(), 1.0]);
        assert_eq!(judged_in(Precision::Fp16, &steep, &near, &[9.5, 0.0]), Outcome::Passed);
        assert!(matches!(judged_in(Precision::Fp16, &steep, &far, &[9.5, 0.0]), Outcome::Failed(_)));
        assert!(matches!(judged_in(Precision::Fp32, &steep, &near, &[9.5, 0.0]), Outcome::Failed(_)));
        // All of it lies there.
        assert!(matches!(judged(&rounds, &[1.0, 1.0], &[0.5, 0.5]), Outcome::Skipped(_)));
    }

    /// Tokens cannot be moved by little: the weights are, which they pick from.
    #[test]
    fn a_model_of_tokens_is_judged_by_its_weights() {
        let table = |dtype: &str, what: &str| -> Graph {
            let text = format!(
                "graph \"g\" {{ input %x: i64[2] const %t: f32[3] = [200, 20.5, 30.1] const %s: f32[] = 1 \
                 %e: f32[2] = Gather(%t, %x) %q: {dtype}[2] = {what} output %q }}"
            );
            text.parse().unwrap()
        };
        let judged = |graph: &Graph, got: Value, x: &[i64]| {
            let run = |graph: &Graph, inputs: &[Value]| {
                interpret_within(graph, inputs.to_vec(), &planish_op::Limits::default())
                    .map_err(|error| error.to_string())
            };
            let inputs = [Value::Tensor(Tensor::vector(x.to_vec()))];
            let expected = run(graph, &inputs).unwrap();
            let other = Other { graph, inputs: &inputs, expected: &expected, run: &run };
            compare("all", Ok(vec![got]), &other, 1e-3, Precision::Fp32).outcome
        };
        let bytes = |values: [u8; 2]| Value::Tensor(Tensor::vector(values.to_vec()));
        let rounds = table("u8", "QuantizeLinear(%e, %s)");
        assert_eq!(judged(&rounds, bytes([200, 21]), &[0, 1]), Outcome::Passed);
        assert!(matches!(judged(&rounds, bytes([200, 60]), &[0, 1]), Outcome::Failed(_)));
        assert!(matches!(judged(&rounds, bytes([200, 31]), &[0, 2]), Outcome::Failed(_)));
        // Without rounding there is nothing to be sensitive by.
        let plain = table("f32", "Mul(%e, %s)");
        assert!(matches!(judged(&plain, vector(&[200.0, 21.0]), &[0, 1]), Outcome::Failed(_)));
    }

    /// Inputs that are rounded at once do not move by little, and one scale for a whole tensor is no weight.
    #[test]
    fn a_model_that_rounds_its_inputs_is_judged_by_its_weights() {
        let graph: Graph =
            "graph \"g\" { input %x: f32[1,2] const %s: f32[] = 0.5 const %z: u8[] = 0 const %t: f32[] = 1 \
             const %w: i8[2,4] = [1, 1, 1, 1, 1, 1, 1, 1] %q: u8[1,2] = QuantizeLinear(%x, %s, %z) \
             %d: f32[1,2] = DequantizeLinear(%q, %s, %z) %v: f32[2,4] = DequantizeLinear(%w, %t) \
             %p: f32[1,4] = MatMul(%d, %v) %r: u8[1,4] = QuantizeLinear(%p, %t, %z) \
             %y: f32[1,4] = DequantizeLinear(%r, %t, %z) output %y }"
                .parse()
                .unwrap();
        let matrix =
            |values: &[f32]| Value::Tensor(Tensor::new(&[1, values.len()], values.to_vec()).unwrap());
        let run = |graph: &Graph, inputs: &[Value]| {
            interpret_within(graph, inputs.to_vec(), &planish_op::Limits::default())
                .map_err(|error| error.to_string())
        };
        let judged = |got: [f32; 4], x: [f32; 2]| {
            let inputs = [matrix(&x)];
            let expected = run(&graph, &inputs).unwrap();
            let other = Other { graph: &graph, inputs: &inputs, expected: &expected, run: &run };
            compare("all", Ok(vec![matrix(&got)]), &other, 1e-3, Precision::Fp32).outcome
        };
        // 10 and 10.5 are 20.5 together, between 20 and 21.
        assert_eq!(judged([20.0, 21.0, 20.0, 21.0], [10.0, 10.5]), Outcome::Passed);
        assert!(matches!(judged([20.0, 40.0, 20.0, 20.0], [10.0, 10.5]), Outcome::Failed(_)));
        assert!(matches!(judged([20.0, 21.0, 20.0, 20.0], [10.0, 10.0]), Outcome::Failed(_)));
    }

    #[test]
    fn a_number_that_is_none_is_infinitely_far_from_one() {
        let want = vector(&[1.0, 2.0]);
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let got = vector(&[1.0, wrong]);
            assert_eq!(distance(&got, &want), Ok(f64::INFINITY));
            assert_eq!(distance(&want, &got), Ok(f64::INFINITY));
            assert_eq!(distance(&got, &got), Ok(0.0));
            let both = |first: &Value| Value::Sequence(vec![first.clone(), want.clone()]);
            assert_eq!(distance(&both(&got), &both(&want)), Ok(f64::INFINITY));
        }
        assert!(larger(0.0, f64::NAN).is_nan() && larger(f64::NAN, 0.0).is_nan());
        assert_eq!(larger(1.0, 2.0), 2.0);
    }
}
