//! Inference: gathering, scattering, searching.

use crate::{
    Compress, Gather, GatherElements, GatherND, NonZero, OneHot, ScatterElements, ScatterND, TensorScatter,
    TfIdfVectorizer, TopK, Unique,
};

use super::{InferResult, Inference};

pub(super) fn gather(_op: &Gather, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn gather_elements(_op: &GatherElements, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn gather_nd(_op: &GatherND, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn scatter_elements(_op: &ScatterElements, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn scatter_nd(_op: &ScatterND, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn tensor_scatter(_op: &TensorScatter, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn one_hot(_op: &OneHot, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn compress(_op: &Compress, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn non_zero(_op: &NonZero, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn unique(_op: &Unique, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn topk(_op: &TopK, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn tfidf_vectorizer(_op: &TfIdfVectorizer, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
