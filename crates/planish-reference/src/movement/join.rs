//! Tensors put together along an axis, and taken apart again.

use planish_op::{Concat, Split};
use planish_tensor::Tensor;

use super::{int_list, reshaped, to_size};
use crate::cells::{Axis, all_axes, interleave, pick};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn concat(op: &Concat, cx: &Evaluation<'_>) -> EvalResult {
    Ok(vec![concat_tensors(cx, &cx.tensors()?, op.axis)?.into()])
}

/// The tensors one after the other along an axis that they have.
pub(crate) fn concat_tensors(
    cx: &Evaluation<'_>,
    tensors: &[&Tensor],
    axis: i64,
) -> Result<Tensor, EvalError> {
    let Some(first) = tensors.first() else {
        return Err(cx.error(EvalErrorKind::MissingInput, "there are no tensors to concatenate"));
    };
    let axis = cx.axis(axis, first.rank())?;
    let mut shape = first.shape().to_vec();
    shape[axis] = 0;
    for tensor in tensors {
        let fits = tensor.rank() == shape.len()
            && (0..shape.len()).all(|other| other == axis || tensor.shape()[other] == shape[other]);
        if !fits {
            let (a, b) = (first.shape(), tensor.shape());
            return Err(cx.bad_shape(format!("{a:?} and {b:?} differ beside axis {axis}")));
        }
        // Saturation is caught when the result's size is checked.
        shape[axis] = shape[axis].saturating_add(tensor.shape()[axis]);
    }
    let runs: Vec<usize> = tensors.iter().map(|tensor| nd::count(&tensor.shape()[axis..])).collect();
    interleave(cx, &shape, tensors, &runs)
}

/// The tensors, all of one shape, one after the other along a new axis.
pub(crate) fn stack_tensors(
    cx: &Evaluation<'_>,
    tensors: &[&Tensor],
    axis: i64,
) -> Result<Tensor, EvalError> {
    let rank = tensors.first().map_or(0, |tensor| tensor.rank());
    let axis = cx.axis(axis, rank + 1)?;
    let widened: Result<Vec<Tensor>, EvalError> = tensors
        .iter()
        .map(|tensor| {
            let mut shape = tensor.shape().to_vec();
            shape.insert(axis.min(shape.len()), 1);
            reshaped(cx, tensor, &shape)
        })
        .collect();
    concat_tensors(cx, &widened?.iter().collect::<Vec<_>>(), axis as i64)
}

pub(crate) fn split(op: &Split, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let axis = cx.axis(op.axis, data.rank())?;
    let sizes = if cx.optional_value(1).is_some() {
        split_sizes(cx, data.shape()[axis], &int_list(cx, 1)?)?
    } else {
        equal_sizes(cx, data.shape()[axis], op.num_outputs.unwrap_or(cx.n_outputs() as i64))?
    };
    let starts = sizes.iter().scan(0, |start, &size| Some(std::mem::replace(start, *start + size)));
    starts.zip(&sizes).map(|(start, &size)| Ok(take_part(cx, data, axis, start, size)?.into())).collect()
}

/// The sizes as given, which must add up to the dimension.
pub(crate) fn split_sizes(cx: &Evaluation<'_>, dim: usize, sizes: &[i64]) -> Result<Vec<usize>, EvalError> {
    let parts: Result<Vec<usize>, EvalError> =
        sizes.iter().map(|&size| to_size(cx, size, "the size of a part")).collect();
    let parts = parts?;
    match parts.iter().try_fold(0usize, |sum, &size| sum.checked_add(size)) {
        Some(sum) if sum == dim => Ok(parts),
        _ => Err(cx.bad_shape(format!("parts of {sizes:?} do not add up to {dim}"))),
    }
}

/// `n` parts of equal size, the last one smaller if need be.
fn equal_sizes(cx: &Evaluation<'_>, dim: usize, n: i64) -> Result<Vec<usize>, EvalError> {
    let n = usize::try_from(n).ok().filter(|&n| n > 0 && n == cx.n_outputs());
    let n = n.ok_or_else(|| cx.bad_attribute("num_outputs is not the number of outputs"))?;
    let size = dim.div_ceil(n);
    let last = size.checked_mul(n - 1).and_then(|front| dim.checked_sub(front));
    let last = last.ok_or_else(|| cx.bad_shape(format!("{n} parts of size {size} exceed {dim}")))?;
    Ok((0..n).map(|idx| if idx + 1 < n { size } else { last }).collect())
}

/// `size` places of `axis` from `start` on; they must lie inside.
pub(crate) fn take_part(
    cx: &Evaluation<'_>,
    data: &Tensor,
    axis: usize,
    start: usize,
    size: usize,
) -> Result<Tensor, EvalError> {
    let dim = data.shape().get(axis).copied().unwrap_or(0);
    if start.checked_add(size).is_none_or(|end| end > dim) {
        let detail = format!("{size} places from {start} do not lie within axis {axis} of size {dim}");
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    let mut axes = all_axes(data.shape());
    let stride = nd::strides(data.shape())[axis];
    axes[axis] = Axis::steps(size, start, 1, stride);
    pick(cx, data, &axes, None)
}
