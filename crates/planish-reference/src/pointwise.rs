//! Reference: pointwise arithmetic, comparison, logic and activations.
//!
//! `of` says which function an operator is, one line each; the rest are the few forms they come in (one operand,
//! two, any number), and the operators that need more than a function.

mod elementwise;
mod erf;
mod power;
pub(crate) mod real;
mod select;
#[cfg(test)]
mod tests;

use std::cmp::Ordering::{self, Equal, Greater, Less};

use planish_op::{BitShift, BitShiftDirection, GeluApproximation, IsInf, Mod, Pointwise, Shrink, Value};
use planish_tensor::{DType, Tensor, bf16, f16};

use crate::number::Number;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, convert};
use elementwise::{Definition, Function, Output, apply};
use erf::erf;
use power::pow;
use select::where_;

/// The output of an operator.
pub(crate) fn of(op: Pointwise<'_>, cx: &Evaluation<'_>) -> EvalResult {
    match op {
        Pointwise::Abs(_) => unary(cx, f64::abs, i128::abs),
        Pointwise::Acos(_) => real_unary(cx, f64::acos),
        Pointwise::Acosh(_) => real_unary(cx, real::acosh),
        Pointwise::Asin(_) => real_unary(cx, f64::asin),
        Pointwise::Asinh(_) => real_unary(cx, f64::asinh),
        Pointwise::Atan(_) => real_unary(cx, f64::atan),
        Pointwise::Atanh(_) => real_unary(cx, f64::atanh),
        Pointwise::Ceil(_) => real_unary(cx, f64::ceil),
        Pointwise::Cos(_) => real_unary(cx, f64::cos),
        Pointwise::Cosh(_) => real_unary(cx, f64::cosh),
        Pointwise::Erf(_) => real_unary(cx, erf),
        Pointwise::Exp(_) => real_unary(cx, f64::exp),
        Pointwise::Floor(_) => real_unary(cx, f64::floor),
        Pointwise::Log(_) => real_unary(cx, f64::ln),
        Pointwise::Neg(_) => unary(cx, |x| -x, |x| -x),
        Pointwise::Reciprocal(_) => real_unary(cx, f64::recip),
        Pointwise::Round(_) => real_unary(cx, f64::round_ties_even),
        Pointwise::Sigmoid(_) => real_unary(cx, real::sigmoid),
        Pointwise::Sign(_) => unary(cx, real::sign, i128::signum),
        Pointwise::Sin(_) => real_unary(cx, f64::sin),
        Pointwise::Sinh(_) => real_unary(cx, f64::sinh),
        Pointwise::Sqrt(_) => real_unary(cx, f64::sqrt),
        Pointwise::Tan(_) => real_unary(cx, f64::tan),
        Pointwise::Tanh(_) => real_unary(cx, f64::tanh),
        Pointwise::Not(_) => not(cx),
        Pointwise::BitwiseNot(_) => bitwise_not(cx),
        Pointwise::IsNaN(_) => is_nan(cx),
        Pointwise::IsInf(op) => is_inf(op, cx),
        Pointwise::Relu(_) => unary(cx, real::relu, |x| x.max(0)),
        Pointwise::LeakyRelu(op) => real_unary(cx, |x| real::leaky_relu(x, op.alpha.into())),
        Pointwise::Elu(op) => real_unary(cx, |x| real::elu(x, op.alpha.into())),
        Pointwise::Selu(op) => real_unary(cx, |x| real::selu(x, op.alpha.into(), op.gamma.into())),
        Pointwise::Celu(op) => real_unary(cx, |x| real::celu(x, op.alpha.into())),
        Pointwise::Gelu(op) => match op.approximate {
            GeluApproximation::None => real_unary(cx, real::gelu),
            GeluApproximation::Tanh => real_unary(cx, real::gelu_tanh),
        },
        Pointwise::HardSigmoid(op) => {
            real_unary(cx, |x| real::hard_sigmoid(x, op.alpha.into(), op.beta.into()))
        }
        Pointwise::HardSwish(_) => real_unary(cx, real::hard_swish),
        Pointwise::Mish(_) => real_unary(cx, real::mish),
        Pointwise::Softplus(_) => real_unary(cx, real::softplus),
        Pointwise::Softsign(_) => real_unary(cx, real::softsign),
        Pointwise::Swish(op) => real_unary(cx, |x| real::swish(x, op.alpha.into())),
        Pointwise::Shrink(op) => shrink(op, cx),
        Pointwise::ThresholdedRelu(op) => real_unary(cx, |x| real::thresholded_relu(x, op.alpha.into())),
        Pointwise::Clip(_) => clip(cx),
        Pointwise::PRelu(_) => prelu(cx),
        Pointwise::Add(_) => binary(cx, |a, b| a + b, |a, b| a + b),
        Pointwise::Sub(_) => binary(cx, |a, b| a - b, |a, b| a - b),
        Pointwise::Mul(_) => binary(cx, |a, b| a * b, i128::wrapping_mul),
        Pointwise::Div(_) => div(cx),
        Pointwise::Pow(_) => pow(cx),
        Pointwise::Mod(op) => mod_(op, cx),
        Pointwise::Min(_) => extreme(cx, real::min, i128::min),
        Pointwise::Max(_) => extreme(cx, real::max, i128::max),
        Pointwise::Sum(_) => sum(cx),
        Pointwise::Mean(_) => mean(cx),
        Pointwise::Equal(_) => compare(cx, |order| order == Some(Equal)),
        Pointwise::Greater(_) => compare(cx, |order| order == Some(Greater)),
        Pointwise::GreaterOrEqual(_) => compare(cx, |order| matches!(order, Some(Greater | Equal))),
        Pointwise::Less(_) => compare(cx, |order| order == Some(Less)),
        Pointwise::LessOrEqual(_) => compare(cx, |order| matches!(order, Some(Less | Equal))),
        Pointwise::And(_) => logic(cx, |a, b| a && b),
        Pointwise::Or(_) => logic(cx, |a, b| a || b),
        Pointwise::Xor(_) => logic(cx, |a, b| a != b),
        Pointwise::BitwiseAnd(_) => bitwise(cx, |a, b| a & b),
        Pointwise::BitwiseOr(_) => bitwise(cx, |a, b| a | b),
        Pointwise::BitwiseXor(_) => bitwise(cx, |a, b| a ^ b),
        Pointwise::BitShift(op) => bit_shift(op, cx),
        Pointwise::Where(_) => where_(cx),
        Pointwise::Cast(op) => convert::cast(op, cx),
    }
}

