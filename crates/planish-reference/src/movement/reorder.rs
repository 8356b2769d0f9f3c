//! Operators that put elements elsewhere: each is a map from output places to input places.

use planish_op::{
    DepthToSpace, DepthToSpaceMode, Expand, ReverseSequence, SpaceToDepth, Tile, Transpose, Trilu,
};
use planish_tensor::Tensor;

use super::{int_list, reshaped, single_int, to_size};
use crate::cells::{Axis, NOWHERE, pick, pick_runs};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn transpose(op: &Transpose, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let rank = data.rank();
    let perm = match &op.perm {
        Some(perm) if perm.len() == rank => cx.distinct_axes(perm, rank)?,
        Some(perm) => {
            return Err(cx.bad_attribute(format!("perm {perm:?} does not fit the shape {:?}", data.shape())));
        }
        None => (0..rank).rev().collect(),
    };
    Ok(vec![permuted(cx, data, data.shape(), &perm)?.into()])
}

/// `data`, seen with `shape`, with its axes in the order `perm`.
fn permuted(
    cx: &Evaluation<'_>,
    data: &Tensor,
    shape: &[usize],
    perm: &[usize],
) -> Result<Tensor, EvalError> {
    let strides = nd::strides(shape);
    let axes: Vec<Axis> = perm.iter().map(|&axis| Axis::all(shape[axis], strides[axis])).collect();
    pick(cx, data, &axes, None)
}

pub(crate) fn expand(_op: &Expand, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let target = int_list(cx, 1)?;
    let target: Result<Vec<usize>, EvalError> =
        target.iter().map(|&dim| to_size(cx, dim, "a dimension to expand to")).collect();
    let shape = nd::broadcast(cx, data.shape(), &target?)?;
    nd::output_len(cx, data.dtype(), &shape)?;
    let strides = nd::broadcast_strides(data.shape(), &shape);
    let axes: Vec<Axis> = shape.iter().zip(strides).map(|(&len, stride)| Axis::all(len, stride)).collect();
    Ok(vec![pick(cx, data, &axes, None)?.into()])
}

pub(crate) fn tile(_op: &Tile, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let repeats = int_list(cx, 1)?;
    if repeats.len() != data.rank() {
        let detail = format!("{} repeats do not fit the shape {:?}", repeats.len(), data.shape());
        return Err(cx.bad_shape(detail));
    }
    let mut axes = Vec::with_capacity(2 * data.rank());
    let mut shape = Vec::with_capacity(data.rank());
    for ((&dim, &repeat), stride) in data.shape().iter().zip(&repeats).zip(nd::strides(data.shape())) {
        let repeat = to_size(cx, repeat, "a repeat")?;
        // Saturation is caught when the result's size is checked.
        shape.push(dim.saturating_mul(repeat));
        axes.extend([Axis::repeat(repeat), Axis::all(dim, stride)]);
    }
    nd::output_len(cx, data.dtype(), &shape)?;
    let tiled = pick(cx, data, &axes, None)?;
    Ok(vec![reshaped(cx, &tiled, &shape)?.into()])
}

/// Batch, channels, height and width of a rank-4 input, and a positive block size.
fn image_and_block(cx: &Evaluation<'_>, blocksize: i64) -> Result<([usize; 4], usize), EvalError> {
    let data = cx.tensor(0)?;
    let shape: [usize; 4] = data
        .shape()
        .try_into()
        .map_err(|_| cx.bad_shape(format!("the input must have rank 4, its shape is {:?}", data.shape())))?;
    let block = usize::try_from(blocksize).ok().filter(|&block| block > 0);
    let block = block.ok_or_else(|| cx.bad_attribute(format!("blocksize must be positive: {blocksize}")))?;
    Ok((shape, block))
}

