//! Checks that several families of rules share: element types, axes, agreeing dimensions, numbers of
//! outputs.

use planish_tensor::{DType, Dim, Shape};

use super::{InferError, InferResult, Inference, Inferred};

/// The element type of a required input, which must be a float of at least 16 bits.
pub(super) fn float(cx: &Inference<'_>, idx: usize) -> Result<DType, InferError> {
    let dtype = cx.dtype(idx)?;
    if dtype.is_wide_float() {
        return Ok(dtype);
    }
    Err(cx.bad_type(format!("input {idx} must have elements f16, bf16, f32 or f64, it has {dtype}")))
}

/// Refuses an optional input that is present and not a float of at least 16 bits.
pub(super) fn optional_float(cx: &Inference<'_>, idx: usize) -> Result<(), InferError> {
    if cx.has_input(idx) { float(cx, idx).map(drop) } else { Ok(()) }
}

/// Refuses an input whose elements are not 32- or 64-bit signed integers.
pub(super) fn index(cx: &Inference<'_>, idx: usize) -> Result<(), InferError> {
    match cx.dtype(idx)? {
        DType::I32 | DType::I64 => Ok(()),
        dtype => Err(cx.bad_type(format!("input {idx} must have elements i32 or i64, it has {dtype}"))),
    }
}

/// The one type of the first `n` inputs, absent ones aside.
pub(super) fn common_type(
    cx: &Inference<'_>,
    n: usize,
    is_accepted: impl Fn(DType) -> bool,
) -> Result<DType, InferError> {
    let dtype = cx.dtype(0)?;
    if !is_accepted(dtype) {
        return Err(cx.bad_type(format!("not defined for elements of type {dtype}")));
    }
    for idx in 1..n {
        match cx.optional_tensor(idx)? {
            Some(ty) if ty.dtype != dtype => {
                return Err(cx.bad_type(format!("input {idx} is {}, input 0 is {dtype}", ty.dtype)));
            }
            _ => {}
        }
    }
    Ok(dtype)
}

/// Refuses tensors of different element types.
pub(super) fn same_dtype(cx: &Inference<'_>, a: usize, b: usize) -> Result<(), InferError> {
    let (left, right) = (cx.dtype(a)?, cx.dtype(b)?);
    if left != right {
        let detail = format!("inputs {a} and {b} have element types {left} and {right}");
        return Err(cx.bad_type(detail));
    }
    Ok(())
}

/// Whether two dimensions are different numbers.
pub(super) fn differ(a: &Dim, b: &Dim) -> bool {
    matches!((a.as_const(), b.as_const()), (Some(a), Some(b)) if a != b)
}

/// One dimension that two places must share: the better known one, refused if they are different numbers.
pub(super) fn same_dim(cx: &Inference<'_>, what: &str, a: &Dim, b: &Dim) -> Result<Dim, InferError> {
    match (a.as_const(), b.as_const()) {
        (Some(left), Some(right)) if left != right => {
            Err(cx.bad_shape(format!("{what} is {left} in one place and {right} in another")))
        }
        (None, Some(_)) => Ok(b.clone()),
        _ if a.is_unknown() => Ok(b.clone()),
        _ => Ok(a.clone()),
    }
}

/// A computed dimension: a negative number is refused, what cannot be expressed gets a name.
pub(super) fn checked_dim(cx: &mut Inference<'_>, dim: Dim, hint: &str) -> Result<Dim, InferError> {
    match dim.as_const() {
        Some(size) if size < 0 => Err(cx.bad_shape(format!("a dimension would be {size}"))),
        _ if dim.is_unknown() => Ok(cx.fresh_dim(hint)),
        _ => Ok(dim),
    }
}

/// Refuses an input (absent optional ones pass) whose shape contradicts `dims`; each comes with its name.
pub(super) fn expect_dims(cx: &Inference<'_>, idx: usize, dims: &[(&str, &Dim)]) -> Result<(), InferError> {
    if !cx.has_input(idx) {
        return Ok(());
    }
    let Some(shape) = cx.shape_of_rank(idx, dims.len())? else { return Ok(()) };
    for ((what, dim), found) in dims.iter().zip(shape) {
        same_dim(cx, &format!("{what} (input {idx}, shape {shape})"), dim, found)?;
    }
    Ok(())
}

/// Refuses an input (absent optional ones pass) that cannot broadcast to `target` without enlarging it.
pub(super) fn expect_broadcasts_to(cx: &Inference<'_>, idx: usize, target: &Shape) -> Result<(), InferError> {
    let Some(shape) = cx.optional_tensor(idx)?.and_then(|ty| ty.shape.as_ref()) else { return Ok(()) };
    let refuse = || cx.bad_shape(format!("input {idx} of shape {shape} does not broadcast to {target}"));
    let missing = target.rank().checked_sub(shape.rank()).ok_or_else(refuse)?;
    for (dim, goal) in shape.iter().zip(&target.dims()[missing..]) {
        match (dim.as_const(), goal.as_const()) {
            (Some(size), Some(wanted)) if size != wanted && size != 1 => return Err(refuse()),
            _ => {}
        }
    }
    Ok(())
}

/// As many outputs as the node has, refused if the operator has fewer.
pub(super) fn outputs(cx: &Inference<'_>, mut all: Vec<Inferred>) -> InferResult {
    if cx.n_outputs() > all.len() {
        let detail = format!("there are {} outputs here, the node asks for {}", all.len(), cx.n_outputs());
        return Err(cx.bad_attribute(detail));
    }
    all.truncate(cx.n_outputs());
    Ok(all)
}

/// The single output of the input's own type and shape.
pub(super) fn like_input(cx: &Inference<'_>, idx: usize) -> InferResult {
    let ty = cx.tensor(idx)?;
    outputs(cx, vec![Inferred::maybe_ranked(ty.dtype, ty.shape.clone())])
}
