//! Elements of convolutions and pools: one sample, the channels of one group, and of a convolution the one
//! window.

use std::ops::Range;

use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_op::{AutoPad, Conv, ConvInteger, ConvTranspose, Op, QLinearConv};
use planish_tensor::Dim;

use super::cut::{Channels, Cut, single, within};
use crate::Evaluation;
use crate::conv::Convolution;

/// Pools look at one plane of one sample.
pub(super) fn plane(op: &Op, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let shape = cx.tensor(0).ok()?.shape();
    let ([sample, channel, at @ ..], [_, _, spatial @ ..]) = (point, shape) else { return None };
    let whole = spatial.iter().map(|&dim| 0..dim).collect();
    let ranges = [single(&[*sample, *channel]), whole].concat();
    Cut::new(op.clone(), cx, [&[0, 0], at].concat()).restrict(cx, 0, &ranges)
}

/// What lies under one window of one axis: the range of the input, its padding, and the window's number
/// among those that fit there.
struct Under {
    range: Range<usize>,
    pads: (usize, usize),
    window: usize,
}

impl Under {
    fn new(axis: &PlacedAxis, window: usize) -> Under {
        let start = window * axis.stride;
        let end = start + (axis.kernel - 1) * axis.dilation + 1;
        let (low, high) = (start.max(axis.pad_begin), end.min(axis.pad_begin + axis.input));
        if low >= high {
            // All of it is padding; there is nothing to cut to.
            return Under { range: 0..axis.input, pads: (axis.pad_begin, axis.pad_end), window };
        }
        let range = low - axis.pad_begin..high - axis.pad_begin;
        Under { range, pads: (low - start, end - high), window: 0 }
    }
}

/// A convolution cut to one window, its output channel and its group.
struct OneWindow {
    x: Vec<Range<usize>>,
    w: Vec<Range<usize>>,
    channel: Channels,
    /// All begins, then all ends.
    pads: Vec<i64>,
    place: Vec<usize>,
}

impl OneWindow {
    /// `x_idx` and `w_idx` are the inputs that are convolved.
    fn new(
        cx: &Evaluation<'_>,
        (x_idx, w_idx): (usize, usize),
        attributes: &WindowAttributes<'_>,
        group: i64,
        point: &[usize],
    ) -> Option<OneWindow> {
        let (x, w) = (cx.tensor(x_idx).ok()?, cx.tensor(w_idx).ok()?);
        let convolution = Convolution::new(cx, x.shape(), w.shape(), attributes, group).ok()?;
        within(point, &convolution.shape())?;
        let (&[sample, channel], windows) = point.split_first_chunk()?;
        let under: Vec<Under> =
            convolution.axes().iter().zip(windows).map(|(axis, &window)| Under::new(axis, window)).collect();
        let (n_out, per_group) = (w.shape()[0], w.shape()[1]);
        let first_input = channel / (n_out / usize::try_from(group).ok()?) * per_group;
        let inputs = vec![sample..sample + 1, first_input..first_input + per_group];
        let pads = under.iter().map(|axis| axis.pads.0).chain(under.iter().map(|axis| axis.pads.1));
        Some(OneWindow {
            x: [inputs, under.iter().map(|axis| axis.range.clone()).collect()].concat(),
            w: [single(&[channel]), w.shape()[1..].iter().map(|&dim| 0..dim).collect()].concat(),
            channel: Channels::one(n_out, channel),
            pads: pads.map(|pad| i64::try_from(pad).ok()).collect::<Option<_>>()?,
            place: [0, 0].into_iter().chain(under.iter().map(|axis| axis.window)).collect(),
        })
    }
}

pub(super) fn conv(op: &Conv, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let OneWindow { x, w, channel, pads, place } = OneWindow::new(cx, (0, 1), &op.window(), op.group, point)?;
    let one = Conv { pads, auto_pad: AutoPad::NotSet, group: 1, ..op.clone() };
    Cut::new(one, cx, place).restrict(cx, 0, &x)?.restrict(cx, 1, &w)?.restrict_vector(cx, 2, &channel)
}

pub(super) fn conv_integer(op: &ConvInteger, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let OneWindow { x, w, channel, pads, place } = OneWindow::new(cx, (0, 1), &op.window(), op.group, point)?;
    let one = ConvInteger { pads, auto_pad: AutoPad::NotSet, group: 1, ..op.clone() };
    Cut::new(one, cx, place).restrict(cx, 0, &x)?.restrict(cx, 1, &w)?.restrict_channels(cx, 3, &channel)
}

