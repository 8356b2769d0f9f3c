//! The functions of one value: what each is in a loop, and what it is expected to cost.

use planish_kernel::pointwise::{Kind, Unary};

use super::loops::{self, Loop, map1, unary};
use super::steps::copy;
use crate::simd::Simd;
use crate::vecmath;

/// A function of f32 vectors given by an expression; parameters are variables of that name.
macro_rules! unary_of {
    (|$s:ident, $x:ident $(, $field:ident)*| $body:expr) => {{
        #[derive(Clone, Copy)]
        struct This { $($field: f32),* }
        impl loops::Unary for This {
            #[inline(always)]
            fn apply<S: Simd>(&self, $s: S, $x: S::F) -> S::F {
                $(let $field = self.$field;)*
                $body
            }
        }
        unary(This { $($field),* })
    }};
}

/// The loop of a function from f32 to f32.
pub(super) fn float_unary(op: Unary) -> Loop {
    /// A function that is computed in f64, element by element.
    macro_rules! exact {
        ($f:expr) => {
            unary_of!(|s, x| vecmath::each_lane(s, x, |x| {
                let f: fn(f64) -> f64 = $f;
                f(f64::from(x)) as f32
            }))
        };
    }
    match op {
        Unary::Abs => unary_of!(|s, x| s.abs(x)),
        Unary::Neg => unary_of!(|s, x| s.neg(x)),
        Unary::Sign => unary_of!(|s, x| vecmath::sign(s, x)),
        Unary::Acos => exact!(f64::acos),
        Unary::Acosh => exact!(acosh),
        Unary::Asin => exact!(f64::asin),
        Unary::Asinh => exact!(f64::asinh),
        Unary::Atan => exact!(f64::atan),
        Unary::Atanh => exact!(f64::atanh),
        Unary::Ceil => unary_of!(|s, x| s.ceil(x)),
        Unary::Cos => unary_of!(|s, x| vecmath::cos(s, x)),
        Unary::Cosh => exact!(f64::cosh),
        Unary::Erf => unary_of!(|s, x| vecmath::erf(s, x)),
        Unary::Exp => unary_of!(|s, x| vecmath::exp(s, x)),
        Unary::Floor => unary_of!(|s, x| s.floor(x)),
        Unary::Log => unary_of!(|s, x| vecmath::log(s, x)),
        Unary::Reciprocal => unary_of!(|s, x| s.div(s.splat(1.0), x)),
        Unary::Round => unary_of!(|s, x| s.round(x)),
        Unary::RoundF16 => exact!(|x| planish_tensor::rounding::f16_from_f64(x).to_f64()),
        Unary::RoundBf16 => exact!(|x| planish_tensor::rounding::bf16_from_f64(x).to_f64()),
        Unary::Sigmoid => unary_of!(|s, x| vecmath::sigmoid(s, x)),
        Unary::Sin => unary_of!(|s, x| vecmath::sin(s, x)),
        Unary::Sinh => exact!(f64::sinh),
        Unary::Sqrt => unary_of!(|s, x| s.sqrt(x)),
        Unary::Tan => exact!(f64::tan),
        Unary::Tanh => unary_of!(|s, x| vecmath::tanh(s, x)),
        Unary::LeakyRelu { alpha } => {
            unary_of!(|s, x, alpha| vecmath::leaky_relu(s, x, s.splat(alpha)))
        }
        Unary::Elu { alpha } => unary_of!(|s, x, alpha| vecmath::elu(s, x, alpha)),
        Unary::Selu { alpha, gamma } => {
            unary_of!(|s, x, alpha, gamma| s.mul(s.splat(gamma), vecmath::elu(s, x, alpha)))
        }
        Unary::Celu { alpha } => unary_of!(|s, x, alpha| vecmath::celu(s, x, alpha)),
        Unary::Gelu => unary_of!(|s, x| vecmath::gelu(s, x)),
        Unary::GeluTanh => unary_of!(|s, x| vecmath::gelu_tanh(s, x)),
        Unary::HardSigmoid { alpha, beta } => {
            unary_of!(|s, x, alpha, beta| vecmath::hard_sigmoid(s, x, alpha, beta))
        }
        Unary::HardSwish => unary_of!(|s, x| vecmath::hard_swish(s, x)),
        Unary::Mish => unary_of!(|s, x| vecmath::mish(s, x)),
        Unary::Softplus => unary_of!(|s, x| vecmath::softplus(s, x)),
        Unary::Softsign => unary_of!(|s, x| vecmath::softsign(s, x)),
        Unary::Swish { alpha } => unary_of!(|s, x, alpha| vecmath::swish(s, x, alpha)),
        Unary::Shrink { bias, lambd } => {
            unary_of!(|s, x, bias, lambd| vecmath::shrink(s, x, bias, lambd))
        }
        Unary::ThresholdedRelu { alpha } => {
            unary_of!(|s, x, alpha| vecmath::thresholded_relu(s, x, alpha))
        }
        // These give booleans or take integers and are built only so.
        Unary::Not | Unary::BitwiseNot | Unary::IsNaN | Unary::IsInf { .. } => copy(Kind::F32),
    }
}

