//! Which layers are quantized, and which values between them are integers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{AutoPad, ConvTranspose, Op};
use planish_tensor::{DType, Tensor};

use super::{ActivationRange, Quantize, Transposed, attention};
use crate::integer_weights::MAX_F8;
use crate::names::matches;
use crate::quantization::{Quantization, is_product, moved_inputs_of, multiplies_integers};
use crate::view::View;

/// Convolutions of fewer input channels read an image: their share of the work is small, and their input is precise.
const MIN_CHANNELS: usize = 4;
/// Where both ends of a range differ so much that steps of this part of the symmetric ones reach from one to the other,
/// the zero point is put where they ask for it: activations such as Swish and HardSwish go a little below zero only.
const MIN_GAIN: f32 = 0.75;
/// Why a layer stays wide that was measured.
pub(crate) const NOT_FASTER: &str = "integers were measured to make it no faster";
/// A part of a concatenation that others read too takes over a scale of at most so many times its own: a bit is lost.
const MAX_COARSER: f32 = 2.0;

/// Why a layer stays wide that a calibration names.
pub(super) const IMPRECISE: &str = "the calibration measured that 8 bits cost too much there";

/// Whether a calibration wants a node to read floats, and the user does not want it to read integers.
pub(super) fn is_imprecise(options: &Quantize, label: &str) -> bool {
    options.imprecise_nodes.iter().any(|name| name == label)
        && !options.int8_layers.iter().any(|pattern| matches(pattern, label))
}

/// What is quantized.
pub(super) struct Choice {
    /// The type of the integers.
    activations: DType,
    layers: BTreeSet<NodeId>,
    /// Attentions that read queries, keys and values by floats of 8 bits.
    attentions: BTreeSet<NodeId>,
    /// Values that nothing but layers reads by floats of 8 bits: a residual that a norm makes keeps its bits.
    for_layers: BTreeSet<ValueId>,
    /// Sums, pools and the like that are to read floats.
    in_floats: BTreeSet<NodeId>,
    /// Values that layers and what lies between them read by integers.
    integers: BTreeMap<ValueId, Quantization>,
    /// Layers that stay in f32, and why.
    pub(super) refusals: Vec<(NodeId, String)>,
}

impl Choice {
    pub(super) fn new(cx: &View<'_>, options: &Quantize) -> Choice {
        let is_named = |node: &Node| {
            let label = cx.label(node);
            options.fp32_layers.iter().any(|pattern| matches(pattern, label)) || is_imprecise(options, label)
        };
        let named = cx.graph().nodes().filter(|(_, node)| !is_product(&node.op) && is_named(node));
        let mut choice = Choice {
            activations: options.activations,
            layers: BTreeSet::new(),
            attentions: BTreeSet::new(),
            for_layers: BTreeSet::new(),
            in_floats: named.map(|(id, _)| id).collect(),
            integers: BTreeMap::new(),
            refusals: Vec::new(),
        };
        let is_before_layer = before_layers(cx);
        let is_quantization =
            |node: &Node| matches!(node.op, Op::QuantizeLinear(_) | Op::DequantizeLinear(_));
        let is_quantized = cx.graph().nodes().any(|(_, node)| is_quantization(node));
        for (id, node) in cx.graph().nodes() {
            if !is_product(&node.op) || multiplies_integers(cx, node) {
                continue;
            }
            let leads_on = node.outputs.iter().flatten().any(|value| is_before_layer[value.index()]);
            match layer(cx, options, node, leads_on) {
                Ok(()) if is_quantized => {
                    let reason = "the model says itself what is quantized, and this layer is not";
                    choice.refusals.push((id, reason.to_string()));
                }
                Ok(()) => {
                    choice.layers.insert(id);
                }
                Err(reason) => choice.refusals.push((id, reason)),
            }
        }
        let spread = Spread::new(cx, options, &choice.layers, &choice.in_floats);
        choice.integers = spread.quantizations();
        if options.activations.is_float() {
            let is_outside = |value: &&ValueId| !spread.is_inside[value.index()];
            choice.for_layers = choice.integers.keys().filter(is_outside).copied().collect();
            let is_inside = spread.is_inside;
            choice.add_attentions(cx, options, &is_inside, is_quantized);
        }
        choice
    }

