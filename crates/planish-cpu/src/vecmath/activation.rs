//! Activations that are made of an exponential, or of comparisons.

use super::exp::{exp, exp_m1, exp2_near, hold};
use crate::simd::Simd;

pub const SIGMOID_ULPS: f64 = 3.0;
/// From -2 on; below, the rounded exponent costs about as many ULPs as `x` is large: see [`SWISH_TAIL_ULPS`].
pub const SWISH_ULPS: f64 = 5.0;
pub const SWISH_TAIL_ULPS: f64 = 100.0;
/// From -88.7 on downwards the result is zero; nearer to zero than this, errors count as at this number.
pub const SWISH_TAIL: f64 = 1e-30;
pub const MISH_ULPS: f64 = 5.0;
/// The argument of the hyperbolic tangent is rounded before it is exponentiated, so that far on the negative
/// side the small result is known to fewer digits: ULPs here are those of results from 2^-7 on.
pub const GELU_TANH_ULPS: f64 = 16.0;
/// Of the piecewise linear ones.
pub const HARD_ULPS: f64 = 3.0;

/// Products with a factor that is denormal keep fewer digits: below this, ULPs count as those of this number.
pub const TAIL: f64 = 1.5e-36;

/// `1 / (1 + e^-x)`, by the side on which the exponential does not overflow.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let small = exp(s, s.neg(s.abs(x)));
    let one = s.splat(1.0);
    s.div(s.select(s.lt(x, s.zero()), small, one), s.add(small, one))
}

/// `x · sigmoid(alpha·x)`
#[inline(always)]
pub fn swish<S: Simd>(s: S, x: S::F, alpha: f32) -> S::F {
    over_logistic(s, x, s.mul(x, s.splat(-alpha * std::f32::consts::LOG2_E)))
}

/// `x / (1 + 2^exponent)`
#[inline(always)]
fn over_logistic<S: Simd>(s: S, x: S::F, exponent: S::F) -> S::F {
    // Below -126 the sum is 1 anyway; from 127.5 on it is infinite and the quotient zero.
    let power = exp2_near(s, hold(s, exponent, -126.0, 128.0));
    s.div(x, s.add(power, s.splat(1.0)))
}

/// `x · tanh(ln(1 + e^x))`; with `n = e^x·(e^x + 2)` this is `x · n / (n + 2)`.
#[inline(always)]
pub fn mish<S: Simd>(s: S, x: S::F) -> S::F {
    // From 20 on the quotient rounds to 1, and far beyond the square would overflow.
    let e = exp(s, s.min(s.splat(20.0), x));
    let n = s.mul(e, s.add(e, s.splat(2.0)));
    s.mul(x, s.div(n, s.add(n, s.splat(2.0))))
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    // (1 + tanh(z)) / 2 = sigmoid(2z), and 2·√(2/π) = 1.5957691.
    const TWICE_ROOT: f32 = 1.595_769;
    // Beyond 20 the sigmoid is 0 or 1, and farther out the cube would overflow.
    let held = hold(s, x, -20.0, 20.0);
    let square = s.mul(held, held);
    const FACTOR: f32 = -TWICE_ROOT * std::f32::consts::LOG2_E;
    let exponent = s.mul(held, s.mul_add(square, s.splat(0.044_715 * FACTOR), s.splat(FACTOR)));
    over_logistic(s, x, exponent)
}

/// `alpha·(e^x - 1)` below zero.
#[inline(always)]
pub fn elu<S: Simd>(s: S, x: S::F, alpha: f32) -> S::F {
    s.select(s.lt(x, s.zero()), s.mul(s.splat(alpha), exp_m1(s, x)), x)
}

/// `max(0, x) + min(0, alpha·(e^(x/alpha) - 1))`
#[inline(always)]
pub fn celu<S: Simd>(s: S, x: S::F, alpha: f32) -> S::F {
    let alpha = s.splat(alpha);
    let below = s.mul(alpha, exp_m1(s, s.div(x, alpha)));
    s.add(s.max(s.zero(), x), s.min(s.zero(), below))
}

/// `max(0, min(1, alpha·x + beta))`
#[inline(always)]
pub fn hard_sigmoid<S: Simd>(s: S, x: S::F, alpha: f32, beta: f32) -> S::F {
    hold(s, s.mul_add(x, s.splat(alpha), s.splat(beta)), 0.0, 1.0)
}

/// `x · max(0, min(1, x/6 + 1/2))`
#[inline(always)]
pub fn hard_swish<S: Simd>(s: S, x: S::F) -> S::F {
    // (x + 3) / 6 is exactly 0 at -3 and 1 at 3, which a rounded sixth would miss.
    let share = s.mul(hold(s, s.add(x, s.splat(3.0)), 0.0, 6.0), s.splat(1.0 / 6.0));
    s.mul(x, s.min(s.splat(1.0), share))
}

/// `x / (1 + |x|)`
#[inline(always)]
pub fn softsign<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(x, s.add(s.abs(x), s.splat(1.0)))
}

#[inline(always)]
pub fn leaky_relu<S: Simd>(s: S, x: S::F, slope: S::F) -> S::F {
    s.select(s.lt(x, s.zero()), s.mul(slope, x), x)
}

#[inline(always)]
pub fn thresholded_relu<S: Simd>(s: S, x: S::F, alpha: f32) -> S::F {
    s.select(s.lt(s.splat(alpha), x), x, s.zero())
}

/// Zero within `lambd` of zero, otherwise `bias` closer to zero.
#[inline(always)]
pub fn shrink<S: Simd>(s: S, x: S::F, bias: f32, lambd: f32) -> S::F {
    let above = s.select(s.lt(s.splat(lambd), x), s.sub(x, s.splat(bias)), s.zero());
    s.select(s.lt(x, s.splat(-lambd)), s.add(x, s.splat(bias)), above)
}

/// -1, 0 or 1; NaN stays.
#[inline(always)]
pub fn sign<S: Simd>(s: S, x: S::F) -> S::F {
    let above = s.select(s.lt(s.zero(), x), s.splat(1.0), s.zero());
    let signed = s.select(s.lt(x, s.zero()), s.splat(-1.0), above);
    s.select(s.is_nan(x), x, signed)
}
