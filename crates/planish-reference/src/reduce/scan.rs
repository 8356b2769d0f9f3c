//! Operators along one axis that keep the shape: running sums and products, softmax and its relatives.

use planish_op::{CumProd, CumSum, Hardmax, LogSoftmax, Softmax, Value};
use planish_tensor::{DType, Tensor};

use crate::number::{Numbers, wrapped_ints};
use crate::{EvalError, EvalResult, Evaluation, nd};

/// Replaces every line along `axis` by what `apply` makes of it, in parallel over what lies outside the axis.
pub(crate) fn map_lines<T: Copy + Default + Send + Sync>(
    values: &[T],
    shape: &[usize],
    axis: usize,
    apply: impl Fn(&mut [T]) + Sync,
) -> Vec<T> {
    // The dimensions of an empty tensor need not have a product.
    if values.is_empty() {
        return Vec::new();
    }
    let (n_outer, len) = (nd::count(&shape[..axis]), shape[axis]);
    let n_inner = nd::count(&shape[axis + 1..]);
    nd::fill_blocks(n_outer, len * n_inner, 8 * len * n_inner, |outer, out| {
        let block = &values[outer * len * n_inner..][..len * n_inner];
        let mut line = vec![T::default(); len];
        for inner in 0..n_inner {
            for (idx, value) in line.iter_mut().enumerate() {
                *value = block[idx * n_inner + inner];
            }
            apply(&mut line);
            for (idx, value) in line.iter().enumerate() {
                out[idx * n_inner + inner] = *value;
            }
        }
    })
}

/// The four forms of a running sum or product.
#[derive(Clone, Copy)]
struct ScanForm {
    reverse: bool,
    exclusive: bool,
}

impl ScanForm {
    /// Replaces a line by its running combination.
    fn apply<T: Copy>(self, line: &mut [T], start: T, combine: impl Fn(T, T) -> T) {
        let mut running = start;
        let mut step = |value: &mut T| {
            let before = running;
            running = combine(running, *value);
            *value = if self.exclusive { before } else { running };
        };
        match self.reverse {
            false => line.iter_mut().for_each(&mut step),
            true => line.iter_mut().rev().for_each(&mut step),
        }
    }
}

pub(crate) fn cum_sum(op: &CumSum, cx: &Evaluation<'_>) -> EvalResult {
    let form = ScanForm { reverse: op.reverse, exclusive: op.exclusive };
    scan(
        cx,
        |line| form.apply(line, 0.0, |sum, value| sum + value),
        |line| form.apply(line, 0, i128::wrapping_add),
    )
}

pub(crate) fn cum_prod(op: &CumProd, cx: &Evaluation<'_>) -> EvalResult {
    let form = ScanForm { reverse: op.reverse, exclusive: op.exclusive };
    scan(
        cx,
        |line| form.apply(line, 1.0, |product, value| product * value),
        |line| form.apply(line, 1, i128::wrapping_mul),
    )
}

fn scan(
    cx: &Evaluation<'_>,
    on_floats: impl Fn(&mut [f64]) + Sync,
    on_ints: impl Fn(&mut [i128]) + Sync,
) -> EvalResult {
    let x = cx.tensor(0)?;
    let axis = match (cx.tensor(1)?.dtype(), cx.ints(1)?.as_slice()) {
        (DType::I32 | DType::I64, [axis]) => cx.axis(*axis, x.rank())?,
        (DType::I32 | DType::I64, axes) => {
            return Err(cx.bad_shape(format!("the axis must be one number, there are {}", axes.len())));
        }
        (dtype, _) => return Err(cx.bad_type(dtype)),
    };
    let y = match Numbers::of(cx, x)? {
        Numbers::Floats(values) => {
            Tensor::from_f64s(x.dtype(), x.shape(), &map_lines(&values, x.shape(), axis, on_floats))?
        }
        Numbers::Ints(_) if x.dtype() == DType::Bool => return Err(cx.bad_type(DType::Bool)),
        Numbers::Ints(values) => {
            wrapped_ints(x.dtype(), x.shape(), &map_lines(&values, x.shape(), axis, on_ints))?
        }
    };
    Ok(vec![Value::Tensor(y)])
}

pub(crate) fn softmax(op: &Softmax, cx: &Evaluation<'_>) -> EvalResult {
    along(op.axis, cx, softmax_line)
}

pub(crate) fn log_softmax(op: &LogSoftmax, cx: &Evaluation<'_>) -> EvalResult {
    along(op.axis, cx, log_softmax_line)
}

pub(crate) fn hardmax(op: &Hardmax, cx: &Evaluation<'_>) -> EvalResult {
    along(op.axis, cx, |line| {
        let first = super::arg::best(line.iter().copied(), |a, b| a > b, false);
        for (idx, value) in line.iter_mut().enumerate() {
            *value = if Some(idx) == first { 1.0 } else { 0.0 };
        }
    })
}

fn along(axis: i64, cx: &Evaluation<'_>, apply: impl Fn(&mut [f64]) + Sync) -> EvalResult {
    let x = cx.tensor(0)?;
    let axis = cx.axis(axis, x.rank())?;
    let values = map_lines(&cx.floats(0)?, x.shape(), axis, apply);
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &values)?)])
}

/// The largest element, NaN if there is one, minus infinity of nothing.
pub(crate) fn max_of(line: impl Iterator<Item = f64>) -> f64 {
    line.fold(f64::NEG_INFINITY, |max, value| if value > max || value.is_nan() { value } else { max })
}

/// Softmax in place; subtracting the maximum first changes nothing but avoids overflow.
pub(crate) fn softmax_line(line: &mut [f64]) {
    let max = max_of(line.iter().copied());
    line.iter_mut().for_each(|value| *value = (*value - max).exp());
    let sum: f64 = line.iter().sum();
    line.iter_mut().for_each(|value| *value /= sum);
}

/// The logarithm of softmax in place.
pub(crate) fn log_softmax_line(line: &mut [f64]) {
    let max = max_of(line.iter().copied());
    let log_sum = line.iter().map(|value| (value - max).exp()).sum::<f64>().ln();
    line.iter_mut().for_each(|value| *value = *value - max - log_sum);
}

/// Checks `axes` against the rank: for each axis whether it is among them. Repetition is harmless.
pub(crate) fn axis_mask(cx: &Evaluation<'_>, axes: &[i64], rank: usize) -> Result<Vec<bool>, EvalError> {
    let mut mask = vec![false; rank];
    for &axis in axes {
        mask[cx.axis(axis, rank)?] = true;
    }
    Ok(mask)
}
