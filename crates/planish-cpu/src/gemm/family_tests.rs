//! Regions around MatMul and Gemm against the reference: ranks, broadcasts, transposes, factors and epilogues, with
//! B packed and as it comes.

use planish_kernel::{Budget, Problem, Region, WeightUse};
use planish_op as op;
use planish_op::Op;

use planish_tensor::Tensor;
use planish_testing::{Fenced, Placed, Placement, Random, Tolerance, assert_close, input, node, region};

use super::family::GemmFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::team::Team;
use crate::trial;

/// Sums of up to 70 products of numbers below 1, and functions within some 30 ULPs of their values.
const SUMS: Tolerance = Tolerance { relative: 1e-5, absolute: 2e-5 };

/// Runs every candidate with the second input packed where the candidate can.
fn run_packed(isa: Isa, problem: &Problem, inputs: &[Tensor], want: &Tensor) -> usize {
    let mut problem = problem.clone();
    problem.inputs[1].constant = true;
    let mut n_packed = 0;
    for candidate in GemmFamily.candidates(isa, &problem, &Budget::USUAL) {
        let Some(format) = candidate.packed[1].clone() else { continue };
        let packed =
            GemmFamily.pack(isa, WeightUse::new(&problem, &candidate.tactic, 1), &inputs[1]).unwrap();
        assert_eq!(packed.format, format);
        let again = crate::formats::unpack(packed.form_of(&inputs[1]), &packed.bytes).unwrap();
        assert_eq!(again.to_f64s(), inputs[1].to_f64s());
        problem.inputs[1].packed = Some(format);
        let work = GemmFamily.prepare(isa, &problem, &candidate.tactic).unwrap();
        let from: Vec<Placed> = inputs
            .iter()
            .zip(&problem.inputs)
            .map(|(tensor, operand)| Placed::new(tensor, operand))
            .collect();
        let packed = Fenced::of(&packed.bytes);
        let mut pointers: Vec<*const u8> = from.iter().map(Placed::ptr).collect();
        pointers[1] = packed.ptr();
        let got = trial::run_on(&*work, &problem, &pointers, &Team::new(2)).unwrap();
        assert_close(&got[0], want, SUMS, &format!("{} on {isa}, packed", problem.key()));
        problem.inputs[1].packed = None;
        n_packed += 1;
    }
    n_packed
}

fn check(region: &Region, inputs: &[Tensor]) {
    for placement in &Placement::ALL[..2] {
        let (problem, want) = placement.problem(region, inputs);
        for isa in Isa::available() {
            let got = trial::run(&GemmFamily, isa, &problem, inputs);
            assert_close(&got[0], &want[0], SUMS, &format!("{} on {isa}, {placement:?}", problem.key()));
            let n_packed = run_packed(isa, &problem, inputs, &want[0]);
            assert_eq!(n_packed > 0, inputs[1].rank() == 2 && !inputs[1].is_empty());
        }
    }
}

fn matmul() -> (Op, Vec<Option<planish_kernel::Ref>>) {
    (op::MatMul {}.into(), vec![input(0), input(1)])
}

#[test]
fn matmul_of_every_rank_and_broadcast() {
    let mut numbers = Random::new(1);
    let one = region(2, vec![], vec![matmul()]);
    for (a, b) in [
        (&[5, 7][..], &[7, 9][..]),
        (&[1, 70], &[70, 40]),
        (&[33, 17], &[17, 1]),
        (&[7], &[7, 9]),
        (&[5, 7], &[7]),
        (&[7], &[7]),
        (&[2, 3, 5, 7], &[7, 9]),
        (&[2, 3, 5, 7], &[3, 7, 9]),
        (&[2, 1, 5, 7], &[3, 7, 9]),
        (&[5, 7], &[2, 3, 7, 9]),
        (&[3, 5, 7], &[7]),
        (&[7], &[3, 7, 9]),
        (&[0, 7], &[7, 9]),
        (&[5, 0], &[0, 9]),
        (&[2, 0, 7], &[7, 9]),
    ] {
        let inputs = [a, b].map(|dims| numbers.tensor(planish_tensor::DType::F32, dims, 1.0));
        check(&one, &inputs);
    }
}

#[test]
fn gemm_with_transposes_factors_and_every_shape_of_c() {
    let mut numbers = Random::new(2);
    let f32 = planish_tensor::DType::F32;
    for flags in 0..4 {
        let (trans_a, trans_b) = (flags & 1 != 0, flags & 2 != 0);
        let a = numbers.tensor(f32, if trans_a { &[13, 18] } else { &[18, 13] }, 1.0);
        let b = numbers.tensor(f32, if trans_b { &[40, 13] } else { &[13, 40] }, 1.0);
        for (alpha, beta) in [(1.0, 1.0), (0.5, -2.0)] {
            let gemm = || -> Op { op::Gemm { alpha, beta, trans_a, trans_b }.into() };
            let without = region(2, vec![], vec![(gemm(), vec![input(0), input(1)])]);
            check(&without, &[a.clone(), b.clone()]);
            for dims in [&[40][..], &[1, 40], &[18, 1], &[18, 40], &[1], &[]] {
                let c = numbers.tensor(f32, dims, 1.0);
                let with = region(3, vec![], vec![(gemm(), vec![input(0), input(1), input(2)])]);
                check(&with, &[a.clone(), b.clone(), c]);
            }
        }
    }
}

#[test]
fn epilogues_in_the_tile_and_after_it() {
    let mut numbers = Random::new(3);
    let f32 = planish_tensor::DType::F32;
    for (batch, m, n, k) in [(1, 37, 90, 33), (3, 9, 33, 20), (2, 3, 70, 64)] {
        let a = numbers.tensor(f32, &[batch, m, k], 1.0);
        let bias = numbers.tensor(f32, &[n], 1.0);
        let residual = numbers.tensor(f32, &[batch, m, n], 1.0);
        let add = |x, y| (op::Add {}.into(), vec![x, y]);
        let relu = |x| (op::Relu {}.into(), vec![x]);
        let gelu = |x| (op::Gelu { approximate: op::GeluApproximation::None }.into(), vec![x]);
        for b_dims in [&[k, n][..], &[batch, k, n]] {
            let b = numbers.tensor(f32, b_dims, 1.0);
            let inputs = [a.clone(), b, bias.clone(), residual.clone()];
            let bias_relu = vec![matmul(), add(node(0), input(2)), relu(node(1))];
            check(&region(3, vec![], bias_relu.clone()), &inputs[..3]);
            let bias_residual_relu =
                vec![matmul(), add(node(0), input(2)), add(input(3), node(1)), relu(node(2))];
            check(&region(4, vec![], bias_residual_relu), &inputs);
            let bias_gelu = vec![matmul(), add(node(0), input(2)), gelu(node(1))];
            check(&region(3, vec![], bias_gelu.clone()), &inputs[..3]);
            let mut gelu_residual = bias_gelu;
            gelu_residual.push(add(node(2), input(3)));
            check(&region(4, vec![], gelu_residual), &inputs);
            let mut relu_residual = bias_relu;
            relu_residual.push(add(node(2), input(3)));
            check(&region(4, vec![], relu_residual), &inputs);
        }
    }
}
