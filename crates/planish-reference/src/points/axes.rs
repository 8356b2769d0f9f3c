//! Elements of reductions, scans and normalizations: the group or line that they are computed from.

use std::ops::Range;

use planish_op::{GroupNormalization, MeanVarianceNormalization, Op, Reduce};

use super::cut::{Channels, Cut, single, within};
use crate::Evaluation;
use crate::reduce::{axis_mask, reduced_axes};

/// All places along the axes of the mask, the point's own along the others.
fn along(mask: &[bool], shape: &[usize], point: &[usize]) -> Vec<Range<usize>> {
    let axes = mask.iter().zip(shape).zip(point);
    axes.map(|((&whole, &dim), &place)| if whole { 0..dim } else { place..place + 1 }).collect()
}

/// The point's own places along the axes of the mask, zero along the others.
fn kept(mask: &[bool], point: &[usize]) -> Vec<usize> {
    mask.iter().zip(point).map(|(&whole, &place)| if whole { place } else { 0 }).collect()
}

/// An output that has lost the axes of the mask, or has them as 1.
fn fold(op: &Op, mask: &[bool], keepdims: bool, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    let mut rest = point.iter().copied();
    let mut full = Vec::with_capacity(shape.len());
    for &reduced in mask {
        full.push(if reduced && !keepdims { 0 } else { rest.next()? });
    }
    let folded: Vec<usize> =
        mask.iter().zip(shape).map(|(&reduced, &dim)| if reduced { 1 } else { dim }).collect();
    if rest.next().is_some() || mask.len() != shape.len() {
        return None;
    }
    within(&full, &folded)?;
    Cut::new(op.clone(), cx, vec![0; point.len()]).restrict(cx, 0, &along(mask, shape, &full))
}

pub(super) fn reduce(op: &Op, reduce: Reduce, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let mask = reduced_axes(cx, reduce.noop_with_empty_axes, cx.tensor(0).ok()?.rank()).ok()?;
    fold(op, &mask, reduce.keepdims, cx, point)
}

pub(super) fn arg(op: &Op, axis: i64, keepdims: bool, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let mask = axis_mask(cx, &[axis], cx.tensor(0).ok()?.rank()).ok()?;
    fold(op, &mask, keepdims, cx, point)
}

/// An output of the input's shape, each element computed from all places along the axes of the mask.
fn spread(op: &Op, mask: &[bool], cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    within(point, shape)?;
    Cut::new(op.clone(), cx, kept(mask, point)).restrict(cx, 0, &along(mask, shape, point))
}

pub(super) fn line(op: &Op, axis: i64, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let mask = axis_mask(cx, &[axis], cx.tensor(0).ok()?.rank()).ok()?;
    spread(op, &mask, cx, point)
}

/// The axis is input 1.
pub(super) fn scan(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let &[axis] = cx.ints(1).ok()?.as_slice() else { return None };
    line(op, axis, cx, point)
}

pub(super) fn mean_variance(
    op: &MeanVarianceNormalization,
    cx: &Evaluation<'_>,
    point: &[usize],
) -> Option<Cut> {
    let rank = cx.tensor(0).ok()?.rank();
    let mask = if op.axes.is_empty() { vec![true; rank] } else { axis_mask(cx, &op.axes, rank).ok()? };
    spread(&op.clone().into(), &mask, cx, point)
}

/// Layer and RMS normalization; outputs after the first are statistics of a row.
pub(super) fn layer(op: &Op, axis: i64, output: usize, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    let axis = cx.axis(axis, shape.len()).ok()?;
    let mask: Vec<bool> = (0..shape.len()).map(|idx| idx >= axis).collect();
    let limits: Vec<usize> =
        mask.iter().zip(shape).map(|(&whole, &dim)| if whole && output > 0 { 1 } else { dim }).collect();
    within(point, &limits)?;
    let ranges = along(&mask, shape, point);
    let cut = Cut::new(op.clone(), cx, kept(&mask, point)).restrict(cx, 0, &ranges)?;
    // Scale and bias.
    (1..cx.n_inputs()).try_fold(cut, |cut, idx| cut.restrict_broadcast(cx, idx, (shape, &ranges)))
}

/// Given statistics: one element, the parameters of its channel. A plain vector is all one channel.
pub(super) fn batch_norm(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    within(point, shape)?;
    let (channel, n_channels) = (point.get(1).copied().unwrap_or(0), shape.get(1).copied().unwrap_or(1));
    let cut = Cut::new(op.clone(), cx, vec![0; point.len()]).restrict(cx, 0, &single(point))?;
    let one = Channels::one(n_channels, channel);
    [1, 2, 3, 4].into_iter().try_fold(cut, |cut, idx| cut.restrict_vector(cx, idx, &one))
}

pub(super) fn instance_norm(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    channels(op.clone(), 1, cx, point)
}

pub(super) fn group_norm(op: &GroupNormalization, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let n_channels = *cx.tensor(0).ok()?.shape().get(1)?;
    let n_groups = usize::try_from(op.num_groups).ok().filter(|&n| n > 0 && n_channels.is_multiple_of(n))?;
    let one = GroupNormalization { num_groups: 1, ..op.clone() };
    channels(one.into(), n_channels / n_groups, cx, point)
}

/// The planes of the point's group of channels, with their parameters at inputs 1 and 2.
fn channels(op: Op, per_group: usize, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    within(point, shape)?;
    let (&[sample, channel], at) = point.split_first_chunk()?;
    let first = channel / per_group * per_group;
    let group = first..first + per_group;
    let planes = shape[2..].iter().map(|&dim| 0..dim).collect();
    let ranges = [vec![sample..sample + 1, group.clone()], planes].concat();
    let place = [&[0, channel - first], at].concat();
    Cut::new(op, cx, place).restrict(cx, 0, &ranges)?.restrict(cx, 1, std::slice::from_ref(&group))?.restrict(
        cx,
        2,
        &[group],
    )
}
