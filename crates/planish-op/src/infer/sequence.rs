//! Inference: sequences and optionals.
//!
//! A sequence has one element type for all its elements. A dimension in which elements differ, or may, is
//! `unknown()` there, never a symbol: a symbol would claim that all elements agree. An element that is taken
//! out gets fresh symbols in those places.

use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt, SequenceConstruct,
    SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength, SplitToSequence, TensorType, ValueType,
};

use super::{Content, InferError, InferResult, Inference, Inferred, SymbolicInts};

fn only(ty: ValueType) -> InferResult {
    Ok(vec![Inferred { ty, content: None }])
}

/// The element type of an input that must be a sequence.
fn element_type<'a>(cx: &Inference<'a>, idx: usize) -> Result<&'a ValueType, InferError> {
    match cx.value(idx)? {
        ValueType::Sequence(element) => Ok(element),
        other => Err(cx.bad_type(format!("input {idx} must be a sequence, it is {other}"))),
    }
}

/// The element type of an input that must be a sequence of tensors.
fn tensor_element_type<'a>(cx: &Inference<'a>, idx: usize) -> Result<&'a TensorType, InferError> {
    let element = element_type(cx, idx)?;
    element
        .as_tensor()
        .ok_or_else(|| cx.bad_type(format!("input {idx} must be a sequence of tensors, it holds {element}")))
}

/// The type of one element on its own.
fn taken_out(element: &ValueType, cx: &mut Inference<'_>) -> ValueType {
    let ValueType::Tensor(tensor) = element else { return element.clone() };
    let shape = tensor.shape.as_ref().map(|shape| {
        let own = |dim: &Dim| if dim.is_unknown() { cx.fresh_dim("element") } else { dim.clone() };
        shape.iter().map(own).collect()
    });
    ValueType::Tensor(TensorType { dtype: tensor.dtype, shape })
}

/// A position must be one integer.
fn check_position(cx: &Inference<'_>, idx: usize) -> Result<(), InferError> {
    let position = cx.tensor(idx)?;
    if !position.dtype.is_int() {
        return Err(cx.bad_type(format!("a position must be an integer, not {}", position.dtype)));
    }
    match position.shape.as_ref().map(Shape::element_count).and_then(|count| count.as_const()) {
        None | Some(1) => Ok(()),
        Some(count) => Err(cx.bad_shape(format!("a position must be one number, not {count}"))),
    }
}

pub(super) fn sequence_at(_op: &SequenceAt, cx: &mut Inference<'_>) -> InferResult {
    let element = element_type(cx, 0)?;
    check_position(cx, 1)?;
    only(taken_out(element, cx))
}

pub(super) fn sequence_construct(_op: &SequenceConstruct, cx: &mut Inference<'_>) -> InferResult {
    let mut element = cx.value(0)?.clone();
    for idx in 1..cx.n_inputs() {
        let next = cx.value(idx)?;
        element = element
            .joined_element(next)
            .ok_or_else(|| cx.bad_type(format!("{element} and {next} cannot be in one sequence")))?;
    }
    only(ValueType::Sequence(Box::new(element)))
}

pub(super) fn sequence_empty(op: &SequenceEmpty, _cx: &mut Inference<'_>) -> InferResult {
    let element = ValueType::unranked(op.dtype.unwrap_or(DType::F32));
    only(ValueType::Sequence(Box::new(element)))
}

pub(super) fn sequence_erase(_op: &SequenceErase, cx: &mut Inference<'_>) -> InferResult {
    element_type(cx, 0)?;
    if cx.has_input(1) {
        check_position(cx, 1)?;
    }
    only(cx.value(0)?.clone())
}

pub(super) fn sequence_insert(_op: &SequenceInsert, cx: &mut Inference<'_>) -> InferResult {
    let (element, added) = (element_type(cx, 0)?, cx.value(1)?);
    if cx.has_input(2) {
        check_position(cx, 2)?;
    }
    let joined = element
        .joined_element(added)
        .ok_or_else(|| cx.bad_type(format!("{added} cannot be inserted into a sequence of {element}")))?;
    only(ValueType::Sequence(Box::new(joined)))
}

