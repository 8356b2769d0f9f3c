//! Every operator as a slow, obvious, exact function from attributes and tensors to tensors.
//!
//! This is the definition that everything else is measured against: the oracle of kernel tests, the
//! constant folder, and the last tactic of every operator. Floating-point results are computed in `f64`
//! and rounded once to the output's type; integers wrap as two's complement does.
//!
//! There is one module per family of operators, in the order of the table in `planish-op`. What they share:
//!
//! - `context`: what a function sees (inputs, element types, axes) and its typed refusals;
//! - [`nd`]: index arithmetic, broadcasting, the parallel loops, and whether a result fits memory;
//! - `cells`: moving elements of any width without looking at them;
//! - `number`: single elements, or all of a tensor, as exact wide numbers (`f64`, `i128`), for whatever is
//!   computed element by element or reduced;
//! - `scalar`: the arithmetic of sums of products, `f64` or an integer type's own, and `product`: matrix
//!   products in it;
//! - `points`: single elements of an output without the rest of it.

mod attention;
mod cells;
mod context;
mod conv;
mod convert;
mod image;
mod index;
mod layout;
mod linear;
pub mod nd;
mod normalize;
mod number;
mod points;
mod pointwise;
mod pool;
mod product;
mod random;
mod recurrent;
mod reduce;
mod scalar;
mod sequence;
mod signal;
#[cfg(test)]
mod testing;

pub use context::{EvalError, EvalErrorKind, EvalResult, Evaluation};
pub use points::evaluate_at;

use std::cmp::Ordering::{Equal, Greater, Less};

use planish_op::{GeluApproximation, Op, Value};

use pointwise::real;
use reduce::{Extreme, Reduction, ScanForm};

/// The outputs of `op` on these inputs (`None` where an optional input is absent), `n_outputs` of them.
///
/// Control flow is not evaluated here: its bodies belong to a graph (`planish_ir::interpret`).
pub fn evaluate(op: &Op, inputs: &[Option<&Value>], n_outputs: usize) -> EvalResult {
    evaluate_within(op, inputs, n_outputs, usize::MAX)
}

