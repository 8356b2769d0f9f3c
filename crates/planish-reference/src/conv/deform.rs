//! Reference: deformable convolution, whose taps look at places between elements.

use std::ops::Range;

use planish_op::DeformConv;
use planish_tensor::Tensor;

use crate::{EvalError, EvalResult, Evaluation, nd};

use super::{Convolution, add_bias, check_group};

pub(crate) fn deform_conv(op: &DeformConv, cx: &Evaluation<'_>) -> EvalResult {
    let (x, w, offset) = (cx.tensor(0)?, cx.tensor(1)?, cx.tensor(2)?);
    let (bias, mask) = (cx.optional_tensor(3)?, cx.optional_tensor(4)?);
    let inputs: Vec<&Tensor> = [Some(x), Some(w), Some(offset), bias, mask].into_iter().flatten().collect();
    let dtype = cx.common_float(&inputs)?;
    let offset_groups = check_group(cx, "offset_group", op.offset_group)?;
    let convolution = Convolution::new(cx, x.shape(), w.shape(), &op.window(), op.group)?;
    let shape = convolution.shape();
    if !convolution.channels.is_multiple_of(offset_groups) {
        return Err(cx.bad_shape(format!("{offset_groups} offset groups do not divide the channels")));
    }
    let n_axes = convolution.axes.len();
    let check = |name: &str, tensor: &Tensor, per_tap: usize| {
        let kernel = convolution.axes.iter().map(|axis| axis.kernel);
        let channels: Vec<usize> = [per_tap, offset_groups].into_iter().chain(kernel).collect();
        let mut expected = shape.clone();
        expected[1] = nd::count(&channels);
        if tensor.shape() != expected {
            return Err(
                cx.bad_shape(format!("{name} must have shape {expected:?}, it is {:?}", tensor.shape()))
            );
        }
        Ok::<(), EvalError>(())
    };
    check("offset", offset, n_axes)?;
    mask.map_or(Ok(()), |mask| check("mask", mask, 1))?;
    let problem = Deformed {
        convolution: &convolution,
        offset_groups,
        n_positions: nd::count(&shape[2..]),
        offset: offset.to_f64s(),
        mask: mask.map(Tensor::to_f64s),
    };
    let (x, plane) = (x.to_f64s(), nd::count(&x.shape()[2..]));
    let in_per_offset_group = convolution.channels / offset_groups;
    let mut out = convolution.compute_with(&w.to_f64s(), |batch, positions| {
        let n_columns = positions.len();
        let samples = problem.samples(batch, positions);
        let (x, n_taps) = (&x, convolution.n_taps());
        move |channel: usize, tap: usize, column: usize| {
            let image = &x[(batch * convolution.channels + channel) * plane..][..plane];
            let group = channel / in_per_offset_group;
            samples
                .of((group * n_taps + tap) * n_columns + column)
                .map(|(place, share)| share * image[*place])
                .sum()
        }
    });
    add_bias(cx, bias, &shape, &mut out)?;
    Ok(vec![Tensor::from_f64s(dtype, &shape, &out)?.into()])
}

struct Deformed<'a> {
    convolution: &'a Convolution,
    offset_groups: usize,
    n_positions: usize,
    offset: Vec<f64>,
    mask: Option<Vec<f64>>,
}

/// For each sample, the elements that it is made of and their shares.
struct Samples {
    shares: Vec<(usize, f64)>,
    /// Where the shares of each sample end.
    ends: Vec<usize>,
}

impl Samples {
    fn of(&self, idx: usize) -> std::slice::Iter<'_, (usize, f64)> {
        let start = idx.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.shares[start..self.ends[idx]].iter()
    }
}

impl Deformed<'_> {
    /// The samples of every offset group, tap and position, in this order.
    fn samples(&self, batch: usize, positions: Range<usize>) -> Samples {
        let axes = &self.convolution.axes;
        let taps = self.convolution.taps();
        let windows: Vec<Vec<usize>> =
            positions.clone().map(|place| self.convolution.window(place)).collect();
        let mut samples = Samples { shares: Vec::new(), ends: Vec::new() };
        for group_and_tap in 0..self.offset_groups * taps.len() {
            let tap = &taps[group_and_tap % taps.len()];
            let row = batch * self.offset_groups * taps.len() + group_and_tap;
            for (position, window) in positions.clone().zip(&windows) {
                let mask = self.mask.as_ref().map_or(1.0, |mask| mask[row * self.n_positions + position]);
                let place = |axis_idx: usize| {
                    let axis = &axes[axis_idx];
                    let fixed = (window[axis_idx] * axis.stride + tap[axis_idx] * axis.dilation) as f64;
                    let channel = row * axes.len() + axis_idx;
                    fixed - axis.pad_begin as f64 + self.offset[channel * self.n_positions + position]
                };
                let place: Vec<f64> = (0..axes.len()).map(place).collect();
                let sizes: Vec<usize> = axes.iter().map(|axis| axis.input).collect();
                samples
                    .shares
                    .extend(interpolate(&place, &sizes).into_iter().map(|(at, share)| (at, share * mask)));
                samples.ends.push(samples.shares.len());
            }
        }
        samples
    }
}

/// Linear interpolation between the elements around `place`; those outside count as zero.
fn interpolate(place: &[f64], sizes: &[usize]) -> Vec<(usize, f64)> {
    let mut corners = vec![(0, 1.0)];
    for (&place, &size) in place.iter().zip(sizes) {
        // Also refuses NaN.
        if !(place > -1.0 && place < size as f64) {
            return Vec::new();
        }
        let below = place.floor();
        let above_share = place - below;
        let neighbours = [(below, 1.0 - above_share), (below + 1.0, above_share)];
        let inside =
            neighbours.into_iter().filter(|(at, share)| *at >= 0.0 && *at < size as f64 && *share > 0.0);
        let inside: Vec<(usize, f64)> = inside.map(|(at, share)| (at as usize, share)).collect();
        corners = corners
            .into_iter()
            .flat_map(|(flat, share)| inside.iter().map(move |(at, own)| (flat * size + at, share * own)))
            .collect();
    }
    corners
}
