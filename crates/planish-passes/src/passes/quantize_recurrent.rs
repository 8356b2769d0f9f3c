//! Stores the weights of recurrent layers as bytes with a scale for each row of a direction; what they read and their states
//! stay as they are.
//!
//! A step of LSTM or GRU multiplies a few rows by all of the recurrent weights, so it waits for these: as bytes they are a
//! quarter of the memory. It needs no data. A row has the gate of one unit, so its largest weight costs no other unit bits.

use planish_ir::Node;
use planish_op::{DequantizeLinear, Op};
use planish_tensor::{DType, Tensor};

use crate::integer_weights::{Rounded, WeightRange};
use crate::names::matches;
use crate::quantization::weighs_recurrent;
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// Layers of at least so many weights: below it they are in the first cache as floats, too.
const LARGE: usize = 1 << 14;

/// LSTM and GRU with constant weights.
pub(crate) struct QuantizeRecurrent {
    /// Patterns of names of layers that stay as they are.
    pub(crate) fp32_layers: Vec<String>,
}

impl Sweep for QuantizeRecurrent {
    fn name(&self) -> &'static str {
        "quantize_recurrent"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        for (id, node) in cx.graph().nodes() {
            if matches!(node.op, Op::LSTM(_) | Op::GRU(_)) && !weighs_recurrent(cx, node) {
                proposals.add(id, self.stored(cx, node).map_or_else(Match::blocked, Match::Rewrite));
            }
        }
    }
}

impl QuantizeRecurrent {
    /// The node with both weights by integers, or why they stay.
    fn stored(&self, cx: &View<'_>, node: &Node) -> Result<Patch, &'static str> {
        if self.fp32_layers.iter().any(|pattern| matches(pattern, cx.label(node))) {
            return Err("--layer-precision keeps it in fp32");
        }
        if matches!(&node.op, Op::GRU(gru) if !gru.linear_before_reset) {
            return Err("its candidate is reset before the product, which is not computed of bytes");
        }
        if cx.input(node, 4).is_some() || cx.input(node, 7).is_some() {
            return Err("it has sequence lengths or peepholes, which are not computed of bytes");
        }
        let weights = |place: usize| {
            let id = cx.input(node, place)?;
            cx.constant(id).filter(|tensor| tensor.rank() == 3).map(|tensor| (id, tensor))
        };
        let (Some(w), Some(r)) = (weights(1), weights(2)) else { return Err("its weights are not constant") };
        if w.1.len() + r.1.len() < LARGE {
            return Err("its weights are small");
        }
        let mut patch = Patch::new();
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        for (place, (id, tensor)) in [(1, w), (2, r)] {
            let (shape, name) = (tensor.shape(), cx.name(id));
            let values = tensor.elements::<f32>().map_err(|_| "its weights are not in f32")?;
            let &[dirs, rows, k] = shape else { return Err("its weights are not constant") };
            let largest = WeightRange::Full.largest();
            let row = move |flat: usize| flat / k.max(1);
            let Rounded { integers, scales } = Rounded::to_nearest(&values, row, dirs * rows, largest)?;
            let bad = |_| "its weights do not fit their shape";
            let operands = [
                patch.constant(name, Tensor::new(shape, integers).map_err(bad)?),
                patch.constant(&format!("{name}.scale"), Tensor::new(&[dirs, rows, 1], scales).map_err(bad)?),
            ];
            let op = DequantizeLinear { output_dtype: None, block_size: k as i64, axis: 2 };
            let stored = patch.node(&format!("{name}.dequantize"), op, &operands);
            patch.has_shape_of(cx, stored, DType::F32, id);
            inputs[place] = Some(stored);
        }
        let made = patch.node_with(&node.name, node.op.clone(), inputs, node.outputs.len());
        for (old, new) in node.outputs.iter().zip(made) {
            let Some(old) = *old else { continue };
            patch.has_shape_of(cx, new, DType::F32, old);
            patch.replace(old, new);
        }
        Ok(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Options, Pass, Pipeline};
    use crate::passes::fold_dequantized_weights::FoldDequantizedWeights;
    use crate::passes::quantize_weights::weight_error;
    use crate::testing::graph;
    use planish_ir::Graph;
    use planish_testing::Random;

    /// A layer of 64 units over 32 channels.
    fn model(op: &str, gates: usize, attributes: &str) -> Graph {
        let mut random = Random::new(9);
        let mut numbers =
            |n: usize| (0..n).map(|_| format!("{}", random.normal() as f32)).collect::<Vec<_>>().join(", ");
        let rows = gates * 64;
        graph(&format!(
            "input %x: f32[t,n,32] const %w: f32[1,{rows},32] = [{}] const %r: f32[1,{rows},64] = [{}] \
             %y: f32[t,1,n,64] = {op}(%x, %w, %r) {{hidden_size=64{attributes}}} \"layer\" output %y",
            numbers(rows * 32),
            numbers(rows * 64)
        ))
    }

    fn run(before: Graph, passes: Vec<Pass>) -> (Graph, usize, Vec<String>) {
        let options = Options { explain: true, verify_each: true, ..Options::default() };
        let (after, report) = Pipeline::new(passes).run(before, &options).unwrap();
        let refusals = report.passes[0].refusals.iter().map(|refusal| refusal.reason.clone()).collect();
        (after, report.hits("quantize_recurrent"), refusals)
    }

    fn pass(fp32_layers: &[&str]) -> Pass {
        Pass::sweep(QuantizeRecurrent {
            fp32_layers: fp32_layers.iter().map(|name| name.to_string()).collect(),
        })
    }

    #[test]
    fn weights_become_bytes_by_rows_and_stay_so() {
        for (op, gates, attributes) in [("LSTM", 4, ""), ("GRU", 3, ", linear_before_reset=true")] {
            let before = model(op, gates, attributes);
            let keep = Pass::rule(FoldDequantizedWeights { keeps_factors: true, ..Default::default() });
            let (after, hits, _) = run(before.clone(), vec![pass(&[]), keep]);
            assert_eq!(hits, 1);
            // Of 64 normal numbers the largest is about 2.4: steps of a 127th of it err by a root of a twelfth of them.
            let error = weight_error(&before, &after).unwrap();
            assert!((0.004..0.008).contains(&error), "{error}");
            let n_bytes = after
                .values()
                .filter(|(_, value)| value.constant().is_some_and(|tensor| tensor.dtype() == DType::I8));
            assert_eq!(n_bytes.count(), 2, "bytes stay where kernels read them");
            // Once is enough.
            assert_eq!(run(after, vec![pass(&[])]).1, 0);
        }
    }

    #[test]
    fn what_has_no_kernel_for_bytes_stays() {
        let (_, hits, reasons) = run(model("GRU", 3, ""), vec![pass(&[])]);
        assert_eq!(hits, 0);
        assert!(reasons[0].contains("reset before the product"), "{reasons:?}");
        let (_, hits, reasons) = run(model("LSTM", 4, ""), vec![pass(&["lay*"])]);
        assert_eq!((hits, reasons[0].as_str()), (0, "--layer-precision keeps it in fp32"));
    }
}
