//! The error function and its complement in double precision.

use std::f64::consts::FRAC_2_SQRT_PI;

/// Below this the series is used, from here on the continued fraction: both need their greatest number of
/// terms here (32 and 60 for a relative remainder below 2^-53) and fewer away from it.
const FRACTION_FROM: f64 = 2.0;

/// Terms of the continued fraction; enough at [`FRACTION_FROM`] and everywhere beyond.
const FRACTION_TERMS: u32 = 60;

/// `erfc` is below the smallest number from here on.
const UNDERFLOW_FROM: f64 = 27.3;

/// The error function, with a relative error of a few units in the last place.
pub(crate) fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size < FRACTION_FROM { series(x) } else { (1.0 - fraction(size)).copysign(x) }
}

/// `1 - erf(x)` without the cancellation of the right tail: a relative error of a few units in the last
/// place for negative `x` and beyond 2, and at most 2e-13 between.
pub(crate) fn erfc(x: f64) -> f64 {
    match x {
        _ if x >= FRACTION_FROM => fraction(x),
        _ if x <= -FRACTION_FROM => 2.0 - fraction(-x),
        _ => 1.0 - series(x),
    }
}

/// `erf(x) = 2/√π · x · e^(-x²) · Σ (2x²)^n / (1·3·5···(2n+1))`: no term is negative, so nothing cancels.
/// NaN comes back as NaN.
fn series(x: f64) -> f64 {
    let step = 2.0 * x * x;
    let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
    while term > sum * (f64::EPSILON / 4.0) {
        odd += 2.0;
        term *= step / odd;
        sum += term;
    }
    FRAC_2_SQRT_PI * x * exp_of_minus_square(x) * sum
}

/// `erfc(x) = e^(-x²)/√π / (x + ½/(x + 1/(x + 1½/(x + 2/(x + …)))))`, from the inside out, for `x` of at
/// least [`FRACTION_FROM`] or NaN.
fn fraction(x: f64) -> f64 {
    if x >= UNDERFLOW_FROM {
        return 0.0;
    }
    let denominator = (1..=FRACTION_TERMS).rev().fold(x, |inner, n| x + 0.5 * f64::from(n) / inner);
    exp_of_minus_square(x) * (0.5 * FRAC_2_SQRT_PI) / denominator
}

/// `e^(-x²)`, with the rounding error of the square (675 ulp of the result at x = 26) put back.
fn exp_of_minus_square(x: f64) -> f64 {
    let square = x * x;
    let cut_off = x.mul_add(x, -square);
    let rough = (-square).exp();
    rough - rough * cut_off
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units in the last place, as a relative error, that the tests allow `erf` and the tails of `erfc`.
    const FEW_ULPS: f64 = 4.0 * f64::EPSILON;
    /// Between 0 and 2, `erfc` is a difference from 1 and loses up to 1/erfc(2) = 214 times that.
    const CANCELLED: f64 = 2e-13;

    /// `x`, `erf(x)`, `erfc(x)` to 17 digits.
    const KNOWN: [(f64, f64, f64); 12] = [
        (0.01, 0.011283415555849618, 0.9887165844441503),
        (0.1, 0.1124629160182849, 0.887537083981715),
        (0.5, 0.5204998778130465, 0.4795001221869535),
        (1.0, 0.8427007929497149, 0.15729920705028513),
        (1.5, 0.9661051464753108, 0.033894853524689274),
        (1.99, 0.995111413199617, 0.004888586800383003),
        (2.0, 0.9953222650189527, 0.004677734981047266),
        (2.5, 0.999593047982555, 0.0004069520174449589),
        (3.7, 0.9999998328489421, 1.6715105790914599e-07),
        (5.0, 0.9999999999984626, 1.537459794428035e-12),
        (10.0, 1.0, 2.088487583762545e-45),
        (26.0, 1.0, 5.663192408856143e-296),
    ];

    #[test]
    fn known_values() {
        for (x, erf_x, erfc_x) in KNOWN {
            assert!((erf(x) / erf_x - 1.0).abs() <= FEW_ULPS, "erf({x}) = {:e}, not {erf_x:e}", erf(x));
            assert_eq!(erf(-x), -erf(x));
            let allowed = if (0.0..FRACTION_FROM).contains(&x) { CANCELLED } else { FEW_ULPS };
            assert!((erfc(x) / erfc_x - 1.0).abs() <= allowed, "erfc({x}) = {:e}, not {erfc_x:e}", erfc(x));
            assert!((erfc(-x) / (1.0 + erf_x) - 1.0).abs() <= FEW_ULPS);
        }
    }

    #[test]
    fn ends_and_specials() {
        assert_eq!((erf(0.0), erf(f64::INFINITY), erf(f64::NEG_INFINITY)), (0.0, 1.0, -1.0));
        assert_eq!((erfc(0.0), erfc(f64::INFINITY), erfc(f64::NEG_INFINITY)), (1.0, 0.0, 2.0));
        assert!(erf(-0.0).is_sign_negative());
        assert!(erf(f64::NAN).is_nan() && erfc(f64::NAN).is_nan());
        assert_eq!(erf(5e-324), FRAC_2_SQRT_PI * 5e-324);
    }

    #[test]
    fn series_and_fraction_meet() {
        let below = f64::from_bits(FRACTION_FROM.to_bits() - 1);
        assert!((erf(FRACTION_FROM) - erf(below)).abs() <= FEW_ULPS);
    }
}
