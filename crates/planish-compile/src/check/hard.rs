//! Kernels alone, on values that models rarely make and kernels easily get wrong: NaN, zeros, and numbers whose
//! exponential overflows.
//!
//! Only where every output hangs on elements in a way that leaves no choice: element by element, and softmax. A
//! convolution by Winograd's way rightly spreads a NaN over a tile.

use std::collections::HashSet;
use std::sync::Arc;

use planish_kernel::{
    Address, Backend, Call, KernelError, Operand, Problem, QueueOptions, Tactic, is_pointwise,
};
use planish_op::{Op, Value};
use planish_plan::{Check, Outcome, Plan, StepKind};
use planish_runtime::problem_of;
use planish_tensor::{Bytes, DType, Tensor};

use super::Guilty;
use super::inputs::Numbers;
use super::points::{Allowance, expected, sample};

/// e^100 is no f32, e^-100 a tiny one.
const HARD: [f64; 4] = [100.0, -100.0, 0.0, -0.0];
/// One element of so many is a hard one, and one of so many NaN.
const HARD_EVERY: usize = 8;
const NAN_EVERY: usize = 24;
/// Relative error, or absolute below 1: large arguments make functions ill-conditioned, and how exact a kernel is
/// has been checked on ordinary values.
const TOLERANCE: f64 = 1e-2;
/// Larger problems are not posed again: the same code runs at every size.
const MAX_ELEMENTS: usize = 1 << 22;

const SUBJECT: &str = "kernels alone on NaN, zeros and large values";

/// Launches each kernel that this applies to once, on made-up operands.
pub(super) fn check(plan: &Plan, backends: &[Arc<dyn Backend>], checks: &mut Vec<Check>) -> Option<Guilty> {
    let mut seen: HashSet<(String, String)> = HashSet::new();
    let mut n_points = 0;
    for (idx, step) in plan.program.steps.iter().enumerate() {
        let StepKind::Kernel { variants, slow: false, .. } = &step.kind else { continue };
        let Ok(problem) = problem_of(&plan.program, step, &plan.tuned_at, plan.threads.max(1) as usize)
        else {
            continue;
        };
        for tactic in variants.iter().map(|variant| &variant.tactic) {
            if !applies(&problem) || !seen.insert((problem.key(), tactic.to_string())) {
                continue;
            }
            let backend = &*backends[step.target as usize];
            match compare(backend, &problem, tactic, idx as u64) {
                Ok(n) => n_points += n,
                Err(why) => {
                    let outcome = Outcome::Failed(format!("step {idx}: {}: {why}", step.name));
                    let subject = SUBJECT.to_string();
                    checks.push(Check { subject, n_points, worst: f64::INFINITY, outcome });
                    let what = format!("`{}` by {}: {why}", step.name, tactic.name);
                    return Some(Guilty { tactic: tactic.clone(), what });
                }
            }
        }
    }
    if n_points > 0 {
        let outcome = Outcome::Passed;
        checks.push(Check { subject: SUBJECT.to_string(), n_points, worst: 0.0, outcome });
    }
    None
}

fn applies(problem: &Problem) -> bool {
    let nodes = &problem.region.nodes;
    let softmax = matches!(&nodes[..], [node] if matches!(node.op, Op::Softmax(_) | Op::LogSoftmax(_)));
    let operands = || problem.inputs.iter().chain(&problem.outputs);
    // What a NaN is as an integer is nobody's promise.
    let elementwise = |op: &Op| is_pointwise(op) && !matches!(op, Op::Cast(_));
    (softmax || nodes.iter().all(|node| elementwise(&node.op)))
        && operands().all(|operand| operand.packed.is_none() && operand.len() <= MAX_ELEMENTS)
        && problem.outputs.iter().all(|output| is_checked(output.dtype) && !output.is_empty())
}

