//! Drops the taps of convolutions that see nothing but padding: a 3x3 window over an image of 1x1 is its middle tap. Padding
//! that no window reaches is dropped as well.
//!
//! Only where the image's size is known and the weight is constant, and not where a dropped weight is not finite: times
//! padding it is NaN.

use planish_ir::NodeId;
use planish_op::window::PlacedAxis;
use planish_op::{AutoPad, Conv, Op};
use planish_tensor::{Bytes, DType, Dim, Tensor};

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Conv with a constant weight over an image of known size.
pub(crate) struct DropPaddingTaps;

impl Rule for DropPaddingTaps {
    fn name(&self) -> &'static str {
        "drop_padding_taps"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::Conv(conv), Some(&Some(output))) = (&node.op, node.outputs.first()) else {
            return Match::No;
        };
        let (Some(image), Some(weight)) = (cx.input(node, 0), cx.constant_input(node, 1)) else {
            return Match::No;
        };
        let Some(axes) = placed(cx.shape(image).and_then(|shape| shape.dims().get(2..)), conv, weight) else {
            return Match::No;
        };
        let kept: Vec<PlacedAxis> = axes.iter().map(trimmed).collect();
        if kept == axes {
            return Match::No;
        }
        let drops = kept.iter().zip(&axes).any(|(kept, all)| kept.kernel != all.kernel);
        let part = match drops.then(|| remaining(weight, &axes, &kept)) {
            Some(Err(why)) => return Match::blocked(why),
            Some(Ok(part)) => Some(part),
            None => None,
        };
        let list = |of: fn(&PlacedAxis) -> usize| kept.iter().map(move |axis| of(axis) as i64);
        let conv = Conv {
            kernel_shape: Some(list(|axis| axis.kernel).collect()),
            pads: list(|axis| axis.pad_begin).chain(list(|axis| axis.pad_end)).collect(),
            auto_pad: AutoPad::NotSet,
            ..conv.clone()
        };
        let mut patch = Patch::new();
        let mut inputs: Vec<_> = node.inputs.iter().map(|input| input.map(Into::into)).collect();
        if let Some(part) = part {
            inputs[1] = Some(patch.constant(&format!("{}.taps", node.name), part));
        }
        let new = patch.node_with(&node.name, conv, inputs, 1);
        patch.replace(output, new[0]);
        Match::Rewrite(patch)
    }
}

/// The weight without the taps that are dropped, or why it cannot be cut.
fn remaining(weight: &Tensor, axes: &[PlacedAxis], kept: &[PlacedAxis]) -> Result<Tensor, &'static str> {
    if !matches!(weight.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
        return Err("the weight is not of floats");
    }
    if weight.to_f64s().iter().any(|number| !number.is_finite()) {
        return Err("a number of the weight is not finite");
    }
    // Taps are dropped at both ends; what is left begins where its padding says.
    let first = axes.iter().zip(kept).map(|(all, kept)| (all.pad_begin - kept.pad_begin) / all.dilation);
    let kernel: Vec<usize> = kept.iter().map(|axis| axis.kernel).collect();
    part_of(weight, &first.collect::<Vec<_>>(), &kernel).ok_or("the weight cannot be cut")
}

/// The windows over an image of these sizes; `None` where a size is not known.
fn placed(sizes: Option<&[Dim]>, conv: &Conv, weight: &Tensor) -> Option<Vec<PlacedAxis>> {
    let kernel: Vec<Dim> = weight.shape().get(2..)?.iter().map(|size| Dim::from(*size)).collect();
    let window = conv.window();
    let axes = window.axes(&window.kernel_of_weight(&kernel).ok()?).ok()?;
    let sizes = sizes.filter(|sizes| sizes.len() == axes.len())?;
    axes.iter().zip(sizes).map(|(axis, size)| axis.place(size.as_usize()?).ok()).collect()
}

/// The same windows without taps at either end that look at padding in each of them. At least one tap stays.
fn trimmed(axis: &PlacedAxis) -> PlacedAxis {
    let sees = |tap: usize| !axis.windows(tap).is_empty();
    let first = (0..axis.kernel).find(|&tap| sees(tap)).unwrap_or(0);
    let last = (0..axis.kernel).rev().find(|&tap| sees(tap)).unwrap_or(0);
    // What is not padding cannot be skipped.
    let first = first.min(axis.pad_begin / axis.dilation);
    let (kernel, pad_begin) = (last.max(first) - first + 1, axis.pad_begin - first * axis.dilation);
    let reach = (axis.output.max(1) - 1) * axis.stride + (kernel - 1) * axis.dilation + 1;
    let pad_end = reach.saturating_sub(axis.input + pad_begin);
    let all = axis.input + pad_begin + pad_end;
    // Without its last taps a window may fit once more.
    let count = (all - ((kernel - 1) * axis.dilation + 1)) / axis.stride + 1;
    if axis.output == 0 || count != axis.output {
        return *axis;
    }
    PlacedAxis { kernel, pad_begin, pad_end, ..*axis }
}

