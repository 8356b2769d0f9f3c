//! Biases corrected for what rounding weights does to the mean of a layer's output: the sum over its inputs of what each
//! weight is off, times the mean of its input (Nagel et al., Data-Free Quantization, 2019, with means of a calibration).

use std::collections::HashMap;

use planish_ir::{Node, NodeId};
use planish_op::Op;
use planish_tensor::Tensor;

use super::Quantize;
use super::choice::Choice;
use crate::integer_weights::Rounded;
use crate::layer::{Layer, spread};
use crate::view::View;

/// What is added to each output channel of the layers, by the node that adds it: the layer where it has a bias or can hold
/// one, and the Add after a product of several matrices.
pub(super) struct Corrections(HashMap<NodeId, Vec<f64>>);

impl Corrections {
    pub(super) fn new(cx: &View<'_>, options: &Quantize, choice: &Choice) -> Corrections {
        let mut all = HashMap::new();
        // What floats of 8 bits are off has no mean to speak of: their steps grow with the numbers.
        if !options.correct_biases || options.activations.is_float() {
            return Corrections(all);
        }
        for (id, node) in cx.graph().nodes().filter(|(id, _)| choice.is_layer(*id)) {
            let found = correction(cx, options, node);
            if let (Some(correction), Some(holder)) = (found, holder(cx, id, node)) {
                all.insert(holder, correction);
            }
        }
        Corrections(all)
    }

    /// The bias that a node has instead of its own: which of its inputs that is, and its numbers.
    pub(super) fn bias(&self, cx: &View<'_>, id: NodeId) -> Option<(usize, Tensor)> {
        let correction = self.0.get(&id)?;
        let node = cx.node(id);
        let place = match node.op {
            Op::Add(_) => (0..2).find(|place| cx.constant_input(node, *place).is_some())?,
            _ => 2,
        };
        let old = cx.constant_input(node, place);
        let numbers = match old {
            Some(old) => spread(old.to_f64s(), correction.len())?,
            None => vec![0.0; correction.len()],
        };
        let sum: Vec<f32> = numbers.iter().zip(correction).map(|(a, b)| (a + b) as f32).collect();
        let shape = match old {
            Some(old) if old.len() == sum.len() => old.shape().to_vec(),
            _ => vec![sum.len()],
        };
        Some((place, Tensor::new(&shape, sum).ok()?))
    }
}

/// What takes the mean of what rounding adds to a layer's output off again.
fn correction(cx: &View<'_>, options: &Quantize, node: &Node) -> Option<Vec<f64>> {
    let channels = options.channels.get(cx.name(cx.input(node, 0)?))?;
    let layer = Layer::of(cx, node)?.ok()?;
    if channels.means.len() != layer.n_inputs() {
        return None;
    }
    let exact = layer.weight().elements::<f32>().ok()?;
    let (rounded, channel) = Rounded::weights(&node.op, layer.weight(), options.weight_range).ok()?;
    let mut sums = vec![0f64; layer.n_channels()];
    layer.for_each_weight(|at, output, input| {
        let number = f64::from(rounded.integers[at]) * f64::from(rounded.scales[channel(at)]);
        sums[output] += (f64::from(exact[at]) - number) * f64::from(channels.means[input]);
    });
    sums.iter().all(|sum| sum.is_finite()).then_some(sums)
}

/// The node that a layer's bias is added in.
fn holder(cx: &View<'_>, id: NodeId, node: &Node) -> Option<NodeId> {
    if !matches!(node.op, Op::MatMul(_)) {
        return Some(id);
    }
    let (next, add) = cx.sole_reader((*node.outputs.first()?)?)?;
    let is_bias = |place: usize| {
        let n = cx.constant_input(node, 1)?.shape().last().copied()?;
        let bias = cx.constant_input(add, place)?;
        (bias.len() == n && bias.shape().last() == Some(&n)).then_some(())
    };
    (matches!(add.op, Op::Add(_)) && (0..2).any(|place| is_bias(place).is_some())).then_some(next)
}
