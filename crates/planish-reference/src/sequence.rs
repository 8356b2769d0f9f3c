//! Reference: sequences and optionals.

use planish_op::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt, SequenceConstruct,
    SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength, SplitToSequence, Value,
};
use planish_tensor::Tensor;

use crate::movement::join::{concat_tensors, split_sizes, stack_tensors, take_part};
use crate::movement::single_int;
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

#[cfg(test)]
mod tests {
    use planish_op::{Op, ValueType};
    use planish_tensor::DType;

    use super::*;
    use crate::EvalErrorKind::{BadAttribute, BadShape, BadType, BadValue, MissingInput};
    use crate::evaluate;

    fn run(op: impl Into<Op>, inputs: &[Option<Value>]) -> Result<Value, EvalErrorKind> {
        let inputs: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
        evaluate(&op.into(), &inputs, 1).map(|mut outputs| outputs.remove(0)).map_err(|error| error.kind())
    }

    fn vector(values: &[f32]) -> Value {
        Value::Tensor(Tensor::vector(values.to_vec()))
    }

    fn int(value: i64) -> Option<Value> {
        Some(Value::Tensor(Tensor::scalar(value)))
    }

    /// Three vectors: 1, 2 and 3.
    fn three() -> Option<Value> {
        Some(Value::Sequence([1.0, 2.0, 3.0].map(|value| vector(&[value])).to_vec()))
    }

    fn numbers(value: &Value) -> Vec<f64> {
        match value {
            Value::Tensor(tensor) => tensor.to_f64s(),
            Value::Sequence(elements) => elements.iter().flat_map(numbers).collect(),
            Value::Optional(element) => element.as_deref().map(numbers).unwrap_or_default(),
        }
    }

