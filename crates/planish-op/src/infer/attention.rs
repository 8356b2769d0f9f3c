//! Inference: attention and position embedding.

use crate::{Attention, LinearAttention, RotaryEmbedding};

use super::{InferResult, Inference};

pub(super) fn attention(_op: &Attention, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn linear_attention(_op: &LinearAttention, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn rotary_embedding(_op: &RotaryEmbedding, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