pub(super) fn qlinear_conv(op: &QLinearConv, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let OneWindow { x, w, channel, pads, place } = OneWindow::new(cx, (0, 3), &op.window(), op.group, point)?;
    let one = QLinearConv { pads, auto_pad: AutoPad::NotSet, group: 1, ..op.clone() };
    let cut = Cut::new(one, cx, place).restrict(cx, 0, &x)?.restrict(cx, 3, &w)?;
    // The weight's scales and zero points, and the bias.
    cut.restrict_channels(cx, 4, &channel)?
        .restrict_channels(cx, 5, &channel)?
        .restrict_vector(cx, 8, &channel)
}

/// An output element gathers from the input elements whose taps reach it.
pub(super) fn conv_transpose(op: &ConvTranspose, cx: &Evaluation<'_>, point: &[usize]) -> Option<Cut> {
    let (x, w) = (cx.tensor(0).ok()?.shape(), cx.tensor(1).ok()?.shape());
    let ([n_samples, n_inputs, spatial @ ..], [w_inputs, per_group, kernel @ ..]) = (x, w) else {
        return None;
    };
    let (&[sample, channel], at) = point.split_first_chunk()?;
    let n_groups = usize::try_from(op.group).ok().filter(|&n| n > 0 && n_inputs.is_multiple_of(n))?;
    let n_channels = n_groups.checked_mul(*per_group)?;
    within(&[sample, channel], &[*n_samples, n_channels])?;
    let kernel: Vec<Dim> = kernel.iter().copied().map(Dim::from).collect();
    let attributes = op.window();
    let kernel = attributes.kernel_of_weight(&kernel).ok()?;
    let axes = attributes.transposed_axes(&kernel, &op.output_padding, op.output_shape.as_deref()).ok()?;
    if axes.len() != spatial.len() || n_inputs != w_inputs {
        return None;
    }
    let axes: Vec<PlacedAxis> =
        axes.iter().zip(spatial).map(|(axis, &size)| axis.place(size).ok()).collect::<Option<_>>()?;
    // The placed windows slide over the output.
    within(at, &axes.iter().map(|axis| axis.input).collect::<Vec<_>>())?;
    let reached: Vec<Reached> =
        axes.iter().zip(at).map(|(axis, &at)| Reached::new(axis, at)).collect::<Option<_>>()?;
    let (group, in_group) = (channel / per_group, channel % per_group);
    let inputs_per_group = n_inputs / n_groups;
    let inputs = group * inputs_per_group..(group + 1) * inputs_per_group;
    let output_padding = reached.iter().map(|axis| i64::try_from(axis.output_padding).ok());
    let one = ConvTranspose {
        pads: Vec::new(),
        auto_pad: AutoPad::NotSet,
        output_padding: output_padding.collect::<Option<_>>()?,
        output_shape: None,
        group: 1,
        ..op.clone()
    };
    let place = [0, 0].into_iter().chain(reached.iter().map(|axis| axis.place)).collect();
    let x_ranges =
        [vec![sample..sample + 1, inputs.clone()], reached.into_iter().map(|axis| axis.range).collect()];
    let w_ranges = [vec![inputs, in_group..in_group + 1], w[2..].iter().map(|&dim| 0..dim).collect()];
    Cut::new(one, cx, place)
        .restrict(cx, 0, &x_ranges.concat())?
        .restrict(cx, 1, &w_ranges.concat())?
        .restrict_vector(cx, 2, &Channels::one(n_channels, channel))
}

/// The input elements along one axis whose taps can reach an output place.
struct Reached {
    range: Range<usize>,
    /// The output place when only these elements are there and no padding is cut off.
    place: usize,
    /// What the output must be longer by to have that place.
    output_padding: usize,
}

impl Reached {
    /// `None` if there are none: the place lies between two strides.
    fn new(axis: &PlacedAxis, at: usize) -> Option<Reached> {
        let at = at + axis.pad_begin;
        let reach = (axis.kernel - 1) * axis.dilation;
        let range = at.saturating_sub(reach).div_ceil(axis.stride)..(at / axis.stride + 1).min(axis.output);
        if range.is_empty() {
            return None;
        }
        let place = at - range.start * axis.stride;
        let covered = (range.len() - 1) * axis.stride + reach + 1;
        Some(Reached { range, place, output_padding: (place + 1).saturating_sub(covered) })
    }
}
