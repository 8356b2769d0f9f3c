//! DynamicQuantizeLinear: whole tensors, short and long.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::DType;

use crate::Sample;

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let quantize = |dims: &[usize]| {
        let sample = Sample::op(op::DynamicQuantizeLinear {}, 1).n_outputs(3).f32(dims);
        sample.output(DType::U8, dims).output(DType::F32, &[]).output(DType::U8, &[]).problem()
    };
    vec![quantize(&[7]), quantize(&[2, 5, 6, 7]), quantize(&[33, 1001])]
}
