//! Matrix products of 8-bit integers without a calibration: the range of an activation is found in each run.
//!
//! By rows, each row of the first factor is divided by a 127th of its largest magnitude, rounded, and the row of the product
//! is multiplied by the same: a token that reaches far costs the others nothing. ONNX has no operator that quantizes rows by
//! numbers that are found in a run, but all of this can be said with those that it has, around a product of integers whose
//! scale is 1. By tensors, `DynamicQuantizeLinear` gives integers, scale and zero point of the whole factor, and the product
//! stays one node with its bias. Weights are `i8` with a scale for each column. Products that read one value share its
//! integers once equal nodes are joined.

use std::fmt;
use std::str::FromStr;

use planish_ir::{Node, ValueId};
use planish_op::{
    Add, DequantizeLinear, Div, DynamicQuantizeLinear, Max, Mul, Neg, Op, ReduceMax, ReduceMin,
};
use planish_tensor::{DType, Tensor};

use crate::integer_weights::{self, Grid, WeightRange};
use crate::names::matches;
use crate::passes::quantize_layers::choice::NOT_FASTER;
use crate::quantization::{Quantization, multiplies_integers};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// What has one range of its own in each run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DynamicRange {
    /// Each row that a product reads.
    #[default]
    Row,
    /// The whole of what it reads, as ONNX Runtime's `quantize_dynamic` has it.
    Tensor,
}

const NAMES: [(&str, DynamicRange); 2] = [("row", DynamicRange::Row), ("tensor", DynamicRange::Tensor)];

impl fmt::Display for DynamicRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, range)| range == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for DynamicRange {
    type Err = String;

    fn from_str(text: &str) -> Result<DynamicRange, String> {
        let known = NAMES.iter().find(|(name, _)| *name == text).map(|(_, range)| *range);
        known.ok_or_else(|| format!("`{text}` has no range in a run; a row or a tensor has"))
    }
}

/// Integers of rows: around 128, in steps of 1.
const ROWS: Quantization = Quantization { dtype: DType::U8, scale: 1.0, zero_point: 128 };
/// The largest integer of a row, counted from the zero point.
const LARGEST: f32 = 127.0;
/// Rows whose largest magnitude is below it are zeros: what divides them stays a normal number.
const LEAST: f32 = 1e-30;

/// MatMul and Gemm with constant weights.
pub(crate) struct QuantizeDynamically {
    pub(crate) range: DynamicRange,
    pub(crate) weight_range: WeightRange,
    /// Patterns of names of layers that stay in f32.
    pub(crate) fp32_layers: Vec<String>,
    /// Names of layers that integers were measured to make no faster.
    pub(crate) wide_layers: Vec<String>,
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
        if self.wide_layers.iter().any(|name| name == cx.label(node)) {
            return Err(NOT_FASTER.to_string());
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
        let &[Some(old)] = &node.outputs[..] else { return Err("nothing reads it".to_string()) };
        let has_rows = cx.rank(data).is_some_and(|rank| rank > 1);
        let mut patch = Patch::new();
        let weights = integer_weights::quantized(cx, &mut patch, node, Grid::Integers(self.weight_range))?;
        let new = match self.range {
            DynamicRange::Row if has_rows => by_rows(cx, &mut patch, node, (data, old), weights),
            _ => by_tensor(cx, &mut patch, node, data, weights),
        };
        patch.has_shape_of(cx, new, DType::F32, old);
        patch.replace(old, new);
        Ok(patch)
    }
}

/// The product with one range for all that it reads.
fn by_tensor(cx: &View<'_>, patch: &mut Patch, node: &Node, data: ValueId, weights: Operand) -> Operand {
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
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[..2].copy_from_slice(&[Some(numbers), Some(weights)]);
    patch.node_with(&node.name, node.op.clone(), inputs, 1)[0]
}