/// One operand, floats only.
fn real_unary(cx: &Evaluation<'_>, real: impl Fn(f64) -> f64 + Sync) -> EvalResult {
    let definition = Definition { real: Some(&|x| real(x[0])), int: None, output: Output::Same };
    apply(cx, &[cx.tensor(0)?], definition)
}

/// One operand of any numeric type.
fn unary(cx: &Evaluation<'_>, real: fn(f64) -> f64, int: fn(i128) -> i128) -> EvalResult {
    let x = cx.tensor(0)?;
    refuse_bool(cx, x)?;
    let definition =
        Definition { real: Some(&|x| real(x[0])), int: Some(&|x| int(x[0])), output: Output::Same };
    apply(cx, &[x], definition)
}

/// Two operands of one numeric type.
fn binary(cx: &Evaluation<'_>, real: fn(f64, f64) -> f64, int: fn(i128, i128) -> i128) -> EvalResult {
    let operands = [cx.tensor(0)?, cx.tensor(1)?];
    refuse_bool(cx, operands[0])?;
    let definition = Definition {
        real: Some(&|x| real(x[0], x[1])),
        int: Some(&|x| int(x[0], x[1])),
        output: Output::Same,
    };
    apply(cx, &operands, definition)
}

/// Min and Max: any number of operands of one numeric type, folded from the left.
fn extreme(cx: &Evaluation<'_>, real: fn(f64, f64) -> f64, int: fn(i128, i128) -> i128) -> EvalResult {
    let operands = cx.tensors()?;
    operands.first().map_or(Ok(()), |first| refuse_bool(cx, first))?;
    let definition = Definition {
        real: Some(&|x| x.iter().copied().reduce(real).unwrap_or_default()),
        int: Some(&|x| x.iter().copied().reduce(int).unwrap_or_default()),
        output: Output::Same,
    };
    apply(cx, &operands, definition)
}

/// Any number of operands, floats only.
fn real_variadic(cx: &Evaluation<'_>, real: Function<'_, f64>) -> EvalResult {
    apply(cx, &cx.tensors()?, Definition { real: Some(real), int: None, output: Output::Same })
}

fn sum(cx: &Evaluation<'_>) -> EvalResult {
    real_variadic(cx, &|x| x.iter().sum())
}

fn mean(cx: &Evaluation<'_>) -> EvalResult {
    real_variadic(cx, &|x| x.iter().sum::<f64>() / x.len() as f64)
}

