//! How far a kernel's result may be from what the reference says.

use planish_kernel::{Arithmetic, Numeric};
use planish_tensor::{DType, Tensor};

/// How far results may be from the reference: `relative` of the reference's value, and `absolute` besides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

impl Tolerance {
    /// Bit by bit.
    pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

    /// Whatever the values are.
    pub const fn absolute(absolute: f64) -> Tolerance {
        Tolerance { relative: 0.0, absolute }
    }

    /// With what rounding to the output's type adds: half a unit in the last place.
    fn stored(self, dtype: DType) -> Tolerance {
        let (unit, least) = match dtype {
            DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
            DType::BF16 => (2f64.powi(-8), 0.0),
            _ => (0.0, 0.0),
        };
        // What is just at the middle may be rounded either way.
        let slack = if self.relative == 0.0 { 1.0 } else { 1.01 };
        Tolerance { relative: self.relative + unit * slack, absolute: self.absolute + least }
    }
}

/// Asserts that a result is as near to the reference's as the tolerance and its own type allow. Whole numbers and
/// booleans must be the same; so must NaN and infinities.
#[track_caller]
pub fn assert_close(got: &Tensor, want: &Tensor, tolerance: Tolerance, what: &str) {
    if let Err(wrong) = within(got, want, tolerance) {
        panic!("{what}: {wrong}");
    }
}

/// The same as a result, whose error names the first elements that are wrong.
pub fn within(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    let tolerance = tolerance.stored(got.dtype());
    // An infinite bound would let everything pass.
    let near = |got: f64, want: f64| {
        want.is_finite() && (got - want).abs() <= tolerance.absolute + tolerance.relative * want.abs()
    };
    each(got, want, |got, want| got == want || near(got, want))
}

/// Compares element by element; whole numbers and booleans must be the same.
fn each(got: &Tensor, want: &Tensor, mut near: impl FnMut(f64, f64) -> bool) -> Result<(), String> {
    let is_real = got.dtype().is_float();
    let same_type = got.dtype() == want.dtype() || (is_real && want.dtype().is_float());
    if got.shape() != want.shape() || !same_type {
        let named = |tensor: &Tensor| format!("{}{:?}", tensor.dtype(), tensor.shape());
        return Err(format!("{}, not {}", named(got), named(want)));
    }
    let mut wrong = Vec::new();
    if is_real {
        for (idx, (got, want)) in got.to_f64s().into_iter().zip(want.to_f64s()).enumerate() {
            if !((got.is_nan() && want.is_nan()) || near(got, want)) {
                wrong.push(format!("[{idx}] is {got:e}, not {want:e}"));
            }
        }
    } else {
        for (idx, (got, want)) in got.to_i64s().into_iter().zip(want.to_i64s()).enumerate() {
            if got != want {
                wrong.push(format!("[{idx}] is {got}, not {want}"));
            }
        }
    }
    match wrong.len() {
        0 => Ok(()),
        n => Err(format!("{n} of {} elements are wrong: {}", got.len(), wrong[..n.min(3)].join("; "))),
    }
}

/// Sums of some thousand products in f32 are off by a few units in the last place of their terms: 6e-8 times the square
/// root of the terms, with room for approximated functions.
const F32: f64 = 2e-5;
/// Factors lose all but 10 bits of mantissa: 2^-11 each, and chance adds up to some four times that.
const TF32: f64 = 4e-3;
/// The result is rounded to 11 bits once, and so may be weights of an attention before it.
const F16: f64 = 3e-3;
/// As f16, with 8 bits.
const BF16: f64 = 2.4e-2;

/// The share of the exact value, and of the values' root mean square, that an element may be off.
fn bound(numeric: Numeric, output: DType) -> f64 {
    let arithmetic = match numeric.element {
        Arithmetic::Tf32 => TF32,
        Arithmetic::F16 => F16,
        Arithmetic::Bf16 => BF16,
        _ => F32,
    };
    let storage = match output {
        DType::F16 => F16,
        DType::BF16 => BF16,
        _ => F32,
    };
    arithmetic.max(storage)
}

/// The largest error of a result against the exact one, as a share of what its number types explain, `slack` times as
/// much being granted. An error names the first elements beyond it.
pub fn error_within(numeric: Numeric, got: &Tensor, want: &Tensor, slack: f64) -> Result<f64, String> {
    let values = want.to_f64s();
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let rms = (finite().map(|value| value * value).sum::<f64>() / finite().count().max(1) as f64).sqrt();
    let bound = slack * bound(numeric, got.dtype());
    let most = match got.dtype() {
        DType::F16 => 65_504.0,
        DType::BF16 | DType::F32 => f64::from(f32::MAX),
        _ => f64::INFINITY,
    };
    let mut worst = 0.0f64;
    each(got, want, |got, want| {
        // What is too large for the type is infinite there.
        let overflows =
            got.is_infinite() && want.abs() >= most * (1.0 - bound) && got.signum() == want.signum();
        if got == want || overflows {
            return true;
        }
        let error = (got - want).abs() / (bound * (want.abs() + rms));
        worst = worst.max(error);
        error <= 1.0
    })?;
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Tensor {
        Tensor::vector(values.to_vec())
    }

    #[test]
    fn differences_beyond_the_tolerance_are_named() {
        let tolerance = Tolerance { relative: 1e-2, absolute: 1e-3 };
        assert_eq!(within(&f32s(&[1.0, 0.0005]), &f32s(&[1.01, 0.0]), tolerance), Ok(()));
        let error = within(&f32s(&[1.0, 0.5, f32::NAN]), &f32s(&[1.0, 0.0, 1.0]), tolerance).unwrap_err();
        assert!(error.starts_with("2 of 3 elements are wrong: [1] is 5e-1, not 0e0"), "{error}");
        let odd = [f32::NAN, f32::INFINITY];
        assert_eq!(within(&f32s(&odd), &f32s(&odd), Tolerance::EXACT), Ok(()));
        assert!(within(&f32s(&[f32::INFINITY]), &f32s(&[f32::NEG_INFINITY]), tolerance).is_err());
        assert!(within(&f32s(&[1.0]), &Tensor::vector(vec![1i64]), tolerance).is_err());
        assert!(within(&Tensor::vector(vec![1i64]), &Tensor::vector(vec![2i64]), tolerance).is_err());
    }

    #[test]
    fn a_type_of_few_bits_is_granted_its_rounding() {
        let third = Tensor::from_f64s(DType::F64, &[1], &[1.0 / 3.0]).unwrap();
        let stored = Tensor::from_f64s(DType::F16, &[1], &[1.0 / 3.0]).unwrap();
        assert_eq!(within(&stored, &third, Tolerance::EXACT), Ok(()));
        let off = Tensor::from_f64s(DType::F16, &[1], &[1.0 / 3.0 + 4e-4]).unwrap();
        assert!(within(&off, &third, Tolerance::EXACT).is_err());
        assert!(error_within(Numeric::F16, &off, &third, 1.0).unwrap() < 1.0);
        assert!(error_within(Numeric::F32, &f32s(&[1.001]), &f32s(&[1.0]), 1.0).is_err());
        let large = Tensor::from_f64s(DType::F64, &[1], &[70_000.0]).unwrap();
        let infinite = Tensor::from_f64s(DType::F16, &[1], &[f64::INFINITY]).unwrap();
        assert_eq!(error_within(Numeric::F16, &infinite, &large, 1.0), Ok(0.0));
    }
}
