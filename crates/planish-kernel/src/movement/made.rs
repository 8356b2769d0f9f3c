//! Operators whose output sizes alone settle, together with constants: it is made once, then copied.

use crate::KernelError;
use planish_op::{ConstantOfShape, Shape};
use planish_tensor::{Bytes, DType, Tensor};

use super::{Lowering, Move, Source, View};

/// A copy of `made`, which must be what the output is.
fn copied(cx: &Lowering<'_>, made: &Tensor) -> Result<Vec<Move>, KernelError> {
    let y = cx.output(0)?;
    if made.dtype() != y.dtype || made.shape() != y.dims {
        return Err(cx.unfit());
    }
    let mut from = View::of(y);
    let mut step = 1;
    for (stride, dim) in from.strides.iter_mut().zip(&y.dims).rev() {
        *stride = step;
        step *= *dim as isize;
    }
    Ok(vec![cx.copy(&Source::Constant(made.bytes().clone()), &from, 0, &View::of(y))?])
}

pub(super) fn shape(cx: &Lowering<'_>, op: &Shape) -> Result<Vec<Move>, KernelError> {
    let (_, x) = cx.data(0)?;
    let rank = x.rank() as i64;
    let place = |axis: i64| (if axis < 0 { axis.saturating_add(rank) } else { axis }).clamp(0, rank) as usize;
    let (start, end) = (place(op.start), op.end.map_or(x.rank(), place));
    let dims = x.dims.get(start..end).unwrap_or_default();
    copied(cx, &Tensor::vector(dims.iter().map(|dim| *dim as i64).collect()))
}

pub(super) fn size(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    copied(cx, &Tensor::scalar(cx.data(0)?.1.len() as i64))
}

/// The sizes are the output's.
pub(super) fn constant_of_shape(cx: &Lowering<'_>, op: &ConstantOfShape) -> Result<Vec<Move>, KernelError> {
    let y = cx.output(0)?;
    let value = match &op.value {
        Some(value) if value.len() == 1 && value.dtype() == y.dtype => value.bytes().clone(),
        None if y.dtype == DType::F32 => Bytes::from_vec(vec![0f32]),
        _ => return Err(cx.unfit()),
    };
    let repeated = View { offset: 0, dims: y.dims.clone(), strides: vec![0; y.rank()] };
    Ok(vec![cx.copy(&Source::Constant(value), &repeated, 0, &View::of(y))?])
}

/// Whole numbers from a constant start by a constant step; how many there are is the output's size.
pub(super) fn range(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    let y = cx.output(0)?;
    let number = |idx: usize| match cx.ints(idx)?.as_deref() {
        Some([value]) => Ok(*value),
        _ => Err(cx.unfit()),
    };
    let (start, step) = (number(0)?, number(2)?);
    let [len] = y.dims[..] else { return Err(cx.unfit()) };
    let value = |idx: usize| start.wrapping_add(step.wrapping_mul(idx as i64));
    match y.dtype {
        DType::I64 => copied(cx, &Tensor::vector((0..len).map(value).collect::<Vec<i64>>())),
        DType::I32 => {
            copied(cx, &Tensor::vector((0..len).map(|idx| value(idx) as i32).collect::<Vec<i32>>()))
        }
        _ => Err(cx.unsupported("counts in other types than whole numbers of 32 and 64 bits")),
    }
}
