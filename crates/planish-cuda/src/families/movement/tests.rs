//! Movement against the reference, bit by bit, over element widths, layouts and sizes around the tiles.

use ::planish_op as op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Sample, Tolerance, constant, input, problems};

use super::MoveFamily;
use crate::trial;

fn check(sample: Sample) {
    trial::check(&MoveFamily, &sample.problem(), 3, Tolerance::EXACT);
}

#[test]
fn samples_are_moved() {
    for problem in problems::movement::samples() {
        trial::check(&MoveFamily, &problem, 3, Tolerance::EXACT);
    }
}

#[test]
fn reorders_of_all_sizes() {
    for dims in [&[1usize, 3, 7, 5][..], &[2, 64, 8, 8], &[1, 65, 9, 7], &[1, 16, 4, 4], &[2, 20, 3, 3, 3]] {
        for dtype in [DType::F16, DType::F32, DType::Bool] {
            check(Sample::op(op::Identity {}, 1).typed(dtype, dims));
        }
    }
    check(Sample::op(op::Identity {}, 1).f32(&[0, 3, 2, 2]));
    check(Sample::op(op::Identity {}, 1).f32(&[]));
}

#[test]
fn transposes() {
    for perm in [vec![0i64, 2, 1, 3], vec![0, 2, 3, 1], vec![3, 2, 1, 0], vec![1, 0, 3, 2], vec![0, 1, 2, 3]]
    {
        let transpose = || Sample::op(op::Transpose { perm: Some(perm.clone()) }, 1);
        check(transpose().typed(DType::F16, &[2, 18, 5, 24]));
        check(transpose().f32(&[3, 4, 70, 17]));
    }
}

#[test]
fn pads_and_concatenations() {
    for mode in [op::PadMode::Constant, op::PadMode::Reflect, op::PadMode::Edge] {
        let pads = Tensor::vector(vec![0i64, 0, 1, 2, 0, 0, 2, 1]);
        let sample = Sample::of(vec![(op::Pad { mode }.into(), vec![input(0), constant(0)])]);
        check(sample.constant(pads).typed(DType::F16, &[1, 8, 5, 6]));
    }
    for axis in [0, 1, 3] {
        let concat = Sample::op(op::Concat { axis }, 3);
        check(concat.f32(&[2, 8, 3, 4]).f32(&[2, 8, 3, 4]).f32(&[2, 8, 3, 4]));
    }
}

#[test]
fn splits_and_expansions() {
    let split = op::Split { axis: 1, num_outputs: None };
    let sample = Sample::of(vec![(split.into(), vec![input(0), constant(0)])]).n_outputs(2);
    let sample = sample.constant(Tensor::vector(vec![4i64, 12])).typed(DType::F16, &[3, 16, 5]);
    check(sample.output(DType::F16, &[3, 4, 5]).output(DType::F16, &[3, 12, 5]));
    let expand = Sample::of(vec![(op::Expand {}.into(), vec![input(0), constant(0)])]);
    check(expand.constant(Tensor::vector(vec![2i64, 3, 8])).f32(&[3, 1]));
}
