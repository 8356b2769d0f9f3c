//! Writes the biases of integer layers as integers, in units of both factors' scales, for runtimes that fuse layers only
//! then. Rounding moves a bias by half a unit, which is far below what the factors' own rounding moves a sum by.

use planish_ir::{Node, NodeId};
use planish_op::{DequantizeLinear, Op};
use planish_tensor::{DType, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, output};
use crate::quantization::{FactorType, dequantize_of, factor_type};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Biases in floats of layers whose factors are integers.
pub(crate) const QUANTIZE_BIASES: Finder = Finder { name: "quantize_biases", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let is_layer = matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_));
    if !is_layer || factor_type(cx, node) != Some(FactorType::Integers) {
        return Err(Miss::No);
    }
    let Some((bias, tensor)) = cx.input(node, 2).and_then(|id| Some((id, cx.constant(id)?))) else {
        return Err(Miss::No);
    };
    let Some(units) = units(cx, node) else { return blocked("its scales are not constant") };
    let values = tensor.to_f64s();
    if tensor.rank() != 1 || !(units.len() == 1 || units.len() == values.len()) {
        return blocked("there are not as many scales as channels");
    }
    let integer = |(channel, value): (usize, &f64)| (value / units[channel % units.len()]).round_ties_even();
    let integers: Vec<f64> = values.iter().enumerate().map(integer).collect();
    if integers.iter().any(|integer| integer.is_nan() || integer.abs() > f64::from(i32::MAX)) {
        return blocked("the bias is beyond 32 bits of its unit");
    }
    let all: Vec<f32> = (0..values.len()).map(|channel| units[channel % units.len()] as f32).collect();
    let mut patch = Patch::new();
    let name = cx.name(bias);
    let integers = Tensor::from_f64s(DType::I32, tensor.shape(), &integers).map_err(|_| Miss::No)?;
    let integers = patch.constant(name, integers);
    let scale = patch.constant(&format!("{name}.scale"), Tensor::vector(all));
    let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: 0 };
    let numbers = patch.node(&format!("{name}.dequantize"), op, &[integers, scale]);
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[2] = Some(numbers);
    let made = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.replace(output(node)?, made[0]);
    Ok(patch)
}

/// What one unit of a layer's sums stands for, for each channel or for all.
fn units(cx: &View<'_>, node: &Node) -> Option<Vec<f64>> {
    let (_, _, factor) = dequantize_of(cx, cx.input(node, 0)?)?;
    let (_, weights) = cx.producer(cx.input(node, 1)?)?;
    let scales = cx.constant_input(weights, 1)?.to_f64s();
    Some(scales.into_iter().map(|scale| scale * f64::from(factor.scale)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn biases_become_integers_in_units_of_both_scales() {
        check(
            QUANTIZE_BIASES,
            "input %q: u8[1,2] const %s: f32[] = 0.5 const %w: i8[2,2] = [1, 2, 3, 4] const %t: f32[2] = [0.25, 0.5] \
             const %b: f32[2] = [1.3, -2] const %far: f32[2] = [1e9, 0] %x: f32[1,2] = DequantizeLinear(%q, %s) \"x\" \
             %d: f32[2,2] = DequantizeLinear(%w, %t) {axis=1} \"d\" %y: f32[1,2] = Gemm(%x, %d, %b) \"y\" \
             %z: f32[1,2] = Gemm(%x, %d, %far) \"z\" output %y, %z",
            expect![[r#"
                input %q: u8[1,2]
                const %s: f32[] = 0.5
                const %w: i8[2,2] = [1, 2, 3, 4]
                const %t: f32[2] = [0.25, 0.5]
                const %far: f32[2] = [1000000000, 0]
                const %b: i32[2] = [10, -8]
                const %b.scale: f32[2] = [0.125, 0.25]
                %x: f32[1,2] = DequantizeLinear(%q, %s) "x"
                %d: f32[2,2] = DequantizeLinear(%w, %t) "d"
                %b.dequantize: f32[2] = DequantizeLinear(%b, %b.scale) {axis=0} "b.dequantize"
                %y: f32[1,2] = Gemm(%x, %d, %b.dequantize) "y"
                %z: f32[1,2] = Gemm(%x, %d, %far) "z"
                output %y, %z
                refused at z: the bias is beyond 32 bits of its unit
            "#]],
        );
    }
}
