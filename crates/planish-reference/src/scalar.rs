//! The arithmetic that sums of products are computed in: `f64` for every floating-point type, each integer
//! type's own wrapping arithmetic for the integers.

use planish_tensor::{DType, Element, Tensor};

use crate::{EvalError, Evaluation};

/// A number that products are summed in.
pub(crate) trait Scalar: Element {
    fn plus(self, other: Self) -> Self;

    fn times(self, other: Self) -> Self;

    /// `alpha * self + beta * other`. Integers are exact where both factors are whole numbers, otherwise the
    /// result is computed in `f64`, truncated and saturated.
    fn combine(self, alpha: f32, other: Self, beta: f32) -> Self;

    /// The elements of a tensor that is computed in this arithmetic.
    fn read(tensor: &Tensor) -> Result<Vec<Self>, EvalError>;

    /// A tensor of type `dtype` from results of this arithmetic, each rounded once.
    fn write(dtype: DType, shape: &[usize], values: Vec<Self>) -> Result<Tensor, EvalError>;
}

impl Scalar for f64 {
    fn plus(self, other: f64) -> f64 {
        self + other
    }

    fn times(self, other: f64) -> f64 {
        self * other
    }

    fn combine(self, alpha: f32, other: f64, beta: f32) -> f64 {
        f64::from(alpha) * self + f64::from(beta) * other
    }

    fn read(tensor: &Tensor) -> Result<Vec<f64>, EvalError> {
        Ok(tensor.to_f64s())
    }

    fn write(dtype: DType, shape: &[usize], values: Vec<f64>) -> Result<Tensor, EvalError> {
        Ok(Tensor::from_f64s(dtype, shape, &values)?)
    }
}

macro_rules! wrapping_scalars {
    ($($integer:ty),*) => {$(
        impl Scalar for $integer {
            fn plus(self, other: $integer) -> $integer {
                self.wrapping_add(other)
            }

            fn times(self, other: $integer) -> $integer {
                self.wrapping_mul(other)
            }

            fn combine(self, alpha: f32, other: $integer, beta: f32) -> $integer {
                match (whole(alpha), whole(beta)) {
                    (Some(alpha), Some(beta)) => {
                        (alpha as $integer).times(self).plus((beta as $integer).times(other))
                    }
                    _ => (f64::from(alpha) * self as f64 + f64::from(beta) * other as f64) as $integer,
                }
            }

            fn read(tensor: &Tensor) -> Result<Vec<$integer>, EvalError> {
                Ok(tensor.elements::<$integer>()?.into_owned())
            }

            fn write(_: DType, shape: &[usize], values: Vec<$integer>) -> Result<Tensor, EvalError> {
                Ok(Tensor::new(shape, values)?)
            }
        }
    )*};
}

wrapping_scalars!(i8, i16, i32, i64, u8, u16, u32, u64);

/// A factor that is a whole number; its low bits are what wrapping arithmetic multiplies by.
fn whole(factor: f32) -> Option<i64> {
    // Every whole `f32` below 2^63 in magnitude is an `i64`.
    (factor.fract() == 0.0 && factor.abs() < 9.2e18).then_some(factor as i64)
}

/// A computation that is the same in every arithmetic.
pub(crate) trait Computation {
    /// The shape and elements of the result.
    fn compute<T: Scalar>(&self, inputs: &[Vec<T>]) -> Result<(Vec<usize>, Vec<T>), EvalError>;
}

/// Runs a computation in the arithmetic of its inputs, which have one type.
pub(crate) fn in_own_arithmetic(
    cx: &Evaluation<'_>,
    inputs: &[&Tensor],
    computation: &impl Computation,
) -> Result<Tensor, EvalError> {
    fn run<T: Scalar>(
        dtype: DType,
        inputs: &[&Tensor],
        computation: &impl Computation,
    ) -> Result<Tensor, EvalError> {
        let inputs =
            inputs.iter().map(|tensor| T::read(tensor)).collect::<Result<Vec<Vec<T>>, EvalError>>()?;
        let (shape, values) = computation.compute(&inputs)?;
        T::write(dtype, &shape, values)
    }
    let dtype = cx.common_type(inputs)?;
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => run::<f64>(dtype, inputs, computation),
        DType::I8 => run::<i8>(dtype, inputs, computation),
        DType::I16 => run::<i16>(dtype, inputs, computation),
        DType::I32 => run::<i32>(dtype, inputs, computation),
        DType::I64 => run::<i64>(dtype, inputs, computation),
        DType::U8 => run::<u8>(dtype, inputs, computation),
        DType::U16 => run::<u16>(dtype, inputs, computation),
        DType::U32 => run::<u32>(dtype, inputs, computation),
        DType::U64 => run::<u64>(dtype, inputs, computation),
        other => Err(cx.bad_type(other)),
    }
}
