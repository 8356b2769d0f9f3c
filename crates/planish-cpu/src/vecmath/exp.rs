//! The exponential, `e^x - 1`, and the hyperbolic tangent.
//!
//! `x = n·ln 2 + r` with `|r| <= ln 2 / 2`; then `e^r` by a polynomial, and `2^n` by adding to the exponent.

use super::{polynomial, with_sign};
use crate::simd::Simd;

pub const EXP_ULPS: f64 = 1.0;
pub const EXP_M1_ULPS: f64 = 2.0;
pub const TANH_ULPS: f64 = 3.0;

/// ln 2 in two parts. The first has 15 bits, so that its product with any `n` here (9 bits) is exact without
/// a fused multiply and add.
const LN_2_HI: f32 = 0.693_145_75;
const LN_2_LO: f32 = 1.428_606_8e-6;

/// Below this `e^x` rounds to zero.
const LOWEST: f32 = -104.0;
/// Above this it is infinite.
const HIGHEST: f32 = 89.0;

/// `(e^r - 1 - r) / r²`, fitted for the least greatest error relative to `e^r` (3.1e-9) over `|r| <= ln 2 / 2`.
const REST: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_432];

/// Splits `x`, which must be between the bounds: `n` and `r`.
#[inline(always)]
fn split<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.neg_mul_add(n, s.splat(LN_2_HI), x);
    (n, s.neg_mul_add(n, s.splat(LN_2_LO), r))
}

/// `x` held between two bounds; NaN stays.
#[inline(always)]
pub(super) fn hold<S: Simd>(s: S, x: S::F, lo: f32, hi: f32) -> S::F {
    // The machine's minimum and maximum give the second operand when one is NaN.
    s.min(s.splat(hi), s.max(s.splat(lo), x))
}

#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, r) = split(s, hold(s, x, LOWEST, HIGHEST));
    let rest = polynomial(s, r, REST);
    let power = s.add(s.mul_add(rest, s.mul(r, r), r), s.splat(1.0));
    s.scale(power, n)
}

/// `(2^r - 1) / r`, fitted for the least greatest error relative to `2^r` (2.0e-9) over `|r| <= 1/2`.
const POWER: [f32; 6] =
    [std::f32::consts::LN_2, 0.240_226_48, 0.055_503_32, 0.009_618_439, 0.001_339_900_3, 0.000_153_532_57];

/// `2^x` as `2^n` and what it is to be multiplied with. Cheaper than [`exp`], as nothing has to be taken off in parts; who
/// makes the exponent by multiplying pays with as many ULPs as it is large.
#[inline(always)]
fn power<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(x);
    let r = s.sub(x, n);
    (s.mul_add(polynomial(s, r, POWER), r, s.splat(1.0)), n)
}

/// `2^x` for `x` from -126 to 128; from 127.5 on it is infinite.
#[inline(always)]
pub(super) fn exp2_near<S: Simd>(s: S, x: S::F) -> S::F {
    let (power, n) = power(s, x);
    s.scale_near(power, n)
}

/// `2^x` for `x` from -240 to 0, or just above.
#[inline(always)]
pub(crate) fn exp2_down<S: Simd>(s: S, x: S::F) -> S::F {
    let (power, n) = power(s, x);
    s.scale_down(power, n)
}

/// `e^x - 1`, exact to the last bits near zero too.
#[inline(always)]
pub fn exp_m1<S: Simd>(s: S, x: S::F) -> S::F {
    // Below -30 the result is -1; the bound keeps 2^-n finite.
    let (n, r) = split(s, hold(s, x, -30.0, HIGHEST));
    let small = s.mul_add(polynomial(s, r, REST), s.mul(r, r), r);
    let one_less = s.sub(s.splat(1.0), s.scale(s.splat(1.0), s.neg(n)));
    // For tiny x the sum would lose the sign of zero: there n is 0 and nothing is added.
    let sum = s.select(s.eq(n, s.zero()), small, s.add(small, one_less));
    s.scale(sum, n)
}

#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // From 10 on tanh rounds to 1.
    let magnitude = s.min(s.splat(10.0), s.abs(x));
    let grown = exp_m1(s, s.add(magnitude, magnitude));
    with_sign(s, s.div(grown, s.add(grown, s.splat(2.0))), x)
}
