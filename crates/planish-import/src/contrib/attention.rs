//! Attention with packed projections, several forms of masks, and packed past and present.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::DType;

use super::quantized_matmul::IntegerProduct;
use crate::error::ImportError;
use crate::node::{NodeImport, Out};

/// Queries, keys and values of shape (batch, sequence, hidden), or keys and values already per head.
struct Heads {
    query: ValueId,
    key: ValueId,
    value: ValueId,
    past: Option<(ValueId, ValueId)>,
    /// Added to the scores.
    bias: Option<ValueId>,
    /// Which keys count.
    mask: Option<ValueId>,
}

fn n_heads(n: &NodeImport<'_, '_>) -> Result<i64, ImportError> {
    n.int("num_heads")?.ok_or_else(|| ImportError::invalid("the attribute `num_heads` is missing"))
}

/// `Attention`: one projection of the input gives queries, keys and values.
pub(super) fn attention(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (input, weights) = (n.required(0)?, n.required(1)?);
    let mut projected = n.temporary(op::MatMul {}, &[Some(input), Some(weights)])?;
    if let Some(bias) = n.input(2) {
        projected = n.add_values(projected, bias)?;
    }
    let (mask, past, bias) = (n.input(3), n.input(4), n.input(5));
    from_projection(n, projected, mask, past, bias)
}

/// `QAttention`: the projection is an integer product.
pub(super) fn quantized_attention(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let product = IntegerProduct {
        a: n.required(0)?,
        b: n.required(1)?,
        bias: n.input(2),
        a_scale: n.required(3)?,
        b_scale: n.required(4)?,
        a_zero_point: n.input(6),
        b_zero_point: n.input(7),
    };
    let projected = product.build(n)?;
    let (mask, past) = (n.input(5), n.input(8));
    from_projection(n, projected, mask, past, None)
}

fn from_projection(
    n: &mut NodeImport<'_, '_>,
    projected: ValueId,
    mask: Option<ValueId>,
    past: Option<ValueId>,
    bias: Option<ValueId>,
) -> Result<(), ImportError> {
    if n.int_or("do_rotary", 0)? != 0 || n.int_or("past_present_share_buffer", 0)? != 0 {
        return Err(n.unsupported(Some("rotary embedding or a shared past buffer inside Attention")));
    }
    let (split, sizes) = match n.ints("qkv_hidden_sizes")? {
        Some(sizes) => (op::Split { num_outputs: None, axis: 2 }, Some(n.int_vector("sizes", sizes)?)),
        None => (op::Split { num_outputs: Some(3), axis: 2 }, None),
    };
    let inputs = [Some(projected), sizes];
    let n_inputs = if sizes.is_some() { 2 } else { 1 };
    let parts = n.add(split, &inputs[..n_inputs], &[Out::Temporary; 3])?;
    let [Some(query), Some(key), Some(value)] = parts[..] else {
        return Err(ImportError::invalid("Split has three outputs"));
    };
    // Past is (2, batch, heads, length, size): keys, then values.
    let past = match past {
        Some(past) => {
            let mut halves = Vec::new();
            for half in 0..2 {
                let index = n.number("half", DType::I64, f64::from(half))?;
                halves.push(n.temporary(op::Gather { axis: 0 }, &[Some(past), Some(index)])?);
            }
            Some((halves[0], halves[1]))
        }
        None => None,
    };
    let wants_present = n.wants(1);
    let present = finish(n, Heads { query, key, value, past, bias, mask }, wants_present, None)?;
    if let Some((key, value)) = present {
        let (key, value) = (n.unsqueeze(key, vec![0])?, n.unsqueeze(value, vec![0])?);
        n.make_output(1, op::Concat { axis: 0 }, &[Some(key), Some(value)])?;
    }
    Ok(())
}

/// `MultiHeadAttention`: queries, keys and values given, in several packings.
pub(super) fn multi_head_attention(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut query = n.required(0)?;
    if n.input(8).is_some() || n.input(9).is_some() {
        return Err(n.unsupported(Some("a shared past buffer or beam indirection")));
    }
    let rank = n.rank_of(query)?;
    let (mut key, mut value);
    if rank == 5 {
        // (batch, sequence, heads, 3, size): all three packed.
        let parts = unpack(n, query, 3)?;
        (query, key, value) = (parts[0], parts[1], parts[2]);
    } else {
        key = n.required(1)?;
        value = match n.input(2) {
            Some(value) => value,
            // (batch, sequence, heads, 2, size): keys and values packed.
            None => {
                let parts = unpack(n, key, 2)?;
                key = parts[0];
                parts[1]
            }
        };
    }
    if let Some(bias) = n.input(3) {
        // The parts are as long as the hidden sizes, which only the run may know.
        let (of_query, of_value) = (n.dim_vector(query, -1)?, n.dim_vector(value, -1)?);
        let sizes = n.temporary(op::Concat { axis: 0 }, &[Some(of_query), Some(of_query), Some(of_value)])?;
        let split = op::Split { num_outputs: None, axis: 0 };
        let parts = n.add(split, &[Some(bias), Some(sizes)], &[Out::Temporary; 3])?;
        let [Some(query_bias), Some(key_bias), Some(value_bias)] = parts[..] else {
            return Err(ImportError::invalid("Split has three outputs"));
        };
        query = n.add_values(query, query_bias)?;
        key = n.add_values(key, key_bias)?;
        value = n.add_values(value, value_bias)?;
    }
    let past = match (n.input(6), n.input(7)) {
        (Some(key), Some(value)) => Some((key, value)),
        _ => None,
    };
    let (mask, bias) = (n.input(4), n.input(5));
    let wants_present = n.wants(1) || n.wants(2);
    let present_outputs = Some([Out::Node(1), Out::Node(2)]);
    finish(n, Heads { query, key, value, past, bias, mask }, wants_present, present_outputs).map(|_| ())
}

