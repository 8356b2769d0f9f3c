//! Reference: convolutions.

use planish_op::{CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv};

use crate::{EvalResult, Evaluation};

pub(crate) fn conv(_op: &Conv, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn conv_transpose(_op: &ConvTranspose, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn deform_conv(_op: &DeformConv, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn causal_conv_with_state(_op: &CausalConvWithState, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn col2im(_op: &Col2Im, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
