//! Inference: convolutions.

use crate::{CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv};

use super::{InferResult, Inference};

pub(super) fn conv(_op: &Conv, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn conv_transpose(_op: &ConvTranspose, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn deform_conv(_op: &DeformConv, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn causal_conv_with_state(_op: &CausalConvWithState, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn col2im(_op: &Col2Im, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