pub(super) fn sequence_length(_op: &SequenceLength, cx: &mut Inference<'_>) -> InferResult {
    element_type(cx, 0)?;
    let dims = vec![cx.fresh_dim("length")];
    Ok(vec![Inferred::ints(DType::I64, SymbolicInts { dims, is_scalar: true })])
}

pub(super) fn concat_from_sequence(op: &ConcatFromSequence, cx: &mut Inference<'_>) -> InferResult {
    let element = tensor_element_type(cx, 0)?;
    let Some(shape) = &element.shape else { return only(ValueType::unranked(element.dtype)) };
    let mut dims = shape.dims().to_vec();
    // All elements agree in the dimensions that are not joined, so one fresh symbol stands for all.
    for dim in dims.iter_mut().filter(|dim| dim.is_unknown()) {
        *dim = cx.fresh_dim("element");
    }
    if op.new_axis {
        let axis = cx.axis(op.axis, dims.len() + 1)?;
        dims.insert(axis, cx.fresh_dim("length"));
    } else {
        let axis = cx.axis(op.axis, dims.len())?;
        dims[axis] = cx.fresh_dim("joined");
    }
    only(ValueType::tensor(element.dtype, Shape::new(dims)))
}

pub(super) fn split_to_sequence(op: &SplitToSequence, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    let sequence = |shape: Option<Shape>| {
        only(ValueType::Sequence(Box::new(ValueType::Tensor(TensorType { dtype: input.dtype, shape }))))
    };
    let Some(shape) = &input.shape else { return sequence(None) };
    let axis = cx.axis(op.axis, shape.rank())?;
    let mut dims = shape.dims().to_vec();
    let Some(split) = cx.optional_tensor(1)? else {
        if op.keepdims {
            dims[axis] = Dim::ONE;
        } else {
            dims.remove(axis);
        }
        return sequence(Some(Shape::new(dims)));
    };
    if !split.dtype.is_int() || split.rank().is_some_and(|rank| rank > 1) {
        return Err(cx.bad_type(format!("`split` must be one integer or a vector of them, it is {split}")));
    }
    dims[axis] = match cx.ints(1) {
        None => Dim::UNKNOWN,
        Some(parts) => {
            let least = if parts.is_scalar { 1 } else { 0 };
            if let Some(part) =
                parts.dims.iter().find(|part| part.as_const().is_some_and(|part| part < least))
            {
                return Err(cx.bad_shape(format!("a part cannot have the length {part}")));
            }
            if parts.is_scalar {
                let part = &parts.dims[0];
                if shape[axis].rem(part) == 0 { part.clone() } else { Dim::UNKNOWN }
            } else {
                let total: Dim = parts.dims.iter().sum();
                if let (Some(total), Some(len)) = (total.as_const(), shape[axis].as_const())
                    && total != len
                {
                    return Err(cx.bad_shape(format!("parts of {total} in all do not split {len}")));
                }
                let first = parts.dims.first().cloned().unwrap_or(Dim::UNKNOWN);
                if parts.dims.iter().all(|part| *part == first) { first } else { Dim::UNKNOWN }
            }
        }
    };
    sequence(Some(Shape::new(dims)))
}

pub(super) fn optional(op: &Optional, cx: &mut Inference<'_>) -> InferResult {
    let element = match (&op.element_type, cx.has_input(0)) {
        (_, true) => cx.value(0)?.clone(),
        (Some(ty), false) => ty.clone(),
        (None, false) => return Err(cx.bad_attribute("an empty optional needs the attribute `type`")),
    };
    if matches!(element, ValueType::Optional(_)) {
        return Err(cx.bad_type(format!("an optional holds a tensor or a sequence, not {element}")));
    }
    only(ValueType::Optional(Box::new(element)))
}

