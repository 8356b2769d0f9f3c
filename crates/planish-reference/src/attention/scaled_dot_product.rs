//! `Attention`: every query takes the mean of the values, weighted by the softmax of its products with the keys.
//!
//! Everything is computed in `f64`, so that `softmax_precision` is always met, and rounded once. As in ONNX's
//! function body a query whose keys are all masked has no weights, and its result is NaN.

use planish_op::{Attention, Value};
use planish_tensor::{DType, Tensor};

use super::{Heads, packed_width};
use crate::reduce::softmax_line;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// The inputs of one evaluation, checked. Keys and values include the past.
struct Inputs {
    query: Heads,
    key: Heads,
    value: Heads,
    past: usize,
    mask: Option<Mask>,
    /// The number of keys of each sequence that are no padding.
    lengths: Option<Vec<usize>>,
    scale: f64,
}

/// What is added to the scores, with strides for reading it as `[batch, heads, queries, keys]`.
struct Mask {
    values: Vec<f64>,
    strides: [usize; 3],
    /// 0 if one number stands for all keys.
    key_stride: usize,
    /// Keys from here on are masked out.
    n_keys: usize,
}

pub(crate) fn attention(op: &Attention, cx: &Evaluation<'_>) -> EvalResult {
    let inputs = Inputs::read(op, cx)?;
    let Inputs { query, key, value, .. } = &inputs;
    let (batch, heads, n_queries) = (query.batch, query.heads, query.seq);
    let (n_keys, value_size) = (key.seq, value.size);
    let scores_shape = [batch, heads, n_queries, n_keys];
    let wants_scores = cx.n_outputs() > 3;
    let kept_scores = if wants_scores { n_keys } else { 0 };
    let result_size = [batch, heads, n_queries, value_size.saturating_add(kept_scores)];

    // One block per query: its result, then its scores if they are an output.
    let block = result_size[3];
    let n_rows = nd::result_len(cx, &result_size)?.checked_div(block).unwrap_or(0);
    let steps = n_keys.saturating_mul(query.size + value_size + 8);
    let rows = nd::fill_blocks(n_rows, block, steps, |row, out| {
        let (y, scores) = out.split_at_mut(value_size);
        let place = [row / n_queries / heads, row / n_queries % heads, row % n_queries];
        attend(&inputs, op, place, y, scores);
    });

    let packed = query.packed;
    let mut y = vec![0.0; n_rows * value_size];
    let mut scores = Vec::new();
    for (row, out) in rows.chunks(block.max(1)).enumerate() {
        let (batch, head, step) = (row / n_queries / heads, row / n_queries % heads, row % n_queries);
        let place = if packed { (batch * n_queries + step) * heads + head } else { row };
        y[place * value_size..][..value_size].copy_from_slice(&out[..value_size]);
        scores.extend_from_slice(&out[value_size..]);
    }
    let y_shape = match packed {
        true => vec![batch, n_queries, packed_width(cx, heads, value_size)?],
        false => vec![batch, heads, n_queries, value_size],
    };
    let mut outputs = vec![Value::Tensor(Tensor::from_f64s(query.dtype, &y_shape, &y)?)];
    if cx.n_outputs() > 1 {
        for present in [key, value] {
            let tensor = Tensor::from_f64s(present.dtype, &present.shape(), &present.values)?;
            outputs.push(Value::Tensor(tensor));
        }
    }
    if wants_scores {
        outputs.push(Value::Tensor(Tensor::from_f64s(query.dtype, &scores_shape, &scores)?));
    }
    outputs.truncate(cx.n_outputs());
    Ok(outputs)
}