/// Arranged for `x` just above 1, where the standard library's form keeps half of the digits.
fn acosh(x: f64) -> f64 {
    // An f32 squared is far from overflow in f64.
    ((x - 1.0) + (x - 1.0).sqrt() * (x + 1.0).sqrt()).ln_1p()
}

/// The loop of a function of integers, or to or from truth values.
pub(super) fn other_unary(op: Unary, from: Kind) -> Loop {
    match (op, from) {
        (Unary::Abs, Kind::I32) => map1(i32::wrapping_abs),
        (Unary::Abs, _) => map1(i64::wrapping_abs),
        (Unary::Neg, Kind::I32) => map1(i32::wrapping_neg),
        (Unary::Neg, _) => map1(i64::wrapping_neg),
        (Unary::Sign, Kind::I32) => map1(i32::signum),
        (Unary::Sign, _) => map1(i64::signum),
        (Unary::BitwiseNot, Kind::I32) => map1(|x: i32| !x),
        (Unary::BitwiseNot, _) => map1(|x: i64| !x),
        (Unary::Not, _) => map1(|x: u8| x ^ 1),
        (Unary::IsNaN, _) => map1(|x: f32| u8::from(x.is_nan())),
        (Unary::IsInf { negative, positive }, _) => map1(move |x: f32| {
            u8::from((positive && x == f32::INFINITY) || (negative && x == f32::NEG_INFINITY))
        }),
        // Functions of f32, which are built only of f32.
        _ => copy(from),
    }
}

/// Nanoseconds that an element is expected to take, on a machine with AVX-512.
pub(super) fn unary_cost(op: Unary) -> f64 {
    match op {
        Unary::Acos | Unary::Acosh | Unary::Asin | Unary::Asinh | Unary::Atan => 15.0,
        Unary::Atanh | Unary::Cosh | Unary::Sinh | Unary::Tan => 15.0,
        Unary::Cos | Unary::Sin | Unary::Gelu | Unary::Erf | Unary::Mish | Unary::Softplus => 0.6,
        Unary::Exp | Unary::Log | Unary::Sigmoid | Unary::Tanh | Unary::GeluTanh => 0.4,
        Unary::Elu { .. } | Unary::Selu { .. } | Unary::Celu { .. } | Unary::Swish { .. } => 0.4,
        Unary::Sqrt | Unary::Reciprocal | Unary::Softsign => 0.2,
        Unary::Abs | Unary::Neg | Unary::Sign | Unary::Not | Unary::BitwiseNot => 0.06,
        Unary::IsNaN | Unary::IsInf { .. } | Unary::Ceil | Unary::Floor | Unary::Round => 0.06,
        Unary::RoundF16 | Unary::RoundBf16 | Unary::HardSwish | Unary::HardSigmoid { .. } => 0.06,
        Unary::LeakyRelu { .. } | Unary::Shrink { .. } | Unary::ThresholdedRelu { .. } => 0.06,
    }
}
