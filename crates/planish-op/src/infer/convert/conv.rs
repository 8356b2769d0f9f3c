//! `ConvInteger` and `QLinearConv`: the shape of a convolution with symbolic sizes.

use planish_tensor::{DType, Dim, Shape};

use super::{check_scalar, check_zero_type, dtype_of, is_int8};
use crate::infer::checks::is_wide_float;
use crate::infer::linear::differ;
use crate::infer::{InferError, InferResult, Inference, Inferred};
use crate::window::WindowAttributes;
use crate::{ConvInteger, QLinearConv};

/// The attributes that place a convolution's windows, and the number of groups.
macro_rules! window_of {
    ($op:expr) => {{
        let op = $op;
        let window = WindowAttributes {
            kernel_shape: op.kernel_shape.as_deref(),
            strides: &op.strides,
            dilations: &op.dilations,
            pads: &op.pads,
            auto_pad: op.auto_pad,
            ceil_mode: false,
        };
        (window, op.group)
    }};
}

/// The output's shape, `x` and `w` being inputs `x_idx` and `w_idx`; `None` if the rank is unknown.
fn conv_shape(
    cx: &mut Inference<'_>,
    (window, group): (WindowAttributes<'_>, i64),
    x_idx: usize,
    w_idx: usize,
) -> Result<Option<Shape>, InferError> {
    if group < 1 {
        return Err(cx.bad_attribute(format!("`group` is {group}, it must be positive")));
    }
    let (x, w) = (cx.shape(x_idx)?, cx.shape(w_idx)?);
    let Some(x) = x else { return Ok(None) };
    let [batch, x_channels, input @ ..] = x.dims() else {
        return Err(cx.bad_shape(format!("`x` needs at least 3 axes, its shape is {x}")));
    };
    if input.is_empty() || w.is_some_and(|w| w.rank() != x.rank()) {
        let w = w.map_or(String::new(), |w| format!(" and `w` {w}"));
        return Err(cx.bad_shape(format!("`x` {x}{w} need the same rank, 3 or more")));
    }
    let unknown_kernel = vec![Dim::UNKNOWN; input.len()];
    let (channels, kernel) = match w {
        Some(w) => {
            let (channels, w_channels) = (&w[0], &w[1]);
            let n_groups = Dim::from(group);
            if differ(&(w_channels * group), x_channels) || differ(&channels.rem(&n_groups), &Dim::ZERO) {
                return Err(cx.bad_shape(format!("`x` {x} and `w` {w} do not fit {group} groups")));
            }
            (channels.clone(), &w.dims()[2..])
        }
        None => (cx.fresh_dim("channels"), unknown_kernel.as_slice()),
    };
    let kernel = window.kernel_of_weight(kernel).map_err(|error| cx.bad_window(error))?;
    let axes = window.axes(&kernel).map_err(|error| cx.bad_window(error))?;
    let mut dims = vec![batch.clone(), channels];
    for (axis, input) in axes.iter().zip(input) {
        let size = axis.output(input).map_err(|error| cx.bad_window(error))?;
        dims.push(if size.is_unknown() { cx.fresh_dim("spatial") } else { size });
    }
    Ok(Some(Shape::new(dims)))
}

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
    let shape = conv_shape(cx, window_of!(op), 0, 1)?;
    check_scalar(cx, 2, "x_zero_point")?;
    check_per_channel(cx, 3, "w_zero_point", 1, true)?;
    Ok(vec![Inferred::maybe_ranked(DType::I32, shape)])
}

pub(in crate::infer) fn qlinear_conv(op: &QLinearConv, cx: &mut Inference<'_>) -> InferResult {
    let x = dtype_of(cx, 0, "x", is_int8)?;
    dtype_of(cx, 3, "w", is_int8)?;
    for (idx, name) in [(1, "x_scale"), (4, "w_scale"), (6, "y_scale")] {
        dtype_of(cx, idx, name, is_wide_float)?;
    }
    check_zero_type(cx, 2, 0)?;
    check_zero_type(cx, 5, 3)?;
    let dtype = if cx.has_input(7) { dtype_of(cx, 7, "y_zero_point", is_int8)? } else { x };
    if cx.has_input(8) {
        dtype_of(cx, 8, "B", |dtype| dtype == DType::I32)?;
    }
    let shape = conv_shape(cx, window_of!(op), 0, 3)?;
    for (idx, name) in [(1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")] {
        check_scalar(cx, idx, name)?;
    }
    check_per_channel(cx, 4, "w_scale", 3, true)?;
    check_per_channel(cx, 5, "w_zero_point", 3, true)?;
    check_per_channel(cx, 8, "B", 3, false)?;
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}
