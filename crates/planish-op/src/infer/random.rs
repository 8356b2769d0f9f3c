//! Inference: random numbers.

use crate::{
    Bernoulli, Dropout, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike,
};

use super::{InferResult, Inference};

pub(super) fn random_normal(_op: &RandomNormal, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn random_normal_like(_op: &RandomNormalLike, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn random_uniform(_op: &RandomUniform, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn random_uniform_like(_op: &RandomUniformLike, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bernoulli(_op: &Bernoulli, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn multinomial(_op: &Multinomial, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn dropout(_op: &Dropout, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
