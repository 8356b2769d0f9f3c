//! Sine and cosine: reduced by multiples of π/2, then a polynomial; huge arguments go through f64.

use super::{each_lane, polynomial};
use crate::simd::Simd;

pub const TRIG_ULPS: f64 = 2.0;

/// π/2 in four parts; three have 11 bits, so that products with a multiple of 13 bits are exact.
const QUARTER: [f32; 4] = [1.570_312_5, 0.000_483_751_3, 7.549_533_6e-8, 2.563_344e-12];

/// Beyond this the multiple no longer has 13 bits.
const REACH: f32 = 8192.0;

/// `(sin x - x) / x³` and `(cos x - 1 + x²/2) / x⁴` in `x²`, over `|x| <= π/4`; errors 3.6e-9 and 9.6e-11.
const SINE: [f32; 3] = [-0.166_666_55, 0.008_332_173, -0.000_195_166_56];
const COSINE: [f32; 3] = [0.041_666_646, -0.001_388_736_2, 0.000_024_437_73];

#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    let value = wave(s, x, 0, |x| f64::from(x).sin() as f32);
    // The reduction loses the sign of zero.
    s.select(s.eq(x, s.zero()), x, value)
}

#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    wave(s, x, 1, |x| f64::from(x).cos() as f32)
}

/// `sin(x + shift·π/2)`
#[inline(always)]
fn wave<S: Simd>(s: S, x: S::F, shift: i32, exact: impl Fn(f32) -> f32) -> S::F {
    let far = s.lt(s.splat(REACH), s.abs(x));
    let n = s.round(s.mul(x, s.splat(std::f32::consts::FRAC_2_PI)));
    let mut r = x;
    for part in QUARTER {
        r = s.neg_mul_add(n, s.splat(part), r);
    }
    let square = s.mul(r, r);
    let sine = s.mul_add(s.mul(polynomial(s, square, SINE), square), r, r);
    let cosine = s.mul(s.mul(polynomial(s, square, COSINE), square), square);
    let cosine = s.add(s.neg_mul_add(s.splat(0.5), square, cosine), s.splat(1.0));
    let quarter = s.add_int(s.to_int(n), s.splat_int(shift));
    // 1 or -1 as a bit of the quarter says: the lowest chooses the function, the next the sign.
    let one = s.bits(s.splat(1.0));
    let sign_of = |bits: S::I| s.from_bits(s.or_int(s.and_int(bits, s.splat_int(i32::MIN)), one));
    let odd = s.lt(sign_of(s.shift_left::<31>(quarter)), s.zero());
    let value = s.mul(s.select(odd, cosine, sine), sign_of(s.shift_left::<30>(quarter)));
    // Only the far lanes change, so that no element's value hangs on its neighbours.
    if s.any(far) { s.select(far, each_lane(s, x, exact), value) } else { value }
}
