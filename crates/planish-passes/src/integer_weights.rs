//! Weights as integers, or as floats of 8 bits: rounded to nearest around zero, with a scale for each channel or block.

use planish_ir::Node;
use planish_op::{DequantizeLinear, Op};
use planish_tensor::{DType, Tensor};

use crate::rule::{Operand, Patch};
use crate::view::View;

/// How far integer weights of 8 bits reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WeightRange {
    /// To ±127.
    #[default]
    Full,
    /// To ±127, but two neighbours along the sum, first and second, third and fourth, come to 128 at most together: the
    /// sum of their products with `u8` fits 16 bits, since `255 · 128 < 32768`.
    Pairs,
    /// To ±63: any two weights do, whichever a runtime multiplies together.
    Reduced,
}

impl WeightRange {
    /// The largest integer: both signs reach equally far.
    pub(crate) fn largest(self) -> i64 {
        match self {
            WeightRange::Full | WeightRange::Pairs => 127,
            WeightRange::Reduced => 63,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            WeightRange::Full => "full",
            WeightRange::Pairs => "pairs",
            WeightRange::Reduced => "reduced",
        }
    }

    pub fn named(name: &str) -> Option<WeightRange> {
        [WeightRange::Full, WeightRange::Pairs, WeightRange::Reduced]
            .into_iter()
            .find(|own| own.name() == name)
    }
}

/// The largest float of 8 bits (E4M3).
pub(crate) const MAX_F8: f64 = 448.0;

/// What the weights of a layer are rounded to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grid {
    Integers(WeightRange),
    /// Floats of 8 bits, E4M3.
    F8,
}

impl Grid {
    /// A layer's weights on the grid, a scale for each output channel, and zeros as the grid's zero points are.
    fn rounded(self, op: &Op, weights: &Tensor) -> Result<(Tensor, Vec<f32>, Tensor), String> {
        let bad = |_| "its weights do not fit their shape".to_string();
        let (shape, n_channels) = (weights.shape(), channels(op, weights.shape()).0);
        let (stored, scales, dtype) = match self {
            Grid::Integers(range) => {
                let Rounded { integers, scales } = Rounded::weights(op, weights, range)?.0;
                (Tensor::new(shape, integers), scales, DType::I8)
            }
            Grid::F8 => {
                let values = weights.elements::<f32>().map_err(|_| NOT_F32)?;
                let place = channels(op, shape).1;
                let scales = scales(&values, &place, n_channels, MAX_F8, |_, value| value.abs())?;
                let ratio = |(flat, value): (usize, &f32)| f64::from(*value) / f64::from(scales[place(flat)]);
                let ratios: Vec<f64> = values.iter().enumerate().map(ratio).collect();
                (Tensor::from_f64s(DType::F8E4M3FN, shape, &ratios), scales, DType::F8E4M3FN)
            }
        };
        Ok((stored.map_err(bad)?, scales, Tensor::zeros(dtype, &[n_channels]).map_err(bad)?))
    }
}

const NOT_F32: &str = "its weights are not in f32";

/// The scale of each of `n_scales` places, by which the largest magnitude of its numbers becomes `largest`; `magnitude` takes
/// a number and where it is.
fn scales(
    values: &[f32],
    place: &impl Fn(usize) -> usize,
    n_scales: usize,
    largest: f64,
    magnitude: impl Fn(usize, f32) -> f32,
) -> Result<Vec<f32>, &'static str> {
    let mut magnitudes = vec![0f32; n_scales];
    for (flat, value) in values.iter().enumerate() {
        if !value.is_finite() {
            return Err("its weights are not all finite");
        }
        let most = &mut magnitudes[place(flat)];
        *most = most.max(magnitude(flat, *value));
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
        let scales = scales(values, &place, n_scales, largest as f64, |_, value| value.abs())?;
        Ok(Rounded::by(scales, values, place, largest))
    }

    fn by(scales: Vec<f32>, values: &[f32], place: impl Fn(usize) -> usize, largest: i64) -> Rounded {
        let integer = |(flat, value): (usize, &f32)| {
            let rounded = (f64::from(*value) / f64::from(scales[place(flat)])).round_ties_even();
            rounded.clamp(-largest as f64, largest as f64) as i8
        };
        let integers = values.iter().enumerate().map(integer).collect();
        Rounded { integers, scales }
    }
}

