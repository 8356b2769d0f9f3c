//! Reference: sequences and optionals.

use planish_op::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt, SequenceConstruct,
    SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength, SplitToSequence,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn sequence_at(_op: &SequenceAt, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sequence_construct(_op: &SequenceConstruct, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sequence_empty(_op: &SequenceEmpty, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sequence_erase(_op: &SequenceErase, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sequence_insert(_op: &SequenceInsert, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sequence_length(_op: &SequenceLength, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn concat_from_sequence(_op: &ConcatFromSequence, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn split_to_sequence(_op: &SplitToSequence, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn optional(_op: &Optional, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn optional_get_element(_op: &OptionalGetElement, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn optional_has_element(_op: &OptionalHasElement, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
