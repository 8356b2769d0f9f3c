//! Trials of plans, for tests: a problem run by each of a family's candidates on strided operands, and compared
//! with the reference. On a GPU if there is one; otherwise the kernels' text is compiled by the host's C++
//! compiler and its threads are fibers. Both compute with the same text.

mod device;
mod host;

use planish_kernel::{Budget, Candidate, Fault, Operand, Problem, Ref, Region, Want};
use planish_op::Value;
use planish_tensor::{Bytes, DType, Tensor};

pub(crate) use self::device::cuda;
use crate::gpu::Gpu;
use crate::steps::Planner;

/// A repeatable stream of numbers (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    /// Between -1 and 1, times `scale`.
    fn real(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
    }

    /// A tensor of such numbers (integers up to `scale`, booleans).
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[usize], scale: f32) -> Tensor {
        let n = dims.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| match dtype {
                DType::F32 | DType::F16 | DType::BF16 => f64::from(self.real(scale)),
                DType::Bool => f64::from(u8::from(self.next() & 1 == 1)),
                DType::U8 => f64::from(self.real(100.0)).abs().round(),
                _ => f64::from(self.real(scale)).round(),
            })
            .collect();
        Tensor::from_f64s(dtype, dims, &values).unwrap()
    }
}

/// How far results may be from the reference: beyond `relative` of the reference's value, `absolute`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

/// Bit by bit.
pub(crate) const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

impl Tolerance {
    /// With what rounding to the output's type adds: half a unit in the last place.
    fn stored(self, dtype: DType) -> Tolerance {
        let (unit, least) = match dtype {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
            DType::BF16 => (2f64.powi(-8), 0.0),
            _ => (0.0, 0.0),
        };
        // What is just at the middle may be rounded either way.
        let slack = if self.relative == 0.0 { 1.0 } else { 1.01 };
        Tolerance { relative: self.relative + unit * slack, absolute: self.absolute + least }
    }
}

fn evaluate(region: &Region, inputs: &[Tensor]) -> Vec<Tensor> {
    let constants: Vec<Value> = region.constants.iter().map(|tensor| Value::Tensor(wide(tensor))).collect();
    let inputs: Vec<Value> = inputs.iter().map(|tensor| Value::Tensor(wide(tensor))).collect();
    let mut made: Vec<Vec<Value>> = Vec::new();
    for node in &region.nodes {
        let operands: Vec<Option<&Value>> = node
            .inputs
            .iter()
            .map(|reference| match reference {
                None => None,
                Some(Ref::Input(idx)) => inputs.get(*idx as usize),
                Some(Ref::Constant(idx)) => constants.get(*idx as usize),
                Some(Ref::Node { node, output }) => made[*node as usize].get(*output as usize),
            })
            .collect();
        made.push(planish_reference::evaluate(&node.op, &operands, node.n_outputs as usize).unwrap());
    }
    let output = |reference: &Ref| match reference {
        Ref::Node { node, output } => made[*node as usize][*output as usize].as_tensor().unwrap().clone(),
        _ => panic!("an output that no node makes"),
    };
    region.outputs.iter().map(output).collect()
}

/// The same numbers in f32: what is computed with is f32 whatever it is stored in.
fn wide(tensor: &Tensor) -> Tensor {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => Tensor::from_f64s(DType::F32, tensor.shape(), &tensor.to_f64s()).unwrap(),
        _ => tensor.clone(),
    }
}

/// What lies between elements before and must lie there after a run.
const GAP: u8 = 0x5a;

fn offsets(operand: &Operand) -> Vec<usize> {
    (0..operand.len())
        .map(|flat| {
            let index = planish_reference::nd::unravel(flat, &operand.dims);
            index.iter().zip(&operand.strides).map(|(place, stride)| place * stride).sum()
        })
        .collect()
}

fn lay_out(operand: &Operand, tensor: &Tensor) -> Vec<u8> {
    let size = operand.dtype.bits() / 8;
    let mut bytes = vec![GAP; operand.span_bytes()];
    for (flat, offset) in offsets(operand).into_iter().enumerate() {
        let element = &tensor.bytes()[flat * size..(flat + 1) * size];
        bytes[offset * size..(offset + 1) * size].copy_from_slice(element);
    }
    bytes
}

fn collect(operand: &Operand, bytes: &[u8]) -> Tensor {
    let size = operand.dtype.bits() / 8;
    let mut written = vec![false; bytes.len()];
    let mut out = Vec::new();
    for offset in offsets(operand) {
        let range = offset * size..(offset + 1) * size;
        written[range.clone()].fill(true);
        out.extend_from_slice(&bytes[range]);
    }
    assert!(written.iter().zip(bytes).all(|(w, b)| *w || *b == GAP), "a gap was written to");
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(out)).unwrap()
}

#[track_caller]
fn assert_close(got: &Tensor, want: &Tensor, tolerance: Tolerance, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    if got.dtype().is_int() || got.dtype() == DType::Bool {
        assert_eq!(got.to_i64s(), want.to_i64s(), "{what}");
        return;
    }
    let tolerance = tolerance.stored(got.dtype());
    for (idx, (got, want)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
        let near = (got - want).abs() <= tolerance.absolute + tolerance.relative * want.abs();
        let same = (got.is_nan() && want.is_nan()) || got == want;
        assert!(near || same, "{what}: element {idx} is {got:e}, not {want:e}");
    }
}

