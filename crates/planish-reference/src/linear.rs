//! Reference: matrix products and small linear algebra.

use planish_op::{Det, Einsum, Gemm, Inverse, MatMul};

use crate::{EvalResult, Evaluation};

pub(crate) fn matmul(_op: &MatMul, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn gemm(_op: &Gemm, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn einsum(_op: &Einsum, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn det(_op: &Det, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn inverse(_op: &Inverse, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
