//! Quantizes a float model: QuantizeLinear and DequantizeLinear around its layers, by the ranges that a calibration found.
//!
//! A layer is a convolution or matrix product with constant weights. It reads its input by integers of 8 bits with one
//! scale, and its weights by `i8` with a scale for each output channel; the bias and what follows it up to the next
//! integers stay as they are, for kernels to fuse. Sums, products, pools and movement between layers read integers too
//! where they are made in the integer part of the model: a residual that is added to a layer's output is one.
//!
//! Stays in f32, with a reason for each: what `--layer-precision` names, the first layers (fewer than 4 input channels)
//! and the last ones unless it names them, layers whose input has no range, and everything that is no layer and has no
//! integers beside it. Floats of 8 bits are such integers here; queries, keys and values of an attention are read by them too.
//! A graph that has QuantizeLinear or DequantizeLinear already says itself what it wants, and is left
//! alone.

mod attention;
mod bias;
pub(crate) mod choice;
mod equalize;

use std::collections::HashMap;

use planish_ir::{Node, NodeId, ValueId};
use planish_quantize::Channels;
use planish_tensor::DType;

use crate::integer_weights::{self, Grid, WeightRange};
use crate::quantization::Quantization;
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;
use bias::Corrections;
use choice::Choice;
pub(crate) use equalize::Equalize;

/// What is known of the values of a tensor over the samples of a calibration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ActivationRange {
    pub min: f32,
    pub max: f32,
    /// From this magnitude on values are clipped.
    pub threshold: f32,
}

/// How a float model is quantized.
#[derive(Clone, Debug)]
pub struct Quantize {
    /// Ranges by the names of values.
    pub ranges: HashMap<String, ActivationRange>,
    /// What layers read, channel by channel, by the names of values.
    pub channels: HashMap<String, Channels>,
    /// Whether biases make up for what rounding weights does to the mean of a layer's output.
    pub correct_biases: bool,
    /// What activations are stored in: `U8` for the CPU (from zero up, around 128, or with the zero point that an uneven
    /// range asks for), `I8` for CUDA (around zero), `F8E4M3FN` for floats of 8 bits, which weights are then too.
    pub activations: DType,
    /// What kernels multiply in integers; other layers stay wide, where they are faster than floats that were rounded.
    pub kernels: IntegerKernels,
    pub weight_range: WeightRange,
    /// Patterns of names (`*` for any letters, `?` for one) of layers that stay in f32.
    pub fp32_layers: Vec<String>,
    /// The same of layers that are quantized even where a rule would leave them: the first and the last.
    pub int8_layers: Vec<String>,
    /// Names of layers that stay wide, since integers were measured to make them no faster.
    pub wide_layers: Vec<String>,
    /// Names of nodes that read floats, since 8 bits were measured to cost too much there.
    pub imprecise_nodes: Vec<String>,
}

/// Which layers a backend has integer kernels for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IntegerKernels {
    /// Input channels of a group, and depths of matrix products, come in multiples of this.
    pub chunk: usize,
    /// Which transposed convolutions are among them.
    pub transposed: Transposed,
}

/// Transposed convolutions that a backend has integer kernels for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transposed {
    None,
    /// Those whose windows lie side by side, in one group.
    SideBySide,
    Any,
}

impl IntegerKernels {
    /// Every layer is quantized.
    pub const ANY: IntegerKernels = IntegerKernels { chunk: 1, transposed: Transposed::Any };
    /// Tensor cores, fed in chunks of 16 bytes.
    pub const TENSOR_CORES: IntegerKernels = IntegerKernels { chunk: 16, transposed: Transposed::None };
}

/// Layers with ranges, and what lies between them.
pub(crate) struct QuantizeLayers(pub(crate) Quantize);

impl Sweep for QuantizeLayers {
    fn name(&self) -> &'static str {
        "quantize_layers"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let choice = Choice::new(cx, &self.0);
        for (id, reason) in &choice.refusals {
            proposals.add(*id, Match::blocked(reason.clone()));
        }
        let corrections = Corrections::new(cx, &self.0, &choice);
        for (id, node) in cx.graph().nodes() {
            match self.quantized(cx, id, node, (&choice, &corrections)) {
                Ok(Some(patch)) => proposals.add(id, Match::Rewrite(patch)),
                Ok(None) => {}
                Err(reason) => proposals.add(id, Match::blocked(reason)),
            }
        }
    }
}

impl QuantizeLayers {
    /// The node with its operands read by integers, as far as they are chosen; `None` if none is.
    fn quantized(
        &self,
        cx: &View<'_>,
        id: NodeId,
        node: &Node,
        (choice, corrections): (&Choice, &Corrections),
    ) -> Result<Option<Patch>, String> {
        let mut patch = Patch::new();
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        let mut made: Vec<(ValueId, Operand)> = Vec::new();
        for place in choice.integer_inputs(cx, id) {
            let Some(value) = cx.input(node, place) else { continue };
            let Some(by) = choice.quantization(value) else { continue };
            let known = made.iter().find(|(known, _)| *known == value).map(|(_, numbers)| *numbers);
            let numbers = known.unwrap_or_else(|| read_by_integers(cx, &mut patch, value, by));
            made.push((value, numbers));
            inputs[place] = Some(numbers);
        }
        if choice.is_layer(id) {
            let grid = match self.0.activations.is_float() {
                true => Grid::F8,
                false => Grid::Integers(self.0.weight_range),
            };
            inputs[1] = Some(integer_weights::quantized(cx, &mut patch, node, grid)?);
        }
        let bias = corrections.bias(cx, id);
        if !choice.is_layer(id) && made.is_empty() && bias.is_none() {
            return Ok(None);
        }
        if let Some((place, bias)) = bias {
            inputs.resize(inputs.len().max(place + 1), None);
            let name = cx
                .input(node, place)
                .map_or_else(|| format!("{}.bias", node.name), |id| cx.name(id).to_string());
            inputs[place] = Some(patch.constant(&name, bias));
        }
        let outputs = patch.node_with(&node.name, node.op.clone(), inputs, node.outputs.len());
        for (old, new) in node.outputs.iter().zip(outputs) {
            let Some(old) = *old else { continue };
            if let Some(dtype) = cx.dtype(old) {
                patch.has_shape_of(cx, new, dtype, old);
            }
            patch.replace(old, new);
        }
        Ok(Some(patch))
    }
}

/// Adds the numbers of a value after it was rounded to integers.
fn read_by_integers(cx: &View<'_>, patch: &mut Patch, value: ValueId, by: Quantization) -> Operand {
    let name = cx.name(value);
    let integers = by.quantize(patch, &format!("{name}.quantize"), value.into());
    patch.has_shape_of(cx, integers, by.dtype, value);
    let numbers = by.dequantize(patch, &format!("{name}.dequantize"), integers);
    patch.has_shape_of(cx, numbers, DType::F32, value);
    numbers
}

#[cfg(test)]
mod tests;
