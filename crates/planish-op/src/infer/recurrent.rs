//! Inference: recurrent networks.

use crate::{GRU, LSTM, RNN};

use super::{InferResult, Inference};

pub(super) fn rnn(_op: &RNN, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn gru(_op: &GRU, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn lstm(_op: &LSTM, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
