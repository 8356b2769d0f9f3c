//! Inference: pointwise arithmetic, comparison, logic and activations.

use crate::{
    Abs, Acos, Acosh, Add, And, Asin, Asinh, Atan, Atanh, BitShift, BitwiseAnd, BitwiseNot, BitwiseOr,
    BitwiseXor, Ceil, Celu, Clip, Cos, Cosh, Div, Elu, Equal, Erf, Exp, Floor, Gelu, Greater, GreaterOrEqual,
    HardSigmoid, HardSwish, Identity, IsInf, IsNaN, LeakyRelu, Less, LessOrEqual, Log, Max, Mean, Min, Mish,
    Mod, Mul, Neg, Not, Or, PRelu, Pow, Reciprocal, Relu, Round, Selu, Shrink, Sigmoid, Sign, Sin, Sinh,
    Softplus, Softsign, Sqrt, Sub, Sum, Swish, Tan, Tanh, ThresholdedRelu, Where, Xor,
};

use super::{InferResult, Inference};

pub(super) fn abs(_op: &Abs, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn acos(_op: &Acos, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn acosh(_op: &Acosh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn asin(_op: &Asin, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn asinh(_op: &Asinh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn atan(_op: &Atan, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn atanh(_op: &Atanh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn ceil(_op: &Ceil, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn cos(_op: &Cos, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn cosh(_op: &Cosh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn erf(_op: &Erf, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn exp(_op: &Exp, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn floor(_op: &Floor, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn log(_op: &Log, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn neg(_op: &Neg, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn reciprocal(_op: &Reciprocal, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn round(_op: &Round, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sigmoid(_op: &Sigmoid, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sign(_op: &Sign, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sin(_op: &Sin, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sinh(_op: &Sinh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sqrt(_op: &Sqrt, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn tan(_op: &Tan, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn tanh(_op: &Tanh, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn not(_op: &Not, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bitwise_not(_op: &BitwiseNot, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn is_nan(_op: &IsNaN, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn is_inf(_op: &IsInf, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn identity(_op: &Identity, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn relu(_op: &Relu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn leaky_relu(_op: &LeakyRelu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn elu(_op: &Elu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn selu(_op: &Selu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn celu(_op: &Celu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn gelu(_op: &Gelu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn hard_sigmoid(_op: &HardSigmoid, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn hard_swish(_op: &HardSwish, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mish(_op: &Mish, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn softplus(_op: &Softplus, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn softsign(_op: &Softsign, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn swish(_op: &Swish, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn shrink(_op: &Shrink, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn thresholded_relu(_op: &ThresholdedRelu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn clip(_op: &Clip, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn prelu(_op: &PRelu, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn add(_op: &Add, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sub(_op: &Sub, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mul(_op: &Mul, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn div(_op: &Div, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn pow(_op: &Pow, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mod_(_op: &Mod, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn min(_op: &Min, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn max(_op: &Max, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn sum(_op: &Sum, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn mean(_op: &Mean, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn equal(_op: &Equal, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn greater(_op: &Greater, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn greater_or_equal(_op: &GreaterOrEqual, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn less(_op: &Less, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn less_or_equal(_op: &LessOrEqual, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn and(_op: &And, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn or(_op: &Or, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn xor(_op: &Xor, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bitwise_and(_op: &BitwiseAnd, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bitwise_or(_op: &BitwiseOr, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bitwise_xor(_op: &BitwiseXor, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn bit_shift(_op: &BitShift, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}

pub(super) fn where_(_op: &Where, cx: &mut Inference<'_>) -> InferResult {
    cx.missing()
}