/// Two operands of one type, compared; `None` is the order of NaN and anything.
fn compare(cx: &Evaluation<'_>, holds: fn(Option<Ordering>) -> bool) -> EvalResult {
    let definition = Definition {
        real: Some(&|x| f64::from(u8::from(holds(x[0].partial_cmp(&x[1]))))),
        int: Some(&|x| i128::from(holds(x[0].partial_cmp(&x[1])))),
        output: Output::Bool,
    };
    apply(cx, &[cx.tensor(0)?, cx.tensor(1)?], definition)
}

/// Two operands of the type `Bool`.
fn logic(cx: &Evaluation<'_>, holds: fn(bool, bool) -> bool) -> EvalResult {
    let operands = [cx.tensor(0)?, cx.tensor(1)?];
    require(cx, operands[0], operands[0].dtype() == DType::Bool)?;
    let int = |x: &[i128]| i128::from(holds(x[0] != 0, x[1] != 0));
    apply(cx, &operands, Definition { real: None, int: Some(&int), output: Output::Same })
}

fn not(cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    require(cx, x, x.dtype() == DType::Bool)?;
    apply(cx, &[x], Definition { real: None, int: Some(&|x| 1 - x[0]), output: Output::Same })
}

/// Two operands of one integer type.
fn bitwise(cx: &Evaluation<'_>, int: fn(i128, i128) -> i128) -> EvalResult {
    let operands = [cx.tensor(0)?, cx.tensor(1)?];
    refuse_bool(cx, operands[0])?;
    apply(cx, &operands, Definition { real: None, int: Some(&|x| int(x[0], x[1])), output: Output::Same })
}

fn bitwise_not(cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    refuse_bool(cx, x)?;
    apply(cx, &[x], Definition { real: None, int: Some(&|x| !x[0]), output: Output::Same })
}

/// Shifts of the unsigned kinds; a distance of the width or more leaves zero.
fn bit_shift(op: &BitShift, cx: &Evaluation<'_>) -> EvalResult {
    let operands = [cx.tensor(0)?, cx.tensor(1)?];
    let dtype = operands[0].dtype();
    require(cx, operands[0], dtype.is_int() && !dtype.is_signed_int())?;
    let left = op.direction == BitShiftDirection::Left;
    // Numbers are below 2^64, so 63 places keep within i128, and wrapping drops what leaves the width.
    let int = |x: &[i128]| match x[1] {
        64.. => 0,
        distance if left => x[0] << distance,
        distance => x[0] >> distance,
    };
    apply(cx, &operands, Definition { real: None, int: Some(&int), output: Output::Same })
}

/// Integers are divided towards zero, and division by zero is refused (ONNX leaves it open, ONNX Runtime
/// refuses); the one quotient that overflows, the lowest number by -1, wraps to itself.
fn div(cx: &Evaluation<'_>) -> EvalResult {
    refuse_zero_divisor(cx)?;
    binary(cx, |a, b| a / b, |a, b| a / b)
}

/// Integers: the remainder with the sign of the divisor, or with `fmod` that of C with the sign of the
/// dividend. Floats only with `fmod`. Integer remainders of zero are refused.
fn mod_(op: &Mod, cx: &Evaluation<'_>) -> EvalResult {
    if !op.fmod && cx.tensor(0)?.dtype().is_float() {
        return Err(cx.bad_attribute("floating-point operands need fmod = 1"));
    }
    refuse_zero_divisor(cx)?;
    if op.fmod { binary(cx, |a, b| a % b, |a, b| a % b) } else { binary(cx, |a, b| a % b, floor_mod) }
}

fn floor_mod(a: i128, b: i128) -> i128 {
    let remainder = a % b;
    if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder }
}

fn refuse_zero_divisor(cx: &Evaluation<'_>) -> Result<(), EvalError> {
    let (dividend, divisor) = (cx.tensor(0)?, cx.tensor(1)?);
    if divisor.dtype().is_int() && !dividend.is_empty() && divisor.to_i64s().contains(&0) {
        return Err(cx.error(EvalErrorKind::BadValue, "integer division by zero"));
    }
    Ok(())
}

/// Integers with real-valued attributes: the sum is exact, then cut towards zero, then wrapped.
fn shrink(op: &Shrink, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    refuse_bool(cx, x)?;
    let (bias, lambd) = (f64::from(op.bias), f64::from(op.lambd));
    let int = |x: &[i128]| match x[0] {
        // A whole number is above `lambd` if it is above the next whole number below.
        x if !lambd.is_nan() && x < (-lambd).ceil() as i128 => add_real(x, bias),
        x if !lambd.is_nan() && x > lambd.floor() as i128 => add_real(x, -bias),
        _ => 0,
    };
    let definition = Definition {
        real: Some(&|x| real::shrink(x[0], bias, lambd)),
        int: Some(&int),
        output: Output::Same,
    };
    apply(cx, &[x], definition)
}

