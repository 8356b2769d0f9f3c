//! Attention against the reference: ranks, masks, shared heads, lengths around the blocks.

use planish_kernel::Region;
use planish_op as op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Placement, Random, Tolerance, input, region};

use super::family::AttentionFamily;
use crate::trial::check_placed;

/// Weights are rounded a few times and summed in f32; results are means of values up to 1.
const TOLERANCE: Tolerance = Tolerance { relative: 2e-5, absolute: 2e-6 };

fn attention(heads: Option<(i64, i64)>, n_inputs: u32) -> (op::Attention, Vec<Option<planish_kernel::Ref>>) {
    let op = op::Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: heads.map(|(_, kv)| kv),
        q_num_heads: heads.map(|(q, _)| q),
        scale: None,
        is_causal: false,
    };
    (op, (0..n_inputs).map(input).collect())
}

fn single(op: op::Attention, inputs: Vec<Option<planish_kernel::Ref>>) -> Region {
    region(inputs.len() as u32, Vec::new(), vec![(op.into(), inputs)])
}

/// Attention takes plain operands, dense or inside larger ones.
#[track_caller]
fn check(region: &Region, values: &[Tensor]) {
    check_placed(&AttentionFamily, region, values, TOLERANCE, &Placement::ALL[..2]);
}

fn tensors(shapes: &[&[usize]]) -> Vec<Tensor> {
    let mut numbers = Random::new(7);
    shapes.iter().map(|shape| numbers.tensor(DType::F32, shape, 1.0)).collect()
}

#[test]
fn heads_apart_at_edge_sizes() {
    for (queries, keys, size, value_size) in
        [(1, 1, 1, 1), (14, 32, 16, 16), (15, 33, 17, 5), (129, 7, 32, 32), (3, 513, 8, 24), (0, 4, 8, 8)]
    {
        let (op, inputs) = attention(None, 3);
        let q: &[usize] = &[2, 3, queries, size];
        let values = tensors(&[q, &[2, 3, keys, size], &[2, 3, keys, value_size]]);
        check(&single(op, inputs), &values);
    }
}

#[test]
fn heads_beside_each_other_and_shared() {
    let (op, inputs) = attention(Some((6, 2)), 3);
    let values = tensors(&[&[2, 19, 6 * 8], &[2, 21, 2 * 8], &[2, 21, 2 * 4]]);
    check(&single(op, inputs), &values);
}

#[test]
fn causal_with_cap_and_scale() {
    for (queries, keys) in [(20, 20), (5, 600), (600, 5)] {
        let (op, inputs) = attention(None, 3);
        let op = op::Attention { is_causal: true, softcap: 2.0, scale: Some(1.5), ..op };
        let values = tensors(&[&[1, 2, queries, 8], &[1, 2, keys, 8], &[1, 2, keys, 8]]);
        check(&single(op, inputs), &values);
    }
}

#[test]
fn masks_broadcast_and_hide_whole_blocks() {
    let shapes: [&[usize]; 5] = [&[9, 700], &[2, 1, 1, 700], &[1, 3, 9, 700], &[9, 600], &[1, 1, 9, 1]];
    for shape in shapes {
        for boolean in [false, true] {
            let (op, inputs) = attention(None, 4);
            let mut values = tensors(&[&[2, 3, 9, 8], &[2, 3, 700, 8], &[2, 3, 700, 8], shape]);
            // The first 520 keys hidden: a whole block without a single weight.
            let n = values[3].len();
            let keys = *shape.last().unwrap();
            let hidden = |idx: usize| idx % keys < 520 && keys > 1;
            let mask: Vec<f64> = (0..n)
                .map(|idx| match (boolean, hidden(idx)) {
                    (true, hidden) => f64::from(u8::from(!hidden)),
                    (false, true) => f64::NEG_INFINITY,
                    (false, false) => 0.25 * (idx % 5) as f64,
                })
                .collect();
            let dtype = if boolean { DType::Bool } else { DType::F32 };
            values[3] = Tensor::from_f64s(dtype, shape, &mask).unwrap();
            check(&single(op, inputs), &values);
        }
    }
}

#[test]
fn a_query_without_keys_is_nan() {
    let (op, inputs) = attention(None, 4);
    let mut values = tensors(&[&[1, 1, 2, 4], &[1, 1, 3, 4], &[1, 1, 3, 4], &[2, 3]]);
    values[3] = Tensor::from_f64s(DType::Bool, &[2, 3], &[0.0, 0.0, 0.0, 1.0, 0.0, 1.0]).unwrap();
    check(&single(op, inputs), &values);
}
