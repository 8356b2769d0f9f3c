//! Products with weights that are 2:4 sparse along the sum: rows of all counts, ends of tiles and chunks, epilogues.

use planish_kernel::Problem;
use planish_op::{self as op, Op};
use planish_tensor::DType;

use super::matmul::matmul;
use super::{numeric, with, with_image};
use crate::{Sample, input};

/// Says of a problem's second input that it is 2:4 sparse.
fn sparse(mut problem: Problem) -> Problem {
    problem.inputs[1].two_of_four = true;
    problem
}

/// A MatMul with a bias and, after it, `op`.
pub fn product(dtype: DType, rows: &[usize], [n, k]: [usize; 2], after: Option<Op>) -> Problem {
    sparse(matmul(dtype, &[rows, &[k]].concat(), &[k, n], true, after))
}

/// A Gemm whose weight is `n x k`.
fn transposed(dtype: DType, m: usize, [n, k]: [usize; 2]) -> Problem {
    let gemm = op::Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: true };
    let sample = Sample::of(vec![(gemm.into(), vec![input(0), input(1), input(2)])])
        .typed(dtype, &[m, k])
        .weight(dtype, &[n, k])
        .weight(dtype, &[n]);
    sparse(Problem { numeric: numeric(dtype), ..sample.problem() })
}

/// Problems that between them ask for each kernel.
pub fn samples() -> Vec<Problem> {
    let [half, brain] = [DType::F16, DType::BF16];
    let gelu = op::Gelu { approximate: op::GeluApproximation::None };
    let mut all = vec![
        product(half, &[1], [48, 192], None),
        product(half, &[3], [64, 512], Some(op::Relu {}.into())),
        product(half, &[2, 9], [72, 256], Some(gelu.into())),
        product(half, &[33], [100, 320], None),
        product(half, &[70], [50, 192], None),
        product(brain, &[7], [33, 136], None),
        product(brain, &[40], [80, 128], Some(op::Tanh {}.into())),
        transposed(half, 5, [64, 256]),
        transposed(brain, 20, [31, 200]),
    ];
    let plain = product(half, &[2, 3], [72, 128], None);
    all.push(with(with_image(plain, op::Add {}), op::Relu {}, None));
    all
}

/// Sizes around the edges of tiles and chunks.
pub fn of_all_sizes() -> Vec<Problem> {
    let sizes = [
        [0, 5, 32],
        [1, 1, 8],
        [1, 16, 64],
        [2, 17, 72],
        [7, 15, 56],
        [8, 33, 128],
        [9, 31, 136],
        [16, 64, 96],
        [17, 13, 264],
        [65, 7, 24],
        [129, 47, 64],
        // Rows that are no whole vectors are for dense kernels.
        [5, 20, 31],
    ];
    sizes.map(|[m, n, k]| product(DType::F16, &[m], [n, k], None)).to_vec()
}