/// The product with a range for each row that it reads.
fn by_rows(
    cx: &View<'_>,
    patch: &mut Patch,
    node: &Node,
    (data, output): (ValueId, ValueId),
    weights: Operand,
) -> Operand {
    let name = cx.name(data);
    let axes = patch.constant(&format!("{name}.axes"), Tensor::vector(vec![-1i64]));
    let ends = [data.into(), axes];
    let (noop_with_empty_axes, keepdims) = (false, true);
    let high = patch.node(&format!("{name}.max"), ReduceMax { noop_with_empty_axes, keepdims }, &ends);
    let low = patch.node(&format!("{name}.min"), ReduceMin { noop_with_empty_axes, keepdims }, &ends);
    let low = patch.node(&format!("{name}.neg"), Neg {}, &[low]);
    let least = patch.constant(&format!("{name}.least"), Tensor::scalar(LEAST));
    let reach = patch.node(&format!("{name}.reach"), Max {}, &[high, low, least]);
    let part = patch.constant(&format!("{name}.part"), Tensor::scalar(1.0 / LARGEST));
    let steps = patch.node(&format!("{name}.steps"), Mul {}, &[reach, part]);
    let even = patch.node(&format!("{name}.rows"), Div {}, &[data.into(), steps]);
    patch.has_shape_of(cx, even, DType::F32, data);
    let integers = ROWS.quantize(patch, &format!("{name}.quantize"), even);
    patch.has_shape_of(cx, integers, DType::U8, data);
    let numbers = ROWS.dequantize(patch, &format!("{name}.dequantize"), integers);
    patch.has_shape_of(cx, numbers, DType::F32, data);
    // The bias is added to what the steps have been multiplied back into.
    let product = patch.node(&node.name, node.op.clone(), &[numbers, weights]);
    patch.has_shape_of(cx, product, DType::F32, output);
    let scaled = patch.node(&format!("{}.by_rows", node.name), Mul {}, &[product, steps]);
    patch.has_shape_of(cx, scaled, DType::F32, output);
    match cx.input(node, 2) {
        Some(bias) => patch.node(&format!("{}.bias", node.name), Add {}, &[scaled, bias.into()]),
        None => scaled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check_pass, graph, run};
    use expect_test::expect;

    #[test]
    fn both_factors_become_integers() {
        check_pass(
            Pass::sweep(QuantizeDynamically {
                range: DynamicRange::Tensor,
                weight_range: WeightRange::Full,
                fp32_layers: vec!["keep*".into()],
                wide_layers: vec!["slow".into()],
            }),
            "input %x: f32[n,2] const %w: f32[2,2] = [1, -2, 0.5, 4] const %b: f32[2] = [1, 2] \
             %p: f32[n,2] = MatMul(%x, %w) \"p\" %k: f32[n,2] = MatMul(%x, %w) \"keep\" \
             %s: f32[n,2] = MatMul(%x, %w) \"slow\" %q: f32[2,2] = MatMul(%w, %w) \"q\" %g: f32[n,2] = Gemm(%p, %w, %b) \"g\" output %k, %g, %q, %s",
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
                %w.dequantize: f32[2,2] = DequantizeLinear(%w.1, %w.scale, %w.zero_point) "w.dequantize"
                %x.quantize: u8[n,2], %x.quantize.1: f32[], %x.quantize.2: u8[] = DynamicQuantizeLinear(%x) "x.quantize"
                %x.dequantize: f32[n,2] = DequantizeLinear(%x.quantize, %x.quantize.1, %x.quantize.2) "x.dequantize"
                %p: f32[n,2] = MatMul(%x.dequantize, %w.dequantize) "p"
                %k: f32[n,2] = MatMul(%x, %w) "keep"
                %s: f32[n,2] = MatMul(%x, %w) "slow"
                %q: f32[2,2] = MatMul(%w, %w) "q"
                %w.dequantize.1: f32[2,2] = DequantizeLinear(%w.2, %w.scale.1, %w.zero_point.1) "w.dequantize"
                %p.quantize: u8[n,2], %p.quantize.1: f32[], %p.quantize.2: u8[] = DynamicQuantizeLinear(%p) "p.quantize"
                %p.dequantize: f32[n,2] = DequantizeLinear(%p.quantize, %p.quantize.1, %p.quantize.2) "p.dequantize"
                %g: f32[n,2] = Gemm(%p.dequantize, %w.dequantize.1, %b) "g"
                output %k, %g, %q, %s
                refused at keep: --layer-precision keeps it in fp32
                refused at slow: integers were measured to make it no faster
                refused at q: its factors are not a matrix of weights and activations in f32
            "#]],
        );
    }

    #[test]
    fn rows_have_ranges_of_their_own() {
        check_pass(
            Pass::sweep(QuantizeDynamically {
                range: DynamicRange::Row,
                weight_range: WeightRange::Full,
                fp32_layers: Vec::new(),
                wide_layers: Vec::new(),
            }),
            "input %x: f32[n,2] const %w: f32[2,2] = [1, -2, 0.5, 4] const %b: f32[2] = [1, 2] \
             %y: f32[n,2] = Gemm(%x, %w, %b) \"g\" output %y",
            expect![[r#"
                input %x: f32[n,2]
                const %b: f32[2] = [1, 2]
                const %w: i8[2,2] = [127, -64, 64, 127]
                const %w.scale: f32[2] = [0.007874016, 0.031496063]
                const %w.zero_point: i8[2] = [0, 0]
                const %x.axes: i64[1] = [-1]
                const %x.least: f32[] = 1e-30
                const %x.part: f32[] = 0.007874016
                const %x.quantize.scale: f32[] = 1
                const %x.quantize.zero_point: u8[] = 128
                const %x.dequantize.scale: f32[] = 1
                const %x.dequantize.zero_point: u8[] = 128
                %w.dequantize: f32[2,2] = DequantizeLinear(%w, %w.scale, %w.zero_point) "w.dequantize"
                %x.max: f32[n,1] = ReduceMax(%x, %x.axes) "x.max"
                %x.min: f32[n,1] = ReduceMin(%x, %x.axes) "x.min"
                %x.neg: f32[n,1] = Neg(%x.min) "x.neg"
                %x.reach: f32[n,1] = Max(%x.max, %x.neg, %x.least) "x.reach"
                %x.steps: f32[n,1] = Mul(%x.reach, %x.part) "x.steps"
                %x.rows: f32[n,2] = Div(%x, %x.steps) "x.rows"
                %x.quantize: u8[n,2] = QuantizeLinear(%x.rows, %x.quantize.scale, %x.quantize.zero_point) "x.quantize"
                %x.dequantize: f32[n,2] = DequantizeLinear(%x.quantize, %x.dequantize.scale, %x.dequantize.zero_point) "x.dequantize"
                %g: f32[n,2] = Gemm(%x.dequantize, %w.dequantize) "g"
                %g.by_rows: f32[n,2] = Mul(%g, %x.steps) "g.by_rows"
                %y: f32[n,2] = Add(%g.by_rows, %b) "g.bias"
                output %y
            "#]],
        );
    }

    /// Half a step of a row and half a step of a column are each a 254th of the largest; a product of two elements moves by
    /// both, against a result that may be a third of its terms.
    const OFF: f64 = 3.0 * 2.0 / 254.0 * 1.3;

    /// However far other rows reach.
    #[test]
    fn products_of_rows_come_near_the_exact_ones() {
        let text = "input %x: f32[4,2] const %w: f32[2,2] = [1, -2, 0.5, 4] %y: f32[4,2] = MatMul(%x, %w) \"g\" output %y";
        let (after, report) = run(
            Pass::sweep(QuantizeDynamically {
                range: DynamicRange::Row,
                weight_range: WeightRange::Full,
                fp32_layers: Vec::new(),
                wide_layers: Vec::new(),
            }),
            text,
        );
        assert_eq!(report.hits, 1);
        // The second row is a thousandth of the first, the third nothing, the last beyond what squares can hold.
        let x = Tensor::new(&[4, 2], vec![3.0f32, -2.0, 0.003, 0.001, 0.0, 0.0, 1e30, -1e29]).unwrap();
        let of = |graph: &planish_ir::Graph| {
            let outputs = planish_ir::interpret(graph, vec![x.clone().into()]).unwrap();
            outputs[0].as_tensor().unwrap().to_f64s()
        };
        let (exact, got) = (of(&graph(text)), of(&after));
        for (row, (exact, got)) in exact.chunks(2).zip(got.chunks(2)).enumerate() {
            let norm = |numbers: &[f64]| numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
            let wrong = norm(&[exact[0] - got[0], exact[1] - got[1]]);
            assert!(wrong <= OFF * norm(exact), "row {row}: {exact:?} {got:?}");
        }
    }

    #[test]
    fn ranges_have_names() {
        for name in ["row", "tensor"] {
            assert_eq!(name.parse::<DynamicRange>().unwrap().to_string(), name);
        }
        assert!("column".parse::<DynamicRange>().is_err());
    }
}
