//! Inference: pointwise arithmetic, comparison, logic and activations.
//!
//! All of them broadcast their operands (or have just one), so a few forms serve them all; which operator
//! has which form, types and contents stands in `infer.rs`.

mod content;
#[cfg(test)]
mod tests;

use planish_tensor::{DType, Dim, Shape, Tensor};

use super::{Content, InferError, InferResult, Inference, Inferred};
use crate::{Mod, TensorType};

/// Element types that an operator takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kinds {
    /// Floating point of 16 bits and more.
    Real,
    /// Floating point of any width.
    AnyFloat,
    /// Real and integers of whole bytes.
    Number,
    /// Numbers without the unsigned integers.
    Signed,
    /// Integers of whole bytes.
    Int,
    /// Unsigned integers of whole bytes.
    Unsigned,
    /// Numbers and truth values.
    NumberOrBool,
    Bool,
    Any,
}

impl Kinds {
    fn contain(self, dtype: DType) -> bool {
        let real = dtype.is_wide_float();
        let int = dtype.is_whole_int();
        match self {
            Kinds::Real => real,
            Kinds::AnyFloat => dtype.is_float(),
            Kinds::Number => real || int,
            Kinds::Signed => real || (int && dtype.is_signed_int()),
            Kinds::Int => int,
            Kinds::Unsigned => int && !dtype.is_signed_int(),
            Kinds::NumberOrBool => real || int || dtype == DType::Bool,
            Kinds::Bool => dtype == DType::Bool,
            Kinds::Any => true,
        }
    }
}

/// The type of a required operand, whose elements must be of these kinds.
fn operand<'a>(cx: &Inference<'a>, idx: usize, kinds: Kinds) -> Result<&'a TensorType, InferError> {
    let ty = cx.tensor(idx)?;
    match kinds.contain(ty.dtype) {
        true => Ok(ty),
        false => Err(cx.bad_type(format!("not defined for elements of type {} (input {idx})", ty.dtype))),
    }
}

/// The element type and the common shape of operands that must have one element type and broadcast.
fn common(
    cx: &Inference<'_>,
    operands: impl IntoIterator<Item = usize>,
    kinds: Kinds,
) -> Result<TensorType, InferError> {
    let mut result: Option<TensorType> = None;
    for idx in operands {
        let ty = operand(cx, idx, kinds)?;
        result = Some(match result {
            None => ty.clone(),
            Some(so_far) if so_far.dtype != ty.dtype => {
                let detail = format!(
                    "input {idx} is {}, the inputs before are {}; insert a Cast",
                    ty.dtype, so_far.dtype
                );
                return Err(cx.bad_type(detail));
            }
            Some(so_far) => TensorType { dtype: ty.dtype, shape: broadcast(cx, so_far.shape, &ty.shape)? },
        });
    }
    // Without operands, input 0 is the one that is missing.
    result.map_or_else(|| cx.tensor(0).cloned(), Ok)
}

fn broadcast(cx: &Inference<'_>, a: Option<Shape>, b: &Option<Shape>) -> Result<Option<Shape>, InferError> {
    let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
    Shape::broadcast(&a, b).map(Some).map_err(|error| cx.bad_shape(error.to_string()))
}

fn typed(dtype: DType, shape: Option<Shape>, content: Option<Content>) -> InferResult {
    Ok(vec![Inferred { content, ..Inferred::maybe_ranked(dtype, shape) }])
}

/// One operand, the output like it.
pub(super) fn unary(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = operand(cx, 0, kinds)?;
    typed(ty.dtype, ty.shape.clone(), None)
}

/// Like [`unary`], with contents.
pub(super) fn followed_unary(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim) -> Dim) -> InferResult {
    let ty = operand(cx, 0, kinds)?;
    let content = content::zip(cx, [0], ty.dtype, |x| function(x[0]));
    typed(ty.dtype, ty.shape.clone(), content)
}

/// `-x`, `|x|` and `max(x, 0)` of dimensions.
pub(super) fn neg(cx: &Inference<'_>) -> InferResult {
    followed_unary(cx, Kinds::Signed, |x| -x)
}