/// Runs the problem by every candidate of the family, in its layouts, dense and inside larger values.
#[track_caller]
pub(crate) fn check(family: &dyn Planner, problem: &Problem, seed: u64, tolerance: Tolerance) {
    let mut numbers = Numbers::new(seed);
    let inputs: Vec<Tensor> =
        problem.inputs.iter().map(|operand| numbers.tensor(operand.dtype, &operand.dims, 2.0)).collect();
    check_on(family, problem, &inputs, tolerance);
}

/// The same on given inputs.
#[track_caller]
pub(crate) fn check_on(family: &dyn Planner, problem: &Problem, inputs: &[Tensor], tolerance: Tolerance) {
    let gpu = match cuda() {
        Some(cuda) => cuda.gpu().clone(),
        None => Gpu::known("h200").unwrap(),
    };
    let want = evaluate(&problem.region, inputs);
    let candidates = family.candidates(&gpu, problem, &Budget::USUAL);
    assert!(!candidates.is_empty(), "no candidate: {}", problem.key());
    for candidate in &candidates {
        let gaps: &[usize] = match candidate.inputs.iter().chain(&candidate.outputs).any(|want| want.inside) {
            true if cuda().is_some() => &[0, 8, 3],
            // The host's compiler is slow.
            true => &[0, 3],
            false => &[0],
        };
        for &gap in gaps {
            let mut arranged = problem.clone();
            let mut operands: Vec<Tensor> = inputs.to_vec();
            for (idx, operand) in arranged.inputs.iter_mut().enumerate() {
                lie(operand, candidate.inputs[idx], gap);
                if candidate.packed[idx].is_some() {
                    let packed = family.pack(problem, &candidate.tactic, idx, &inputs[idx]).unwrap();
                    assert_eq!(Some(&packed.format), candidate.packed[idx].as_ref());
                    let len = packed.bytes.len();
                    operands[idx] =
                        Tensor::from_bytes(DType::U8, &[len], Bytes::from_vec(packed.bytes)).unwrap();
                    operand.packed = Some(packed.format);
                }
            }
            for (idx, operand) in arranged.outputs.iter_mut().enumerate() {
                lie(operand, candidate.outputs[idx], gap);
            }
            let what = format!("{} gap {gap}: {}", candidate.tactic, arranged.key());
            let plan = || family.plan(&gpu, &arranged, &candidate.tactic).unwrap();
            if cuda().is_none() && plan().steps.iter().any(|step| step.cluster > 1) {
                println!("{what}: the host has no clusters");
                continue;
            }
            let got = run(family, &gpu, &arranged, candidate, &operands);
            assert_eq!(got.len(), want.len(), "{what}");
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, tolerance, &what);
            }
        }
    }
}

/// Strides as a candidate wants them, inside a value that is larger by `gap` along the innermost axis.
fn lie(operand: &mut Operand, want: Want, gap: usize) {
    let mut larger = operand.dims.clone();
    if want.inside
        && let Some(&innermost) = want.layout.order(larger.len()).last()
    {
        larger[innermost] += gap;
    }
    operand.strides = want.layout.strides(&larger);
}

fn run(
    family: &dyn Planner,
    gpu: &Gpu,
    problem: &Problem,
    candidate: &Candidate,
    inputs: &[Tensor],
) -> Vec<Tensor> {
    let lay = |(operand, tensor): (&Operand, &Tensor)| match operand.packed {
        Some(_) => tensor.bytes().to_vec(),
        None => lay_out(operand, tensor),
    };
    let from: Vec<Vec<u8>> = problem.inputs.iter().zip(inputs).map(lay).collect();
    let mut to: Vec<Vec<u8>> =
        problem.outputs.iter().map(|operand| vec![GAP; operand.span_bytes()]).collect();
    match cuda() {
        Some(cuda) => device::on_device(cuda, problem, candidate, &from, &mut to),
        None => {
            let plan = family.plan(gpu, problem, &candidate.tactic).unwrap();
            host::emulate(&plan, &from, &mut to);
        }
    }
    problem.outputs.iter().zip(&to).map(|(operand, bytes)| collect(operand, bytes)).collect()
}

/// What the kernels of the family's first candidate tell of these inputs, and the output; on the host whether a device is
/// here or not, since a device's word is read by the runtime.
pub(crate) fn fault(family: &dyn Planner, problem: &Problem, inputs: &[Tensor]) -> (Option<Fault>, Tensor) {
    let gpu = Gpu::known("h200").unwrap();
    let candidate = family.candidates(&gpu, problem, &Budget::USUAL).into_iter().next().unwrap();
    let plan = family.plan(&gpu, problem, &candidate.tactic).unwrap();
    let from: Vec<Vec<u8>> =
        problem.inputs.iter().zip(inputs).map(|(operand, tensor)| lay_out(operand, tensor)).collect();
    let mut to = vec![vec![GAP; problem.outputs[0].span_bytes()]];
    let word = host::emulate(&plan, &from, &mut to);
    (Fault::of_word(word), collect(&problem.outputs[0], &to[0]))
}