    #[test]
    fn positions_count_from_either_end() {
        let at = |position| run(SequenceAt {}, &[three(), int(position)]).map(|value| numbers(&value));
        assert_eq!(at(0).unwrap(), [1.0]);
        assert_eq!(at(-1).unwrap(), [3.0]);
        for position in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(at(position), Err(BadValue));
        }
        let insert = |position| {
            run(SequenceInsert {}, &[three(), Some(vector(&[9.0])), position]).map(|value| numbers(&value))
        };
        assert_eq!(insert(None).unwrap(), [1.0, 2.0, 3.0, 9.0]);
        assert_eq!(insert(int(3)).unwrap(), [1.0, 2.0, 3.0, 9.0]);
        assert_eq!(insert(int(0)).unwrap(), [9.0, 1.0, 2.0, 3.0]);
        assert_eq!(insert(int(-1)).unwrap(), [1.0, 2.0, 9.0, 3.0]);
        assert_eq!(insert(int(-3)).unwrap(), [9.0, 1.0, 2.0, 3.0]);
        assert_eq!(insert(int(4)), Err(BadValue));
        let erase = |position| run(SequenceErase {}, &[three(), position]).map(|value| numbers(&value));
        assert_eq!(erase(None).unwrap(), [1.0, 2.0]);
        assert_eq!(erase(int(-3)).unwrap(), [2.0, 3.0]);
        assert_eq!(erase(int(3)), Err(BadValue));
        assert_eq!(run(SequenceErase {}, &[Some(Value::Sequence(Vec::new()))]), Err(BadValue));
    }

    #[test]
    fn sequences_hold_one_type() {
        let ints = || Some(Value::Tensor(Tensor::vector(vec![1i64])));
        let construct = run(SequenceConstruct {}, &[Some(vector(&[1.0])), Some(vector(&[2.0, 3.0]))]);
        assert_eq!(numbers(&construct.unwrap()), [1.0, 2.0, 3.0]);
        assert_eq!(run(SequenceConstruct {}, &[Some(vector(&[1.0])), ints()]), Err(BadType));
        assert_eq!(run(SequenceInsert {}, &[three(), ints()]), Err(BadType));
        assert_eq!(run(SequenceInsert {}, &[three(), three()]), Err(BadType));
        assert_eq!(run(SequenceLength {}, &[ints()]), Err(BadType));
        let empty = run(SequenceEmpty { dtype: None }, &[]).unwrap();
        assert_eq!(numbers(&run(SequenceLength {}, &[Some(empty)]).unwrap()), [0.0]);
        assert_eq!(numbers(&run(SequenceLength {}, &[three()]).unwrap()), [3.0]);
    }

    #[test]
    fn sequences_are_joined_and_taken_apart() {
        let shape = |value: &Value| value.as_tensor().unwrap().shape().to_vec();
        let concat = |new_axis, axis| run(ConcatFromSequence { new_axis, axis }, &[three()]);
        assert_eq!(shape(&concat(false, 0).unwrap()), [3]);
        assert_eq!(shape(&concat(true, -1).unwrap()), [1, 3]);
        assert_eq!(shape(&concat(true, 0).unwrap()), [3, 1]);
        assert_eq!(concat(false, 1), Err(BadAttribute));
        let empty = [Some(Value::Sequence(Vec::new()))];
        assert_eq!(run(ConcatFromSequence { new_axis: false, axis: 0 }, &empty), Err(MissingInput));

        let matrix =
            || Some(Value::Tensor(Tensor::new(&[2, 3], (0..6).map(|x| x as f32).collect()).unwrap()));
        let split = |keepdims, split| match run(SplitToSequence { keepdims, axis: -1 }, &[matrix(), split]) {
            Ok(Value::Sequence(parts)) => Ok(parts.iter().map(|part| (shape(part), numbers(part))).collect()),
            Ok(other) => panic!("not a sequence: {other:?}"),
            Err(kind) => Err(kind),
        };
        let columns: Vec<(Vec<usize>, Vec<f64>)> = split(true, None).unwrap();
        assert_eq!(columns[1], (vec![2, 1], vec![1.0, 4.0]));
        assert_eq!(split(false, None).unwrap()[2], (vec![2], vec![2.0, 5.0]));
        // `keepdims` is ignored where the parts are given.
        let uneven = split(false, int(2)).unwrap();
        assert_eq!(uneven, [(vec![2, 2], vec![0.0, 1.0, 3.0, 4.0]), (vec![2, 1], vec![2.0, 5.0])]);
        let list = |values: &[i64]| Some(Value::Tensor(Tensor::vector(values.to_vec())));
        assert_eq!(split(true, list(&[0, 3])).unwrap()[0].0, [2, 0]);
        assert_eq!(split(true, list(&[1, 3])), Err(BadShape));
        assert_eq!(split(true, int(0)), Err(BadValue));
        assert_eq!(split(true, int(i64::MAX)).unwrap().len(), 1);
    }

    #[test]
    fn parts_of_small_types_are_moved_as_they_are() {
        let input = Tensor::from_f64s(DType::U4, &[3], &[1.0, 15.0, 7.0]).unwrap();
        let parts = run(SplitToSequence { keepdims: true, axis: 0 }, &[Some(input.clone().into())]).unwrap();
        let joined = run(ConcatFromSequence { new_axis: false, axis: 0 }, &[Some(parts)]).unwrap();
        assert_eq!(joined, Value::Tensor(input));
    }

    #[test]
    fn optionals_hold_or_lack() {
        let of = |ty: Option<ValueType>| Optional { element_type: ty };
        let full = run(of(None), &[Some(vector(&[1.0]))]).unwrap();
        let lacking = run(of(Some(ValueType::unranked(DType::F32))), &[None]).unwrap();
        assert_eq!(lacking, Value::Optional(None));
        assert_eq!(run(of(None), &[None]), Err(BadAttribute));
        assert_eq!(run(of(None), &[Some(full.clone())]), Err(BadType));
        assert_eq!(run(OptionalGetElement {}, &[Some(full.clone())]).unwrap(), vector(&[1.0]));
        assert_eq!(run(OptionalGetElement {}, &[three()]).unwrap(), three().unwrap());
        assert_eq!(run(OptionalGetElement {}, &[Some(lacking.clone())]), Err(BadValue));
        let has = |input| numbers(&run(OptionalHasElement {}, &[input]).unwrap())[0] == 1.0;
        assert!(has(Some(full)) && has(three()) && has(Some(vector(&[]))));
        assert!(!has(Some(lacking)) && !has(None));
        assert_eq!(numbers(&run(OptionalHasElement {}, &[]).unwrap()), [0.0]);
    }
}
