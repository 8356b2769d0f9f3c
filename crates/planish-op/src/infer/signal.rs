//! Inference: transforms and windows.

use crate::{BlackmanWindow, DFT, HammingWindow, HannWindow, MelWeightMatrix, STFT};

use super::{InferResult, Inference};

pub(super) fn dft(_op: &DFT, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn stft(_op: &STFT, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn blackman_window(_op: &BlackmanWindow, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn hamming_window(_op: &HammingWindow, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn hann_window(_op: &HannWindow, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mel_weight_matrix(_op: &MelWeightMatrix, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
