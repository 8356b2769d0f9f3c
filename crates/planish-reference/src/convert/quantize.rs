//! `QuantizeLinear`, `DequantizeLinear` and `DynamicQuantizeLinear`: numbers against a grid of scales.

use planish_op::{DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear};
use planish_tensor::{DType, Tensor, element_count};

use super::{bad_input_type, quantized, round_to, store};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation};

/// Which scale belongs to which element.
enum Granularity {
    PerTensor,
    /// One scale per index of an axis of `len` elements, `inner` elements apart.
    PerAxis {
        inner: usize,
        len: usize,
    },
    /// One scale per `block` consecutive indices of the axis, separately for all other indices.
    Blocked {
        inner: usize,
        len: usize,
        block: usize,
        n_blocks: usize,
    },
}

impl Granularity {
    fn new(
        cx: &Evaluation<'_>,
        shape: &[usize],
        scale: &Tensor,
        axis: i64,
        block_size: i64,
    ) -> Result<Granularity, EvalError> {
        let block = usize::try_from(block_size)
            .map_err(|_| cx.bad_attribute(format!("`block_size` is {block_size}, it cannot be negative")))?;
        if scale.rank() == 0 || (block == 0 && scale.len() == 1) {
            return Ok(Granularity::PerTensor);
        }
        let axis = cx.axis(axis, shape.len())?;
        // The product cannot overflow unless the tensor is empty, and then no index is asked for.
        let inner = element_count(&shape[axis + 1..]).unwrap_or(1);
        let len = shape[axis];
        if block == 0 {
            if scale.shape() != [len] {
                let found = scale.shape();
                return Err(
                    cx.bad_shape(format!("axis {axis} needs a scale of shape [{len}], it is {found:?}"))
                );
            }
            return Ok(Granularity::PerAxis { inner, len });
        }
        let n_blocks = len.div_ceil(block);
        let mut expected = shape.to_vec();
        expected[axis] = n_blocks;
        if scale.shape() != expected {
            let found = scale.shape();
            return Err(cx.bad_shape(format!(
                "blocks of {block} along axis {axis} of {shape:?} need a scale of shape {expected:?}, it is {found:?}"
            )));
        }
        Ok(Granularity::Blocked { inner, len, block, n_blocks })
    }

    /// The place of an element's scale.
    fn idx(&self, flat: usize) -> usize {
        match *self {
            Granularity::PerTensor => 0,
            Granularity::PerAxis { inner, len } => flat / inner % len,
            Granularity::Blocked { inner, len, block, n_blocks } => {
                let (outer, along) = (flat / inner / len, flat / inner % len);
                (outer * n_blocks + along / block) * inner + flat % inner
            }
        }
    }
}

/// The zero points as numbers, one per scale; zeros if there are none.
fn zero_points(
    cx: &Evaluation<'_>,
    zero_point: Option<&Tensor>,
    scale: &Tensor,
) -> Result<Vec<f64>, EvalError> {
    let Some(zero_point) = zero_point else { return Ok(vec![0.0; scale.len()]) };
    let both_single = zero_point.len() == 1 && scale.len() == 1;
    if zero_point.shape() != scale.shape() && !both_single {
        let (zeros, scales) = (zero_point.shape(), scale.shape());
        return Err(cx.bad_shape(format!("the zero point has shape {zeros:?}, the scale {scales:?}")));
    }
    Ok(zero_point.to_f64s())
}

fn is_quantized(dtype: DType) -> bool {
    let is_small_int = dtype.is_int() && dtype.bits() <= 16;
    is_small_int || (dtype.is_small_float() && dtype != DType::F8E8M0)
}