/// Computes the result of one query, and keeps the scores of the stage that `qk_matmul_output_mode` names if
/// there is room for them.
fn attend(inputs: &Inputs, op: &Attention, [batch, head, step]: [usize; 3], y: &mut [f64], kept: &mut [f64]) {
    let Inputs { query, key, value, past, mask, lengths, scale } = inputs;
    let kv_head = head / (query.heads / key.heads);
    let mut keep = |mode: i64, scores: &[f64]| {
        if mode == op.qk_matmul_output_mode && !kept.is_empty() {
            kept.copy_from_slice(scores);
        }
    };
    let q = query.at(batch, head, step);
    let mut scores: Vec<f64> =
        (0..key.seq).map(|place| scale * nd::dot(q, key.at(batch, kv_head, place))).collect();
    keep(0, &scores);

    // The cap comes before the mask, which must stay minus infinity.
    let cap = f64::from(op.softcap);
    if cap > 0.0 {
        scores.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
    }
    keep(1, &scores);

    if let Some(mask) = mask {
        let start = batch * mask.strides[0] + head * mask.strides[1] + step * mask.strides[2];
        let (masked, beyond) = scores.split_at_mut(mask.n_keys);
        for (place, score) in masked.iter_mut().enumerate() {
            *score += mask.values[start + place * mask.key_stride];
        }
        beyond.fill(f64::NEG_INFINITY);
    }
    if op.is_causal {
        // Query i stands at position past + i, whatever the number of keys.
        let first_hidden = (past + step + 1).min(scores.len());
        scores[first_hidden..].fill(f64::NEG_INFINITY);
    }
    if let Some(lengths) = lengths {
        let n_real = lengths[batch].min(scores.len());
        scores[n_real..].fill(f64::NEG_INFINITY);
    }
    keep(2, &scores);

    softmax_line(&mut scores);
    keep(3, &scores);
    y.fill(0.0);
    for (place, weight) in scores.iter().enumerate() {
        let value = value.at(batch, kv_head, place);
        y.iter_mut().zip(value).for_each(|(y, value)| *y += weight * value);
    }
}

impl Inputs {
    fn read(op: &Attention, cx: &Evaluation<'_>) -> Result<Inputs, EvalError> {
        if !(0..=3).contains(&op.qk_matmul_output_mode) {
            let mode = op.qk_matmul_output_mode;
            return Err(cx.bad_attribute(format!("qk_matmul_output_mode must be 0 to 3, it is {mode}")));
        }
        let query = Heads::read(cx, 0, op.q_num_heads)?;
        let new_key = Heads::read(cx, 1, op.kv_num_heads)?;
        let new_value = Heads::read(cx, 2, op.kv_num_heads)?;
        let fits = [query.packed, query.packed] == [new_key.packed, new_value.packed]
            && [query.batch, query.batch] == [new_key.batch, new_value.batch]
            && new_key.heads == new_value.heads
            && new_key.seq == new_value.seq
            && query.size == new_key.size;
        if !fits {
            return Err(cx.bad_shape(format!(
                "queries {:?}, keys {:?} and values {:?} do not fit together",
                query.shape(),
                new_key.shape(),
                new_value.shape()
            )));
        }
        if query.heads != 0 && (new_key.heads == 0 || !query.heads.is_multiple_of(new_key.heads)) {
            let (heads, shared) = (query.heads, new_key.heads);
            return Err(
                cx.bad_shape(format!("{heads} query heads cannot share {shared} key and value heads"))
            );
        }
        if cx.optional_value(4).is_some() != cx.optional_value(5).is_some() {
            return Err(cx.bad_shape("past_key and past_value come together or not at all"));
        }
        let (key, past) = with_past(cx, 4, new_key)?;
        let (value, value_past) = with_past(cx, 5, new_value)?;
        if past != value_past {
            return Err(cx.bad_shape(format!("{past} past keys but {value_past} past values")));
        }
        let mask = Mask::read(cx, [query.batch, query.heads, query.seq, key.seq])?;
        let lengths = lengths(cx, query.batch, key.seq)?;
        let scale = op.scale.map_or_else(|| 1.0 / (query.size as f64).sqrt(), f64::from);
        Ok(Inputs { query, key, value, past, mask, lengths, scale })
    }
}