impl Rounded {
    /// The weights of a layer by integers of this range, and which of the scales each has.
    pub(crate) fn weights(
        op: &Op,
        weights: &Tensor,
        range: WeightRange,
    ) -> Result<(Rounded, impl Fn(usize) -> usize + use<>), &'static str> {
        let values = weights.elements::<f32>().map_err(|_| NOT_F32)?;
        let (n_channels, channel) = channels(op, weights.shape());
        let largest = range.largest();
        let neighbour = neighbour(op, weights.shape());
        let reach = |flat: usize, value: f32| {
            // Both may be rounded up: 127 steps in sum are 128 at most.
            let other =
                neighbour(flat).filter(|_| range == WeightRange::Pairs).map_or(0.0, |other| values[other]);
            value.abs() + other.abs()
        };
        let scales = scales(&values, &channel, n_channels, largest as f64, reach)?;
        Ok((Rounded::by(scales, &values, &channel, largest), channel))
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

/// Of a weight at an even place of the sum the one behind it; kernels take input channels two by two.
fn neighbour(op: &Op, shape: &[usize]) -> impl Fn(usize) -> Option<usize> + use<> {
    let axis = match op {
        Op::Conv(_) => 1,
        Op::Gemm(gemm) if gemm.trans_b => 1,
        Op::ConvTranspose(_) | Op::Gemm(_) => 0,
        _ => shape.len().saturating_sub(2),
    };
    let n = shape.get(axis).copied().unwrap_or(1).max(1);
    let inner: usize = shape.iter().skip(axis + 1).product::<usize>().max(1);
    move |flat: usize| {
        let at = flat / inner % n;
        (at.is_multiple_of(2) && at + 1 < n).then_some(flat + inner)
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
    let axis = channel_axis(&node.op, tensor.shape().len());
    let (stored, scales, zeros) = grid.rounded(&node.op, tensor)?;
    let name = cx.name(id);
    let operands = [
        patch.constant(name, stored),
        patch.constant(&format!("{name}.scale"), Tensor::vector(scales)),
        patch.constant(&format!("{name}.zero_point"), zeros),
    ];
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: axis as i64 };
    Ok(patch.node(&format!("{name}.dequantize"), op, &operands))
}

#[cfg(test)]
mod tests {
    use planish_testing::Random;

    use super::*;
    use crate::testing::graph;

    fn op(text: &str) -> (Op, usize) {
        let graph = graph(text);
        let (_, node) = graph.nodes().next().unwrap();
        (node.op.clone(), graph.value(node.inputs[1].unwrap()).constant().unwrap().rank())
    }

    /// Neighbours along the sum, two by two, of any layer, are small enough for 16 bits; and no weight is off by more than
    /// half a step of its channel.
    #[test]
    fn pairs_of_weights_fit_16_bits() {
        let layers = [
            (
                "input %x: f32[1,5,3,3] const %w: f32[1,5,1,1] = [1, 2, 3, 4, 5] %y: f32[1,1,3,3] = Conv(%x, %w) output %y",
                1,
            ),
            (
                "input %x: f32[1,1,3,3] const %w: f32[1,1,1,1] = [1] %y: f32[1,1,3,3] = ConvTranspose(%x, %w) output %y",
                0,
            ),
            ("input %x: f32[1,1] const %w: f32[1,1] = [1] %y: f32[1,1] = Gemm(%x, %w) output %y", 0),
            (
                "input %x: f32[1,1] const %w: f32[1,1] = [1] %y: f32[1,1] = Gemm(%x, %w) {trans_b=true} output %y",
                1,
            ),
            (
                "input %x: f32[2,1,1] const %w: f32[2,1,1] = [1, 1] %y: f32[2,1,1] = MatMul(%x, %w) output %y",
                1,
            ),
        ];
        let mut random = Random::new(7);
        for (text, axis) in layers {
            let (op, rank) = op(text);
            for _ in 0..20 {
                let shape: Vec<usize> = (0..rank).map(|_| 1 + random.below(7)).collect();
                let n = shape.iter().product();
                let values: Vec<f32> = (0..n).map(|_| random.normal() as f32).collect();
                let weights = Tensor::new(&shape, values.clone()).unwrap();
                let (Rounded { integers, scales }, channel) =
                    Rounded::weights(&op, &weights, WeightRange::Pairs).unwrap();
                let inner: usize = shape[axis + 1..].iter().product();
                for (flat, &weight) in integers.iter().enumerate() {
                    let at = flat / inner % shape[axis];
                    let other =
                        if at.is_multiple_of(2) && at + 1 < shape[axis] { integers[flat + inner] } else { 0 };
                    let sum = i32::from(weight).abs() + i32::from(other).abs();
                    assert!(sum <= 128, "{shape:?} at {flat}: {weight} and {other}");
                    let off = (f32::from(weight) * scales[channel(flat)] - values[flat]).abs();
                    assert!(off <= 0.501 * scales[channel(flat)], "{shape:?} at {flat}: {off}");
                }
            }
        }
    }
}
