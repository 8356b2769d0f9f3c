//! Reference: normalizations and losses.

use planish_op::{
    BatchNormalization, GroupNormalization, InstanceNormalization, LRN, LayerNormalization, LpNormalization,
    MeanVarianceNormalization, NegativeLogLikelihoodLoss, RMSNormalization, SoftmaxCrossEntropyLoss,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn batch_normalization(_op: &BatchNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn instance_normalization(_op: &InstanceNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn group_normalization(_op: &GroupNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn layer_normalization(_op: &LayerNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn rms_normalization(_op: &RMSNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn lp_normalization(_op: &LpNormalization, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn lrn(_op: &LRN, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mean_variance_normalization(
    _op: &MeanVarianceNormalization,
    cx: &Evaluation<'_>,
) -> EvalResult {
    cx.missing()
}

pub(crate) fn negative_log_likelihood_loss(
    _op: &NegativeLogLikelihoodLoss,
    cx: &Evaluation<'_>,
) -> EvalResult {
    cx.missing()
}

pub(crate) fn softmax_cross_entropy_loss(_op: &SoftmaxCrossEntropyLoss, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
