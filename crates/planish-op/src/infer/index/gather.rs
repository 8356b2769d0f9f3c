//! Operators that take elements by index.

use planish_tensor::{Dim, Shape};

use super::{int_indices, place};
use crate::infer::checks::{checked_dim, same_dim};
use crate::infer::known::{Known, with_known};
use crate::infer::movement::with_dim;
use crate::infer::{InferError, InferErrorKind, InferResult, Inference, Inferred};

pub(in crate::infer) fn gather(op: &crate::Gather, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    int_indices(cx, 1)?;
    let Some(data) = cx.shape(0)? else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    let axis = cx.axis(op.axis, data.rank())?;
    check_range(cx, &data[axis])?;
    let Some(indices) = cx.shape(1)? else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    let (outer, inner) = data.dims().split_at(axis);
    let gathered: Shape = outer.iter().chain(indices.iter()).chain(&inner[1..]).collect();
    let known = known_gather(cx, &gathered, axis);
    Ok(vec![with_known(dtype, gathered, known)])
}

/// Refuses known indices (input 1) outside an axis of known size.
fn check_range(cx: &Inference<'_>, dim: &Dim) -> Result<(), InferError> {
    let (Some(dim), Some(indices)) = (dim.as_usize(), Known::of(cx, 1).and_then(|known| known.const_ints()))
    else {
        return Ok(());
    };
    match indices.iter().find(|&&index| place(index, dim).is_none()) {
        Some(index) => Err(cx.bad_shape(format!("index {index} is outside an axis of size {dim}"))),
        None => Ok(()),
    }
}

fn known_gather(cx: &Inference<'_>, gathered: &Shape, axis: usize) -> Option<Known> {
    let (data, indices) = (Known::of(cx, 0)?, Known::of(cx, 1)?);
    let places = indices.const_ints()?;
    let rank = indices.shape.len();
    data.indexed(&gathered.as_fixed()?, |index| {
        let of_index = index[axis..axis + rank].iter().zip(&indices.shape);
        let flat = of_index.fold(0, |flat, (&place, &dim)| flat * dim + place);
        let taken = place(*places.get(flat)?, data.shape[axis])?;
        Some([&index[..axis], &[taken], &index[axis + rank..]].concat())
    })
}

/// Checks the ranks of data and indices that have a dimension each for the same axes.
pub(super) fn element_axis(cx: &Inference<'_>, axis: i64) -> Result<Option<usize>, InferError> {
    int_indices(cx, 1)?;
    let (data, indices) = (cx.shape(0)?, cx.shape(1)?);
    if let (Some(data), Some(indices)) = (data, indices) {
        if data.rank() != indices.rank() {
            return Err(cx.bad_shape(format!("indices {indices} and data {data} differ in rank")));
        }
        let axis = cx.axis(axis, data.rank())?;
        for (other, (dim, index_dim)) in data.iter().zip(indices).enumerate() {
            if let (Some(dim), Some(index_dim)) = (dim.as_const(), index_dim.as_const())
                && other != axis
                && index_dim > dim
            {
                return Err(cx.bad_shape(format!("indices {indices} exceed data {data} at axis {other}")));
            }
        }
    }
    let rank = data.or(indices).map(Shape::rank);
    let axis = rank.map(|rank| cx.axis(axis, rank)).transpose()?;
    if let (Some(axis), Some(data)) = (axis, data) {
        check_range(cx, &data[axis])?;
    }
    Ok(axis)
}

pub(in crate::infer) fn gather_elements(op: &crate::GatherElements, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let axis = element_axis(cx, op.axis)?;
    let shape = match (cx.shape(1)?, cx.shape(0)?) {
        (Some(indices), _) => indices.clone(),
        (None, Some(data)) => cx.fresh_shape(data.rank(), "gather"),
        (None, None) => return Ok(vec![Inferred::maybe_ranked(dtype, None)]),
    };
    let known = shape.as_fixed().zip(axis).and_then(|(fixed, axis)| {
        let (data, indices) = (Known::of(cx, 0)?, Known::of(cx, 1)?);
        data.indexed(&fixed, |index| {
            let taken = indices.indexed(&[], |_| Some(index.to_vec()))?.const_ints()?;
            let mut source = index.to_vec();
            source[axis] = place(*taken.first()?, data.shape[axis])?;
            Some(source)
        })
    });
    Ok(vec![with_known(dtype, shape, known)])
}

