//! Reference: resampling and detection.

use planish_op::{AffineGrid, CropAndResize, GridSample, NonMaxSuppression, Resize};

use crate::{EvalResult, Evaluation};

pub(crate) fn resize(_op: &Resize, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn grid_sample(_op: &GridSample, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn affine_grid(_op: &AffineGrid, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn crop_and_resize(_op: &CropAndResize, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn non_max_suppression(_op: &NonMaxSuppression, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
