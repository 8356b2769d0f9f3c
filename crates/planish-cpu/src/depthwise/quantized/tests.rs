//! Against the reference, byte by byte: edges of vectors and tiles, borders, strides, dilations, one to three axes.

use planish_kernel::Operand;
use planish_op as op;
use planish_op::Op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, constant, input, node, region};

use super::{MAX_TAPS, MAX_TAPS_LESS, QuantizedDepthwiseFamily};
use crate::conv::quantized::testing::{
    Trial, conv, dequantize, quantize, quantized_conv, weights, with_residual,
};
use crate::family::Family;
use crate::isa::Isa;

const FAMILY: &dyn Family = &QuantizedDepthwiseFamily;

/// A depthwise convolution of an image to `to`, or to f32.
fn depthwise(x: &[usize], taps: &[usize], conv: op::Conv, zero: u8, to: Option<Tensor>) -> Trial {
    let w = [&[x[1], 1], taps].concat();
    quantized_conv(FAMILY, 1, (x, &w), op::Conv { group: x[1] as i64, ..conv }, zero, to, 127)
}

#[test]
fn to_bytes_and_to_floats() {
    for to in [Some(Tensor::scalar(3u8)), Some(Tensor::scalar(-100i8)), None] {
        let names = depthwise(&[2, 20, 9, 11], &[3, 3], conv(&[1; 4], &[], 1), 128, to).check();
        let want: Vec<String> = Isa::available().iter().map(|isa| format!("qdepthwise_u8_{isa}")).collect();
        assert_eq!(names, want);
    }
}

#[test]
fn edges_of_vectors_and_tiles() {
    let to = Some(Tensor::scalar(7u8));
    for channels in [1, 15, 16, 17, 33] {
        for stride in [1, 2] {
            for (taps, pads) in [([3, 3], [1, 1, 1, 1]), ([5, 5], [2, 2, 2, 2]), ([1, 7], [0, 3, 0, 3])] {
                for width in [4, 19] {
                    let conv = conv(&pads, &[stride, stride], 1);
                    let zero = if channels % 2 == 0 { 0 } else { 128 };
                    depthwise(&[1, channels, 5, width], &taps, conv, zero, to.clone()).check();
                }
            }
        }
    }
}

#[test]
fn any_windows() {
    let to = Some(Tensor::scalar(0u8));
    let dilated = op::Conv { dilations: vec![2, 2], ..conv(&[2, 1, 0, 3], &[1, 2], 1) };
    depthwise(&[2, 17, 9, 23], &[3, 3], dilated, 9, to.clone()).check();
    // No pads; a window that padding fills but for one row; strides beyond those of the sliding kernels.
    depthwise(&[1, 16, 9, 12], &[3, 3], conv(&[], &[], 1), 255, to.clone()).check();
    depthwise(&[1, 18, 1, 2], &[3, 3], conv(&[2; 4], &[], 1), 200, to.clone()).check();
    depthwise(&[1, 16, 8, 31], &[2, 4], conv(&[1, 2, 0, 1], &[3, 3], 1), 1, to.clone()).check();
    // One axis and three.
    depthwise(&[2, 17, 30], &[3], conv(&[1, 1], &[], 1), 128, to.clone()).check();
    depthwise(&[1, 33, 21], &[4], conv(&[2, 1], &[2], 1), 128, to.clone()).check();
    depthwise(&[1, 17, 4, 5, 11], &[3, 3, 3], conv(&[1; 6], &[], 1), 128, to).check();
}

/// Images beyond the second-level cache, whose rows are asked for ahead, and more tasks than threads.
#[test]
fn large_images() {
    for stride in [1, 2] {
        let conv = conv(&[1; 4], &[stride, stride], 1);
        depthwise(&[1, 68, 91, 93], &[3, 3], conv, 128, Some(Tensor::scalar(0u8))).check();
    }
}

/// Several output channels for each input channel.
#[test]
fn multipliers() {
    let trial = |conv: op::Conv| {
        quantized_conv(FAMILY, 2, (&[1, 7, 6, 9], &[21, 1, 3, 3]), conv, 99, Some(Tensor::scalar(4u8)), 127)
    };
    trial(conv(&[1; 4], &[], 7)).check();
    trial(conv(&[0; 4], &[2, 1], 7)).check();
}

#[test]
fn residuals_of_every_type() {
    for dtype in [DType::U8, DType::I8, DType::F32] {
        for channels in [3, 20] {
            with_residual(FAMILY, (channels, &[channels, 1, 3, 3]), channels as i64, dtype).check();
        }
    }
}