pub(super) fn optional_get_element(_op: &OptionalGetElement, cx: &mut Inference<'_>) -> InferResult {
    match cx.value(0)? {
        ValueType::Optional(element) => only((**element).clone()),
        other => Ok(vec![Inferred { ty: other.clone(), content: cx.content(0).cloned() }]),
    }
}

pub(super) fn optional_has_element(_op: &OptionalHasElement, cx: &mut Inference<'_>) -> InferResult {
    let known = if cx.has_input(0) {
        // Tensors and sequences are always there.
        (!matches!(cx.value(0)?, ValueType::Optional(_))).then_some(true)
    } else {
        Some(false)
    };
    let content = known.map(|known| Content::Tensor(Tensor::scalar(known)));
    Ok(vec![Inferred { ty: ValueType::tensor(DType::Bool, Shape::scalar()), content }])
}

#[cfg(test)]
mod tests {
    use super::super::InferErrorKind::{BadAttribute, BadShape, BadType};
    use super::super::testing::{ABSENT, constant, inferred, ints, of, output, parse};
    use super::*;

    #[test]
    fn construct_joins_element_types() {
        let construct = |inputs: &[_]| output(SequenceConstruct {}, inputs);
        assert_eq!(construct(&[of("f32[n,3]"), of("f32[n,3]")]).unwrap(), "seq(f32[n,3])");
        assert_eq!(construct(&[of("f32[n,3]"), of("f32[m,3]")]).unwrap(), "seq(f32[unknown(),3])");
        assert_eq!(construct(&[of("f32[n]"), of("f32[n,3]")]).unwrap(), "seq(f32[*])");
        assert_eq!(construct(&[of("f32[n]"), of("f16[n]")]), Err(BadType));
    }

    #[test]
    fn elements_taken_out_have_fresh_dimensions() {
        let position = || constant(Tensor::scalar(0i64));
        assert_eq!(
            output(SequenceAt {}, &[of("seq(f32[unknown(),3])"), position()]).unwrap(),
            "f32[element0,3]"
        );
        assert_eq!(output(SequenceAt {}, &[of("seq(f32[n,3])"), position()]).unwrap(), "f32[n,3]");
        assert_eq!(output(SequenceAt {}, &[of("f32[n,3]"), position()]), Err(BadType));
        assert_eq!(output(SequenceAt {}, &[of("seq(f32[n])"), of("f32[]")]), Err(BadType));
        assert_eq!(output(SequenceAt {}, &[of("seq(f32[n])"), of("i64[2]")]), Err(BadShape));
    }

    #[test]
    fn insert_erase_and_length() {
        let empty = SequenceEmpty { dtype: Some(DType::I64) };
        assert_eq!(output(empty, &[]).unwrap(), "seq(i64[*])");
        assert_eq!(output(SequenceEmpty { dtype: None }, &[]).unwrap(), "seq(f32[*])");
        let insert = |inputs: &[_]| output(SequenceInsert {}, inputs);
        assert_eq!(insert(&[of("seq(f32[2])"), of("f32[3]")]).unwrap(), "seq(f32[unknown()])");
        assert_eq!(insert(&[of("seq(f32[2])"), of("i64[2]")]), Err(BadType));
        assert_eq!(output(SequenceErase {}, &[of("seq(f32[2])")]).unwrap(), "seq(f32[2])");
        assert_eq!(output(SequenceErase {}, &[of("f32[2]")]), Err(BadType));
        let length = inferred(SequenceLength {}, &[of("seq(f32[2])")], 1).unwrap();
        assert_eq!(length[0].ty.to_string(), "i64[]");
        assert!(matches!(&length[0].content, Some(Content::Ints(ints)) if ints.is_scalar));
    }

