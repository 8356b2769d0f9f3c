//! The table of operators: one row per operator with what stages need to know of it, its attributes and their
//! defaults.
//!
//! Operators have the meaning that the newest ONNX opset gives their name, or what the comment beside the
//! row says; the importer brings older forms to this one. Inputs and outputs stay positional as ONNX has
//! them. A field without a default is required.
//!
//! Columns ([`crate::Class`] and its neighbours say what the words mean):
//! - pointwise: operator, form, element types, most inputs, lowering, rounding, attributes;
//! - reductions: operator, what it makes of a group, lowering; all have the same inputs and attributes;
//! - families: operator, class, most inputs, lowering, function, attributes. The function stands in the module of
//!   the family, in inference (`planish_op::infer`) as in the reference;
//! - control: operator, most inputs without what bodies capture, attributes.
//!
//! The most inputs are those of the newest ONNX schemas, absent optional ones counted. What is missing is found by
//! the rule that needs it; what is too much would be ignored without this.

use planish_tensor::{DType, Tensor};

use crate::ValueType;
use crate::attribute::*;
use crate::class::{Class, Form, Kinds, Lowering, Reduce, Reduction, Rounding};
use crate::op::ops;

/// Gives the rows of the table to a macro, after the arguments in parentheses: `with_op_table!([path] arguments)`.
#[macro_export]
macro_rules! with_op_table {
    ([$($then:tt)*] $($arguments:tt)*) => { $($then)* ! { ($($arguments)*)
    // Element by element: one element of each input makes one of the output.
    pointwise {
        // operator      form       element types inputs low  rounding
        Abs             Unary      Number       1    Among Exact    {}
        Acos            Unary      Real         1    Never Function {}
        Acosh           Unary      Real         1    Never Function {}
        Asin            Unary      Real         1    Never Function {}
        Asinh           Unary      Real         1    Never Function {}
        Atan            Unary      Real         1    Never Function {}
        Atanh           Unary      Real         1    Never Function {}
        Ceil            Unary      Real         1    Never Once     {}
        Cos             Unary      Real         1    Never Function {}
        Cosh            Unary      Real         1    Never Function {}
        Erf             Unary      Real         1    Among Function {}
        Exp             Unary      Real         1    Never Function {}
        Floor           Unary      Real         1    Never Once     {}
        Log             Unary      Real         1    Never Function {}
        Neg             Unary      Signed       1    Among Exact    {}
        Reciprocal      Unary      Real         1    Never Function {}
        Round           Unary      Real         1    Never Function {}
        Sigmoid         Unary      Real         1    Among Function {}
        Sign            Unary      Number       1    Never Once     {}
        Sin             Unary      Real         1    Never Function {}
        Sinh            Unary      Real         1    Never Function {}
        Sqrt            Unary      Real         1    Never Function {}
        Tan             Unary      Real         1    Never Function {}
        Tanh            Unary      Real         1    Among Function {}
        Not             Unary      Bool         1    Never Function {}
        BitwiseNot      Unary      Int          1    Never Function {}
        IsNaN           Predicate  AnyFloat     1    Never Function {}
        IsInf           Predicate  AnyFloat     1    Never Function {
            detect_negative: bool = true, detect_positive: bool = true,
        }
        Relu            Unary      Signed       1    Among Exact    {}
        LeakyRelu       Unary      Real         1    Among Function { alpha: f32 = 0.01 }
        Elu             Unary      Real         1    Among Function { alpha: f32 = 1.0 }
        Selu            Unary      Real         1    Among Function {
            gamma: f32 = 1.050_701, alpha: f32 = 1.673_263_2,
        }
        Celu            Unary      Real         1    Among Function { alpha: f32 = 1.0 }
        Gelu            Unary      Real         1    Among Function {
            approximate: GeluApproximation = GeluApproximation::None,
        }
        HardSigmoid     Unary      Real         1    Among Function { beta: f32 = 0.5, alpha: f32 = 0.2 }
        HardSwish       Unary      Real         1    Among Function {}
        Mish            Unary      Real         1    Among Function {}
        Softplus        Unary      Real         1    Among Function {}
        Softsign        Unary      Real         1    Among Function {}
        Swish           Unary      Real         1    Among Function { alpha: f32 = 1.0 }
        Shrink          Unary      Number       1    Never Function { bias: f32 = 0.0, lambd: f32 = 0.5 }
        ThresholdedRelu Unary      Real         1    Never Function { alpha: f32 = 1.0 }
        Clip            Unary      Number       3    Among Once     {}
        PRelu           Binary     Number       2    Among Function {}
        Add             Binary     Number       2    Among Once     {}
        Sub             Binary     Number       2    Among Once     {}
        Mul             Binary     Number       2    Among Once     {}
        Div             Binary     Number       2    Among Function {}
        Pow             Binary     Number       2    Never Function {}
        Mod             Binary     Number       2    Never Function { fmod: bool = false }
        Min             Variadic   Number       any  Among Exact    {}
        Max             Variadic   Number       any  Among Exact    {}
        Sum             Variadic   Real         any  Among Function {}
        Mean            Variadic   Real         any  Never Function {}
        Equal           Comparison NumberOrBool 2    Never Function {}
        Greater         Comparison Number       2    Never Function {}
        GreaterOrEqual  Comparison Number       2    Never Function {}
        Less            Comparison Number       2    Never Function {}
        LessOrEqual     Comparison Number       2    Never Function {}
        And             Binary     Bool         2    Never Function {}
        Or              Binary     Bool         2    Never Function {}
        Xor             Binary     Bool         2    Never Function {}
        BitwiseAnd      Binary     Int          2    Never Function {}
        BitwiseOr       Binary     Int          2    Never Function {}
        BitwiseXor      Binary     Int          2    Never Function {}
        BitShift        Binary     Unsigned     2    Never Function { direction: BitShiftDirection }
        Where           Select     Any          3    Among Exact    {}
        Cast            Unary      Any          1    Never Once     {
            round_mode: CastRounding = CastRounding::Up, saturate: bool = true, to: DType,
        }
    }

    // Over the axes that input 1 lists.
    reductions {
        ReduceL1        L1        Never
        ReduceL2        L2        Never
        ReduceLogSum    LogSum    Never
        ReduceLogSumExp LogSumExp Never
        ReduceMax       Max       Among
        ReduceMean      Mean      Among
        ReduceMin       Min       Among
        ReduceProd      Prod      Never
        ReduceSum       Sum       Never
        ReduceSumSquare SumSquare Never
    }

    families {
        // Quantization and other readings of the same bits.
        convert {
            BitCast               Data         1 Never bit_cast { to: DType }
            QuantizeLinear        Quantization 3 Never quantize_linear {
                precision: Option<DType> = None,
                output_dtype: Option<DType> = None,
                block_size: i64 = 0,
                saturate: bool = true,
                axis: i64 = 1,
            }
            DequantizeLinear      Quantization 3 Never dequantize_linear {
                output_dtype: Option<DType> = None, block_size: i64 = 0, axis: i64 = 1,
            }
            DynamicQuantizeLinear Quantization 1 Never dynamic_quantize_linear {}
            QLinearMatMul         Product      8 Never qlinear_matmul {}
            QLinearConv           Convolution  9 Never qlinear_conv {
                group: i64 = 1,
                pads: Vec<i64> = Vec::new(),
                strides: Vec<i64> = Vec::new(),
                dilations: Vec<i64> = Vec::new(),
                kernel_shape: Option<Vec<i64>> = None,
                auto_pad: AutoPad = AutoPad::NotSet,
            }
            MatMulInteger         Product      4 Never matmul_integer {}
            ConvInteger           Convolution  4 Never conv_integer {
                group: i64 = 1,
                pads: Vec<i64> = Vec::new(),
                strides: Vec<i64> = Vec::new(),
                dilations: Vec<i64> = Vec::new(),
                kernel_shape: Option<Vec<i64>> = None,
                auto_pad: AutoPad = AutoPad::NotSet,
            }
        }

        // Matrix products and small linear algebra.
        matmul {
            MatMul  Product 2   Always matmul {}
            Gemm    Product 3   Always gemm {
                beta: f32 = 1.0, trans_b: bool = false, alpha: f32 = 1.0, trans_a: bool = false,
            }
            Einsum  Product any Never  einsum { equation: String }
            Det     Other   1   Never  det {}
            Inverse Other   1   Never  inverse {}
        }

        // Convolutions.
        conv {
            Conv                Convolution 3 Always conv {
                group: i64 = 1,
                pads: Vec<i64> = Vec::new(),
                auto_pad: AutoPad = AutoPad::NotSet,
                strides: Vec<i64> = Vec::new(),
                dilations: Vec<i64> = Vec::new(),
                kernel_shape: Option<Vec<i64>> = None,
            }
            ConvTranspose       Convolution 3 Always conv_transpose {
                group: i64 = 1,
                auto_pad: AutoPad = AutoPad::NotSet,
                strides: Vec<i64> = Vec::new(),
                pads: Vec<i64> = Vec::new(),
                output_padding: Vec<i64> = Vec::new(),
                dilations: Vec<i64> = Vec::new(),
                output_shape: Option<Vec<i64>> = None,
                kernel_shape: Option<Vec<i64>> = None,
            }
            DeformConv          Convolution 5 Never  deform_conv {
                strides: Vec<i64> = Vec::new(),
                pads: Vec<i64> = Vec::new(),
                offset_group: i64 = 1,
                kernel_shape: Option<Vec<i64>> = None,
                group: i64 = 1,
                dilations: Vec<i64> = Vec::new(),
            }
            CausalConvWithState Convolution 4 Never  causal_conv_with_state {
                activation: CausalConvActivation = CausalConvActivation::None,
            }
            Col2Im              Convolution 3 Never  col2im {
                strides: Vec<i64> = Vec::new(), pads: Vec<i64> = Vec::new(), dilations: Vec<i64> = Vec::new(),
            }
        }

        // Pooling and regions of interest.
        pool {
            AveragePool       Pool       1 Always average_pool {
                count_include_pad: bool = false,
                dilations: Vec<i64> = Vec::new(),
                ceil_mode: bool = false,
                pads: Vec<i64> = Vec::new(),
                auto_pad: AutoPad = AutoPad::NotSet,
                strides: Vec<i64> = Vec::new(),
                kernel_shape: Vec<i64>,
            }
            MaxPool           Pool       1 Among  max_pool {
                storage_order: i64 = 0,
                dilations: Vec<i64> = Vec::new(),
                ceil_mode: bool = false,
                pads: Vec<i64> = Vec::new(),
                auto_pad: AutoPad = AutoPad::NotSet,
                strides: Vec<i64> = Vec::new(),
                kernel_shape: Vec<i64>,
            }
            LpPool            Pool       1 Never  lp_pool {
                p: i64 = 2,
                pads: Vec<i64> = Vec::new(),
                auto_pad: AutoPad = AutoPad::NotSet,
                ceil_mode: bool = false,
                dilations: Vec<i64> = Vec::new(),
                strides: Vec<i64> = Vec::new(),
                kernel_shape: Vec<i64>,
            }
            GlobalAveragePool GlobalPool 1 Always global_average_pool {}
            GlobalMaxPool     GlobalPool 1 Among  global_max_pool {}
            GlobalLpPool      GlobalPool 1 Never  global_lp_pool { p: i64 = 2 }
            MaxUnpool         Data       3 Never  max_unpool {
                pads: Vec<i64> = Vec::new(), strides: Vec<i64> = Vec::new(), kernel_shape: Vec<i64>,
            }
            MaxRoiPool        Resampling 2 Never  max_roi_pool {
                spatial_scale: f32 = 1.0, pooled_shape: Vec<i64>,
            }
            RoiAlign          Resampling 3 Never  roi_align {
                coordinate_transformation_mode: RoiAlignCoordinates = RoiAlignCoordinates::HalfPixel,
                mode: RoiAlignMode = RoiAlignMode::Avg,
                output_height: i64 = 1,
                sampling_ratio: i64 = 0,
                output_width: i64 = 1,
                spatial_scale: f32 = 1.0,
            }
        }

        // Shape changes and data movement.
        movement {
            Identity        Movement 1   Among identity {}
            Shape           Data     1   Never shape { end: Option<i64> = None, start: i64 = 0 }
            Size            Data     1   Never size {}
            Reshape         Movement 2   Among reshape { allowzero: bool = false }
            Flatten         Movement 1   Among flatten { axis: i64 = 1 }
            Squeeze         Movement 2   Among squeeze {}
            Unsqueeze       Movement 2   Among unsqueeze {}
            Transpose       Movement 1   Among transpose { perm: Option<Vec<i64>> = None }
            Expand          Movement 2   Among expand {}
            Tile            Indexing 2   Among tile {}
            Concat          Movement any Among concat { axis: i64 }
            Split           Movement 2   Among split { num_outputs: Option<i64> = None, axis: i64 = 0 }
            Slice           Movement 5   Among slice {}
            Pad             Indexing 4   Among pad { mode: PadMode = PadMode::Constant }
            CenterCropPad   Data     2   Never center_crop_pad { axes: Option<Vec<i64>> = None }
            DepthToSpace    Movement 1   Among depth_to_space {
                mode: DepthToSpaceMode = DepthToSpaceMode::Dcr, blocksize: i64,
            }
            SpaceToDepth    Movement 1   Among space_to_depth { blocksize: i64 }
            Trilu           Data     2   Never trilu { upper: bool = true }
            ReverseSequence Data     2   Never reverse_sequence { batch_axis: i64 = 1, time_axis: i64 = 0 }
            ConstantOfShape Data     1   Never constant_of_shape { value: Option<Tensor> = None }
            Range           Data     3   Never range { stash_type: i64 = 1 }
            EyeLike         Data     1   Never eye_like { dtype: Option<DType> = None, k: i64 = 0 }
        }

        // Gathering, scattering, searching.
        index {
            Gather          Indexing 2 Among gather { axis: i64 = 0 }
            GatherElements  Indexing 2 Among gather_elements { axis: i64 = 0 }
            GatherND        Indexing 2 Never gather_nd { batch_dims: i64 = 0 }
            ScatterElements Indexing 3 Never scatter_elements {
                reduction: ScatterReduction = ScatterReduction::None, axis: i64 = 0,
            }
            ScatterND       Indexing 3 Never scatter_nd {
                reduction: ScatterReduction = ScatterReduction::None,
            }
            TensorScatter   Data     3 Never tensor_scatter {
                mode: TensorScatterMode = TensorScatterMode::Linear, axis: i64 = -2,
            }
            OneHot          Data     3 Never one_hot { axis: i64 = -1 }
            Compress        Data     2 Never compress { axis: Option<i64> = None }
            NonZero         Data     1 Never non_zero {}
            Unique          Data     1 Never unique { axis: Option<i64> = None, sorted: bool = true }
            TopK            Indexing 2 Never topk {
                sorted: bool = true, largest: bool = true, axis: i64 = -1,
            }
            TfIdfVectorizer Other    1 Never tfidf_vectorizer {
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
        }

        // Sequences and optionals.
        sequence {
            SequenceAt         Sequence 2   Never sequence_at {}
            SequenceConstruct  Sequence any Never sequence_construct {}
            SequenceEmpty      Sequence 0   Never sequence_empty { dtype: Option<DType> = None }
            SequenceErase      Sequence 2   Never sequence_erase {}
            SequenceInsert     Sequence 3   Never sequence_insert {}
            SequenceLength     Sequence 1   Never sequence_length {}
            ConcatFromSequence Sequence 1   Never concat_from_sequence { new_axis: bool = false, axis: i64 }
            SplitToSequence    Sequence 2   Never split_to_sequence { keepdims: bool = true, axis: i64 = 0 }
            Optional           Sequence 1   Never optional { element_type: Option<ValueType> = None }
            OptionalGetElement Sequence 1   Never optional_get_element {}
            OptionalHasElement Sequence 1   Never optional_has_element {}
        }

        // Searches, running sums and softmax along an axis.
        reduce {
            ArgMax     Line 1 Never  arg_max {
                select_last_index: bool = false, keepdims: bool = true, axis: i64 = 0,
            }
            ArgMin     Line 1 Never  arg_min {
                select_last_index: bool = false, keepdims: bool = true, axis: i64 = 0,
            }
            CumSum     Line 2 Never  cum_sum { reverse: bool = false, exclusive: bool = false }
            CumProd    Line 2 Never  cum_prod { reverse: bool = false, exclusive: bool = false }
            Softmax    Line 1 Always softmax { axis: i64 = -1 }
            LogSoftmax Line 1 Never  log_softmax { axis: i64 = -1 }
            Hardmax    Line 1 Never  hardmax { axis: i64 = -1 }
        }

        // Normalizations and losses.
        norm {
            BatchNormalization        Norm 5 Among  batch_normalization {
                training_mode: bool = false, momentum: f32 = 0.9, epsilon: f32 = 1e-5,
            }
            InstanceNormalization     Norm 3 Always instance_normalization { epsilon: f32 = 1e-5 }
            GroupNormalization        Norm 3 Always group_normalization {
                stash_type: i64 = 1, num_groups: i64, epsilon: f32 = 1e-5,
            }
            LayerNormalization        Norm 3 Always layer_normalization {
                stash_type: i64 = 1, epsilon: f32 = 1e-5, axis: i64 = -1,
            }
            RMSNormalization          Norm 2 Always rms_normalization {
                stash_type: i64 = 1, epsilon: f32 = 1e-5, axis: i64 = -1,
            }
            LpNormalization           Norm 1 Never  lp_normalization { p: i64 = 2, axis: i64 = -1 }
            LRN                       Norm 1 Never  lrn {
                bias: f32 = 1.0, beta: f32 = 0.75, alpha: f32 = 1e-4, size: i64,
            }
            MeanVarianceNormalization Norm 1 Never  mean_variance_normalization {
                axes: Vec<i64> = vec![0, 2, 3],
            }
            NegativeLogLikelihoodLoss Loss 3 Never  negative_log_likelihood_loss {
                ignore_index: Option<i64> = None, reduction: LossReduction = LossReduction::Mean,
            }
            SoftmaxCrossEntropyLoss   Loss 3 Never  softmax_cross_entropy_loss {
                ignore_index: Option<i64> = None, reduction: LossReduction = LossReduction::Mean,
            }
        }

        // Recurrent networks.
        recurrent {
            RNN  Recurrent 6 Never rnn {
                clip: Option<f32> = None,
                activation_beta: Vec<f32> = Vec::new(),
                activation_alpha: Vec<f32> = Vec::new(),
                hidden_size: Option<i64> = None,
                layout: i64 = 0,
                direction: RecurrentDirection = RecurrentDirection::Forward,
                activations: Vec<String> = Vec::new(),
            }
            GRU  Recurrent 6 Never gru {
                clip: Option<f32> = None,
                activation_beta: Vec<f32> = Vec::new(),
                activation_alpha: Vec<f32> = Vec::new(),
                hidden_size: Option<i64> = None,
                layout: i64 = 0,
                direction: RecurrentDirection = RecurrentDirection::Forward,
                linear_before_reset: bool = false,
                activations: Vec<String> = Vec::new(),
            }
            LSTM Recurrent 8 Never lstm {
                clip: Option<f32> = None,
                activation_beta: Vec<f32> = Vec::new(),
                activation_alpha: Vec<f32> = Vec::new(),
                hidden_size: Option<i64> = None,
                direction: RecurrentDirection = RecurrentDirection::Forward,
                input_forget: bool = false,
                layout: i64 = 0,
                activations: Vec<String> = Vec::new(),
            }
        }

        // Attention and position embedding.
        attention {
            Attention       Attention 7 Always attention {
                qk_matmul_output_mode: i64 = 0,
                softcap: f32 = 0.0,
                softmax_precision: Option<DType> = None,
                kv_num_heads: Option<i64> = None,
                q_num_heads: Option<i64> = None,
                scale: Option<f32> = None,
                is_causal: bool = false,
            }
            LinearAttention Attention 6 Never  linear_attention {
                chunk_size: i64 = 64,
                kv_num_heads: i64,
                q_num_heads: i64,
                scale: f32 = 0.0,
                update_rule: LinearAttentionRule = LinearAttentionRule::GatedDelta,
            }
            RotaryEmbedding Attention 4 Among  rotary_embedding {
                num_heads: Option<i64> = None, rotary_embedding_dim: i64 = 0, interleaved: bool = false,
            }
        }

        // Resampling and detection.
        image {
            Resize            Resampling 4 Among resize {
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
            GridSample        Resampling 2 Among grid_sample {
                align_corners: bool = false,
                padding_mode: GridSamplePadding = GridSamplePadding::Zeros,
                mode: GridSampleMode = GridSampleMode::Linear,
            }
            AffineGrid        Resampling 2 Never affine_grid { align_corners: bool = false }
            CropAndResize     Resampling 4 Never crop_and_resize {
                mode: CropAndResizeMode = CropAndResizeMode::Bilinear, extrapolation_value: f32 = 0.0,
            }
            NonMaxSuppression Other      5 Never non_max_suppression { center_point_box: bool = false }
        }

        // Transforms and windows.
        signal {
            DFT             Other  3 Never dft { inverse: bool = false, onesided: bool = false }
            STFT            Other  4 Never stft { onesided: bool = true }
            BlackmanWindow  Window 1 Never blackman_window {
                periodic: bool = true, output_datatype: DType = DType::F32,
            }
            HammingWindow   Window 1 Never hamming_window {
                periodic: bool = true, output_datatype: DType = DType::F32,
            }
            HannWindow      Window 1 Never hann_window {
                periodic: bool = true, output_datatype: DType = DType::F32,
            }
            MelWeightMatrix Window 5 Never mel_weight_matrix { output_datatype: DType = DType::F32 }
        }

        // Ensembles of trees, of the domain ai.onnx.ml.
        trees {
            // As version 5 has it, without what follows the sum. `leaf_starts`, where it is not empty, tells where the
            // targets and weights of each leaf begin: those of older versions speak of several targets.
            TreeEnsemble Other 1 Never tree_ensemble {
                aggregate_function: i64 = 1,
                leaf_starts: Vec<i64> = Vec::new(),
                leaf_targetids: Vec<i64>,
                leaf_weights: Tensor,
                membership_values: Option<Tensor> = None,
                n_targets: i64 = 1,
                nodes_falseleafs: Vec<i64>,
                nodes_falsenodeids: Vec<i64>,
                nodes_featureids: Vec<i64>,
                nodes_missing_value_tracks_true: Vec<i64> = Vec::new(),
                nodes_modes: Tensor,
                nodes_splits: Tensor,
                nodes_trueleafs: Vec<i64>,
                nodes_truenodeids: Vec<i64>,
                tree_roots: Vec<i64>,
            }
        }

        // Random numbers.
        random {
            RandomNormal      Random 0 Never random_normal {
                shape: Vec<i64>,
                dtype: DType = DType::F32,
                seed: Option<f32> = None,
                scale: f32 = 1.0,
                mean: f32 = 0.0,
            }
            RandomNormalLike  Random 1 Never random_normal_like {
                dtype: Option<DType> = None, seed: Option<f32> = None, scale: f32 = 1.0, mean: f32 = 0.0,
            }
            RandomUniform     Random 0 Never random_uniform {
                shape: Vec<i64>,
                dtype: DType = DType::F32,
                seed: Option<f32> = None,
                high: f32 = 1.0,
                low: f32 = 0.0,
            }
            RandomUniformLike Random 1 Never random_uniform_like {
                dtype: Option<DType> = None, seed: Option<f32> = None, high: f32 = 1.0, low: f32 = 0.0,
            }
            Bernoulli         Random 1 Never bernoulli {
                dtype: Option<DType> = None, seed: Option<f32> = None,
            }
            Multinomial       Random 1 Never multinomial {
                dtype: DType = DType::I32, seed: Option<f32> = None, sample_size: i64 = 1,
            }
            Dropout           Random 3 Never dropout { seed: Option<i64> = None }
        }
    }

    // Control flow: the bodies are the node's subgraphs.
    control {
        If          1 {}
        Loop        any {}
        Scan        any {
            scan_input_axes: Vec<i64> = Vec::new(),
            scan_output_axes: Vec<i64> = Vec::new(),
            scan_output_directions: Vec<i64> = Vec::new(),
            scan_input_directions: Vec<i64> = Vec::new(),
            num_scan_inputs: i64,
        }
        SequenceMap any {}
    }
    } };
}

with_op_table!([ops]);
