//! Weights as integers: rounded to nearest around zero, with a scale for each channel or block.

use planish_ir::Node;
use planish_op::{DequantizeLinear, Op};
use planish_tensor::{DType, Tensor};

use crate::rule::{Operand, Patch};
use crate::view::View;

/// The largest integer of weights of 8 bits: both signs reach equally far.
const MAX_WEIGHT: i64 = 127;
/// The same where sums of two products of weights with `u8` must fit 16 bits: `2 · 255 · 63 < 32768`.
const MAX_REDUCED_WEIGHT: i64 = 63;

/// The largest integer of weights of 8 bits, reduced or not.
pub(crate) fn largest(reduced: bool) -> i64 {
    if reduced { MAX_REDUCED_WEIGHT } else { MAX_WEIGHT }
}

/// Numbers by integers.
pub(crate) struct Rounded {
    pub(crate) integers: Vec<i8>,
    pub(crate) scales: Vec<f32>,
}

impl Rounded {
    /// Rounds numbers to integers of at most `largest`; `place` says which of the scales each has.
    pub(crate) fn to_nearest(
        values: &[f32],
        place: impl Fn(usize) -> usize,
        n_scales: usize,
        largest: i64,
    ) -> Result<Rounded, &'static str> {
        let mut magnitudes = vec![0f32; n_scales];
        for (flat, value) in values.iter().enumerate() {
            if !value.is_finite() {
                return Err("its weights are not all finite");
            }
            let magnitude = &mut magnitudes[place(flat)];
            *magnitude = magnitude.max(value.abs());
        }
        // Zeros alone may have any scale; that of the others keeps it near them.
        let most = magnitudes.iter().copied().fold(0.0, f32::max);
        let scale = |magnitude: &f32| {
            let magnitude = if *magnitude > 0.0 { *magnitude } else { most };
            let scale = (f64::from(magnitude) / largest as f64) as f32;
            if scale.is_normal() { scale } else { 1.0 }
        };
        let scales: Vec<f32> = magnitudes.iter().map(scale).collect();
        let integer = |(flat, value): (usize, &f32)| {
            let rounded = (f64::from(*value) / f64::from(scales[place(flat)])).round_ties_even();
            rounded.clamp(-largest as f64, largest as f64) as i8
        };
        let integers = values.iter().enumerate().map(integer).collect();
        Ok(Rounded { integers, scales })
    }
}

impl Rounded {
    /// The weights of a layer by integers of at most `largest`, and which of the scales each has.
    pub(crate) fn weights(
        node: &Node,
        weights: &Tensor,
        largest: i64,
    ) -> Result<(Rounded, impl Fn(usize) -> usize + use<>), &'static str> {
        let values = weights.elements::<f32>().map_err(|_| "its weights are not in f32")?;
        let axis = channel_axis(&node.op, weights.rank());
        let n_channels = weights.shape().get(axis).copied().unwrap_or(1);
        let inner: usize = weights.shape().iter().skip(axis + 1).product();
        let channel = move |flat: usize| flat / inner.max(1) % n_channels.max(1);
        let rounded = Rounded::to_nearest(&values, channel, n_channels, largest)?;
        Ok((rounded, channel))
    }
}

/// The axis of a layer's weights that its output channels lie along. With groups a transposed convolution has several
/// channels at one place of it, which share a scale.
fn channel_axis(op: &Op, rank: usize) -> usize {
    match op {
        Op::Conv(_) => 0,
        Op::Gemm(gemm) if gemm.trans_b => 0,
        Op::ConvTranspose(_) | Op::Gemm(_) => 1,
        _ => rank.saturating_sub(1),
    }
}

/// Adds the weights of a layer by integers of at most `largest`; an error says why they cannot be.
pub(crate) fn quantized(
    cx: &View<'_>,
    patch: &mut Patch,
    node: &Node,
    largest: i64,
) -> Result<Operand, String> {
    let weights = cx.input(node, 1).and_then(|id| Some((id, cx.constant(id)?)));
    let (id, tensor) = weights.ok_or("its weights are not constant")?;
    let shape = tensor.shape();
    let axis = channel_axis(&node.op, shape.len());
    let (Rounded { integers, scales }, _) = Rounded::weights(node, tensor, largest)?;
    let n_channels = scales.len();
    let bad = |_| "its weights do not fit their shape".to_string();
    let name = cx.name(id);
    let integers = Tensor::new(shape, integers).map_err(bad)?;
    let zeros = Tensor::zeros(DType::I8, &[n_channels]).map_err(bad)?;
    let operands = [
        patch.constant(name, integers),
        patch.constant(&format!("{name}.scale"), Tensor::vector(scales)),
        patch.constant(&format!("{name}.zero_point"), zeros),
    ];
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: axis as i64 };
    Ok(patch.node(&format!("{name}.dequantize"), op, &operands))
}
