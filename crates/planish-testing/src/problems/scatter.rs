//! Writes by index, with every way to reduce.

use planish_kernel::Problem;
use planish_op::{self as op, ScatterReduction};
use planish_tensor::DType;

use crate::Sample;

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let each = |reduction, axis, dtype, data: &[usize], kind, index: &[usize]| {
        let op = op::ScatterElements { reduction, axis };
        Sample::op(op, 3).typed(dtype, data).typed(kind, index).typed(dtype, index).problem()
    };
    let slices = |reduction, dtype, data: &[usize], index: &[usize], updates: &[usize]| {
        let op = op::ScatterND { reduction };
        Sample::op(op, 3).typed(dtype, data).typed(DType::I64, index).typed(dtype, updates).problem()
    };
    let (none, add) = (ScatterReduction::None, ScatterReduction::Add);
    vec![
        each(none, 1, DType::F32, &[3, 7, 5], DType::I64, &[2, 9, 4]),
        each(none, -1, DType::F16, &[4, 33], DType::I32, &[4, 40]),
        each(add, 0, DType::F32, &[6, 5], DType::I64, &[11, 5]),
        each(ScatterReduction::Max, 1, DType::F16, &[3, 4, 6], DType::I64, &[3, 9, 2]),
        each(ScatterReduction::Mul, 0, DType::I64, &[4, 3], DType::I64, &[6, 3]),
        slices(none, DType::F32, &[6, 5, 8], &[7, 2], &[7, 8]),
        slices(none, DType::F16, &[4, 3], &[2, 9, 2], &[2, 9]),
        slices(none, DType::Bool, &[5, 16], &[3, 1], &[3, 16]),
        slices(add, DType::F32, &[5, 300], &[9, 1], &[9, 300]),
        slices(ScatterReduction::Min, DType::BF16, &[3, 2, 7], &[8, 2], &[8, 7]),
    ]
}
