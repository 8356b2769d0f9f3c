//! Matrix products: factors that are weights or not, batches, depths of all kinds, epilogues, and some by chance.

use planish_kernel::{Numeric, Problem};
use planish_op::{self as op, Op};
use planish_tensor::DType;

use super::{numeric, with, with_image};
use crate::{Random, Sample, input, node};

/// A MatMul with a bias where the second factor is a weight and, after it, `op`.
pub fn matmul(dtype: DType, a: &[usize], b: &[usize], weight: bool, after: Option<Op>) -> Problem {
    let mut nodes = vec![(Op::from(op::MatMul {}), vec![input(0), input(1)])];
    if weight {
        nodes.push((op::Add {}.into(), vec![node(0), input(2)]));
    }
    if let Some(op) = after {
        let last = nodes.len() as u32 - 1;
        nodes.push((op, vec![node(last)]));
    }
    let sample = Sample::of(nodes).typed(dtype, a);
    let sample = match weight {
        true => sample.weight(dtype, b).weight(dtype, &b[b.len() - 1..]),
        false => sample.typed(dtype, b),
    };
    Problem { numeric: numeric(dtype), ..sample.problem() }
}

/// Problems that between them ask for each loader, type and way to add up.
pub fn samples() -> Vec<Problem> {
    let gelu = || Some(op::Gelu { approximate: op::GeluApproximation::None }.into());
    vec![
        matmul(DType::F16, &[2, 60, 96], &[96, 72], true, gelu()),
        matmul(DType::F16, &[1, 512], &[512, 100], true, None),
        matmul(DType::F16, &[2, 3, 20, 32], &[2, 3, 32, 20], false, None),
        matmul(DType::BF16, &[40, 100], &[100, 30], true, Some(op::Tanh {}.into())),
        matmul(DType::F32, &[33, 47], &[47, 29], true, None),
        matmul(DType::F32, &[2, 3, 10, 16], &[3, 16, 24], false, None),
    ]
}

/// Matrix products.
pub fn products() -> Vec<Problem> {
    let half = DType::F16;
    let gelu = || Some(op::Gelu { approximate: op::GeluApproximation::None }.into());
    let mut all = vec![
        matmul(half, &[2, 60, 96], &[96, 72], true, gelu()),
        matmul(half, &[1, 512], &[512, 1000], true, None),
        matmul(half, &[128, 384], &[384, 1152], true, None),
        matmul(DType::BF16, &[65, 104], &[104, 33], true, Some(op::Tanh {}.into())),
        matmul(half, &[2, 1, 3, 16, 40], &[40, 64], true, None),
        matmul(half, &[300, 1536], &[1536, 384], true, None),
        matmul(half, &[7, 8], &[8, 1], true, None),
    ];
    // A value for each row of one batch, and one of the output's own sizes.
    let plain = matmul(half, &[3, 50, 64], &[64, 80], true, None);
    all.push(with(plain.clone(), op::Add {}, Some(&[50, 80])));
    all.push(with(with_image(plain.clone(), op::Add {}), op::Relu {}, None));
    all.push(with(plain, op::Mul {}, Some(&[3, 50, 1])));
    let mut random = Random::new(3);
    for _ in 0..8 {
        let (m, n, k) = (random.between(1, 300), random.between(1, 300), 8 * random.between(1, 100));
        all.push(matmul(half, &[m, k], &[k, n], true, None));
    }
    all
}

/// Matrix products that tensor copies do not take: odd depths, factors that are no weights, f32 and tf32.
pub fn strided_products() -> Vec<Problem> {
    let half = DType::F16;
    let mut all = vec![
        matmul(half, &[33, 77], &[77, 50], true, Some(op::Relu {}.into())),
        matmul(half, &[2, 3, 20, 33], &[2, 3, 33, 24], false, None),
        matmul(half, &[4, 65, 40], &[4, 40, 129], false, None),
        matmul(half, &[50, 72], &[72, 40], false, None),
        matmul(half, &[1, 4096], &[4096, 64], true, None),
        matmul(DType::BF16, &[3, 1, 17], &[17, 9], true, None),
        matmul(DType::F32, &[130, 300], &[300, 70], true, Some(op::Tanh {}.into())),
        matmul(DType::F32, &[3, 20, 16], &[3, 16, 24], false, None),
    ];
    let mut tensor_float = matmul(DType::F32, &[70, 260], &[260, 90], true, None);
    tensor_float.numeric = Numeric::TF32;
    all.push(tensor_float);
    let plain = matmul(DType::F32, &[3, 30, 20], &[20, 28], true, None);
    all.push(with(plain.clone(), op::Add {}, Some(&[30, 28])));
    all.push(with(plain, op::Mul {}, Some(&[3, 30, 1])));
    all
}
