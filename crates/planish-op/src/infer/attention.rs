//! Inference: attention and position embedding.

#[cfg(test)]
mod tests;

use planish_tensor::{DType, Dim, Shape};

use crate::{Attention, LinearAttention, RotaryEmbedding};

use super::checks;
use super::{InferError, InferResult, Inference, Inferred};

/// The dimensions of queries, keys or values seen as `[batch, heads, sequence, head size]`.
struct Heads {
    batch: Dim,
    heads: Dim,
    seq: Dim,
    size: Dim,
}

/// Reads input `idx`, of rank 4 as it is and of rank 3 (`[batch, sequence, heads*size]`) through the number of
/// heads; `None` if the rank is unknown.
fn heads(cx: &Inference<'_>, idx: usize, attribute: Option<i64>) -> Result<Option<Heads>, InferError> {
    let Some(shape) = cx.shape(idx)? else { return Ok(None) };
    match shape.dims() {
        [batch, heads, seq, size] => {
            // 0 is how some exporters write "not given".
            let heads = match attribute {
                Some(0) | None => heads.clone(),
                Some(given) => checks::same_dim(cx, "the number of heads", heads, &Dim::from(given))?,
            };
            Ok(Some(Heads { batch: batch.clone(), heads, seq: seq.clone(), size: size.clone() }))
        }
        [batch, seq, hidden] => {
            let heads = match attribute {
                Some(heads) if heads >= 1 => heads,
                Some(heads) => {
                    return Err(
                        cx.bad_attribute(format!("the number of heads must be positive, it is {heads}"))
                    );
                }
                None => {
                    return Err(cx.bad_attribute(format!(
                        "input {idx} of shape {shape} has rank 3, which needs the number of heads as attribute"
                    )));
                }
            };
            let size = split_heads(cx, idx, hidden, heads)?;
            Ok(Some(Heads { batch: batch.clone(), heads: Dim::from(heads), seq: seq.clone(), size }))
        }
        _ => Err(cx.bad_shape(format!("input {idx} must have rank 3 or 4, its shape is {shape}"))),
    }
}

/// The size of each of `heads` (positive) heads that share `hidden` elements.
fn split_heads(cx: &Inference<'_>, idx: usize, hidden: &Dim, heads: i64) -> Result<Dim, InferError> {
    match hidden.as_const() {
        Some(hidden) if hidden % heads != 0 => {
            Err(cx.bad_shape(format!("{hidden} elements of input {idx} do not divide into {heads} heads")))
        }
        _ => Ok(hidden.floor_div(&Dim::from(heads))),
    }
}

pub(super) fn attention(op: &Attention, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    let key_dtype = checks::float(cx, 1)?;
    let value_dtype = checks::float(cx, 2)?;
    check_attention(op, cx)?;
    let q = heads(cx, 0, op.q_num_heads)?;
    let k = heads(cx, 1, op.kv_num_heads)?;
    let v = heads(cx, 2, op.kv_num_heads)?;
    let (Some(q), Some(k), Some(v)) = (q, k, v) else {
        let dtypes = [dtype, key_dtype, value_dtype, dtype];
        return checks::outputs(cx, dtypes.map(|dtype| Inferred::maybe_ranked(dtype, None)).into());
    };
    let rank = cx.shape(0)?.map(Shape::rank);
    if rank != cx.shape(1)?.map(Shape::rank) || rank != cx.shape(2)?.map(Shape::rank) {
        return Err(cx.bad_shape("queries, keys and values must have the same rank"));
    }

    let batch = checks::same_dim(cx, "the batch size", &q.batch, &k.batch)?;
    let batch = checks::same_dim(cx, "the batch size", &batch, &v.batch)?;
    let kv_heads = checks::same_dim(cx, "the number of key and value heads", &k.heads, &v.heads)?;
    let kv_seq = checks::same_dim(cx, "the length of keys and values", &k.seq, &v.seq)?;
    let size = checks::same_dim(cx, "the head size of queries and keys", &q.size, &k.size)?;
    if let (Some(heads), Some(shared)) = (q.heads.as_const(), kv_heads.as_const())
        && (shared < 1 || heads % shared != 0)
        && heads != 0
    {
        return Err(cx.bad_shape(format!("{heads} query heads cannot share {shared} key and value heads")));
    }

    let past = past_length(cx, &batch, &kv_heads, &size, &v.size)?;
    let total = &past + &kv_seq;
    let scores: Shape = [&batch, &q.heads, &q.seq, &total].into_iter().collect();
    check_mask(cx, &scores)?;
    checks::expect_dims(cx, 6, &[("the batch size", &batch)])?;

    let y: Shape = match rank {
        Some(3) => [batch.clone(), q.seq.clone(), &q.heads * &v.size].into_iter().collect(),
        _ => [&batch, &q.heads, &q.seq, &v.size].into_iter().collect(),
    };
    let all = vec![
        Inferred::tensor(dtype, y),
        Inferred::tensor(key_dtype, [&batch, &kv_heads, &total, &size].into_iter().collect()),
        Inferred::tensor(value_dtype, [&batch, &kv_heads, &total, &v.size].into_iter().collect()),
        Inferred::tensor(dtype, scores),
    ];
    checks::outputs(cx, all)
}

