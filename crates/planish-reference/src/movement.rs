//! Reference: shape changes and data movement.

mod generate;
pub(crate) mod join;
mod reorder;
mod reshape;
mod window;

pub(crate) use generate::{constant_of_shape, eye_like, range};
pub(crate) use join::{concat, split};
pub(crate) use reorder::{depth_to_space, expand, reverse_sequence, space_to_depth, tile, transpose, trilu};
pub(crate) use reshape::{flatten, identity, reshape, shape, size, squeeze, unsqueeze};
pub(crate) use window::{center_crop_pad, pad, slice};

use planish_tensor::Tensor;

use crate::{EvalError, EvalErrorKind, Evaluation};

/// The elements of an integer input of rank 0 or 1.
pub(crate) fn int_list(cx: &Evaluation<'_>, idx: usize) -> Result<Vec<i64>, EvalError> {
    let tensor = cx.tensor(idx)?;
    if !tensor.dtype().is_int() {
        let detail = format!("input {idx} must hold integers, its elements are {}", tensor.dtype());
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    if tensor.rank() > 1 {
        return Err(cx.bad_shape(format!("input {idx} must have rank 1, its shape is {:?}", tensor.shape())));
    }
    Ok(tensor.to_i64s())
}

/// The elements of an optional integer input of rank 0 or 1.
pub(crate) fn optional_int_list(cx: &Evaluation<'_>, idx: usize) -> Result<Option<Vec<i64>>, EvalError> {
    cx.optional_value(idx).map(|_| int_list(cx, idx)).transpose()
}

/// The element of a tensor that must have exactly one.
pub(crate) fn single_int(cx: &Evaluation<'_>, idx: usize) -> Result<i64, EvalError> {
    match int_list(cx, idx)?[..] {
        [value] => Ok(value),
        ref values => Err(cx.bad_shape(format!("input {idx} must be one number, it has {}", values.len()))),
    }
}

/// The value as a size, refused if it is negative.
pub(crate) fn to_size(cx: &Evaluation<'_>, value: i64, what: &str) -> Result<usize, EvalError> {
    usize::try_from(value)
        .map_err(|_| cx.error(EvalErrorKind::BadValue, format!("{what} must not be negative, it is {value}")))
}

/// `tensor` with another shape of the same element count.
pub(crate) fn reshaped(cx: &Evaluation<'_>, tensor: &Tensor, shape: &[usize]) -> Result<Tensor, EvalError> {
    tensor.reshaped(shape).map_err(|error| cx.bad_shape(error.to_string()))
}

#[cfg(test)]
mod tests;
