//! Operators that put axes elsewhere, repeat them, or regroup them.

use crate::{KernelError, Layout};
use planish_op::{DepthToSpace, DepthToSpaceMode, SpaceToDepth, Transpose};

use super::{Lowering, Move, View};

pub(super) fn transpose(cx: &Lowering<'_>, op: &Transpose) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let perm = match &op.perm {
        Some(perm) if perm.len() == x.rank() => cx.axes(perm, x.rank())?,
        Some(_) => return Err(cx.unfit()),
        None => (0..x.rank()).rev().collect(),
    };
    Ok(vec![cx.copy(&source, &View::of(&x).permuted(&perm), 0, &View::of(cx.output(0)?))?])
}

/// Axes of size 1 are repeated; the output's sizes are the operand's.
pub(super) fn expand(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let y = cx.output(0)?;
    let mut from = View::of(&x);
    let added = y.rank().checked_sub(x.rank()).ok_or_else(|| cx.unfit())?;
    from.dims.splice(0..0, vec![1; added]);
    from.strides.splice(0..0, vec![0; added]);
    for axis in 0..y.rank() {
        if from.dims[axis] == 1 && y.dims[axis] != 1 {
            from.dims[axis] = y.dims[axis];
            from.strides[axis] = 0;
        }
    }
    Ok(vec![cx.copy(&source, &from, 0, &View::of(y))?])
}

/// How often each axis is repeated, the sizes say; where an axis is empty it does not matter.
pub(super) fn tile(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let (mut from, mut to) = (View::of(&x), View::of(cx.output(0)?));
    if to.dims.len() != x.rank() {
        return Err(cx.unfit());
    }
    // From the last axis on, so that the places of those before stay.
    for axis in (0..x.rank()).rev() {
        let repeat = to.dims[axis].checked_div(x.dims[axis]).unwrap_or(0);
        if x.dims[axis] * repeat != to.dims[axis] {
            return Err(cx.unfit());
        }
        to = to.split(axis, x.dims[axis]);
        to.dims[axis] = repeat;
        from.dims.insert(axis, repeat);
        from.strides.insert(axis, 0);
    }
    Ok(vec![cx.copy(&source, &from, 0, &to)?])
}

/// The block of an operator as a size, where it fits an image of rank 4.
fn block(cx: &Lowering<'_>, blocksize: i64, rank: usize) -> Result<usize, KernelError> {
    usize::try_from(blocksize).ok().filter(|block| *block > 0 && rank == 4).ok_or_else(|| cx.unfit())
}

pub(super) fn depth_to_space(cx: &Lowering<'_>, op: &DepthToSpace) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let block = block(cx, op.blocksize, x.rank())?;
    let square = block.checked_mul(block).filter(|square| x.dims[1].is_multiple_of(*square));
    let depth = x.dims[1] / square.ok_or_else(|| cx.unfit())?;
    // Channels as three axes, then everything as the output has it: batch, depth, height, block, width, block.
    let from = match op.mode {
        DepthToSpaceMode::Dcr => {
            View::of(&x).split(1, block * depth).split(2, depth).permuted(&[0, 3, 4, 1, 5, 2])
        }
        DepthToSpaceMode::Crd => {
            View::of(&x).split(1, block * block).split(2, block).permuted(&[0, 1, 4, 2, 5, 3])
        }
    };
    let y = cx.output(0)?;
    if y.rank() != 4 {
        return Err(cx.unfit());
    }
    Ok(vec![cx.copy(&source, &from, 0, &View::of(y).split(3, block).split(2, block))?])
}

pub(super) fn space_to_depth(cx: &Lowering<'_>, op: &SpaceToDepth) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let block = block(cx, op.blocksize, x.rank())?;
    if !x.dims[2].is_multiple_of(block) || !x.dims[3].is_multiple_of(block) {
        return Err(cx.unfit());
    }
    let from = View::of(&x).split(3, block).split(2, block).permuted(&[0, 3, 5, 1, 2, 4]);
    let y = cx.output(0)?;
    if y.rank() != 4 {
        return Err(cx.unfit());
    }
    Ok(vec![cx.copy(&source, &from, 0, &View::of(y).split(1, block * x.dims[1]).split(2, x.dims[1]))?])
}

/// The same elements under other sizes: one run, where both sides are dense in the plain layout.
pub(super) fn reshape(cx: &Lowering<'_>) -> Result<Vec<Move>, KernelError> {
    let (source, x) = cx.data(0)?;
    cx.same_type(&x, 0)?;
    let y = cx.output(0)?;
    if !x.is_dense(Layout::Plain) || !y.is_dense(Layout::Plain) || x.len() != y.len() {
        return Err(cx.unsupported("regroups only what is dense in the plain layout"));
    }
    let flat = View { offset: 0, dims: vec![x.len()], strides: vec![1] };
    Ok(vec![cx.copy(&source, &flat, 0, &flat)?])
}
