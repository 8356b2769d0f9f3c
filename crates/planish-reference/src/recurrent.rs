//! Reference: recurrent networks.

use planish_op::{GRU, LSTM, RNN};

use crate::{EvalResult, Evaluation};

pub(crate) fn rnn(_op: &RNN, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn gru(_op: &GRU, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn lstm(_op: &LSTM, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