    /// Attentions of what layers make, where kernels read floats of 8 bits.
    fn add_attentions(&mut self, cx: &View<'_>, options: &Quantize, is_inside: &[bool], is_quantized: bool) {
        for (id, node) in cx.graph().nodes() {
            let Op::Attention(op) = &node.op else { continue };
            if is_quantized {
                continue;
            }
            match attention::operands(cx, options, node, op, |value| is_inside[value.index()]) {
                Ok(operands) => {
                    self.attentions.insert(id);
                    for (value, by) in operands {
                        // What layers read by floats of 8 bits already is read so here too.
                        self.integers.entry(value).or_insert_with(|| {
                            self.for_layers.insert(value);
                            by
                        });
                    }
                }
                Err(reason) => self.refusals.push((id, reason)),
            }
        }
    }

    pub(super) fn is_layer(&self, id: NodeId) -> bool {
        self.layers.contains(&id)
    }

    /// How a value is rounded to integers.
    pub(super) fn quantization(&self, value: ValueId) -> Option<Quantization> {
        self.integers.get(&value).copied()
    }

    /// The inputs that a node reads by integers.
    pub(super) fn integer_inputs(&self, cx: &View<'_>, id: NodeId) -> Vec<usize> {
        let node = cx.node(id);
        let places = match self.is_layer(id) {
            true => 0..1,
            false if self.attentions.contains(&id) => 0..3,
            false if self.in_floats.contains(&id) => 0..0,
            false => data_inputs(node, self.activations).unwrap_or(0..0),
        };
        let is_integer = |place: &usize| {
            let value = cx.input(node, *place).filter(|value| self.integers.contains_key(value));
            let is_for_it = self.is_layer(id) || self.attentions.contains(&id);
            value.is_some_and(|value| is_for_it || !self.for_layers.contains(&value))
        };
        places.filter(is_integer).collect()
    }
}

/// Whether a node may be quantized as a layer; an error says why it stays in f32.
fn layer(cx: &View<'_>, options: &Quantize, node: &Node, leads_on: bool) -> Result<(), String> {
    let named = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, cx.label(node)));
    if named(&options.fp32_layers) {
        return Err("--layer-precision keeps it in fp32".to_string());
    }
    if options.wide_layers.iter().any(|name| name == cx.label(node)) {
        return Err(NOT_FASTER.to_string());
    }
    if is_imprecise(options, cx.label(node)) {
        return Err(IMPRECISE.to_string());
    }
    let (Some(data), Some(weights)) = (cx.input(node, 0), cx.constant_input(node, 1)) else {
        return Err("its second factor is not constant".to_string());
    };
    if weights.dtype() != DType::F32 || cx.dtype(data) != Some(DType::F32) || cx.constant(data).is_some() {
        return Err("its factors are not weights and activations in f32".to_string());
    }
    if weights.to_f64s().iter().any(|weight| !weight.is_finite()) {
        return Err("its weights are not all finite".to_string());
    }
    let n_channels = match &node.op {
        Op::Conv(op) => {
            let per_group = weights.shape().get(1).copied().unwrap_or(0);
            Some(per_group * usize::try_from(op.group).unwrap_or(0))
        }
        Op::Gemm(op) if op.trans_a || op.alpha != 1.0 || op.beta != 1.0 => {
            return Err("it transposes or scales its operands".to_string());
        }
        _ => None,
    };
    let is_asked_for = named(&options.int8_layers);
    if let Some(reason) = without_kernel(&node.op, weights.shape(), options).filter(|_| !is_asked_for) {
        return Err(reason);
    }
    if let Some(n_channels) = n_channels.filter(|n| *n < MIN_CHANNELS && !is_asked_for) {
        return Err(format!("it reads {n_channels} channels: first layers stay wide"));
    }
    if !leads_on && !is_asked_for {
        return Err("no layer comes after it: last layers stay wide".to_string());
    }
    let Some(range) = options.ranges.get(cx.name(data)) else {
        return Err(format!("the calibration has no range of its input `{}`", cx.name(data)));
    };
    match quantization(range, options.activations) {
        Some(_) => Ok(()),
        None => Err(format!("its input `{}` has no usable range", cx.name(data))),
    }
}

/// Why no kernel multiplies a layer's integers, if none does.
fn without_kernel(op: &Op, weights: &[usize], options: &Quantize) -> Option<String> {
    let depth = match (op, weights) {
        (Op::ConvTranspose(op), _) if !transposes(op, weights, options.kernels.transposed) => {
            return Some("no kernel multiplies integers of such transposed convolutions there".to_string());
        }
        (Op::ConvTranspose(_), [n_inputs, ..]) => *n_inputs,
        (Op::Conv(_), [_, per_group, ..]) => *per_group,
        (Op::Gemm(op), [_, k]) if op.trans_b => *k,
        (_, [.., k, _]) => *k,
        _ => return None,
    };
    let chunk = options.kernels.chunk;
    (!depth.is_multiple_of(chunk)).then(|| format!("{depth} input channels are no multiple of {chunk}"))
}

