//! Quantization as graphs say it: QuantizeLinear and DequantizeLinear with one scale and zero point for a whole tensor. Floats
//! of 8 bits (E4M3) are quantized in the same way, around zero; where nothing else is said they count as integers.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::window::WindowAttributes;
use planish_op::{Conv, DequantizeLinear, Op, QuantizeLinear, ResizeCoordinates, ResizeMode};
use planish_tensor::{DType, Tensor};

use crate::rule::{Operand, Patch};
use crate::view::View;

/// What the integers of a tensor stand for: `(integer - zero_point) · scale`. The scale is positive and normal, so that
/// equal integers come back from the numbers that they stand for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Quantization {
    /// `u8`, `i8` or `f8e4m3fn`.
    pub(crate) dtype: DType,
    pub(crate) scale: f32,
    pub(crate) zero_point: i64,
}

/// The largest scale of a factor whose numbers are multiplied and summed up in f32: `(255 · 1e14)²` is 6.5e32, which
/// leaves room for half a million terms.
const MOST_OF_A_SCALE: f64 = 1e14;
/// The smallest scale of a result that such a sum is divided by: numbers that count then are far from those that f32 loses.
const LEAST_OF_A_SCALE: f64 = 1e-30;

/// Whether the numbers that integers of 8 bits stand for by a scale can be multiplied and summed up in f32. Operators on
/// integers multiply exact sums by all scales at once: where a scale alone leaves f32, their result need not. What a run
/// brings is taken to be usual.
pub(crate) fn can_be_multiplied(cx: &View<'_>, scale: ValueId) -> bool {
    cx.constant(scale).is_none_or(|scale| scale.to_f64s().iter().all(|scale| scale.abs() <= MOST_OF_A_SCALE))
}

/// Whether a sum of such products can be divided by a scale.
pub(crate) fn can_be_divided_by(cx: &View<'_>, scale: ValueId) -> bool {
    let is_usual = |scale: &f64| *scale == 0.0 || scale.abs() >= LEAST_OF_A_SCALE;
    cx.constant(scale).is_none_or(|scale| scale.to_f64s().iter().all(is_usual))
}

/// The smallest and the largest integer of a type of 8 bits.
pub(crate) fn ends(dtype: DType) -> [i64; 2] {
    if dtype == DType::U8 { [0, 255] } else { [-128, 127] }
}

pub(crate) fn is_int8(dtype: Option<DType>) -> bool {
    matches!(dtype, Some(DType::U8 | DType::I8))
}

/// Types that are multiplied in 8 bits.
pub(crate) fn is_byte(dtype: Option<DType>) -> bool {
    is_int8(dtype) || dtype == Some(DType::F8E4M3FN)
}

/// Types of integers that weights alone may be stored in.
pub(crate) fn is_small_int(dtype: Option<DType>) -> bool {
    is_int8(dtype) || matches!(dtype, Some(DType::U4 | DType::I4))
}

impl Quantization {
    /// How a QuantizeLinear rounds; `None` unless it is from f32 to 8 bits with constants for the whole tensor.
    pub(crate) fn by_quantize(cx: &View<'_>, node: &Node) -> Option<Quantization> {
        let (Op::QuantizeLinear(op), Some(x), &[Some(y)]) = (&node.op, cx.input(node, 0), &node.outputs[..])
        else {
            return None;
        };
        let is_plain = op.block_size == 0
            && (op.saturate || is_int8(cx.dtype(y)))
            && op.precision.is_none_or(|dtype| dtype == DType::F32)
            && cx.dtype(x) == Some(DType::F32);
        is_plain.then(|| Quantization::of(cx, node, cx.dtype(y)?)).flatten()
    }

    /// What a DequantizeLinear reads; `None` unless it is from 8 bits to f32 with constants for the whole tensor.
    pub(crate) fn by_dequantize(cx: &View<'_>, node: &Node) -> Option<Quantization> {
        let (Op::DequantizeLinear(op), Some(x), &[Some(y)]) =
            (&node.op, cx.input(node, 0), &node.outputs[..])
        else {
            return None;
        };
        let is_plain = op.block_size == 0 && cx.dtype(y) == Some(DType::F32);
        is_plain.then(|| Quantization::of(cx, node, cx.dtype(x)?)).flatten()
    }

