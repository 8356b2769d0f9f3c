//! Tensors made from a description: filled, counted up, or with ones on a diagonal.

use planish_tensor::{DType, Dim, Shape};

use super::{List, unranked};
use crate::infer::checks::{checked_dim, same_dtype};
use crate::infer::context::MAX_FOLLOWED_INTS;
use crate::infer::known::{Element, Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

pub(in crate::infer) fn constant_of_shape(
    op: &crate::ConstantOfShape,
    cx: &mut Inference<'_>,
) -> InferResult {
    let dtype = op.value.as_ref().map_or(DType::F32, |value| value.dtype());
    if let Some(value) = op.value.as_ref().filter(|value| value.len() != 1) {
        return Err(cx.bad_attribute(format!("the value must be one element, it is {:?}", value.shape())));
    }
    let dims = match List::of(cx, 0)? {
        List::Known(dims) => dims,
        List::Length(len) => vec![Dim::UNKNOWN; len],
        List::Unknown => return Ok(unranked(dtype)),
    };
    let dims: Result<Vec<Dim>, InferError> =
        dims.into_iter().map(|dim| checked_dim(cx, dim, "constant")).collect();
    let shape = Shape::new(dims?);
    let element = match &op.value {
        Some(value) => Known::of_tensor(value).and_then(|known| known.elements.into_iter().next()),
        None => Some(Element::Float(0.0)),
    };
    let known = shape.as_fixed().zip(element).and_then(|(fixed, element)| Known::full(&fixed, &element));
    Ok(vec![with_known(dtype, shape, known)])
}

pub(in crate::infer) fn eye_like(op: &crate::EyeLike, cx: &mut Inference<'_>) -> InferResult {
    let dtype = op.dtype.map_or_else(|| cx.dtype(0), Ok)?;
    let shape = match cx.shape_of_rank(0, 2)? {
        Some(shape) => shape.clone(),
        None => cx.fresh_shape(2, "eye"),
    };
    Ok(vec![Inferred::tensor(dtype, shape)])
}

pub(in crate::infer) fn range(op: &crate::Range, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    for idx in 0..3 {
        same_dtype(cx, 0, idx)?;
        let shape = cx.shape(idx)?;
        if shape.is_some_and(|shape| shape.element_count().as_const().is_some_and(|count| count != 1)) {
            return Err(cx.bad_shape("start, limit and delta are scalars"));
        }
    }
    if dtype == DType::Bool || dtype.is_small_float() || dtype.is_sub_byte() {
        return Err(cx.bad_type(format!("there are no ranges of {dtype}")));
    }
    if matches!(dtype, DType::F16 | DType::BF16) && !matches!(op.stash_type, 1 | 11) {
        let detail = format!("stash_type {} is neither 1 (single) nor 11 (double)", op.stash_type);
        return Err(cx.bad_attribute(detail));
    }
    let single = |idx: usize| Known::of(cx, idx).and_then(|known| known.elements.into_iter().next());
    let (len, known) = match [single(0), single(1), single(2)] {
        [Some(Element::Int(start)), Some(Element::Int(limit)), Some(Element::Int(delta))] => {
            let len = int_len(cx, &start, &limit, &delta)?;
            let known = followed(&len)
                .map(|n| Known::vector((0..n).map(|idx| &start + &delta * Dim::from(idx)).collect()));
            (len, known)
        }
        [Some(Element::Float(start)), Some(Element::Float(limit)), Some(Element::Float(delta))] => {
            let len = float_len(cx, start, limit, delta)?;
            let known = followed(&len).map(|n| Known {
                shape: vec![n],
                elements: (0..n).map(|idx| Element::Float(start + idx as f64 * delta)).collect(),
            });
            (len, known)
        }
        _ => (Dim::UNKNOWN, None),
    };
    let len = checked_dim(cx, len, "range")?;
    Ok(vec![with_known(dtype, Shape::from_iter([len]), known)])
}

/// A length that is a small number.
fn followed(len: &Dim) -> Option<usize> {
    len.as_usize().filter(|&len| len <= MAX_FOLLOWED_INTS)
}

fn int_len(cx: &Inference<'_>, start: &Dim, limit: &Dim, delta: &Dim) -> Result<Dim, InferError> {
    match delta.as_const() {
        Some(0) => Err(cx.bad_shape("delta is 0")),
        Some(_) => Ok((limit - start).ceil_div(delta).max(&Dim::ZERO)),
        // The sign would have to be known, and that it is not 0.
        None => Ok(Dim::UNKNOWN),
    }
}

fn float_len(cx: &Inference<'_>, start: f64, limit: f64, delta: f64) -> Result<Dim, InferError> {
    let len = ((limit - start) / delta).ceil().max(0.0);
    let ends = delta != 0.0 && len.is_finite() && !(limit - start).is_nan() && !delta.is_nan();
    // The cast saturates, far beyond what can be held.
    if ends { Ok(Dim::from(len as i64)) } else { Err(cx.bad_shape("the range does not end")) }
}
