//! The natural logarithm, and softplus, which is one.

use super::exp::exp;
use super::polynomial;
use crate::simd::Simd;

pub const LOG_ULPS: f64 = 2.0;
pub const SOFTPLUS_ULPS: f64 = 3.0;

const LN_2_HI: f32 = 0.693_145_75;
const LN_2_LO: f32 = 1.428_606_8e-6;

/// `(ln(1 + f) - f + f²/2) / f³`, fitted for the least greatest error relative to the logarithm (5.8e-9) over
/// `√½ <= 1 + f <= √2`.
const REST: [f32; 8] = [
    0.333_333_3,
    -0.250_008_2,
    0.200_012_27,
    -0.166_233_57,
    0.142_017_59,
    -0.131_601_83,
    0.127_615_76,
    -0.076_344_93,
];

/// `ln(1 + f) + exponent·ln 2`
#[inline(always)]
fn assemble<S: Simd>(s: S, f: S::F, exponent: S::F) -> S::F {
    let square = s.mul(f, f);
    let cubic = s.mul(s.mul(polynomial(s, f, REST), square), f);
    // From the smallest to the largest: the low part of ln 2, the cubic, the square, then f and the high part.
    let low = s.mul_add(exponent, s.splat(LN_2_LO), cubic);
    let low = s.neg_mul_add(s.splat(0.5), square, low);
    // The high part's product with the exponent is exact, so this sum is rounded twice, not more.
    s.mul_add(exponent, s.splat(LN_2_HI), s.add(f, low))
}

#[inline(always)]
pub fn log<S: Simd>(s: S, x: S::F) -> S::F {
    // Denormals are multiplied up, which the exponent then takes back.
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let raised = s.select(tiny, s.mul(x, s.splat(16_777_216.0)), x);
    // The bits of √½: what is above them is exponent and a fraction from √½ to √2.
    const ROOT_HALF: i32 = 0x3f35_04f3;
    let bits = s.sub_int(s.bits(raised), s.splat_int(ROOT_HALF));
    let exponent = s.to_float(s.shift_right::<23>(bits));
    let exponent = s.sub(exponent, s.select(tiny, s.splat(24.0), s.zero()));
    let fraction = s.add_int(s.and_int(bits, s.splat_int(0x007f_ffff)), s.splat_int(ROOT_HALF));
    let f = s.sub(s.from_bits(fraction), s.splat(1.0));
    let result = assemble(s, f, exponent);
    // Of zero minus infinity; below zero NaN; infinity and NaN themselves (not below infinity).
    let result = s.select(s.lt(x, s.splat(f32::INFINITY)), result, x);
    let result = s.select(s.eq(x, s.zero()), s.splat(f32::NEG_INFINITY), result);
    s.select(s.lt(x, s.zero()), s.splat(f32::NAN), result)
}

/// `ln(1 + e)` for `0 <= e <= 1`.
#[inline(always)]
fn log_1p_unit<S: Simd>(s: S, e: S::F) -> S::F {
    // (1 + e) / 2 - 1 = (e - 1) / 2, exact where it is used.
    let halved = s.lt(s.splat(std::f32::consts::SQRT_2 - 1.0), e);
    let f = s.select(halved, s.mul(s.splat(0.5), s.sub(e, s.splat(1.0))), e);
    assemble(s, f, s.select(halved, s.splat(1.0), s.zero()))
}

/// `ln(1 + e^x)`
#[inline(always)]
pub fn softplus<S: Simd>(s: S, x: S::F) -> S::F {
    let small = log_1p_unit(s, exp(s, s.neg(s.abs(x))));
    s.add(s.max(s.zero(), x), small)
}
