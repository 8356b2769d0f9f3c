//! Reference: transforms and windows.

use planish_op::{BlackmanWindow, DFT, HammingWindow, HannWindow, MelWeightMatrix, STFT};

use crate::{EvalResult, Evaluation};

pub(crate) fn dft(_op: &DFT, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn stft(_op: &STFT, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn blackman_window(_op: &BlackmanWindow, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn hamming_window(_op: &HammingWindow, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn hann_window(_op: &HannWindow, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mel_weight_matrix(_op: &MelWeightMatrix, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
