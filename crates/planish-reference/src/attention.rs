//! Reference: attention and position embedding.

use planish_op::{Attention, LinearAttention, RotaryEmbedding};

use crate::{EvalResult, Evaluation};

pub(crate) fn attention(_op: &Attention, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn linear_attention(_op: &LinearAttention, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn rotary_embedding(_op: &RotaryEmbedding, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