    fn of(cx: &View<'_>, node: &Node, dtype: DType) -> Option<Quantization> {
        let scale = cx.constant_input(node, 1).filter(|scale| scale.dtype() == DType::F32)?;
        let &[scale] = &scale.elements::<f32>().ok()?[..] else { return None };
        let zero_point = match cx.input(node, 2) {
            Some(id) if dtype.is_float() => cx.splat(id).filter(|zero| *zero == 0.0).map(|_| 0)?,
            Some(_) => cx.number_input(node, 2)?,
            None => 0,
        };
        let is_usable = is_byte(Some(dtype)) && scale.is_normal() && scale > 0.0;
        is_usable.then_some(Quantization { dtype, scale, zero_point })
    }

    /// The integer of a number, as QuantizeLinear rounds; not of floats of 8 bits.
    pub(crate) fn integer(&self, value: f32) -> i64 {
        let [low, high] = ends(self.dtype);
        let rounded = f64::from(value / self.scale).round_ties_even() + self.zero_point as f64;
        // NaN is the smallest integer.
        if rounded.is_nan() { low } else { rounded.clamp(low as f64, high as f64) as i64 }
    }

    /// The number that an integer stands for, as DequantizeLinear computes it.
    pub(crate) fn number(&self, integer: i64) -> f32 {
        ((integer - self.zero_point) as f64 * f64::from(self.scale)) as f32
    }

    /// The same numbers by integers of the other type.
    pub(crate) fn renamed(self, to: DType) -> Quantization {
        let zero_point = self.zero_point + ends(to)[0] - ends(self.dtype)[0];
        Quantization { dtype: to, zero_point, ..self }
    }

    /// A zero point or padding as the type has it.
    pub(crate) fn scalar(&self, integer: i64) -> Tensor {
        match self.dtype {
            DType::U8 => Tensor::scalar(integer as u8),
            DType::I8 => Tensor::scalar(integer as i8),
            dtype => Tensor::from_f64s(dtype, &[], &[integer as f64]).expect("one number is a scalar"),
        }
    }

    /// Adds a QuantizeLinear of `x`.
    pub(crate) fn quantize(&self, patch: &mut Patch, name: &str, x: Operand) -> Operand {
        let parameters = self.parameters(patch, name);
        let op =
            QuantizeLinear { precision: None, output_dtype: None, block_size: 0, saturate: true, axis: 1 };
        patch.node(name, op, &[x, parameters[0], parameters[1]])
    }

    /// Adds a DequantizeLinear of `x`.
    pub(crate) fn dequantize(&self, patch: &mut Patch, name: &str, x: Operand) -> Operand {
        let parameters = self.parameters(patch, name);
        let op = DequantizeLinear { output_dtype: None, block_size: 0, axis: 1 };
        patch.node(name, op, &[x, parameters[0], parameters[1]])
    }

    fn parameters(&self, patch: &mut Patch, name: &str) -> [Operand; 2] {
        let scale = patch.constant(&format!("{name}.scale"), Tensor::scalar(self.scale));
        let zero_point = patch.constant(&format!("{name}.zero_point"), self.scalar(self.zero_point));
        [scale, zero_point]
    }
}

/// The DequantizeLinear that makes a value, and what it reads.
pub(crate) fn dequantize_of<'g>(cx: &View<'g>, id: ValueId) -> Option<(NodeId, &'g Node, Quantization)> {
    let (maker, node) = cx.producer(id)?;
    Some((maker, node, Quantization::by_dequantize(cx, node)?))
}

/// The inputs of an operator whose elements its output consists of, whichever they are: it works on integers as well as
/// on the numbers that they stand for, if these keep their order. `None` for other operators.
pub(crate) fn moved_inputs(node: &Node) -> Option<std::ops::Range<usize>> {
    if node.outputs.len() != 1 {
        return None;
    }
    match &node.op {
        Op::Concat(_) => Some(0..node.inputs.len()),
        Op::Resize(op) => {
            let crops = op.coordinate_transformation_mode == ResizeCoordinates::TfCropAndResize;
            (op.mode == ResizeMode::Nearest && !crops).then_some(0..1)
        }
        Op::MaxPool(_)
        | Op::Reshape(_)
        | Op::Flatten(_)
        | Op::Squeeze(_)
        | Op::Unsqueeze(_)
        | Op::Transpose(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::DepthToSpace(_)
        | Op::SpaceToDepth(_) => Some(0..1),
        _ => None,
    }
}

/// The same where what is moved is of this type: floats of 8 bits have no order as bytes, and no kernels but copies.
pub(crate) fn moved_inputs_of(node: &Node, dtype: DType) -> Option<std::ops::Range<usize>> {
    let copies = !matches!(node.op, Op::MaxPool(_) | Op::Resize(_));
    moved_inputs(node).filter(|_| copies || !dtype.is_float())
}

/// The convolution of numbers with the windows of one of integers.
pub(crate) fn conv_of_numbers(window: WindowAttributes<'_>, group: i64) -> Conv {
    Conv {
        group,
        pads: window.pads.to_vec(),
        strides: window.strides.to_vec(),
        dilations: window.dilations.to_vec(),
        kernel_shape: window.kernel_shape.map(<[i64]>::to_vec),
        auto_pad: window.auto_pad,
    }
}

/// Whether a node is a layer with weights: a convolution or a matrix product, whose second factor they are.
pub(crate) fn is_product(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_))
}

