//! `ConvInteger` and `QLinearConv`: the shape of a convolution with symbolic sizes.

use planish_tensor::{DType, Dim, Shape};

use super::{check_scalar, check_zero_type, differ, dtype_of, is_int8, is_wide_float};
use crate::infer::{InferError, InferResult, Inference, Inferred};
use crate::{AutoPad, ConvInteger, QLinearConv};

/// The attributes that all convolutions share.
struct WindowAttributes<'a> {
    group: i64,
    pads: &'a [i64],
    strides: &'a [i64],
    dilations: &'a [i64],
    kernel_shape: Option<&'a [i64]>,
    auto_pad: AutoPad,
}

macro_rules! from_ops {
    ($($op:ty),*) => {
        $(impl<'a> From<&'a $op> for WindowAttributes<'a> {
            fn from(op: &'a $op) -> Self {
                WindowAttributes {
                    group: op.group,
                    pads: &op.pads,
                    strides: &op.strides,
                    dilations: &op.dilations,
                    kernel_shape: op.kernel_shape.as_deref(),
                    auto_pad: op.auto_pad,
                }
            }
        })*
    };
}

from_ops! { ConvInteger, QLinearConv }

impl WindowAttributes<'_> {
    /// Refuses attributes of the wrong length or sign for `n` spatial axes.
    fn check(&self, cx: &Inference<'_>, n: usize) -> Result<(), InferError> {
        if self.group < 1 {
            return Err(cx.bad_attribute(format!("`group` is {}, it must be positive", self.group)));
        }
        let kernel_shape = self.kernel_shape.unwrap_or(&[]);
        let steps =
            [("strides", self.strides), ("dilations", self.dilations), ("kernel_shape", kernel_shape)];
        for (name, values) in steps {
            if !values.is_empty() && (values.len() != n || values.iter().any(|&value| value < 1)) {
                let reason = format!("`{name}` is {values:?}; it needs {n} positive numbers");
                return Err(cx.bad_attribute(reason));
            }
        }
        let pads = self.pads;
        if !pads.is_empty() && (pads.len() != 2 * n || pads.iter().any(|&pad| pad < 0)) {
            return Err(cx.bad_attribute(format!("`pads` is {pads:?}; it needs {} sizes", 2 * n)));
        }
        Ok(())
    }

    /// The output's size on a spatial axis; `None` if the kernel is known not to fit.
    fn output(&self, axis: usize, input: &Dim, kernel: &Dim) -> Option<Dim> {
        let step = |values: &[i64]| Dim::from(values.get(axis).copied().unwrap_or(1));
        let (stride, dilation) = (step(self.strides), step(self.dilations));
        if kernel.as_const().is_some_and(|size| size < 1) {
            return None;
        }
        let (begin, end) = match self.auto_pad {
            AutoPad::SameUpper | AutoPad::SameLower => return Some(input.ceil_div(&stride)),
            AutoPad::Valid => (0, 0),
            AutoPad::NotSet => {
                let pad = |place: usize| self.pads.get(place).copied().unwrap_or(0);
                (pad(axis), pad(self.pads.len() / 2 + axis))
            }
        };
        let padded = input + Dim::from(begin) + Dim::from(end);
        let last = padded - (kernel - Dim::ONE) * dilation - Dim::ONE;
        if last.as_const().is_some_and(|last| last < 0) {
            return None;
        }
        Some(last.floor_div(&stride) + Dim::ONE)
    }
}

/// The output's shape, `x` and `w` being inputs `x_idx` and `w_idx`; `None` if the rank is unknown.
fn conv_shape(
    cx: &mut Inference<'_>,
    attributes: &WindowAttributes<'_>,
    x_idx: usize,
    w_idx: usize,
) -> Result<Option<Shape>, InferError> {
    let (x, w) = (cx.shape(x_idx)?, cx.shape(w_idx)?);
    let Some(x) = x else { return Ok(None) };
    let [batch, x_channels, input @ ..] = x.dims() else {
        return Err(cx.bad_shape(format!("`x` needs at least 3 axes, its shape is {x}")));
    };
    if input.is_empty() || w.is_some_and(|w| w.rank() != x.rank()) {
        let w = w.map_or(String::new(), |w| format!(" and `w` {w}"));
        return Err(cx.bad_shape(format!("`x` {x}{w} need the same rank, 3 or more")));
    }
    attributes.check(cx, input.len())?;
    let kernel_shape = attributes.kernel_shape.filter(|kernel| !kernel.is_empty());
    let given: Option<Vec<Dim>> = kernel_shape.map(|kernel| kernel.iter().copied().map(Dim::from).collect());
    let (channels, kernel) = match w {
        Some(w) => {
            let (channels, w_channels, own) = (&w[0], &w[1], &w.dims()[2..]);
            let group = Dim::from(attributes.group);
            if differ(&(w_channels * &group), x_channels) || differ(&channels.rem(&group), &Dim::ZERO) {
                return Err(cx.bad_shape(format!("`x` {x} and `w` {w} do not fit {group} groups")));
            }
            if let Some(given) = &given
                && given.iter().zip(own).any(|(given, own)| differ(given, own))
            {
                let given = Shape::from_iter(given);
                return Err(cx.bad_attribute(format!("`kernel_shape` is {given}, but `w` has shape {w}")));
            }
            (channels.clone(), given.unwrap_or_else(|| own.to_vec()))
        }
        None => {
            let channels = cx.fresh_dim("channels");
            (channels, given.unwrap_or_else(|| vec![Dim::UNKNOWN; input.len()]))
        }
    };
    let mut dims = vec![batch.clone(), channels];
    for (axis, (input, kernel)) in input.iter().zip(&kernel).enumerate() {
        let size = attributes.output(axis, input, kernel).ok_or_else(|| {
            cx.bad_shape(format!(
                "a kernel of {kernel} does not fit an input of {input} on spatial axis {axis}"
            ))
        })?;
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
    let shape = conv_shape(cx, &op.into(), 0, 1)?;
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
    let shape = conv_shape(cx, &op.into(), 0, 3)?;
    for (idx, name) in [(1, "x_scale"), (2, "x_zero_point"), (6, "y_scale"), (7, "y_zero_point")] {
        check_scalar(cx, idx, name)?;
    }
    check_per_channel(cx, 4, "w_scale", 3, true)?;
    check_per_channel(cx, 5, "w_zero_point", 3, true)?;
    check_per_channel(cx, 8, "B", 3, false)?;
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}
