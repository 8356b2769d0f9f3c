//! Kernels alone, on values that models rarely make and kernels easily get wrong: NaN, infinities, zeros, denormals,
//! the largest numbers, masks of minus infinity, and integers at the ends of their range.
//!
//! Only where every output hangs on elements in a way that leaves no choice: element by element, movement, the largest
//! of a window, softmax, norms and averages with one odd element in a row, attention whose mask hides keys. A
//! convolution by Winograd's way rightly spreads a NaN over a tile.

use std::collections::HashSet;
use std::sync::Arc;

use planish_kernel::{Approximation, Backend, Operand, Problem, Tactic};
use planish_op::{Class, Op, Rounding, Value};
use planish_plan::{Check, Outcome, Plan, Program, StepKind};
use planish_runtime::problem_of;
use planish_tensor::{DType, Tensor};

use super::Guilty;
use super::alone::launch;
use super::inputs::Numbers;
use super::points::{Allowance, expected_everywhere, point_of};
use super::tolerance::is_movement;

/// e^100 is not an f32, e^-100 a tiny one.
const LARGE: [f64; 4] = [100.0, -100.0, 0.0, -0.0];
const INFINITE: [f64; 2] = [f64::INFINITY, f64::NEG_INFINITY];
/// Denormals of f32 and the ends of its range.
const TINY: [f64; 4] = [1e-40, -1e-40, 1.401_298_464_324_817e-45, -1.175_494e-38];
const HUGE: [f64; 2] = [f32::MAX as f64, f32::MIN as f64];
/// One element of so many is a hard one, and one of so many NaN.
const HARD_EVERY: usize = 8;
const NAN_EVERY: usize = 24;
/// Relative error, or absolute below 1: large arguments make functions ill-conditioned, and how exact a kernel is
/// has been checked on ordinary values.
const TOLERANCE: f64 = 1e-2;
/// Relative error where nothing is rounded but the result.
const EXACT_TOLERANCE: f64 = 1e-6;
/// The smallest f32: what a rounding may be off by near zero.
const SMALLEST: f64 = 1.401_298_464_324_817e-45;
/// Larger problems are not posed again: the same code runs at every size.
const MAX_ELEMENTS: usize = 1 << 20;
/// Elements in all.
const MAX_ALL_ELEMENTS: usize = 1 << 23;

const SUBJECT: &str = "kernels alone on NaN, infinities, denormals and large values";

/// What may be said of a region's results on hard values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Elements are moved or chosen: the same bits.
    Exact,
    /// Element by element, with functions.
    Elementwise,
    /// Rows that become NaN as a whole when an element is.
    Rows,
    /// Attention with a mask that may hide keys.
    Masked,
}

/// Launches each kernel that this applies to once, on made-up operands; `None` where it applies to none.
pub(super) fn check(
    plan: &Plan,
    backends: &[Arc<dyn Backend>],
    seed: u64,
) -> Option<(Check, Option<Guilty>)> {
    let mut look = Look { plan, backends, seed, seen: HashSet::new(), n_points: 0, n_elements: 0 };
    let (outcome, worst, guilty) = match look.program(&plan.program) {
        Ok(()) if look.n_points == 0 => return None,
        Ok(()) => (Outcome::Passed, 0.0, None),
        Err((why, guilty)) => (Outcome::Failed(why), f64::INFINITY, Some(guilty)),
    };
    Some((Check { subject: SUBJECT.to_string(), n_points: look.n_points, worst, outcome }, guilty))
}

struct Look<'a> {
    plan: &'a Plan,
    backends: &'a [Arc<dyn Backend>],
    seed: u64,
    seen: HashSet<(String, String)>,
    n_points: u64,
    n_elements: usize,
}