/// Attributes and the types and pairing of the optional inputs.
fn check_attention(op: &Attention, cx: &Inference<'_>) -> Result<(), InferError> {
    if !(0..=3).contains(&op.qk_matmul_output_mode) {
        let detail = format!("qk_matmul_output_mode must be 0 to 3, it is {}", op.qk_matmul_output_mode);
        return Err(cx.bad_attribute(detail));
    }
    if let Some(dtype) = op.softmax_precision
        && !dtype.is_wide_float()
    {
        return Err(cx.bad_attribute(format!("softmax_precision must be a float type, it is {dtype}")));
    }
    if cx.has_input(4) != cx.has_input(5) {
        return Err(cx.bad_shape("past_key and past_value come together or not at all"));
    }
    if cx.has_input(4) && cx.has_input(6) {
        return Err(cx.bad_shape("nonpad_kv_seqlen and past_key exclude each other"));
    }
    checks::optional_float(cx, 4)?;
    checks::optional_float(cx, 5)?;
    if cx.has_input(6) { checks::index(cx, 6) } else { Ok(()) }
}

/// The length of the past keys, 0 where there are none.
fn past_length(
    cx: &mut Inference<'_>,
    batch: &Dim,
    heads: &Dim,
    size: &Dim,
    value_size: &Dim,
) -> Result<Dim, InferError> {
    if !cx.has_input(4) {
        return Ok(Dim::ZERO);
    }
    let keys = cx.shape_of_rank(4, 4)?.map(|shape| shape[2].clone());
    let values = cx.shape_of_rank(5, 4)?.map(|shape| shape[2].clone());
    let past = match (keys, values) {
        (Some(keys), Some(values)) => checks::same_dim(cx, "the length of the past", &keys, &values)?,
        (Some(past), None) | (None, Some(past)) => past,
        (None, None) => cx.fresh_dim("past"),
    };
    for (idx, size) in [(4, size), (5, value_size)] {
        let dims = [
            ("the batch size", batch),
            ("the number of heads", heads),
            ("the length of the past", &past),
            ("the head size", size),
        ];
        checks::expect_dims(cx, idx, &dims)?;
    }
    Ok(past)
}

