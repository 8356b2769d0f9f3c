//! Type and shape inference: from the inputs' types and known contents to the outputs'.
//!
//! One file per family of operators. Besides types, small integer tensors carry their *contents* along
//! (numbers or symbolic dimensions), so that the Shape→Gather→Concat→Reshape chains of exporters resolve.

mod attention;
mod checks;
mod context;
mod conv;
mod convert;
mod image;
mod index;
mod known;
mod layout;
mod linear;
mod normalize;
mod pointwise;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod sequence;
mod signal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_values;

pub use context::{Content, InferError, InferErrorKind, InferInput, Inference, Inferred, SymbolicInts};

use reduce::Fold;

use crate::Op;

/// What inference of one node gives: one entry per output.
pub type InferResult = Result<Vec<Inferred>, InferError>;

/// The outputs of `op`. Control flow is the business of whoever knows the bodies (`planish-ir`).
pub fn infer(op: &Op, cx: &mut Inference<'_>) -> InferResult {
    match op {
        // Pointwise arithmetic, comparison, logic and activations.
        Op::Abs(op) => pointwise::abs(op, cx),
        Op::Acos(op) => pointwise::acos(op, cx),
        Op::Acosh(op) => pointwise::acosh(op, cx),
        Op::Asin(op) => pointwise::asin(op, cx),
        Op::Asinh(op) => pointwise::asinh(op, cx),
        Op::Atan(op) => pointwise::atan(op, cx),
        Op::Atanh(op) => pointwise::atanh(op, cx),
        Op::Ceil(op) => pointwise::ceil(op, cx),
        Op::Cos(op) => pointwise::cos(op, cx),
        Op::Cosh(op) => pointwise::cosh(op, cx),
        Op::Erf(op) => pointwise::erf(op, cx),
        Op::Exp(op) => pointwise::exp(op, cx),
        Op::Floor(op) => pointwise::floor(op, cx),
        Op::Log(op) => pointwise::log(op, cx),
        Op::Neg(op) => pointwise::neg(op, cx),
        Op::Reciprocal(op) => pointwise::reciprocal(op, cx),
        Op::Round(op) => pointwise::round(op, cx),
        Op::Sigmoid(op) => pointwise::sigmoid(op, cx),
        Op::Sign(op) => pointwise::sign(op, cx),
        Op::Sin(op) => pointwise::sin(op, cx),
        Op::Sinh(op) => pointwise::sinh(op, cx),
        Op::Sqrt(op) => pointwise::sqrt(op, cx),
        Op::Tan(op) => pointwise::tan(op, cx),
        Op::Tanh(op) => pointwise::tanh(op, cx),
        Op::Not(op) => pointwise::not(op, cx),
        Op::BitwiseNot(op) => pointwise::bitwise_not(op, cx),
        Op::IsNaN(op) => pointwise::is_nan(op, cx),
        Op::IsInf(op) => pointwise::is_inf(op, cx),
        Op::Identity(op) => pointwise::identity(op, cx),
        Op::Relu(op) => pointwise::relu(op, cx),
        Op::LeakyRelu(op) => pointwise::leaky_relu(op, cx),
        Op::Elu(op) => pointwise::elu(op, cx),
        Op::Selu(op) => pointwise::selu(op, cx),
        Op::Celu(op) => pointwise::celu(op, cx),
        Op::Gelu(op) => pointwise::gelu(op, cx),
        Op::HardSigmoid(op) => pointwise::hard_sigmoid(op, cx),
        Op::HardSwish(op) => pointwise::hard_swish(op, cx),
        Op::Mish(op) => pointwise::mish(op, cx),
        Op::Softplus(op) => pointwise::softplus(op, cx),
        Op::Softsign(op) => pointwise::softsign(op, cx),
        Op::Swish(op) => pointwise::swish(op, cx),
        Op::Shrink(op) => pointwise::shrink(op, cx),
        Op::ThresholdedRelu(op) => pointwise::thresholded_relu(op, cx),
        Op::Clip(op) => pointwise::clip(op, cx),
        Op::PRelu(op) => pointwise::prelu(op, cx),
        Op::Add(op) => pointwise::add(op, cx),
        Op::Sub(op) => pointwise::sub(op, cx),
        Op::Mul(op) => pointwise::mul(op, cx),
        Op::Div(op) => pointwise::div(op, cx),
        Op::Pow(op) => pointwise::pow(op, cx),
        Op::Mod(op) => pointwise::mod_(op, cx),
        Op::Min(op) => pointwise::min(op, cx),
        Op::Max(op) => pointwise::max(op, cx),
        Op::Sum(op) => pointwise::sum(op, cx),
        Op::Mean(op) => pointwise::mean(op, cx),
        Op::Equal(op) => pointwise::equal(op, cx),
        Op::Greater(op) => pointwise::greater(op, cx),
        Op::GreaterOrEqual(op) => pointwise::greater_or_equal(op, cx),
        Op::Less(op) => pointwise::less(op, cx),
        Op::LessOrEqual(op) => pointwise::less_or_equal(op, cx),
        Op::And(op) => pointwise::and(op, cx),
        Op::Or(op) => pointwise::or(op, cx),
        Op::Xor(op) => pointwise::xor(op, cx),
        Op::BitwiseAnd(op) => pointwise::bitwise_and(op, cx),
        Op::BitwiseOr(op) => pointwise::bitwise_or(op, cx),
        Op::BitwiseXor(op) => pointwise::bitwise_xor(op, cx),
        Op::BitShift(op) => pointwise::bit_shift(op, cx),
        Op::Where(op) => pointwise::where_(op, cx),

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
        Op::ReduceL1(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ReduceL2(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ReduceLogSum(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ReduceLogSumExp(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ReduceMax(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Max, cx),
        Op::ReduceMean(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ReduceMin(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Min, cx),
        Op::ReduceProd(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Prod, cx),
        Op::ReduceSum(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Sum, cx),
        Op::ReduceSumSquare(op) => reduce::reduce(op.noop_with_empty_axes, op.keepdims, Fold::Other, cx),
        Op::ArgMax(op) => reduce::arg_extreme(op.axis, op.keepdims, cx),
        Op::ArgMin(op) => reduce::arg_extreme(op.axis, op.keepdims, cx),
        Op::CumSum(_) | Op::CumProd(_) => reduce::scan(cx),
        Op::Softmax(op) => reduce::softmax(op.axis, cx),
        Op::LogSoftmax(op) => reduce::softmax(op.axis, cx),
        Op::Hardmax(op) => reduce::softmax(op.axis, cx),

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
        Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) => cx.needs_graph(),

        // A plugin's shape rule is the plugin's.
        Op::Custom(_) => cx.needs_plugin(),
    }
}