pub(crate) fn depth_to_space(op: &DepthToSpace, cx: &Evaluation<'_>) -> EvalResult {
    let ([batch, channels, height, width], block) = image_and_block(cx, op.blocksize)?;
    let square = block.checked_mul(block).filter(|square| channels.is_multiple_of(*square));
    let Some(square) = square else {
        let detail = format!("{channels} channels do not divide into blocks of {block} x {block}");
        return Err(cx.bad_shape(detail));
    };
    let depth = channels / square;
    let (shape, perm) = match op.mode {
        DepthToSpaceMode::Dcr => ([batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]),
        DepthToSpaceMode::Crd => ([batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]),
    };
    let spread = permuted(cx, cx.tensor(0)?, &shape, &perm)?;
    let sizes = [batch, depth, height.saturating_mul(block), width.saturating_mul(block)];
    Ok(vec![reshaped(cx, &spread, &sizes)?.into()])
}

pub(crate) fn space_to_depth(op: &SpaceToDepth, cx: &Evaluation<'_>) -> EvalResult {
    let ([batch, channels, height, width], block) = image_and_block(cx, op.blocksize)?;
    if !height.is_multiple_of(block) || !width.is_multiple_of(block) {
        return Err(cx.bad_shape(format!("{height} x {width} does not divide into blocks of {block}")));
    }
    let (rows, columns) = (height / block, width / block);
    let shape = [batch, channels, rows, block, columns, block];
    let stacked = permuted(cx, cx.tensor(0)?, &shape, &[0, 3, 5, 1, 2, 4])?;
    let sizes = [batch, channels.saturating_mul(block).saturating_mul(block), rows, columns];
    Ok(vec![reshaped(cx, &stacked, &sizes)?.into()])
}

pub(crate) fn trilu(op: &Trilu, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let [.., rows, columns] = *data.shape() else {
        return Err(cx.bad_shape(format!("the input must be matrices, its shape is {:?}", data.shape())));
    };
    let k = if cx.optional_value(1).is_some() { single_int(cx, 1)? } else { 0 };
    let keep = |flat: usize| {
        let (row, column) = (flat / columns % rows, flat % columns);
        let above = column as i128 - row as i128 - i128::from(k);
        let kept = if op.upper { above >= 0 } else { above <= 0 };
        if kept { flat } else { NOWHERE }
    };
    Ok(vec![pick_runs(cx, data, data.shape(), 1, keep)?.into()])
}

pub(crate) fn reverse_sequence(op: &ReverseSequence, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    let lens = int_list(cx, 1)?;
    let [first, second, ref rest @ ..] = *data.shape() else {
        return Err(cx.bad_shape(format!("the input must have rank 2 or more: {:?}", data.shape())));
    };
    let (n_steps, n_batches) = match (op.time_axis, op.batch_axis) {
        (0, 1) => (first, second),
        (1, 0) => (second, first),
        axes => return Err(cx.bad_attribute(format!("time and batch axes {axes:?} are not 0 and 1"))),
    };
    if lens.len() != n_batches {
        return Err(cx.bad_shape(format!("{} sequence lengths for a batch of {n_batches}", lens.len())));
    }
    let in_range = |&len: &i64| usize::try_from(len).ok().filter(|&len| len <= n_steps);
    let lens: Option<Vec<usize>> = lens.iter().map(in_range).collect();
    let lens = lens.ok_or_else(|| {
        cx.error(EvalErrorKind::BadValue, format!("a sequence length is outside 0..={n_steps}"))
    })?;
    let run = nd::count(rest);
    let place = |idx: usize| {
        let (outer, inner) = (idx / second, idx % second);
        let (step, batch) = if op.time_axis == 0 { (outer, inner) } else { (inner, outer) };
        let from = if step < lens[batch] { lens[batch] - 1 - step } else { step };
        let (outer, inner) = if op.time_axis == 0 { (from, batch) } else { (batch, from) };
        (outer * second + inner) * run
    };
    Ok(vec![pick_runs(cx, data, data.shape(), run, place)?.into()])
}
