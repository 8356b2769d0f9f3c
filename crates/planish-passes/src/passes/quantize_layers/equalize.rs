//! Evens the channels out that layers read, before these are quantized: a channel divided by a number above zero, and
//! the weights that multiply it times the same, is the same model in floats.
//!
//! A tensor has one scale, so a channel that reaches far takes steps away from all others; its weights can hold what it
//! gives up, up to a point. For each value that layers read, several distributions between both are held against the noise
//! of rounding that they lead to, by the statistics of a calibration; the best is taken where it is clearly better.
//!
//! The division goes into what makes the value where that is a layer, past activations and pools that do not mind (cross-layer
//! equalization, Nagel et al. 2019), or a norm. Where it is neither, or others read the value too, matrix products read a
//! product of it (SmoothQuant, Xiao et al. 2022): one pass over the value, which is the one that rounds it.
//!
//! What is evened out has another name (`x.even`), since its numbers are others.

use std::collections::{BTreeMap, HashMap};

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Mul, Op};
use planish_quantize::Channels;
use planish_tensor::{DType, Tensor};

use super::choice::Choice;
use super::{ActivationRange, Quantize};
use crate::layer::{Affine, Layer};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// How much of the unevenness the weights take over, between none (0) and all (1).
const SHARES: [f64; 2] = [0.25, 0.5];
/// No channel is taken to reach less far than this part of the whole value: what is seldom seen in samples may well be larger
/// elsewhere, and would be clipped (a dense layer of cifar10_cnn_keras lost 20 dB by it).
const TRUSTED: f64 = 0.25;
/// A channel is not moved by more than this against the middle one: weights of channels that are never used may be anything.
const MOST: f64 = 64.0;
/// The noise must be at most this part of what it was: where the division costs nothing,
const CLEARLY: f64 = 0.8;
/// and where it is a product of its own.
const VERY_CLEARLY: f64 = 0.5;

/// Values to even out, by name.
pub(crate) struct Equalize {
    /// What each channel is divided by.
    factors: HashMap<String, Vec<f64>>,
}

impl Equalize {
    /// Finds what is to be evened out of an optimized graph, and gives `options` the ranges that it has then.
    pub(crate) fn new(cx: &View<'_>, options: &mut Quantize) -> Equalize {
        let choice = Choice::new(cx, options);
        let mut readers: BTreeMap<ValueId, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in cx.graph().nodes().filter(|(id, _)| choice.is_layer(*id)) {
            if let Some(data) = cx.input(node, 0) {
                readers.entry(data).or_default().push(id);
            }
        }
        let mut factors = HashMap::new();
        for (value, layers) in readers {
            let Some((found, range)) = evened(cx, options, value, &layers) else { continue };
            let name = cx.name(value);
            options.ranges.insert(even(name), range);
            let evened = options.channels.get(name).map(|channels| divided(channels, &found));
            options.channels.extend(evened.map(|channels| (even(name), channels)));
            factors.insert(name.to_string(), found);
        }
        Equalize { factors }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.factors.is_empty()
    }
}

/// Channels divided by these.
fn divided(channels: &Channels, factors: &[f64]) -> Channels {
    let list = |numbers: &[f32]| {
        let one = |(number, factor): (&f32, &f64)| (f64::from(*number) / factor) as f32;
        numbers.iter().zip(factors).map(one).collect()
    };
    Channels { means: list(&channels.means), roots: list(&channels.roots), largest: list(&channels.largest) }
}

/// The name of a value that was evened out.
fn even(name: &str) -> String {
    format!("{name}.even")
}