/// The past at input `idx` followed by the new keys or values, as rank 4; and the length of the past.
fn with_past(cx: &Evaluation<'_>, idx: usize, new: Heads) -> Result<(Heads, usize), EvalError> {
    let (batch, heads, size) = (new.batch, new.heads, new.size);
    let (past, past_len) = match cx.optional_tensor(idx)? {
        Some(tensor) => match *tensor.shape() {
            [b, h, len, s] if [b, h, s] == [batch, heads, size] => (cx.floats(idx)?, len),
            ref found => {
                return Err(cx.bad_shape(format!(
                    "input {idx} must have shape [{batch}, {heads}, past, {size}], it has {found:?}"
                )));
            }
        },
        None => (Vec::new(), 0),
    };
    let seq = past_len.saturating_add(new.seq);
    let len = nd::result_len(cx, &[batch, heads, seq, size])?;
    let mut values = Vec::with_capacity(len);
    if len > 0 {
        for batch in 0..batch {
            for head in 0..heads {
                let past_row = past_len * size;
                values.extend_from_slice(&past[(batch * heads + head) * past_row..][..past_row]);
                for step in 0..new.seq {
                    values.extend_from_slice(new.at(batch, head, step));
                }
            }
        }
    }
    Ok((Heads { dtype: new.dtype, batch, heads, seq, size, values, packed: false }, past_len))
}

impl Mask {
    /// Reads the mask for scores of this shape. Its last axis may be shorter than the keys, but does not
    /// repeat: what it does not reach is masked out.
    fn read(cx: &Evaluation<'_>, scores: [usize; 4]) -> Result<Option<Mask>, EvalError> {
        let Some(tensor) = cx.optional_tensor(3)? else { return Ok(None) };
        let shape = tensor.shape();
        let values = match tensor.dtype() {
            DType::Bool => {
                let added = |allowed: f64| if allowed == 0.0 { f64::NEG_INFINITY } else { 0.0 };
                tensor.to_f64s().into_iter().map(added).collect()
            }
            dtype if dtype.is_small_float() || dtype.is_sub_byte() => return Err(cx.bad_type(dtype)),
            _ => tensor.to_f64s(),
        };
        let fits = shape.len() <= 4
            && shape.iter().rev().zip(scores.iter().rev()).enumerate().all(
                |(place, (dim, goal))| match place {
                    0 => dim <= goal,
                    _ => dim == goal || *dim == 1,
                },
            );
        if !fits {
            return Err(cx.bad_shape(format!("a mask of shape {shape:?} does not fit scores {scores:?}")));
        }
        // A scalar is one number for all keys.
        if shape.is_empty() {
            return Ok(Some(Mask { values, strides: [0; 3], key_stride: 0, n_keys: scores[3] }));
        }
        let n_keys = shape[shape.len() - 1];
        let mut strides = [0; 3];
        if !values.is_empty() {
            strides.copy_from_slice(&nd::broadcast_strides(&shape[..shape.len() - 1], &scores[..3]));
            strides.iter_mut().for_each(|stride| *stride *= n_keys);
        }
        Ok(Some(Mask { values, strides, key_stride: 1, n_keys }))
    }
}

fn lengths(cx: &Evaluation<'_>, batch: usize, n_keys: usize) -> Result<Option<Vec<usize>>, EvalError> {
    let Some(lengths) = cx.optional_tensor(6)? else { return Ok(None) };
    if !matches!(lengths.dtype(), DType::I64 | DType::I32) {
        return Err(cx.bad_type(lengths.dtype()));
    }
    if lengths.shape() != [batch] {
        let found = lengths.shape();
        return Err(cx.bad_shape(format!("nonpad_kv_seqlen must have shape [{batch}], it has {found:?}")));
    }
    let check = |length: i64| {
        usize::try_from(length).ok().filter(|length| *length <= n_keys).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("{length} keys of {n_keys} cannot be real"))
        })
    };
    lengths.to_i64s().into_iter().map(check).collect::<Result<_, _>>().map(Some)
}
