//! The error function, and the activation that is made of it.

use super::exp::{exp, exp2_down};
use super::{polynomial, with_sign};
use crate::simd::Simd;

pub const ERF_ULPS: f64 = 3.0;
/// From -2 on.
pub const GELU_ULPS: f64 = 8.0;
/// Below -2: the exponent `x²/2` is rounded to 24 bits, and its exponential is off by as much.
pub const GELU_TAIL_ULPS: f64 = 128.0;

/// `erf(x) / x` in `x²`, fitted for the least greatest relative error (1.2e-9) over `|x| <= 1`.
const NEAR: [f32; 7] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    -0.376_126_26,
    0.112_835_854,
    -0.026_853_813,
    0.005_188_327_7,
    -0.000_801_019_4,
    0.000_078_538_61,
];

/// `ln(1 - erf(x))`, fitted for the least greatest error of `erf` (1.0e-9) over `1 <= x <= 4`.
const FAR: [f32; 7] = [
    -0.000_353_718_76,
    -1.127_04,
    -0.638_225_7,
    -0.103_037_37,
    0.021_805_32,
    -0.002_939_608,
    0.000_185_574_07,
];

#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let near = s.mul(magnitude, polynomial(s, s.mul(x, x), NEAR));
    // From 4 on erf rounds to 1.
    let far = polynomial(s, s.min(s.splat(4.0), magnitude), FAR);
    let far = s.sub(s.splat(1.0), exp(s, far));
    with_sign(s, s.select(s.lt(magnitude, s.splat(1.0)), near, far), x)
}

/// The normal distribution's tail below `-a` is `e^(-a²/2) · p(t)` with `t = 3 / (3 + a)`; fitted for the
/// least greatest relative error (9.2e-9) over `0 <= a <= 14.5`.
const TAIL: [f32; 10] = [
    5.308_88e-6,
    0.132_833_75,
    0.134_745_58,
    0.106_131_755,
    0.140_615_4,
    -0.096_785_7,
    0.277_094_66,
    -0.319_350_4,
    0.151_928_51,
    -0.027_218_893,
];

/// `x · Φ(x)` with the normal distribution's Φ. Of minus infinity NaN, as the product of infinity and zero is.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    // From 14.5 on the tail is below the smallest number.
    let a = s.min(s.splat(14.5), s.abs(x));
    let t = s.div(s.splat(3.0), s.add(a, s.splat(3.0)));
    let power = exp2_down(s, s.mul(s.mul(a, a), s.splat(-0.5 * std::f32::consts::LOG2_E)));
    let tail = s.mul(power, polynomial(s, t, TAIL));
    let share = s.select(s.lt(x, s.zero()), tail, s.sub(s.splat(1.0), tail));
    s.mul(x, share)
}
