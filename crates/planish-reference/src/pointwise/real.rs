//! The functions of real numbers after the activations, each as ONNX writes it down but arranged so that
//! nothing cancels or overflows on the way.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2};

use super::erf::erfc;

/// The larger number; NaN if either is, unlike `f64::max`.
pub(crate) fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

/// The smaller number; NaN if either is, unlike `f64::min`.
pub(crate) fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || a <= b { a } else { b }
}

/// -1, 0 or 1; NaN stays.
pub(crate) fn sign(x: f64) -> f64 {
    match x {
        _ if x > 0.0 => 1.0,
        _ if x < 0.0 => -1.0,
        _ if x.is_nan() => x,
        _ => 0.0,
    }
}

/// Arranged for `x` just above 1, where the standard library's form keeps half of the digits.
pub(crate) fn acosh(x: f64) -> f64 {
    // Beyond this the square root is `x` itself, and twice `x` might overflow.
    const ROOT_IS_X: f64 = 1e10;
    if x > ROOT_IS_X { x.ln() + LN_2 } else { ((x - 1.0) + (x - 1.0).sqrt() * (x + 1.0).sqrt()).ln_1p() }
}

pub(crate) fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// `slope·x` below zero; also PRelu.
pub(crate) fn leaky_relu(x: f64, slope: f64) -> f64 {
    if x < 0.0 { slope * x } else { x }
}

pub(crate) fn thresholded_relu(x: f64, alpha: f64) -> f64 {
    if x > alpha { x } else { 0.0 }
}

/// `1 / (1 + e^-x)`, by the side on which the exponential does not overflow.
pub(crate) fn sigmoid(x: f64) -> f64 {
    if x < 0.0 {
        let small = x.exp();
        small / (1.0 + small)
    } else {
        1.0 / (1.0 + (-x).exp())
    }
}

/// `max(0, min(1, alpha·x + beta))`
pub(crate) fn hard_sigmoid(x: f64, alpha: f64, beta: f64) -> f64 {
    max(0.0, min(1.0, alpha * x + beta))
}

/// `x · hard_sigmoid(x, 1/6, 1/2)`
pub(crate) fn hard_swish(x: f64) -> f64 {
    x * max(0.0, min(1.0, x / 6.0 + 0.5))
}

/// `x · sigmoid(alpha·x)`
pub(crate) fn swish(x: f64, alpha: f64) -> f64 {
    x * sigmoid(alpha * x)
}

/// `ln(1 + e^x)`
pub(crate) fn softplus(x: f64) -> f64 {
    if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() }
}

/// `x / (1 + |x|)`
pub(crate) fn softsign(x: f64) -> f64 {
    x / (1.0 + x.abs())
}

/// `x · tanh(ln(1 + e^x))`
pub(crate) fn mish(x: f64) -> f64 {
    x * softplus(x).tanh()
}

/// `alpha·(e^x - 1)` below zero.
pub(crate) fn elu(x: f64, alpha: f64) -> f64 {
    if x < 0.0 { alpha * x.exp_m1() } else { x }
}

/// `gamma · elu(x, alpha)`
pub(crate) fn selu(x: f64, alpha: f64, gamma: f64) -> f64 {
    gamma * elu(x, alpha)
}

/// `max(0, x) + min(0, alpha·(e^(x/alpha) - 1))`
pub(crate) fn celu(x: f64, alpha: f64) -> f64 {
    max(0.0, x) + min(0.0, alpha * (x / alpha).exp_m1())
}

/// `x/2 · (1 + erf(x/√2))`, with `1 + erf(z) = erfc(-z)`.
pub(crate) fn gelu(x: f64) -> f64 {
    0.5 * x * erfc(-x * FRAC_1_SQRT_2)
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, with `(1 + tanh(z))/2 = sigmoid(2z)`.
pub(crate) fn gelu_tanh(x: f64) -> f64 {
    // √(2/π) = 2/√π · 1/√2
    let inner = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * x * x * x);
    x * sigmoid(2.0 * inner)
}

