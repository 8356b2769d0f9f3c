//! Inference: shape changes and data movement.

mod generate;
mod join;
mod reorder;
mod reshape;
mod slice;
#[cfg(test)]
mod tests;
mod window;

pub(super) use generate::{constant_of_shape, eye_like, range};
pub(super) use join::{concat, split};
pub(super) use reorder::{depth_to_space, expand, reverse_sequence, space_to_depth, tile, transpose, trilu};
pub(super) use reshape::{flatten, identity, reshape, shape, size, squeeze, unsqueeze};
pub(super) use slice::slice;
pub(super) use window::{center_crop_pad, pad};

use planish_tensor::{DType, Dim, Shape};

use super::{InferError, Inference, Inferred};

/// Longer lists of sizes or axes make no tensor that anybody has; hostile files have them.
const MAX_RANK: usize = 1024;

/// The one output of an operator whose input has an unknown rank.
fn unranked(dtype: DType) -> Vec<Inferred> {
    vec![Inferred::maybe_ranked(dtype, None)]
}

/// The length of a list of sizes or axes (an input of rank 1), if it is known.
pub(super) fn list_len(cx: &Inference<'_>, idx: usize) -> Result<Option<usize>, InferError> {
    let ty = cx.tensor(idx)?;
    if !ty.dtype.is_int() {
        return Err(cx.bad_type(format!("input {idx} must hold integers, it is {ty}")));
    }
    let Some(shape) = &ty.shape else { return Ok(None) };
    match shape.dims() {
        [] => Ok(Some(1)),
        [len] => match len.as_const() {
            Some(len) => match usize::try_from(len).ok().filter(|&len| len <= MAX_RANK) {
                Some(len) => Ok(Some(len)),
                None => Err(cx.bad_shape(format!("input {idx} has {len} elements"))),
            },
            None => Ok(None),
        },
        _ => Err(cx.bad_shape(format!("input {idx} must have rank 1, it is {ty}"))),
    }
}

/// A list of sizes or axes, as far as known.
pub(super) enum List {
    Known(Vec<Dim>),
    /// Only its length.
    Length(usize),
    Unknown,
}

impl List {
    pub(super) fn of(cx: &Inference<'_>, idx: usize) -> Result<List, InferError> {
        let len = list_len(cx, idx)?;
        Ok(match (cx.ints(idx), len) {
            (Some(ints), _) => List::Known(ints.dims),
            (None, Some(len)) => List::Length(len),
            (None, None) => List::Unknown,
        })
    }

    pub(super) fn len(&self) -> Option<usize> {
        match self {
            List::Known(dims) => Some(dims.len()),
            List::Length(len) => Some(*len),
            List::Unknown => None,
        }
    }

    /// Element `idx`, if it is known.
    pub(super) fn get(&self, idx: usize) -> Option<&Dim> {
        match self {
            List::Known(dims) => dims.get(idx).filter(|dim| !dim.is_unknown()),
            _ => None,
        }
    }

    /// All elements, if they are numbers.
    pub(super) fn numbers(&self) -> Option<Vec<i64>> {
        match self {
            List::Known(dims) => dims.iter().map(Dim::as_const).collect(),
            _ => None,
        }
    }
}

/// `shape` with one dimension replaced.
pub(super) fn with_dim(shape: &Shape, axis: usize, dim: Dim) -> Shape {
    let mut dims = shape.dims().to_vec();
    dims[axis] = dim;
    Shape::new(dims)
}
