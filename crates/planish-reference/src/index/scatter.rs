//! Operators that write elements by index.

use planish_op::{ScatterElements, ScatterND, ScatterReduction, TensorScatter, TensorScatterMode};
use planish_tensor::{Bytes, DType, Element, Tensor};

use super::gather::{element_places, slice_places};
use crate::cells::write_runs;
use crate::movement::int_list;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn scatter_elements(op: &ScatterElements, cx: &Evaluation<'_>) -> EvalResult {
    let (data, index, updates) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let places = element_places(cx, data.shape(), index, op.axis)?;
    if updates.shape() != index.shape() {
        let (a, b) = (updates.shape(), index.shape());
        return Err(cx.bad_shape(format!("updates of shape {a:?} for indices of shape {b:?}")));
    }
    Ok(vec![scattered(cx, op.reduction, updates, 1, &places)?.into()])
}

pub(crate) fn scatter_nd(op: &ScatterND, cx: &Evaluation<'_>) -> EvalResult {
    let (data, index, updates) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let slices = slice_places(cx, data.shape(), index, 0)?;
    let expected = [&index.shape()[..index.rank() - 1], &data.shape()[slices.depth..]].concat();
    if updates.shape() != expected {
        return Err(cx.bad_shape(format!("updates must have shape {expected:?}, not {:?}", updates.shape())));
    }
    Ok(vec![scattered(cx, op.reduction, updates, slices.run, &slices.places)?.into()])
}

/// Input 0 with the runs of `updates` written or folded in at `places`.
fn scattered(
    cx: &Evaluation<'_>,
    reduction: ScatterReduction,
    updates: &Tensor,
    run: usize,
    places: &[usize],
) -> Result<Tensor, EvalError> {
    let data = cx.tensor(0)?;
    if updates.dtype() != data.dtype() {
        return Err(cx.bad_type(updates.dtype()));
    }
    if reduction == ScatterReduction::None {
        return write_runs(cx, data, updates, run, places);
    }
    let folds = Folds { data, updates, run, places };
    match (data.dtype(), reduction) {
        (dtype, _) if dtype.is_float() => folds.floats(float_fold(reduction)),
        (DType::U64, ScatterReduction::Max) => folds.ints::<u64>(u64::max),
        (DType::U64, ScatterReduction::Min) => folds.ints::<u64>(u64::min),
        (DType::U64, ScatterReduction::Mul) => folds.ints::<u64>(u64::wrapping_mul),
        (DType::U64, _) => folds.ints::<u64>(u64::wrapping_add),
        (DType::I64, _) => folds.ints::<i64>(int_fold(reduction)),
        // For truth values, addition is "or" and multiplication "and".
        (DType::Bool, ScatterReduction::Add | ScatterReduction::Max) => folds.ints::<bool>(|a, b| a | b),
        (DType::Bool, _) => folds.ints::<bool>(|a, b| a & b),
        (dtype, _) => folds.narrow_ints(dtype, int_fold(reduction)),
    }
}

fn float_fold(reduction: ScatterReduction) -> fn(f64, f64) -> f64 {
    // NaN wins, as it does in Max and Min.
    fn extreme(a: f64, b: f64, pick: fn(f64, f64) -> f64) -> f64 {
        if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) }
    }
    match reduction {
        ScatterReduction::None => |_, new| new,
        ScatterReduction::Add => |old, new| old + new,
        ScatterReduction::Mul => |old, new| old * new,
        ScatterReduction::Max => |old, new| extreme(old, new, f64::max),
        ScatterReduction::Min => |old, new| extreme(old, new, f64::min),
    }
}

fn int_fold(reduction: ScatterReduction) -> fn(i64, i64) -> i64 {
    match reduction {
        ScatterReduction::None => |_, new| new,
        ScatterReduction::Add => i64::wrapping_add,
        ScatterReduction::Mul => i64::wrapping_mul,
        ScatterReduction::Max => i64::max,
        ScatterReduction::Min => i64::min,
    }
}

/// The runs of `updates` to be folded into `data` at `places`.
struct Folds<'a> {
    data: &'a Tensor,
    updates: &'a Tensor,
    run: usize,
    places: &'a [usize],
}

