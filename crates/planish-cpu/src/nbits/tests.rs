//! Products with weights in blocks against the reference: types, blocks, zero points, edges, epilogues, and sums on every
//! instruction set with few rows and many.

use planish_kernel::{Budget, Candidate, Operand, Problem, Ref, Region, WeightUse};
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Fenced, Placed, Placement, Random, Tolerance, assert_close, input, node, region};

use super::NBitsFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::team::Team;
use crate::trial;

/// Sums of up to 300 products of numbers below 1 and weights up to 4, the scale of a block taken out of its sum.
const SUMS: Tolerance = Tolerance { relative: 2e-5, absolute: 2e-4 };

/// A product and its operands; the weight is `n x k` where it is transposed.
struct Case {
    m: usize,
    n: usize,
    k: usize,
    /// 0 for one scale a column.
    block: usize,
    dtype: DType,
    transposed: bool,
    zeros: bool,
}

impl Case {
    /// Weight, scales and zero points.
    fn weight(&self, random: &mut Random) -> Vec<Tensor> {
        let n_blocks = self.k.div_ceil(self.block.max(1));
        let turn = |rows: usize| if self.transposed { [self.n, rows] } else { [rows, self.n] };
        let scale_dims = if self.block == 0 { vec![self.n] } else { turn(n_blocks).to_vec() };
        let mut all =
            vec![random.raw(self.dtype, &turn(self.k)), random.tensor(DType::F32, &scale_dims, 0.25)];
        all.extend(self.zeros.then(|| random.raw(self.dtype, &scale_dims)));
        all
    }

    /// DequantizeLinear of inputs 1 and on.
    fn dequantize(&self) -> (Op, Vec<Option<Ref>>) {
        let along = if self.transposed { 1 } else { 0 };
        let axis = if self.block == 0 { 1 - along } else { along };
        let op = op::DequantizeLinear { output_dtype: None, block_size: self.block as i64, axis };
        (op.into(), (1..if self.zeros { 4 } else { 3 }).map(input).collect())
    }

    fn product(&self) -> (Op, Vec<Option<Ref>>) {
        let factors = vec![input(0), node(0)];
        match self.transposed {
            true => (op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true }.into(), factors),
            false => (op::MatMul {}.into(), factors),
        }
    }

    fn check(&self, random: &mut Random) {
        let mut inputs = vec![random.tensor(DType::F32, &[self.m, self.k], 1.0)];
        inputs.extend(self.weight(random));
        check(&region(inputs.len() as u32, vec![], vec![self.dequantize(), self.product()]), &inputs);
    }
}

/// Runs every candidate of every instruction set on packed weights, dense and inside larger operands.
fn check(region: &Region, inputs: &[Tensor]) {
    for placement in &Placement::ALL[..2] {
        let (mut problem, want) = placement.problem(region, inputs);
        // What is dequantized is constant, and so dense.
        for at in region.nodes[0].inputs.iter().flatten() {
            let Ref::Input(at) = *at else { continue };
            let tensor = &inputs[at as usize];
            problem.inputs[at as usize] = Operand::weight(tensor.dtype(), tensor.shape());
        }
        for isa in Isa::available() {
            let candidates = NBitsFamily.candidates(isa, &problem, &Budget::USUAL);
            assert!(!candidates.is_empty(), "{}", problem.key());
            for candidate in candidates {
                let got = run(isa, &problem, &candidate, inputs);
                let what = format!("{} of {} on {isa}, {placement:?}", candidate.tactic, problem.key());
                assert_close(&got, &want[0], SUMS, &what);
            }
        }
    }
}

fn run(isa: Isa, problem: &Problem, candidate: &Candidate, inputs: &[Tensor]) -> Tensor {
    let mut problem = problem.clone();
    let placed: Vec<Placed> = inputs.iter().zip(&problem.inputs).map(|(t, at)| Placed::new(t, at)).collect();
    let mut pointers: Vec<*const u8> = placed.iter().map(Placed::ptr).collect();
    let mut memory = Vec::new();
    for (at, format) in candidate.packed.iter().enumerate() {
        let Some(format) = format else { continue };
        let packed =
            NBitsFamily.pack(isa, WeightUse::new(&problem, &candidate.tactic, at), &inputs[at]).unwrap();
        assert_eq!(packed.format, *format);
        let again = crate::formats::unpack(packed.form_of(&inputs[at]), &packed.bytes).unwrap();
        assert_eq!(again, inputs[at], "the packed weight comes back");
        memory.push((at, Fenced::of(&packed.bytes)));
    }
    for (at, packed) in &memory {
        pointers[*at] = packed.ptr();
        problem.inputs[*at].packed = candidate.packed[*at].clone();
    }
    let work = NBitsFamily.prepare(isa, &problem, &candidate.tactic).unwrap();
    let alone = trial::run_on(&*work, &problem, &pointers, &Team::alone()).unwrap();
    let shared = trial::run_on(&*work, &problem, &pointers, &Team::new(2)).unwrap();
    assert!(alone == shared, "results depend on the number of threads");
    alone.into_iter().next().unwrap()
}

