//! `ConvInteger` and `QLinearConv`: convolutions of 8-bit integers, summed in `i32`.

use planish_op::window::{PlacedAxis, WindowAttributes, WindowError};
use planish_op::{ConvInteger, QLinearConv};
use planish_tensor::{DType, Dim, Tensor, element_count};

use super::matmul::single;
use super::{bad_input_type, is_int8, is_wide_float, quantized, store};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

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

/// One parameter per output channel, from a scalar or a vector.
fn per_channel(
    cx: &Evaluation<'_>,
    name: &str,
    parameter: &Tensor,
    n_channels: usize,
) -> Result<Vec<f64>, EvalError> {
    match parameter.to_f64s() {
        values if values.len() == 1 => Ok(vec![values[0]; n_channels]),
        values if parameter.shape() == [n_channels] => Ok(values),
        _ => {
            let shape = parameter.shape();
            Err(cx.bad_shape(format!(
                "`{name}` must be a scalar or have shape [{n_channels}], it is {shape:?}"
            )))
        }
    }
}

/// An input with its zero point and the place it has in the operator's list.
struct Operand<'a> {
    name: &'a str,
    tensor: &'a Tensor,
    zero_point: Option<&'a Tensor>,
}

impl Operand<'_> {
    fn check(&self, cx: &Evaluation<'_>) -> Result<(), EvalError> {
        let dtype = self.tensor.dtype();
        if !is_int8(dtype) {
            return Err(bad_input_type(cx, self.name, dtype));
        }
        match self.zero_point.map(Tensor::dtype) {
            Some(zero) if zero != dtype => Err(cx.error(
                EvalErrorKind::BadType,
                format!("the zero point of `{}` has type {zero}, its elements {dtype}", self.name),
            )),
            _ => Ok(()),
        }
    }
}

