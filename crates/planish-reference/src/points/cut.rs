//! `Cut`: a problem made smaller around one element of its output.

use std::ops::Range;

use planish_op::{Op, Value};
use planish_tensor::Tensor;

use crate::cells::{Axis, pick};
use crate::{EvalError, Evaluation, nd};

/// An operator on cut inputs, and where in its output the element now is.
pub(super) struct Cut {
    pub(super) problem: CutProblem,
    pub(super) place: Vec<usize>,
}

/// What is evaluated: the same for all elements of a group that is normalized.
#[derive(PartialEq)]
pub(super) struct CutProblem {
    pub(super) op: Op,
    /// What is left of each input along each axis; `None` for all of it.
    ranges: Vec<Option<Vec<Range<usize>>>>,
}

impl CutProblem {
    /// The parts of the inputs that are left.
    pub(super) fn inputs(&self, cx: &Evaluation<'_>) -> Result<Vec<Option<Value>>, EvalError> {
        let input = |(idx, ranges): (usize, &Option<Vec<Range<usize>>>)| match ranges {
            None => Ok(cx.optional_value(idx).cloned()),
            Some(ranges) => Ok(Some(Value::Tensor(part(cx, cx.tensor(idx)?, ranges)?))),
        };
        self.ranges.iter().enumerate().map(input).collect()
    }
}

impl Cut {
    /// The operator on its inputs as they are; the element is at `place` once they are cut.
    pub(super) fn new(op: impl Into<Op>, cx: &Evaluation<'_>, place: Vec<usize>) -> Cut {
        Cut { problem: CutProblem { op: op.into(), ranges: vec![None; cx.n_inputs()] }, place }
    }

    /// Leaves these ranges of the places along each axis of an input.
    pub(super) fn restrict(
        mut self,
        cx: &Evaluation<'_>,
        idx: usize,
        ranges: &[Range<usize>],
    ) -> Option<Cut> {
        fits(cx.tensor(idx).ok()?, ranges)?;
        *self.problem.ranges.get_mut(idx)? = Some(ranges.to_vec());
        Some(self)
    }

    /// Like `restrict`, for an input that may be absent and broadcasts to a shape that these ranges cut.
    pub(super) fn restrict_broadcast(
        self,
        cx: &Evaluation<'_>,
        idx: usize,
        (shape, ranges): (&[usize], &[Range<usize>]),
    ) -> Option<Cut> {
        let Some(tensor) = cx.optional_tensor(idx).ok()? else { return Some(self) };
        let missing = shape.len().checked_sub(tensor.rank())?;
        let axes = tensor.shape().iter().zip(&shape[missing..]).zip(&ranges[missing..]);
        let own = axes.map(|((&dim, &target), range)| match dim {
            1 => Some(0..1),
            _ => (dim == target).then(|| range.clone()),
        });
        self.restrict(cx, idx, &own.collect::<Option<Vec<_>>>()?)
    }

    /// Like `restrict`, for a vector of one element for each channel, which may be absent.
    pub(super) fn restrict_vector(self, cx: &Evaluation<'_>, idx: usize, of: &Channels) -> Option<Cut> {
        match cx.optional_tensor(idx).ok()? {
            Some(tensor) if tensor.shape() == [of.n] => {
                self.restrict(cx, idx, std::slice::from_ref(&of.taken))
            }
            Some(_) => None,
            None => Some(self),
        }
    }

    /// Like `restrict_vector`, for what may also be one element for all channels.
    pub(super) fn restrict_channels(self, cx: &Evaluation<'_>, idx: usize, of: &Channels) -> Option<Cut> {
        match cx.optional_tensor(idx).ok()? {
            Some(tensor) if tensor.len() == 1 => Some(self),
            _ => self.restrict_vector(cx, idx, of),
        }
    }
}

/// Some of `n` channels.
pub(super) struct Channels {
    pub(super) n: usize,
    pub(super) taken: Range<usize>,
}

impl Channels {
    pub(super) fn one(n: usize, channel: usize) -> Channels {
        Channels { n, taken: channel..channel + 1 }
    }
}

/// `Some` if these ranges, one per axis, lie in the tensor.
fn fits(tensor: &Tensor, ranges: &[Range<usize>]) -> Option<()> {
    let shape = tensor.shape();
    let fits = |(range, &dim): (&Range<usize>, &usize)| range.start <= range.end && range.end <= dim;
    (ranges.len() == shape.len() && ranges.iter().zip(shape).all(fits)).then_some(())
}

/// The part of a tensor that lies in these ranges, which fit.
fn part(cx: &Evaluation<'_>, tensor: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor, EvalError> {
    let strides = nd::strides(tensor.shape());
    let axes: Vec<Axis> = ranges
        .iter()
        .zip(strides)
        .map(|(range, stride)| Axis::steps(range.len(), range.start, 1, stride))
        .collect();
    pick(cx, tensor, &axes, None)
}

/// Each coordinate as a range of one place.
pub(super) fn single(point: &[usize]) -> Vec<Range<usize>> {
    point.iter().map(|&place| place..place.saturating_add(1)).collect()
}

/// `Some` if the point lies in the shape.
pub(super) fn within(point: &[usize], shape: &[usize]) -> Option<()> {
    let is_within = point.len() == shape.len() && point.iter().zip(shape).all(|(place, dim)| place < dim);
    is_within.then_some(())
}

/// Operators whose output element depends on one element of each broadcast input.
pub(super) fn elementwise(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let tensors: Vec<Option<&Tensor>> =
        (0..cx.n_inputs()).map(|idx| cx.optional_tensor(idx).ok()).collect::<Option<_>>()?;
    let shape = tensors
        .iter()
        .flatten()
        .try_fold(Vec::new(), |shape, tensor| nd::broadcast(cx, &shape, tensor.shape()).ok())?;
    within(point, &shape)?;
    let ranges = single(point);
    let cut = Cut::new(op.clone(), cx, vec![0; point.len()]);
    (0..cx.n_inputs()).try_fold(cut, |cut, idx| cut.restrict_broadcast(cx, idx, (&shape, &ranges)))
}
