//! Pow, whose base and exponent may have different types; the result has the base's.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use planish_op::Value;
use planish_tensor::{DType, Tensor, bf16, f16};

use super::elementwise::{Broadcast, broadcast_all};
use crate::number::Number;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// Floats to any power go through `f64`. An integer to a whole power is exact and wraps; to a negative one
/// it is the power's whole part, and zero to a negative power is refused. An integer to a power that is not
/// whole is the real power, cut towards zero and saturated.
pub(crate) fn pow(cx: &Evaluation<'_>) -> EvalResult {
    let (base, exponent) = (cx.tensor(0)?, cx.tensor(1)?);
    let shape = broadcast_all(cx, &[base, exponent])?;
    let exponents = Exponents::of(cx, exponent)?;
    let problem = Power { cx, base, exponents, exponent_shape: exponent.shape(), shape: &shape };
    let output = match base.dtype() {
        DType::F64 => problem.of_reals::<f64>(),
        DType::F32 => problem.of_reals::<f32>(),
        DType::F16 => problem.of_reals::<f16>(),
        DType::BF16 => problem.of_reals::<bf16>(),
        DType::I8 => problem.of_ints(|x| x as i8),
        DType::I16 => problem.of_ints(|x| x as i16),
        DType::I32 => problem.of_ints(|x| x as i32),
        DType::I64 => problem.of_ints(|x| x as i64),
        DType::U8 => problem.of_ints(|x| x as u8),
        DType::U16 => problem.of_ints(|x| x as u16),
        DType::U32 => problem.of_ints(|x| x as u32),
        DType::U64 => problem.of_ints(|x| x as u64),
        dtype => Err(cx.bad_type(dtype)),
    };
    Ok(vec![Value::Tensor(output?)])
}

/// Floats of this size are multiples of 2^74 and all give the same powers modulo 2^64: 0 or 1.
const HUGE: f64 = (1u128 << 126) as f64;

enum Exponents {
    Real(Vec<f64>),
    Int(Vec<i128>),
}

impl Exponents {
    fn of(cx: &Evaluation<'_>, exponent: &Tensor) -> Result<Exponents, EvalError> {
        let dtype = exponent.dtype();
        match dtype {
            DType::U64 => {
                Ok(Exponents::Int(exponent.elements::<u64>()?.iter().map(|&e| i128::from(e)).collect()))
            }
            _ if dtype.is_sub_byte() || dtype.is_small_float() || dtype == DType::Bool => {
                Err(cx.bad_type(dtype))
            }
            _ if dtype.is_int() => {
                Ok(Exponents::Int(exponent.to_i64s().into_iter().map(i128::from).collect()))
            }
            _ => Ok(Exponents::Real(exponent.to_f64s())),
        }
    }
}

struct Power<'a> {
    cx: &'a Evaluation<'a>,
    base: &'a Tensor,
    exponents: Exponents,
    exponent_shape: &'a [usize],
    shape: &'a [usize],
}

impl Power<'_> {
    fn of_reals<T: Number<Wide = f64>>(&self) -> Result<Tensor, EvalError> {
        match &self.exponents {
            Exponents::Real(reals) => self.compute(reals, |x: T, e| T::narrow(x.widen().powf(e))),
            Exponents::Int(ints) => self.compute(ints, |x: T, e| T::narrow(x.widen().powf(e as f64))),
        }
    }

    fn of_ints<T: Number<Wide = i128>>(
        &self,
        saturate: impl Fn(f64) -> T + Sync,
    ) -> Result<Tensor, EvalError> {
        let refused = AtomicBool::new(false);
        let whole = |x: T, e: i128| match int_pow(x.widen(), e) {
            Some(power) => T::narrow(power),
            None => {
                refused.store(true, Ordering::Relaxed);
                T::default()
            }
        };
        let output = match &self.exponents {
            Exponents::Int(ints) => self.compute(ints, whole),
            Exponents::Real(reals) => self.compute(reals, |x: T, e| match e {
                _ if e.is_finite() && e.fract() == 0.0 => whole(x, e.clamp(-HUGE, HUGE) as i128),
                _ => saturate((x.widen() as f64).powf(e)),
            }),
        }?;
        match refused.into_inner() {
            false => Ok(output),
            true => Err(self.cx.error(EvalErrorKind::BadValue, "integer zero to a negative power")),
        }
    }

    fn compute<T: Number, E: Copy + Sync>(
        &self,
        exponents: &[E],
        power: impl Fn(T, E) -> T + Sync,
    ) -> Result<Tensor, EvalError> {
        let len = nd::output_len(self.cx, T::DTYPE, self.shape)?;
        let bases = Broadcast::<T>::of(self.base, self.shape)?;
        let exponents = Broadcast::new(Cow::Borrowed(exponents), self.exponent_shape, self.shape);
        let out = nd::fill_elements(len, |range, out: &mut [T]| {
            let (bases, exponents) = (bases.read(range.clone()), exponents.read(range));
            let pairs = bases.iter().zip(exponents.iter());
            out.iter_mut().zip(pairs).for_each(|(to, (&x, &e))| *to = power(x, e));
        });
        Ok(Tensor::new(self.shape, out)?)
    }
}

/// `x^e`, wrapped to 128 bits (so exact in its low 64), or cut towards zero if `e` is negative; `None` for
/// zero to a negative power.
fn int_pow(x: i128, e: i128) -> Option<i128> {
    if e < 0 {
        return match x {
            0 => None,
            1 => Some(1),
            -1 => Some(if e % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut power, mut square, mut rest) = (1i128, x, e);
    while rest > 0 {
        if rest % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest /= 2;
    }
    Some(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_powers() {
        assert_eq!(int_pow(3, 4), Some(81));
        assert_eq!(int_pow(-2, 63), Some(-(1 << 63)));
        assert_eq!(int_pow(0, 0), Some(1));
        assert_eq!((int_pow(2, -1), int_pow(-1, -3), int_pow(1, -9)), (Some(0), Some(-1), Some(1)));
        assert_eq!(int_pow(0, -1), None);
        // The order of 3 modulo 2^64 is 2^62, so an exponent one below a multiple gives the inverse of 3.
        let inverse = int_pow(3, i128::from(u64::MAX)).map(|power| power as u64);
        assert_eq!(inverse.map(|inverse| inverse.wrapping_mul(3)), Some(1));
    }
}
