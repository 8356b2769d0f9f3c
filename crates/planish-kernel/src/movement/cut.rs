//! Operators that put values one after another along an axis, or take them apart.

use crate::{KernelError, Operand};
use planish_op::{Concat, Gather, Split};

use super::{Lowering, Move, Source, View};

pub(super) fn concat(cx: &Lowering<'_>, op: &Concat) -> Result<Vec<Move>, KernelError> {
    let y = cx.output(0)?;
    let axis = cx.axis(op.axis, y.rank())?;
    let to = View::of(y);
    let mut start = 0;
    let mut moves = Vec::with_capacity(cx.node.inputs.len());
    for idx in 0..cx.node.inputs.len() {
        let (source, x) = cx.data(idx)?;
        cx.same_type(&x, 0)?;
        if x.rank() != y.rank() || start + x.dims[axis] > y.dims[axis] {
            return Err(cx.unfit());
        }
        let len = x.dims[axis];
        moves.push(cx.copy(&source, &View::of(&x), 0, &to.cut(axis, start, len, 1))?);
        start += len;
    }
    if start == y.dims[axis] { Ok(moves) } else { Err(cx.unfit()) }
}

/// The parts' sizes are the outputs'.
pub(super) fn split(cx: &Lowering<'_>, op: &Split) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    let axis = cx.axis(op.axis, x.rank())?;
    let from = View::of(&x);
    let mut start = 0;
    let mut moves = Vec::with_capacity(cx.problem.outputs.len());
    for idx in 0..cx.problem.outputs.len() {
        cx.same_type(&x, idx)?;
        let y = cx.output(idx)?;
        if y.rank() != x.rank() || start + y.dims[axis] > x.dims[axis] {
            return Err(cx.unfit());
        }
        let len = y.dims[axis];
        moves.push(cx.copy(&source, &from.cut(axis, start, len, 1), idx, &View::of(y))?);
        start += len;
    }
    if start == x.dims[axis] { Ok(moves) } else { Err(cx.unfit()) }
}

pub(super) fn slice(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let missing = || cx.unfit();
    if let Ok(starts) = cx.ints(1)
        && cx.parameter(2).is_err()
    {
        return slice_to(cx, &source, &x, &starts.ok_or_else(missing)?);
    }
    let (starts, ends) = (cx.ints(1)?.ok_or_else(missing)?, cx.ints(2)?.ok_or_else(missing)?);
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let axes = cx.axes(&axes, x.rank())?;
    let steps = cx.ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|len| *len != starts.len()) {
        return Err(cx.unfit());
    }
    let mut from = View::of(&x);
    for (idx, &axis) in axes.iter().enumerate() {
        let (start, len) =
            taken(x.dims[axis], starts[idx], ends[idx], steps[idx]).ok_or_else(|| cx.unfit())?;
        from = from.cut(axis, start, len, steps[idx] as isize);
        // Of one element the step may be anything, and beyond all bounds.
        if len <= 1 {
            from.strides[axis] = 0;
        }
    }
    Ok(vec![cx.copy(&source, &from, 0, &View::of(cx.output(0)?))?])
}

/// A slice whose ends only a run can tell, as in `positions[:, :seq]`: the output says how far it goes.
fn slice_to(
    cx: &Lowering<'_>,
    source: &Source,
    x: &Operand,
    starts: &[i64],
) -> Result<Vec<Move>, KernelError> {
    let y = cx.output(0)?;
    let axes = cx.ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let axes = cx.axes(&axes, x.rank())?;
    let steps = cx.ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    if axes.len() != starts.len() || steps.len() != starts.len() || y.rank() != x.rank() {
        return Err(cx.unfit());
    }
    if steps.iter().any(|step| *step != 1) {
        return Err(cx.unsupported("has ends that only a run can tell, and steps"));
    }
    let mut from = View::of(x);
    for (&axis, &start) in axes.iter().zip(starts) {
        let (start, most) = taken(x.dims[axis], start, i64::MAX, 1).ok_or_else(|| cx.unfit())?;
        let len = y.dims[axis];
        if len > most {
            return Err(cx.unfit());
        }
        from = from.cut(axis, start, len, 1);
    }
    match from.dims == y.dims {
        true => Ok(vec![cx.copy(source, &from, 0, &View::of(y))?]),
        false => Err(cx.unfit()),
    }
}

/// More indices than this are looked up one by one.
const MAX_GATHERED: usize = 64;

/// Gather with constant indices: one cut for each.
pub(super) fn gather(cx: &Lowering<'_>, op: &Gather) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let indices = cx.parameter(1)?.ok_or_else(|| cx.unfit())?;
    let axis = cx.axis(op.axis, x.rank())?;
    let y = cx.output(0)?;
    if indices.len() > MAX_GATHERED || !indices.dtype().is_int() {
        return Err(cx.unsupported("takes too many places to be copies"));
    }
    if y.dims != [&x.dims[..axis], indices.shape(), &x.dims[axis + 1..]].concat() {
        return Err(cx.unfit());
    }
    let from = View::of(&x);
    let mut moves = Vec::with_capacity(indices.len());
    for (flat, index) in indices.to_i64s().into_iter().enumerate() {
        let counted = i128::from(index) + if index < 0 { x.dims[axis] as i128 } else { 0 };
        let place = usize::try_from(counted).ok().filter(|place| *place < x.dims[axis]);
        let mut from = from.cut(axis, place.ok_or_else(|| cx.unfit())?, 1, 1);
        // The places of the index take the axis's place in the output.
        let mut to = View::of(y);
        let mut rest = flat;
        for at in (0..indices.rank()).rev() {
            to.offset += (rest % indices.shape()[at]) as isize * to.strides[axis + at];
            rest /= indices.shape()[at];
        }
        to.dims.drain(axis..axis + indices.rank());
        to.strides.drain(axis..axis + indices.rank());
        from.dims.remove(axis);
        from.strides.remove(axis);
        moves.push(cx.copy(&source, &from, 0, &to)?);
    }
    Ok(moves)
}

/// The first place and the number of places that a slice takes of an axis; `None` for a step of 0.
fn taken(dim: usize, start: i64, end: i64, step: i64) -> Option<(usize, usize)> {
    let (size, step) = (dim as i128, i128::from(step));
    let counted = |place: i64| i128::from(place) + if place < 0 { size } else { 0 };
    let (start, end) = match step {
        0 => return None,
        1.. => (counted(start).clamp(0, size), counted(end).clamp(0, size)),
        _ => (counted(start).clamp(0, (size - 1).max(0)), counted(end).clamp(-1, size - 1)),
    };
    let span = if dim == 0 { 0 } else { (end - start) * step.signum() };
    let len = (span.max(0) + step.abs() - 1) / step.abs();
    Some(if len == 0 { (0, 0) } else { (start as usize, len as usize) })
}
