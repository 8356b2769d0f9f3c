//! Reference: pooling and regions of interest.

use planish_op::{
    AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxRoiPool, MaxUnpool,
    RoiAlign,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn average_pool(_op: &AveragePool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn max_pool(_op: &MaxPool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn lp_pool(_op: &LpPool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn global_average_pool(_op: &GlobalAveragePool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn global_max_pool(_op: &GlobalMaxPool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn global_lp_pool(_op: &GlobalLpPool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn max_unpool(_op: &MaxUnpool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn max_roi_pool(_op: &MaxRoiPool, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn roi_align(_op: &RoiAlign, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
