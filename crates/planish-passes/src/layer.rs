//! Layers: convolutions and matrix products with constant weights, into which a scale and a shift of their
//! output channels can be folded. Everything is computed in `f64` and rounded once.

use std::ops::Range;

use planish_ir::{Node, ValueId};
use planish_op::{AutoPad, Gemm, Op};
use planish_tensor::{Bytes, DType, Tensor};

use crate::rule::{Operand, Patch};
use crate::view::View;

/// What cannot be: sizes are those of the layer.
const WRONG_SIZE: &str = "the weights do not fit their shape";

/// `y · scale + shift` for each channel.
#[derive(Debug)]
pub(crate) struct Affine {
    pub(crate) scale: Vec<f64>,
    pub(crate) shift: Vec<f64>,
}

impl Affine {
    /// Whether every scale is 1.
    pub(crate) fn only_shifts(&self) -> bool {
        self.scale.iter().all(|&scale| scale == 1.0)
    }

    /// Whether every number is one that weights may hold.
    pub(crate) fn is_finite(&self) -> bool {
        self.scale.iter().chain(&self.shift).all(|number| number.is_finite())
    }
}

/// A convolution or product whose weights (and bias, if any) are constant.
#[derive(Debug)]
pub(crate) struct Layer<'g> {
    node: &'g Node,
    weight_id: ValueId,
    weight: &'g Tensor,
    /// One number per channel; `None` if the layer has no bias.
    bias: Option<Vec<f64>>,
    group: usize,
    n_inputs: usize,
    n_channels: usize,
    /// The rank of the output.
    rank: usize,
}

