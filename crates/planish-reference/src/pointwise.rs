//! Reference: pointwise arithmetic, comparison, logic and activations.

use planish_op::{
    Abs, Acos, Acosh, Add, And, Asin, Asinh, Atan, Atanh, BitShift, BitwiseAnd, BitwiseNot, BitwiseOr,
    BitwiseXor, Ceil, Celu, Clip, Cos, Cosh, Div, Elu, Equal, Erf, Exp, Floor, Gelu, Greater, GreaterOrEqual,
    HardSigmoid, HardSwish, Identity, IsInf, IsNaN, LeakyRelu, Less, LessOrEqual, Log, Max, Mean, Min, Mish,
    Mod, Mul, Neg, Not, Or, PRelu, Pow, Reciprocal, Relu, Round, Selu, Shrink, Sigmoid, Sign, Sin, Sinh,
    Softplus, Softsign, Sqrt, Sub, Sum, Swish, Tan, Tanh, ThresholdedRelu, Where, Xor,
};

use crate::{EvalResult, Evaluation};

pub(crate) fn abs(_op: &Abs, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn acos(_op: &Acos, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn acosh(_op: &Acosh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn asin(_op: &Asin, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn asinh(_op: &Asinh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn atan(_op: &Atan, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn atanh(_op: &Atanh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn ceil(_op: &Ceil, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn cos(_op: &Cos, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn cosh(_op: &Cosh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn erf(_op: &Erf, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn exp(_op: &Exp, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn floor(_op: &Floor, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn log(_op: &Log, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn neg(_op: &Neg, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn reciprocal(_op: &Reciprocal, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn round(_op: &Round, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sigmoid(_op: &Sigmoid, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sign(_op: &Sign, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sin(_op: &Sin, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sinh(_op: &Sinh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sqrt(_op: &Sqrt, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn tan(_op: &Tan, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn tanh(_op: &Tanh, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn not(_op: &Not, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bitwise_not(_op: &BitwiseNot, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn is_nan(_op: &IsNaN, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn is_inf(_op: &IsInf, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn identity(_op: &Identity, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn relu(_op: &Relu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn leaky_relu(_op: &LeakyRelu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn elu(_op: &Elu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn selu(_op: &Selu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn celu(_op: &Celu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn gelu(_op: &Gelu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn hard_sigmoid(_op: &HardSigmoid, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn hard_swish(_op: &HardSwish, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mish(_op: &Mish, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn softplus(_op: &Softplus, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn softsign(_op: &Softsign, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn swish(_op: &Swish, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn shrink(_op: &Shrink, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn thresholded_relu(_op: &ThresholdedRelu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn clip(_op: &Clip, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn prelu(_op: &PRelu, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn add(_op: &Add, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sub(_op: &Sub, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mul(_op: &Mul, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn div(_op: &Div, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn pow(_op: &Pow, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mod_(_op: &Mod, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn min(_op: &Min, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn max(_op: &Max, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn sum(_op: &Sum, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn mean(_op: &Mean, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn equal(_op: &Equal, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn greater(_op: &Greater, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn greater_or_equal(_op: &GreaterOrEqual, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn less(_op: &Less, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn less_or_equal(_op: &LessOrEqual, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn and(_op: &And, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn or(_op: &Or, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn xor(_op: &Xor, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bitwise_and(_op: &BitwiseAnd, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bitwise_or(_op: &BitwiseOr, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bitwise_xor(_op: &BitwiseXor, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn bit_shift(_op: &BitShift, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}

pub(crate) fn where_(_op: &Where, cx: &Evaluation<'_>) -> EvalResult {
    cx.missing()
}
