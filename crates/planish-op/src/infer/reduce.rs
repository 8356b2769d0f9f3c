//! Inference: reductions and scans along axes.

use crate::{
    ArgMax, ArgMin, CumProd, CumSum, Hardmax, LogSoftmax, ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp,
    ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Softmax,
};

use super::{InferResult, Inference};

pub(super) fn reduce_l1(_op: &ReduceL1, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_l2(_op: &ReduceL2, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_log_sum(_op: &ReduceLogSum, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_log_sum_exp(_op: &ReduceLogSumExp, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_max(_op: &ReduceMax, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_mean(_op: &ReduceMean, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_min(_op: &ReduceMin, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_prod(_op: &ReduceProd, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_sum(_op: &ReduceSum, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reduce_sum_square(_op: &ReduceSumSquare, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn arg_max(_op: &ArgMax, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn arg_min(_op: &ArgMin, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn cum_sum(_op: &CumSum, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn cum_prod(_op: &CumProd, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn softmax(_op: &Softmax, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn log_softmax(_op: &LogSoftmax, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn hardmax(_op: &Hardmax, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
