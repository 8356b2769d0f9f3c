//! Reference: conversions between element types and quantization.

use planish_op::{
    BitCast, Cast, ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearConv,
    QLinearMatMul, QuantizeLinear,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn cast(_op: &Cast, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bit_cast(_op: &BitCast, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn quantize_linear(_op: &QuantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn dequantize_linear(_op: &DequantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn dynamic_quantize_linear(_op: &DynamicQuantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn qlinear_matmul(_op: &QLinearMatMul, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn qlinear_conv(_op: &QLinearConv, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn matmul_integer(_op: &MatMulInteger, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn conv_integer(_op: &ConvInteger, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