/// The shape of what index tuples (input 1) take of the data (input 0): the tuples' own dimensions and those
/// of the data that they leave. `None` if the rank is not known.
pub(super) fn slices_shape(cx: &Inference<'_>, n_batch: usize) -> Result<Option<Shape>, InferError> {
    int_indices(cx, 1)?;
    let (Some(data), Some(indices)) = (cx.shape(0)?, cx.shape(1)?) else { return Ok(None) };
    let bad = || cx.bad_shape(format!("indices {indices} do not fit data {data} with {n_batch} batch axes"));
    let (depth, tuples) = indices.dims().split_last().ok_or_else(bad)?;
    if n_batch > tuples.len() || n_batch >= data.rank() {
        return Err(bad());
    }
    let batch: Result<Vec<Dim>, InferError> =
        tuples[..n_batch].iter().zip(data).map(|(a, b)| same_dim(cx, "a batch dimension", a, b)).collect();
    let Some(depth) = depth.as_const() else { return Ok(None) };
    let left = usize::try_from(depth).ok().and_then(|depth| data.dims().get(n_batch + depth..));
    Ok(Some(batch?.iter().chain(&tuples[n_batch..]).chain(left.ok_or_else(bad)?).collect()))
}

pub(in crate::infer) fn gather_nd(op: &crate::GatherND, cx: &mut Inference<'_>) -> InferResult {
    let n_batch = usize::try_from(op.batch_dims)
        .map_err(|_| cx.bad_attribute(format!("batch_dims is negative: {}", op.batch_dims)))?;
    let shape = slices_shape(cx, n_batch)?;
    let dtype = cx.dtype(0)?;
    let Some(shape) = shape else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    let known = known_slices(cx, &shape, n_batch);
    Ok(vec![with_known(dtype, shape, known)])
}

fn known_slices(cx: &Inference<'_>, shape: &Shape, n_batch: usize) -> Option<Known> {
    let (data, indices) = (Known::of(cx, 0)?, Known::of(cx, 1)?);
    let (&depth, tuples) = indices.shape.split_last()?;
    data.indexed(&shape.as_fixed()?, |index| {
        let (tuple, rest) = index.split_at(tuples.len());
        let mut source = tuple[..n_batch].to_vec();
        for idx in 0..depth {
            let element = indices.indexed(&[], |_| Some([tuple, &[idx]].concat()))?.const_ints()?;
            source.push(place(*element.first()?, data.shape[n_batch + idx])?);
        }
        source.extend(rest);
        Some(source)
    })
}

pub(in crate::infer) fn one_hot(op: &crate::OneHot, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(2)?;
    if let Some(values) = cx.shape_of_rank(2, 1)? {
        same_dim(cx, "the number of values", &values[0], &Dim::from(2i64))?;
    }
    // A depth may be a float, which is truncated.
    let depth = match (cx.ints(1), cx.constant(1)) {
        (Some(ints), _) => ints.dims.into_iter().next(),
        (None, Some(tensor)) if tensor.len() == 1 => tensor.to_i64s().first().map(|&depth| depth.into()),
        _ => None,
    };
    let depth = checked_dim(cx, depth.unwrap_or(Dim::UNKNOWN), "depth")?;
    let Some(indices) = cx.shape(0)? else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    let axis = cx.axis(op.axis, indices.rank() + 1)?;
    let mut dims = indices.dims().to_vec();
    dims.insert(axis, depth);
    Ok(vec![Inferred::tensor(dtype, Shape::new(dims))])
}

pub(in crate::infer) fn compress(op: &crate::Compress, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if cx.dtype(1)? != planish_tensor::DType::Bool {
        return Err(cx.error(InferErrorKind::BadType, "the condition must be boolean"));
    }
    cx.shape_of_rank(1, 1)?;
    // Of a long mask the count is left to the run: it would cost eight times the mask's memory.
    let condition = cx.const_ints(1);
    let taken = condition.map(|condition| condition.into_iter().filter(|&taken| taken != 0).count());
    let taken = taken.map_or_else(|| cx.fresh_dim("compress"), Dim::from);
    let shape = match (op.axis, cx.shape(0)?) {
        (None, _) => Some(Shape::new(vec![taken])),
        (Some(axis), Some(shape)) => Some(with_dim(shape, cx.axis(axis, shape.rank())?, taken)),
        (Some(_), None) => None,
    };
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}