/// The mask broadcasts to the scores, but its last axis may be shorter (the rest is masked out).
fn check_mask(cx: &Inference<'_>, scores: &Shape) -> Result<(), InferError> {
    let Some(mask) = cx.optional_tensor(3)? else { return Ok(()) };
    if mask.dtype.is_small_float() || mask.dtype.is_sub_byte() {
        return Err(cx.bad_type(format!("a mask cannot have elements of type {}", mask.dtype)));
    }
    let Some(shape) = &mask.shape else { return Ok(()) };
    let refuse = || cx.bad_shape(format!("a mask of shape {shape} does not fit scores of shape {scores}"));
    let missing = scores.rank().checked_sub(shape.rank()).ok_or_else(refuse)?;
    for (axis, dim) in shape.iter().enumerate() {
        let goal = &scores[axis + missing];
        let is_last = axis + 1 == shape.rank();
        match (dim.as_const(), goal.as_const()) {
            (Some(size), Some(goal)) if is_last && size > goal => return Err(refuse()),
            (Some(size), Some(goal)) if !is_last && size != goal && size != 1 => return Err(refuse()),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn linear_attention(op: &LinearAttention, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    checks::float(cx, 1)?;
    checks::float(cx, 2)?;
    for idx in 3..6 {
        checks::optional_float(cx, idx)?;
    }
    check_linear_rule(op, cx)?;
    let (q_heads, kv_heads) = (op.q_num_heads, op.kv_num_heads);
    let state_dtype = if cx.has_input(3) { cx.dtype(3)? } else { dtype };

    let mut batch = cx.fresh_dim("batch");
    let mut seq = cx.fresh_dim("sequence");
    let mut sizes = [None, None, None];
    for (idx, heads) in [(0, q_heads), (1, kv_heads), (2, kv_heads)] {
        if let Some(shape) = cx.shape_of_rank(idx, 3)? {
            // The first known shape replaces the fresh symbols, later ones must agree.
            let is_first = sizes.iter().all(Option::is_none);
            batch = if is_first {
                shape[0].clone()
            } else {
                checks::same_dim(cx, "the batch size", &batch, &shape[0])?
            };
            seq = if is_first {
                shape[1].clone()
            } else {
                checks::same_dim(cx, "the sequence length", &seq, &shape[1])?
            };
            sizes[idx] = Some(split_heads(cx, idx, &shape[2], heads)?);
        }
    }
    let [q_size, k_size, v_size] = sizes;
    let key_size = match (q_size, k_size) {
        (Some(q), Some(k)) => checks::same_dim(cx, "the head size of queries and keys", &q, &k)?,
        (Some(size), None) | (None, Some(size)) => size,
        (None, None) => cx.fresh_dim("key_size"),
    };
    let value_size = v_size.unwrap_or_else(|| cx.fresh_dim("value_size"));
    let kv_heads = Dim::from(kv_heads);
    let state = [
        ("the batch size", &batch),
        ("the number of heads", &kv_heads),
        ("the key size", &key_size),
        ("the value size", &value_size),
    ];
    checks::expect_dims(cx, 3, &state)?;
    for (idx, per_key) in [(4, true), (5, false)] {
        check_gate(cx, idx, [&batch, &seq], &kv_heads, per_key.then_some(&key_size))?;
    }

    let output: Shape = [batch.clone(), seq, &value_size * q_heads].into_iter().collect();
    let state: Shape = state.into_iter().map(|(_, dim)| dim).collect();
    checks::outputs(cx, vec![Inferred::tensor(dtype, output), Inferred::tensor(state_dtype, state)])
}

/// Heads that divide, and exactly the gates that the update rule uses.
fn check_linear_rule(op: &LinearAttention, cx: &Inference<'_>) -> Result<(), InferError> {
    let (q_heads, kv_heads) = (op.q_num_heads, op.kv_num_heads);
    if q_heads < 1 || kv_heads < 1 || q_heads % kv_heads != 0 {
        return Err(cx.bad_attribute(format!(
            "q_num_heads ({q_heads}) must be a positive multiple of kv_num_heads ({kv_heads})"
        )));
    }
    let (decays, corrects) = (op.update_rule.decays(), op.update_rule.corrects());
    for (idx, name, needed) in [(4, "decay", decays), (5, "beta", corrects)] {
        if cx.has_input(idx) != needed {
            let verb = if needed { "needs" } else { "takes no" };
            return Err(
                cx.bad_attribute(format!("the rule {} {verb} {name} (input {idx})", op.update_rule.word()))
            );
        }
    }
    Ok(())
}

/// A gate is `[batch, sequence, heads]`, for decay also with one element per key element, for beta also 1.
fn check_gate(
    cx: &Inference<'_>,
    idx: usize,
    [batch, seq]: [&Dim; 2],
    heads: &Dim,
    key_size: Option<&Dim>,
) -> Result<(), InferError> {
    if !cx.has_input(idx) {
        return Ok(());
    }
    let Some(shape) = cx.shape_of_rank(idx, 3)? else { return Ok(()) };
    checks::same_dim(cx, "the batch size", batch, &shape[0])?;
    checks::same_dim(cx, "the sequence length", seq, &shape[1])?;
    let wide = key_size.map_or(Dim::ONE, |size| heads * size);
    match (shape[2].as_const(), wide.as_const()) {
        (Some(last), Some(wide)) if *heads != last && wide != last => {
            Err(cx.bad_shape(format!("input {idx} of shape {shape} must end in {heads} or {wide} elements")))
        }
        _ => Ok(()),
    }
}

pub(super) fn rotary_embedding(op: &RotaryEmbedding, cx: &mut Inference<'_>) -> InferResult {
    for idx in 0..3 {
        checks::float(cx, idx)?;
    }
    let Some(x) = heads(cx, 0, op.num_heads)? else { return checks::like_input(cx, 0) };
    let rotated = match op.rotary_embedding_dim {
        0 => x.size.clone(),
        dim => Dim::from(dim),
    };
    if let Some(rotated) = rotated.as_const() {
        let limit = x.size.as_const().unwrap_or(i64::MAX);
        if rotated < 0 || rotated % 2 != 0 || rotated > limit {
            return Err(cx.bad_attribute(format!(
                "{rotated} elements of a head of size {} cannot be rotated: the number must be even and fit",
                x.size
            )));
        }
    }
    let half = ("half the rotated size", &rotated.floor_div(&Dim::from(2)));
    let (batch, seq) = (("the batch size", &x.batch), ("the sequence length", &x.seq));
    for idx in 1..3 {
        if !cx.has_input(3) {
            checks::expect_dims(cx, idx, &[batch, seq, half])?;
        } else if let Some(cache) = cx.shape_of_rank(idx, 2)? {
            let positions = ("the number of positions", &cache[0]);
            checks::expect_dims(cx, idx, &[positions, half])?;
        }
    }
    if cx.has_input(3) {
        match cx.dtype(3)? {
            DType::I64 | DType::I32 => checks::expect_dims(cx, 3, &[batch, seq])?,
            dtype => return Err(cx.bad_type(format!("position_ids must be i64, they are {dtype}"))),
        }
    }
    checks::like_input(cx, 0)
}
