//! Resizes whose sizes are known when a plan is built: what happens to each axis.

use planish_op::resize::{LengthRatio, ResizeScale};
use planish_op::{Resize, ResizeAspectPolicy};
use planish_tensor::Tensor;

use crate::{Operand, Problem};

/// One axis to be resized.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResizedAxis {
    pub from: usize,
    pub to: usize,
    pub scale: ResizeScale,
}

impl ResizedAxis {
    /// An axis of size 1 that stays as it is.
    pub const TRIVIAL: ResizedAxis =
        ResizedAxis { from: 1, to: 1, scale: ResizeScale::Ratio(LengthRatio { to: 1, from: 1 }) };

    /// The scale as numerator and denominator.
    pub fn quotient(&self) -> (f64, f64) {
        match self.scale {
            ResizeScale::Ratio(LengthRatio { to, from }) => (to as f64, from as f64),
            ResizeScale::Factor(factor) => (f64::from(factor), 1.0),
        }
    }

    /// Whether the axis is left alone whatever the mode.
    pub fn is_identity(&self) -> bool {
        let is_one = matches!(self.scale, ResizeScale::Ratio(LengthRatio { to, from }) if to == from);
        is_one && self.from == self.to
    }
}

/// What happens to each axis of `x`, from the constants of the region, whose first node is `op`; `None` where only a
/// run can tell.
pub fn resized_axes(op: &Resize, problem: &Problem, x: &Operand, y: &Operand) -> Option<Vec<ResizedAxis>> {
    let inputs = &problem.region.nodes.first()?.inputs;
    // An absent or empty list is not given.
    let given = |idx: usize| match inputs.get(idx).copied().flatten() {
        None => Some(None),
        reference => problem.region.constant(reference).map(|tensor| Some(tensor).filter(|t| !t.is_empty())),
    };
    let rank = x.rank();
    let resized: Vec<usize> = match &op.axes {
        None => (0..rank).collect(),
        Some(axes) => {
            let front = |axis: &i64| usize::try_from(if *axis < 0 { axis + rank as i64 } else { *axis }).ok();
            axes.iter().map(front).collect::<Option<Vec<_>>>()?
        }
    };
    let scales: Vec<ResizeScale> = match (given(2)?, given(3)?) {
        (Some(scales), None) => {
            let all = scales.to_f64s();
            all.iter().map(|scale| ResizeScale::from_f32(*scale as f32)).collect::<Option<_>>()?
        }
        (None, Some(sizes)) => of_sizes(op, x, sizes, &resized)?,
        _ => return None,
    };
    if scales.len() != resized.len() || y.rank() != rank {
        return None;
    }
    let kept = |(from, to): (&usize, &usize)| ResizedAxis { from: *from, to: *to, ..ResizedAxis::TRIVIAL };
    let mut axes: Vec<ResizedAxis> = x.dims.iter().zip(&y.dims).map(kept).collect();
    for (axis, scale) in resized.into_iter().zip(scales) {
        axes.get_mut(axis)?.scale = scale;
    }
    Some(axes)
}

/// Scales that come from new lengths.
fn of_sizes(op: &Resize, x: &Operand, sizes: &Tensor, resized: &[usize]) -> Option<Vec<ResizeScale>> {
    let sizes = sizes.to_i64s();
    let ratio = |(axis, size): (&usize, &i64)| {
        Some(LengthRatio { to: usize::try_from(*size).ok()?, from: *x.dims.get(*axis)? })
    };
    let ratios = resized.iter().zip(&sizes).map(ratio).collect::<Option<Vec<_>>>()?;
    if sizes.len() != resized.len() {
        return None;
    }
    if op.keep_aspect_ratio_policy == ResizeAspectPolicy::Stretch {
        return Some(ratios.into_iter().map(ResizeScale::Ratio).collect());
    }
    let kept = LengthRatio::kept(op.keep_aspect_ratio_policy, &ratios)?;
    Some(vec![ResizeScale::Ratio(kept); ratios.len()])
}