impl<'g> Layer<'g> {
    /// The layer that a node is; `None` if it is none, an error in words if its weights do not allow folding.
    pub(crate) fn of(cx: &View<'g>, node: &'g Node) -> Option<Result<Layer<'g>, &'static str>> {
        if !matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_)) {
            return None;
        }
        let (weight_id, output) = (cx.input(node, 1)?, (*node.outputs.first()?)?);
        let Some(weight) = cx.constant(weight_id) else { return Some(Err("the weights are not constant")) };
        if !matches!(weight.dtype(), DType::F32 | DType::F64) {
            return Some(Err("weights of less than single precision would be rounded twice"));
        }
        let shape = weight.shape();
        let group = match &node.op {
            Op::Conv(op) => usize::try_from(op.group).ok()?,
            Op::ConvTranspose(op) => usize::try_from(op.group).ok()?,
            _ => 1,
        };
        if group == 0 || shape.first()? % group != 0 {
            return Some(Err("the groups do not divide the weights"));
        }
        let (n_inputs, n_channels) = match (&node.op, shape) {
            (Op::Conv(_), [out, per_group, ..]) => (per_group.checked_mul(group)?, *out),
            (Op::ConvTranspose(_), [n_inputs, per_group, ..]) => (*n_inputs, per_group.checked_mul(group)?),
            (Op::Gemm(op), [n, k]) if op.trans_b => (*k, *n),
            (Op::Gemm(_) | Op::MatMul(_), [k, n]) => (*k, *n),
            _ => return Some(Err("the weights are not a matrix")),
        };
        let bias = match cx.input(node, 2) {
            None => None,
            Some(id) => match cx.constant(id).map(|bias| per_channel(bias, n_channels)) {
                None => return Some(Err("the bias is not constant")),
                Some(None) => return Some(Err("the bias is not one number per channel")),
                Some(bias) => bias,
            },
        };
        let rank = cx.rank(output)?;
        Some(Ok(Layer { node, weight_id, weight, bias, group, n_inputs, n_channels, rank }))
    }

    pub(crate) fn n_channels(&self) -> usize {
        self.n_channels
    }

    /// The channels that it reads.
    pub(crate) fn n_inputs(&self) -> usize {
        self.n_inputs
    }

    pub(crate) fn weight(&self) -> &'g Tensor {
        self.weight
    }

    /// The axis of the output that holds the channels.
    pub(crate) fn channel_axis(&self) -> usize {
        match self.node.op {
            Op::Conv(_) | Op::ConvTranspose(_) => 1,
            _ => self.rank.saturating_sub(1),
        }
    }

    /// Adds the layer with `affine` applied to its output; an error in words if it cannot hold a bias.
    pub(crate) fn scaled(
        &self,
        cx: &View<'_>,
        patch: &mut Patch,
        affine: &Affine,
    ) -> Result<Operand, &'static str> {
        // A sum alone leaves the weights as they are, which may be large and mapped from a file.
        let weights = match affine.only_shifts() {
            true => None,
            false => Some(self.scaled_weights(|channel, _| affine.scale[channel])?),
        };
        let beta = if let Op::Gemm(op) = &self.node.op { f64::from(op.beta) } else { 1.0 };
        let bias = |channel: usize| self.bias.as_ref().map_or(0.0, |bias| beta * bias[channel]);
        let bias = (0..self.n_channels)
            .map(|channel| bias(channel) * affine.scale[channel] + affine.shift[channel])
            .collect();
        let input = self.node.inputs.first().copied().flatten().ok_or("the layer has no input")?;
        self.emit(cx, patch, input.into(), weights, bias)
    }

    /// Adds the layer with `affine` applied to the channels of its input; an error in words if it cannot.
    pub(crate) fn with_scaled_input(
        &self,
        cx: &View<'_>,
        patch: &mut Patch,
        input: impl Into<Operand>,
        affine: &Affine,
    ) -> Result<Operand, &'static str> {
        if affine.scale.len() != self.n_inputs {
            return Err("the layer reads another number of channels");
        }
        match &self.node.op {
            Op::Conv(op) => {
                let is_padded = !matches!(op.auto_pad, AutoPad::NotSet | AutoPad::Valid)
                    || (op.auto_pad == AutoPad::NotSet && op.pads.iter().any(|&pad| pad != 0));
                if is_padded && affine.shift.iter().any(|&shift| shift != 0.0) {
                    return Err("the convolution pads with zeros, which the shift would not reach");
                }
            }
            Op::Gemm(op) if op.trans_a => return Err("the product reads its input transposed"),
            Op::Gemm(_) => {}
            Op::MatMul(_) if self.rank == 2 || affine.shift.iter().all(|&shift| shift == 0.0) => {}
            _ => return Err("only convolutions and products of matrices take over a scale of their input"),
        }
        let weights = Some(self.scaled_weights(|_, input| affine.scale[input])?);
        let (alpha, beta) = match &self.node.op {
            Op::Gemm(op) => (f64::from(op.alpha), f64::from(op.beta)),
            _ => (1.0, 1.0),
        };
        let mut bias: Vec<f64> = match &self.bias {
            Some(bias) => bias.iter().map(|bias| beta * bias).collect(),
            None => vec![0.0; self.n_channels],
        };
        let values = self.weight.to_f64s();
        self.for_each_weight(|idx, channel, input| {
            bias[channel] += alpha * values[idx] * affine.shift[input]
        });
        self.emit(cx, patch, input.into(), weights, bias)
    }

    fn scaled_weights(&self, scale: impl Fn(usize, usize) -> f64) -> Result<Tensor, &'static str> {
        let shape = self.weight.shape();
        let scaled = if let (DType::F32, Ok(values)) = (self.weight.dtype(), self.weight.elements::<f32>()) {
            // Most weights are such, and there may be many: a vector of doubles would be twice their memory.
            let scaled = Bytes::filled(values.len(), |scaled: &mut [f32]| {
                let mut multiply = |run: Range<usize>, scale: f64| {
                    let to = scaled[run.clone()].iter_mut();
                    to.zip(&values[run]).for_each(|(to, &from)| *to = (f64::from(from) * scale) as f32);
                };
                // What has one scale is multiplied at once: all that a channel reads, mostly.
                let (mut run, mut of_run) = (0..0, 1.0f64);
                self.for_each_filter(|taps, channel, input| {
                    let scale = scale(channel, input);
                    if scale.to_bits() != of_run.to_bits() {
                        multiply(run.clone(), of_run);
                        (run.start, of_run) = (taps.start, scale);
                    }
                    run.end = taps.end;
                });
                multiply(run, of_run);
            });
            Tensor::from_bytes(DType::F32, shape, scaled)
        } else {
            let mut values = self.weight.to_f64s();
            self.for_each_weight(|idx, channel, input| values[idx] *= scale(channel, input));
            Tensor::from_f64s(self.weight.dtype(), shape, &values)
        };
        scaled.map_err(|_| WRONG_SIZE)
    }

    /// Calls with the place of each weight, its output channel and its input channel.
    pub(crate) fn for_each_weight(&self, mut visit: impl FnMut(usize, usize, usize)) {
        self.for_each_filter(|taps, output, input| taps.for_each(|idx| visit(idx, output, input)));
    }

    /// Calls, from the first weight to the last, with the places of those between two channels, one for each tap: the
    /// output's and the input's.
    fn for_each_filter(&self, mut visit: impl FnMut(Range<usize>, usize, usize)) {
        let shape = self.weight.shape();
        let (rows, columns) = (shape[0], shape[1]);
        let taps: usize = shape[2..].iter().product();
        let per_group = rows / self.group;
        for row in 0..rows {
            for column in 0..columns {
                let (output, input) = match &self.node.op {
                    Op::Conv(_) => (row, row / per_group * columns + column),
                    Op::ConvTranspose(_) => (row / per_group * columns + column, row),
                    Op::Gemm(op) if op.trans_b => (row, column),
                    _ => (column, row),
                };
                let start = (row * columns + column) * taps;
                visit(start..start + taps, output, input);
            }
        }
    }

    fn emit(
        &self,
        cx: &View<'_>,
        patch: &mut Patch,
        input: Operand,
        weights: Option<Tensor>,
        bias: Vec<f64>,
    ) -> Result<Operand, &'static str> {
        let dtype = self.weight.dtype();
        let has_bias = self.bias.is_some() || bias.iter().any(|&bias| bias != 0.0);
        let op = match &self.node.op {
            Op::Gemm(op) => Op::from(Gemm { beta: 1.0, ..op.clone() }),
            Op::MatMul(_) if has_bias && self.rank == 2 => {
                Op::from(Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: false })
            }
            Op::MatMul(_) if has_bias => return Err("a product of more than two dimensions has no bias"),
            op => op.clone(),
        };
        let weights = match weights {
            None => self.weight_id.into(),
            Some(weights) => patch.constant(cx.name(self.weight_id), weights),
        };
        let mut inputs = vec![Some(input), Some(weights)];
        if has_bias {
            let tensor = Tensor::from_f64s(dtype, &[bias.len()], &bias).map_err(|_| WRONG_SIZE)?;
            let name = match cx.input(self.node, 2) {
                Some(id) => cx.name(id).to_string(),
                None => format!("{}.bias", self.node.name),
            };
            inputs.push(Some(patch.constant(&name, tensor)));
        }
        patch.node_with(&self.node.name, op, inputs, 1).pop().ok_or(WRONG_SIZE)
    }
}

