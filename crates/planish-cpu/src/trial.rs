//! Trials, for tests: a problem run by a family on strided operands, and compared with the reference.

use planish_kernel::{Budget, Layout, Numeric, Operand, Problem, Ref, Region, RegionNode};
use planish_op::{Op, Value};
use planish_tensor::{Bytes, DType, Tensor};

use crate::evaluate::evaluate_region;
use crate::family::Family;
use crate::host::HostMemory;
use crate::isa::Isa;
use crate::team::Team;
use planish_kernel::Memory;

/// A repeatable stream of numbers (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }

    /// Between -1 and 1, times `scale`.
    pub(crate) fn real(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * scale
    }

    /// A tensor of such numbers (integers up to `scale`, booleans).
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[usize], scale: f32) -> Tensor {
        let n = dims.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| match dtype {
                DType::F32 => f64::from(self.real(scale)),
                DType::Bool => f64::from(u8::from(self.next() & 1 == 1)),
                _ => f64::from(self.real(scale)).round(),
            })
            .collect();
        Tensor::from_f64s(dtype, dims, &values).unwrap()
    }
}

/// How the operands of a trial lie in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lie {
    pub(crate) layout: Layout,
    /// Elements that each operand's innermost dimension of the larger value has more than its own.
    pub(crate) gap: usize,
}

pub(crate) const LIES: [Lie; 4] = [
    Lie { layout: Layout::Plain, gap: 0 },
    Lie { layout: Layout::Plain, gap: 3 },
    Lie { layout: Layout::ChannelsLast, gap: 0 },
    Lie { layout: Layout::ChannelsLast, gap: 5 },
];

impl Lie {
    fn operand(self, dtype: DType, dims: &[usize]) -> Operand {
        let mut larger = dims.to_vec();
        if let Some(&innermost) = self.layout.order(dims.len()).last() {
            larger[innermost] += self.gap;
        }
        Operand { strides: self.layout.strides(&larger), ..Operand::dense(dtype, dims, self.layout) }
    }
}

/// A region of nodes over inputs; its output is that of the last node.
pub(crate) fn region(n_inputs: u32, constants: Vec<Tensor>, nodes: Vec<(Op, Vec<Option<Ref>>)>) -> Region {
    let last = nodes.len() as u32 - 1;
    let nodes = nodes
        .into_iter()
        .map(|(op, inputs)| RegionNode { name: op.name().to_string(), op, inputs, n_outputs: 1 })
        .collect();
    Region { n_inputs, constants, nodes, outputs: vec![Ref::Node { node: last, output: 0 }] }
}

/// A reference to input `idx`.
pub(crate) fn input(idx: u32) -> Option<Ref> {
    Some(Ref::Input(idx))
}

/// A reference to constant `idx`.
pub(crate) fn constant(idx: u32) -> Option<Ref> {
    Some(Ref::Constant(idx))
}

/// A reference to the first output of node `idx`.
pub(crate) fn node(idx: u32) -> Option<Ref> {
    Some(Ref::Node { node: idx, output: 0 })
}

/// The problem of a region on these inputs, lying like this, and what the reference makes of it.
pub(crate) fn pose(region: &Region, inputs: &[Tensor], lie: Lie) -> (Problem, Vec<Tensor>) {
    let values: Vec<Option<Value>> = inputs.iter().cloned().map(|t| Some(Value::Tensor(t))).collect();
    let want: Vec<Tensor> = evaluate_region(region, &values, usize::MAX)
        .unwrap()
        .into_iter()
        .map(|value| value.as_tensor().unwrap().clone())
        .collect();
    let most = want.iter().map(Tensor::rank).max().unwrap_or(0);
    let lay = |tensor: &Tensor| match tensor.rank() == most {
        true => lie.operand(tensor.dtype(), tensor.shape()),
        false => Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain),
    };
    let problem = Problem {
        region: region.clone(),
        inputs: inputs.iter().map(lay).collect(),
        outputs: want.iter().map(lay).collect(),
        numeric: Numeric::F32,
        threads: 2,
    };
    (problem, want)
}

/// A tensor's elements in the memory of an operand; the gaps hold a pattern.
pub(crate) fn lay_out(operand: &Operand, tensor: &Tensor) -> HostMemory {
    let memory = HostMemory::new(operand.span_bytes()).unwrap();
    let size = operand.dtype.bytes_for(1).unwrap();
    let bytes = bytes_mut(&memory);
    bytes.fill(GAP);
    for (flat, offset) in offsets(operand).into_iter().enumerate() {
        let element = &tensor.bytes()[flat * size..(flat + 1) * size];
        bytes[offset * size..(offset + 1) * size].copy_from_slice(element);
    }
    memory
}