#[test]
fn types_blocks_and_edges() {
    let mut random = Random::new(11);
    for dtype in [DType::I4, DType::U4, DType::I8, DType::U8] {
        for (m, n, k, block) in [
            (1, 33, 64, 16),
            (1, 1, 1, 16),
            (2, 64, 96, 32),
            (3, 31, 40, 32),
            (8, 70, 131, 64),
            (9, 48, 70, 16),
            (20, 97, 300, 128),
            (1, 40, 37, 0),
            (5, 17, 256, 0),
            (14, 32, 13, 0),
            (7, 65, 33, 256),
        ] {
            // Of integers without a sign there must be zero points.
            for zeros in [false, true].into_iter().filter(|zeros| *zeros || dtype.is_signed_int()) {
                Case { m, n, k, block, dtype, transposed: false, zeros }.check(&mut random);
                Case { m, n, k, block, dtype, transposed: true, zeros }.check(&mut random);
            }
        }
    }
}

#[test]
fn sums_longer_than_a_part_are_added_up() {
    let mut random = Random::new(12);
    for m in [1, 4, 8, 30, 40] {
        for dtype in [DType::I4, DType::U8] {
            Case { m, n: 40, k: 1300, block: 32, dtype, transposed: false, zeros: true }.check(&mut random);
        }
    }
}

#[test]
fn epilogues_and_batches() {
    let mut random = Random::new(13);
    for (batch, m) in [(1, 1), (2, 3), (3, 12)] {
        let case = Case { m, n: 50, k: 64, block: 32, dtype: DType::I4, transposed: false, zeros: false };
        let mut inputs = vec![random.tensor(DType::F32, &[batch, m, case.k], 1.0)];
        inputs.extend(case.weight(&mut random));
        inputs.push(random.tensor(DType::F32, &[case.n], 1.0));
        inputs.push(random.tensor(DType::F32, &[batch, m, case.n], 1.0));
        let add = |x, y| (op::Add {}.into(), vec![x, y]);
        let nodes = vec![
            case.dequantize(),
            case.product(),
            add(node(1), input(3)),
            add(node(2), input(4)),
            (op::Relu {}.into(), vec![node(3)]),
        ];
        check(&region(5, vec![], nodes), &inputs);
        let gelu = op::Gelu { approximate: op::GeluApproximation::None };
        let nodes =
            vec![case.dequantize(), case.product(), add(node(1), input(3)), (gelu.into(), vec![node(2)])];
        check(&region(4, vec![], nodes), &inputs[..4]);
    }
}

#[test]
fn other_regions_are_left_alone() {
    let mut random = Random::new(14);
    let refused = |case: &Case, nodes: Vec<(Op, Vec<Option<Ref>>)>, inputs: &[Tensor], constant: bool| {
        let (mut problem, _) = Placement::ALL[0].problem(&region(inputs.len() as u32, vec![], nodes), inputs);
        problem.inputs[1..].iter_mut().for_each(|operand| operand.constant = constant);
        let isa = Isa::best();
        assert!(NBitsFamily.candidates(isa, &problem, &Budget::USUAL).is_empty(), "{}", case.block);
    };
    // Blocks that are no eights of rows, weights that a run brings, and no sign without zero points.
    for (block, constant, dtype) in [(12, true, DType::I8), (16, false, DType::I8), (16, true, DType::U8)] {
        let case = Case { m: 2, n: 8, k: 24, block, dtype, transposed: false, zeros: false };
        let mut inputs = vec![random.tensor(DType::F32, &[2, 24], 1.0)];
        inputs.extend(case.weight(&mut random));
        refused(&case, vec![case.dequantize(), case.product()], &inputs, constant);
    }
}