fn is_checked(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Compares the kernel with the reference at points; gives how many, or what differs.
fn compare(backend: &dyn Backend, problem: &Problem, tactic: &Tactic, seed: u64) -> Result<u64, String> {
    let is_softmax = problem.region.nodes.iter().any(|node| !is_pointwise(&node.op));
    let mut numbers = Numbers::new(seed + 31);
    let mut inputs = Vec::with_capacity(problem.inputs.len());
    for operand in &problem.inputs {
        inputs.push(hard(&mut numbers, operand, is_softmax));
    }
    let outputs = launch(backend, problem, tactic, &inputs).map_err(|error| error.to_string())?;
    let values: Vec<Option<Value>> = inputs.into_iter().map(|input| input.map(Value::Tensor)).collect();
    let mut n_points = 0;
    for (idx, (output, got)) in problem.outputs.iter().zip(&outputs).enumerate() {
        let points = sample(&output.dims, seed);
        let none = Allowance { of_terms: 0.0, of_value: 0.0, of_largest: 0.0 };
        // What the reference refuses says nothing about the kernel.
        let Ok(expected) = expected(&problem.region, &values, idx, &points, none, 0.0) else { return Ok(0) };
        for (point, want) in points.iter().zip(&expected.values) {
            let flat = point.iter().zip(&output.dims).fold(0, |flat, (place, dim)| flat * dim + place);
            let (got, want) = (got[flat], rounded(*want, output.dtype));
            n_points += 1;
            let alike = match (got.is_finite(), want.is_finite()) {
                (true, true) => (got - want).abs() <= TOLERANCE * want.abs().max(1.0),
                _ => got == want || (got.is_nan() && want.is_nan()),
            };
            if !alike {
                return Err(format!("{got:e} instead of {want:e} at {point:?}"));
            }
        }
    }
    Ok(n_points)
}

/// A number as a type holds it.
fn rounded(value: f64, dtype: DType) -> f64 {
    Tensor::from_f64s(dtype, &[], &[value]).map_or(value, |tensor| tensor.to_f64s()[0])
}

/// Ordinary numbers with hard ones among them. Softmax makes a whole row of one NaN, so it gets one.
fn hard(numbers: &mut Numbers, operand: &Operand, is_softmax: bool) -> Option<Tensor> {
    let tensor = numbers.tensor(operand.dtype, &operand.dims)?;
    if !operand.dtype.is_float() || tensor.is_empty() {
        return Some(tensor);
    }
    let mut values = tensor.to_f64s();
    for value in &mut values {
        if numbers.below(HARD_EVERY) == 0 {
            *value = HARD[numbers.below(HARD.len())];
        } else if !is_softmax && numbers.below(NAN_EVERY) == 0 {
            *value = f64::NAN;
        }
    }
    if is_softmax {
        values[0] = f64::NAN;
    }
    Tensor::from_f64s(operand.dtype, &operand.dims, &values).ok()
}

/// Runs a kernel once in memory of its own; the elements of the outputs in plain order.
fn launch(
    backend: &dyn Backend,
    problem: &Problem,
    tactic: &Tactic,
    inputs: &[Option<Tensor>],
) -> Result<Vec<Vec<f64>>, KernelError> {
    let kernel = backend.prepare(problem, tactic)?;
    let mut queue = backend.queue(QueueOptions::new(problem.threads))?;
    let mut memory = Vec::new();
    let mut addresses: Vec<Address> = Vec::new();
    for (operand, tensor) in problem.inputs.iter().zip(inputs) {
        let bytes = tensor.as_ref().map_or(Vec::new(), |tensor| scattered(operand, tensor.bytes()));
        let own = backend.allocate(bytes.len())?;
        // SAFETY: the memory was just allocated with this length.
        unsafe { queue.upload(own.address(), &bytes)? };
        addresses.push(own.address());
        memory.push(own);
    }
    let mut outputs = Vec::new();
    for operand in &problem.outputs {
        let own = backend.allocate(operand.span_bytes())?;
        outputs.push(own.address());
        memory.push(own);
    }
    let workspace = backend.allocate(kernel.workspace_bytes())?;
    let call =
        Call { inputs: &addresses, outputs: &outputs, workspace: workspace.address(), fault: Address::NULL };
    // SAFETY: every operand has memory of its own that spans it, and nobody else touches it.
    unsafe { kernel.launch(&call, &mut *queue)? };
    queue.synchronize()?;
    let mut results = Vec::new();
    for (operand, &address) in problem.outputs.iter().zip(&outputs) {
        let mut bytes = vec![0; operand.span_bytes()];
        // SAFETY: the operand spans these bytes.
        unsafe { queue.download(&mut bytes, address)? };
        let size = operand.dtype.bytes_for(1).unwrap_or(1);
        let plain: Vec<u8> =
            offsets(operand).flat_map(|at| bytes[at * size..(at + 1) * size].iter().copied()).collect();
        let tensor = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(plain));
        results.push(tensor.map_err(|error| KernelError::unsupported(error.to_string()))?.to_f64s());
    }
    Ok(results)
}

/// A plain tensor's bytes where the operand has its elements.
fn scattered(operand: &Operand, plain: &[u8]) -> Vec<u8> {
    let Some(size) = operand.dtype.bytes_for(1).filter(|_| !operand.dtype.is_sub_byte()) else {
        return plain.to_vec();
    };
    let mut bytes = vec![0; operand.span_bytes()];
    for (offset, element) in offsets(operand).zip(plain.chunks(size)) {
        bytes[offset * size..offset * size + element.len()].copy_from_slice(element);
    }
    bytes
}

/// Where each element lies, in plain order, counted in elements.
fn offsets(operand: &Operand) -> impl Iterator<Item = usize> {
    let n_axes = operand.rank();
    (0..operand.len()).map(move |flat| {
        let mut rest = flat;
        let mut offset = 0;
        for axis in (0..n_axes).rev() {
            offset += rest % operand.dims[axis] * operand.strides[axis];
            rest /= operand.dims[axis];
        }
        offset
    })
}
