//! Softmax over rows of all lengths, and across.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::DType;

use crate::Sample;

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let softmax =
        |axis, dtype, dims: &[usize]| Sample::op(op::Softmax { axis }, 1).typed(dtype, dims).problem();
    vec![
        softmax(-1, DType::F16, &[2, 3, 128]),
        softmax(-1, DType::F32, &[3, 1000]),
        softmax(-1, DType::BF16, &[2, 9000]),
        softmax(1, DType::F16, &[2, 19, 6, 7]),
        Sample::op(op::LogSoftmax { axis: -1 }, 1).f32(&[5, 33]).problem(),
    ]
}
