//! Softmax against the reference, over lengths around warps and blocks, in all forms.

use ::planish_op as op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Sample, Tolerance, problems};

use super::SoftmaxFamily;
use crate::trial;

/// Exponentials within a few units in the last place, and sums of thousands of them.
const EXPONENTIALS: Tolerance = Tolerance { relative: 3e-6, absolute: 1e-7 };

#[test]
fn samples_are_computed() {
    for problem in problems::softmax::samples() {
        trial::check(&SoftmaxFamily, &problem, 5, EXPONENTIALS);
    }
}

#[test]
fn short_lines_and_infinities() {
    for dims in [&[3usize, 1][..], &[4, 5], &[2, 31], &[0, 4], &[513]] {
        let sample = Sample::op(op::Softmax { axis: -1 }, 1).f32(dims);
        trial::check(&SoftmaxFamily, &sample.problem(), 5, EXPONENTIALS);
    }
    let problem = Sample::op(op::Softmax { axis: -1 }, 1).f32(&[2, 3]).problem();
    let masked = [f64::NEG_INFINITY, 1.0, f64::NEG_INFINITY, f64::NAN, 0.0, 1.0];
    let inputs = [Tensor::from_f64s(DType::F32, &[2, 3], &masked).unwrap()];
    trial::check_on(&SoftmaxFamily, &problem, &inputs, EXPONENTIALS);
}

#[test]
fn logarithms_of_large_logits_are_not_rounded_at_their_size() {
    // Spread over a few units around 10,000, where numbers of 24 bits are 0.001 apart.
    for len in [6usize, 300, 5000] {
        let logit = |at: usize| 10_000.0 + (at * 7 % 13) as f64 / 4.0;
        let values: Vec<f64> = (0..len).map(logit).collect();
        for axis in [0, 1] {
            let dims = if axis == 1 { [1, len] } else { [len, 1] };
            let problem = Sample::op(op::LogSoftmax { axis }, 1).f32(&dims).problem();
            let inputs = [Tensor::from_f64s(DType::F32, &dims, &values).unwrap()];
            trial::check_on(&SoftmaxFamily, &problem, &inputs, EXPONENTIALS);
        }
    }
}
