//! Normalizations against the reference, with sums before and programs after, in both layouts.

use planish_op::{self as op, Op};
use planish_tensor::{DType, Tensor};
use planish_testing::{Sample, Tolerance, constant, input, node, problems};

use super::NormFamily;
use crate::trial;

/// Means and variances of thousands of elements in f32.
const NORMALIZED: Tolerance = Tolerance { relative: 2e-5, absolute: 2e-5 };

#[test]
fn samples_are_normalized() {
    for problem in problems::norm::samples() {
        trial::check(&NormFamily, &problem, 5, NORMALIZED);
    }
}

#[test]
fn rows_of_any_length() {
    for (dims, axis) in [(&[3usize, 1][..], -1i64), (&[2, 3, 40], 1), (&[5, 600], -1), (&[2, 2050], -1)] {
        let rms = op::RMSNormalization { axis, epsilon: 1e-6, stash_type: 1 };
        let at = if axis < 0 { dims.len() - 1 } else { axis as usize };
        let sample = Sample::of(vec![(Op::from(rms), vec![input(0), input(1)])]);
        trial::check(&NormFamily, &sample.f32(dims).f32(&dims[at..]).problem(), 5, NORMALIZED);
    }
}

/// Results that lie at a boundary of floats of 8 bits may fall to either side: a step, an eighth of the number.
const ROUNDED: Tolerance = Tolerance { relative: 0.126, absolute: 0.04 };

#[test]
fn results_are_rounded_to_8_bits_beside_floats_or_in_their_place() {
    let layer = || Op::from(op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 });
    let [cast, quantize] = problems::pointwise::cast_and_quantize();
    let zero = || Tensor::zeros(DType::F8E4M3FN, &[]).unwrap();
    for (dims, outputs) in [(&[2usize, 5, 384][..], &[0u32, 2][..]), (&[3, 77], &[0, 2]), (&[4, 96], &[2])] {
        let last = dims[dims.len() - 1];
        let sample = Sample::of(vec![
            (layer(), vec![input(0), input(1), input(2)]),
            (cast.clone(), vec![node(0)]),
            (quantize.clone(), vec![node(1), constant(0), constant(1)]),
        ]);
        let sample = sample.outputs_of(outputs).constant(Tensor::scalar(0.03f32)).constant(zero());
        let half = DType::F16;
        let problem = sample.typed(half, dims).typed(half, &[last]).typed(half, &[last]).problem();
        trial::check(&NormFamily, &problem, 5, ROUNDED);
    }
}

#[test]
fn a_mean_of_many_deviations_costs_no_digits() {
    let group = op::GroupNormalization { num_groups: 2, epsilon: 1e-5, stash_type: 1 };
    let sample = Sample::of(vec![(Op::from(group), vec![input(0), input(1), input(2)])]);
    let problem = sample.f32(&[1, 8, 40, 30]).f32(&[8]).f32(&[8]).problem();
    let values: Vec<f64> = (0..8 * 40 * 30).map(|idx| 1000.0 + f64::from(idx * 7 % 64) / 32.0).collect();
    let x = Tensor::from_f64s(DType::F32, &[1, 8, 40, 30], &values).unwrap();
    let one = Tensor::from_f64s(DType::F32, &[8], &[1.0; 8]).unwrap();
    // The elements themselves are only good to 3e-5 of a deviation.
    let coarse = Tolerance { relative: 1e-3, absolute: 1e-3 };
    trial::check_on(&NormFamily, &problem, &[x, one.clone(), one], coarse);
}