impl Look<'_> {
    fn program(&mut self, program: &Program) -> Result<(), (String, Guilty)> {
        for (idx, step) in program.steps.iter().enumerate() {
            let variants = match &step.kind {
                StepKind::Kernel { variants, slow: false, .. } => variants,
                StepKind::Control(control) => {
                    control.bodies.iter().try_for_each(|body| self.program(body))?;
                    continue;
                }
                StepKind::Kernel { slow: true, .. } | StepKind::Transfer | StepKind::Evaluate => continue,
            };
            let threads = self.plan.header.threads.max(1) as usize;
            let Ok(problem) = problem_of(program, step, &self.plan.header.tuned_at, threads) else {
                continue;
            };
            let Some(kind) = kind(&problem) else { continue };
            for tactic in variants.iter().map(|variant| &variant.tactic) {
                let n_elements: usize = problem.inputs.iter().chain(&problem.outputs).map(Operand::len).sum();
                if self.n_elements + n_elements > MAX_ALL_ELEMENTS
                    || !self.seen.insert((problem.key(), tactic.to_string()))
                {
                    continue;
                }
                self.n_elements += n_elements;
                let backend = &*self.backends[step.target as usize];
                let seed = self.seed.wrapping_add(idx as u64);
                match compare(backend, &problem, tactic, kind, seed) {
                    Ok(n) => self.n_points += n,
                    Err(why) => {
                        let what = format!("`{}` by {}: {why}", step.name, tactic.name);
                        return Err((
                            format!("step {idx}: {}: {why}", step.name),
                            Guilty { tactic: tactic.clone(), what },
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// What may be said of a problem's results; `None` where nothing is.
fn kind(problem: &Problem) -> Option<Kind> {
    let nodes = &problem.region.nodes;
    let operands = || problem.inputs.iter().chain(&problem.outputs);
    let fits = operands().all(|operand| operand.packed.is_none() && operand.len() <= MAX_ELEMENTS)
        && problem.outputs.iter().all(|output| !output.is_empty() && !output.dtype.is_sub_byte());
    if !fits || nodes.is_empty() {
        return None;
    }
    let is_low = |operand: &Operand| matches!(operand.dtype, DType::F32 | DType::F16 | DType::BF16);
    let of_floats = problem.outputs.iter().all(is_low);
    // What a NaN is as an integer is nobody's promise.
    let elementwise = |op: &Op| match op {
        Op::Cast(cast) => cast.to.is_float() && problem.inputs.iter().all(|input| input.dtype.is_float()),
        op => op.is_pointwise(),
    };
    let single = if let [node] = &nodes[..] { Some(&node.op) } else { None };
    if let Some(op) = single
        && (is_chosen(op) || is_movement(op) && !reads_indices(op))
    {
        return Some(Kind::Exact);
    }
    if nodes.iter().all(|node| elementwise(&node.op)) {
        return of_floats.then_some(Kind::Elementwise);
    }
    match single? {
        _ if !of_floats => None,
        Op::Softmax(_)
        | Op::LogSoftmax(_)
        | Op::LayerNormalization(_)
        | Op::RMSNormalization(_)
        | Op::ReduceMean(_)
        | Op::ReduceSum(_)
        | Op::GlobalAveragePool(_) => Some(Kind::Rows),
        // Each pair by itself; positions that are drawn here are refused, and then nothing is compared.
        Op::RotaryEmbedding(_) => Some(Kind::Elementwise),
        Op::Attention(_) if problem.inputs.get(3).is_some_and(|mask| is_low(mask) && mask.rank() >= 2) => {
            Some(Kind::Masked)
        }
        _ => None,
    }
}

/// Operators on single elements that round nothing.
fn is_chosen(op: &Op) -> bool {
    matches!(op, Op::Identity(_)) || op.as_pointwise().is_some_and(|op| op.rounding() == Rounding::Exact)
}

/// Movement whose places are values: they must be valid. Tile and Pad are given numbers of elements.
fn reads_indices(op: &Op) -> bool {
    let counts = matches!(op, Op::Tile(_) | Op::Pad(_));
    op.class() == Class::Indexing && !counts || matches!(op, Op::ArgMax(_) | Op::ArgMin(_))
}

/// Functions whose arguments must not be far out: turning a huge angle back is not what kernels promise.
fn is_periodic(op: &Op) -> bool {
    matches!(op, Op::Sin(_) | Op::Cos(_) | Op::Tan(_))
}

/// Compares the kernel with the reference at points; gives how many, or what differs.
fn compare(
    backend: &dyn Backend,
    problem: &Problem,
    tactic: &Tactic,
    kind: Kind,
    seed: u64,
) -> Result<u64, String> {
    let mut numbers = Numbers::new(seed.wrapping_add(31));
    let is_periodic = problem.region.nodes.iter().any(|node| is_periodic(&node.op));
    let single = problem.region.nodes.len() == 1 && !is_periodic;
    let mut inputs = Vec::with_capacity(problem.inputs.len());
    for (place, operand) in problem.inputs.iter().enumerate() {
        inputs.push(match kind {
            Kind::Exact => {
                let tensor = hard(&mut numbers, operand, &[&LARGE[..], &INFINITE, &TINY, &HUGE], true);
                tensor.and_then(|tensor| half_tiny(&mut numbers, tensor))
            }
            Kind::Elementwise if single => hard(&mut numbers, operand, &[&LARGE[..], &INFINITE], true),
            Kind::Elementwise => hard(&mut numbers, operand, &[&LARGE[..]], true),
            Kind::Rows => rows(&mut numbers, operand, place == 0),
            Kind::Masked => mask(&mut numbers, operand, place == 3),
        });
    }
    // A kernel that cannot run here has run in the plan: the operands are others.
    let Ok(outputs) = launch(backend, problem, tactic, &inputs) else { return Ok(0) };
    let values: Vec<Option<Value>> = inputs.into_iter().map(|input| input.map(Value::Tensor)).collect();
    let mut n_points = 0;
    for (idx, (output, got)) in problem.outputs.iter().zip(&outputs).enumerate() {
        let none =
            Allowance { of_terms: 0.0, of_value: 0.0, of_largest: 0.0, gelu: Approximation::default() };
        // What the reference refuses says nothing about the kernel.
        let Ok(expected) = expected_everywhere(&problem.region, &values, idx, none) else { return Ok(0) };
        for (at, (got, want)) in got.to_f64s().into_iter().zip(&expected.values).enumerate() {
            let want = rounded(*want, output.dtype);
            n_points += 1;
            let allowed = match kind {
                Kind::Exact => EXACT_TOLERANCE * want.abs() + SMALLEST,
                _ => TOLERANCE * want.abs().max(1.0),
            };
            let alike = match (got.is_finite(), want.is_finite()) {
                (true, true) => (got - want).abs() <= allowed,
                _ => got == want || (got.is_nan() && want.is_nan()),
            };
            if !alike {
                let point = point_of(at, &output.dims);
                return Err(format!("{got:e} instead of {want:e} at {point:?}"));
            }
        }
    }
    Ok(n_points)
}

/// A number as a type holds it.
fn rounded(value: f64, dtype: DType) -> f64 {
    if dtype == DType::F32 {
        return f64::from(value as f32);
    }
    Tensor::from_f64s(dtype, &[], &[value]).map_or(value, |tensor| tensor.to_f64s()[0])
}

/// Ordinary numbers with hard ones of these lists among them, and NaN; integers up to the ends of their range.
fn hard(numbers: &mut Numbers, operand: &Operand, lists: &[&[f64]], with_nan: bool) -> Option<Tensor> {
    let tensor = numbers.tensor(operand.dtype, &operand.dims)?;
    if tensor.is_empty() || operand.dtype == DType::Bool {
        return Some(tensor);
    }
    let mut values = tensor.to_f64s();
    let range = operand.dtype.int_range();
    for value in &mut values {
        match range {
            Some((low, high)) if numbers.below(HARD_EVERY) == 0 => {
                let ends = [low as f64, high as f64, -1.0, 2.0];
                // Ends beyond 2^53 are no f64, and nothing is compared beyond.
                let end = ends[numbers.below(ends.len())].clamp(-9e15, 9e15);
                *value = end.clamp(low as f64, high as f64);
            }
            None if operand.dtype.is_float() && numbers.below(HARD_EVERY) == 0 => {
                let list = lists[numbers.below(lists.len())];
                *value = list[numbers.below(list.len())];
            }
            None if with_nan && operand.dtype.is_float() && numbers.below(NAN_EVERY) == 0 => {
                *value = f64::NAN
            }
            _ => {}
        }
    }
    Tensor::from_f64s(operand.dtype, &operand.dims, &values).ok()
}

/// The same with denormals and negative numbers alone in the second half: there the largest of a window is a denormal.
fn half_tiny(numbers: &mut Numbers, tensor: Tensor) -> Option<Tensor> {
    if !tensor.dtype().is_float() {
        return Some(tensor);
    }
    let mut values = tensor.to_f64s();
    let half = values.len() / 2;
    for value in &mut values[half..] {
        *value = if numbers.below(4) == 0 { -value.abs() } else { TINY[numbers.below(TINY.len())] };
    }
    Tensor::from_f64s(tensor.dtype(), tensor.shape(), &values).ok()
}

/// Ordinary and large numbers, one NaN in the first row and one infinity in the last, of the operand that rows are of.
fn rows(numbers: &mut Numbers, operand: &Operand, is_data: bool) -> Option<Tensor> {
    let list: &[f64] = if is_data { &LARGE } else { &[1.0] };
    let tensor = hard(numbers, operand, &[list], false)?;
    if !is_data || tensor.is_empty() || !operand.dtype.is_float() {
        return Some(tensor);
    }
    let mut values = tensor.to_f64s();
    let last = values.len() - 1;
    values[last] = f64::INFINITY;
    values[0] = f64::NAN;
    Tensor::from_f64s(operand.dtype, &operand.dims, &values).ok()
}

/// Ordinary numbers; of a mask, minus infinity for every other key, but for the first.
fn mask(numbers: &mut Numbers, operand: &Operand, is_mask: bool) -> Option<Tensor> {
    let tensor = numbers.tensor(operand.dtype, &operand.dims)?;
    if !is_mask || tensor.is_empty() {
        return Some(tensor);
    }
    let n_keys = *operand.dims.last()?;
    let mut values = tensor.to_f64s();
    for (at, value) in values.iter_mut().enumerate() {
        if at % n_keys > 0 && numbers.below(2) == 0 {
            *value = f64::NEG_INFINITY;
        }
    }
    Tensor::from_f64s(operand.dtype, &operand.dims, &values).ok()
}
