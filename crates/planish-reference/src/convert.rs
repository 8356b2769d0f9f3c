//! Reference: conversions between element types and quantization.

mod cast;
mod conv;
mod matmul;
mod quantize;
#[cfg(test)]
mod tests;

pub(crate) use cast::{bit_cast, cast};
pub(crate) use conv::{conv_integer, qlinear_conv};
pub(crate) use matmul::{matmul_integer, qlinear_matmul};
pub(crate) use quantize::{dequantize_linear, dynamic_quantize_linear, quantize_linear};

use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::{DType, Tensor, TensorError, small_float};

use crate::{EvalError, EvalErrorKind, Evaluation};

/// The refusal of an input's element type.
fn bad_input_type(cx: &Evaluation<'_>, name: &str, dtype: DType) -> EvalError {
    cx.error(EvalErrorKind::BadType, format!("`{name}` cannot have elements of type {dtype}"))
}

fn is_int8(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// `value` rounded to one of the kinds that arithmetic is done in; other kinds leave it alone.
fn round_to(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16_from_f64(value).to_f64(),
        DType::BF16 => bf16_from_f64(value).to_f64(),
        _ => value,
    }
}

/// `ratio` (a number divided by the scale) as a number of the quantized kind, before saturation: integers
/// round to nearest even *before* the zero point is added, floats are rounded when they are stored.
/// NaN becomes the smallest integer, as in ONNX Runtime.
fn quantized(dtype: DType, ratio: f64, zero_point: f64) -> f64 {
    match dtype.is_float() {
        true if zero_point == 0.0 => ratio,
        true => ratio + zero_point,
        false if ratio.is_nan() => f64::NEG_INFINITY,
        false => ratio.round_ties_even() + zero_point,
    }
}

/// A tensor of numbers, each rounded once. Integers saturate; the 8-bit floats do as `saturate` says.
fn store(dtype: DType, shape: &[usize], values: &[f64], saturate: bool) -> Result<Tensor, TensorError> {
    if !dtype.is_small_float() {
        return Tensor::from_f64s(dtype, shape, values);
    }
    let codes = values.iter().map(|&value| small_float::encode(dtype, value, saturate)).collect();
    Tensor::from_codes(dtype, shape, codes)
}

/// The elements of a tensor of 8-bit integers.
fn to_i32s(tensor: &Tensor) -> Vec<i32> {
    tensor.to_i64s().into_iter().map(|value| value as i32).collect()
}

/// The one element of a parameter that may not vary.
fn single(cx: &Evaluation<'_>, name: &str, tensor: &Tensor) -> Result<f64, EvalError> {
    match tensor.to_f64s().as_slice() {
        [value] => Ok(*value),
        _ => Err(cx.bad_shape(format!("`{name}` must be a scalar, its shape is {:?}", tensor.shape()))),
    }
}
