//! Pools against the reference: paddings, strides, dilations, both layouts, all float types.

use planish_op::{self as op, AutoPad};
use planish_tensor::DType;
use planish_testing::{Sample, Tolerance, input, problems};

use super::PoolFamily;
use crate::trial;

/// Sums of a few elements in another order.
const SUMS: Tolerance = Tolerance { relative: 1e-6, absolute: 1e-6 };

#[test]
fn samples_are_pooled() {
    for problem in problems::pool::samples() {
        trial::check(&PoolFamily, &problem, 5, SUMS);
    }
}

#[test]
fn windows_that_reach_beyond_the_image() {
    let max = op::MaxPool {
        storage_order: 0,
        dilations: vec![2, 1],
        ceil_mode: true,
        pads: vec![2, 0, 1, 1],
        auto_pad: AutoPad::NotSet,
        strides: vec![3, 2],
        kernel_shape: vec![3, 2],
    };
    let sample = Sample::of(vec![(max.into(), vec![input(0)])]).typed(DType::F16, &[1, 20, 10, 11]);
    trial::check(&PoolFamily, &sample.problem(), 5, Tolerance::EXACT);
    let average = op::AveragePool {
        count_include_pad: true,
        dilations: vec![],
        ceil_mode: true,
        pads: vec![1, 1, 0, 0],
        auto_pad: AutoPad::NotSet,
        strides: vec![2, 2],
        kernel_shape: vec![3, 3],
    };
    let sample = Sample::of(vec![(average.into(), vec![input(0)])]).f32(&[2, 8, 6, 8]);
    trial::check(&PoolFamily, &sample.problem(), 5, SUMS);
}
