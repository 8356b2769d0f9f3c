//! `ConvInteger` and `QLinearConv`: convolutions of 8-bit integers, summed in `i32`.

use planish_op::window::WindowAttributes;
use planish_op::{ConvInteger, QLinearConv};
use planish_tensor::{DType, Tensor};

use super::{bad_input_type, is_int8, quantized, single, store, to_i32s};
use crate::conv::Convolution;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// A parameter of the output channels, as many values as there are channels or one for all.
struct PerChannel(Vec<f64>);

impl PerChannel {
    fn new(
        cx: &Evaluation<'_>,
        name: &str,
        parameter: &Tensor,
        n_channels: usize,
    ) -> Result<PerChannel, EvalError> {
        let shape = parameter.shape();
        if parameter.len() != 1 && shape != [n_channels] {
            return Err(cx.bad_shape(format!(
                "`{name}` must be a scalar or have shape [{n_channels}], it is {shape:?}"
            )));
        }
        Ok(PerChannel(parameter.to_f64s()))
    }

    fn of(&self, channel: usize) -> f64 {
        self.0[channel % self.0.len()]
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
    let convolution = Convolution::new(cx, x.tensor.shape(), w.tensor.shape(), &window, group)?;
    let shape = convolution.shape();
    let x_zero = x.zero_point.map_or(Ok(0.0), |zero| single(cx, "x_zero_point", zero))? as i32;
    let x_values: Vec<i32> = to_i32s(x.tensor).into_iter().map(|value| value - x_zero).collect();
    let mut w_values = to_i32s(w.tensor);
    if let Some(zero) = w.zero_point {
        let zeros = PerChannel::new(cx, "w_zero_point", zero, shape[1])?;
        let per_channel = w_values.len().checked_div(shape[1]).unwrap_or(0).max(1);
        for (channel, values) in w_values.chunks_exact_mut(per_channel).enumerate() {
            values.iter_mut().for_each(|value| *value -= zeros.of(channel) as i32);
        }
    }
    Ok((shape, convolution.compute(&x_values, &w_values)))
}

pub(crate) fn conv_integer(op: &ConvInteger, cx: &Evaluation<'_>) -> EvalResult {
    let x = Operand { name: "x", tensor: cx.tensor(0)?, zero_point: cx.optional_tensor(2)? };
    let w = Operand { name: "w", tensor: cx.tensor(1)?, zero_point: cx.optional_tensor(3)? };
    let (shape, sums) = integer_conv(cx, (op.window(), op.group), x, w)?;
    Ok(vec![Tensor::new(&shape, sums)?.into()])
}

pub(crate) fn qlinear_conv(op: &QLinearConv, cx: &Evaluation<'_>) -> EvalResult {
    let x = Operand { name: "x", tensor: cx.tensor(0)?, zero_point: cx.optional_tensor(2)? };
    let w = Operand { name: "w", tensor: cx.tensor(3)?, zero_point: cx.optional_tensor(5)? };
    let (x_scale, w_scale, y_scale) = (cx.tensor(1)?, cx.tensor(4)?, cx.tensor(6)?);
    for (name, scale) in [("x_scale", x_scale), ("w_scale", w_scale), ("y_scale", y_scale)] {
        if !scale.dtype().is_wide_float() {
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

    let (shape, sums) = integer_conv(cx, (op.window(), op.group), x, w)?;
    let n_channels = shape[1];
    let w_scales = PerChannel::new(cx, "w_scale", w_scale, n_channels)?;
    let bias: Option<Vec<i32>> = match cx.optional_tensor(8)? {
        Some(bias) if bias.dtype() != DType::I32 => return Err(bad_input_type(cx, "B", bias.dtype())),
        Some(bias) if bias.shape() != [n_channels] => {
            let found = bias.shape();
            return Err(cx.bad_shape(format!("`B` must have shape [{n_channels}], it is {found:?}")));
        }
        Some(bias) => Some(bias.elements::<i32>()?.into_owned()),
        None => None,
    };
    let n_positions = nd::count(&shape[2..]);
    let requantize = |(flat, sum): (usize, i32)| {
        let channel = flat / n_positions % n_channels;
        let sum = sum.wrapping_add(bias.as_ref().map_or(0, |bias| bias[channel]));
        quantized(dtype, f64::from(sum) * (x_scale * w_scales.of(channel) / y_scale), y_zero)
    };
    let values: Vec<f64> = sums.into_iter().enumerate().map(requantize).collect();
    Ok(vec![store(dtype, &shape, &values, true)?.into()])
}