pub(super) fn abs(cx: &Inference<'_>) -> InferResult {
    followed_unary(cx, Kinds::Number, |x| x.max(&-x))
}

pub(super) fn relu(cx: &Inference<'_>) -> InferResult {
    followed_unary(cx, Kinds::Signed, |x| x.max(&Dim::ZERO))
}

pub(super) fn not(cx: &Inference<'_>) -> InferResult {
    followed_unary(cx, Kinds::Bool, content::not)
}

/// Ceil and Floor: sizes are often a constant scale rounded to a whole number, so small constants are
/// rounded here.
pub(super) fn rounding(cx: &Inference<'_>, round: fn(f64) -> f64) -> InferResult {
    // As many elements as a shape might have.
    const MAX_LEN: usize = 64;
    let ty = operand(cx, 0, Kinds::Real)?;
    let content = cx.constant(0).filter(|constant| constant.len() <= MAX_LEN).and_then(|constant| {
        let rounded: Vec<f64> = constant.to_f64s().into_iter().map(round).collect();
        Tensor::from_f64s(ty.dtype, constant.shape(), &rounded).ok().map(Content::Tensor)
    });
    typed(ty.dtype, ty.shape.clone(), content)
}

/// One operand, the output of truth values.
pub(super) fn classify(cx: &Inference<'_>) -> InferResult {
    typed(DType::Bool, operand(cx, 0, Kinds::AnyFloat)?.shape.clone(), None)
}

/// The value as it is, sequences and optionals too.
pub(super) fn identity(cx: &Inference<'_>) -> InferResult {
    Ok(vec![Inferred { ty: cx.value(0)?.clone(), content: cx.content(0).cloned() }])
}

/// Two operands of one type, the output of that type too.
pub(super) fn binary(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    typed(ty.dtype, ty.shape, None)
}

/// Like [`binary`], with contents.
pub(super) fn followed_binary(
    cx: &Inference<'_>,
    kinds: Kinds,
    function: fn(&Dim, &Dim) -> Dim,
) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    let content = content::zip(cx, [0, 1], ty.dtype, |x| function(x[0], x[1]));
    typed(ty.dtype, ty.shape, content)
}

pub(super) fn div(cx: &Inference<'_>) -> InferResult {
    followed_binary(cx, Kinds::Number, content::div)
}

pub(super) fn mod_(op: &Mod, cx: &Inference<'_>) -> InferResult {
    if op.fmod {
        return followed_binary(cx, Kinds::Number, content::fmod);
    }
    if cx.dtype(0)?.is_float() {
        return Err(cx.bad_attribute("floating-point operands need fmod = 1"));
    }
    followed_binary(cx, Kinds::Int, |a, b| a.rem(b))
}

pub(super) fn and(cx: &Inference<'_>) -> InferResult {
    followed_binary(cx, Kinds::Bool, content::and)
}

pub(super) fn or(cx: &Inference<'_>) -> InferResult {
    followed_binary(cx, Kinds::Bool, content::or)
}

pub(super) fn xor(cx: &Inference<'_>) -> InferResult {
    followed_binary(cx, Kinds::Bool, content::xor)
}

/// Two operands of one type, the output of truth values.
fn compare(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim, &Dim) -> Dim) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    let content = content::zip(cx, [0, 1], DType::Bool, |x| function(x[0], x[1]));
    typed(DType::Bool, ty.shape, content)
}

pub(super) fn equal(cx: &Inference<'_>) -> InferResult {
    compare(cx, Kinds::NumberOrBool, content::equal)
}

pub(super) fn less(cx: &Inference<'_>) -> InferResult {
    compare(cx, Kinds::Number, content::less)
}

pub(super) fn greater(cx: &Inference<'_>) -> InferResult {
    compare(cx, Kinds::Number, |a, b| content::less(b, a))
}

pub(super) fn less_or_equal(cx: &Inference<'_>) -> InferResult {
    compare(cx, Kinds::Number, |a, b| content::not(&content::less(b, a)))
}

