//! Inference: conversions between element types and quantization.

use crate::{
    BitCast, Cast, ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearConv,
    QLinearMatMul, QuantizeLinear,
};

use super::{InferResult, Inference};

pub(super) fn cast(_op: &Cast, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bit_cast(_op: &BitCast, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn quantize_linear(_op: &QuantizeLinear, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn dequantize_linear(_op: &DequantizeLinear, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn dynamic_quantize_linear(_op: &DynamicQuantizeLinear, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn qlinear_matmul(_op: &QLinearMatMul, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn qlinear_conv(_op: &QLinearConv, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn matmul_integer(_op: &MatMulInteger, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn conv_integer(_op: &ConvInteger, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