/// What the channels of a value are divided by, and the range that it has then; `None` where that gains too little.
fn evened(
    cx: &View<'_>,
    options: &Quantize,
    value: ValueId,
    layer_ids: &[NodeId],
) -> Option<(Vec<f64>, ActivationRange)> {
    let channels = options.channels.get(cx.name(value))?;
    let range = options.ranges.get(cx.name(value))?;
    let layers: Vec<Layer<'_>> =
        layer_ids.iter().map(|id| Layer::of(cx, cx.node(*id))?.ok()).collect::<Option<_>>()?;
    let n = channels.largest.len();
    if n < 2 || layers.iter().any(|layer| layer.n_inputs() != n) {
        return None;
    }
    let bound = match Way::of(cx, value, layer_ids)? {
        Way::Maker(_) => CLEARLY,
        Way::Product => VERY_CLEARLY,
    };
    let least = TRUSTED * f64::from(range.threshold);
    let reaches: Vec<f64> =
        channels.largest.iter().map(|largest| f64::from(largest.min(range.threshold)).max(least)).collect();
    let roots: Vec<f64> = channels.roots.iter().map(|root| f64::from(*root)).collect();
    let mut weights = vec![0f64; n];
    for layer in &layers {
        let values = layer.weight().to_f64s();
        layer.for_each_weight(|at, _, input| weights[input] = weights[input].max(values[at].abs()));
    }
    let steps = if range.min >= 0.0 { 255.0 } else { 127.0 };
    let noise = |factors: &[f64]| noise(&layers, factors, &reaches, &roots, steps);
    let before = noise(&vec![1.0; n]);
    let trial = |share: &f64| {
        let factors = factors(&reaches, &weights, *share);
        (noise(&factors), factors)
    };
    let (after, factors) = SHARES.iter().map(trial).min_by(|a, b| a.0.total_cmp(&b.0))?;
    if !after.is_finite() || after > bound * before {
        return None;
    }
    let reach = reaches.iter().zip(&factors).map(|(reach, factor)| reach / factor).fold(0.0, f64::max) as f32;
    let whole = range.max.abs().max(range.min.abs());
    let part = |end: f32| if whole > 0.0 { end / whole * reach } else { 0.0 };
    Some((factors, ActivationRange { min: part(range.min), max: part(range.max), threshold: reach }))
}

/// What channels are divided by where the weights take over a share of their unevenness; 1 for the middle one. Powers of two,
/// so that not a bit of the float model changes.
fn factors(reaches: &[f64], weights: &[f64], share: f64) -> Vec<f64> {
    let raw = |(reach, weight): (&f64, &f64)| {
        (*reach > 0.0 && *weight > 0.0).then(|| reach.powf(share) / weight.powf(1.0 - share))
    };
    let raw: Vec<Option<f64>> = reaches.iter().zip(weights).map(raw).collect();
    let known: Vec<f64> = raw.iter().flatten().map(|factor| factor.ln()).collect();
    let middle = (known.iter().sum::<f64>() / known.len().max(1) as f64).exp();
    raw.iter()
        .map(|factor| {
            factor.map_or(1.0, |factor| (factor / middle).clamp(1.0 / MOST, MOST).log2().round().exp2())
        })
        .collect()
}

/// The variance that rounding adds to the outputs of layers, but for a constant: steps of the value times weights, and steps
/// of the weights times the value.
fn noise(layers: &[Layer<'_>], factors: &[f64], reaches: &[f64], roots: &[f64], steps: f64) -> f64 {
    let step = reaches.iter().zip(factors).map(|(reach, factor)| reach / factor).fold(0.0, f64::max) / steps;
    let mut sum = 0.0;
    for layer in layers {
        let values = layer.weight().to_f64s();
        let n = layer.n_channels();
        let (mut largest, mut squares, mut read) = (vec![0f64; n], vec![0f64; n], vec![0f64; n]);
        layer.for_each_weight(|at, output, input| {
            let weight = values[at] * factors[input];
            largest[output] = largest[output].max(weight.abs());
            squares[output] += weight * weight;
            read[output] += (roots[input] / factors[input]).powi(2);
        });
        let of =
            |output: usize| step * step * squares[output] + (largest[output] / 127.0).powi(2) * read[output];
        sum += (0..n).map(of).sum::<f64>();
    }
    sum
}

/// Where the division goes.
enum Way {
    /// Into the node that makes the value, the last of these; the others lie between, the one next to the value first.
    Maker(Vec<NodeId>),
    /// A product in front of the layers.
    Product,
}

impl Way {
    /// For a value that these layers are to read evened out.
    fn of(cx: &View<'_>, value: ValueId, layers: &[NodeId]) -> Option<Way> {
        let first = cx.node(*layers.first()?);
        let is_image = matches!(first.op, Op::Conv(_) | Op::ConvTranspose(_));
        let axis = if is_image { 1 } else { cx.rank(value)?.checked_sub(1)? };
        let alone = !cx.is_output(value) && cx.readers(value).iter().all(|reader| layers.contains(reader));
        if let Some(makers) = alone.then(|| makers(cx, value, axis)).flatten() {
            return Some(Way::Maker(makers));
        }
        // A product before a convolution would be a step of its own.
        (!is_image).then_some(Way::Product)
    }
}

/// From the maker of a value up to the one that takes over a scale of its channels along `axis`.
fn makers(cx: &View<'_>, value: ValueId, axis: usize) -> Option<Vec<NodeId>> {
    let mut list = Vec::new();
    let mut value = value;
    loop {
        let (id, node) = cx.producer(value)?;
        list.push(id);
        let passes = match node.op {
            Op::Relu(_) | Op::LeakyRelu(_) => true,
            Op::MaxPool(_) | Op::AveragePool(_) | Op::GlobalAveragePool(_) => axis == 1,
            _ => false,
        };
        if !passes || node.outputs.len() != 1 {
            let takes = match &node.op {
                Op::LayerNormalization(op) => {
                    (op.axis == -1 || usize::try_from(op.axis) == Ok(axis))
                        && node.outputs.len() == 1
                        && (1..node.inputs.len()).all(|place| cx.constant_input(node, place).is_some())
                        && Some(axis + 1) == cx.rank(value)
                }
                _ => Layer::of(cx, node)?.ok()?.channel_axis() == axis,
            };
            return takes.then_some(list);
        }
        value = cx.input(node, 0)?;
        cx.sole_reader(value)?;
    }
}

impl Sweep for Equalize {
    fn name(&self) -> &'static str {
        "equalize_channels"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        for (id, node) in cx.graph().nodes() {
            let Some(value) = cx.input(node, 0) else { continue };
            let Some(factors) = self.factors.get(cx.name(value)) else { continue };
            // The first of those that read it stands for all.
            let layers: Vec<NodeId> = cx
                .readers(value)
                .iter()
                .copied()
                .filter(|reader| self.is_layer(cx, cx.node(*reader), value, factors.len()))
                .collect();
            if layers.first() == Some(&id)
                && let Some(patch) = patch(cx, value, &layers, factors)
            {
                proposals.add(id, Match::Rewrite(patch));
            }
        }
    }
}

