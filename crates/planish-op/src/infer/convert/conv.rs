//! `ConvInteger` and `QLinearConv`: the shape of a convolution, and parameters per output channel.

use planish_tensor::DType;

use super::{check_scalar, check_zero_type, dtype_of, is_int8};
use crate::infer::checks::differ;
use crate::infer::conv::convolved_shape;
use crate::infer::{InferError, InferResult, Inference, Inferred};
use crate::{ConvInteger, QLinearConv};

/// Refuses a parameter of the weights (or a bias) that is known to fit neither a scalar nor the channels.
fn check_per_channel(
    cx: &Inference<'_>,
    idx: usize,
    name: &str,
    w_idx: usize,
    may_be_scalar: bool,
) -> Result<(), InferError> {
    let Some(parameter) = cx.optional_tensor(idx)?.and_then(|ty| ty.shape.as_ref()) else { return Ok(()) };
    let channels = cx.shape(w_idx)?.and_then(|w| w.get(0));
    let fits = match parameter.dims() {
        [] => may_be_scalar,
        [len] => (may_be_scalar && *len == 1) || !channels.is_some_and(|channels| differ(len, channels)),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(cx.bad_shape(format!("`{name}` (input {idx}) of shape {parameter} does not fit the output channels")))
}

pub(in crate::infer) fn conv_integer(op: &ConvInteger, cx: &mut Inference<'_>) -> InferResult {
    dtype_of(cx, 0, "x", is_int8)?;
    dtype_of(cx, 1, "w", is_int8)?;
    check_zero_type(cx, 2, 0)?;
    check_zero_type(cx, 3, 1)?;
    let shape = convolved_shape(cx, 0, 1, &op.window(), op.group)?;
    check_scalar(cx, 2, "x_zero_point")?;
    check_per_channel(cx, 3, "w_zero_point", 1, true)?;
    Ok(vec![Inferred::maybe_ranked(DType::I32, shape)])
}

pub(in crate::infer) fn qlinear_conv(op: &QLinearConv, cx: &mut Inference<'_>) -> InferResult {
    let x = dtype_of(cx, 0, "x", is_int8)?;
    dtype_of(cx, 3, "w", is_int8)?;
    for (idx, name) in [(1, "x_scale"), (4, "w_scale"), (6, "y_scale")] {
        dtype_of(cx, idx, name, DType::is_wide_float)?;
    }
    check_zero_type(cx, 2, 0)?;
    check_zero_type(cx, 5, 3)?;
    let dtype = if cx.has_input(7) { dtype_of(cx, 7, "y_zero_point", is_int8)? } else { x };
    if cx.has_input(8) {
        dtype_of(cx, 8, "B", |dtype| dtype == DType::I32)?;
    }
    let shape = convolved_shape(cx, 0, 3, &op.window(), op.group)?;
    for (idx, name) in [(1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")] {
        check_scalar(cx, idx, name)?;
    }
    check_per_channel(cx, 4, "w_scale", 3, true)?;
    check_per_channel(cx, 5, "w_zero_point", 3, true)?;
    check_per_channel(cx, 8, "B", 3, false)?;
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}