/// A single scale for all channels, no bias, and a clamp from both sides.
#[test]
fn one_scale_and_a_clip() {
    let mut random = Random::new(3);
    let inputs =
        vec![random.whole(DType::U8, &[1, 19, 6, 10], 0, 255), weights(&mut random, &[19, 1, 3, 3], 127)];
    let constants = vec![
        Tensor::scalar(0.25f32),
        Tensor::scalar(100u8),
        Tensor::scalar(0.03125f32),
        Tensor::scalar(-20f32),
        Tensor::scalar(12.5f32),
        Tensor::scalar(0.5f32),
        Tensor::scalar(100u8),
    ];
    let conv: Op = conv(&[1; 4], &[], 19).into();
    let nodes = vec![
        (dequantize(1), vec![input(0), constant(0), constant(1)]),
        (dequantize(0), vec![input(1), constant(2)]),
        (conv, vec![node(0), node(1)]),
        (op::Clip {}.into(), vec![node(2), constant(3), constant(4)]),
        (quantize(), vec![node(3), constant(5), constant(6)]),
    ];
    Trial::new(FAMILY, region(2, constants, nodes), inputs, &[1]).check();
}

/// The largest window with the largest products: beyond it f32 would round.
#[test]
fn the_largest_sums_are_exact() {
    let trial = |n_taps: usize| {
        let mut trial = depthwise(&[1, 16, n_taps], &[n_taps], conv(&[], &[], 1), 0, None);
        let elements = 16 * n_taps;
        let whole = |dtype: DType, dims: &[usize], value: i64| {
            Tensor::from_i64s(dtype, dims, &vec![value; elements]).unwrap()
        };
        trial.inputs[0] = whole(DType::U8, &[1, 16, n_taps], 255);
        trial.inputs[1] = whole(DType::I8, &[16, 1, n_taps], -128);
        trial.inputs[2] = Tensor::vector(vec![-0.5f32; 16]);
        trial.inputs[3] = Tensor::vector(vec![0.0f32; 16]);
        let (mut problem, mut want) = Placement::ALL[0].problem(&trial.region, &trial.inputs);
        (1..4).for_each(|idx| problem.inputs[idx].constant = true);
        (trial.problem, trial.want) = (problem, want.remove(0));
        trial
    };
    trial(MAX_TAPS).check();
    assert_eq!(trial(MAX_TAPS + 1).n_offered(), 0);
    const { assert!(MAX_TAPS * 255 * 128 < 1 << f32::MANTISSA_DIGITS) };
}

/// Weights with a zero point, as exporters of unsigned weights have them.
#[test]
fn weights_with_a_zero_point() {
    for (weight_zero, zero) in [(-128i8, 0u8), (127, 131), (5, 255)] {
        for (x, taps) in [([1, 19, 6, 10], [3, 3]), ([2, 16, 18, 17], [16, 15])] {
            let mut random = Random::new(4);
            let inputs = vec![
                random.whole(DType::U8, &x, 0, 255),
                weights(&mut random, &[x[1], 1, taps[0], taps[1]], 127),
            ];
            let constants = vec![
                Tensor::scalar(0.25f32),
                Tensor::scalar(zero),
                Tensor::scalar(0.03125f32),
                Tensor::scalar(weight_zero),
                Tensor::scalar(4f32),
                Tensor::scalar(100u8),
            ];
            let conv: Op = conv(&[1; 4], &[], x[1] as i64).into();
            let nodes = vec![
                (dequantize(1), vec![input(0), constant(0), constant(1)]),
                (dequantize(0), vec![input(1), constant(2), constant(3)]),
                (conv, vec![node(0), node(1)]),
                (quantize(), vec![node(2), constant(4), constant(5)]),
            ];
            Trial::new(FAMILY, region(2, constants, nodes), inputs, &[1]).check();
        }
    }
    const { assert!(MAX_TAPS_LESS * 255 * 255 < 1 << f32::MANTISSA_DIGITS) };
}

/// What the kernels do not compute is not offered.
#[test]
fn others_are_refused() {
    let usual = || depthwise(&[1, 8, 5, 5], &[3, 3], conv(&[], &[], 1), 0, None);
    assert_eq!(usual().n_offered(), 1);
    let mut unknown = usual();
    unknown.problem.inputs[1].constant = false;
    assert_eq!(unknown.n_offered(), 0, "weights that are not known");
    let mut signed = usual();
    signed.problem.inputs[0].dtype = DType::I8;
    assert_eq!(signed.n_offered(), 0, "signed activations");
    let grouped = quantized_conv(FAMILY, 5, (&[1, 8, 5, 5], &[8, 2, 3, 3]), conv(&[], &[], 4), 0, None, 127);
    assert_eq!(grouped.n_offered(), 0, "groups of two channels");
    let mut scaled = usual();
    scaled.problem.inputs[2] = Operand::weight(DType::F32, &[4]);
    assert_eq!(scaled.n_offered(), 0, "scales that are not one for each channel");
}
