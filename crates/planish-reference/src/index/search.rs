//! Operators that look for elements: those that are not zero, different, or largest.

use planish_op::{NonZero, TopK, Unique};
use planish_tensor::{DType, Tensor};

use super::gather::take_places;
use super::order::keys;
use crate::cells::pick_runs;
use crate::movement::{single_int, to_size};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn non_zero(_op: &NonZero, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let places: Vec<usize> = if data.dtype().is_float() {
        places_where(data.to_f64s(), |value| value != 0.0)
    } else {
        places_where(data.to_i64s(), |value| value != 0)
    };
    // One row per axis. A scalar has no axes and therefore no rows, only a count of columns.
    let strides = nd::strides(data.shape());
    let mut coordinates = Vec::with_capacity(data.rank() * places.len());
    for (&dim, stride) in data.shape().iter().zip(strides) {
        coordinates.extend(places.iter().map(|place| (place / stride % dim) as i64));
    }
    Ok(vec![Tensor::new(&[data.rank(), places.len()], coordinates)?.into()])
}

fn places_where<T>(values: Vec<T>, test: impl Fn(T) -> bool) -> Vec<usize> {
    values.into_iter().enumerate().filter_map(|(place, value)| test(value).then_some(place)).collect()
}

pub(crate) fn topk(op: &TopK, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let k = to_size(cx, single_int(cx, 1)?, "k")?;
    let axis = cx.axis(op.axis, data.rank())?;
    let dim = data.shape()[axis];
    if k > dim {
        return Err(cx.error(EvalErrorKind::BadValue, format!("k is {k}, axis {axis} has only {dim}")));
    }
    let mut shape = data.shape().to_vec();
    shape[axis] = k;
    let n_taken = nd::output_len(cx, data.dtype(), &shape)?;
    let inner = nd::count(&data.shape()[axis + 1..]);
    let keys = keys(data);
    let mut indices = vec![0i64; n_taken];
    let mut order: Vec<usize> = Vec::new();
    let n_lines = n_taken.checked_div(k).unwrap_or(0);
    for line in 0..n_lines {
        let (outer, inner_idx) = (line / inner, line % inner);
        let key = |place: usize| keys[(outer * dim + place) * inner + inner_idx];
        order.clear();
        order.extend(0..dim);
        // The sort is stable, so of equal elements the one with the lower index comes first. The order is
        // the sorted one whether or not it is asked for.
        match op.largest {
            true => order.sort_by_key(|&place| std::cmp::Reverse(key(place))),
            false => order.sort_by_key(|&place| key(place)),
        }
        for (rank, &place) in order[..k].iter().enumerate() {
            indices[(outer * k + rank) * inner + inner_idx] = place as i64;
        }
    }
    let value = |flat: usize| {
        let (outer, inner_idx) = (flat / inner / k, flat % inner);
        (outer * dim + indices[flat] as usize) * inner + inner_idx
    };
    let values = pick_runs(cx, data, &shape, 1, value)?;
    Ok(vec![values.into(), Tensor::new(&shape, indices)?.into()])
}

pub(crate) fn unique(op: &Unique, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let (data, axis) = super::along(cx, data, op.axis)?;
    let slices = slice_keys(cx, &data, axis)?;
    let dim = data.shape()[axis];
    // Places of equal slices side by side, the first occurrence in front.
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|&a, &b| slices.of(a).cmp(slices.of(b)));
    let mut groups: Vec<&[usize]> = order.chunk_by(|&a, &b| slices.of(a) == slices.of(b)).collect();
    if !op.sorted {
        groups.sort_by_key(|group| group[0]);
    }
    let first: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let mut inverse = vec![0i64; dim];
    for (idx, group) in groups.iter().enumerate() {
        group.iter().for_each(|&place| inverse[place] = idx as i64);
    }
    let counts = groups.iter().map(|group| group.len() as i64).collect();
    let indices = first.iter().map(|&place| place as i64).collect();
    let values = take_places(cx, &data, axis, first)?;
    let rest = [indices, inverse, counts].map(|list| Tensor::vector(list).into());
    Ok([values.into()].into_iter().chain(rest).take(cx.n_outputs().max(1)).collect())
}

/// The keys of the slices along an axis, each slice in one piece.
struct SliceKeys {
    keys: Vec<u64>,
    len: usize,
}

impl SliceKeys {
    fn of(&self, place: usize) -> &[u64] {
        &self.keys[place * self.len..(place + 1) * self.len]
    }
}

fn slice_keys(cx: &Evaluation<'_>, data: &Tensor, axis: usize) -> Result<SliceKeys, EvalError> {
    let shape = data.shape();
    // Slices without elements are all equal, and there may be any number of them.
    let dim = nd::output_len(cx, DType::I64, &shape[axis..=axis])?;
    let flat = keys(data);
    let inner = nd::count(&shape[axis + 1..]);
    let len = flat.len().checked_div(dim).unwrap_or(0);
    let mut keys = Vec::with_capacity(flat.len());
    if !flat.is_empty() {
        for place in 0..dim {
            keys.extend((0..len).map(|idx| flat[(idx / inner * dim + place) * inner + idx % inner]));
        }
    }
    Ok(SliceKeys { keys, len })
}
