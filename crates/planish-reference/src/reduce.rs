//! Reference: reductions and scans along axes.
//!
//! Where ONNX leaves a value undefined, this is what happens: the mean of nothing is NaN, or 0 for integers;
//! a logarithm that no integer holds is clamped to the type. Extremes carry NaN along, as NumPy does, which
//! ONNX names as its model.

mod arg;
mod groups;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use arg::{arg_max, arg_min};
pub(crate) use groups::Groups;
pub(crate) use scan::{
    axis_mask, cum_prod, cum_sum, hardmax, log_softmax, log_softmax_line, map_lines, softmax, softmax_line,
};

use planish_op::{Reduce, Reduction, Value};
use planish_tensor::{DType, Tensor};

use crate::number::{Numbers, wrapped_ints};
use crate::{EvalError, EvalResult, Evaluation};
use groups::Group;

/// The ten `Reduce*` operators.
pub(crate) fn reduce(op: Reduce, cx: &Evaluation<'_>) -> EvalResult {
    let Reduce { by, noop_with_empty_axes: noop, keepdims } = op;
    let data = cx.tensor(0)?;
    let dtype = data.dtype();
    if dtype == DType::Bool && !matches!(by, Reduction::Max | Reduction::Min) {
        return Err(cx.bad_type(dtype));
    }
    let reduced = reduced_axes(cx, noop, data.rank())?;
    let groups = Groups::new(cx, data.shape(), &reduced, dtype)?;
    let shape = groups.result_shape(keepdims);
    let result = match Numbers::of(cx, data)? {
        Numbers::Floats(values) => {
            Tensor::from_f64s(dtype, shape, &groups.fold(&values, |group| of_floats(by, group)))?
        }
        Numbers::Ints(values) => {
            let range = dtype.int_range().unwrap_or((0, 1));
            wrapped_ints(dtype, shape, &groups.fold(&values, |group| of_ints(by, group, range)))?
        }
    };
    Ok(vec![Value::Tensor(result)])
}

/// For each axis whether it is reduced.
pub(crate) fn reduced_axes(cx: &Evaluation<'_>, noop: bool, rank: usize) -> Result<Vec<bool>, EvalError> {
    let axes = match cx.optional_tensor(1)? {
        None => Vec::new(),
        Some(axes) if !matches!(axes.dtype(), DType::I64 | DType::I32) => {
            return Err(cx.bad_type(axes.dtype()));
        }
        Some(axes) if axes.rank() != 1 => {
            return Err(cx.bad_shape(format!("axes must be a vector, their shape is {:?}", axes.shape())));
        }
        Some(axes) => axes.to_i64s(),
    };
    match axes.is_empty() {
        true => Ok(vec![!noop; rank]),
        // As NumPy and ONNX Runtime do, a scalar is taken as one element along axis 0.
        false if rank == 0 => axis_mask(cx, &axes, 1).map(|_| Vec::new()),
        false => axis_mask(cx, &axes, rank),
    }
}

fn of_floats(by: Reduction, group: Group<'_, f64>) -> f64 {
    let values = group.iter();
    match by {
        Reduction::L1 => total(values.map(f64::abs)),
        Reduction::L2 => total(values.map(|value| value * value)).sqrt(),
        Reduction::LogSum => total(values).ln(),
        Reduction::LogSumExp => log_sum_exp(group),
        Reduction::Max => scan::max_of(values),
        Reduction::Mean => total(values) / group.len() as f64,
        Reduction::Min => -scan::max_of(values.map(|value| -value)),
        Reduction::Prod => values.product(),
        Reduction::Sum => total(values),
        Reduction::SumSquare => total(values.map(|value| value * value)),
    }
}

/// Exact up to one wrap at the end; `range` is what the element type holds.
fn of_ints(by: Reduction, group: Group<'_, i128>, (low, high): (i128, i128)) -> i128 {
    let values = group.iter();
    let clamped = |value: f64| (value as i128).clamp(low, high);
    match by {
        Reduction::L1 => values.map(i128::wrapping_abs).fold(0, i128::wrapping_add),
        Reduction::L2 => {
            let squares = values.map(|value| value.unsigned_abs().saturating_mul(value.unsigned_abs()));
            let root = squares.fold(0, u128::saturating_add).isqrt();
            i128::try_from(root).unwrap_or(i128::MAX).min(high)
        }
        Reduction::LogSum => clamped((values.fold(0, i128::wrapping_add) as f64).ln()),
        Reduction::LogSumExp => {
            let exact: Vec<f64> = values.map(|value| value as f64).collect();
            clamped(log_sum_exp_of(|| exact.iter().copied()))
        }
        Reduction::Max => values.max().unwrap_or(low),
        Reduction::Mean => match group.len() {
            0 => 0,
            len => values.sum::<i128>() / len as i128,
        },
        Reduction::Min => values.min().unwrap_or(high),
        Reduction::Prod => values.fold(1, i128::wrapping_mul),
        Reduction::Sum => values.fold(0, i128::wrapping_add),
        Reduction::SumSquare => values.map(|value| value.wrapping_mul(value)).fold(0, i128::wrapping_add),
    }
}
/// The sum, 0 of nothing (`Iterator::sum` would say -0.0), and one element unchanged.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(|sum, value| sum + value).unwrap_or(0.0)
}

fn log_sum_exp(group: Group<'_, f64>) -> f64 {
    log_sum_exp_of(|| group.iter())
}

/// Subtracting the maximum first avoids overflow; an infinite one is the result itself.
fn log_sum_exp_of<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> f64 {
    let max = scan::max_of(values());
    if max.is_infinite() {
        return max;
    }
    values().map(|value| (value - max).exp()).sum::<f64>().ln() + max
}
