//! `Cast`, which keeps values, and `BitCast`, which keeps bits.

use planish_op::{BitCast, Cast, CastRounding};
use planish_tensor::rounding::f64_to_odd;
use planish_tensor::small_float::{E8M0Rounding, encode_e8m0};
use planish_tensor::{DType, Tensor, TensorError};

use super::store;
use crate::{EvalResult, Evaluation};

pub(crate) fn cast(op: &Cast, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let result = match (x.dtype().is_float(), op.to.is_float()) {
        _ if x.dtype() == op.to => x.clone(),
        (true, true) => floats(op, x.shape(), &x.to_f64s())?,
        (false, true) => floats(op, x.shape(), &ints_for_float(x, op.to)?)?,
        (true, false) if op.to == DType::Bool => {
            Tensor::new(x.shape(), x.to_f64s().into_iter().map(|value| value != 0.0).collect())?
        }
        (true, false) => {
            let values: Vec<i64> = x.to_f64s().into_iter().map(|value| truncate(value, op.to)).collect();
            Tensor::from_i64s(op.to, x.shape(), &values)?
        }
        // Integers keep their low bits; `to_i64s` keeps those of u64 too.
        (false, false) => Tensor::from_i64s(op.to, x.shape(), &x.to_i64s())?,
    };
    Ok(vec![result.into()])
}

/// Numbers rounded once to a float kind.
fn floats(op: &Cast, shape: &[usize], values: &[f64]) -> Result<Tensor, TensorError> {
    if op.to != DType::F8E8M0 {
        return store(op.to, shape, values, op.saturate);
    }
    let rounding = match op.round_mode {
        CastRounding::Up => E8M0Rounding::Up,
        CastRounding::Down => E8M0Rounding::Down,
        CastRounding::Nearest => E8M0Rounding::Nearest,
    };
    let codes = values.iter().map(|&value| encode_e8m0(value, op.saturate, rounding)).collect();
    Tensor::from_codes(op.to, shape, codes)
}

/// Integers as numbers that round to the float kind `to` as the integers themselves do.
fn ints_for_float(x: &Tensor, to: DType) -> Result<Vec<f64>, TensorError> {
    Ok(match (x.dtype(), to) {
        (_, DType::F64) => x.to_f64s(),
        (DType::U64, _) => x.elements::<u64>()?.iter().map(|&value| f64_to_odd(value.into())).collect(),
        _ => x.to_i64s().into_iter().map(|value| f64_to_odd(value.into())).collect(),
    })
}

/// `value` truncated towards zero to the integer kind `to`, which keeps the low bits of the result.
///
/// ONNX leaves numbers out of range undefined. This is what x86's conversion instructions give, and with
/// them numpy and ONNX Runtime: kinds up to 32 bits go through `i32` (`u32` through `i64`), whose smallest
/// number stands for everything out of range and NaN. ONNX's own tests rely on it for the 4-bit and 2-bit
/// kinds, where 8.0 becomes -8.
fn truncate(value: f64, to: DType) -> i64 {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    let to_i32 = |value: f64| {
        let fits = value > f64::from(i32::MIN) - 1.0 && value < f64::from(i32::MAX) + 1.0;
        if fits { value as i32 } else { i32::MIN }
    };
    let to_i64 = |value: f64| {
        let fits = (-TWO_TO_63..TWO_TO_63).contains(&value);
        if fits { value as i64 } else { i64::MIN }
    };
    match to {
        DType::I64 | DType::U32 => to_i64(value),
        // The upper half of u64 is converted with its top bit taken off and put back.
        DType::U64 if value >= TWO_TO_63 => to_i64(value - TWO_TO_63) ^ i64::MIN,
        DType::U64 => to_i64(value),
        _ => i64::from(to_i32(value)),
    }
}

/// The same bits under another type of the same width. A byte other than 0 and 1 becomes `true`, whose only
/// bit pattern here is 1.
pub(crate) fn bit_cast(op: &BitCast, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    if x.dtype().bits() != op.to.bits() {
        let (from, to) = (x.dtype(), op.to);
        return Err(cx.bad_attribute(format!("`to` is {to}, which is not as wide as the input's {from}")));
    }
    let result = Tensor::from_bytes(op.to, x.shape(), x.bytes().clone())?;
    Ok(vec![result.into()])
}
