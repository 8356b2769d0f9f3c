//! Operators that change or read the shape and leave the elements where they are.

use planish_op::{Flatten, Identity, Reshape, Shape, Size, Squeeze, Unsqueeze};
use planish_tensor::{Tensor, element_count};

use super::{int_list, optional_int_list, reshaped};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation};

/// The value as it is, sequences and optionals too.
pub(crate) fn identity(_op: &Identity, cx: &Evaluation<'_>) -> EvalResult {
    Ok(vec![cx.value(0)?.clone()])
}

pub(crate) fn shape(op: &Shape, cx: &Evaluation<'_>) -> EvalResult {
    let shape = tensor_shape(cx, 0)?;
    let rank = shape.len() as i64;
    let place = |axis: i64| (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (place(op.start), op.end.map_or(shape.len(), place));
    let dims = shape.get(start..end).unwrap_or_default();
    Ok(vec![Tensor::vector(dims.iter().map(|&dim| dim as i64).collect()).into()])
}

pub(crate) fn size(_op: &Size, cx: &Evaluation<'_>) -> EvalResult {
    Ok(vec![Tensor::scalar(cx.tensor(0)?.len() as i64).into()])
}

fn tensor_shape<'a>(cx: &Evaluation<'a>, idx: usize) -> Result<&'a [usize], EvalError> {
    Ok(cx.tensor(idx)?.shape())
}

pub(crate) fn reshape(op: &Reshape, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let target = int_list(cx, 1)?;
    let refuse = |why: &str| cx.bad_shape(format!("cannot reshape {:?} to {target:?}: {why}", data.shape()));
    let mut shape = Vec::with_capacity(target.len());
    let mut open = None;
    for (axis, &dim) in target.iter().enumerate() {
        shape.push(match dim {
            0 if !op.allowzero => {
                *data.shape().get(axis).ok_or_else(|| refuse("0 copies a dimension that is not there"))?
            }
            -1 if open.is_some() => return Err(refuse("-1 stands twice")),
            -1 => {
                open = Some(axis);
                1
            }
            dim => usize::try_from(dim).map_err(|_| refuse("sizes below -1 mean nothing"))?,
        });
    }
    if let Some(axis) = open {
        // `checked_div` refuses a product of 0: any size would fit in the place of -1.
        let known = element_count(&shape).ok_or_else(|| refuse("it is too large"))?;
        shape[axis] = data.len().checked_div(known).ok_or_else(|| refuse("-1 could be any size"))?;
    }
    if element_count(&shape) != Some(data.len()) {
        return Err(refuse("the element counts differ"));
    }
    Ok(vec![reshaped(cx, data, &shape)?.into()])
}

pub(crate) fn flatten(op: &Flatten, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let rank = data.rank();
    // The axis may be the rank itself, which flattens everything into rows.
    let axis = if op.axis == rank as i64 { rank } else { cx.axis(op.axis, rank)? };
    let (outer, inner) = data.shape().split_at(axis);
    // Either product alone may overflow where the other is 0.
    let too_large = || cx.error(EvalErrorKind::TooLarge, "the dimensions are too large to flatten");
    let sizes = [element_count(outer).ok_or_else(too_large)?, element_count(inner).ok_or_else(too_large)?];
    Ok(vec![reshaped(cx, data, &sizes)?.into()])
}

pub(crate) fn squeeze(_op: &Squeeze, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let axes = match optional_int_list(cx, 1)? {
        Some(axes) => cx.distinct_axes(&axes, data.rank())?,
        None => (0..data.rank()).filter(|&axis| data.shape()[axis] == 1).collect(),
    };
    if let Some(axis) = axes.iter().find(|&&axis| data.shape()[axis] != 1) {
        return Err(cx.bad_shape(format!("axis {axis} of {:?} is not 1", data.shape())));
    }
    let kept = data.shape().iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    let shape: Vec<usize> = kept.map(|(_, &dim)| dim).collect();
    Ok(vec![reshaped(cx, data, &shape)?.into()])
}

pub(crate) fn unsqueeze(_op: &Unsqueeze, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let axes = int_list(cx, 1)?;
    let rank = data.rank() + axes.len();
    let axes = cx.distinct_axes(&axes, rank)?;
    let mut dims = data.shape().iter();
    let shape: Vec<usize> = (0..rank)
        .map(|axis| if axes.contains(&axis) { 1 } else { dims.next().copied().unwrap_or(1) })
        .collect();
    Ok(vec![reshaped(cx, data, &shape)?.into()])
}
