//! Tensors made from a description: filled, counted up, or with ones on a diagonal.

use planish_op::{ConstantOfShape, EyeLike, Range};
use planish_tensor::{Bytes, DType, Element, Tensor};

use super::{int_list, to_size};
use crate::cells::{Axis, pick, pick_runs};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn constant_of_shape(op: &ConstantOfShape, cx: &Evaluation<'_>) -> EvalResult {
    let shape: Result<Vec<usize>, EvalError> =
        int_list(cx, 0)?.into_iter().map(|dim| to_size(cx, dim, "a dimension")).collect();
    let shape = shape?;
    let zero = Tensor::scalar(0f32);
    let value = op.value.as_ref().unwrap_or(&zero);
    if value.len() != 1 {
        return Err(cx.bad_attribute(format!("the value must be one element, it is {:?}", value.shape())));
    }
    nd::output_len(cx, value.dtype(), &shape)?;
    let axes: Vec<Axis> = shape.iter().map(|&len| Axis::repeat(len)).collect();
    Ok(vec![pick(cx, value, &axes, None)?.into()])
}

pub(crate) fn eye_like(op: &EyeLike, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let [_, columns] = *data.shape() else {
        return Err(cx.bad_shape(format!("the input must be a matrix, its shape is {:?}", data.shape())));
    };
    let dtype = op.dtype.unwrap_or(data.dtype());
    let zero_and_one = Tensor::from_f64s(dtype, &[2], &[0.0, 1.0])?;
    let place = |flat: usize| {
        let (row, column) = (flat / columns, flat % columns);
        usize::from(column as i128 - row as i128 == i128::from(op.k))
    };
    Ok(vec![pick_runs(cx, &zero_and_one, data.shape(), 1, place)?.into()])
}

pub(crate) fn range(op: &Range, cx: &Evaluation<'_>) -> EvalResult {
    let (start, limit, delta) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let dtype = start.dtype();
    for tensor in [start, limit, delta] {
        if tensor.dtype() != dtype {
            return Err(cx.bad_type(tensor.dtype()));
        }
        if tensor.len() != 1 {
            return Err(cx.bad_shape(format!("start, limit and delta are scalars, not {:?}", tensor.shape())));
        }
    }
    let [start, limit, delta] = [start, limit, delta];
    let tensor = match dtype {
        DType::F64 | DType::F32 => float_range(cx, start, limit, delta)?,
        // ONNX computes the 16-bit kinds in single (1) or double (11) precision and rounds the results; one
        // rounding from double is at least as exact.
        DType::F16 | DType::BF16 if matches!(op.stash_type, 1 | 11) => float_range(cx, start, limit, delta)?,
        DType::F16 | DType::BF16 => {
            let detail = format!("stash_type {} is neither 1 (single) nor 11 (double)", op.stash_type);
            return Err(cx.bad_attribute(detail));
        }
        DType::I8 => int_range::<i8>(cx, start, limit, delta, i128::from, |value| value as i8)?,
        DType::I16 => int_range::<i16>(cx, start, limit, delta, i128::from, |value| value as i16)?,
        DType::I32 => int_range::<i32>(cx, start, limit, delta, i128::from, |value| value as i32)?,
        DType::I64 => int_range::<i64>(cx, start, limit, delta, i128::from, |value| value as i64)?,
        DType::U8 => int_range::<u8>(cx, start, limit, delta, i128::from, |value| value as u8)?,
        DType::U16 => int_range::<u16>(cx, start, limit, delta, i128::from, |value| value as u16)?,
        DType::U32 => int_range::<u32>(cx, start, limit, delta, i128::from, |value| value as u32)?,
        DType::U64 => int_range::<u64>(cx, start, limit, delta, i128::from, |value| value as u64)?,
        dtype => return Err(cx.bad_type(dtype)),
    };
    Ok(vec![tensor.into()])
}

fn float_range(
    cx: &Evaluation<'_>,
    start: &Tensor,
    limit: &Tensor,
    delta: &Tensor,
) -> Result<Tensor, EvalError> {
    let dtype = start.dtype();
    let [start, limit, delta] = [start, limit, delta].map(|tensor| tensor.to_f64s()[0]);
    let len = ((limit - start) / delta).ceil().max(0.0);
    if delta == 0.0 || !len.is_finite() || (limit - start).is_nan() || delta.is_nan() {
        let detail = format!("the range from {start} to {limit} by {delta} does not end");
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    // The cast saturates, and what is too large is refused.
    let len = nd::result_len(cx, &[len as usize])?;
    let values: Vec<f64> = (0..len).map(|idx| start + idx as f64 * delta).collect();
    Ok(Tensor::from_f64s(dtype, &[len], &values)?)
}

/// `widen` and `narrow` convert to a type in which nothing overflows, and back.
fn int_range<T: Element>(
    cx: &Evaluation<'_>,
    start: &Tensor,
    limit: &Tensor,
    delta: &Tensor,
    widen: impl Fn(T) -> i128,
    narrow: impl Fn(i128) -> T,
) -> Result<Tensor, EvalError> {
    let value = |tensor: &Tensor| Ok::<i128, EvalError>(widen(tensor.elements::<T>()?[0]));
    let (start, limit, delta) = (value(start)?, value(limit)?, value(delta)?);
    if delta == 0 {
        return Err(cx.error(EvalErrorKind::BadValue, "delta is 0"));
    }
    let (span, step) = if delta > 0 { (limit - start, delta) } else { (start - limit, -delta) };
    let len = (span.max(0) + step - 1) / step;
    let len = nd::output_len(cx, T::DTYPE, &[usize::try_from(len).unwrap_or(usize::MAX)])?;
    let values: Vec<T> = (0..len).map(|idx| narrow(start + idx as i128 * delta)).collect();
    Ok(Tensor::from_bytes(T::DTYPE, &[len], Bytes::from_vec(values))?)
}
