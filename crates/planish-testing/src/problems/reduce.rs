//! Reductions: along, across, of all axes, and arguments of extremes.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use crate::{Sample, constant, input};

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let mean = |axes: &[i64], dtype, dims: &[usize]| {
        let op = op::ReduceMean { noop_with_empty_axes: false, keepdims: true };
        let sample = Sample::of(vec![(op.into(), vec![input(0), constant(0)])]);
        sample.constant(Tensor::vector(axes.to_vec())).typed(dtype, dims).problem()
    };
    let arg = op::ArgMax { axis: -1, keepdims: false, select_last_index: false };
    vec![
        mean(&[-1], DType::F16, &[4, 6, 200]),
        mean(&[2, 3], DType::F16, &[2, 40, 7, 7]),
        mean(&[0], DType::F32, &[30, 17]),
        mean(&[0, 1], DType::F32, &[3, 20_000]),
        Sample::op(op::GlobalAveragePool {}, 1).typed(DType::BF16, &[2, 24, 9, 9]).problem(),
        Sample::op(op::GlobalMaxPool {}, 1).f32(&[1, 5, 4, 4, 4]).problem(),
        Sample::op(arg, 1).f32(&[7, 100]).problem(),
    ]
}
