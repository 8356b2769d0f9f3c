//! Matrix products of 8-bit integers without a calibration: the range of an activation is found in each run.
//!
//! `DynamicQuantizeLinear` gives integers, scale and zero point of the first factor; weights are `i8` with a scale for each
//! column. Products that read one value share its integers once equal nodes are joined.

use planish_ir::Node;
use planish_op::{DequantizeLinear, DynamicQuantizeLinear, Op};
use planish_tensor::DType;

use crate::integer_weights;
use crate::names::matches;
use crate::quantization::multiplies_integers;
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// MatMul and Gemm with constant weights.
pub(crate) struct QuantizeDynamically {
    /// The largest integer of weights.
    pub(crate) largest: i64,
    /// Patterns of names of layers that stay in f32.
    pub(crate) fp32_layers: Vec<String>,
}

impl Sweep for QuantizeDynamically {
    fn name(&self) -> &'static str {
        "quantize_dynamically"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        for (id, node) in cx.graph().nodes() {
            if matches!(node.op, Op::MatMul(_) | Op::Gemm(_)) && !multiplies_integers(cx, node) {
                proposals.add(id, self.quantized(cx, node).map_or_else(Match::blocked, Match::Rewrite));
            }
        }
    }
}

impl QuantizeDynamically {
    /// The node with both factors by integers, or why it stays in f32.
    fn quantized(&self, cx: &View<'_>, node: &Node) -> Result<Patch, String> {
        if self.fp32_layers.iter().any(|pattern| matches(pattern, cx.label(node))) {
            return Err("--layer-precision keeps it in fp32".to_string());
        }
        if matches!(&node.op, Op::Gemm(gemm) if gemm.trans_a || gemm.alpha != 1.0 || gemm.beta != 1.0) {
            return Err("it transposes or scales its operands".to_string());
        }
        let (Some(data), Some(weights)) = (cx.input(node, 0), cx.constant_input(node, 1)) else {
            return Err("its second factor is not constant".to_string());
        };
        let in_floats = cx.dtype(data) == Some(DType::F32) && weights.dtype() == DType::F32;
        if !in_floats || cx.constant(data).is_some() || weights.rank() != 2 {
            return Err("its factors are not a matrix of weights and activations in f32".to_string());
        }
        let mut patch = Patch::new();
        let name = cx.name(data);
        let found = patch.node_with(
            &format!("{name}.quantize"),
            DynamicQuantizeLinear {},
            vec![Some(Operand::Old(data))],
            3,
        );
        patch.has_shape_of(cx, found[0], DType::U8, data);
        let by = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };
        let numbers = patch.node(&format!("{name}.dequantize"), by, &found);
        patch.has_shape_of(cx, numbers, DType::F32, data);
        let weights = integer_weights::quantized(cx, &mut patch, node, self.largest)?;
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        inputs[..2].copy_from_slice(&[Some(numbers), Some(weights)]);
        let output = patch.node_with(&node.name, node.op.clone(), inputs, 1)[0];
        if let [Some(old)] = node.outputs[..] {
            patch.has_shape_of(cx, output, DType::F32, old);
            patch.replace(old, output);
        }
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::check_pass;
    use expect_test::expect;

    #[test]
    fn both_factors_become_integers() {
        check_pass(
            Pass::sweep(QuantizeDynamically { largest: 127, fp32_layers: vec!["keep*".into()] }),
            "input %x: f32[n,2] const %w: f32[2,2] = [1, -2, 0.5, 4] const %b: f32[2] = [1, 2] \
             %p: f32[n,2] = MatMul(%x, %w) \"p\" %k: f32[n,2] = MatMul(%x, %w) \"keep\" \
             %q: f32[2,2] = MatMul(%w, %w) \"q\" %g: f32[n,2] = Gemm(%p, %w, %b) \"g\" output %k, %g, %q",
            expect![[r#"
                input %x: f32[n,2]
                const %w: f32[2,2] = [1, -2, 0.5, 4]
                const %b: f32[2] = [1, 2]
                const %w.1: i8[2,2] = [127, -64, 64, 127]
                const %w.scale: f32[2] = [0.007874016, 0.031496063]
                const %w.zero_point: i8[2] = [0, 0]
                const %w.2: i8[2,2] = [127, -64, 64, 127]
                const %w.scale.1: f32[2] = [0.007874016, 0.031496063]
                const %w.zero_point.1: i8[2] = [0, 0]
                %x.quantize: u8[n,2], %x.quantize.1: f32[], %x.quantize.2: u8[] = DynamicQuantizeLinear(%x) "x.quantize"
                %x.dequantize: f32[n,2] = DequantizeLinear(%x.quantize, %x.quantize.1, %x.quantize.2) "x.dequantize"
                %w.dequantize: f32[2,2] = DequantizeLinear(%w.1, %w.scale, %w.zero_point) "w.dequantize"
                %p: f32[n,2] = MatMul(%x.dequantize, %w.dequantize) "p"
                %k: f32[n,2] = MatMul(%x, %w) "keep"
                %q: f32[2,2] = MatMul(%w, %w) "q"
                %p.quantize: u8[n,2], %p.quantize.1: f32[], %p.quantize.2: u8[] = DynamicQuantizeLinear(%p) "p.quantize"
                %p.dequantize: f32[n,2] = DequantizeLinear(%p.quantize, %p.quantize.1, %p.quantize.2) "p.dequantize"
                %w.dequantize.1: f32[2,2] = DequantizeLinear(%w.2, %w.scale.1, %w.zero_point.1) "w.dequantize"
                %g: f32[n,2] = Gemm(%p.dequantize, %w.dequantize.1, %b) "g"
                output %k, %g, %q
                refused at keep: --layer-precision keeps it in fp32
                refused at q: its factors are not a matrix of weights and activations in f32
            "#]],
        );
    }
}
