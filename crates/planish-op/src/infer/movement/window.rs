//! Padding, and cropping about the centre.

use planish_tensor::{Dim, Shape};

use super::List;
use crate::PadMode;
use crate::infer::checks::{checked_dim, same_dtype};
use crate::infer::known::{Element, Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

pub(in crate::infer) fn pad(op: &crate::Pad, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let pads = List::of(cx, 1)?;
    if cx.has_input(2) {
        same_dtype(cx, 0, 2)?;
    }
    let axes = if cx.has_input(3) { Some(List::of(cx, 3)?) } else { None };
    let Some(shape) = cx.shape(0)? else {
        // Without axes there are two pads for each dimension.
        let rank = pads.len().filter(|_| axes.is_none()).map(|len| len / 2);
        let shape = rank.map(|rank| cx.fresh_shape(rank, "pad"));
        return Ok(vec![Inferred::maybe_ranked(dtype, shape)]);
    };
    let n_axes = axes.as_ref().map_or(Some(shape.rank()), List::len);
    if let (Some(n_axes), Some(n_pads)) = (n_axes, pads.len())
        && n_pads != 2 * n_axes
    {
        return Err(cx.bad_shape(format!("{n_pads} pads do not fit {n_axes} axes of {shape}")));
    }
    let axes = match &axes {
        None => Some((0..shape.rank()).collect()),
        Some(axes) => axes.numbers().map(|axes| cx.distinct_axes(&axes, shape.rank())).transpose()?,
    };
    let Some(axes) = axes else {
        let shape = cx.fresh_shape(shape.rank(), "pad");
        return Ok(vec![Inferred::tensor(dtype, shape)]);
    };
    let mut dims = shape.dims().to_vec();
    for (idx, &axis) in axes.iter().enumerate() {
        let padded = match (pads.get(idx), pads.get(idx + axes.len())) {
            (Some(before), Some(after)) => &dims[axis] + before + after,
            _ => Dim::UNKNOWN,
        };
        dims[axis] = checked_dim(cx, padded, "pad")?;
    }
    let padded = Shape::new(dims);
    let known = (op.mode == PadMode::Constant).then(|| padded_list(cx, &pads, &axes)).flatten();
    Ok(vec![with_known(dtype, padded, known)])
}

/// A vector of known elements with constants before and after it.
fn padded_list(cx: &Inference<'_>, pads: &List, axes: &[usize]) -> Option<Known> {
    let (known, [0], [before, after]) = (Known::of(cx, 0)?, axes, &pads.numbers()?[..]) else { return None };
    let fill = match (cx.has_input(2), known.elements.first()) {
        (true, _) => Known::of(cx, 2)?.elements.first()?.clone(),
        (false, Some(Element::Float(_))) => Element::Float(0.0),
        (false, _) => Element::Int(Dim::ZERO),
    };
    let [before, after] = [before, after].map(|&count| usize::try_from(count).ok());
    Known::concat(&[Known::full(&[before?], &fill)?, known, Known::full(&[after?], &fill)?], 0)
}

pub(in crate::infer) fn center_crop_pad(op: &crate::CenterCropPad, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let target = List::of(cx, 1)?;
    let rank = match (cx.shape(0)?, &op.axes) {
        (Some(shape), _) => Some(shape.rank()),
        (None, None) => target.len(),
        (None, Some(_)) => None,
    };
    let Some(rank) = rank else { return Ok(super::unranked(dtype)) };
    let axes = match &op.axes {
        Some(axes) => cx.distinct_axes(axes, rank)?,
        None => (0..rank).collect(),
    };
    if target.len().is_some_and(|len| len != axes.len()) {
        return Err(cx.bad_shape(format!("the target sizes do not fit {} axes", axes.len())));
    }
    let mut dims = cx.shape(0)?.map_or(vec![Dim::UNKNOWN; rank], |shape| shape.dims().to_vec());
    for (idx, &axis) in axes.iter().enumerate() {
        dims[axis] = target.get(idx).cloned().unwrap_or(Dim::UNKNOWN);
    }
    let dims: Result<Vec<Dim>, InferError> =
        dims.into_iter().map(|dim| checked_dim(cx, dim, "crop")).collect();
    Ok(vec![Inferred::tensor(dtype, Shape::new(dims?))])
}
