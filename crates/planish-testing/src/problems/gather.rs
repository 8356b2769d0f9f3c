//! Lookups by index: rows, elements and tuples.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::DType;

use crate::Sample;

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let table = |dtype, index| {
        Sample::op(op::Gather { axis: 0 }, 2).typed(dtype, &[30, 64]).typed(index, &[2, 9]).problem()
    };
    let slices = |batch_dims, dtype, data: &[usize], kind, index: &[usize]| {
        Sample::op(op::GatherND { batch_dims }, 2).typed(dtype, data).typed(kind, index).problem()
    };
    vec![
        table(DType::F16, DType::I64),
        table(DType::F32, DType::I32),
        Sample::op(op::Gather { axis: 1 }, 2).f32(&[3, 7, 5]).typed(DType::I64, &[4]).problem(),
        Sample::op(op::GatherElements { axis: 1 }, 2).f32(&[3, 7]).typed(DType::I64, &[3, 5]).problem(),
        slices(0, DType::F32, &[4, 3, 8], DType::I64, &[7, 2]),
        slices(0, DType::F16, &[5, 6], DType::I32, &[2, 9, 2]),
        slices(1, DType::F32, &[3, 4, 5, 2], DType::I64, &[3, 6, 2]),
        slices(0, DType::Bool, &[6, 32], DType::I64, &[4, 1]),
    ]
}