/// `x + y`, cut towards zero.
fn add_real(x: i128, y: f64) -> i128 {
    let whole = x.saturating_add(y.trunc() as i128);
    let fraction = y.fract();
    match whole {
        1.. if fraction < 0.0 => whole - 1,
        ..=-1 if fraction > 0.0 => whole + 1,
        _ => whole,
    }
}

/// `Min(max, Max(x, min))`. A bound that is absent is the type's lowest or highest finite number, so that
/// even then an infinity becomes finite; a NaN stays, and a NaN for a bound bounds nothing.
fn clip(cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    refuse_bool(cx, x)?;
    let (low, high) = (clip_bound(cx, x, 1)?, clip_bound(cx, x, 2)?);
    let definition = Definition {
        real: Some(&|x| clamp(x[0], x[1], x[2])),
        int: Some(&|x| clamp(x[0], x[1], x[2])),
        output: Output::Same,
    };
    apply(cx, &[x, &low, &high], definition)
}

fn clamp<T: PartialOrd + Copy>(x: T, low: T, high: T) -> T {
    let raised = if x < low { low } else { x };
    if raised > high { high } else { raised }
}

/// Bound 1 (low) or 2 (high) as a scalar of the type of `x`.
fn clip_bound(cx: &Evaluation<'_>, x: &Tensor, idx: usize) -> Result<Tensor, EvalError> {
    match cx.optional_tensor(idx)? {
        // ONNX asks for a scalar; ONNX Runtime takes any tensor of one element.
        Some(bound) if bound.len() == 1 => Ok(bound.reshaped(&[])?),
        Some(bound) => {
            Err(cx.bad_shape(format!("bound {idx} has shape {:?}, not one element", bound.shape())))
        }
        None => {
            let extreme = if idx == 1 { f64::NEG_INFINITY } else { f64::INFINITY };
            finite_extreme(x.dtype(), extreme).ok_or_else(|| cx.bad_type(x.dtype()))
        }
    }
}

/// The finite number of `dtype` that is nearest to an infinity.
fn finite_extreme(dtype: DType, infinity: f64) -> Option<Tensor> {
    let bounds = match dtype {
        DType::F32 => f32::range(),
        DType::F16 => f16::range(),
        DType::BF16 => bf16::range(),
        // Integers saturate; the largest f64 is far beyond them.
        _ => f64::range(),
    };
    let bound = if infinity < 0.0 { bounds.0 } else { bounds.1 };
    Tensor::from_f64s(dtype, &[], &[bound]).ok()
}

/// The slope broadcasts to `x`, not the other way.
fn prelu(cx: &Evaluation<'_>) -> EvalResult {
    let operands = [cx.tensor(0)?, cx.tensor(1)?];
    refuse_bool(cx, operands[0])?;
    if elementwise::broadcast_all(cx, &operands)? != operands[0].shape() {
        let (x, slope) = (operands[0].shape(), operands[1].shape());
        return Err(cx.bad_shape(format!("the slope's shape {slope:?} does not broadcast to {x:?}")));
    }
    let definition = Definition {
        real: Some(&|x| real::leaky_relu(x[0], x[1])),
        int: Some(&|x| if x[0] < 0 { x[0].wrapping_mul(x[1]) } else { x[0] }),
        output: Output::Same,
    };
    apply(cx, &operands, definition)
}

fn is_nan(cx: &Evaluation<'_>) -> EvalResult {
    classify(cx, f64::is_nan)
}

fn is_inf(op: &IsInf, cx: &Evaluation<'_>) -> EvalResult {
    classify(cx, |x| {
        (op.detect_positive && x == f64::INFINITY) || (op.detect_negative && x == f64::NEG_INFINITY)
    })
}

/// A question to every float, the 8-bit and 4-bit kinds included.
fn classify(cx: &Evaluation<'_>, holds: impl Fn(f64) -> bool) -> EvalResult {
    let x = cx.tensor(0)?;
    require(cx, x, x.dtype().is_float())?;
    let answers: Vec<bool> = x.to_f64s().into_iter().map(holds).collect();
    Ok(vec![Value::Tensor(Tensor::new(x.shape(), answers)?)])
}

fn refuse_bool(cx: &Evaluation<'_>, x: &Tensor) -> Result<(), EvalError> {
    require(cx, x, x.dtype() != DType::Bool)
}

fn require(cx: &Evaluation<'_>, x: &Tensor, is_defined: bool) -> Result<(), EvalError> {
    if is_defined { Ok(()) } else { Err(cx.bad_type(x.dtype())) }
}
