//! `com.microsoft`: what exporters and ONNX Runtime's optimizer emit, taken apart into standard operators.
//!
//! The fused forms are found again by the passes, for models of any origin; so the graph has one way to say
//! a thing.

mod activation;
mod attention;
mod fused;
mod kit;
mod norm;
mod qlinear;
mod quantized_matmul;
mod renamed;

use crate::adapt::Rule;

/// Operators of the domain by name.
pub(crate) const RULES: &[(&str, Rule)] = &[
    // Activations.
    ("Gelu", activation::gelu),
    ("FastGelu", activation::fast_gelu),
    ("BiasGelu", activation::bias_gelu),
    ("QuickGelu", activation::quick_gelu),
    // Fused linear operators.
    ("FusedConv", fused::fused_conv),
    ("FusedGemm", fused::fused_gemm),
    ("FusedMatMul", fused::fused_matmul),
    ("TransposeMatMul", fused::fused_matmul),
    // Normalizations.
    ("LayerNormalization", renamed::same_name),
    ("SimplifiedLayerNormalization", norm::simplified_layer_normalization),
    ("SkipLayerNormalization", norm::skip_layer_normalization),
    ("SkipSimplifiedLayerNormalization", norm::skip_simplified_layer_normalization),
    ("EmbedLayerNormalization", norm::embed_layer_normalization),
    // Attention.
    ("Attention", attention::attention),
    ("QAttention", attention::quantized_attention),
    ("MultiHeadAttention", attention::multi_head_attention),
    // Quantized operators.
    ("QuantizeLinear", renamed::same_name),
    ("DequantizeLinear", renamed::same_name),
    ("QLinearAdd", qlinear::binary),
    ("QLinearMul", qlinear::binary),
    ("QLinearSigmoid", qlinear::unary),
    ("QLinearLeakyRelu", qlinear::unary),
    ("QLinearSoftmax", qlinear::unary),
    ("QLinearGlobalAveragePool", qlinear::pool),
    ("QLinearAveragePool", qlinear::pool),
    ("QLinearConcat", qlinear::concat),
    ("QGemm", qlinear::gemm),
    ("DynamicQuantizeMatMul", quantized_matmul::dynamic_quantize_matmul),
    ("MatMulIntegerToFloat", quantized_matmul::matmul_integer_to_float),
    ("DynamicQuantizeLSTM", quantized_matmul::dynamic_quantize_lstm),
    ("MatMulNBits", quantized_matmul::matmul_n_bits),
    // Standard operators under another roof or name.
    ("NhwcMaxPool", renamed::nhwc_max_pool),
    ("Inverse", renamed::same_name),
    ("CropAndResize", renamed::same_name),
    ("Pad", renamed::same_name),
    ("Range", renamed::same_name),
    ("Unique", renamed::unique),
    ("GatherND", renamed::same_name),
    ("Trilu", renamed::same_name),
    ("ExpandDims", renamed::expand_dims),
];

/// In the standard domain, but only ONNX Runtime's optimizer writes it.
pub(crate) const STANDARD_RULES: &[(&str, Rule)] =
    &[("SimplifiedLayerNormalization", norm::simplified_layer_normalization)];