/// Whether a transposed convolution is among those that kernels multiply in integers.
pub(super) fn transposes(op: &ConvTranspose, weights: &[usize], known: Transposed) -> bool {
    let strides = op.strides.iter().map(|stride| usize::try_from(*stride).unwrap_or(0));
    let padded = op.pads.iter().chain(&op.output_padding).any(|pad| *pad != 0);
    let shifted = padded || op.output_shape.is_some() || op.auto_pad != AutoPad::NotSet;
    match known {
        Transposed::None => false,
        Transposed::Any => true,
        Transposed::SideBySide => {
            op.group == 1
                && !shifted
                && strides.eq(weights.iter().skip(2).copied())
                && op.dilations.iter().all(|step| *step == 1)
                && weights[1].is_multiple_of(8)
        }
    }
}

/// For every value whether a layer comes after it.
fn before_layers(cx: &View<'_>) -> Vec<bool> {
    let mut is_before = vec![false; cx.graph().values().len()];
    let nodes: Vec<(NodeId, &Node)> = cx.graph().nodes().collect();
    for (_, node) in nodes.into_iter().rev() {
        let has_weights = cx.constant_input(node, 1).is_some() || multiplies_integers(cx, node);
        let is_layer = is_product(&node.op) && has_weights;
        if is_layer || node.outputs.iter().flatten().any(|value| is_before[value.index()]) {
            node.inputs.iter().flatten().for_each(|value| is_before[value.index()] = true);
        }
    }
    is_before
}

/// How a range is rounded to integers; `None` where no scale can be told.
pub(super) fn quantization(range: &ActivationRange, dtype: DType) -> Option<Quantization> {
    let is_known = range.min.is_finite() && range.max.is_finite() && range.threshold > 0.0;
    let symmetric = range.threshold / 127.0;
    let (low, high) = (range.min.max(-range.threshold).min(0.0), range.max.min(range.threshold).max(0.0));
    let whole = (high - low) / 255.0;
    let (scale, zero_point) = match dtype {
        DType::U8 if low == 0.0 => (whole, 0),
        DType::U8 if whole < MIN_GAIN * symmetric => (whole, (-low / whole).round_ties_even() as i64),
        DType::U8 => (symmetric, 128),
        // Numbers near zero keep their bits whatever the largest one is: nothing is clipped.
        DType::F8E4M3FN => ((f64::from(range.max.max(-range.min)) / MAX_F8) as f32, 0),
        _ => (symmetric, 0),
    };
    (is_known && scale.is_normal() && scale > 0.0).then_some(Quantization { dtype, scale, zero_point })
}

/// The inputs by which an operator that is no layer can read integers: what lies between layers.
fn data_inputs(node: &Node, integers: DType) -> Option<Range<usize>> {
    if node.outputs.len() != 1 {
        return None;
    }
    match &node.op {
        Op::Add(_) | Op::Sub(_) | Op::Mul(_) => Some(0..2),
        Op::AveragePool(_) | Op::GlobalAveragePool(_) | Op::Resize(_) => Some(0..1),
        Op::Cast(_) => None,
        op if op.is_unary() => Some(0..1),
        _ => moved_inputs_of(node, integers),
    }
}

/// Integers spread from the inputs of layers to what these are made of.
struct Spread<'a, 'g> {
    cx: &'a View<'g>,
    options: &'a Quantize,
    layers: &'a BTreeSet<NodeId>,
    in_floats: &'a BTreeSet<NodeId>,
    /// Values that are made in the integer part of the model: by a layer, and from there on by what lies between.
    is_inside: Vec<bool>,
    /// Values with the same scale point to one of them.
    leader: Vec<usize>,
    wanted: BTreeSet<ValueId>,
}

impl<'a, 'g> Spread<'a, 'g> {
    fn new(
        cx: &'a View<'g>,
        options: &'a Quantize,
        layers: &'a BTreeSet<NodeId>,
        in_floats: &'a BTreeSet<NodeId>,
    ) -> Spread<'a, 'g> {
        let n_values = cx.graph().values().len();
        let (is_inside, leader) = (vec![false; n_values], (0..n_values).collect());
        let mut spread =
            Spread { cx, options, layers, in_floats, is_inside, leader, wanted: BTreeSet::new() };
        for (id, node) in cx.graph().nodes() {
            let from_inside = |place| cx.input(node, place).is_some_and(|id| spread.is_inside[id.index()]);
            let inside = layers.contains(&id)
                || data_inputs(node, options.activations).is_some_and(|mut data| data.any(from_inside));
            if let (true, Some(&Some(output))) = (inside, node.outputs.first()) {
                spread.is_inside[output.index()] = cx.dtype(output) == Some(DType::F32);
            }
        }
        let mut open: Vec<ValueId> = Vec::new();
        for &id in layers {
            open.extend(cx.input(cx.node(id), 0).filter(|data| spread.wanted.insert(*data)));
        }
        while let Some(value) = open.pop() {
            spread.behind(value, &mut open);
        }
        spread
    }

