//! Reference: random numbers.

use planish_op::{
    Bernoulli, Dropout, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn random_normal(_op: &RandomNormal, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn random_normal_like(_op: &RandomNormalLike, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn random_uniform(_op: &RandomUniform, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn random_uniform_like(_op: &RandomUniformLike, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bernoulli(_op: &Bernoulli, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn multinomial(_op: &Multinomial, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn dropout(_op: &Dropout, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