impl Equalize {
    fn is_layer(&self, cx: &View<'_>, node: &Node, value: ValueId, n: usize) -> bool {
        let reads_once = node.inputs.iter().filter(|input| **input == Some(value)).count() == 1;
        let layer = Layer::of(cx, node).and_then(Result::ok);
        reads_once && cx.input(node, 0) == Some(value) && layer.is_some_and(|layer| layer.n_inputs() == n)
    }
}

/// The layers over the value evened out.
fn patch(cx: &View<'_>, value: ValueId, layers: &[NodeId], factors: &[f64]) -> Option<Patch> {
    let mut patch = Patch::new();
    let evened = match Way::of(cx, value, layers)? {
        Way::Maker(makers) => by_maker(cx, &mut patch, &makers, factors)?,
        Way::Product => {
            let parts: Vec<f32> = factors.iter().map(|factor| (1.0 / factor) as f32).collect();
            let by = patch.constant(&format!("{}.by", even(cx.name(value))), Tensor::vector(parts));
            patch.node(&even(cx.name(value)), Mul {}, &[value.into(), by])
        }
    };
    patch.has_shape_of(cx, evened, DType::F32, value);
    let affine = Affine { scale: factors.to_vec(), shift: vec![0.0; factors.len()] };
    for id in layers {
        let node = cx.node(*id);
        let output = (*node.outputs.first()?)?;
        let layer = Layer::of(cx, node)?.ok()?;
        let new = layer.with_scaled_input(cx, &mut patch, evened, &affine).ok()?;
        patch.has_shape_of(cx, new, DType::F32, output);
        patch.replace(output, new);
        patch.relies_on(*id);
    }
    Some(patch)
}

/// Names what a node makes now, and the node as it was.
fn call(cx: &View<'_>, patch: &mut Patch, node: &Node, made: Operand) {
    if let Some(&Some(old)) = node.outputs.first() {
        patch.call(made, &even(cx.name(old)));
        // Nodes without a name go by what they make, which patterns of names are for.
        patch.name_node(made, cx.label(node));
    }
}

