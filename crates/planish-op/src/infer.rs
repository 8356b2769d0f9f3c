//! Type and shape inference: from the inputs' types and known contents to the outputs'.
//!
//! One module per family of operators, in the order of the table. Besides types, small integer tensors carry
//! their *contents* along (numbers or symbolic dimensions), so that the Shape→Gather→Concat→Reshape chains of
//! exporters resolve.
//!
//! What the families share: `context` is what a rule sees and says, `checks` what several of them refuse,
//! `known` the rearrangement of known contents, `testing` the way to write a test.

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

pub use context::{
    Content, InferError, InferErrorKind, InferInput, Inference, Inferred, MAX_FOLLOWED_INTS, MAX_RANK,
    SymbolicInts,
};

use planish_tensor::Dim;

use crate::Op;
use pointwise::Kinds;
use reduce::Fold;

/// What inference of one node gives: one entry per output.
pub type InferResult = Result<Vec<Inferred>, InferError>;

/// The outputs of `op`. Control flow is the business of whoever knows the bodies (`planish-ir`).
pub fn infer(op: &Op, cx: &mut Inference<'_>) -> InferResult {
    if let Some(most) = op.max_inputs().filter(|&most| cx.n_inputs() > most) {
        let detail = format!("at most {most} inputs are taken, there are {}", cx.n_inputs());
        return Err(cx.error(InferErrorKind::ExtraInput, detail));
    }
    match op {
        // Pointwise arithmetic, comparison, logic and activations.
        Op::Abs(_) => pointwise::abs(cx),
        Op::Neg(_) => pointwise::neg(cx),
        Op::Relu(_) => pointwise::relu(cx),
        Op::Not(_) => pointwise::not(cx),
        Op::Ceil(_) => pointwise::rounding(cx, f64::ceil),
        Op::Floor(_) => pointwise::rounding(cx, f64::floor),
        Op::Sign(_) | Op::Shrink(_) => pointwise::unary(cx, Kinds::Number),
        Op::BitwiseNot(_) => pointwise::unary(cx, Kinds::Int),
        Op::IsNaN(_) | Op::IsInf(_) => pointwise::classify(cx),
        Op::Identity(_) => pointwise::identity(cx),
        Op::Acos(_)
        | Op::Acosh(_)
        | Op::Asin(_)
        | Op::Asinh(_)
        | Op::Atan(_)
        | Op::Atanh(_)
        | Op::Cos(_)
        | Op::Cosh(_)
        | Op::Erf(_)
        | Op::Exp(_)
        | Op::Log(_)
        | Op::Reciprocal(_)
        | Op::Round(_)
        | Op::Sigmoid(_)
        | Op::Sin(_)
        | Op::Sinh(_)
        | Op::Sqrt(_)
        | Op::Tan(_)
        | Op::Tanh(_)
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
        | Op::ThresholdedRelu(_) => pointwise::unary(cx, Kinds::Real),
        Op::Clip(_) => pointwise::clip(cx),
        Op::PRelu(_) => pointwise::prelu(cx),
        Op::Add(_) => pointwise::followed_binary(cx, Kinds::Number, |a, b| a + b),
        Op::Sub(_) => pointwise::followed_binary(cx, Kinds::Number, |a, b| a - b),
        Op::Mul(_) => pointwise::followed_binary(cx, Kinds::Number, |a, b| a * b),
        Op::Div(_) => pointwise::div(cx),
        Op::Pow(_) => pointwise::pow(cx),
        Op::Mod(op) => pointwise::mod_(op, cx),
        Op::Min(_) => pointwise::extreme(cx, Dim::min),
        Op::Max(_) => pointwise::extreme(cx, Dim::max),
        Op::Sum(_) | Op::Mean(_) => pointwise::variadic(cx, Kinds::Real),
        Op::Equal(_) => pointwise::equal(cx),
        Op::Greater(_) => pointwise::greater(cx),
        Op::GreaterOrEqual(_) => pointwise::greater_or_equal(cx),
        Op::Less(_) => pointwise::less(cx),
        Op::LessOrEqual(_) => pointwise::less_or_equal(cx),
        Op::And(_) => pointwise::and(cx),
        Op::Or(_) => pointwise::or(cx),
        Op::Xor(_) => pointwise::xor(cx),
        Op::BitwiseAnd(_) | Op::BitwiseOr(_) | Op::BitwiseXor(_) => pointwise::binary(cx, Kinds::Int),
        Op::BitShift(_) => pointwise::binary(cx, Kinds::Unsigned),
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
