//! Operators that take elements by index.

use planish_op::{Compress, Gather, GatherElements, GatherND, OneHot};
use planish_tensor::Tensor;

use super::{find_place, indices, place};
use crate::cells::{Axis, all_axes, pick, pick_runs};
use crate::movement::{reshaped, to_size};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn gather(op: &Gather, cx: &Evaluation<'_>) -> EvalResult {
    let (data, index) = (cx.tensor(0)?, cx.tensor(1)?);
    let axis = cx.axis(op.axis, data.rank())?;
    let dim = data.shape()[axis];
    let places: Result<Vec<usize>, EvalError> =
        indices(cx, index)?.into_iter().map(|index| place(cx, index, dim)).collect();
    let taken = take_places(cx, data, axis, places?)?;
    let shape = [&data.shape()[..axis], index.shape(), &data.shape()[axis + 1..]].concat();
    Ok(vec![reshaped(cx, &taken, &shape)?.into()])
}

/// The given places of one axis, which must lie inside it.
pub(super) fn take_places(
    cx: &Evaluation<'_>,
    data: &Tensor,
    axis: usize,
    places: Vec<usize>,
) -> Result<Tensor, EvalError> {
    let mut axes = all_axes(data.shape());
    axes[axis] = Axis::table(places.into_iter(), nd::strides(data.shape())[axis]);
    pick(cx, data, &axes, None)
}

pub(crate) fn gather_elements(op: &GatherElements, cx: &Evaluation<'_>) -> EvalResult {
    let (data, index) = (cx.tensor(0)?, cx.tensor(1)?);
    let places = element_places(cx, data.shape(), index, op.axis)?;
    Ok(vec![pick_runs(cx, data, index.shape(), 1, |idx| places[idx])?.into()])
}

/// For each element of `index`, the flat place in `shape` that has its coordinates, but for `axis`, where
/// the element itself says where.
pub(super) fn element_places(
    cx: &Evaluation<'_>,
    shape: &[usize],
    index: &Tensor,
    axis: i64,
) -> Result<Vec<usize>, EvalError> {
    let axis = cx.axis(axis, shape.len())?;
    let inside = index.rank() == shape.len()
        && (0..shape.len()).all(|other| other == axis || index.shape()[other] <= shape[other]);
    if !inside {
        return Err(cx.bad_shape(format!("indices of shape {:?} do not fit {shape:?}", index.shape())));
    }
    let strides = nd::strides(shape);
    let values = indices(cx, index)?;
    let mut places = Vec::with_capacity(values.len());
    let mut beside = strides.clone();
    beside[axis] = 0;
    nd::for_each_offset(index.shape(), &beside, 0..values.len(), |flat, offset| {
        places.extend(find_place(values[flat], shape[axis]).map(|place| offset + place * strides[axis]));
    });
    // A place is missing only if its index is outside; the first such index makes the message.
    if places.len() < values.len() {
        values.iter().try_for_each(|&index| place(cx, index, shape[axis]).map(|_| ()))?;
    }
    Ok(places)
}

pub(crate) fn gather_nd(op: &GatherND, cx: &Evaluation<'_>) -> EvalResult {
    let (data, index) = (cx.tensor(0)?, cx.tensor(1)?);
    let n_batch = to_size(cx, op.batch_dims, "batch_dims")?;
    let slices = slice_places(cx, data.shape(), index, n_batch)?;
    let tuples = &index.shape()[..index.rank() - 1];
    let shape = [tuples, &data.shape()[n_batch + slices.depth..]].concat();
    let taken = pick_runs(cx, data, &shape, slices.run, |idx| slices.places[idx])?;
    Ok(vec![taken.into()])
}

/// The slices of a tensor that a tensor of index tuples names.
pub(super) struct SlicePlaces {
    /// The length of a tuple.
    pub(super) depth: usize,
    /// The number of elements of a slice.
    pub(super) run: usize,
    /// Where each slice starts.
    pub(super) places: Vec<usize>,
}