    #[test]
    fn concat_from_sequence_leaves_one_dimension_open() {
        let concat = |new_axis, axis, ty: &str| output(ConcatFromSequence { new_axis, axis }, &[of(ty)]);
        assert_eq!(concat(false, -1, "seq(f32[n,3])").unwrap(), "f32[n,joined0]");
        assert_eq!(concat(true, -1, "seq(f32[n,3])").unwrap(), "f32[n,3,length0]");
        assert_eq!(concat(true, 0, "seq(f32[unknown()])").unwrap(), "f32[length1,element0]");
        assert_eq!(concat(false, 2, "seq(f32[n,3])"), Err(BadAttribute));
        assert_eq!(concat(false, i64::MIN, "seq(f32[n,3])"), Err(BadAttribute));
        assert_eq!(concat(false, 0, "seq(f32[*])").unwrap(), "f32[*]");
        assert_eq!(concat(false, 0, "f32[3]"), Err(BadType));
    }

    #[test]
    fn split_knows_equal_parts() {
        let split = |keepdims, inputs: &[_]| output(SplitToSequence { keepdims, axis: 1 }, inputs);
        assert_eq!(split(true, &[of("f32[b,6]")]).unwrap(), "seq(f32[b,1])");
        assert_eq!(split(false, &[of("f32[b,6]")]).unwrap(), "seq(f32[b])");
        let by = |part: i64| constant(Tensor::scalar(part));
        assert_eq!(split(false, &[of("f32[b,6]"), by(3)]).unwrap(), "seq(f32[b,3])");
        assert_eq!(split(true, &[of("f32[b,6]"), by(4)]).unwrap(), "seq(f32[b,unknown()])");
        assert_eq!(split(true, &[of("f32[b,4*n]"), by(4)]).unwrap(), "seq(f32[b,4])");
        assert_eq!(split(true, &[of("f32[b,6]"), by(0)]), Err(BadShape));
        assert_eq!(split(true, &[of("f32[b,6]"), ints(&["2", "4"])]).unwrap(), "seq(f32[b,unknown()])");
        assert_eq!(split(true, &[of("f32[b,6]"), ints(&["3", "3"])]).unwrap(), "seq(f32[b,3])");
        assert_eq!(split(true, &[of("f32[b,6]"), ints(&["3", "4"])]), Err(BadShape));
        assert_eq!(split(true, &[of("f32[b,6]"), ints(&["-1", "7"])]), Err(BadShape));
        assert_eq!(split(true, &[of("f32[b,6]"), of("i64[k]")]).unwrap(), "seq(f32[b,unknown()])");
        assert_eq!(split(true, &[of("f32[b]")]), Err(BadAttribute));
    }

    #[test]
    fn optionals_wrap_and_unwrap() {
        let optional = |ty: Option<&str>, input| output(Optional { element_type: ty.map(parse) }, &[input]);
        assert_eq!(optional(None, of("f32[3]")).unwrap(), "optional(f32[3])");
        assert_eq!(optional(Some("seq(f32[3])"), ABSENT).unwrap(), "optional(seq(f32[3]))");
        assert_eq!(optional(None, ABSENT), Err(BadAttribute));
        assert_eq!(optional(None, of("optional(f32[3])")), Err(BadType));
        assert_eq!(output(OptionalGetElement {}, &[of("optional(f32[3])")]).unwrap(), "f32[3]");
        assert_eq!(output(OptionalGetElement {}, &[of("seq(f32[3])")]).unwrap(), "seq(f32[3])");
    }

    #[test]
    fn presence_is_known_unless_the_type_is_optional() {
        let known = |input| {
            let output = inferred(OptionalHasElement {}, &[input], 1).unwrap().remove(0);
            assert_eq!(output.ty.to_string(), "bool[]");
            output.content.map(|content| match content {
                Content::Tensor(tensor) => tensor.to_i64s()[0] == 1,
                _ => panic!("not a boolean"),
            })
        };
        assert_eq!(known(ABSENT), Some(false));
        assert_eq!(known(of("f32[3]")), Some(true));
        assert_eq!(known(of("optional(f32[3])")), None);
    }
}
