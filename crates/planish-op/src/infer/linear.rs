//! Inference: matrix products and small linear algebra.

use crate::{Det, Einsum, Gemm, Inverse, MatMul};

use super::{InferResult, Inference};

pub(super) fn matmul(_op: &MatMul, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn gemm(_op: &Gemm, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn einsum(_op: &Einsum, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn det(_op: &Det, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn inverse(_op: &Inverse, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
