//! Functions of f32 vectors: exponentials, logarithms, trigonometry and the activations made of them.
//!
//! Every function is generic over the instruction set and `#[inline(always)]`. Beside each stands the most
//! ULPs by which it may miss the exact value (a named constant, tested over all exponents on every
//! instruction set). The machine without fused multiply and add counts too, so products that must be exact
//! are split by hand. NaN gives NaN; infinities, zeros with their signs and denormals are as IEEE has them,
//! unless the text beside a function says otherwise.

mod activation;
mod erf;
mod exp;
mod log;
#[cfg(test)]
mod tests;
mod trig;

pub use activation::{
    GELU_TANH_ULPS, HARD_ULPS, MISH_ULPS, SIGMOID_ULPS, SWISH_TAIL, SWISH_TAIL_ULPS, SWISH_ULPS, TAIL, celu,
    elu, gelu_tanh, hard_sigmoid, hard_swish, leaky_relu, mish, shrink, sigmoid, sign, softsign, swish,
    thresholded_relu,
};
pub use erf::{ERF_ULPS, GELU_TAIL_ULPS, GELU_ULPS, erf, gelu};
pub(crate) use exp::exp2_down;
pub use exp::{EXP_M1_ULPS, EXP_ULPS, TANH_ULPS, exp, exp_m1, tanh};
pub use log::{LOG_ULPS, SOFTPLUS_ULPS, log, softplus};
pub use trig::{TRIG_ULPS, cos, sin};

use crate::simd::Simd;

/// `c[0] + c[1]·x + c[2]·x² + …`
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[N - 1]);
    for idx in (0..N - 1).rev() {
        sum = s.mul_add(sum, x, s.splat(coefficients[idx]));
    }
    sum
}

/// The magnitude of one number with the sign of another; `magnitude` must not be negative.
#[inline(always)]
fn with_sign<S: Simd>(s: S, magnitude: S::F, sign: S::F) -> S::F {
    let sign = s.and_int(s.bits(sign), s.splat_int(i32::MIN));
    s.from_bits(s.or_int(s.bits(magnitude), sign))
}

/// Applies a scalar function to every lane: for what is too rare to be worth vector code.
#[inline(always)]
pub fn each_lane<S: Simd>(s: S, x: S::F, function: impl Fn(f32) -> f32) -> S::F {
    let mut lanes = [0.0f32; MAX_LANES];
    // SAFETY: no vector has more than MAX_LANES lanes.
    unsafe { s.store(lanes.as_mut_ptr(), x) };
    lanes[..S::LANES].iter_mut().for_each(|lane| *lane = function(*lane));
    // SAFETY: as above.
    unsafe { s.load(lanes.as_ptr()) }
}

/// Lanes of the widest vector.
pub const MAX_LANES: usize = 16;
