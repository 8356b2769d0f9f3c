//! The table of operators: one row per operator with its attributes and their defaults.
//!
//! Operators have the meaning that the newest ONNX opset gives their name, or what the comment beside the
//! row says; the importer brings older forms to this one. Inputs and outputs stay positional as ONNX has
//! them. A field without a default is required.

use planish_tensor::{DType, Tensor};

use crate::ValueType;
use crate::attribute::*;
use crate::op::ops;

ops! {
    // Pointwise arithmetic, comparison, logic and activations.
    Abs {}
    Acos {}
    Acosh {}
    Asin {}
    Asinh {}
    Atan {}
    Atanh {}
    Ceil {}
    Cos {}
    Cosh {}
    Erf {}
    Exp {}
    Floor {}
    Log {}
    Neg {}
    Reciprocal {}
    Round {}
    Sigmoid {}
    Sign {}
    Sin {}
    Sinh {}
    Sqrt {}
    Tan {}
    Tanh {}
    Not {}
    BitwiseNot {}
    IsNaN {}
    IsInf { detect_negative: bool = true, detect_positive: bool = true }
    Identity {}
    Relu {}
    LeakyRelu { alpha: f32 = 0.01 }
    Elu { alpha: f32 = 1.0 }
    Selu { gamma: f32 = 1.050_701, alpha: f32 = 1.673_263_2 }
    Celu { alpha: f32 = 1.0 }
    Gelu { approximate: GeluApproximation = GeluApproximation::None }
    HardSigmoid { beta: f32 = 0.5, alpha: f32 = 0.2 }
    HardSwish {}
    Mish {}
    Softplus {}
    Softsign {}
    Swish { alpha: f32 = 1.0 }
    Shrink { bias: f32 = 0.0, lambd: f32 = 0.5 }
    ThresholdedRelu { alpha: f32 = 1.0 }
    Clip {}
    PRelu {}
    Add {}
    Sub {}
    Mul {}
    Div {}
    Pow {}
    Mod { fmod: bool = false }
    Min {}
    Max {}
    Sum {}
    Mean {}
    Equal {}
    Greater {}
    GreaterOrEqual {}
    Less {}
    LessOrEqual {}
    And {}
    Or {}
    Xor {}
    BitwiseAnd {}
    BitwiseOr {}
    BitwiseXor {}
    BitShift { direction: BitShiftDirection }
    Where {}

    // Conversions between element types and quantization.
    Cast { round_mode: CastRounding = CastRounding::Up, saturate: bool = true, to: DType }
    BitCast { to: DType }
    QuantizeLinear {
        precision: Option<DType> = None,
        output_dtype: Option<DType> = None,
        block_size: i64 = 0,
        saturate: bool = true,
        axis: i64 = 1,
    }
    DequantizeLinear { output_dtype: Option<DType> = None, block_size: i64 = 0, axis: i64 = 1 }
    DynamicQuantizeLinear {}
    QLinearMatMul {}
    QLinearConv {
        group: i64 = 1,
        pads: Vec<i64> = Vec::new(),
        strides: Vec<i64> = Vec::new(),
        dilations: Vec<i64> = Vec::new(),
        kernel_shape: Option<Vec<i64>> = None,
        auto_pad: AutoPad = AutoPad::NotSet,
    }
    MatMulInteger {}
    ConvInteger {
        group: i64 = 1,
        pads: Vec<i64> = Vec::new(),
        strides: Vec<i64> = Vec::new(),
        dilations: Vec<i64> = Vec::new(),
        kernel_shape: Option<Vec<i64>> = None,
        auto_pad: AutoPad = AutoPad::NotSet,
    }

    // Matrix products and small linear algebra.
    MatMul {}
    Gemm { beta: f32 = 1.0, trans_b: bool = false, alpha: f32 = 1.0, trans_a: bool = false }
    Einsum { equation: String }
    Det {}
    Inverse {}

    // Convolutions.
    Conv {
        group: i64 = 1,
        pads: Vec<i64> = Vec::new(),
        auto_pad: AutoPad = AutoPad::NotSet,
        strides: Vec<i64> = Vec::new(),
        dilations: Vec<i64> = Vec::new(),
        kernel_shape: Option<Vec<i64>> = None,
    }
    ConvTranspose {
        group: i64 = 1,
        auto_pad: AutoPad = AutoPad::NotSet,
        strides: Vec<i64> = Vec::new(),
        pads: Vec<i64> = Vec::new(),
        output_padding: Vec<i64> = Vec::new(),
        dilations: Vec<i64> = Vec::new(),
        output_shape: Option<Vec<i64>> = None,
        kernel_shape: Option<Vec<i64>> = None,
    }
    DeformConv {
        strides: Vec<i64> = Vec::new(),
        pads: Vec<i64> = Vec::new(),
        offset_group: i64 = 1,
        kernel_shape: Option<Vec<i64>> = None,
        group: i64 = 1,
        dilations: Vec<i64> = Vec::new(),
    }
    CausalConvWithState { activation: CausalConvActivation = CausalConvActivation::None }
    Col2Im { strides: Vec<i64> = Vec::new(), pads: Vec<i64> = Vec::new(), dilations: Vec<i64> = Vec::new() }

    // Pooling and regions of interest.
    AveragePool {
        count_include_pad: bool = false,
        dilations: Vec<i64> = Vec::new(),
        ceil_mode: bool = false,
        pads: Vec<i64> = Vec::new(),
        auto_pad: AutoPad = AutoPad::NotSet,
        strides: Vec<i64> = Vec::new(),
        kernel_shape: Vec<i64>,
    }
    MaxPool {
        storage_order: i64 = 0,
        dilations: Vec<i64> = Vec::new(),
        ceil_mode: bool = false,
        pads: Vec<i64> = Vec::new(),
        auto_pad: AutoPad = AutoPad::NotSet,
        strides: Vec<i64> = Vec::new(),
        kernel_shape: Vec<i64>,
    }
    LpPool {
        p: i64 = 2,
        pads: Vec<i64> = Vec::new(),
        auto_pad: AutoPad = AutoPad::NotSet,
        ceil_mode: bool = false,
        dilations: Vec<i64> = Vec::new(),
        strides: Vec<i64> = Vec::new(),
        kernel_shape: Vec<i64>,
    }
    GlobalAveragePool {}
    GlobalMaxPool {}
    GlobalLpPool { p: i64 = 2 }
    MaxUnpool { pads: Vec<i64> = Vec::new(), strides: Vec<i64> = Vec::new(), kernel_shape: Vec<i64> }
    MaxRoiPool { spatial_scale: f32 = 1.0, pooled_shape: Vec<i64> }
    RoiAlign {
        coordinate_transformation_mode: RoiAlignCoordinates = RoiAlignCoordinates::HalfPixel,
        mode: RoiAlignMode = RoiAlignMode::Avg,
        output_height: i64 = 1,
        sampling_ratio: i64 = 0,
        output_width: i64 = 1,
        spatial_scale: f32 = 1.0,
    }

    // Shape changes and data movement.
    Shape { end: Option<i64> = None, start: i64 = 0 }
    Size {}
    Reshape { allowzero: bool = false }
    Flatten { axis: i64 = 1 }
    Squeeze {}
    Unsqueeze {}
    Transpose { perm: Option<Vec<i64>> = None }
    Expand {}
    Tile {}
    Concat { axis: i64 }
    Split { num_outputs: Option<i64> = None, axis: i64 = 0 }
    Slice {}
    Pad { mode: PadMode = PadMode::Constant }
    CenterCropPad { axes: Option<Vec<i64>> = None }
    DepthToSpace { mode: DepthToSpaceMode = DepthToSpaceMode::Dcr, blocksize: i64 }
    SpaceToDepth { blocksize: i64 }
    Trilu { upper: bool = true }
    ReverseSequence { batch_axis: i64 = 1, time_axis: i64 = 0 }
    ConstantOfShape { value: Option<Tensor> = None }
    Range { stash_type: i64 = 1 }
    EyeLike { dtype: Option<DType> = None, k: i64 = 0 }

    // Gathering, scattering, searching.
    Gather { axis: i64 = 0 }
    GatherElements { axis: i64 = 0 }
    GatherND { batch_dims: i64 = 0 }
    ScatterElements { reduction: ScatterReduction = ScatterReduction::None, axis: i64 = 0 }
    ScatterND { reduction: ScatterReduction = ScatterReduction::None }
    TensorScatter { mode: TensorScatterMode = TensorScatterMode::Linear, axis: i64 = -2 }
    OneHot { axis: i64 = -1 }
    Compress { axis: Option<i64> = None }
    NonZero {}
    Unique { axis: Option<i64> = None, sorted: bool = true }
    TopK { sorted: bool = true, largest: bool = true, axis: i64 = -1 }
    TfIdfVectorizer {
        mode: TfIdfMode,
        ngram_indexes: Vec<i64>,
        weights: Vec<f32> = Vec::new(),
        ngram_counts: Vec<i64>,
        pool_int64s: Vec<i64> = Vec::new(),
        pool_strings: Vec<String> = Vec::new(),
        max_skip_count: i64,
        min_gram_length: i64,
        max_gram_length: i64,
    }

    // Sequences and optionals.
    SequenceAt {}
    SequenceConstruct {}
    SequenceEmpty { dtype: Option<DType> = None }
    SequenceErase {}
    SequenceInsert {}
    SequenceLength {}
    ConcatFromSequence { new_axis: bool = false, axis: i64 }
    SplitToSequence { keepdims: bool = true, axis: i64 = 0 }
    Optional { element_type: Option<ValueType> = None }
    OptionalGetElement {}
    OptionalHasElement {}

    // Reductions and scans along axes.
    ReduceL1 { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceL2 { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceLogSum { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceLogSumExp { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceMax { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceMean { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceMin { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceProd { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceSum { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ReduceSumSquare { noop_with_empty_axes: bool = false, keepdims: bool = true }
    ArgMax { select_last_index: bool = false, keepdims: bool = true, axis: i64 = 0 }
    ArgMin { select_last_index: bool = false, keepdims: bool = true, axis: i64 = 0 }
    CumSum { reverse: bool = false, exclusive: bool = false }
    CumProd { reverse: bool = false, exclusive: bool = false }
    Softmax { axis: i64 = -1 }
    LogSoftmax { axis: i64 = -1 }
    Hardmax { axis: i64 = -1 }

    // Normalizations and losses.
    BatchNormalization { training_mode: bool = false, momentum: f32 = 0.9, epsilon: f32 = 1e-5 }
    InstanceNormalization { epsilon: f32 = 1e-5 }
    GroupNormalization { stash_type: i64 = 1, num_groups: i64, epsilon: f32 = 1e-5 }
    LayerNormalization { stash_type: i64 = 1, epsilon: f32 = 1e-5, axis: i64 = -1 }
    RMSNormalization { stash_type: i64 = 1, epsilon: f32 = 1e-5, axis: i64 = -1 }
    LpNormalization { p: i64 = 2, axis: i64 = -1 }
    LRN { bias: f32 = 1.0, beta: f32 = 0.75, alpha: f32 = 1e-4, size: i64 }
    MeanVarianceNormalization { axes: Vec<i64> = vec![0, 2, 3] }
    NegativeLogLikelihoodLoss {
        ignore_index: Option<i64> = None,
        reduction: LossReduction = LossReduction::Mean,
    }
    SoftmaxCrossEntropyLoss {
        ignore_index: Option<i64> = None,
        reduction: LossReduction = LossReduction::Mean,
    }

    // Recurrent networks.
    RNN {
        clip: Option<f32> = None,
        activation_beta: Vec<f32> = Vec::new(),
        activation_alpha: Vec<f32> = Vec::new(),
        hidden_size: Option<i64> = None,
        layout: i64 = 0,
        direction: RecurrentDirection = RecurrentDirection::Forward,
        activations: Vec<String> = Vec::new(),
    }
    GRU {
        clip: Option<f32> = None,
        activation_beta: Vec<f32> = Vec::new(),
        activation_alpha: Vec<f32> = Vec::new(),
        hidden_size: Option<i64> = None,
        layout: i64 = 0,
        direction: RecurrentDirection = RecurrentDirection::Forward,
        linear_before_reset: bool = false,
        activations: Vec<String> = Vec::new(),
    }
    LSTM {
        clip: Option<f32> = None,
        activation_beta: Vec<f32> = Vec::new(),
        activation_alpha: Vec<f32> = Vec::new(),
        hidden_size: Option<i64> = None,
        direction: RecurrentDirection = RecurrentDirection::Forward,
        input_forget: bool = false,
        layout: i64 = 0,
        activations: Vec<String> = Vec::new(),
    }

    // Attention and position embedding.
    Attention {
        qk_matmul_output_mode: i64 = 0,
        softcap: f32 = 0.0,
        softmax_precision: Option<DType> = None,
        kv_num_heads: Option<i64> = None,
        q_num_heads: Option<i64> = None,
        scale: Option<f32> = None,
        is_causal: bool = false,
    }
    LinearAttention {
        chunk_size: i64 = 64,
        kv_num_heads: i64,
        q_num_heads: i64,
        scale: f32 = 0.0,
        update_rule: LinearAttentionRule = LinearAttentionRule::GatedDelta,
    }
    RotaryEmbedding {
        num_heads: Option<i64> = None,
        rotary_embedding_dim: i64 = 0,
        interleaved: bool = false,
    }

    // Resampling and detection.
    Resize {
        keep_aspect_ratio_policy: ResizeAspectPolicy = ResizeAspectPolicy::Stretch,
        axes: Option<Vec<i64>> = None,
        antialias: bool = false,
        extrapolation_value: f32 = 0.0,
        exclude_outside: bool = false,
        nearest_mode: ResizeNearest = ResizeNearest::RoundPreferFloor,
        coordinate_transformation_mode: ResizeCoordinates = ResizeCoordinates::HalfPixel,
        cubic_coeff_a: f32 = -0.75,
        mode: ResizeMode = ResizeMode::Nearest,
    }
    GridSample {
        align_corners: bool = false,
        padding_mode: GridSamplePadding = GridSamplePadding::Zeros,
        mode: GridSampleMode = GridSampleMode::Linear,
    }
    AffineGrid { align_corners: bool = false }
    CropAndResize { mode: CropAndResizeMode = CropAndResizeMode::Bilinear, extrapolation_value: f32 = 0.0 }
    NonMaxSuppression { center_point_box: bool = false }

    // Transforms and windows.
    DFT { inverse: bool = false, onesided: bool = false }
    STFT { onesided: bool = true }
    BlackmanWindow { periodic: bool = true, output_datatype: DType = DType::F32 }
    HammingWindow { periodic: bool = true, output_datatype: DType = DType::F32 }
    HannWindow { periodic: bool = true, output_datatype: DType = DType::F32 }
    MelWeightMatrix { output_datatype: DType = DType::F32 }

    // Random numbers.
    RandomNormal {
        shape: Vec<i64>,
        dtype: DType = DType::F32,
        seed: Option<f32> = None,
        scale: f32 = 1.0,
        mean: f32 = 0.0,
    }
    RandomNormalLike {
        dtype: Option<DType> = None,
        seed: Option<f32> = None,
        scale: f32 = 1.0,
        mean: f32 = 0.0,
    }
    RandomUniform {
        shape: Vec<i64>,
        dtype: DType = DType::F32,
        seed: Option<f32> = None,
        high: f32 = 1.0,
        low: f32 = 0.0,
    }
    RandomUniformLike {
        dtype: Option<DType> = None,
        seed: Option<f32> = None,
        high: f32 = 1.0,
        low: f32 = 0.0,
    }
    Bernoulli { dtype: Option<DType> = None, seed: Option<f32> = None }
    Multinomial { dtype: DType = DType::I32, seed: Option<f32> = None, sample_size: i64 = 1 }
    Dropout { seed: Option<i64> = None }

    // Control flow: the bodies are the node's subgraphs.
    If {}
    Loop {}
    Scan {
        scan_input_axes: Vec<i64> = Vec::new(),
        scan_output_axes: Vec<i64> = Vec::new(),
        scan_output_directions: Vec<i64> = Vec::new(),
        scan_input_directions: Vec<i64> = Vec::new(),
        num_scan_inputs: i64,
    }
    SequenceMap {}
}
