//! Inference: pointwise arithmetic, comparison, logic and activations.
//!
//! All of them broadcast their operands (or have just one), so a few forms serve them all.

mod content;
#[cfg(test)]
mod tests;

use planish_tensor::{DType, Dim, Shape, Tensor};

use super::{Content, InferError, InferResult, Inference, Inferred, convert};
use crate::{Form, Kinds, Mod, Pointwise, TensorType};

/// The output of an operator: by its form and the element types that its row of the table has, or, where integers of
/// shapes are followed or operands are of different types, by a rule of its own.
pub(super) fn of(op: Pointwise<'_>, cx: &mut Inference<'_>) -> InferResult {
    let kinds = op.kinds();
    match op {
        Pointwise::Abs(_) => followed_unary(cx, kinds, |x| x.max(&-x)),
        Pointwise::Neg(_) => followed_unary(cx, kinds, |x| -x),
        Pointwise::Relu(_) => followed_unary(cx, kinds, |x| x.max(&Dim::ZERO)),
        Pointwise::Not(_) => followed_unary(cx, kinds, content::not),
        Pointwise::Ceil(_) => rounding(cx, kinds, f64::ceil),
        Pointwise::Floor(_) => rounding(cx, kinds, f64::floor),
        Pointwise::Clip(_) => clip(cx, kinds),
        Pointwise::Cast(op) => convert::cast(op, cx),
        Pointwise::PRelu(_) => prelu(cx, kinds),
        Pointwise::Add(_) => followed_binary(cx, kinds, |a, b| a + b),
        Pointwise::Sub(_) => followed_binary(cx, kinds, |a, b| a - b),
        Pointwise::Mul(_) => followed_binary(cx, kinds, |a, b| a * b),
        Pointwise::Div(_) => followed_binary(cx, kinds, content::div),
        Pointwise::Pow(_) => pow(cx, kinds),
        Pointwise::Mod(op) => mod_(op, cx, kinds),
        Pointwise::And(_) => followed_binary(cx, kinds, content::and),
        Pointwise::Or(_) => followed_binary(cx, kinds, content::or),
        Pointwise::Xor(_) => followed_binary(cx, kinds, content::xor),
        Pointwise::Min(_) => extreme(cx, kinds, Dim::min),
        Pointwise::Max(_) => extreme(cx, kinds, Dim::max),
        Pointwise::Equal(_) => compare(cx, kinds, content::equal),
        Pointwise::Less(_) => compare(cx, kinds, content::less),
        Pointwise::Greater(_) => compare(cx, kinds, |a, b| content::less(b, a)),
        Pointwise::LessOrEqual(_) => compare(cx, kinds, |a, b| content::not(&content::less(b, a))),
        Pointwise::GreaterOrEqual(_) => compare(cx, kinds, |a, b| content::not(&content::less(a, b))),
        _ => match op.form() {
            Form::Unary => unary(cx, kinds),
            Form::Predicate => classify(cx, kinds),
            Form::Binary => binary(cx, kinds),
            Form::Comparison => compare(cx, kinds, |_, _| Dim::UNKNOWN),
            Form::Variadic => variadic(cx, kinds),
            Form::Select => select(cx, kinds),
        },
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
fn unary(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = operand(cx, 0, kinds)?;
    typed(ty.dtype, ty.shape.clone(), None)
}

/// Like [`unary`], with contents.
fn followed_unary(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim) -> Dim) -> InferResult {
    let ty = operand(cx, 0, kinds)?;
    let content = content::zip(cx, [0], ty.dtype, |x| function(x[0]));
    typed(ty.dtype, ty.shape.clone(), content)
}

/// Ceil and Floor: sizes are often a constant scale rounded to a whole number, so small constants are
/// rounded here.
fn rounding(cx: &Inference<'_>, kinds: Kinds, round: fn(f64) -> f64) -> InferResult {
    // As many elements as a shape might have.
    const MAX_LEN: usize = 64;
    let ty = operand(cx, 0, kinds)?;
    let content = cx.constant(0).filter(|constant| constant.len() <= MAX_LEN).and_then(|constant| {
        let rounded: Vec<f64> = constant.to_f64s().into_iter().map(round).collect();
        Tensor::from_f64s(ty.dtype, constant.shape(), &rounded).ok().map(Content::Tensor)
    });
    typed(ty.dtype, ty.shape.clone(), content)
}

/// One operand, the output of truth values.
fn classify(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    typed(DType::Bool, operand(cx, 0, kinds)?.shape.clone(), None)
}

/// Two operands of one type, the output of that type too.
fn binary(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    typed(ty.dtype, ty.shape, None)
}

/// Like [`binary`], with contents.
fn followed_binary(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim, &Dim) -> Dim) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    let content = content::zip(cx, [0, 1], ty.dtype, |x| function(x[0], x[1]));
    typed(ty.dtype, ty.shape, content)
}

fn mod_(op: &Mod, cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    if op.fmod {
        return followed_binary(cx, kinds, content::fmod);
    }
    if cx.dtype(0)?.is_float() {
        return Err(cx.bad_attribute("floating-point operands need fmod = 1"));
    }
    followed_binary(cx, Kinds::Int, |a, b| a.rem(b))
}

/// Two operands of one type, the output of truth values.
fn compare(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim, &Dim) -> Dim) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
    let content = content::zip(cx, [0, 1], DType::Bool, |x| function(x[0], x[1]));
    typed(DType::Bool, ty.shape, content)
}

/// Any number of operands of one type.
fn variadic(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = common(cx, 0..cx.n_inputs(), kinds)?;
    typed(ty.dtype, ty.shape, None)
}

/// Min and Max.
fn extreme(cx: &Inference<'_>, kinds: Kinds, function: fn(&Dim, &Dim) -> Dim) -> InferResult {
    let ty = common(cx, 0..cx.n_inputs(), kinds)?;
    let content = content::zip(cx, 0..cx.n_inputs(), ty.dtype, |x| {
        x.iter().map(|&dim| dim.clone()).reduce(|so_far, dim| function(&so_far, &dim)).unwrap_or(Dim::UNKNOWN)
    });
    typed(ty.dtype, ty.shape, content)
}

/// Base and exponent may have different types; the output has the base's.
fn pow(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let (base, exponent) = (operand(cx, 0, kinds)?, operand(cx, 1, kinds)?);
    typed(base.dtype, broadcast(cx, base.shape.clone(), &exponent.shape)?, None)
}

/// The bounds are scalars of the operand's type; tensors of one element are let through.
fn clip(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = operand(cx, 0, kinds)?;
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
fn prelu(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let ty = common(cx, [0, 1], kinds)?;
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

/// Where: the choices have one type, the condition is of truth values.
fn select(cx: &Inference<'_>, kinds: Kinds) -> InferResult {
    let condition = operand(cx, 0, Kinds::Bool)?;
    let ty = common(cx, [1, 2], kinds)?;
    let shape = broadcast(cx, ty.shape, &condition.shape)?;
    let content = content::zip(cx, [0, 1, 2], ty.dtype, |x| content::select(x[0], x[1], x[2]));
    typed(ty.dtype, shape, content)
}
