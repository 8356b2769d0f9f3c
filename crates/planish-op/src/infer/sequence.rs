//! Inference: sequences and optionals.

use crate::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt, SequenceConstruct,
    SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength, SplitToSequence,
};

use super::{InferResult, Inference};

pub(super) fn sequence_at(_op: &SequenceAt, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sequence_construct(_op: &SequenceConstruct, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sequence_empty(_op: &SequenceEmpty, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sequence_erase(_op: &SequenceErase, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sequence_insert(_op: &SequenceInsert, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sequence_length(_op: &SequenceLength, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn concat_from_sequence(_op: &ConcatFromSequence, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn split_to_sequence(_op: &SplitToSequence, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn optional(_op: &Optional, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn optional_get_element(_op: &OptionalGetElement, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn optional_has_element(_op: &OptionalHasElement, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