    /// Finds what else is integers if a value is.
    fn behind(&mut self, value: ValueId, open: &mut Vec<ValueId>) {
        let Some((id, node)) = self.cx.producer(value) else { return };
        let is_between = !self.layers.contains(&id) && !self.in_floats.contains(&id);
        let integers = self.options.activations;
        let Some(data) = data_inputs(node, integers).filter(|_| is_between) else { return };
        let moved = moved_inputs_of(node, integers);
        let fused = self.fused_operand(id);
        for place in data {
            let Some(operand) = self.cx.input(node, place) else { continue };
            if !self.is_inside[operand.index()] {
                continue;
            }
            let is_moved = moved.as_ref().is_some_and(|moved| moved.contains(&place));
            if is_moved && self.shares_scale(node, operand, value) {
                self.join(operand, value);
            }
            if fused == Some(operand) {
                // It never leaves the registers of the layer's kernel; what is behind it may.
                self.behind(operand, open);
                continue;
            }
            let has_range = self.range(operand).is_some();
            let is_whole = self.cx.shape(operand) == self.cx.shape(value) || !is_binary(node);
            if (is_moved || (has_range && is_whole)) && self.wanted.insert(operand) {
                open.push(operand);
            }
        }
    }

    /// The operand of a pointwise operator that its maker hands over without storing it, since nothing else reads it:
    /// of two, that of the layer with more weights, so that a shortcut can be computed beside it, and else the one that is
    /// made last.
    fn fused_operand(&self, id: NodeId) -> Option<ValueId> {
        let node = self.cx.node(id);
        if !is_binary(node) && !node.op.is_unary() {
            return None;
        }
        let is_handed_over = |value: &ValueId| {
            self.cx.sole_reader(*value).is_some()
                && self.is_inside[value.index()]
                && self.cx.producer(*value).is_some_and(|(maker, node)| {
                    self.layers.contains(&maker) || is_binary(node) || node.op.is_unary()
                })
        };
        let operands = node.inputs.iter().flatten().copied().filter(is_handed_over);
        operands.max_by_key(|value| {
            let (id, node) = self.cx.producer(*value)?;
            let n_weights = self.cx.constant_input(node, 1).filter(|_| self.layers.contains(&id));
            Some((n_weights.map_or(0, Tensor::len), id.index()))
        })
    }

    /// Whether a moved value takes over the scale of what it is moved into.
    fn shares_scale(&self, node: &Node, operand: ValueId, result: ValueId) -> bool {
        if !matches!(node.op, Op::Concat(_)) || self.cx.sole_reader(operand).is_some() {
            return true;
        }
        match (self.range(operand), self.range(result)) {
            (Some(own), Some(whole)) => whole.threshold <= MAX_COARSER * own.threshold,
            _ => true,
        }
    }

    fn range(&self, value: ValueId) -> Option<&ActivationRange> {
        let range = self.options.ranges.get(self.cx.name(value))?;
        quantization(range, self.options.activations).map(|_| range)
    }

    fn find(&self, value: ValueId) -> usize {
        let mut at = value.index();
        while self.leader[at] != at {
            at = self.leader[at];
        }
        at
    }

    fn join(&mut self, one: ValueId, other: ValueId) {
        let (one, other) = (self.find(one), self.find(other));
        self.leader[one] = other;
    }

    /// The integers of all wanted values: those that are moved into each other have one scale for all.
    fn quantizations(&self) -> BTreeMap<ValueId, Quantization> {
        let mut ranges: BTreeMap<usize, ActivationRange> = BTreeMap::new();
        for &value in &self.wanted {
            let Some(own) = self.range(value) else { continue };
            let all = ranges.entry(self.find(value)).or_insert(*own);
            *all = ActivationRange {
                min: all.min.min(own.min),
                max: all.max.max(own.max),
                threshold: all.threshold.max(own.threshold),
            };
        }
        let of = |value: &ValueId| {
            let range = ranges.get(&self.find(*value))?;
            Some((*value, quantization(range, self.options.activations)?))
        };
        self.wanted.iter().filter_map(of).collect()
    }
}

fn is_binary(node: &Node) -> bool {
    matches!(node.op, Op::Add(_) | Op::Sub(_) | Op::Mul(_))
}
