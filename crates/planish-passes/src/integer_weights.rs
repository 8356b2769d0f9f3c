//! Weights as integers, or as floats of 8 bits: rounded to nearest around zero, with a scale for each channel or block.

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

/// The largest float of 8 bits (E4M3).
pub(crate) const MAX_F8: f64 = 448.0;

/// What the weights of a layer are rounded to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grid {
    /// Integers of 8 bits of at most so much.
    Integers(i64),
    /// Floats of 8 bits, E4M3.
    F8,
}

impl Grid {
    /// The numbers on the grid, a scale for each of the channels that `place` tells, and zeros as the grid's zero points are.
    fn rounded(
        self,
        values: &[f32],
        place: impl Fn(usize) -> usize,
        n_channels: usize,
        shape: &[usize],
    ) -> Result<(Tensor, Vec<f32>, Tensor), String> {
        let bad = |_| "its weights do not fit their shape".to_string();
        let (stored, scales, dtype) = match self {
            Grid::Integers(largest) => {
                let Rounded { integers, scales } = Rounded::to_nearest(values, place, n_channels, largest)?;
                (Tensor::new(shape, integers), scales, DType::I8)
            }
            Grid::F8 => {
                let scales = scales(values, &place, n_channels, MAX_F8)?;
                let ratio = |(flat, value): (usize, &f32)| f64::from(*value) / f64::from(scales[place(flat)]);
                let ratios: Vec<f64> = values.iter().enumerate().map(ratio).collect();
                (Tensor::from_f64s(DType::F8E4M3FN, shape, &ratios), scales, DType::F8E4M3FN)
            }
        };
        Ok((stored.map_err(bad)?, scales, Tensor::zeros(dtype, &[n_channels]).map_err(bad)?))
    }
}

/// The scale of each of `n_scales` places, by which the largest of its numbers becomes `largest`.
fn scales(
    values: &[f32],
    place: &impl Fn(usize) -> usize,
    n_scales: usize,
    largest: f64,
) -> Result<Vec<f32>, &'static str> {
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
        let scale = (f64::from(magnitude) / largest) as f32;
        if scale.is_normal() { scale } else { 1.0 }
    };
    Ok(magnitudes.iter().map(scale).collect())
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
        let scales = scales(values, &place, n_scales, largest as f64)?;
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
        let (n_channels, channel) = channels(&node.op, weights.shape());
        let rounded = Rounded::to_nearest(&values, &channel, n_channels, largest)?;
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

/// How many output channels a layer's weights of this shape have, and which of them each weight is of.
fn channels(op: &Op, shape: &[usize]) -> (usize, impl Fn(usize) -> usize + use<>) {
    let axis = channel_axis(op, shape.len());
    let n_channels = shape.get(axis).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(axis + 1).product();
    (n_channels, move |flat: usize| flat / inner.max(1) % n_channels.max(1))
}

/// Adds the weights of a layer by numbers of a grid; an error says why they cannot be.
pub(crate) fn quantized(
    cx: &View<'_>,
    patch: &mut Patch,
    node: &Node,
    grid: Grid,
) -> Result<Operand, String> {
    let weights = cx.input(node, 1).and_then(|id| Some((id, cx.constant(id)?)));
    let (id, tensor) = weights.ok_or("its weights are not constant")?;
    let shape = tensor.shape();
    let axis = channel_axis(&node.op, shape.len());
    let values = tensor.elements::<f32>().map_err(|_| "its weights are not in f32")?;
    let (n_channels, channel) = channels(&node.op, shape);
    let (stored, scales, zeros) = grid.rounded(&values, channel, n_channels, shape)?;
    let name = cx.name(id);
    let operands = [
        patch.constant(name, stored),
        patch.constant(&format!("{name}.scale"), Tensor::vector(scales)),
        patch.constant(&format!("{name}.zero_point"), zeros),
    ];
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: axis as i64 };
    Ok(patch.node(&format!("{name}.dequantize"), op, &operands))
}