/// Zero within `lambd` of zero, otherwise `bias` closer to zero.
pub(crate) fn shrink(x: f64, bias: f64, lambd: f64) -> f64 {
    match x {
        _ if x < -lambd => x + bias,
        _ if x > lambd => x - bias,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::erf::erf;
    use super::*;

    /// A definition and its rearrangement may differ by the roundings of a few operations.
    const FEW_ULPS: f64 = 8.0 * f64::EPSILON;

    #[track_caller]
    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= FEW_ULPS * expected.abs(), "{found:e}, not {expected:e}");
    }

    #[test]
    fn rearrangements_equal_the_written_forms() {
        for x in [-3.0f64, -0.7, -0.01, 0.0, 0.2, 1.0, 4.5] {
            assert_close(sigmoid(x), 1.0 / (1.0 + (-x).exp()));
            // These written forms lose digits for negative x, so they only serve within an absolute bound.
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            for (found, written) in [
                (softplus(x), (1.0 + x.exp()).ln()),
                (mish(x), x * (1.0 + x.exp()).ln().tanh()),
                (gelu_tanh(x), 0.5 * x * (1.0 + inner.tanh())),
                (gelu(x), 0.5 * x * (1.0 + erf(x / 2f64.sqrt()))),
            ] {
                assert!((found - written).abs() <= FEW_ULPS, "{x}: {found:e}, not {written:e}");
            }
        }
    }

    #[test]
    fn tails_keep_their_digits() {
        assert_close(sigmoid(-740.0), (-740f64).exp());
        assert_eq!(sigmoid(800.0), 1.0);
        assert_eq!(softplus(1000.0), 1000.0);
        assert_close(softplus(-50.0), (-50f64).exp());
        // erfc(10/√2)/2 = 7.619853024160527e-24
        assert!((gelu(-10.0) / -7.619853024160527e-23 - 1.0).abs() < 1e-13);
    }

    #[test]
    fn acosh_inverts_cosh() {
        for y in [0.5, 1.0, 3.0, 20.0, 30.0, 700.0f64] {
            assert!((acosh(y.cosh()) - y).abs() <= FEW_ULPS * y.max(1.0), "{y}");
        }
        // acosh(1 + d) = √(2d)·(1 - d/12 + …)
        let d = 2f64.powi(-40);
        assert_close(acosh(1.0 + d), (2.0 * d).sqrt() * (1.0 - d / 12.0));
        assert_close(acosh(f64::MAX), f64::MAX.ln() + LN_2);
        assert!(acosh(0.5).is_nan() && acosh(-2.0).is_nan() && acosh(f64::NAN).is_nan());
    }

    #[test]
    fn nan_goes_through_what_is_not_a_comparison() {
        let functions: [fn(f64) -> f64; 10] =
            [sign, relu, sigmoid, hard_swish, softplus, softsign, mish, gelu, gelu_tanh, |x| {
                hard_sigmoid(x, 0.2, 0.5)
            }];
        for function in functions {
            assert!(function(f64::NAN).is_nan());
        }
        for x in [elu(f64::NAN, 1.0), celu(f64::NAN, 1.0), selu(f64::NAN, 1.0, 1.0), swish(f64::NAN, 1.0)] {
            assert!(x.is_nan());
        }
        assert!(max(f64::NAN, 1.0).is_nan() && max(1.0, f64::NAN).is_nan());
        assert!(min(f64::NAN, 1.0).is_nan() && min(1.0, f64::NAN).is_nan());
        // ONNX writes these two with "otherwise 0".
        assert_eq!(thresholded_relu(f64::NAN, 1.0), 0.0);
        assert_eq!(shrink(f64::NAN, 0.0, 0.5), 0.0);
    }

    #[test]
    fn pieces_meet_where_onnx_says() {
        assert_eq!(hard_sigmoid(-10.0, 0.2, 0.5), 0.0);
        assert_eq!(hard_sigmoid(10.0, 0.2, 0.5), 1.0);
        assert_eq!(hard_swish(3.0), 3.0);
        assert_eq!(hard_swish(-3.0), 0.0);
        assert_eq!((elu(-1.0, 2.0), elu(1.5, 2.0)), (2.0 * (-1f64).exp_m1(), 1.5));
        assert_eq!((celu(-2.0, 2.0), celu(2.0, 2.0)), (2.0 * (-1f64).exp_m1(), 2.0));
        assert_eq!((shrink(-2.0, 1.0, 1.5), shrink(1.5, 1.0, 1.5), shrink(2.0, 1.0, 1.5)), (-1.0, 0.0, 1.0));
        assert_eq!((thresholded_relu(1.0, 1.0), thresholded_relu(1.1, 1.0)), (0.0, 1.1));
        assert_eq!((leaky_relu(-2.0, 0.1), leaky_relu(2.0, 0.1)), (-0.2, 2.0));
        assert!(relu(-0.0).is_sign_negative(), "max(0, x) may keep the sign of zero");
    }
}
