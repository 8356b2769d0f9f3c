//! Reference: sequences and optionals.

use planish_op::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt, SequenceConstruct,
    SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength, SplitToSequence, Value,
};
use planish_tensor::Tensor;

use crate::layout::join::{concat_tensors, split_sizes, stack_tensors, take_part};
use crate::layout::single_int;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation};

/// The elements of an input that must be a sequence.
fn sequence<'a>(cx: &Evaluation<'a>, idx: usize) -> Result<&'a [Value], EvalError> {
    match cx.value(idx)? {
        Value::Sequence(elements) => Ok(elements),
        Value::Tensor(_) | Value::Optional(_) => {
            Err(cx.error(EvalErrorKind::BadType, format!("input {idx} must be a sequence")))
        }
    }
}

/// The elements of a sequence of tensors.
fn tensors<'a>(cx: &Evaluation<'a>, elements: &'a [Value]) -> Result<Vec<&'a Tensor>, EvalError> {
    let not_tensor = || cx.error(EvalErrorKind::BadType, "the sequence must hold tensors");
    elements.iter().map(|element| element.as_tensor().ok_or_else(not_tensor)).collect()
}

/// The position that input `idx` says, counted from the back where it is negative. `n_places` positions are
/// valid; `len` is what negative positions are counted from.
fn position(cx: &Evaluation<'_>, idx: usize, len: usize, n_places: usize) -> Result<usize, EvalError> {
    let position = single_int(cx, idx)?;
    let from_start = if position < 0 { i128::from(position) + len as i128 } else { i128::from(position) };
    usize::try_from(from_start).ok().filter(|&place| place < n_places).ok_or_else(|| {
        let detail = format!("position {position} is outside of a sequence of {len}");
        cx.error(EvalErrorKind::BadValue, detail)
    })
}

pub(crate) fn sequence_at(_op: &SequenceAt, cx: &Evaluation<'_>) -> EvalResult {
    let elements = sequence(cx, 0)?;
    let place = position(cx, 1, elements.len(), elements.len())?;
    Ok(vec![elements[place].clone()])
}

pub(crate) fn sequence_construct(_op: &SequenceConstruct, cx: &Evaluation<'_>) -> EvalResult {
    let elements: Vec<Value> =
        (0..cx.n_inputs()).map(|idx| cx.value(idx).cloned()).collect::<Result<_, _>>()?;
    if let Some((first, rest)) = elements.split_first() {
        rest.iter().try_for_each(|other| check_same_kind(cx, first, other))?;
    }
    Ok(vec![Value::Sequence(elements)])
}

/// Elements of one sequence have one type.
fn check_same_kind(cx: &Evaluation<'_>, a: &Value, b: &Value) -> Result<(), EvalError> {
    match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) if a.dtype() != b.dtype() => {
            let detail = format!("{} and {} cannot be in one sequence", a.dtype(), b.dtype());
            Err(cx.error(EvalErrorKind::BadType, detail))
        }
        (Value::Tensor(_), Value::Tensor(_))
        | (Value::Sequence(_), Value::Sequence(_))
        | (Value::Optional(_), Value::Optional(_)) => Ok(()),
        _ => Err(cx.error(EvalErrorKind::BadType, "elements of different kinds cannot be in one sequence")),
    }
}

pub(crate) fn sequence_empty(_op: &SequenceEmpty, _cx: &Evaluation<'_>) -> EvalResult {
    Ok(vec![Value::Sequence(Vec::new())])
}

pub(crate) fn sequence_erase(_op: &SequenceErase, cx: &Evaluation<'_>) -> EvalResult {
    let mut elements = sequence(cx, 0)?.to_vec();
    let place = match (cx.optional_value(1), elements.len().checked_sub(1)) {
        (Some(_), _) => position(cx, 1, elements.len(), elements.len())?,
        (None, Some(last)) => last,
        (None, None) => {
            return Err(cx.error(EvalErrorKind::BadValue, "an empty sequence has nothing to erase"));
        }
    };
    elements.remove(place);
    Ok(vec![Value::Sequence(elements)])
}

