//! Inference: shape changes and data movement.

use crate::{
    CenterCropPad, Concat, ConstantOfShape, DepthToSpace, Expand, EyeLike, Flatten, Pad, Range, Reshape,
    ReverseSequence, Shape, Size, Slice, SpaceToDepth, Split, Squeeze, Tile, Transpose, Trilu, Unsqueeze,
};

use super::{InferResult, Inference};

pub(super) fn shape(_op: &Shape, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn size(_op: &Size, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reshape(_op: &Reshape, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn flatten(_op: &Flatten, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn squeeze(_op: &Squeeze, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn unsqueeze(_op: &Unsqueeze, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn transpose(_op: &Transpose, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn expand(_op: &Expand, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn tile(_op: &Tile, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn concat(_op: &Concat, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn split(_op: &Split, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn slice(_op: &Slice, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn pad(_op: &Pad, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn center_crop_pad(_op: &CenterCropPad, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn depth_to_space(_op: &DepthToSpace, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn space_to_depth(_op: &SpaceToDepth, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn trilu(_op: &Trilu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reverse_sequence(_op: &ReverseSequence, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn constant_of_shape(_op: &ConstantOfShape, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn range(_op: &Range, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn eye_like(_op: &EyeLike, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
