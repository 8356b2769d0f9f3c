//! Inference: pooling and regions of interest.

use crate::{
    AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxRoiPool, MaxUnpool,
    RoiAlign,
};

use super::{InferResult, Inference};

pub(super) fn average_pool(_op: &AveragePool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn max_pool(_op: &MaxPool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn lp_pool(_op: &LpPool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn global_average_pool(_op: &GlobalAveragePool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn global_max_pool(_op: &GlobalMaxPool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn global_lp_pool(_op: &GlobalLpPool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn max_unpool(_op: &MaxUnpool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn max_roi_pool(_op: &MaxRoiPool, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn roi_align(_op: &RoiAlign, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