/// The convolution of `x` and `w`, each less its zero point. Padding counts as zero, that is, as elements
/// equal to the zero point. Sums wrap at 32 bits, as ONNX allows.
fn integer_conv(
    cx: &Evaluation<'_>,
    (window, group): (WindowAttributes<'_>, i64),
    x: Operand<'_>,
    w: Operand<'_>,
) -> Result<(Vec<usize>, Vec<i32>), EvalError> {
    x.check(cx)?;
    w.check(cx)?;
    let (x_shape, w_shape) = (x.tensor.shape(), w.tensor.shape());
    let ([batch, x_channels, input @ ..], [channels, w_channels, kernel @ ..]) = (x_shape, w_shape) else {
        return Err(cx.bad_shape(format!("`x` {x_shape:?} and `w` {w_shape:?} need at least 3 axes")));
    };
    if input.is_empty() || input.len() != kernel.len() {
        return Err(
            cx.bad_shape(format!("`x` {x_shape:?} and `w` {w_shape:?} need the same rank, 3 or more"))
        );
    }
    let (batch, channels, w_channels) = (*batch, *channels, *w_channels);
    let Some(group) = usize::try_from(group).ok().filter(|&group| group > 0) else {
        return Err(cx.bad_attribute(format!("`group` is {group}, it must be positive")));
    };
    if w_channels.checked_mul(group) != Some(*x_channels) || channels % group != 0 {
        return Err(cx.bad_shape(format!("`x` {x_shape:?} and `w` {w_shape:?} do not fit {group} groups")));
    }
    let axes = place(&window, input, kernel).map_err(|error| cx.bad_window(error))?;
    let output: Vec<usize> = axes.iter().map(|axis| axis.output).collect();
    let y_shape = [&[batch, channels], output.as_slice()].concat();
    if nd::output_len(cx, DType::I32, &y_shape)? == 0 {
        return Ok((y_shape, Vec::new()));
    }

    let x_zero = x.zero_point.map_or(Ok(0.0), |zero| single(cx, "x_zero_point", zero))? as i32;
    let w_zeros = match w.zero_point {
        Some(zero) => per_channel(cx, "w_zero_point", zero, channels)?,
        None => vec![0.0; channels],
    };
    let x_values: Vec<i32> = x.tensor.to_i64s().into_iter().map(|value| value as i32 - x_zero).collect();
    let w_values: Vec<i32> = w.tensor.to_i64s().into_iter().map(|value| value as i32).collect();
    let (n_inputs, n_taps, n_outputs) = (nd::count(input), nd::count(kernel), nd::count(&output));
    let taps: Vec<Vec<usize>> = (0..n_taps).map(|tap| nd::unravel(tap, kernel)).collect();
    let channels_per_group = channels / group;
    let steps = n_outputs.saturating_mul(n_taps).saturating_mul(w_channels);
    let sums = nd::fill_blocks(batch * channels, n_outputs, steps, |block, out| {
        let (image, channel) = (block / channels, block % channels);
        let first_input = image * group + channel / channels_per_group;
        let x_group = &x_values[first_input * w_channels * n_inputs..][..w_channels * n_inputs];
        let w_filter = &w_values[channel * w_channels * n_taps..][..w_channels * n_taps];
        let w_zero = w_zeros[channel] as i32;
        for (place, sum) in out.iter_mut().enumerate() {
            let place = nd::unravel(place, &output);
            for (tap_idx, tap) in taps.iter().enumerate() {
                let Some(at) = input_at(&axes, &place, tap) else { continue };
                for input_channel in 0..w_channels {
                    let value = x_group[input_channel * n_inputs + at];
                    let weight = w_filter[input_channel * n_taps + tap_idx] - w_zero;
                    *sum = i32::wrapping_add(*sum, value * weight);
                }
            }
        }
    });
    Ok((y_shape, sums))
}

/// The windows of a kernel over an input, along each spatial axis.
fn place(
    window: &WindowAttributes<'_>,
    input: &[usize],
    kernel: &[usize],
) -> Result<Vec<PlacedAxis>, WindowError> {
    let kernel: Vec<Dim> = kernel.iter().copied().map(Dim::from).collect();
    let axes = window.axes(&window.kernel_of_weight(&kernel)?)?;
    axes.iter().zip(input).map(|(axis, &size)| axis.place(size)).collect()
}

/// The flat spatial index of the input under `tap` of the window at `place`; `None` in the padding.
fn input_at(axes: &[PlacedAxis], place: &[usize], tap: &[usize]) -> Option<usize> {
    axes.iter()
        .zip(place.iter().zip(tap))
        .try_fold(0, |flat, (axis, (&place, &tap))| Some(flat * axis.input + axis.position(place, tap)?))
}

pub(crate) fn conv_integer(op: &ConvInteger, cx: &Evaluation<'_>) -> EvalResult {
    let x = Operand { name: "x", tensor: cx.tensor(0)?, zero_point: cx.optional_tensor(2)? };
    let w = Operand { name: "w", tensor: cx.tensor(1)?, zero_point: cx.optional_tensor(3)? };
    let (shape, sums) = integer_conv(cx, window_of!(op), x, w)?;
    Ok(vec![Tensor::new(&shape, sums)?.into()])
}

pub(crate) fn qlinear_conv(op: &QLinearConv, cx: &Evaluation<'_>) -> EvalResult {
    let x = Operand { name: "x", tensor: cx.tensor(0)?, zero_point: cx.optional_tensor(2)? };
    let w = Operand { name: "w", tensor: cx.tensor(3)?, zero_point: cx.optional_tensor(5)? };
    let (x_scale, w_scale, y_scale) = (cx.tensor(1)?, cx.tensor(4)?, cx.tensor(6)?);
    for (name, scale) in [("x_scale", x_scale), ("w_scale", w_scale), ("y_scale", y_scale)] {
        if !is_wide_float(scale.dtype()) {
            return Err(bad_input_type(cx, name, scale.dtype()));
        }
    }
    let y_zero = cx.optional_tensor(7)?;
    let dtype = y_zero.unwrap_or(x.tensor).dtype();
    if !is_int8(dtype) {
        return Err(bad_input_type(cx, "y_zero_point", dtype));
    }
    let y_zero = y_zero.map_or(Ok(0.0), |zero| single(cx, "y_zero_point", zero))?;
    let (x_scale, y_scale) = (single(cx, "x_scale", x_scale)?, single(cx, "y_scale", y_scale)?);

    let (shape, sums) = integer_conv(cx, window_of!(op), x, w)?;
    let n_channels = shape[1];
    let w_scales = per_channel(cx, "w_scale", w_scale, n_channels)?;
    let bias: Vec<i32> = match cx.optional_tensor(8)? {
        Some(bias) if bias.dtype() != DType::I32 => return Err(bad_input_type(cx, "B", bias.dtype())),
        Some(bias) if bias.shape() != [n_channels] => {
            let found = bias.shape();
            return Err(cx.bad_shape(format!("`B` must have shape [{n_channels}], it is {found:?}")));
        }
        Some(bias) => bias.elements::<i32>()?.into_owned(),
        None => vec![0; n_channels],
    };
    // The product cannot overflow unless the output is empty, and then it is not used.
    let n_outputs = element_count(&shape[2..]).unwrap_or(1);
    let requantize = |(flat, sum): (usize, i32)| {
        let channel = flat / n_outputs % n_channels;
        let scale = x_scale * w_scales[channel] / y_scale;
        quantized(dtype, f64::from(sum.wrapping_add(bias[channel])) * scale, y_zero)
    };
    let values: Vec<f64> = sums.into_iter().enumerate().map(requantize).collect();
    Ok(vec![store(dtype, &shape, &values, true)?.into()])
}
