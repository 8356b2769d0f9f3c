//! Reductions against the reference: every operator, along and across, split and whole.

use planish_op::{self as op, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Sample, Tolerance, constant, input, problems};

use super::ReduceFamily;
use crate::trial;

/// Sums of some thousand elements in f32, in another order than the reference's.
const SUMS: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

fn over(name: &str, axes: &[i64], dtype: DType, dims: &[usize]) -> Sample {
    let op = Op::from_attributes(name, &[]).unwrap();
    let sample = Sample::of(vec![(op, vec![input(0), constant(0)])]);
    sample.constant(Tensor::vector(axes.to_vec())).typed(dtype, dims)
}

#[test]
fn samples_are_reduced() {
    for problem in problems::reduce::samples() {
        trial::check(&ReduceFamily, &problem, 5, SUMS);
    }
}

#[test]
fn every_reduction_of_floats_and_whole_numbers() {
    for name in
        ["ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"]
    {
        trial::check(&ReduceFamily, &over(name, &[1], DType::F32, &[3, 11]).problem(), 5, SUMS);
    }
    for name in ["ReduceSum", "ReduceMax", "ReduceProd"] {
        trial::check(&ReduceFamily, &over(name, &[0], DType::I64, &[4, 6]).problem(), 5, Tolerance::EXACT);
    }
}

#[test]
fn axes_anywhere() {
    for axes in [&[0i64][..], &[1], &[0, 2], &[1, 3], &[0, 1, 2, 3]] {
        trial::check(&ReduceFamily, &over("ReduceSum", axes, DType::F16, &[3, 5, 4, 16]).problem(), 5, SUMS);
    }
}

#[test]
fn extremes_are_found_first_or_last() {
    let dims = [3usize, 4];
    let values = [1.0, 5.0, 5.0, 2.0, 7.0, 7.0, 7.0, 7.0, -1.0, -3.0, -3.0, 0.0];
    let x = Tensor::from_f64s(DType::F32, &dims, &values).unwrap();
    for select_last_index in [false, true] {
        for axis in [0, 1] {
            let most = op::ArgMax { axis, keepdims: true, select_last_index };
            let problem = Sample::op(most, 1).f32(&dims).problem();
            trial::check_on(&ReduceFamily, &problem, std::slice::from_ref(&x), Tolerance::EXACT);
        }
    }
}
