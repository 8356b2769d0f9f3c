//! TopK: both ends, any axis.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::{DType, Tensor, normalize_axis};

use crate::{Sample, constant, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let topk = |largest, axis, k: i64, dtype, dims: &[usize]| {
        let op = op::TopK { sorted: true, largest, axis };
        let sample = Sample::of(vec![(op.into(), vec![input(0), constant(0)])]).n_outputs(2);
        let mut out = dims.to_vec();
        if let Ok(axis) = normalize_axis(axis, dims.len()) {
            out[axis] = k as usize;
        }
        let sample = sample.constant(Tensor::vector(vec![k])).typed(dtype, dims);
        sample.output(dtype, &out).output(DType::I64, &out).problem()
    };
    vec![
        topk(true, -1, 5, DType::F32, &[3, 1000]),
        topk(false, 1, 3, DType::F16, &[2, 17, 3]),
        topk(true, 0, 4, DType::I32, &[9, 2]),
    ]
}
