//! Weights as integers, with a scale for each output channel.

use planish_ir::Node;
use planish_op::{DequantizeLinear, Op};
use planish_tensor::{DType, Tensor};

use crate::rule::{Operand, Patch};
use crate::view::View;

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
pub(super) fn quantized(
    cx: &View<'_>,
    patch: &mut Patch,
    node: &Node,
    largest: i64,
) -> Result<Operand, String> {
    let weights = cx.input(node, 1).and_then(|id| Some((id, cx.constant(id)?)));
    let (id, tensor) = weights.ok_or("its weights are not constant")?;
    let values = tensor.to_f64s();
    let shape = tensor.shape();
    let axis = channel_axis(&node.op, shape.len());
    let n_channels = shape.get(axis).copied().unwrap_or(1);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let channel = |flat: usize| flat / inner.max(1) % n_channels.max(1);
    let mut magnitudes = vec![0f64; n_channels];
    for (flat, value) in values.iter().enumerate() {
        let magnitude = &mut magnitudes[channel(flat)];
        *magnitude = magnitude.max(value.abs());
    }
    // A channel of zeros may have any scale; that of the others keeps it near them.
    let most = magnitudes.iter().copied().fold(0.0, f64::max);
    let scale = |magnitude: &f64| {
        let magnitude = if *magnitude > 0.0 { *magnitude } else { most };
        let scale = (magnitude / largest as f64) as f32;
        if scale.is_normal() { scale } else { 1.0 }
    };
    let scales: Vec<f32> = magnitudes.iter().map(scale).collect();
    let integer = |(flat, value): (usize, &f64)| {
        let rounded = (value / f64::from(scales[channel(flat)])).round_ties_even();
        rounded.clamp(-largest as f64, largest as f64)
    };
    let integers: Vec<f64> = values.iter().enumerate().map(integer).collect();
    let bad = |_| "its weights do not fit their shape".to_string();
    let name = cx.name(id);
    let integers = Tensor::from_f64s(DType::I8, shape, &integers).map_err(bad)?;
    let zeros = Tensor::from_f64s(DType::I8, &[n_channels], &vec![0.0; n_channels]).map_err(bad)?;
    let operands = [
        patch.constant(name, integers),
        patch.constant(&format!("{name}.scale"), Tensor::vector(scales)),
        patch.constant(&format!("{name}.zero_point"), zeros),
    ];
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: axis as i64 };
    Ok(patch.node(&format!("{name}.dequantize"), op, &operands))
}
