//! Operators that write elements by index: the output is like the data.

use planish_tensor::{Dim, Shape};

use super::gather::{element_axis, slices_shape};
use super::place;
use crate::ScatterReduction;
use crate::infer::checks::{same_dim, same_dtype};
use crate::infer::known::{Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

/// The output is like input 0, with elements as far as known.
fn like_data(cx: &Inference<'_>, known: Option<Known>) -> InferResult {
    let ty = cx.tensor(0)?;
    Ok(vec![match &ty.shape {
        Some(shape) => with_known(ty.dtype, shape.clone(), known),
        None => Inferred::maybe_ranked(ty.dtype, None),
    }])
}

/// Refuses shapes that differ in rank or in known sizes.
fn same_shape(cx: &Inference<'_>, a: &Shape, b: &Shape) -> Result<(), InferError> {
    if a.rank() != b.rank() {
        return Err(cx.bad_shape(format!("shapes {a} and {b} must be equal")));
    }
    a.iter().zip(b).try_for_each(|(a, b)| same_dim(cx, "a dimension", a, b).map(|_| ()))
}

pub(in crate::infer) fn scatter_elements(op: &crate::ScatterElements, cx: &mut Inference<'_>) -> InferResult {
    same_dtype(cx, 0, 2)?;
    let axis = element_axis(cx, op.axis)?;
    if let (Some(indices), Some(updates)) = (cx.shape(1)?, cx.shape(2)?) {
        same_shape(cx, indices, updates)?;
    }
    let known = axis.filter(|_| op.reduction == ScatterReduction::None).and_then(|axis| {
        let (mut data, indices, updates) = (Known::of(cx, 0)?, Known::of(cx, 1)?, Known::of(cx, 2)?);
        let named = indices.const_ints()?;
        for ((mut at, index), update) in indices.places()?.zip(named).zip(&updates.elements) {
            at[axis] = place(index, *data.shape.get(axis)?)?;
            *data.element_mut(&at)? = update.clone();
        }
        Some(data)
    });
    like_data(cx, known)
}

pub(in crate::infer) fn scatter_nd(op: &crate::ScatterND, cx: &mut Inference<'_>) -> InferResult {
    same_dtype(cx, 0, 2)?;
    if let (Some(expected), Some(updates)) = (slices_shape(cx, 0)?, cx.shape(2)?) {
        same_shape(cx, &expected, updates)?;
    }
    let known = (op.reduction == ScatterReduction::None).then(|| known_scatter(cx)).flatten();
    like_data(cx, known)
}

fn known_scatter(cx: &Inference<'_>) -> Option<Known> {
    let (mut data, indices, updates) = (Known::of(cx, 0)?, Known::of(cx, 1)?, Known::of(cx, 2)?);
    let (&depth, tuples) = indices.shape.split_last()?;
    for (index, element) in updates.places()?.zip(&updates.elements) {
        let (tuple, rest) = index.split_at_checked(tuples.len())?;
        let mut at = Vec::with_capacity(data.shape.len());
        for idx in 0..depth {
            let named = indices.indexed(&[], |_| Some([tuple, &[idx]].concat()))?.const_ints()?;
            at.push(place(*named.first()?, *data.shape.get(idx)?)?);
        }
        at.extend(rest);
        *data.element_mut(&at)? = element.clone();
    }
    Some(data)
}

pub(in crate::infer) fn tensor_scatter(op: &crate::TensorScatter, cx: &mut Inference<'_>) -> InferResult {
    same_dtype(cx, 0, 1)?;
    if let (Some(cache), Some(update)) = (cx.shape(0)?, cx.shape(1)?) {
        if cache.rank() != update.rank() {
            return Err(cx.bad_shape(format!("cache {cache} and update {update} differ in rank")));
        }
        let axis = cx.axis(op.axis, cache.rank())?;
        if axis == 0 {
            return Err(cx.bad_attribute("axis 0 is the batch, it cannot be the sequence"));
        }
        for (other, (a, b)) in cache.iter().zip(update).enumerate() {
            if other != axis {
                same_dim(cx, "a dimension", a, b)?;
            } else if a.as_const().zip(b.as_const()).is_some_and(|(a, b)| b > a) {
                return Err(cx.bad_shape(format!("an update of {b} entries does not fit a cache of {a}")));
            }
        }
    }
    if cx.has_input(2) {
        let starts = cx.shape_of_rank(2, 1)?;
        if let (Some(starts), Some(cache)) = (starts, cx.shape(0)?) {
            same_dim(cx, "the batch size", &starts[0], cache.get(0).unwrap_or(&Dim::UNKNOWN))?;
        }
    }
    like_data(cx, None)
}
