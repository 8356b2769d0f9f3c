//! Inference: resampling and detection.

use crate::{AffineGrid, CropAndResize, GridSample, NonMaxSuppression, Resize};

use super::{InferResult, Inference};

pub(super) fn resize(_op: &Resize, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn grid_sample(_op: &GridSample, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn affine_grid(_op: &AffineGrid, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn crop_and_resize(_op: &CropAndResize, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn non_max_suppression(_op: &NonMaxSuppression, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
