//! Attention: masks, causes, caches, heads of all sizes.

use planish_kernel::Problem;
use planish_op as op;
use planish_tensor::{DType, Tensor};

use super::pointwise::cast_and_quantize;
use super::quantized::dequantize;
use crate::{Sample, constant, input, node};

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

/// Attention of E4M3 operands, heads in rows and apart; some results are such floats too.
pub fn of_floats_of_8_bits() -> Vec<Problem> {
    let cast = |to| op::Cast { round_mode: op::CastRounding::Up, saturate: true, to };
    let scales = [0.5f32, 0.25, 0.125];
    let problem =
        |attention: op::Attention, to: DType, rounds: bool, shapes: [&[usize]; 3], mask: Option<&[usize]>| {
            let mut nodes: Vec<(op::Op, _)> = Vec::new();
            for place in 0..3 {
                nodes.push((dequantize(1), vec![input(place), constant(place)]));
                nodes.push((cast(to).into(), vec![node(2 * place)]));
            }
            let mut read = vec![node(1), node(3), node(5)];
            read.extend(mask.map(|_| input(3)));
            nodes.push((attention.into(), read));
            if rounds {
                let [widen, quantize] = cast_and_quantize();
                nodes.push((widen, vec![node(6)]));
                nodes.push((quantize, vec![node(7), constant(3), constant(4)]));
            }
            let mut sample = Sample::of(nodes);
            for scale in scales {
                sample = sample.constant(Tensor::scalar(scale));
            }
            if rounds {
                let zero = Tensor::zeros(DType::F8E4M3FN, &[]).expect("one number");
                sample = sample.constant(Tensor::scalar(0.02f32)).constant(zero);
            }
            for shape in shapes {
                sample = sample.typed(DType::F8E4M3FN, shape);
            }
            if let Some(mask) = mask {
                sample = sample.typed(DType::F32, mask);
            }
            sample.problem()
        };
    let in_rows = op::Attention { q_num_heads: Some(2), kv_num_heads: Some(2), ..attention(false) };
    let rows: [&[usize]; 3] = [&[2, 33, 2 * 32], &[2, 70, 2 * 32], &[2, 70, 2 * 32]];
    let apart: [&[usize]; 3] = [&[1, 2, 17, 64], &[1, 2, 65, 64], &[1, 2, 65, 24]];
    vec![
        problem(in_rows.clone(), DType::F16, true, rows, None),
        problem(in_rows, DType::F16, false, rows, Some(&[2, 1, 1, 70])),
        problem(attention(true), DType::BF16, false, apart, None),
        problem(attention(false), DType::F16, true, apart, Some(&[17, 65])),
    ]
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
