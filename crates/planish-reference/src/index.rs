//! Reference: gathering, scattering, searching.

use planish_op::{
    Compress, Gather, GatherElements, GatherND, NonZero, OneHot, ScatterElements, ScatterND, TensorScatter,
    TfIdfVectorizer, TopK, Unique,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn gather(_op: &Gather, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn gather_elements(_op: &GatherElements, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn gather_nd(_op: &GatherND, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn scatter_elements(_op: &ScatterElements, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn scatter_nd(_op: &ScatterND, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn tensor_scatter(_op: &TensorScatter, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn one_hot(_op: &OneHot, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn compress(_op: &Compress, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn non_zero(_op: &NonZero, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn unique(_op: &Unique, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn topk(_op: &TopK, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn tfidf_vectorizer(_op: &TfIdfVectorizer, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