/// The value, made evened out.
fn by_maker(cx: &View<'_>, patch: &mut Patch, makers: &[NodeId], factors: &[f64]) -> Option<Operand> {
    let (&first, between) = makers.split_last()?;
    let maker = cx.node(first);
    let parts: Vec<f64> = factors.iter().map(|factor| 1.0 / factor).collect();
    makers.iter().for_each(|id| patch.relies_on(*id));
    let mut made = match &maker.op {
        Op::LayerNormalization(_) => {
            let mut inputs: Vec<Option<Operand>> =
                maker.inputs.iter().map(|id| id.map(Operand::Old)).collect();
            for (place, input) in inputs.iter_mut().enumerate().skip(1) {
                let old = cx.constant_input(maker, place)?;
                let numbers = old.to_f64s();
                let scaled: Vec<f64> = (numbers.len() == parts.len())
                    .then(|| numbers.iter().zip(&parts).map(|(number, part)| number * part).collect())?;
                let tensor = Tensor::from_f64s(old.dtype(), old.shape(), &scaled).ok()?;
                *input = Some(patch.constant(cx.name(cx.input(maker, place)?), tensor));
            }
            patch.node_with(&maker.name, maker.op.clone(), inputs, 1).pop()?
        }
        _ => {
            let layer = Layer::of(cx, maker)?.ok()?;
            if layer.n_channels() != parts.len() {
                return None;
            }
            let affine = Affine { scale: parts.clone(), shift: vec![0.0; parts.len()] };
            layer.scaled(cx, patch, &affine).ok()?
        }
    };
    call(cx, patch, maker, made);
    for node in between.iter().rev().map(|id| cx.node(*id)) {
        made = patch.node(&node.name, node.op.clone(), &[made]);
        call(cx, patch, node, made);
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{channels, options};
    use super::*;
    use crate::driver::{Options, Pass, Pipeline};
    use crate::testing::{check_pass, graph};
    use expect_test::expect;
    use planish_ir::Graph;

    /// One channel reaches sixteen times as far as the other, though seldom; its weights are small in all tests.
    fn uneven(value: &str) -> Quantize {
        let mut by = options(&[(value, 0.0, 16.0)]);
        by.channels.insert(value.to_string(), channels(&[(0.5, 0.6, 1.0), (0.5, 1.0, 16.0)]));
        by.int8_layers = vec!["*".to_string()];
        by
    }

    /// That two graphs give the same outputs, bit for bit.
    fn same_bits(before: &Graph, after: &Graph) {
        let mut random = planish_testing::Random::new(3);
        let shape = View::new(before).fixed_shape(before.inputs()[0]).unwrap();
        let numbers = (0..shape.iter().product()).map(|_| random.normal() as f32).collect();
        let x = Tensor::new(&shape, numbers).unwrap();
        let of = |graph: &Graph| -> Vec<Vec<f64>> {
            let outputs = planish_ir::interpret(graph, vec![x.clone().into()]).unwrap();
            outputs.iter().map(|output| output.as_tensor().unwrap().to_f64s()).collect()
        };
        assert_eq!(of(before), of(after));
    }

    /// The graph evened out, and how many values were.
    fn evened(text: &str, by: &mut Quantize) -> (Graph, usize) {
        let before = graph(text);
        let pass = Equalize::new(&View::new(&before), by);
        let options = Options { verify_each: true, ..Options::default() };
        let (after, report) = Pipeline::new(vec![Pass::sweep(pass)]).run(before.clone(), &options).unwrap();
        same_bits(&before, &after);
        (after, report.hits("equalize_channels"))
    }

    const WEIGHTS: &str = "const %w: f32[2,2] = [3, 4, 0.1, 0.2] const %u: f32[2,3] = [1, 2, -1, 0.1, 0.2, 0.05] const %b: f32[2] = [1, 2] ";

    #[test]
    fn a_layer_takes_the_division_over() {
        let text = format!(
            "input %x: f32[2,2] {WEIGHTS} %h: f32[2,2] = Gemm(%x, %w, %b) \"h\" %r: f32[2,2] = Relu(%h) \"r\" \
             %y: f32[2,3] = Gemm(%r, %u) \"y\" output %y"
        );
        let mut by = uneven("r");
        let pass = Equalize::new(&View::new(&graph(&text)), &mut by);
        check_pass(
            Pass::sweep(pass),
            &text,
            expect![[r#"
                input %x: f32[2,2]
                const %w: f32[2,2] = [6, 2, 0.2, 0.1]
                const %b: f32[2] = [2, 1]
                const %u: f32[2,3] = [0.5, 1, -0.5, 0.2, 0.4, 0.1]
                %h.even: f32[2,2] = Gemm(%x, %w, %b) "h"
                %r.even: f32[2,2] = Relu(%h.even) "r"
                %y: f32[2,3] = Gemm(%r.even, %u) "y"
                output %y
            "#]],
        );
        let range = by.ranges["r.even"];
        assert!(range.min == 0.0 && range.threshold == 8.0, "{range:?}");
        assert_eq!(by.channels["r.even"].largest.len(), 2);
        evened(&text, &mut uneven("r"));
    }

    #[test]
    fn the_model_stays_the_same_whatever_takes_the_division_over() {
        let images = "input %x: f32[1,2,8,8] const %w: f32[2,2,1,1] = [1, 2, -3, 4] const %u: f32[3,2,2,2] = [1,2,3,4, 0.1,-0.2,0.1,0, \
            2,2,-3,3, 0,0.1,0,0.2, 5,4,5,5, 0.2,0.2,0.1,0.1] ";
        let pooled = format!(
            "{images} %c: f32[1,2,8,8] = Conv(%x, %w) \"c\" %a: f32[1,2,8,8] = LeakyRelu(%c) {{alpha=0.1}} \"a\" \
             %r: f32[1,2,4,4] = MaxPool(%a) {{kernel_shape=[2,2], strides=[2,2]}} \"r\" \
             %y: f32[1,3,4,4] = Conv(%r, %u) {{pads=[1,0,0,1]}} \"y\" output %y"
        );
        let linear = format!(
            "{images} %r: f32[1,2,8,8] = Conv(%x, %w) \"r\" %y: f32[1,3,8,8] = Conv(%r, %u) {{pads=[1,0,0,1]}} \"y\" \
             %z: f32[1,3,8,8] = Conv(%r, %u) {{pads=[1,0,0,1]}} \"z\" output %y, %z"
        );
        let norm = format!(
            "input %x: f32[2,5,2] {WEIGHTS} %r: f32[2,5,2] = LayerNormalization(%x, %b, %b) {{axis=-1}} \"r\" \
             %y: f32[2,5,3] = MatMul(%r, %u) \"y\" output %y"
        );
        let read_by_others = format!(
            "input %x: f32[2,5,2] {WEIGHTS} %r: f32[2,5,2] = LayerNormalization(%x, %b, %b) {{axis=-1}} \"r\" \
             %y: f32[2,5,3] = MatMul(%r, %u) \"y\" %z: f32[2,5,2] = Add(%r, %x) \"z\" output %y, %z"
        );
        for (text, product) in [(pooled, false), (linear, false), (norm, false), (read_by_others, true)] {
            let (after, hits) = evened(&text, &mut uneven("r"));
            assert_eq!(hits, 1, "{text}");
            assert!(after.find("r.even").is_some(), "{text}");
            assert_eq!(after.nodes().any(|(_, node)| matches!(node.op, Op::Mul(_))), product, "{text}");
        }
    }

    #[test]
    fn chains_are_evened_out_one_after_another() {
        let text = format!(
            "input %x: f32[2,2] {WEIGHTS} %a: f32[2,2] = Gemm(%x, %w, %b) \"a\" %r: f32[2,2] = Relu(%a) \"r\" \
             %c: f32[2,2] = Gemm(%r, %w, %b) \"c\" %s: f32[2,2] = Relu(%c) \"s\" %y: f32[2,3] = Gemm(%s, %u) \"y\" output %y"
        );
        let (mut by, other) = (uneven("r"), uneven("s"));
        by.ranges.extend(other.ranges);
        by.channels.extend(other.channels);
        assert_eq!(evened(&text, &mut by).1, 2);
    }

    #[test]
    fn what_gains_little_or_cannot_be_divided_stays() {
        let sigmoid = "input %x: f32[1,2,8,8] const %w: f32[2,2,1,1] = [1, 2, 3, 4] %c: f32[1,2,8,8] = Conv(%x, %w) \"c\" \
            %r: f32[1,2,8,8] = Sigmoid(%c) \"r\" %y: f32[1,2,8,8] = Conv(%r, %w) \"y\" output %y";
        assert_eq!(evened(sigmoid, &mut uneven("r")).1, 0);
        let mut even = uneven("r");
        even.channels.insert("r".to_string(), channels(&[(8.0, 9.0, 16.0), (8.0, 9.0, 16.0)]));
        let text = format!(
            "input %x: f32[2,2] {WEIGHTS} const %v: f32[2,2] = [1, 2, 2, 1] %r: f32[2,2] = Gemm(%x, %w, %b) \"r\" \
             %y: f32[2,2] = Gemm(%r, %v) \"y\" output %y"
        );
        assert_eq!(evened(&text, &mut even).1, 0);
        assert_eq!(evened(&text, &mut options(&[("r", 0.0, 16.0)])).1, 0);
    }
}
