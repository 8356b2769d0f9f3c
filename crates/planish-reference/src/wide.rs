//! Tensors as exact wide numbers, and back: what loops over several element types need.

use planish_tensor::{DType, Tensor, TensorError};

use crate::{EvalError, Evaluation};

/// A tensor's elements, each exactly.
pub(crate) enum Numbers {
    Floats(Vec<f64>),
    /// Integers and booleans. Wrapping arithmetic here and one wrap at the end is wrapping arithmetic in the
    /// element type, because every width divides 128 bits.
    Ints(Vec<i128>),
}

impl Numbers {
    /// The elements of a tensor of numbers or booleans; the kinds that only storage knows are refused.
    pub(crate) fn of(cx: &Evaluation<'_>, tensor: &Tensor) -> Result<Numbers, EvalError> {
        let dtype = tensor.dtype();
        if dtype.is_sub_byte() || dtype.is_small_float() {
            return Err(cx.bad_type(dtype));
        }
        if dtype.is_float() {
            return Ok(Numbers::Floats(tensor.to_f64s()));
        }
        let signed = tensor.to_i64s().into_iter();
        Ok(Numbers::Ints(match dtype {
            // `to_i64s` keeps the bits of u64.
            DType::U64 => signed.map(|value| i128::from(value as u64)).collect(),
            _ => signed.map(i128::from).collect(),
        }))
    }
}

/// A tensor of integers or booleans from exact values, which wrap to the width of the type.
pub(crate) fn wrapped_ints(dtype: DType, shape: &[usize], values: &[i128]) -> Result<Tensor, EvalError> {
    macro_rules! wrap {
        ($rust:ty) => {
            Tensor::new(shape, values.iter().map(|&value| value as $rust).collect::<Vec<_>>())
        };
    }
    Ok(match dtype {
        DType::I8 => wrap!(i8),
        DType::I16 => wrap!(i16),
        DType::I32 => wrap!(i32),
        DType::I64 => wrap!(i64),
        DType::U8 => wrap!(u8),
        DType::U16 => wrap!(u16),
        DType::U32 => wrap!(u32),
        DType::U64 => wrap!(u64),
        DType::Bool => Tensor::new(shape, values.iter().map(|&value| value != 0).collect()),
        _ => Err(TensorError::WrongType { expected: DType::I64, found: dtype }),
    }?)
}

/// The elements of a required input of floats of at least 16 bits.
pub(crate) fn floats(cx: &Evaluation<'_>, idx: usize) -> Result<Vec<f64>, EvalError> {
    let tensor = cx.tensor(idx)?;
    match tensor.dtype() {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Ok(tensor.to_f64s()),
        dtype => Err(cx.bad_type(dtype)),
    }
}
