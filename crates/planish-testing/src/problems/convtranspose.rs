//! Transposed convolutions.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use crate::{Sample, input, node};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let conv = |group: i64, pads: &[i64], strides: &[i64]| {
        Op::from(op::ConvTranspose {
            group,
            auto_pad: op::AutoPad::NotSet,
            strides: strides.to_vec(),
            pads: pads.to_vec(),
            output_padding: Vec::new(),
            dilations: Vec::new(),
            output_shape: None,
            kernel_shape: None,
        })
    };
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
