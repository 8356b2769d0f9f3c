//! Inference: conversions between element types and quantization.

mod cast;
mod conv;
mod matmul;
mod quantize;
#[cfg(test)]
mod tests;

pub(super) use cast::{bit_cast, cast};
pub(super) use conv::{conv_integer, qlinear_conv};
pub(super) use matmul::{matmul_integer, qlinear_matmul};
pub(super) use quantize::{dequantize_linear, dynamic_quantize_linear, quantize_linear};

use planish_tensor::{DType, Dim, Shape};

use super::checks::differ;
use super::{InferError, Inference};

fn is_int8(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// Whether a shape is known to have exactly one element.
fn is_single(shape: &Shape) -> bool {
    shape.iter().all(|dim| *dim == 1)
}

/// The element type of an input that must satisfy `accepts`.
fn dtype_of(
    cx: &Inference<'_>,
    idx: usize,
    name: &str,
    accepts: impl Fn(DType) -> bool,
) -> Result<DType, InferError> {
    let dtype = cx.dtype(idx)?;
    if accepts(dtype) {
        return Ok(dtype);
    }
    Err(cx.bad_type(format!("`{name}` (input {idx}) cannot have elements of type {dtype}")))
}

/// Refuses a zero point of another type than the elements it belongs to.
fn check_zero_type(cx: &Inference<'_>, zero_idx: usize, idx: usize) -> Result<(), InferError> {
    let Some(zero) = cx.optional_tensor(zero_idx)? else { return Ok(()) };
    let dtype = cx.dtype(idx)?;
    if zero.dtype == dtype {
        return Ok(());
    }
    Err(cx.bad_type(format!(
        "the zero point (input {zero_idx}) has type {}, its elements (input {idx}) have type {dtype}",
        zero.dtype
    )))
}

/// Refuses a parameter that must have one element and is known to have more or fewer.
fn check_scalar(cx: &Inference<'_>, idx: usize, name: &str) -> Result<(), InferError> {
    let shape = cx.optional_tensor(idx)?.and_then(|ty| ty.shape.as_ref());
    match shape {
        Some(shape) if shape.iter().any(|dim| differ(dim, &Dim::ONE)) => {
            Err(cx.bad_shape(format!("`{name}` (input {idx}) must be a scalar, its shape is {shape}")))
        }
        _ => Ok(()),
    }
}
