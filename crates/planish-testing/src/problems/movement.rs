//! Reorders, transposes, concatenations and slices.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use crate::{Sample, constant, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let identity = |dtype, dims: &[usize]| Sample::op(op::Identity {}, 1).typed(dtype, dims).problem();
    let swapped = op::Transpose { perm: Some(vec![0, 2, 1, 3]) };
    let image = [2usize, 33, 20, 18];
    let concat = Sample::op(op::Concat { axis: 1 }, 2).f32(&[2, 3, 8]).f32(&[2, 5, 8]).problem();
    let slice = Sample::of(vec![(
        op::Slice {}.into(),
        vec![input(0), constant(0), constant(1), constant(2), constant(3)],
    )])
    .constant(Tensor::vector(vec![7i64]))
    .constant(Tensor::vector(vec![-20i64]))
    .constant(Tensor::vector(vec![1i64]))
    .constant(Tensor::vector(vec![-2i64]))
    .typed(DType::F16, &[3, 9, 16])
    .problem();
    vec![
        identity(DType::F16, &image),
        identity(DType::F32, &image),
        identity(DType::I64, &[3, 17, 5]),
        identity(DType::U8, &image),
        Sample::op(swapped, 1).typed(DType::F16, &[2, 7, 6, 64]).problem(),
        concat,
        slice,
    ]
}
