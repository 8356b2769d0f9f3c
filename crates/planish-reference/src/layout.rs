//! Reference: shape changes and data movement.

use planish_op::{
    CenterCropPad, Concat, ConstantOfShape, DepthToSpace, Expand, EyeLike, Flatten, Pad, Range, Reshape,
    ReverseSequence, Shape, Size, Slice, SpaceToDepth, Split, Squeeze, Tile, Transpose, Trilu, Unsqueeze,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn shape(_op: &Shape, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn size(_op: &Size, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reshape(_op: &Reshape, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn flatten(_op: &Flatten, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn squeeze(_op: &Squeeze, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn unsqueeze(_op: &Unsqueeze, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn transpose(_op: &Transpose, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn expand(_op: &Expand, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn tile(_op: &Tile, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn concat(_op: &Concat, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn split(_op: &Split, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn slice(_op: &Slice, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn pad(_op: &Pad, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn center_crop_pad(_op: &CenterCropPad, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn depth_to_space(_op: &DepthToSpace, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn space_to_depth(_op: &SpaceToDepth, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn trilu(_op: &Trilu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reverse_sequence(_op: &ReverseSequence, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn constant_of_shape(_op: &ConstantOfShape, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn range(_op: &Range, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn eye_like(_op: &EyeLike, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
