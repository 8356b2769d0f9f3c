//! Single elements of an output without the rest of it, for checks of problems that are too large to
//! evaluate whole.
//!
//! An operator's definition is not written twice: the inputs are cut to what the element depends on (one row
//! and one column of a product, the window of a convolution, the line of a softmax), and the operator is
//! evaluated on these. Sums run in the same order in the cut as in the whole, so the results are the same to
//! the last bit. Where no cut is known, the whole output is evaluated once and the elements are picked.

mod axes;
mod cut;
mod products;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::VecDeque;

use planish_op::{Op, Value};
use planish_tensor::Tensor;

use crate::{EvalError, EvalErrorKind, Evaluation, evaluate, nd};
use cut::{Cut, CutProblem};

/// Cut problems whose results are kept for the next points: points near each other are often in the same group, and a
/// group may have a million elements.
const MAX_PARTS: usize = 4;

/// The elements of output number `output` at `points` (coordinates along each axis), as `f64`: exact but for
/// 64-bit integers beyond 2^53.
///
/// What refuses the whole evaluation because of other elements (an integer divided by zero elsewhere) need
/// not be noticed.
pub fn evaluate_at(
    op: &Op,
    inputs: &[Option<&Value>],
    n_outputs: usize,
    output: usize,
    points: &[Vec<usize>],
) -> Result<Vec<f64>, EvalError> {
    let cx = &Evaluation::new(op.name(), inputs, n_outputs);
    let mut whole: Option<Made> = None;
    let mut parts: VecDeque<(CutProblem, Made)> = VecDeque::new();
    let make = |op: &Op, inputs: &[Option<&Value>]| {
        let outputs = evaluate(op, inputs, n_outputs)?;
        let tensor = tensor_of(cx, &outputs, output)?;
        Ok::<Made, EvalError>(Made { shape: tensor.shape().to_vec(), values: tensor.to_f64s() })
    };
    let one = |point: &Vec<usize>| {
        let Some(Cut { problem, place }) = cut(op, cx, output, point) else {
            if whole.is_none() {
                whole = Some(make(op, inputs)?);
            }
            return whole.as_ref().map_or(Ok(0.0), |whole| whole.element(cx, point));
        };
        if let Some((_, made)) = parts.iter().find(|(known, _)| *known == problem) {
            return made.element(cx, &place);
        }
        let inputs = problem.inputs(cx)?;
        let inputs: Vec<Option<&Value>> = inputs.iter().map(Option::as_ref).collect();
        let made = make(&problem.op, &inputs)?;
        let element = made.element(cx, &place);
        parts.truncate(MAX_PARTS - 1);
        parts.push_front((problem, made));
        element
    };
    points.iter().map(one).collect()
}

/// An output that was evaluated.
struct Made {
    shape: Vec<usize>,
    values: Vec<f64>,
}

impl Made {
    fn element(&self, cx: &Evaluation<'_>, point: &[usize]) -> Result<f64, EvalError> {
        let shape = &self.shape;
        let found = cut::within(point, shape).and_then(|()| self.values.get(nd::ravel(point, shape)));
        found.copied().ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("there is no point {point:?} in the shape {shape:?}"))
        })
    }
}

fn tensor_of<'a>(cx: &Evaluation<'_>, outputs: &'a [Value], output: usize) -> Result<&'a Tensor, EvalError> {
    outputs.get(output).and_then(Value::as_tensor).ok_or_else(|| {
        cx.error(EvalErrorKind::BadValue, format!("output {output} is not computed, or not a tensor"))
    })
}