pub(crate) fn sequence_insert(_op: &SequenceInsert, cx: &Evaluation<'_>) -> EvalResult {
    let mut elements = sequence(cx, 0)?.to_vec();
    let added = cx.value(1)?;
    if let Some(first) = elements.first() {
        check_same_kind(cx, first, added)?;
    }
    let place = match cx.optional_value(2) {
        Some(_) => position(cx, 2, elements.len(), elements.len() + 1)?,
        None => elements.len(),
    };
    elements.insert(place, added.clone());
    Ok(vec![Value::Sequence(elements)])
}

pub(crate) fn sequence_length(_op: &SequenceLength, cx: &Evaluation<'_>) -> EvalResult {
    let len = sequence(cx, 0)?.len();
    Ok(vec![Tensor::scalar(len as i64).into()])
}

pub(crate) fn concat_from_sequence(op: &ConcatFromSequence, cx: &Evaluation<'_>) -> EvalResult {
    let tensors = tensors(cx, sequence(cx, 0)?)?;
    let joined = if op.new_axis {
        stack_tensors(cx, &tensors, op.axis)?
    } else {
        concat_tensors(cx, &tensors, op.axis)?
    };
    Ok(vec![joined.into()])
}

/// A sequence longer than this would take more memory for its headers than any model has use for.
const MAX_PARTS: usize = 1 << 24;

pub(crate) fn split_to_sequence(op: &SplitToSequence, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    let axis = cx.axis(op.axis, input.rank())?;
    let len = input.shape()[axis];
    let chunks = |part: usize| {
        let n_parts = len.div_ceil(part);
        if n_parts > MAX_PARTS {
            let detail = format!("{n_parts} parts are too many for a sequence");
            return Err(cx.error(EvalErrorKind::TooLarge, detail));
        }
        Ok((0..n_parts).map(|idx| part.min(len - idx * part)).collect::<Vec<_>>())
    };
    let split = cx.optional_tensor(1)?;
    let sizes = match split {
        None => chunks(1)?,
        Some(split) if split.rank() == 0 => {
            match split.to_i64s().first().map(|&part| usize::try_from(part)) {
                Some(Ok(part @ 1..)) => chunks(part)?,
                _ => return Err(cx.error(EvalErrorKind::BadValue, "`split` must be positive")),
            }
        }
        Some(split) if split.rank() == 1 => split_sizes(cx, len, &split.to_i64s())?,
        Some(split) => {
            return Err(cx.bad_shape(format!("`split` has the shape {:?}, at most one axis", split.shape())));
        }
    };
    let mut parts = Vec::with_capacity(sizes.len());
    let mut start = 0;
    for size in sizes {
        let mut part = take_part(cx, input, axis, start, size)?;
        if split.is_none() && !op.keepdims {
            let mut shape = part.shape().to_vec();
            shape.remove(axis);
            part = part.reshaped(&shape)?;
        }
        parts.push(Value::Tensor(part));
        start += size;
    }
    Ok(vec![Value::Sequence(parts)])
}

pub(crate) fn optional(op: &Optional, cx: &Evaluation<'_>) -> EvalResult {
    let element = cx.optional_value(0).cloned();
    if element.is_none() && op.element_type.is_none() {
        return Err(cx.bad_attribute("an empty optional needs the attribute `type`"));
    }
    if matches!(element, Some(Value::Optional(_))) {
        return Err(cx.error(EvalErrorKind::BadType, "an optional holds a tensor or a sequence"));
    }
    Ok(vec![Value::Optional(element.map(Box::new))])
}

pub(crate) fn optional_get_element(_op: &OptionalGetElement, cx: &Evaluation<'_>) -> EvalResult {
    match cx.value(0)? {
        Value::Optional(Some(element)) => Ok(vec![(**element).clone()]),
        Value::Optional(None) => Err(cx.error(EvalErrorKind::BadValue, "the optional is empty")),
        value => Ok(vec![value.clone()]),
    }
}

pub(crate) fn optional_has_element(_op: &OptionalHasElement, cx: &Evaluation<'_>) -> EvalResult {
    let has_element = !matches!(cx.optional_value(0), None | Some(Value::Optional(None)));
    Ok(vec![Tensor::scalar(has_element).into()])
}
