//! Windows onto a tensor: cut out of it, or larger than it.

use planish_op::{CenterCropPad, Pad, PadMode, Slice};
use planish_tensor::Tensor;

use super::{int_list, optional_int_list, to_size};
use crate::cells::{Axis, NOWHERE, all_axes, pick};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn slice(_op: &Slice, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let (starts, ends) = (int_list(cx, 1)?, int_list(cx, 2)?);
    let named = optional_int_list(cx, 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let axes = cx.distinct_axes(&named, data.rank())?;
    let steps = optional_int_list(cx, 4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|&len| len != starts.len()) {
        return Err(cx.bad_shape("starts, ends, axes and steps differ in length"));
    }
    let strides = nd::strides(data.shape());
    let mut picked = all_axes(data.shape());
    for (idx, &axis) in axes.iter().enumerate() {
        let Some((start, len)) = slice_range(data.shape()[axis], starts[idx], ends[idx], steps[idx]) else {
            return Err(cx.error(EvalErrorKind::BadValue, format!("the step of axis {axis} is 0")));
        };
        picked[axis] = Axis::steps(len, start, steps[idx] as isize, strides[axis]);
    }
    Ok(vec![pick(cx, data, &picked, None)?.into()])
}

/// The first place and the number of places that a slice of an axis takes; `None` for a step of 0.
fn slice_range(dim: usize, start: i64, end: i64, step: i64) -> Option<(usize, usize)> {
    if dim == 0 {
        return (step != 0).then_some((0, 0));
    }
    let (dim, step) = (dim as i128, i128::from(step));
    let from_front = |place: i64| i128::from(place) + if place < 0 { dim } else { 0 };
    let (start, end) = match step {
        0 => return None,
        1.. => (from_front(start).clamp(0, dim), from_front(end).clamp(0, dim)),
        _ => (from_front(start).clamp(0, dim - 1), from_front(end).clamp(-1, dim - 1)),
    };
    let span = if step > 0 { end - start } else { start - end };
    let len = (span.max(0) + step.abs() - 1) / step.abs();
    // Nothing taken: any start will do, and 0 is inside.
    Some(if len == 0 { (0, 0) } else { (start as usize, len as usize) })
}

pub(crate) fn pad(op: &Pad, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let pads = int_list(cx, 1)?;
    let axes = match optional_int_list(cx, 3)? {
        Some(axes) => cx.distinct_axes(&axes, data.rank())?,
        None => (0..data.rank()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(cx.bad_shape(format!("{} pads do not fit {} axes", pads.len(), axes.len())));
    }
    let mut amounts = vec![(0, 0); data.rank()];
    for (idx, &axis) in axes.iter().enumerate() {
        amounts[axis] = (pads[idx], pads[idx + axes.len()]);
    }
    let fill = fill_value(cx, data)?;
    Ok(vec![padded(cx, data, &amounts, op.mode, fill)?.into()])
}

/// The constant to pad with: one element of the data's type.
fn fill_value<'a>(cx: &Evaluation<'a>, data: &Tensor) -> Result<Option<&'a Tensor>, EvalError> {
    let fill = cx.optional_tensor(2)?;
    match fill {
        Some(fill) if fill.dtype() != data.dtype() => Err(cx.bad_type(fill.dtype())),
        Some(fill) if fill.len() != 1 => {
            Err(cx.bad_shape(format!("the constant value must be one element, it is {:?}", fill.shape())))
        }
        fill => Ok(fill),
    }
}

/// `data` with places added (or, where negative, taken away) before and after each axis.
fn padded(
    cx: &Evaluation<'_>,
    data: &Tensor,
    amounts: &[(i64, i64)],
    mode: PadMode,
    fill: Option<&Tensor>,
) -> Result<Tensor, EvalError> {
    let mut windows = Vec::with_capacity(amounts.len());
    for (&dim, &(before, after)) in data.shape().iter().zip(amounts) {
        let window = Window::new(dim, before, after);
        if window.len < 0 || (mode != PadMode::Constant && window.len > 0 && window.kept <= 0) {
            let detail = format!("an axis of size {dim} cannot be padded by {before} and {after}");
            return Err(cx.error(EvalErrorKind::BadValue, detail));
        }
        windows.push(window);
    }
    let shape: Vec<usize> =
        windows.iter().map(|window| usize::try_from(window.len).unwrap_or(usize::MAX)).collect();
    // The tables below have an entry for each place, so the size is checked before they are made.
    if nd::output_len(cx, data.dtype(), &shape)? == 0 {
        return Ok(Tensor::zeros(data.dtype(), &shape)?);
    }
    let axes: Vec<Axis> = windows
        .iter()
        .zip(nd::strides(data.shape()))
        .map(|(window, stride)| window.axis(mode, stride))
        .collect();
    pick(cx, data, &axes, fill)
}

/// One axis of a padded tensor: `kept` places of the data from `first` on, which stand at output place
/// `at`, in an output of `len` places.
struct Window {
    first: i128,
    kept: i128,
    at: i128,
    len: i128,
}

impl Window {
    fn new(dim: usize, before: i64, after: i64) -> Window {
        let (dim, before, after) = (dim as i128, i128::from(before), i128::from(after));
        let first = (-before).max(0);
        let kept = (dim - first - (-after).max(0)).max(0);
        Window { first, kept, at: before.max(0), len: dim + before + after }
    }

    fn axis(&self, mode: PadMode, stride: usize) -> Axis {
        let place = |idx: i128| {
            let idx = idx - self.at;
            let inside = match mode {
                PadMode::Constant if !(0..self.kept).contains(&idx) => return NOWHERE,
                PadMode::Constant => idx,
                PadMode::Edge => idx.clamp(0, self.kept - 1),
                PadMode::Wrap => idx.rem_euclid(self.kept),
                PadMode::Reflect => {
                    // There and back, the two ends not repeated.
                    let period = (2 * (self.kept - 1)).max(1);
                    let idx = idx.rem_euclid(period);
                    idx.min(period - idx).min(self.kept - 1)
                }
            };
            (self.first + inside) as usize
        };
        Axis::table((0..self.len).map(place), stride)
    }
}

pub(crate) fn center_crop_pad(op: &CenterCropPad, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let target = int_list(cx, 1)?;
    let axes = match &op.axes {
        Some(axes) => cx.distinct_axes(axes, data.rank())?,
        None => (0..data.rank()).collect(),
    };
    if target.len() != axes.len() {
        return Err(cx.bad_shape(format!("{} sizes do not fit {} axes", target.len(), axes.len())));
    }
    let mut amounts = vec![(0, 0); data.rank()];
    for (&axis, &size) in axes.iter().zip(&target) {
        to_size(cx, size, "a target size")?;
        // The smaller half goes before the centre, for cropping and for padding.
        let added = size - data.shape()[axis] as i64;
        amounts[axis] = (added / 2, added - added / 2);
    }
    Ok(vec![padded(cx, data, &amounts, PadMode::Constant, None)?.into()])
}