/// The numbers of a constant that holds one per channel, in its last or only axis, or one for all.
fn per_channel(tensor: &Tensor, n_channels: usize) -> Option<Vec<f64>> {
    let rest = tensor.shape().len().saturating_sub(1);
    if tensor.shape().iter().take(rest).any(|&size| size != 1) {
        return None;
    }
    spread(tensor.to_f64s(), n_channels)
}

/// The axis of a tensor of rank `rank` along which a constant that is broadcast over it has its numbers, and
/// these; without an axis if there is one number for all. `None` if there are several such axes, or the
/// constant makes the tensor larger in rank.
pub(crate) fn along(tensor: &Tensor, rank: usize) -> Option<(Option<usize>, Vec<f64>)> {
    let offset = rank.checked_sub(tensor.rank())?;
    let mut axes = tensor.shape().iter().enumerate().filter(|(_, size)| **size != 1).map(|(axis, _)| axis);
    let axis = axes.next();
    axes.next().is_none().then(|| (axis.map(|axis| axis + offset), tensor.to_f64s()))
}

/// One number per channel, from as many or from one.
pub(crate) fn spread(numbers: Vec<f64>, n_channels: usize) -> Option<Vec<f64>> {
    match numbers[..] {
        [one] => Some(vec![one; n_channels]),
        _ => (numbers.len() == n_channels).then_some(numbers),
    }
}
