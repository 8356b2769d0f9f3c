//! Tensors put together along an axis, and taken apart again.

use planish_tensor::{Dim, Shape};

use super::{List, with_dim};
use crate::infer::checks::{checked_dim, same_dim, same_dtype};
use crate::infer::known::{Known, with_known};
use crate::infer::{InferError, InferResult, Inference, Inferred};

pub(in crate::infer) fn concat(op: &crate::Concat, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let mut shapes = Vec::with_capacity(cx.n_inputs());
    for idx in 0..cx.n_inputs() {
        same_dtype(cx, 0, idx)?;
        shapes.push(cx.shape(idx)?);
    }
    // One known rank is everybody's; dimensions beside the axis are known if any input knows them.
    let Some(rank) = shapes.iter().flatten().map(|shape| shape.rank()).next() else {
        return Ok(super::unranked(dtype));
    };
    let axis = cx.axis(op.axis, rank)?;
    let mut dims: Vec<Option<Dim>> = vec![None; rank];
    for shape in shapes.iter().flatten() {
        if shape.rank() != rank {
            return Err(cx.bad_shape(format!("{shape} does not have rank {rank} like the others")));
        }
        for (other, dim) in shape.iter().enumerate().filter(|(other, _)| *other != axis) {
            dims[other] = Some(match &dims[other] {
                Some(known) => same_dim(cx, "a dimension beside the axis", known, dim)?,
                None => dim.clone(),
            });
        }
    }
    let all: Option<Vec<&Shape>> = shapes.iter().copied().collect();
    dims[axis] = Some(all.map_or(Dim::UNKNOWN, |all| all.iter().map(|shape| &shape[axis]).sum()));
    let dims: Result<Vec<Dim>, InferError> =
        dims.into_iter().map(|dim| checked_dim(cx, dim.unwrap_or(Dim::UNKNOWN), "concat")).collect();
    let parts: Option<Vec<Known>> = (0..cx.n_inputs()).map(|idx| Known::of(cx, idx)).collect();
    let known = parts.and_then(|parts| Known::concat(&parts, axis));
    Ok(vec![with_known(dtype, Shape::new(dims?), known)])
}

pub(in crate::infer) fn split(op: &crate::Split, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let n = cx.n_outputs();
    let sizes = if cx.has_input(1) { Some(List::of(cx, 1)?) } else { None };
    let n_parts = match &sizes {
        Some(sizes) => sizes.len(),
        None => Some(op.num_outputs.map_or(Ok(n), usize::try_from).unwrap_or(0)),
    };
    if n_parts.is_some_and(|n_parts| n_parts != n) || n == 0 {
        let n_parts = n_parts.unwrap_or(0);
        return Err(cx.bad_attribute(format!("{n_parts} parts do not fit {n} outputs")));
    }
    let Some(shape) = cx.shape(0)? else {
        return Ok((0..n).map(|_| Inferred::maybe_ranked(dtype, None)).collect());
    };
    let axis = cx.axis(op.axis, shape.rank())?;
    let dims = match &sizes {
        Some(sizes) => given_sizes(cx, &shape[axis], sizes, n)?,
        None => equal_sizes(cx, &shape[axis], n)?,
    };
    let known = Known::of(cx, 0);
    let mut start = 0;
    let mut outputs = Vec::with_capacity(n);
    for dim in dims {
        let part = with_dim(shape, axis, dim.clone());
        let content = known.as_ref().zip(part.as_fixed()).and_then(|(known, fixed)| {
            known.indexed(&fixed, |index| {
                let mut source = index.to_vec();
                source[axis] = source[axis].checked_add(start)?;
                Some(source)
            })
        });
        start = start.saturating_add(dim.as_usize().unwrap_or(usize::MAX));
        outputs.push(with_known(dtype, part, content));
    }
    Ok(outputs)
}

fn given_sizes(cx: &mut Inference<'_>, dim: &Dim, sizes: &List, n: usize) -> Result<Vec<Dim>, InferError> {
    let parts: Vec<Dim> = (0..n).map(|idx| sizes.get(idx).cloned().unwrap_or(Dim::UNKNOWN)).collect();
    let total: Dim = parts.iter().sum();
    if !total.is_unknown() {
        same_dim(cx, "the dimension that is split", dim, &total)?;
    } else if parts.iter().all(|part| part.as_const().is_some()) {
        return Err(cx.bad_shape("the parts add up to more than any axis has"));
    }
    // One part that is not known is what the others leave.
    let others: Dim = parts.iter().filter(|part| !part.is_unknown()).sum();
    let n_unknown = parts.iter().filter(|part| part.is_unknown()).count();
    let fill = |part: Dim| if part.is_unknown() && n_unknown == 1 { dim - &others } else { part };
    parts.into_iter().map(|part| checked_dim(cx, fill(part), "split")).collect()
}

/// `n` parts of equal size, the last one smaller if need be.
fn equal_sizes(cx: &mut Inference<'_>, dim: &Dim, n: usize) -> Result<Vec<Dim>, InferError> {
    let n_dim = Dim::from(n);
    let size = dim.ceil_div(&n_dim);
    let last = dim - &size * (n_dim - 1);
    (0..n)
        .map(|idx| checked_dim(cx, if idx + 1 < n { size.clone() } else { last.clone() }, "split"))
        .collect()
}
