//! Depthwise convolutions with what comes after them.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use crate::{Sample, input, node};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let conv = |group: i64, pads: &[i64], strides: &[i64], dilations: &[i64]| {
        Op::from(op::Conv {
            group,
            pads: pads.to_vec(),
            auto_pad: op::AutoPad::NotSet,
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            kernel_shape: None,
        })
    };
    let half = DType::F16;
    let clipped = vec![
        (conv(24, &[1, 1, 1, 1], &[1, 1], &[1, 1]), vec![input(0), input(1), input(2)]),
        (op::Relu {}.into(), vec![node(0)]),
        (op::Add {}.into(), vec![node(1), input(3)]),
    ];
    let one = |op| Sample::of(vec![(op, vec![input(0), input(1)])]);
    vec![
        Sample::of(clipped)
            .typed(half, &[2, 24, 9, 10])
            .weight(half, &[24, 1, 3, 3])
            .weight(half, &[24])
            .typed(half, &[2, 24, 9, 10])
            .problem(),
        one(conv(10, &[2, 2, 2, 2], &[2, 2], &[1, 1]))
            .f32(&[1, 10, 11, 9])
            .weight(DType::F32, &[10, 1, 5, 5])
            .problem(),
        one(conv(16, &[3, 3, 3, 3], &[1, 1], &[1, 1]))
            .typed(half, &[1, 16, 8, 8])
            .weight(half, &[16, 1, 7, 7])
            .problem(),
        one(conv(8, &[2, 2, 2, 2], &[1, 1], &[2, 2]))
            .typed(DType::BF16, &[1, 8, 7, 7])
            .weight(DType::BF16, &[8, 1, 3, 3])
            .problem(),
        one(conv(6, &[0, 1, 1, 0, 1, 1], &[1, 2, 1], &[1, 1, 1]))
            .f32(&[1, 6, 4, 5, 6])
            .weight(DType::F32, &[6, 1, 2, 3, 3])
            .problem(),
    ]
}