/// The parts of (batch, sequence, heads, parts, size), each as (batch, sequence, heads * size).
fn unpack(n: &mut NodeImport<'_, '_>, packed: ValueId, n_parts: usize) -> Result<Vec<ValueId>, ImportError> {
    let mut parts = Vec::new();
    for part in 0..n_parts {
        let index = n.number("part", DType::I64, part as f64)?;
        let one = n.temporary(op::Gather { axis: 3 }, &[Some(packed), Some(index)])?;
        parts.push(n.reshape_to(one, vec![0, 0, -1])?);
    }
    Ok(parts)
}

/// The attention itself as output 0; gives present keys and values if they are wanted as new values.
fn finish(
    n: &mut NodeImport<'_, '_>,
    heads: Heads,
    wants_present: bool,
    present_outputs: Option<[Out; 2]>,
) -> Result<Option<(ValueId, ValueId)>, ImportError> {
    let n_heads = n_heads(n)?;
    let Heads { query, mut key, mut value, past, bias, mask } = heads;
    let rank = n.rank_of(key)?;
    if rank == 4 {
        // Keys and values per head, (batch, heads, length, size): brought to the form of the queries.
        for id in [&mut key, &mut value] {
            let moved = n.transpose(*id, vec![0, 2, 1, 3])?;
            *id = n.reshape_to(moved, vec![0, 0, -1])?;
        }
    }
    let mut added = match mask {
        Some(mask) => Some(mask_bias(n, mask, key, past.map(|(key, _)| key), query)?),
        None => None,
    };
    if let Some(bias) = bias {
        added = Some(match added {
            Some(mask) => n.add_values(mask, bias)?,
            None => bias,
        });
    }
    let scale = n.float("scale")?.filter(|&scale| scale != 0.0);
    let attention = op::Attention {
        qk_matmul_output_mode: 0,
        softcap: 0.0,
        softmax_precision: None,
        kv_num_heads: Some(n_heads),
        q_num_heads: Some(n_heads),
        scale,
        is_causal: n.int_or("unidirectional", 0)? != 0,
    };
    let (past_key, past_value) = past.unzip();
    let inputs = [Some(query), Some(key), Some(value), added, past_key, past_value];
    let n_inputs = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut outputs = vec![Out::Node(0)];
    if wants_present {
        outputs.extend(present_outputs.unwrap_or([Out::Temporary, Out::Temporary]));
    }
    let made = n.add(attention, &inputs[..n_inputs], &outputs)?;
    match made[..] {
        [_, Some(key), Some(value)] => Ok(Some((key, value))),
        _ => Ok(None),
    }
}

/// A mask as a number to add to the scores: 0 where a key counts, the filter value where it does not.
fn mask_bias(
    n: &mut NodeImport<'_, '_>,
    mask: ValueId,
    key: ValueId,
    past_key: Option<ValueId>,
    query: ValueId,
) -> Result<ValueId, ImportError> {
    let dtype = n.type_of(query)?.dtype;
    let shape = n.shape_of(mask)?;
    let counts = match shape.rank() {
        // (batch): the number of keys that count, from the left; (2 * batch): ends, then starts.
        1 => {
            let mut length = n.dim_vector(key, 1)?;
            if let Some(past) = past_key {
                let of_past = n.dim_vector(past, 2)?;
                length = n.add_values(length, of_past)?;
            }
            let length = n.reshape_to(length, vec![])?;
            let (zero, one) = (n.number("zero", DType::I64, 0.0)?, n.number("one", DType::I64, 1.0)?);
            let places = n.temporary(op::Range { stash_type: 1 }, &[Some(zero), Some(length), Some(one)])?;
            let batch = n.shape_of(query)?.get(0).cloned();
            let (batch, given) = (batch.and_then(|dim| dim.as_const()), shape[0].as_const());
            if batch.is_some() && given.is_some() && batch != given {
                return Err(n.unsupported(Some("a mask that gives starts and ends of keys")));
            }
            let ends = n.cast(mask, DType::I64)?;
            let ends = n.unsqueeze(ends, vec![1])?;
            let counts = n.temporary(op::Less {}, &[Some(places), Some(ends)])?;
            n.unsqueeze(counts, vec![1, 2])?
        }
        // (batch, keys) and (batch, queries, keys): ones where a key counts.
        2 => n.unsqueeze(mask, vec![1, 2])?,
        3 => n.unsqueeze(mask, vec![1])?,
        _ => return Err(n.unsupported(Some("a mask of rank 4"))),
    };
    let counts = n.cast(counts, DType::Bool)?;
    let filter = n.float_or("mask_filter_value", -10000.0)?;
    let (zero, filter) = (n.number("keep", dtype, 0.0)?, n.number("filter", dtype, f64::from(filter))?);
    n.temporary(op::Where {}, &[Some(counts), Some(zero), Some(filter)])
}
