//! Running sums.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use crate::{Sample, constant, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let scan = |reverse, exclusive, axis: i64, dtype, dims: &[usize]| {
        let op = op::CumSum { reverse, exclusive };
        let sample = Sample::of(vec![(op.into(), vec![input(0), constant(0)])]);
        sample.constant(Tensor::scalar(axis)).typed(dtype, dims).problem()
    };
    vec![
        scan(false, false, 1, DType::F32, &[3, 9, 4]),
        scan(true, true, -1, DType::I64, &[2, 11]),
        scan(false, true, 0, DType::F16, &[5, 6]),
        // Chunks of a warp: one less, one more, several. Integers, whose long sums are exact.
        scan(true, false, -1, DType::I64, &[3, 31]),
        scan(false, true, -1, DType::I32, &[2, 33]),
        scan(true, false, 1, DType::I32, &[1, 131, 2]),
    ]
}
