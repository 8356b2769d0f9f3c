//! Inference: normalizations and losses.

use crate::{
    BatchNormalization, GroupNormalization, InstanceNormalization, LRN, LayerNormalization, LpNormalization,
    MeanVarianceNormalization, NegativeLogLikelihoodLoss, RMSNormalization, SoftmaxCrossEntropyLoss,
};

use super::{InferResult, Inference};

pub(super) fn batch_normalization(_op: &BatchNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn instance_normalization(_op: &InstanceNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn group_normalization(_op: &GroupNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn layer_normalization(_op: &LayerNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn rms_normalization(_op: &RMSNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn lp_normalization(_op: &LpNormalization, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn lrn(_op: &LRN, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mean_variance_normalization(
    _op: &MeanVarianceNormalization,
    cx: &mut Inference<'_>,
) -> InferResult {
    cx.missing()
}

pub(super) fn negative_log_likelihood_loss(
    _op: &NegativeLogLikelihoodLoss,
    cx: &mut Inference<'_>,
) -> InferResult {
    cx.missing()
}

pub(super) fn softmax_cross_entropy_loss(
    _op: &SoftmaxCrossEntropyLoss,
    cx: &mut Inference<'_>,
) -> InferResult {
    cx.missing()
}
