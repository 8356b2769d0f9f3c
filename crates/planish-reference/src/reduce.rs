//! Reference: reductions and scans along axes.

use planish_op::{
    ArgMax, ArgMin, CumProd, CumSum, Hardmax, LogSoftmax, ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp,
    ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Softmax,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn reduce_l1(_op: &ReduceL1, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_l2(_op: &ReduceL2, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_log_sum(_op: &ReduceLogSum, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_log_sum_exp(_op: &ReduceLogSumExp, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_max(_op: &ReduceMax, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_mean(_op: &ReduceMean, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_min(_op: &ReduceMin, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_prod(_op: &ReduceProd, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_sum(_op: &ReduceSum, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reduce_sum_square(_op: &ReduceSumSquare, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn arg_max(_op: &ArgMax, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn arg_min(_op: &ArgMin, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn cum_sum(_op: &CumSum, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn cum_prod(_op: &CumProd, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn softmax(_op: &Softmax, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn log_softmax(_op: &LogSoftmax, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn hardmax(_op: &Hardmax, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
