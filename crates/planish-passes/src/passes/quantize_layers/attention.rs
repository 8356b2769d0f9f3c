//! Which attentions read queries, keys and values by floats of 8 bits: those of what layers in 8 bits make.
//!
//! Rounding to E4M3 keeps three bits of mantissa whatever the magnitude, so one scale does for queries, keys and values that
//! come out of one product, and the product can write them. Sums, softmax and weights stay as they are.

use planish_ir::{Node, ValueId};
use planish_op::{Attention, Op};
use planish_tensor::DType;

use super::Quantize;
use super::choice::{IMPRECISE, NOT_FASTER, is_imprecise, quantization};
use crate::names::matches;
use crate::quantization::{Quantization, moved_inputs_of};
use crate::view::View;

/// Features of a head come in multiples of this, and no more than so many: kernels read rows in chunks of 16 bytes and hold
/// their sums in registers.
const CHUNK: i64 = 16;
const MAX_FEATURES: i64 = 128;
/// Moves from a layer to an attention that are looked through.
const MAX_MOVES: usize = 8;

/// The operands that an attention reads by floats of 8 bits, and how they are rounded; an error says why it reads others.
pub(super) fn operands(
    cx: &View<'_>,
    options: &Quantize,
    node: &Node,
    op: &Attention,
    is_made_low: impl Fn(ValueId) -> bool,
) -> Result<Vec<(ValueId, Quantization)>, String> {
    if options.fp32_layers.iter().any(|pattern| matches(pattern, cx.label(node))) {
        return Err("--layer-precision keeps it in fp32".to_string());
    }
    if options.wide_layers.iter().any(|name| name == cx.label(node)) {
        return Err(NOT_FASTER.to_string());
    }
    if is_imprecise(options, cx.label(node)) {
        return Err(IMPRECISE.to_string());
    }
    let others = node.inputs.iter().skip(4).chain(node.outputs.iter().skip(1)).flatten().count();
    if others > 0 {
        return Err("it has a past, lengths or scores as a result".to_string());
    }
    let mut all = Vec::with_capacity(3);
    for (place, n_heads) in [(0, op.q_num_heads), (1, op.kv_num_heads), (2, op.kv_num_heads)] {
        let Some(value) = cx.input(node, place).filter(|value| cx.dtype(*value) == Some(DType::F32)) else {
            return Err("its operands are not in f32".to_string());
        };
        match features(cx, value, n_heads) {
            Some(size) if size % CHUNK == 0 && (CHUNK..=MAX_FEATURES).contains(&size) => {}
            _ => return Err(format!("its heads have no multiple of {CHUNK} up to {MAX_FEATURES} features")),
        }
        let source = source(cx, value);
        if !is_made_low(source) {
            return Err(format!("`{}` is not made by a layer of 8 bits", cx.name(value)));
        }
        let range = options.ranges.get(cx.name(source)).or_else(|| options.ranges.get(cx.name(value)));
        let Some(by) = range.and_then(|range| quantization(range, options.activations)) else {
            return Err(format!("the calibration has no range of its operand `{}`", cx.name(source)));
        };
        all.push((value, by));
    }
    Ok(all)
}

/// How many features a head has, if that is known.
fn features(cx: &View<'_>, value: ValueId, n_heads: Option<i64>) -> Option<i64> {
    let shape = cx.shape(value)?;
    let last = shape.dims().last()?.as_const()?;
    match (shape.dims().len(), n_heads) {
        (4, _) => Some(last),
        (3, Some(n)) if n > 0 && last % n == 0 => Some(last / n),
        _ => None,
    }
}

/// What a value is a part of, or moved from.
fn source(cx: &View<'_>, value: ValueId) -> ValueId {
    let mut at = value;
    for _ in 0..MAX_MOVES {
        let Some((_, node)) = cx.producer(at) else { break };
        let moves = matches!(node.op, Op::Split(_))
            || (!matches!(node.op, Op::Concat(_)) && moved_inputs_of(node, DType::F8E4M3FN).is_some());
        let Some(before) = cx.input(node, 0).filter(|_| moves) else { break };
        at = before;
    }
    at
}