/// Like [`evaluate`], with outputs of more than `max_bytes` refused ([`EvalErrorKind::Limit`]) before they are made.
pub fn evaluate_within(op: &Op, inputs: &[Option<&Value>], n_outputs: usize, max_bytes: usize) -> EvalResult {
    let cx = &Evaluation::new(op.name(), inputs, n_outputs).within(max_bytes);
    match op {
        // Pointwise arithmetic, comparison, logic and activations.
        Op::Abs(_) => pointwise::unary(cx, f64::abs, i128::abs),
        Op::Acos(_) => pointwise::real_unary(cx, f64::acos),
        Op::Acosh(_) => pointwise::real_unary(cx, real::acosh),
        Op::Asin(_) => pointwise::real_unary(cx, f64::asin),
        Op::Asinh(_) => pointwise::real_unary(cx, f64::asinh),
        Op::Atan(_) => pointwise::real_unary(cx, f64::atan),
        Op::Atanh(_) => pointwise::real_unary(cx, f64::atanh),
        Op::Ceil(_) => pointwise::real_unary(cx, f64::ceil),
        Op::Cos(_) => pointwise::real_unary(cx, f64::cos),
        Op::Cosh(_) => pointwise::real_unary(cx, f64::cosh),
        Op::Erf(_) => pointwise::real_unary(cx, pointwise::erf),
        Op::Exp(_) => pointwise::real_unary(cx, f64::exp),
        Op::Floor(_) => pointwise::real_unary(cx, f64::floor),
        Op::Log(_) => pointwise::real_unary(cx, f64::ln),
        Op::Neg(_) => pointwise::unary(cx, |x| -x, |x| -x),
        Op::Reciprocal(_) => pointwise::real_unary(cx, f64::recip),
        Op::Round(_) => pointwise::real_unary(cx, f64::round_ties_even),
        Op::Sigmoid(_) => pointwise::real_unary(cx, real::sigmoid),
        Op::Sign(_) => pointwise::unary(cx, real::sign, i128::signum),
        Op::Sin(_) => pointwise::real_unary(cx, f64::sin),
        Op::Sinh(_) => pointwise::real_unary(cx, f64::sinh),
        Op::Sqrt(_) => pointwise::real_unary(cx, f64::sqrt),
        Op::Tan(_) => pointwise::real_unary(cx, f64::tan),
        Op::Tanh(_) => pointwise::real_unary(cx, f64::tanh),
        Op::Not(_) => pointwise::not(cx),
        Op::BitwiseNot(_) => pointwise::bitwise_not(cx),
        Op::IsNaN(_) => pointwise::is_nan(cx),
        Op::IsInf(op) => pointwise::is_inf(op, cx),
        Op::Identity(_) => pointwise::identity(cx),
        Op::Relu(_) => pointwise::unary(cx, real::relu, |x| x.max(0)),
        Op::LeakyRelu(op) => pointwise::real_unary(cx, |x| real::leaky_relu(x, op.alpha.into())),
        Op::Elu(op) => pointwise::real_unary(cx, |x| real::elu(x, op.alpha.into())),
        Op::Selu(op) => pointwise::real_unary(cx, |x| real::selu(x, op.alpha.into(), op.gamma.into())),
        Op::Celu(op) => pointwise::real_unary(cx, |x| real::celu(x, op.alpha.into())),
        Op::Gelu(op) => match op.approximate {
            GeluApproximation::None => pointwise::real_unary(cx, real::gelu),
            GeluApproximation::Tanh => pointwise::real_unary(cx, real::gelu_tanh),
        },
        Op::HardSigmoid(op) => {
            pointwise::real_unary(cx, |x| real::hard_sigmoid(x, op.alpha.into(), op.beta.into()))
        }
        Op::HardSwish(_) => pointwise::real_unary(cx, real::hard_swish),
        Op::Mish(_) => pointwise::real_unary(cx, real::mish),
        Op::Softplus(_) => pointwise::real_unary(cx, real::softplus),
        Op::Softsign(_) => pointwise::real_unary(cx, real::softsign),
        Op::Swish(op) => pointwise::real_unary(cx, |x| real::swish(x, op.alpha.into())),
        Op::Shrink(op) => pointwise::shrink(op, cx),
        Op::ThresholdedRelu(op) => pointwise::real_unary(cx, |x| real::thresholded_relu(x, op.alpha.into())),
        Op::Clip(_) => pointwise::clip(cx),
        Op::PRelu(_) => pointwise::prelu(cx),
        Op::Add(_) => pointwise::binary(cx, |a, b| a + b, |a, b| a + b),
        Op::Sub(_) => pointwise::binary(cx, |a, b| a - b, |a, b| a - b),
        Op::Mul(_) => pointwise::binary(cx, |a, b| a * b, i128::wrapping_mul),
        Op::Div(_) => pointwise::div(cx),
        Op::Pow(_) => pointwise::pow(cx),
        Op::Mod(op) => pointwise::mod_(op, cx),
        Op::Min(_) => pointwise::extreme(cx, real::min, i128::min),
        Op::Max(_) => pointwise::extreme(cx, real::max, i128::max),
        Op::Sum(_) => pointwise::sum(cx),
        Op::Mean(_) => pointwise::mean(cx),
        Op::Equal(_) => pointwise::compare(cx, |order| order == Some(Equal)),
        Op::Greater(_) => pointwise::compare(cx, |order| order == Some(Greater)),
        Op::GreaterOrEqual(_) => pointwise::compare(cx, |order| matches!(order, Some(Greater | Equal))),
        Op::Less(_) => pointwise::compare(cx, |order| order == Some(Less)),
        Op::LessOrEqual(_) => pointwise::compare(cx, |order| matches!(order, Some(Less | Equal))),
        Op::And(_) => pointwise::logic(cx, |a, b| a && b),
        Op::Or(_) => pointwise::logic(cx, |a, b| a || b),
        Op::Xor(_) => pointwise::logic(cx, |a, b| a != b),
        Op::BitwiseAnd(_) => pointwise::bitwise(cx, |a, b| a & b),
        Op::BitwiseOr(_) => pointwise::bitwise(cx, |a, b| a | b),
        Op::BitwiseXor(_) => pointwise::bitwise(cx, |a, b| a ^ b),
        Op::BitShift(op) => pointwise::bit_shift(op, cx),
        Op::Where(_) => pointwise::where_(cx),

        // Conversions between element types and quantization.
        Op::Cast(op) => convert::cast(op, cx),
        Op::BitCast(op) => convert::bit_cast(op, cx),
        Op::QuantizeLinear(op) => convert::quantize_linear(op, cx),
        Op::DequantizeLinear(op) => convert::dequantize_linear(op, cx),
        Op::DynamicQuantizeLinear(op) => convert::dynamic_quantize_linear(op, cx),
        Op::QLinearMatMul(op) => convert::qlinear_matmul(op, cx),
        Op::QLinearConv(op) => convert::qlinear_conv(op, cx),
        Op::MatMulInteger(op) => convert::matmul_integer(op, cx),
        Op::ConvInteger(op) => convert::conv_integer(op, cx),

        // Matrix products and small linear algebra.
        Op::MatMul(op) => linear::matmul(op, cx),
        Op::Gemm(op) => linear::gemm(op, cx),
        Op::Einsum(op) => linear::einsum(op, cx),
        Op::Det(op) => linear::det(op, cx),
        Op::Inverse(op) => linear::inverse(op, cx),

        // Convolutions.
        Op::Conv(op) => conv::conv(op, cx),
        Op::ConvTranspose(op) => conv::conv_transpose(op, cx),
        Op::DeformConv(op) => conv::deform_conv(op, cx),
        Op::CausalConvWithState(op) => conv::causal_conv_with_state(op, cx),
        Op::Col2Im(op) => conv::col2im(op, cx),

        // Pooling and regions of interest.
        Op::AveragePool(op) => pool::average_pool(op, cx),
        Op::MaxPool(op) => pool::max_pool(op, cx),
        Op::LpPool(op) => pool::lp_pool(op, cx),
        Op::GlobalAveragePool(op) => pool::global_average_pool(op, cx),
        Op::GlobalMaxPool(op) => pool::global_max_pool(op, cx),
        Op::GlobalLpPool(op) => pool::global_lp_pool(op, cx),
        Op::MaxUnpool(op) => pool::max_unpool(op, cx),
        Op::MaxRoiPool(op) => pool::max_roi_pool(op, cx),
        Op::RoiAlign(op) => pool::roi_align(op, cx),

        // Shape changes and data movement.
        Op::Shape(op) => layout::shape(op, cx),
        Op::Size(op) => layout::size(op, cx),
        Op::Reshape(op) => layout::reshape(op, cx),
        Op::Flatten(op) => layout::flatten(op, cx),
        Op::Squeeze(op) => layout::squeeze(op, cx),
        Op::Unsqueeze(op) => layout::unsqueeze(op, cx),
        Op::Transpose(op) => layout::transpose(op, cx),
        Op::Expand(op) => layout::expand(op, cx),
        Op::Tile(op) => layout::tile(op, cx),
        Op::Concat(op) => layout::concat(op, cx),
        Op::Split(op) => layout::split(op, cx),
        Op::Slice(op) => layout::slice(op, cx),
        Op::Pad(op) => layout::pad(op, cx),
        Op::CenterCropPad(op) => layout::center_crop_pad(op, cx),
        Op::DepthToSpace(op) => layout::depth_to_space(op, cx),
        Op::SpaceToDepth(op) => layout::space_to_depth(op, cx),
        Op::Trilu(op) => layout::trilu(op, cx),
        Op::ReverseSequence(op) => layout::reverse_sequence(op, cx),
        Op::ConstantOfShape(op) => layout::constant_of_shape(op, cx),
        Op::Range(op) => layout::range(op, cx),
        Op::EyeLike(op) => layout::eye_like(op, cx),

        // Gathering, scattering, searching.
        Op::Gather(op) => index::gather(op, cx),
        Op::GatherElements(op) => index::gather_elements(op, cx),
        Op::GatherND(op) => index::gather_nd(op, cx),
        Op::ScatterElements(op) => index::scatter_elements(op, cx),
        Op::ScatterND(op) => index::scatter_nd(op, cx),
        Op::TensorScatter(op) => index::tensor_scatter(op, cx),
        Op::OneHot(op) => index::one_hot(op, cx),
        Op::Compress(op) => index::compress(op, cx),
        Op::NonZero(op) => index::non_zero(op, cx),
        Op::Unique(op) => index::unique(op, cx),
        Op::TopK(op) => index::topk(op, cx),
        Op::TfIdfVectorizer(op) => index::tfidf_vectorizer(op, cx),

        // Sequences and optionals.
        Op::SequenceAt(op) => sequence::sequence_at(op, cx),
        Op::SequenceConstruct(op) => sequence::sequence_construct(op, cx),
        Op::SequenceEmpty(op) => sequence::sequence_empty(op, cx),
        Op::SequenceErase(op) => sequence::sequence_erase(op, cx),
        Op::SequenceInsert(op) => sequence::sequence_insert(op, cx),
        Op::SequenceLength(op) => sequence::sequence_length(op, cx),
        Op::ConcatFromSequence(op) => sequence::concat_from_sequence(op, cx),
        Op::SplitToSequence(op) => sequence::split_to_sequence(op, cx),
        Op::Optional(op) => sequence::optional(op, cx),
        Op::OptionalGetElement(op) => sequence::optional_get_element(op, cx),
        Op::OptionalHasElement(op) => sequence::optional_has_element(op, cx),

        // Reductions and scans along axes.
        Op::ReduceL1(op) => reduce::reduce(Reduction::L1, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceL2(op) => reduce::reduce(Reduction::L2, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceLogSum(op) => reduce::reduce(Reduction::LogSum, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceLogSumExp(op) => {
            reduce::reduce(Reduction::LogSumExp, op.noop_with_empty_axes, op.keepdims, cx)
        }
        Op::ReduceMax(op) => reduce::reduce(Reduction::Max, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceMean(op) => reduce::reduce(Reduction::Mean, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceMin(op) => reduce::reduce(Reduction::Min, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceProd(op) => reduce::reduce(Reduction::Prod, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceSum(op) => reduce::reduce(Reduction::Sum, op.noop_with_empty_axes, op.keepdims, cx),
        Op::ReduceSumSquare(op) => {
            reduce::reduce(Reduction::SumSquare, op.noop_with_empty_axes, op.keepdims, cx)
        }
        Op::ArgMax(op) => reduce::arg_extreme(Extreme::Max, op.axis, op.keepdims, op.select_last_index, cx),
        Op::ArgMin(op) => reduce::arg_extreme(Extreme::Min, op.axis, op.keepdims, op.select_last_index, cx),
        Op::CumSum(op) => reduce::cum_sum(ScanForm { reverse: op.reverse, exclusive: op.exclusive }, cx),
        Op::CumProd(op) => reduce::cum_prod(ScanForm { reverse: op.reverse, exclusive: op.exclusive }, cx),
        Op::Softmax(op) => reduce::softmax(op.axis, cx),
        Op::LogSoftmax(op) => reduce::log_softmax(op.axis, cx),
        Op::Hardmax(op) => reduce::hardmax(op.axis, cx),

        // Normalizations and losses.
        Op::BatchNormalization(op) => normalize::batch_normalization(op, cx),
        Op::InstanceNormalization(op) => normalize::instance_normalization(op, cx),
        Op::GroupNormalization(op) => normalize::group_normalization(op, cx),
        Op::LayerNormalization(op) => normalize::layer_normalization(op, cx),
        Op::RMSNormalization(op) => normalize::rms_normalization(op, cx),
        Op::LpNormalization(op) => normalize::lp_normalization(op, cx),
        Op::LRN(op) => normalize::lrn(op, cx),
        Op::MeanVarianceNormalization(op) => normalize::mean_variance_normalization(op, cx),
        Op::NegativeLogLikelihoodLoss(op) => normalize::negative_log_likelihood_loss(op, cx),
        Op::SoftmaxCrossEntropyLoss(op) => normalize::softmax_cross_entropy_loss(op, cx),

        // Recurrent networks.
        Op::RNN(op) => recurrent::rnn(op, cx),
        Op::GRU(op) => recurrent::gru(op, cx),
        Op::LSTM(op) => recurrent::lstm(op, cx),

        // Attention and position embedding.
        Op::Attention(op) => attention::attention(op, cx),
        Op::LinearAttention(op) => attention::linear_attention(op, cx),
        Op::RotaryEmbedding(op) => attention::rotary_embedding(op, cx),

        // Resampling and detection.
        Op::Resize(op) => image::resize(op, cx),
        Op::GridSample(op) => image::grid_sample(op, cx),
        Op::AffineGrid(op) => image::affine_grid(op, cx),
        Op::CropAndResize(op) => image::crop_and_resize(op, cx),
        Op::NonMaxSuppression(op) => image::non_max_suppression(op, cx),

        // Transforms and windows.
        Op::DFT(op) => signal::dft(op, cx),
        Op::STFT(op) => signal::stft(op, cx),
        Op::BlackmanWindow(op) => signal::blackman_window(op, cx),
        Op::HammingWindow(op) => signal::hamming_window(op, cx),
        Op::HannWindow(op) => signal::hann_window(op, cx),
        Op::MelWeightMatrix(op) => signal::mel_weight_matrix(op, cx),

        // Random numbers.
        Op::RandomNormal(op) => random::random_normal(op, cx),
        Op::RandomNormalLike(op) => random::random_normal_like(op, cx),
        Op::RandomUniform(op) => random::random_uniform(op, cx),
        Op::RandomUniformLike(op) => random::random_uniform_like(op, cx),
        Op::Bernoulli(op) => random::bernoulli(op, cx),
        Op::Multinomial(op) => random::multinomial(op, cx),
        Op::Dropout(op) => random::dropout(op, cx),

        // Control flow: the bodies belong to the node, which the graph knows and this crate does not.
        Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) => {
            Err(cx.error(EvalErrorKind::NeedsGraph, "control flow is interpreted with its bodies"))
        }

        // What a plugin's operator means is the plugin's.
        Op::Custom(_) => Err(cx.error(EvalErrorKind::NeedsPlugin, "no plugin provides this operator")),
    }
}
