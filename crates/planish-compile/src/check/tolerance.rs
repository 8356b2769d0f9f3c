//! How far a step's results may be from the reference, by its operators, its precision and its tactic.

use planish_kernel::{Approximation, Arithmetic, Backend, Problem, Ref, Region, RegionNode, Tactic};
use planish_op::{Class, Op, ScatterReduction, Value};
use planish_plan::Step;
use planish_tensor::{DType, Tensor};

use super::points::{Allowance, is_sum_of_products};

/// Half the distance between 1 and the next f32.
pub(super) const EPSILON: f64 = 5.96e-8;
/// Sums in f32 of n terms err by about the square root of n roundings; this many times that is allowed.
pub(super) const SUM_SLACK: f64 = 2.0;
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
/// Hopper adds products of 8-bit floats in accumulators whose mantissas have some 13 bits instead of 23, cut off too. Of 32
/// products that are added at once each is cut 13 bits below the largest, which is a few times the middle one: 2^-11 of all
/// terms (an H200 was off by 1e-4 of a sum of 32). And a sum of n terms is cut n / 32 times by 2^-13 of what it has come to,
/// about the square root of n terms: of all terms together that is 2^-18 of that root at most, 64 times what f32 rounds by.
/// Twice that is allowed.
const F8_TERM: f64 = 1.0 / 2048.0;
const F8_TENSOR_CORE_SLACK: f64 = 128.0;
/// Both factors of a product are rounded to tf32, in either direction: over n terms such errors add up like the
/// square root of n. This many times that is allowed.
const TF32_SLACK: f64 = 6.0;

/// What a backend says of the tactic of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errs {
    /// [`planish_kernel::Compiler::error_growth`]
    pub(super) growth: f64,
    /// [`planish_kernel::Compiler::approximation`]
    pub(super) gelu: Approximation,
}

impl Errs {
    pub(super) fn of(backend: &dyn Backend, problem: Option<&Problem>, tactic: Option<&Tactic>) -> Errs {
        let growth = tactic.map_or(1.0, |tactic| backend.error_growth(tactic));
        let gelu = tactic.zip(problem).map(|(tactic, problem)| backend.approximation(problem, tactic));
        Errs { growth, gelu: gelu.unwrap_or_default() }
    }
}

