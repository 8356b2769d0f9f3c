//! Transposed convolutions.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use super::numeric;
use crate::{Sample, input, node};

/// One without dilations or padding of the output.
pub fn plain(group: i64, pads: &[i64], strides: &[i64]) -> op::ConvTranspose {
    op::ConvTranspose {
        group,
        auto_pad: op::AutoPad::NotSet,
        strides: strides.to_vec(),
        pads: pads.to_vec(),
        output_padding: Vec::new(),
        dilations: Vec::new(),
        output_shape: None,
        kernel_shape: None,
    }
}

fn conv(group: i64, pads: &[i64], strides: &[i64]) -> Op {
    plain(group, pads, strides).into()
}

/// With bias and ReLU, windows side by side: image sizes, output channels, and window.
fn side_by_side(dtype: DType, x: &[usize], n: usize, window: &[usize]) -> Problem {
    let strides: Vec<i64> = window.iter().map(|size| *size as i64).collect();
    let nodes = vec![
        (conv(1, &[], &strides), vec![input(0), input(1), input(2)]),
        (Op::from(op::Relu {}), vec![node(0)]),
    ];
    let weight = [&[x[1], n], window].concat();
    let sample = Sample::of(nodes).typed(dtype, x).weight(dtype, &weight).weight(dtype, &[n]);
    Problem { numeric: numeric(dtype), ..sample.problem() }
}

/// Those whose windows lie side by side: one row and column of pixels, tiles and one more, one to three axes, windows
/// that are no squares, and channels of every width of a tile.
pub fn patches() -> Vec<Problem> {
    vec![
        side_by_side(DType::F16, &[1, 64, 8, 8], 32, &[2, 2]),
        side_by_side(DType::F16, &[2, 16, 1, 1], 16, &[2, 2]),
        side_by_side(DType::F16, &[1, 32, 9, 29], 64, &[2, 2]),
        side_by_side(DType::BF16, &[3, 48, 13], 48, &[4]),
        side_by_side(DType::F16, &[1, 128, 5, 13], 128, &[3, 2]),
        side_by_side(DType::F16, &[1, 16, 3, 4, 5], 32, &[2, 2, 2]),
        side_by_side(DType::F16, &[1, 80, 37, 31], 192, &[2, 2]),
        side_by_side(DType::F16, &[1, 256, 16, 16], 256, &[1, 2]),
    ]
}

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let half = DType::F16;
    let after = vec![
        (conv(1, &[], &[2, 2]), vec![input(0), input(1), input(2)]),
        (Op::from(op::Relu {}), vec![node(0)]),
    ];
    let one = |op| Sample::of(vec![(op, vec![input(0), input(1)])]);
    vec![
        Sample::of(after)
            .typed(half, &[2, 40, 5, 6])
            .weight(half, &[40, 24, 2, 2])
            .weight(half, &[24])
            .problem(),
        one(conv(1, &[1, 1, 1, 1], &[2, 2]))
            .typed(half, &[1, 16, 5, 4])
            .weight(half, &[16, 72, 4, 4])
            .problem(),
        one(conv(2, &[1, 0, 0, 1], &[2, 1])).f32(&[1, 6, 4, 5]).weight(DType::F32, &[6, 5, 3, 2]).problem(),
        one(conv(1, &[], &[2, 2, 2]))
            .typed(DType::BF16, &[1, 8, 3, 2, 3])
            .weight(DType::BF16, &[8, 8, 2, 2, 2])
            .problem(),
    ]
}