/// The smaller problem that has the element of `output` at `point` in it. `None` where the whole must be
/// evaluated, also because something is wrong with the inputs or the point: the refusal is then that of the
/// whole.
fn cut(op: &Op, cx: &Evaluation<'_>, output: usize, point: &[usize]) -> Option<Cut> {
    let is_first = output == 0;
    match op {
        Op::Abs(_)
        | Op::Acos(_)
        | Op::Acosh(_)
        | Op::Asin(_)
        | Op::Asinh(_)
        | Op::Atan(_)
        | Op::Atanh(_)
        | Op::Ceil(_)
        | Op::Cos(_)
        | Op::Cosh(_)
        | Op::Erf(_)
        | Op::Exp(_)
        | Op::Floor(_)
        | Op::Log(_)
        | Op::Neg(_)
        | Op::Reciprocal(_)
        | Op::Round(_)
        | Op::Sigmoid(_)
        | Op::Sign(_)
        | Op::Sin(_)
        | Op::Sinh(_)
        | Op::Sqrt(_)
        | Op::Tan(_)
        | Op::Tanh(_)
        | Op::Not(_)
        | Op::BitwiseNot(_)
        | Op::IsNaN(_)
        | Op::IsInf(_)
        | Op::Identity(_)
        | Op::Relu(_)
        | Op::LeakyRelu(_)
        | Op::Elu(_)
        | Op::Selu(_)
        | Op::Celu(_)
        | Op::Gelu(_)
        | Op::HardSigmoid(_)
        | Op::HardSwish(_)
        | Op::Mish(_)
        | Op::Softplus(_)
        | Op::Softsign(_)
        | Op::Swish(_)
        | Op::Shrink(_)
        | Op::ThresholdedRelu(_)
        | Op::Clip(_)
        | Op::PRelu(_)
        | Op::Add(_)
        | Op::Sub(_)
        | Op::Mul(_)
        | Op::Div(_)
        | Op::Pow(_)
        | Op::Mod(_)
        | Op::Min(_)
        | Op::Max(_)
        | Op::Sum(_)
        | Op::Mean(_)
        | Op::Equal(_)
        | Op::Greater(_)
        | Op::GreaterOrEqual(_)
        | Op::Less(_)
        | Op::LessOrEqual(_)
        | Op::And(_)
        | Op::Or(_)
        | Op::Xor(_)
        | Op::BitwiseAnd(_)
        | Op::BitwiseOr(_)
        | Op::BitwiseXor(_)
        | Op::BitShift(_)
        | Op::Where(_)
        | Op::Cast(_) => cut::elementwise(op, cx, point),

        Op::MatMul(_) => products::matmul(op, cx, point),
        Op::MatMulInteger(_) => products::matmul_integer(op, cx, point),
        Op::QLinearMatMul(_) => products::qlinear_matmul(op, cx, point),
        Op::Gemm(gemm) => products::gemm(gemm, cx, point),

        Op::Conv(op) => windows::conv(op, cx, point),
        Op::ConvInteger(op) => windows::conv_integer(op, cx, point),
        Op::QLinearConv(op) => windows::qlinear_conv(op, cx, point),
        Op::ConvTranspose(op) => windows::conv_transpose(op, cx, point),
        Op::AveragePool(_)
        | Op::LpPool(_)
        | Op::GlobalAveragePool(_)
        | Op::GlobalMaxPool(_)
        | Op::GlobalLpPool(_) => windows::plane(op, cx, point),
        // The second output counts places through the whole tensor.
        Op::MaxPool(_) => is_first.then(|| windows::plane(op, cx, point))?,

        Op::ReduceL1(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceL2(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceLogSum(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceLogSumExp(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceMax(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceMean(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceMin(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceProd(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceSum(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ReduceSumSquare(o) => axes::reduce(op, o.noop_with_empty_axes, o.keepdims, cx, point),
        Op::ArgMax(o) => axes::arg(op, o.axis, o.keepdims, cx, point),
        Op::ArgMin(o) => axes::arg(op, o.axis, o.keepdims, cx, point),
        Op::CumSum(_) | Op::CumProd(_) => axes::scan(op, cx, point),
        Op::Softmax(o) => axes::line(op, o.axis, cx, point),
        Op::LogSoftmax(o) => axes::line(op, o.axis, cx, point),
        Op::Hardmax(o) => axes::line(op, o.axis, cx, point),
        Op::LpNormalization(o) => axes::line(op, o.axis, cx, point),
        Op::LRN(_) => axes::line(op, 1, cx, point),
        Op::MeanVarianceNormalization(o) => axes::mean_variance(o, cx, point),
        Op::LayerNormalization(o) => axes::layer(op, o.axis, output, cx, point),
        Op::RMSNormalization(o) => axes::layer(op, o.axis, output, cx, point),
        Op::BatchNormalization(o) => (!o.training_mode).then(|| axes::batch_norm(op, cx, point))?,
        Op::InstanceNormalization(_) => axes::instance_norm(op, cx, point),
        Op::GroupNormalization(o) => axes::group_norm(o, cx, point),

        // Conversions with parameters, and data movement: the whole costs little more than reading it.
        Op::BitCast(_)
        | Op::QuantizeLinear(_)
        | Op::DequantizeLinear(_)
        | Op::DynamicQuantizeLinear(_)
        | Op::Shape(_)
        | Op::Size(_)
        | Op::Reshape(_)
        | Op::Flatten(_)
        | Op::Squeeze(_)
        | Op::Unsqueeze(_)
        | Op::Transpose(_)
        | Op::Expand(_)
        | Op::Tile(_)
        | Op::Concat(_)
        | Op::Split(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::CenterCropPad(_)
        | Op::DepthToSpace(_)
        | Op::SpaceToDepth(_)
        | Op::Trilu(_)
        | Op::ReverseSequence(_)
        | Op::ConstantOfShape(_)
        | Op::Range(_)
        | Op::EyeLike(_)
        | Op::Gather(_)
        | Op::GatherElements(_)
        | Op::GatherND(_)
        | Op::ScatterElements(_)
        | Op::ScatterND(_)
        | Op::TensorScatter(_)
        | Op::OneHot(_)
        | Op::Compress(_)
        | Op::NonZero(_)
        | Op::Unique(_)
        | Op::TopK(_)
        | Op::TfIdfVectorizer(_)
        | Op::SequenceAt(_)
        | Op::SequenceConstruct(_)
        | Op::SequenceEmpty(_)
        | Op::SequenceErase(_)
        | Op::SequenceInsert(_)
        | Op::SequenceLength(_)
        | Op::ConcatFromSequence(_)
        | Op::SplitToSequence(_)
        | Op::Optional(_)
        | Op::OptionalGetElement(_)
        | Op::OptionalHasElement(_) => None,

        // Every element depends on most of the inputs, or on positions that only the operator knows.
        Op::Einsum(_)
        | Op::Det(_)
        | Op::Inverse(_)
        | Op::DeformConv(_)
        | Op::CausalConvWithState(_)
        | Op::Col2Im(_)
        | Op::MaxUnpool(_)
        | Op::MaxRoiPool(_)
        | Op::RoiAlign(_)
        | Op::NegativeLogLikelihoodLoss(_)
        | Op::SoftmaxCrossEntropyLoss(_)
        | Op::RNN(_)
        | Op::GRU(_)
        | Op::LSTM(_)
        | Op::Attention(_)
        | Op::LinearAttention(_)
        | Op::RotaryEmbedding(_)
        | Op::Resize(_)
        | Op::GridSample(_)
        | Op::AffineGrid(_)
        | Op::CropAndResize(_)
        | Op::NonMaxSuppression(_)
        | Op::DFT(_)
        | Op::STFT(_)
        | Op::BlackmanWindow(_)
        | Op::HammingWindow(_)
        | Op::HannWindow(_)
        | Op::MelWeightMatrix(_)
        | Op::RandomNormal(_)
        | Op::RandomNormalLike(_)
        | Op::RandomUniform(_)
        | Op::RandomUniformLike(_)
        | Op::Bernoulli(_)
        | Op::Multinomial(_)
        | Op::Dropout(_) => None,

        // Refused by the evaluation of the whole.
        Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) | Op::Custom(_) => None,
    }
}
