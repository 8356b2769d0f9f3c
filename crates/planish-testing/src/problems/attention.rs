//! Attention: masks, causes, caches, heads of all sizes.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::DType;

use crate::Sample;

/// Attention as the operator has it by default, over keys that came before or over all.
pub fn attention(is_causal: bool) -> op::Attention {
    op::Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: None,
        q_num_heads: None,
        scale: None,
        is_causal,
    }
}

/// Problems that between them ask for each kernel of a family.
pub fn samples() -> Vec<Problem> {
    let three = |dtype, dims: &[usize], keys: &[usize]| {
        Sample::op(attention(false), 3).typed(dtype, dims).typed(dtype, keys).typed(dtype, keys)
    };
    let masked = Sample::op(attention(false), 4)
        .typed(DType::F16, &[1, 2, 40, 32])
        .typed(DType::F16, &[1, 2, 90, 32])
        .typed(DType::F16, &[1, 2, 90, 32]);
    let cached = |dtype| {
        let sample = Sample::op(attention(true), 6).n_outputs(4).typed(dtype, &[2, 2, 3, 8]);
        let sample = sample.typed(dtype, &[2, 1, 5, 8]).typed(dtype, &[2, 1, 5, 12]);
        let sample = sample.typed(DType::F32, &[3, 12]);
        sample.typed(dtype, &[2, 1, 7, 8]).typed(dtype, &[2, 1, 7, 12]).problem()
    };
    vec![
        three(DType::F16, &[1, 1, 40, 256], &[1, 1, 70, 256]).problem(),
        three(DType::BF16, &[1, 1, 20, 136], &[1, 1, 33, 136]).problem(),
        three(DType::F32, &[1, 1, 3, 1100], &[1, 1, 5, 1100]).problem(),
        cached(DType::F32),
        cached(DType::F16),
        three(DType::F16, &[1, 2, 70, 64], &[1, 2, 130, 64]).problem(),
        masked.typed(DType::Bool, &[1, 1, 40, 90]).problem(),
        three(DType::BF16, &[2, 1, 17, 128], &[2, 1, 20, 128]).problem(),
        Sample::op(attention(true), 3)
            .f32(&[1, 2, 35, 24])
            .f32(&[1, 2, 35, 24])
            .f32(&[1, 2, 35, 24])
            .problem(),
    ]
}