/// What lies between the elements before and must lie there after a run.
const GAP: u8 = 0x5a;

/// The way back; asserts that gaps were left alone.
pub(crate) fn collect(operand: &Operand, memory: &HostMemory) -> Tensor {
    let size = operand.dtype.bytes_for(1).unwrap();
    let bytes = bytes_mut(memory);
    let mut written = vec![false; bytes.len()];
    let mut out = Vec::new();
    for offset in offsets(operand) {
        let range = offset * size..(offset + 1) * size;
        written[range.clone()].fill(true);
        out.extend_from_slice(&bytes[range]);
    }
    assert!(written.iter().zip(&*bytes).all(|(w, b)| *w || *b == GAP), "a gap was written to");
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(out)).unwrap()
}

pub(crate) fn pointer(memory: &HostMemory) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(memory.address().0 as usize)
}

#[allow(clippy::mut_from_ref)]
fn bytes_mut(memory: &HostMemory) -> &mut [u8] {
    // SAFETY: the memory is the test's own, and used by one at a time.
    unsafe { std::slice::from_raw_parts_mut(pointer(memory), memory.len()) }
}

/// Where each element lies, in row-major order of the sizes.
fn offsets(operand: &Operand) -> Vec<usize> {
    (0..operand.len())
        .map(|flat| {
            let index = planish_reference::nd::unravel(flat, &operand.dims);
            index.iter().zip(&operand.strides).map(|(place, stride)| place * stride).sum()
        })
        .collect()
}

/// Runs the first candidate's tactic of a family on a problem.
pub(crate) fn run(family: &dyn Family, isa: Isa, problem: &Problem, inputs: &[Tensor]) -> Vec<Tensor> {
    let candidates = family.candidates(isa, problem, &Budget::USUAL);
    let candidate = candidates.first().unwrap_or_else(|| panic!("no candidate: {}", problem.key()));
    let work = family.prepare(isa, problem, &candidate.tactic).unwrap();
    let from: Vec<HostMemory> =
        problem.inputs.iter().zip(inputs).map(|(operand, tensor)| lay_out(operand, tensor)).collect();
    let to: Vec<HostMemory> = problem
        .outputs
        .iter()
        .map(|operand| {
            let memory = HostMemory::new(operand.span_bytes()).unwrap();
            bytes_mut(&memory).fill(GAP);
            memory
        })
        .collect();
    let team = Team::new(problem.threads);
    let workspace = HostMemory::new(work.workspace_bytes(team.n_slots())).unwrap();
    // Anything may lie in workspace; NaN is what would show.
    bytes_mut(&workspace).fill(0xff);
    let inputs: Vec<*const u8> = from.iter().map(|memory| pointer(memory).cast_const()).collect();
    let outputs: Vec<*mut u8> = to.iter().map(pointer).collect();
    // SAFETY: the memories span what the operands do.
    unsafe { work.run(&inputs, &outputs, pointer(&workspace), &team).unwrap() };
    problem.outputs.iter().zip(&to).map(|(operand, memory)| collect(operand, memory)).collect()
}

/// How far results may be from the reference: beyond `relative` of the reference's value, `absolute`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

#[track_caller]
pub(crate) fn assert_close(got: &Tensor, want: &Tensor, tolerance: Tolerance, what: &str) {
    assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{what}");
    if got.dtype() != DType::F32 {
        assert_eq!(got.to_i64s(), want.to_i64s(), "{what}");
        return;
    }
    for (idx, (got, want)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
        let near = (got - want).abs() <= tolerance.absolute + tolerance.relative * want.abs();
        let same = (got.is_nan() && want.is_nan()) || got == want;
        assert!(near || same, "{what}: element {idx} is {got:e}, not {want:e}");
    }
}

/// Runs the problem on every instruction set, in every lie, and compares.
#[track_caller]
pub(crate) fn check(family: &dyn Family, region: &Region, inputs: &[Tensor], tolerance: Tolerance) {
    check_lies(family, region, inputs, tolerance, &LIES);
}

/// The same in some lies, for families that do not take all.
#[track_caller]
pub(crate) fn check_lies(
    family: &dyn Family,
    region: &Region,
    inputs: &[Tensor],
    tolerance: Tolerance,
    lies: &[Lie],
) {
    for &lie in lies {
        let (problem, want) = pose(region, inputs, lie);
        for isa in Isa::available() {
            let got = run(family, isa, &problem, inputs);
            for (got, want) in got.iter().zip(&want) {
                assert_close(got, want, tolerance, &format!("{} on {isa}, {lie:?}", problem.key()));
            }
        }
    }
}