pub(super) fn greater_or_equal(cx: &Inference<'_>) -> InferResult {
    compare(cx, Kinds::Number, |a, b| content::not(&content::less(a, b)))
}

/// Any number of operands of one type.
pub(super) fn variadic(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = common(cx, 0..cx.n_inputs(), kinds)?;
    typed(ty.dtype, ty.shape, None)
}

/// Min and Max.
pub(super) fn extreme(cx: &Inference<'_>, function: fn(&Dim, &Dim) -> Dim) -> InferResult {
    let ty = common(cx, 0..cx.n_inputs(), Kinds::Number)?;
    let content = content::zip(cx, 0..cx.n_inputs(), ty.dtype, |x| {
        x.iter().map(|&dim| dim.clone()).reduce(|so_far, dim| function(&so_far, &dim)).unwrap_or(Dim::UNKNOWN)
    });
    typed(ty.dtype, ty.shape, content)
}

/// Base and exponent may have different types; the output has the base's.
pub(super) fn pow(cx: &Inference<'_>) -> InferResult {
    let (base, exponent) = (operand(cx, 0, Kinds::Number)?, operand(cx, 1, Kinds::Number)?);
    typed(base.dtype, broadcast(cx, base.shape.clone(), &exponent.shape)?, None)
}

/// The bounds are scalars of the operand's type; tensors of one element are let through.
pub(super) fn clip(cx: &Inference<'_>) -> InferResult {
    let ty = operand(cx, 0, Kinds::Number)?;
    let bounds: Vec<usize> = (1..=2).filter(|&idx| cx.has_input(idx)).collect();
    for &idx in &bounds {
        let bound = cx.tensor(idx)?;
        if bound.dtype != ty.dtype {
            return Err(cx.bad_type(format!("bound {idx} is {}, the operand is {}", bound.dtype, ty.dtype)));
        }
        let count = bound.shape.as_ref().map(Shape::element_count);
        if count.and_then(|count| count.as_const()).is_some_and(|count| count != 1) {
            return Err(cx.bad_shape(format!("bound {idx} must have one element, it is {bound}")));
        }
    }
    let content = content::zip(cx, [0].into_iter().chain(bounds.iter().copied()), ty.dtype, |x| {
        let bounded = x.iter().skip(1).zip(&bounds);
        bounded
            .fold(x[0].clone(), |dim, (bound, idx)| if *idx == 1 { dim.max(bound) } else { dim.min(bound) })
    });
    // A bound of shape [1] leaves a scalar operand a scalar.
    let content = content.filter(|_| ty.rank() != Some(0) || bounds.iter().all(|&idx| is_scalar(cx, idx)));
    typed(ty.dtype, ty.shape.clone(), content)
}

fn is_scalar(cx: &Inference<'_>, idx: usize) -> bool {
    matches!(cx.shape(idx), Ok(Some(shape)) if shape.rank() == 0)
}

/// The slope broadcasts to the operand, not the other way.
pub(super) fn prelu(cx: &Inference<'_>) -> InferResult {
    let ty = common(cx, [0, 1], Kinds::Number)?;
    let (x, slope) = (cx.shape(0)?, cx.shape(1)?);
    if let (Some(x), Some(slope)) = (x, slope) {
        let grows = slope.rank() > x.rank()
            || x.iter()
                .rev()
                .zip(slope.iter().rev())
                .any(|(x, slope)| *x == Dim::ONE && slope.as_const().is_some_and(|size| size != 1));
        if grows {
            return Err(cx.bad_shape(format!("the slope's shape {slope} does not broadcast to {x}")));
        }
    }
    typed(ty.dtype, x.cloned(), None)
}

pub(super) fn where_(cx: &Inference<'_>) -> InferResult {
    let condition = operand(cx, 0, Kinds::Bool)?;
    let ty = common(cx, [1, 2], Kinds::Any)?;
    let shape = broadcast(cx, ty.shape, &condition.shape)?;
    let content = content::zip(cx, [0, 1, 2], ty.dtype, |x| content::select(x[0], x[1], x[2]));
    typed(ty.dtype, shape, content)
}
