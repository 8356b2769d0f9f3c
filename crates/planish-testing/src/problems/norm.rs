//! Norms over rows and groups, with what is before and after them.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use crate::{Sample, input, node};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let layer = || Op::from(op::LayerNormalization { stash_type: 1, epsilon: 1e-5, axis: -1 });
    let group = |num_groups| Op::from(op::GroupNormalization { num_groups, epsilon: 1e-5, stash_type: 1 });
    let half = DType::F16;
    let summed = vec![
        (Op::from(op::Add {}), vec![input(0), input(1)]),
        (layer(), vec![node(0), input(2), input(3)]),
        (op::Relu {}.into(), vec![node(1)]),
    ];
    let gated = vec![
        (group(4), vec![input(0), input(1), input(2)]),
        (Op::from(op::Sigmoid {}), vec![node(0)]),
        (op::Mul {}.into(), vec![node(0), node(1)]),
        (op::Add {}.into(), vec![node(2), input(3)]),
    ];
    let swish = vec![
        (group(32), vec![input(0), input(1), input(2)]),
        (Op::from(op::Swish { alpha: 1.0 }), vec![node(0)]),
    ];
    let image = [2usize, 32, 12, 11];
    vec![
        Sample::of(summed.clone())
            .typed(half, &[3, 5, 384])
            .typed(half, &[3, 5, 384])
            .typed(half, &[384])
            .typed(half, &[384])
            .problem(),
        Sample::of(vec![(layer(), vec![input(0), input(1), input(2)])])
            .f32(&[4, 77])
            .f32(&[77])
            .f32(&[77])
            .problem(),
        Sample::of(vec![(layer(), vec![input(0), input(1)])])
            .typed(DType::BF16, &[3, 9000])
            .f32(&[9000])
            .problem(),
        Sample::of(gated)
            .typed(half, &image)
            .typed(half, &[32])
            .typed(half, &[32])
            .typed(half, &image)
            .problem(),
        Sample::of(vec![(group(2), vec![input(0), input(1), input(2)])])
            .f32(&[1, 4, 60, 50])
            .f32(&[4])
            .f32(&[4])
            .problem(),
        Sample::of(vec![(group(32), vec![input(0), input(1), input(2)])])
            .typed(half, &[1, 128, 9, 12])
            .typed(half, &[128])
            .typed(half, &[128])
            .problem(),
        Sample::of(swish).typed(half, &[1, 64, 40, 33]).typed(half, &[64]).typed(half, &[64]).problem(),
        Sample::op(op::InstanceNormalization { epsilon: 1e-5 }, 3)
            .f32(&[2, 6, 5, 7])
            .f32(&[6])
            .f32(&[6])
            .problem(),
    ]
}