impl Folds<'_> {
    fn apply<T: Copy>(&self, out: &mut [T], updates: &[T], fold: impl Fn(T, T) -> T) {
        for (update, &place) in updates.chunks_exact(self.run.max(1)).zip(self.places) {
            for (old, &new) in out[place..].iter_mut().zip(update) {
                *old = fold(*old, new);
            }
        }
    }

    /// Folded in `f64`, rounded once at the end.
    fn floats(&self, fold: fn(f64, f64) -> f64) -> Result<Tensor, EvalError> {
        let mut out = self.data.to_f64s();
        self.apply(&mut out, &self.updates.to_f64s(), fold);
        Ok(Tensor::from_f64s(self.data.dtype(), self.data.shape(), &out)?)
    }

    fn ints<T: Element>(&self, fold: fn(T, T) -> T) -> Result<Tensor, EvalError> {
        let mut out = self.data.elements::<T>()?.to_vec();
        self.apply(&mut out, &self.updates.elements::<T>()?, fold);
        Ok(Tensor::from_bytes(self.data.dtype(), self.data.shape(), Bytes::from_vec(out))?)
    }

    /// Folded in 64 bits and cut back to the width after each step, so that values wrap.
    fn narrow_ints(&self, dtype: DType, fold: fn(i64, i64) -> i64) -> Result<Tensor, EvalError> {
        let unused = 64 - dtype.bits();
        let wrap = move |value: i64| match dtype.is_signed_int() {
            true => (value << unused) >> unused,
            false => (((value as u64) << unused) >> unused) as i64,
        };
        let mut out = self.data.to_i64s();
        self.apply(&mut out, &self.updates.to_i64s(), |old, new| wrap(fold(old, new)));
        let exact: Vec<f64> = out.into_iter().map(|value| value as f64).collect();
        Ok(Tensor::from_f64s(dtype, self.data.shape(), &exact)?)
    }
}

pub(crate) fn tensor_scatter(op: &TensorScatter, cx: &Evaluation<'_>) -> EvalResult {
    let (cache, update) = (cx.tensor(0)?, cx.tensor(1)?);
    let shape = cache.shape();
    let axis = cx.axis(op.axis, cache.rank())?;
    if axis == 0 {
        return Err(cx.bad_attribute("axis 0 is the batch, it cannot be the sequence"));
    }
    let fits = update.rank() == cache.rank()
        && (0..shape.len()).all(|other| other == axis || update.shape()[other] == shape[other])
        && update.shape()[axis] <= shape[axis];
    if !fits {
        return Err(cx.bad_shape(format!("an update of shape {:?} for a cache {shape:?}", update.shape())));
    }
    let starts = if cx.optional_value(2).is_some() { int_list(cx, 2)? } else { vec![0; shape[0]] };
    if starts.len() != shape[0] {
        return Err(cx.bad_shape(format!("{} write indices for a batch of {}", starts.len(), shape[0])));
    }
    let (max_len, len) = (shape[axis], update.shape()[axis]);
    let run = nd::count(&shape[axis + 1..]);
    let per_batch = nd::count(&shape[1..axis]);
    let mut places = Vec::new();
    if !update.is_empty() {
        for (batch, &start) in starts.iter().enumerate() {
            let first = first_place(cx, op.mode, start, len, max_len)?;
            for prefix in batch * per_batch..(batch + 1) * per_batch {
                places.extend((0..len).map(|step| (prefix * max_len + (first + step) % max_len) * run));
            }
        }
    }
    Ok(vec![write_runs(cx, cache, update, run, &places)?.into()])
}

/// Where the first of `len` entries goes: the others follow, and wrap only in the circular mode.
fn first_place(
    cx: &Evaluation<'_>,
    mode: TensorScatterMode,
    start: i64,
    len: usize,
    max_len: usize,
) -> Result<usize, EvalError> {
    let first = match mode {
        TensorScatterMode::Circular => usize::try_from(i128::from(start).rem_euclid(max_len as i128)).ok(),
        TensorScatterMode::Linear => usize::try_from(start)
            .ok()
            .filter(|first| first.checked_add(len).is_some_and(|end| end <= max_len)),
    };
    first.ok_or_else(|| {
        let detail = format!("{len} entries from {start} do not lie within a cache of {max_len}");
        cx.error(EvalErrorKind::BadValue, detail)
    })
}
