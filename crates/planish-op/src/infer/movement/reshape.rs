//! Operators that change or read the shape and leave the elements where they are.

use planish_tensor::{DType, Dim, Shape};

use super::{List, unranked};
use crate::infer::checks::checked_dim;
use crate::infer::known::{Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

/// The value as it is, sequences and optionals too.
pub(in crate::infer) fn identity(_op: &crate::Identity, cx: &mut Inference<'_>) -> InferResult {
    Ok(vec![Inferred { ty: cx.value(0)?.clone(), content: cx.content(0).cloned() }])
}

pub(in crate::infer) fn shape(op: &crate::Shape, cx: &mut Inference<'_>) -> InferResult {
    let Some(shape) = cx.shape(0)? else {
        let len = cx.fresh_dim("rank");
        return Ok(vec![Inferred::tensor(DType::I64, Shape::from_iter([len]))]);
    };
    let rank = shape.rank() as i64;
    let place = |axis: i64| (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (place(op.start), op.end.map_or(shape.rank(), place));
    let dims = shape.dims().get(start..end).unwrap_or_default().to_vec();
    Ok(vec![with_known(DType::I64, Shape::from([dims.len()]), Some(Known::vector(dims)))])
}

pub(in crate::infer) fn size(_op: &crate::Size, cx: &mut Inference<'_>) -> InferResult {
    let known = cx.shape(0)?.and_then(|shape| Known::vector(vec![shape.element_count()]).reshaped(&[]));
    Ok(vec![with_known(DType::I64, Shape::scalar(), known)])
}

/// The output with the elements of input 0 in another shape.
fn same_elements(cx: &Inference<'_>, shape: Shape) -> InferResult {
    let known = shape.as_fixed().and_then(|fixed| Known::of(cx, 0)?.reshaped(&fixed));
    Ok(vec![with_known(cx.dtype(0)?, shape, known)])
}

pub(in crate::infer) fn reshape(op: &crate::Reshape, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let data = cx.shape(0)?;
    let target = match List::of(cx, 1)? {
        List::Known(target) => target,
        List::Length(len) => vec![Dim::UNKNOWN; len],
        List::Unknown => return Ok(unranked(dtype)),
    };
    let mut dims = Vec::with_capacity(target.len());
    // The places of -1 and of sizes that are not known at all.
    let (mut open, mut unknown) = (Vec::new(), Vec::new());
    for (axis, dim) in target.iter().enumerate() {
        dims.push(match dim.as_const() {
            Some(0) if !op.allowzero => copied_dim(cx, data, axis)?,
            Some(-1) => {
                open.push(axis);
                Dim::ONE
            }
            _ => checked_dim(cx, dim.clone(), "reshape")?,
        });
        if dim.is_unknown() {
            unknown.push(axis);
        }
    }
    match (&open[..], &unknown[..]) {
        ([axis], _) => dims[*axis] = inferred_dim(cx, data, &dims)?,
        // The count of elements leaves one choice. (A size of 0 copies, which is the same choice.)
        ([], [axis]) if data.is_some() => {
            dims[*axis] = Dim::ONE;
            dims[*axis] = inferred_dim(cx, data, &dims)?;
        }
        ([], _) => {
            let (from, to) = (data.map(Shape::element_count), Shape::new(dims.clone()));
            let from = from.and_then(|count| count.as_const());
            // Numbers whose product cannot be expressed are more than any count of elements.
            if let (Some(from), Some(_)) = (from, to.as_fixed())
                && to.element_count() != from
            {
                return Err(cx.bad_shape(format!("{from} elements do not make a tensor {to}")));
            }
        }
        _ => return Err(cx.bad_shape("-1 stands twice in the shape")),
    }
    same_elements(cx, Shape::new(dims))
}

/// What a 0 in the target of Reshape means.
fn copied_dim(cx: &mut Inference<'_>, data: Option<&Shape>, axis: usize) -> Result<Dim, InferError> {
    match data {
        None => Ok(cx.fresh_dim("reshape")),
        Some(shape) => shape
            .get(axis)
            .cloned()
            .ok_or_else(|| cx.bad_shape(format!("0 copies dimension {axis}, which {shape} does not have"))),
    }
}

/// What is left of the elements for a dimension that stands as 1 in `dims`.
fn inferred_dim(cx: &mut Inference<'_>, data: Option<&Shape>, dims: &[Dim]) -> Result<Dim, InferError> {
    let Some(data) = data else { return Ok(cx.fresh_dim("reshape")) };
    let count = data.element_count();
    let others = Shape::new(dims.to_vec()).element_count();
    match (count.as_const(), others.as_const()) {
        (_, Some(0)) => return Err(cx.bad_shape("-1 beside a dimension of 0 could be any size")),
        (Some(count), Some(others)) if count % others != 0 => {
            return Err(cx.bad_shape(format!("{count} elements do not divide by {others}")));
        }
        _ => {}
    }
    checked_dim(cx, count.floor_div(&others), "reshape")
}

pub(in crate::infer) fn flatten(op: &crate::Flatten, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let Some(shape) = cx.shape(0)? else {
        let shape = cx.fresh_shape(2, "flatten");
        return Ok(vec![Inferred::tensor(dtype, shape)]);
    };
    let rank = shape.rank();
    let axis = if op.axis == rank as i64 { rank } else { cx.axis(op.axis, rank)? };
    let (outer, inner) = shape.dims().split_at(axis);
    let counts = [outer, inner].map(|dims| Shape::new(dims.to_vec()).element_count());
    let dims: Result<Vec<Dim>, InferError> =
        counts.into_iter().map(|count| checked_dim(cx, count, "flatten")).collect();
    same_elements(cx, Shape::new(dims?))
}

pub(in crate::infer) fn squeeze(_op: &crate::Squeeze, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let axes = if cx.has_input(1) { Some(List::of(cx, 1)?) } else { None };
    let Some(shape) = cx.shape(0)? else { return Ok(unranked(dtype)) };
    let axes = match axes.as_ref().map(|axes| (axes.numbers(), axes.len())) {
        Some((Some(axes), _)) => cx.distinct_axes(&axes, shape.rank())?,
        Some((None, Some(n_axes))) => {
            let rank = shape.rank().checked_sub(n_axes);
            let rank = rank.ok_or_else(|| cx.bad_shape(format!("{n_axes} axes of a tensor {shape}")))?;
            let shape = cx.fresh_shape(rank, "squeeze");
            return Ok(vec![Inferred::tensor(dtype, shape)]);
        }
        Some((None, None)) => return Ok(unranked(dtype)),
        // A dimension without a value may or may not be 1.
        None if shape.iter().any(|dim| dim.as_const().is_none()) => return Ok(unranked(dtype)),
        None => (0..shape.rank()).filter(|&axis| shape[axis] == 1).collect(),
    };
    if let Some(&axis) = axes.iter().find(|&&axis| shape[axis].as_const().is_some_and(|dim| dim != 1)) {
        return Err(cx.bad_shape(format!("axis {axis} of {shape} is not 1")));
    }
    let kept = shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    same_elements(cx, kept.map(|(_, dim)| dim).collect())
}

pub(in crate::infer) fn unsqueeze(_op: &crate::Unsqueeze, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let axes = List::of(cx, 1)?;
    let (Some(shape), Some(n_axes)) = (cx.shape(0)?, axes.len()) else { return Ok(unranked(dtype)) };
    let rank = shape.rank() + n_axes;
    let Some(axes) = axes.numbers() else {
        let shape = cx.fresh_shape(rank, "unsqueeze");
        return Ok(vec![Inferred::tensor(dtype, shape)]);
    };
    let axes = cx.distinct_axes(&axes, rank)?;
    let mut dims = shape.iter();
    let one = &Dim::ONE;
    let widened = (0..rank).map(|axis| if axes.contains(&axis) { one } else { dims.next().unwrap_or(one) });
    same_elements(cx, widened.collect())
}
