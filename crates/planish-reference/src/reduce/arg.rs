//! `ArgMax` and `ArgMin`: where the extreme lies.

use planish_op::{ArgMax, ArgMin, Value};
use planish_tensor::{DType, Tensor};

use super::groups::Groups;
use crate::number::Numbers;
use crate::{EvalResult, Evaluation};

/// Which extreme.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extreme {
    Max,
    Min,
}

/// The index of the element that beats all others, of several equal ones the first or the last. As in NumPy
/// a NaN beats everything. `None` of nothing.
pub(super) fn best<T: Copy + PartialEq>(
    values: impl Iterator<Item = T>,
    beats: impl Fn(T, T) -> bool,
    last: bool,
) -> Option<usize> {
    #[allow(clippy::eq_op)]
    let is_nan = |value: T| value != value;
    let mut best: Option<(usize, T)> = None;
    for (idx, value) in values.enumerate() {
        let wins = match best {
            None => true,
            Some((_, leader)) if is_nan(leader) => last && is_nan(value),
            Some((_, leader)) => is_nan(value) || beats(value, leader) || (last && value == leader),
        };
        if wins {
            best = Some((idx, value));
        }
    }
    best.map(|(idx, _)| idx)
}

pub(crate) fn arg_max(op: &ArgMax, cx: &Evaluation<'_>) -> EvalResult {
    arg_extreme(Extreme::Max, op.axis, op.keepdims, op.select_last_index, cx)
}

pub(crate) fn arg_min(op: &ArgMin, cx: &Evaluation<'_>) -> EvalResult {
    arg_extreme(Extreme::Min, op.axis, op.keepdims, op.select_last_index, cx)
}

fn arg_extreme(extreme: Extreme, axis: i64, keepdims: bool, last: bool, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let axis = cx.axis(axis, data.rank())?;
    let reduced: Vec<bool> = (0..data.rank()).map(|idx| idx == axis).collect();
    let groups = Groups::new(cx, data.shape(), &reduced, DType::I64)?;
    let shape = groups.result_shape(keepdims);
    if data.shape()[axis] == 0 && !shape.contains(&0) {
        return Err(cx.bad_shape(format!("axis {axis} of {:?} has no elements to choose from", data.shape())));
    }
    // Groups are not empty here, so `best` finds an index.
    let place = |found: Option<usize>| found.unwrap_or(0) as i64;
    let indices = match (Numbers::of(cx, data)?, extreme) {
        (Numbers::Ints(_), _) if data.dtype() == DType::Bool => return Err(cx.bad_type(DType::Bool)),
        (Numbers::Floats(v), Extreme::Max) => groups.fold(&v, |g| place(best(g.iter(), |a, b| a > b, last))),
        (Numbers::Floats(v), Extreme::Min) => groups.fold(&v, |g| place(best(g.iter(), |a, b| a < b, last))),
        (Numbers::Ints(v), Extreme::Max) => groups.fold(&v, |g| place(best(g.iter(), |a, b| a > b, last))),
        (Numbers::Ints(v), Extreme::Min) => groups.fold(&v, |g| place(best(g.iter(), |a, b| a < b, last))),
    };
    Ok(vec![Value::Tensor(Tensor::new(shape, indices)?)])
}