/// The slices of a tensor of `shape` that `index` names, the first `n_batch` axes of both being the same.
pub(super) fn slice_places(
    cx: &Evaluation<'_>,
    shape: &[usize],
    index: &Tensor,
    n_batch: usize,
) -> Result<SlicePlaces, EvalError> {
    let bad = || {
        cx.bad_shape(format!(
            "indices of shape {:?} do not fit data of shape {shape:?} with {n_batch} batch axes",
            index.shape()
        ))
    };
    let (&depth, tuples) = index.shape().split_last().ok_or_else(bad)?;
    let fits = n_batch <= tuples.len()
        && n_batch < shape.len()
        && depth <= shape.len() - n_batch
        && tuples[..n_batch] == shape[..n_batch];
    if !fits {
        return Err(bad());
    }
    let (batch, rest) = shape.split_at(n_batch);
    let (indexed, sliced) = rest.split_at(depth);
    let run = nd::count(sliced);
    let n_tuples = nd::output_len(cx, index.dtype(), tuples)?;
    let per_batch = n_tuples / nd::count(batch).max(1);
    let values = indices(cx, index)?;
    let mut places = Vec::with_capacity(n_tuples);
    for tuple_idx in 0..n_tuples {
        // `per_batch` is not 0 here: there are tuples.
        let mut flat = tuple_idx / per_batch;
        let tuple = &values[tuple_idx * depth..(tuple_idx + 1) * depth];
        for (&value, &dim) in tuple.iter().zip(indexed) {
            flat = flat.saturating_mul(dim).saturating_add(place(cx, value, dim)?);
        }
        places.push(flat.saturating_mul(run));
    }
    Ok(SlicePlaces { depth, run, places })
}

pub(crate) fn one_hot(op: &OneHot, cx: &Evaluation<'_>) -> EvalResult {
    let (index, depth, on_off) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    // Indices and depth may be floats, which are truncated.
    let [depth] = depth.to_i64s()[..] else {
        return Err(cx.bad_shape(format!("depth must be one number, its shape is {:?}", depth.shape())));
    };
    let depth = to_size(cx, depth, "depth")?;
    if on_off.shape() != [2] {
        return Err(cx.bad_shape(format!("values must be an off and an on: {:?}", on_off.shape())));
    }
    let axis = cx.axis(op.axis, index.rank() + 1)?;
    let mut shape = index.shape().to_vec();
    shape.insert(axis, depth);
    let inner = nd::count(&index.shape()[axis..]);
    let hot: Vec<Option<usize>> = index.to_i64s().into_iter().map(|index| find_place(index, depth)).collect();
    let value = |flat: usize| {
        let (outer, class, inner_idx) = (flat / inner / depth, flat / inner % depth, flat % inner);
        usize::from(hot[outer * inner + inner_idx] == Some(class))
    };
    Ok(vec![pick_runs(cx, on_off, &shape, 1, value)?.into()])
}

pub(crate) fn compress(op: &Compress, cx: &Evaluation<'_>) -> EvalResult {
    let (data, condition) = (cx.tensor(0)?, cx.tensor(1)?);
    if condition.rank() != 1 {
        return Err(cx.bad_shape(format!("the condition must have rank 1: {:?}", condition.shape())));
    }
    let (data, axis) = super::along(cx, data, op.axis)?;
    let condition = condition.elements::<bool>().map_err(|_| cx.bad_type(condition.dtype()))?;
    let taken: Vec<usize> = (0..condition.len()).filter(|&idx| condition[idx]).collect();
    if let Some(idx) = taken.iter().find(|&&idx| idx >= data.shape()[axis]) {
        let detail = format!("the condition takes place {idx} of an axis of size {}", data.shape()[axis]);
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    Ok(vec![take_places(cx, &data, axis, taken)?.into()])
}
