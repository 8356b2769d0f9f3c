//! Normalizations against the reference.

use planish_kernel::Budget;
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, assert_close, input, node, region};

use super::family::NormFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::trial;

/// A few roundings of numbers of the size of 1.
const CLOSE: Tolerance = Tolerance { relative: 2e-6, absolute: 1e-6 };

fn layer(axis: i64) -> Op {
    op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis }.into()
}

fn group(num_groups: i64) -> Op {
    op::GroupNormalization { stash_type: 1, num_groups, epsilon: 1e-5 }.into()
}

fn shifted(numbers: &mut Random, dims: &[usize], shift: f32) -> Tensor {
    let values = numbers.tensor(DType::F32, dims, 1.0).to_f64s();
    Tensor::new(dims, values.into_iter().map(|x| x as f32 + shift).collect()).unwrap()
}

/// Runs in those lies for which there is a candidate; the plain dense one must have.
fn check(region: &planish_kernel::Region, inputs: &[Tensor], tolerance: Tolerance) {
    let mut n_lies = 0;
    for placement in Placement::ALL {
        let (problem, want) = placement.problem(region, inputs);
        for isa in Isa::available() {
            let fits = NormFamily
                .candidates(isa, &problem, &Budget::USUAL)
                .iter()
                .any(|candidate| NormFamily.prepare(isa, &problem, &candidate.tactic).is_ok());
            if fits {
                let got = trial::run(&NormFamily, isa, &problem, inputs);
                let what = format!("{} on {isa}, {placement:?}", problem.key());
                assert_close(&got[0], &want[0], tolerance, &what);
                n_lies += 1;
            }
        }
    }
    assert!(n_lies >= 2, "{} lies", n_lies);
}

#[test]
fn rows_of_many_lengths() {
    let mut numbers = Random::new(21);
    for dims in
        [&[1, 1][..], &[3, 7], &[5, 16], &[2, 3, 33], &[4, 768], &[2, 5, 4, 65], &[3, 5000], &[0, 8], &[2, 0]]
    {
        let last = dims.last().copied().unwrap();
        let x = shifted(&mut numbers, dims, 0.5);
        let (scale, bias) =
            (numbers.tensor(DType::F32, &[last], 2.0), numbers.tensor(DType::F32, &[last], 2.0));
        let one = region(3, vec![], vec![(layer(-1), (0..3).map(input).collect())]);
        check(&one, &[x.clone(), scale.clone(), bias], CLOSE);
        let no_bias = region(2, vec![], vec![(layer(-1), (0..2).map(input).collect())]);
        check(&no_bias, &[x.clone(), scale.clone()], CLOSE);
        let rms = op::RMSNormalization { stash_type: 1, epsilon: 1e-6, axis: -1 };
        let rms = region(2, vec![], vec![(rms.into(), (0..2).map(input).collect())]);
        check(&rms, &[x, scale], CLOSE);
    }
    let dims = [3, 4, 5];
    let x = numbers.tensor(DType::F32, &dims, 2.0);
    let two = region(3, vec![], vec![(layer(1), (0..3).map(input).collect())]);
    let parameters =
        [numbers.tensor(DType::F32, &dims[1..], 2.0), numbers.tensor(DType::F32, &dims[1..], 2.0)];
    let (problem, want) =
        Placement::ALL[0].problem(&two, &[x.clone(), parameters[0].clone(), parameters[1].clone()]);
    for isa in Isa::available() {
        let got = trial::run(
            &NormFamily,
            isa,
            &problem,
            &[x.clone(), parameters[0].clone(), parameters[1].clone()],
        );
        assert_close(&got[0], &want[0], CLOSE, "two axes");
    }
}

/// A mean of a thousand deviations costs ten bits of the input's 24, but none of the kernel's doing.
#[test]
fn a_large_mean_is_taken_off_exactly() {
    let mut numbers = Random::new(22);
    let x = shifted(&mut numbers, &[3, 1000], 1000.0);
    let ones = Tensor::new(&[1000], vec![1f32; 1000]).unwrap();
    check(&region(2, vec![], vec![(layer(-1), (0..2).map(input).collect())]), &[x, ones], CLOSE);
    let x = shifted(&mut numbers, &[2, 8, 40, 25], 1000.0);
    let parameters = [Tensor::new(&[8], vec![1f32; 8]).unwrap(), Tensor::new(&[8], vec![0f32; 8]).unwrap()];
    let [ones, zeros] = parameters;
    check(&region(3, vec![], vec![(group(2), (0..3).map(input).collect())]), &[x, ones, zeros], CLOSE);
}

#[test]
fn groups_in_both_layouts() {
    let mut numbers = Random::new(23);
    for (dims, n_groups) in [
        (&[1, 4, 3, 3][..], 2),
        (&[2, 32, 7, 5], 8),
        (&[2, 6, 5], 3),
        (&[1, 30, 40, 41], 5),
        (&[3, 17, 2, 2], 1),
        (&[1, 64, 33, 32], 64),
        (&[2, 8], 4),
        (&[2, 8, 3, 2, 3], 2),
        (&[0, 4, 2, 2], 2),
    ] {
        let x = shifted(&mut numbers, dims, 0.3);
        let parameters =
            [numbers.tensor(DType::F32, &dims[1..2], 2.0), numbers.tensor(DType::F32, &dims[1..2], 2.0)];
        let [scale, bias] = parameters;
        let inputs = [x, scale, bias];
        check(&region(3, vec![], vec![(group(n_groups), (0..3).map(input).collect())]), &inputs, CLOSE);
        let instance: Op = op::InstanceNormalization { epsilon: 1e-5 }.into();
        check(&region(3, vec![], vec![(instance, (0..3).map(input).collect())]), &inputs, CLOSE);
        // With an activation after, which reads twice.
        let silu = vec![
            (group(n_groups), (0..3).map(input).collect()),
            (op::Sigmoid {}.into(), vec![node(0)]),
            (op::Mul {}.into(), vec![node(0), node(1)]),
        ];
        check(&region(3, vec![], silu), &inputs, CLOSE);
    }
}

#[test]
fn rows_with_a_sum_before_and_a_program_behind() {
    let mut numbers = Random::new(24);
    for dims in [&[3, 40][..], &[2, 3, 300]] {
        let last = dims.last().copied().unwrap();
        let inputs = [
            numbers.tensor(DType::F32, dims, 1.0),
            numbers.tensor(DType::F32, dims, 1.0),
            numbers.tensor(DType::F32, &[last], 1.0),
            numbers.tensor(DType::F32, &[last], 1.0),
        ];
        let nodes = vec![
            (op::Add {}.into(), vec![input(0), input(1)]),
            (layer(-1), vec![node(0), input(2), input(3)]),
            (op::Add {}.into(), vec![node(1), input(1)]),
            (op::Relu {}.into(), vec![node(2)]),
        ];
        check(&region(4, vec![], nodes), &inputs, CLOSE);
    }
}

#[test]
fn lengths_along_any_axis() {
    let mut numbers = Random::new(25);
    for dims in [&[5][..], &[3, 40], &[2, 7, 19], &[0, 3]] {
        for axis in 0..dims.len() as i64 {
            for p in [1, 2] {
                let op: Op = op::LpNormalization { p, axis }.into();
                let one = region(1, vec![], vec![(op, vec![input(0)])]);
                check(&one, &[numbers.tensor(DType::F32, dims, 3.0)], CLOSE);
                check(&one, &[Tensor::zeros(DType::F32, dims).unwrap()], CLOSE);
            }
        }
    }
}