pub(crate) fn quantize_linear(op: &QuantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    let (x, scale, zero_point) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    for (name, dtype) in [("x", x.dtype()), ("y_scale", scale.dtype())] {
        let is_scale_type = name == "y_scale" && dtype == DType::F8E8M0;
        if !dtype.is_wide_float() && dtype != DType::I32 && !is_scale_type {
            return Err(bad_input_type(cx, name, dtype));
        }
    }
    let dtype = match (op.output_dtype, zero_point.map(Tensor::dtype)) {
        (Some(output), Some(zero)) if output != zero => {
            return Err(cx.error(
                EvalErrorKind::BadType,
                format!("`output_dtype` is {output}, but the zero point has type {zero}"),
            ));
        }
        (Some(dtype), _) | (None, Some(dtype)) => dtype,
        (None, None) => DType::U8,
    };
    if !is_quantized(dtype) {
        return Err(bad_input_type(cx, "y", dtype));
    }
    // The division happens in the type of the scale; a scale that is not such a type leaves it to `x`.
    let precision = match op.precision {
        Some(precision) if precision.is_wide_float() => precision,
        Some(other) => {
            return Err(cx.bad_attribute(format!("`precision` is {other}; it must be f64, f32, f16 or bf16")));
        }
        None => {
            [scale.dtype(), x.dtype()].into_iter().find(|dtype| dtype.is_wide_float()).unwrap_or(DType::F32)
        }
    };
    let granularity = Granularity::new(cx, x.shape(), scale, op.axis, op.block_size)?;
    let zeros = zero_points(cx, zero_point, scale)?;
    let scales: Vec<f64> = scale.to_f64s().into_iter().map(|value| round_to(precision, value)).collect();
    let quantize = |(flat, value): (usize, f64)| {
        let idx = granularity.idx(flat);
        let ratio = round_to(precision, round_to(precision, value) / scales[idx]);
        quantized(dtype, ratio, zeros[idx])
    };
    let values: Vec<f64> = x.to_f64s().into_iter().enumerate().map(quantize).collect();
    Ok(vec![store(dtype, x.shape(), &values, op.saturate)?.into()])
}

pub(crate) fn dequantize_linear(op: &DequantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    let (x, scale, zero_point) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    if !is_quantized(x.dtype()) && x.dtype() != DType::I32 {
        return Err(bad_input_type(cx, "x", x.dtype()));
    }
    if !scale.dtype().is_wide_float() && scale.dtype() != DType::F8E8M0 {
        return Err(bad_input_type(cx, "x_scale", scale.dtype()));
    }
    if let Some(zero_point) = zero_point
        && zero_point.dtype() != x.dtype()
    {
        let (zero, x) = (zero_point.dtype(), x.dtype());
        return Err(cx.error(EvalErrorKind::BadType, format!("the zero point has type {zero}, `x` {x}")));
    }
    let dtype = op.output_dtype.unwrap_or(scale.dtype());
    if !dtype.is_wide_float() {
        return Err(cx.error(
            EvalErrorKind::BadType,
            format!("the output cannot have type {dtype}; set `output_dtype` to f32, f16 or bf16"),
        ));
    }
    let granularity = Granularity::new(cx, x.shape(), scale, op.axis, op.block_size)?;
    let zeros = zero_points(cx, zero_point, scale)?;
    let scales = scale.to_f64s();
    let dequantize = |(flat, value): (usize, f64)| {
        let idx = granularity.idx(flat);
        (value - zeros[idx]) * scales[idx]
    };
    let values: Vec<f64> = x.to_f64s().into_iter().enumerate().map(dequantize).collect();
    Ok(vec![Tensor::from_f64s(dtype, x.shape(), &values)?.into()])
}

/// Every step in `f32`, as ONNX defines it: the scale is an output, and the zero point depends on it.
pub(crate) fn dynamic_quantize_linear(_op: &DynamicQuantizeLinear, cx: &Evaluation<'_>) -> EvalResult {
    const LARGEST: f32 = 255.0;
    let x = cx.tensor(0)?;
    if x.dtype() != DType::F32 {
        return Err(cx.bad_type(x.dtype()));
    }
    let elements = x.elements::<f32>()?;
    let low = elements.iter().copied().fold(0.0, f32::min);
    let high = elements.iter().copied().fold(0.0, f32::max);
    // All zeros (or no elements): any scale would do, and ONNX Runtime's is 1.
    let scale = if low == high { 1.0 } else { (high - low) / LARGEST };
    let zero_point = (0.0 - low / scale).clamp(0.0, LARGEST).round_ties_even();
    let quantize = |&value: &f32| {
        let ratio = f64::from(value / scale);
        quantized(DType::U8, ratio, zero_point.into()).clamp(0.0, LARGEST.into()) as u8
    };
    let y = Tensor::new(x.shape(), elements.iter().map(quantize).collect())?;
    let outputs = [y, Tensor::scalar(scale), Tensor::scalar(zero_point as u8)];
    Ok(outputs.into_iter().map(Into::into).collect())
}