/// Whether both factors of a product come from integers of 8 bits, or both from floats of 8 bits, so that it can be computed
/// in them.
pub(crate) fn multiplies_integers(cx: &View<'_>, node: &Node) -> bool {
    factor_type(cx, node).is_some()
}

/// What such a product multiplies.
pub(crate) fn factor_type(cx: &View<'_>, node: &Node) -> Option<FactorType> {
    let stored = |place: usize| {
        let (_, maker) = cx.producer(cx.input(node, place)?)?;
        let dtype = cx.input(maker, 0).and_then(|id| cx.dtype(id));
        match maker.op {
            Op::DequantizeLinear(_) if is_int8(dtype) => Some(FactorType::Integers),
            Op::DequantizeLinear(_) if is_byte(dtype) => Some(FactorType::Floats),
            _ => None,
        }
    };
    is_product(&node.op).then(|| stored(0).filter(|own| stored(1) == Some(*own))).flatten()
}

/// What both factors of a product of 8 bits are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FactorType {
    Integers,
    /// E4M3.
    Floats,
}

/// Whether kernels read this operand of a node as the integers that it is dequantized from.
pub(crate) fn keeps_integers(cx: &View<'_>, node: &Node, operand: ValueId) -> bool {
    let is_at = |place: usize| cx.input(node, place) == Some(operand);
    (is_at(1) && (multiplies_integers(cx, node) || weighs_integers(cx, node)))
        || ((is_at(1) || is_at(2)) && weighs_recurrent(cx, node))
}

/// Whether both weights of a recurrent layer come from bytes, with a scale for each direction and row.
pub(crate) fn weighs_recurrent(cx: &View<'_>, node: &Node) -> bool {
    let is_layer = match &node.op {
        Op::LSTM(_) => true,
        Op::GRU(gru) => gru.linear_before_reset,
        _ => false,
    };
    let is_stored = |place: usize| {
        let (_, maker) = cx.input(node, place).and_then(|id| cx.producer(id))?;
        let Op::DequantizeLinear(op) = &maker.op else { return None };
        let weight = cx.constant_input(maker, 0).filter(|weight| is_int8(Some(weight.dtype())))?;
        let &[dirs, rows, k] = weight.shape() else { return None };
        let scale = cx.constant_input(maker, 1)?;
        let by_rows =
            op.block_size == k as i64 && matches!(op.axis, 2 | -1) && scale.shape() == [dirs, rows, 1];
        by_rows.then_some(())
    };
    is_layer && is_stored(1).is_some() && is_stored(2).is_some()
}

/// Whether a matrix product's second factor alone comes from small integers, with a scale for each column or for blocks
/// of each: kernels read them as they are.
pub(crate) fn weighs_integers(cx: &View<'_>, node: &Node) -> bool {
    let is_matrix = matches!(node.op, Op::Gemm(_) | Op::MatMul(_));
    let maker = |place: usize| cx.input(node, place).and_then(|id| cx.producer(id)).map(|(_, maker)| maker);
    let (a, Some(b)) = (maker(0), maker(1)) else { return false };
    let is_dequantized = |maker: &Node| matches!(maker.op, Op::DequantizeLinear(_));
    let is_stored = is_small_int(cx.input(b, 0).and_then(|id| cx.dtype(id)))
        && cx.constant_input(b, 0).is_some_and(|weight| weight.rank() == 2)
        && cx.constant_input(b, 1).is_some_and(|scale| scale.len() > 1);
    is_matrix && is_dequantized(b) && is_stored && !a.is_some_and(is_dequantized)
}
