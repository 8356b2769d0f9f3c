//! `Number`: an element type and the wider type in which its arithmetic is done; `Numbers`: all elements of
//! a tensor in it.
//!
//! Floats are widened to `f64` and rounded once on the way back; integers and booleans to `i128`, where
//! sums, differences and quotients of 64-bit numbers are exact and products exact in their low 64 bits, and
//! wrapped once on the way back.

use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::{DType, Element, Tensor, TensorError, bf16, f16};

use crate::{EvalError, Evaluation};

/// See the module text.
pub(crate) trait Number: Element {
    /// `f64` or `i128`.
    type Wide: Copy + Default + PartialOrd + Send + Sync;

    fn widen(self) -> Self::Wide;

    /// The nearest number of this type, or the one that wrapping gives.
    fn narrow(wide: Self::Wide) -> Self;

    /// The lowest and the highest finite number.
    fn range() -> (Self::Wide, Self::Wide);
}

macro_rules! floats {
    ($($float:ident: $to_f64:expr, $from_f64:expr;)*) => {
        $(impl Number for $float {
            type Wide = f64;

            fn widen(self) -> f64 {
                $to_f64(self)
            }

            fn narrow(wide: f64) -> Self {
                $from_f64(wide)
            }

            fn range() -> (f64, f64) {
                ($to_f64($float::MIN), $to_f64($float::MAX))
            }
        })*
    };
}

floats! {
    f64: f64::from, f64::from;
    f32: f64::from, |wide| wide as f32;
    f16: f16::to_f64, f16_from_f64;
    bf16: bf16::to_f64, bf16_from_f64;
}

macro_rules! ints {
    ($($int:ident)*) => {
        $(impl Number for $int {
            type Wide = i128;

            fn widen(self) -> i128 {
                i128::from(self)
            }

            fn narrow(wide: i128) -> Self {
                wide as $int
            }

            fn range() -> (i128, i128) {
                (i128::from($int::MIN), i128::from($int::MAX))
            }
        })*
    };
}

ints! { i8 i16 i32 i64 u8 u16 u32 u64 }

impl Number for bool {
    type Wide = i128;

    fn widen(self) -> i128 {
        i128::from(self)
    }

    fn narrow(wide: i128) -> Self {
        wide != 0
    }

    fn range() -> (i128, i128) {
        (0, 1)
    }
}

/// The elements of a tensor, each exactly.
pub(crate) enum Numbers {
    Floats(Vec<f64>),
    /// Integers and booleans. Wrapping arithmetic here and one wrap at the end is wrapping arithmetic in the
    /// element type, because every width divides 128 bits.
    Ints(Vec<i128>),
}

impl Numbers {
    /// The elements of a tensor of numbers or booleans; the kinds that only storage knows are refused.
    pub(crate) fn of(cx: &Evaluation<'_>, tensor: &Tensor) -> Result<Numbers, EvalError> {
        let signed = || tensor.to_i64s().into_iter();
        match tensor.dtype() {
            dtype if dtype.is_wide_float() => Ok(Numbers::Floats(tensor.to_f64s())),
            // `to_i64s` keeps the bits of u64.
            DType::U64 => Ok(Numbers::Ints(signed().map(|value| i128::from(value as u64)).collect())),
            dtype if dtype.is_whole_int() || dtype == DType::Bool => {
                Ok(Numbers::Ints(signed().map(i128::from).collect()))
            }
            dtype => Err(cx.bad_type(dtype)),
        }
    }
}

/// A tensor of integers or booleans from exact values, which wrap to the width of the type.
pub(crate) fn wrapped_ints(dtype: DType, shape: &[usize], values: &[i128]) -> Result<Tensor, EvalError> {
    fn wrapped<T: Number<Wide = i128>>(shape: &[usize], values: &[i128]) -> Result<Tensor, TensorError> {
        Tensor::new(shape, values.iter().map(|&value| T::narrow(value)).collect())
    }
    Ok(match dtype {
        DType::I8 => wrapped::<i8>(shape, values),
        DType::I16 => wrapped::<i16>(shape, values),
        DType::I32 => wrapped::<i32>(shape, values),
        DType::I64 => wrapped::<i64>(shape, values),
        DType::U8 => wrapped::<u8>(shape, values),
        DType::U16 => wrapped::<u16>(shape, values),
        DType::U32 => wrapped::<u32>(shape, values),
        DType::U64 => wrapped::<u64>(shape, values),
        DType::Bool => wrapped::<bool>(shape, values),
        _ => Err(TensorError::WrongType { expected: DType::I64, found: dtype }),
    }?)
}
