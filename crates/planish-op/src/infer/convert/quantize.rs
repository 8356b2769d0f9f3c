//! `QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`: shapes stay, scales must fit them.

use planish_tensor::{DType, Dim, Shape};

use super::{check_zero_type, dtype_of, is_single};
use crate::infer::checks::differ;
use crate::infer::{InferError, InferResult, Inference, Inferred};
use crate::{DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear};

/// The kinds that numbers are quantized to.
fn is_quantized(dtype: DType) -> bool {
    let is_small_int = dtype.is_int() && dtype.bits() <= 16;
    is_small_int || (dtype.is_small_float() && dtype != DType::F8E8M0)
}

/// Refuses scales (input 1) and zero points (input 2) that fit neither each other nor the data (input 0).
fn check_granularity(cx: &Inference<'_>, axis: i64, block_size: i64) -> Result<(), InferError> {
    if block_size < 0 {
        return Err(cx.bad_attribute(format!("`block_size` is {block_size}, it cannot be negative")));
    }
    let Some(scale) = cx.shape(1)? else { return Ok(()) };
    if let Some(zero) = cx.optional_tensor(2)?.and_then(|ty| ty.shape.as_ref()) {
        let may_agree = zero.rank() == scale.rank() && !zero.iter().zip(scale).any(|(a, b)| differ(a, b));
        let both_single = is_single(zero) && is_single(scale);
        if !may_agree && !both_single {
            return Err(cx.bad_shape(format!("the zero point has shape {zero}, the scale {scale}")));
        }
    }
    let Some(shape) = cx.shape(0)? else { return Ok(()) };
    if scale.rank() == 0 || (block_size == 0 && is_single(scale)) {
        return Ok(());
    }
    let expected = if block_size == 0 {
        let [len] = scale.dims() else {
            return Err(
                cx.bad_shape(format!("a scale of shape {scale} without `block_size` is not a vector"))
            );
        };
        // A vector of unknown length may turn out to be a single scale, for which the axis is not used.
        match cx.axis(axis, shape.rank()) {
            Ok(axis) => Shape::from_iter([&shape[axis]]),
            Err(_) if len.as_const().is_none() => return Ok(()),
            Err(error) => return Err(error),
        }
    } else {
        let axis = cx.axis(axis, shape.rank())?;
        let mut dims = shape.dims().to_vec();
        dims[axis] = dims[axis].ceil_div(&Dim::from(block_size));
        Shape::new(dims)
    };
    if expected.rank() != scale.rank() || expected.iter().zip(scale).any(|(a, b)| differ(a, b)) {
        let how = if block_size == 0 { String::new() } else { format!(" in blocks of {block_size}") };
        return Err(cx.bad_shape(format!(
            "data of shape {shape} along axis {axis}{how} needs a scale of shape {expected}, it is {scale}"
        )));
    }
    Ok(())
}

pub(in crate::infer) fn quantize_linear(op: &QuantizeLinear, cx: &mut Inference<'_>) -> InferResult {
    dtype_of(cx, 0, "x", |dtype| dtype.is_wide_float() || dtype == DType::I32)?;
    dtype_of(cx, 1, "y_scale", |dtype| dtype.is_wide_float() || matches!(dtype, DType::I32 | DType::F8E8M0))?;
    let dtype = match (op.output_dtype, cx.optional_tensor(2)?.map(|ty| ty.dtype)) {
        (Some(output), Some(zero)) if output != zero => {
            let reason = format!("`output_dtype` is {output}, but the zero point has type {zero}");
            return Err(cx.bad_type(reason));
        }
        (Some(dtype), _) | (None, Some(dtype)) => dtype,
        (None, None) => DType::U8,
    };
    if !is_quantized(dtype) {
        return Err(cx.bad_type(format!("numbers are not quantized to {dtype}")));
    }
    if let Some(precision) = op.precision.filter(|precision| !precision.is_wide_float()) {
        return Err(cx.bad_attribute(format!("`precision` is {precision}; it must be f64, f32, f16 or bf16")));
    }
    check_granularity(cx, op.axis, op.block_size)?;
    Ok(vec![Inferred::maybe_ranked(dtype, cx.shape(0)?.cloned())])
}

pub(in crate::infer) fn dequantize_linear(op: &DequantizeLinear, cx: &mut Inference<'_>) -> InferResult {
    dtype_of(cx, 0, "x", |dtype| is_quantized(dtype) || dtype == DType::I32)?;
    let scale = dtype_of(cx, 1, "x_scale", |dtype| dtype.is_wide_float() || dtype == DType::F8E8M0)?;
    check_zero_type(cx, 2, 0)?;
    let dtype = op.output_dtype.unwrap_or(scale);
    if !dtype.is_wide_float() {
        let reason = format!("the output cannot have type {dtype}; set `output_dtype` to f32, f16 or bf16");
        return Err(cx.bad_type(reason));
    }
    check_granularity(cx, op.axis, op.block_size)?;
    Ok(vec![Inferred::maybe_ranked(dtype, cx.shape(0)?.cloned())])
}

pub(in crate::infer) fn dynamic_quantize_linear(
    _op: &DynamicQuantizeLinear,
    cx: &mut Inference<'_>,
) -> InferResult {
    dtype_of(cx, 0, "x", |dtype| dtype == DType::F32)?;
    let y = Inferred::maybe_ranked(DType::U8, cx.shape(0)?.cloned());
    let scale = Inferred::tensor(DType::F32, Shape::scalar());
    let zero_point = Inferred::tensor(DType::U8, Shape::scalar());
    Ok([y, scale, zero_point].into_iter().take(cx.n_outputs()).collect())
}