/// How far the step may be off.
pub(super) fn allowance(step: &Step, errs: Errs, inputs: &[Option<Value>], output: DType) -> Allowance {
    let Errs { growth, gelu } = errs;
    let moves_only = step.region.nodes.iter().all(|node| is_movement(&node.op));
    if moves_only {
        return Allowance { of_terms: 0.0, of_value: 0.0, of_largest: 0.0, gelu };
    }
    let main = step.region.nodes.iter().find(|node| is_sum_of_products(&node.op));
    let terms = main.map_or(1, |main| n_terms(&step.region, main, inputs));
    let of_largest = match main {
        // A transform mixes neighbouring outputs, so its error follows the largest of them.
        Some(_) if growth > 1.0 => 4.0 * growth * EPSILON,
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
    let low_epsilon = |tensor: &Tensor| match tensor.dtype() {
        DType::F16 => Some(F16_EPSILON),
        DType::BF16 => Some(BF16_EPSILON),
        _ => None,
    };
    let tensors = || inputs.iter().flatten().filter_map(Value::as_tensor);
    let has_low = tensors().any(|tensor| low_epsilon(tensor).is_some());
    // What is rounded to 8 bits at last may be one of 16 bits before, as the graph says: a norm's result is.
    let between = match output {
        DType::I8 | DType::U8 | DType::F8E4M3FN => {
            let all = tensors().chain(&step.region.constants);
            all.filter_map(low_epsilon).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    let of_terms = match step.numeric.element {
        // Factors of f32 that a CPU rounds are rounded before the reference sees them, and sums are plain ones of f32.
        Arithmetic::F16 | Arithmetic::Bf16 if has_low => TENSOR_CORE_SLACK * EPSILON * (1.0 + root),
        Arithmetic::F8 => F8_TERM + F8_TENSOR_CORE_SLACK * EPSILON * (1.0 + root),
        Arithmetic::Tf32 => 2.0 * TF32_EPSILON * (TF32_SLACK / root).min(1.0),
        _ => SUM_SLACK * growth * EPSILON * (1.0 + root),
    };
    // An operand that is rounded to 16 bits in front of the product is not rounded by the reference here. A result of 16
    // bits may be off by as much anyway; one of bytes may not, and passes on what its terms are off.
    let rounds = |node: &RegionNode| match &node.op {
        Op::Cast(cast) if cast.to == DType::F16 => F16_EPSILON,
        Op::Cast(cast) if cast.to == DType::BF16 => BF16_EPSILON,
        _ => 0.0,
    };
    let rounded = step.region.nodes.iter().map(rounds).fold(0.0, f64::max);
    let of_terms = match output {
        DType::I8 | DType::U8 | DType::F8E4M3FN => of_terms + rounded * (TF32_SLACK / root).min(1.0),
        _ => of_terms,
    };
    // A plugin says itself how exact it is.
    let declared = step.region.nodes.iter().filter_map(|node| match &node.op {
        Op::Custom(op) => planish_op::plugin::find(op).map(|plugin| plugin.tolerance(output)),
        _ => None,
    });
    let declared = declared.fold(0.0, f64::max);
    Allowance {
        of_terms,
        of_value: FUNCTION_SLACK * EPSILON + low + between + declared,
        of_largest: of_largest + low + declared,
        gelu,
    }
}

/// How many products make one output of a node of the region.
fn n_terms(region: &Region, main: &RegionNode, inputs: &[Option<Value>]) -> usize {
    let shape = |place: usize| shape_of(region, main.inputs.get(place).copied().flatten()?, inputs);
    match &main.op {
        Op::Conv(_) => shape(1).map_or(1, |dims| dims.iter().skip(1).product()),
        Op::ConvTranspose(_) => {
            shape(1).map_or(1, |dims| dims.first().unwrap_or(&1) * dims.iter().skip(2).product::<usize>())
        }
        _ => shape(0).and_then(|dims| dims.last().copied()).unwrap_or(1),
    }
    .max(1)
}

/// The shape of what a node reads: an operand of the region, or one that a node before it only changes the numbers of, as
/// DequantizeLinear and casts do.
fn shape_of<'v>(region: &'v Region, from: Ref, inputs: &'v [Option<Value>]) -> Option<&'v [usize]> {
    match from {
        Ref::Input(idx) => {
            inputs.get(idx as usize).and_then(Option::as_ref).and_then(Value::as_tensor).map(Tensor::shape)
        }
        Ref::Constant(idx) => region.constants.get(idx as usize).map(Tensor::shape),
        Ref::Node { node, .. } => {
            let first = region.nodes.get(node as usize)?.inputs.first().copied().flatten()?;
            shape_of(region, first, inputs)
        }
    }
}

/// Operators whose outputs are elements of their inputs, whichever these are.
pub(super) fn keeps_values(op: &Op) -> bool {
    op.class() == Class::Movement || matches!(op, Op::MaxPool(_) | Op::GlobalMaxPool(_))
}

/// The same, and those that take them by indices or numbers beside them, or give places.
pub(super) fn is_movement(op: &Op) -> bool {
    if adds_up(op) {
        return false;
    }
    keeps_values(op) || op.class() == Class::Indexing || matches!(op, Op::ArgMax(_) | Op::ArgMin(_))
}

/// Writes by index that add to or multiply what is there: a kernel rounds after each update, the reference once.
fn adds_up(op: &Op) -> bool {
    let reduction = match op {
        Op::ScatterElements(op) => op.reduction,
        Op::ScatterND(op) => op.reduction,
        _ => return false,
    };
    matches!(reduction, ScatterReduction::Add | ScatterReduction::Mul)
}