/// The taps from `first` on, `kernel` of them along each axis.
fn part_of(weight: &Tensor, first: &[usize], kernel: &[usize]) -> Option<Tensor> {
    let shape = weight.shape();
    let size = weight.bytes().len().checked_div(shape.iter().product())?;
    let n_filters: usize = shape[..2].iter().product();
    let n_taps: usize = shape[2..].iter().product();
    let mut bytes = Vec::with_capacity(n_filters * kernel.iter().product::<usize>() * size);
    for filter in 0..n_filters {
        for tap in 0..kernel.iter().product() {
            let (mut rest, mut from, mut step) = (tap, 0, 1);
            for axis in (0..kernel.len()).rev() {
                from += (first[axis] + rest % kernel[axis]) * step;
                rest /= kernel[axis];
                step *= shape[2 + axis];
            }
            let at = (filter * n_taps + from) * size;
            bytes.extend_from_slice(weight.bytes().get(at..at + size)?);
        }
    }
    let shape: Vec<usize> = shape[..2].iter().chain(kernel).copied().collect();
    Tensor::from_bytes(weight.dtype(), &shape, Bytes::from_vec(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{PLAIN, becomes, leaves, refuses};

    #[test]
    fn a_window_over_one_pixel_is_its_middle() {
        becomes(
            DropPaddingTaps,
            "input %x: f32[2,1,1,1] const %w: f32[1,1,3,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9] \
             %y: f32[2,1,1,1] = Conv(%x, %w) {kernel_shape=[3,3], pads=[1,1,1,1]} \"c\" output %y",
            "input %x: f32[2,1,1,1] const %c.taps: f32[1,1,1,1] = [5] \
             %y: f32[2,1,1,1] = Conv(%x, %c.taps) {kernel_shape=[1,1], pads=[0,0,0,0]} \"c\" output %y",
            PLAIN,
        );
    }

    #[test]
    fn taps_go_at_either_end_and_strides_and_dilations_count() {
        // Of five taps two apart over three pixels the first and the last see padding alone.
        becomes(
            DropPaddingTaps,
            "input %x: f32[1,1,3] const %w: f32[1,1,5] = [1, 2, 3, 4, 5] const %b: f32[1] = [0.5] \
             %y: f32[1,1,3] = Conv(%x, %w, %b) {kernel_shape=[5], pads=[4,4], dilations=[2]} \"c\" output %y",
            "input %x: f32[1,1,3] const %b: f32[1] = [0.5] const %c.taps: f32[1,1,3] = [2, 3, 4] \
             %y: f32[1,1,3] = Conv(%x, %c.taps, %b) {kernel_shape=[3], pads=[2,2], dilations=[2]} \"c\" output %y",
            PLAIN,
        );
        // A stride of two over 2 pixels: the last tap is beyond them.
        becomes(
            DropPaddingTaps,
            "input %x: f32[1,1,2] const %w: f32[1,1,3] = [1, 2, 3] \
             %y: f32[1,1,1] = Conv(%x, %w) {kernel_shape=[3], pads=[0,1], strides=[2]} \"c\" output %y",
            "input %x: f32[1,1,2] const %c.taps: f32[1,1,2] = [1, 2] \
             %y: f32[1,1,1] = Conv(%x, %c.taps) {kernel_shape=[2], pads=[0,0], strides=[2]} \"c\" output %y",
            PLAIN,
        );
    }

    #[test]
    fn padding_that_no_window_reaches_is_dropped_and_the_weight_stays() {
        // Windows of three begin at every other of six places with one of padding: the last ends at the last place.
        becomes(
            DropPaddingTaps,
            "input %x: f32[1,1,6] const %w: f32[1,1,3] = [1, 2, 3] \
             %y: f32[1,1,3] = Conv(%x, %w) {kernel_shape=[3], pads=[1,1], strides=[2]} \"c\" output %y",
            "input %x: f32[1,1,6] const %w: f32[1,1,3] = [1, 2, 3] \
             %y: f32[1,1,3] = Conv(%x, %w) {kernel_shape=[3], pads=[1,0], strides=[2]} \"c\" output %y",
            PLAIN,
        );
    }

    #[test]
    fn what_sees_the_image_stays_and_so_do_numbers_that_are_not_finite() {
        leaves(
            DropPaddingTaps,
            "input %x: f32[1,1,2,2] const %w: f32[1,1,3,3] = [1, 2, 3, 4, 5, 6, 7, 8, 9] \
             %y: f32[1,1,2,2] = Conv(%x, %w) {kernel_shape=[3,3], pads=[1,1,1,1]} \"c\" output %y",
        );
        leaves(
            DropPaddingTaps,
            "input %x: f32[1,1,h] const %w: f32[1,1,3] = [1, 2, 3] \
             %y: f32[1,1,h] = Conv(%x, %w) {kernel_shape=[3], pads=[1,1]} \"c\" output %y",
        );
        refuses(
            DropPaddingTaps,
            "input %x: f32[1,1,1] const %w: f32[1,1,3] = [inf, 2, 3] \
             %y: f32[1,1,1] = Conv(%x, %w) {kernel_shape=[3], pads=[1,1]} \"c\" output %y",
            "a number of the weight is not finite",
        );
    }
}
