//! The order of the passes, and why each stands where it does. Nothing else knows the order.

use std::collections::HashMap;
use std::sync::Arc;

use planish_ir::Graph;
use planish_plugin::{Formula, Plugin};
use planish_quantize::SecondMoments;
use planish_tensor::DType;

use crate::driver::{Pass, Pipeline};
use crate::integer_weights::WeightRange;
use crate::passes::add_to_products::ADD_TO_PRODUCTS;
use crate::passes::cancel_casts::CANCEL_CASTS;
use crate::passes::cancel_quantization::{ABSORB_CLAMPS, CANCEL_QUANTIZATION, DROP_ZERO_POINTS};
use crate::passes::canonicalize::Canonicalize;
use crate::passes::choose_signedness::{ChooseSignedness, SIGN_WEIGHTS};
use crate::passes::copy_dequantize::CopyDequantize;
use crate::passes::drop_ordered_gathers::DROP_ORDERED_GATHERS;
use crate::passes::drop_padding_taps::DropPaddingTaps;
use crate::passes::fold_batch_norm::FoldBatchNorm;
use crate::passes::fold_constants::FoldConstants;
use crate::passes::fold_dequantized_weights::FoldDequantizedWeights;
use crate::passes::fold_scale_into_conv::FoldScaleIntoConv;
use crate::passes::fold_shapes::FoldShapes;
use crate::passes::hoist_invariants::HoistInvariants;
use crate::passes::lower_precision::LowerPrecision;
use crate::passes::match_plugin::MatchPlugin;
use crate::passes::merge_parallel_gemms::MergeParallelGemms;
use crate::passes::merge_reshapes::MergeReshapes;
use crate::passes::move_quantization::{PULL_QUANTIZE, PUSH_DEQUANTIZE};
use crate::passes::pack_attention_heads::PACK_ATTENTION_HEADS;
use crate::passes::pack_channel_heads::PACK_CHANNEL_HEADS;
use crate::passes::prune_weights::{PlainZeros, PruneWeights};
use crate::passes::push_expands::PUSH_EXPANDS;
use crate::passes::push_slices::PUSH_SLICES;
use crate::passes::push_transposes::PushTransposes;
use crate::passes::quantize_biases::QUANTIZE_BIASES;
use crate::passes::quantize_dynamically::{DynamicRange, QuantizeDynamically};
use crate::passes::quantize_layers::{ActivationRange, Equalize, Quantize, QuantizeLayers};
use crate::passes::quantize_recurrent::QuantizeRecurrent;
use crate::passes::quantize_weights::{QuantizeWeights, WeightStorage};
use crate::passes::raise_precision::{DropRoundings, RaisePrecision};
use crate::passes::recognize_attention::RECOGNIZE_ATTENTION;
use crate::passes::recognize_depth_to_space::RECOGNIZE_DEPTH_TO_SPACE;
use crate::passes::recognize_einsum::RECOGNIZE_EINSUM;
use crate::passes::recognize_gelu::RECOGNIZE_GELU;
use crate::passes::recognize_group_norm::RECOGNIZE_GROUP_NORM;
use crate::passes::recognize_hard_sigmoid::RECOGNIZE_HARD_SIGMOID;
use crate::passes::recognize_hard_swish::RECOGNIZE_HARD_SWISH;
use crate::passes::recognize_instance_norm::RECOGNIZE_INSTANCE_NORM;
use crate::passes::recognize_layer_norm::RECOGNIZE_LAYER_NORM;
use crate::passes::recognize_mish::RECOGNIZE_MISH;
use crate::passes::recognize_prelu::RECOGNIZE_PRELU;
use crate::passes::recognize_reduce_l2::RECOGNIZE_REDUCE_L2;
use crate::passes::recognize_reduce_mean::RECOGNIZE_REDUCE_MEAN;
use crate::passes::recognize_rms_norm::RECOGNIZE_RMS_NORM;
use crate::passes::recognize_rotary_embedding::RECOGNIZE_ROTARY_EMBEDDING;
use crate::passes::recognize_sample_norm::RECOGNIZE_SAMPLE_NORM;
use crate::passes::recognize_sigmoid::RECOGNIZE_SIGMOID;
use crate::passes::recognize_slice::RECOGNIZE_SLICE;
use crate::passes::recognize_softmax::RECOGNIZE_SOFTMAX;
use crate::passes::recognize_softplus::RECOGNIZE_SOFTPLUS;
use crate::passes::recognize_swish::RECOGNIZE_SWISH;
use crate::passes::recognize_transpose::RECOGNIZE_TRANSPOSE;
use crate::passes::rejoin_parts::REJOIN_PARTS;
use crate::passes::remove_dead::RemoveDead;
use crate::passes::remove_identity::RemoveIdentity;
use crate::passes::round_weights::RoundWeights;
use crate::passes::share_common_subexpressions::ShareCommonSubexpressions;
use crate::passes::simplify_powers::SimplifyPowers;
use crate::passes::slice_read_parts::SLICE_READ_PARTS;
use crate::passes::slice_tokens::SLICE_TOKENS;
use crate::passes::spell_global_pools::SpellGlobalPools;
use crate::passes::spell_integer_products::SPELL_INTEGER_PRODUCTS;
use crate::passes::spell_lrn::SpellLrn;
use crate::passes::spell_qlinear::SPELL_QLINEAR;
use crate::passes::unmerge_rows::UNMERGE_ROWS;
use crate::view::View;

/// The passes that every build runs.
pub fn standard() -> Pipeline {
    let mut passes = vec![
        // Cleaning: what is left is what the model means.
        // First, so that no later pass spends time on what nothing reads.
        Pass::sweep(RemoveDead),
        // Early, so that no later pattern has to look through nodes that do nothing.
        Pass::rule(RemoveIdentity),
    ];
    // Sizes become constants before anything asks whether an operand is one.
    let sizes = passes.len();
    passes.extend(folding());
    let sizes = sizes..passes.len();
    passes.extend([
        // Products of integers as all others, before anything looks for layers. After constants: scales are such.
        Pass::rule(SPELL_QLINEAR),
        // For the same reason. Its patterns are whole before equal scales are shared.
        Pass::rule(SPELL_INTEGER_PRODUCTS),
        // One spelling, now that constants can be told from values.
        Pass::rule(Canonicalize),
        // Reshapes with constant targets can be told from those that change something.
        Pass::rule(RemoveIdentity),
        // After the spelling of Squeeze and the like as Reshape.
        Pass::rule(MergeReshapes),
        // Patterns ask whether two values are the same one.
        Pass::sweep(ShareCommonSubexpressions),
        // After constants and the spelling of Unsqueeze; masks then are what attention can look at.
        Pass::rule(DROP_ORDERED_GATHERS),
        // Folding into layers. Before patterns, none of which has a BatchNormalization in it.
        Pass::rule(FoldBatchNorm),
    ]);
    // After constants, shapes and identities: a pattern then sees numbers instead of the nodes that make
    // them. Before everything that would take parts of a pattern for itself.
    passes.extend(recognition());
    passes.extend([
        // After patterns, which a loop must not have half of; what moves out gets all that follows.
        Pass::rule(HoistInvariants),
        // After patterns, which have transposes of their own (attention), and before whatever looks for the
        // neighbours of a layer.
        Pass::sweep(PushTransposes),
        // After transposes, behind which its scale and shift may have stood.
        Pass::rule(RECOGNIZE_SAMPLE_NORM),
        // After patterns, which begin with such sums and products: HardSigmoid adds 3 to a convolution.
        Pass::rule(FoldScaleIntoConv),
        // After what changes weights: the taps that are left are cut out once.
        Pass::rule(DropPaddingTaps),
        // After patterns, which know a square as Pow.
        Pass::rule(SimplifyPowers),
        // Before what cleans up: no pattern begins with it.
        Pass::rule(SpellLrn),
        // After patterns, which know means as ReduceMean.
        Pass::rule(SpellGlobalPools),
        // After patterns, which know parts by their Split; some parts then have no reader.
        Pass::rule(REJOIN_PARTS),
        // For the same reason, and before slices move.
        Pass::rule(SLICE_READ_PARTS),
        // After attention, whose operands are such slices, and before Reshapes are merged.
        Pass::rule(PUSH_SLICES),
        // What the passes above brought in gets the same spelling as the rest.
        Pass::rule(Canonicalize),
        // Transposes that moved nothing have become Reshapes.
        Pass::rule(MergeReshapes),
        // After all folding: what is to be one layer must look the same.
        Pass::sweep(MergeParallelGemms),
        // At the end, since it forgets which precision the model wants; a build in integers leaves it to `integers`.
        Pass::rule(FoldDequantizedWeights::default()),
        // Cleaning up: folded weights that became equal, nodes that lost their readers.
        Pass::sweep(FoldConstants::default()),
        Pass::rule(RemoveIdentity),
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ]);
    Pipeline::new(passes).until_settled(sizes)
}

/// Sizes as constants, and what follows from constants: a padding by a computed size tells the sizes after it.
fn folding() -> [Pass; 2] {
    [Pass::rule(FoldShapes), Pass::sweep(FoldConstants::default())]
}

/// The passes that bring an optimized graph to a float type of 16 bits; nodes whose names match one of `pins`
/// (`*` stands for any letters, `?` for one) stay in f32,
/// and so does what reads or makes a value that reaches too far, by `ranges`.
pub fn lower_precision(to: DType, pins: Vec<String>, ranges: HashMap<String, ActivationRange>) -> Pipeline {
    Pipeline::new(vec![
        Pass::sweep(LowerPrecision { to, pins, ranges }),
        // Lowered nodes that follow each other meet in casts to f32 and back.
        Pass::rule(CANCEL_CASTS),
        // What computes in 16 bits keeps channels innermost, where this costs nothing.
        Pass::rule(SLICE_TOKENS),
        // For the same reason; after the casts, which stand between products and what is added to them.
        Pass::rule(ADD_TO_PRODUCTS),
        // A value that several lowered nodes read was cast for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that round the weights of an optimized graph to a float type of 16 bits, for backends that compute in f32;
/// those of nodes whose names match one of `pins` stay as they are.
pub fn round_weights(to: DType, pins: Vec<String>) -> Pipeline {
    Pipeline::new(vec![
        Pass::rule(RoundWeights { to, pins }),
        // A weight that several nodes read was rounded for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that prune the weights of an optimized graph's products to 2:4 sparsity.
pub fn prune_weights() -> Pipeline {
    Pipeline::new(vec![
        Pass::rule(PruneWeights),
        // A weight that several nodes read was pruned for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that have a plugin's operator where a formula of one result is computed.
pub fn match_plugin(plugin: Arc<Plugin>, formula: Formula) -> Pipeline {
    Pipeline::new(vec![Pass::rule(MatchPlugin { plugin, formula }), Pass::sweep(RemoveDead)])
}

/// The passes that take the signs off the zeros of weights that are 2:4 sparse. Last of all that changes weights.
pub fn plain_zeros() -> Pipeline {
    Pipeline::new(vec![Pass::rule(PlainZeros), Pass::sweep(RemoveDead)])
}

/// The passes that even out the channels that the layers of an optimized float model read, before these are quantized;
/// `None` where nothing is to be evened out. `options` gets the ranges of what is.
pub fn equalize(graph: &Graph, options: &mut Quantize) -> Option<Pipeline> {
    let evened = Equalize::new(&View::new(graph), options);
    (!evened.is_empty()).then(|| {
        Pipeline::new(vec![
            Pass::sweep(evened),
            // What made a value that nothing reads as it was.
            Pass::sweep(RemoveDead),
        ])
    })
}

/// The passes that quantize an optimized float model by the ranges of a calibration.
pub fn quantize(options: Quantize) -> Pipeline {
    Pipeline::new(vec![
        Pass::sweep(QuantizeLayers(options)),
        // A value that several nodes read by integers was quantized for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that quantize the matrix products of an optimized float model without ranges: those of activations are found
/// in each run. Layers whose names match `fp32_layers` stay, and so do those called `wide_layers`.
pub fn quantize_dynamically(
    range: DynamicRange,
    weight_range: WeightRange,
    fp32_layers: Vec<String>,
    wide_layers: Vec<String>,
) -> Pipeline {
    Pipeline::new(vec![
        Pass::sweep(QuantizeDynamically { range, weight_range, fp32_layers, wide_layers }),
        // A value that several products read was quantized for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that store the weights of large matrix products as integers; layers whose names match `fp32_layers` stay.
/// `moments` of what products read, by name, are taken into regard where they are known.
pub fn quantize_weights(
    storage: WeightStorage,
    fp32_layers: Vec<String>,
    moments: Arc<HashMap<String, SecondMoments>>,
) -> Pipeline {
    Pipeline::new(vec![
        Pass::sweep(QuantizeWeights { storage, fp32_layers, moments }),
        // Weights that several products read were stored for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that store the weights of recurrent layers as bytes; layers whose names match `fp32_layers` stay.
pub fn quantize_recurrent(fp32_layers: Vec<String>) -> Pipeline {
    Pipeline::new(vec![Pass::sweep(QuantizeRecurrent { fp32_layers }), Pass::sweep(RemoveDead)])
}

/// The passes that prepare an optimized graph with 8-bit integers for kernels that multiply them; activations become
/// those of type `activations`. `fold_dequantized_weights` of [`standard`] must not have run: it turns integers into
/// numbers. Nothing that joins equal nodes may run after these.
pub fn integers(activations: DType) -> Pipeline {
    let passes = Vec::from(integer_moves());
    let moves = 0..passes.len();
    let more = [
        // After the moves: integers between QuantizeLinear and DequantizeLinear are renamed together.
        Pass::sweep(ChooseSignedness { to: activations }),
        Pass::rule(SIGN_WEIGHTS),
        // Weights that were transposed as integers.
        Pass::sweep(FoldConstants::default()),
        // After weights are signed, whose zero points then are 0.
        Pass::rule(DROP_ZERO_POINTS),
        // What moved past several readers was quantized for each.
        Pass::sweep(ShareCommonSubexpressions),
        // Last of all that joins or copies.
        Pass::sweep(CopyDequantize),
        // After the copies: weights that an integer product and others read stay integers for the one alone.
        Pass::rule(FoldDequantizedWeights { keeps_factors: true, ..Default::default() }),
        Pass::sweep(RemoveDead),
    ];
    Pipeline::new(passes.into_iter().chain(more).collect()).until_settled(moves)
}

/// The first of them alone, for a graph that goes on to 16-bit floats before the others: pools and movement of integers
/// would become such of floats.
pub fn move_integers() -> Pipeline {
    let moves = integer_moves();
    let all = 0..moves.len();
    Pipeline::new(moves.into()).until_settled(all)
}

/// Integers are moved in place of floats.
fn integer_moves() -> [Pass; 4] {
    [
        // Clamps stand between a layer and the integers that it could write.
        Pass::rule(ABSORB_CLAMPS),
        Pass::rule(CANCEL_QUANTIZATION),
        // Each opens the way for the others: what moved meets what it cancels with.
        Pass::rule(PUSH_DEQUANTIZE),
        Pass::rule(PULL_QUANTIZE),
    ]
}

/// The passes that spell a quantized graph as other runtimes fuse it.
pub fn portable_integers() -> Pipeline {
    Pipeline::new(vec![
        // A layer is fused with the QuantizeLinear after it if nothing stands between.
        Pass::rule(ABSORB_CLAMPS),
        Pass::rule(QUANTIZE_BIASES),
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that compute products of integers in floats, for backends that multiply no integers.
pub fn dequantize_weights() -> Pipeline {
    Pipeline::new(vec![
        Pass::rule(FoldDequantizedWeights::default()),
        // What is rounded in the same way twice is rounded once.
        Pass::rule(CANCEL_QUANTIZATION),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that compute these weights, DequantizeLinear by name, whose products no kernel computes in integers.
pub fn fold_loose_weights(loose: Vec<Box<str>>) -> Pipeline {
    Pipeline::new(vec![
        Pass::rule(FoldDequantizedWeights { keeps_factors: true, loose }),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that compute a model of 16-bit floats in f32, for backends without arithmetic of 16 bits. They come
/// first: patterns and folding then see the types that kernels have.
pub fn raise_precision() -> Pipeline {
    Pipeline::new(vec![
        Pass::rule(RaisePrecision),
        // Raised nodes that follow each other meet in casts to 16 bits and back.
        Pass::rule(DropRoundings),
        // A value that several raised nodes read was cast for each.
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}

/// The passes that turn sizes into constants, for who wants to know the sizes of a graph whose inputs have sizes.
pub fn fold_sizes() -> Pipeline {
    Pipeline::new(folding().into()).until_settled(0..folding().len())
}

/// What exporters take apart, put together again.
fn recognition() -> Vec<Pass> {
    vec![
        // First: products for attention, and transposes for what looks for them.
        Pass::rule(RECOGNIZE_EINSUM),
        // Masks and reductions that need no Expand to broadcast.
        Pass::rule(PUSH_EXPANDS),
        // Before Transpose, which would take one of the Reshapes away.
        Pass::rule(RECOGNIZE_DEPTH_TO_SPACE),
        // Early, since attention looks for transposed keys.
        Pass::rule(RECOGNIZE_TRANSPOSE),
        // After Transpose, which joins what exporters do to an axis before they index it.
        Pass::rule(RECOGNIZE_SLICE),
        // Parts of the activations after them.
        Pass::rule(RECOGNIZE_SIGMOID),
        Pass::rule(RECOGNIZE_SOFTPLUS),
        Pass::rule(RECOGNIZE_GELU),
        Pass::rule(RECOGNIZE_SWISH),
        Pass::rule(RECOGNIZE_MISH),
        // Before HardSigmoid, which would take the ramp out of it.
        Pass::rule(RECOGNIZE_HARD_SWISH),
        Pass::rule(RECOGNIZE_HARD_SIGMOID),
        Pass::rule(RECOGNIZE_PRELU),
        // Norms are made of means.
        Pass::rule(RECOGNIZE_REDUCE_MEAN),
        // Before LayerNorm, which takes the same axes if the parameters do not say otherwise.
        Pass::rule(RECOGNIZE_INSTANCE_NORM),
        Pass::rule(RECOGNIZE_LAYER_NORM),
        Pass::rule(RECOGNIZE_RMS_NORM),
        // After InstanceNorm and LayerNorm, which it is made of.
        Pass::rule(RECOGNIZE_GROUP_NORM),
        // After the norms, whose roots are of the same kind.
        Pass::rule(RECOGNIZE_REDUCE_L2),
        // Before attention, whose operands it makes.
        Pass::rule(RECOGNIZE_ROTARY_EMBEDDING),
        // A part of attention.
        Pass::rule(RECOGNIZE_SOFTMAX),
        // After the norms and activations, since it takes the scales of its operands off.
        Pass::rule(RECOGNIZE_ATTENTION),
        Pass::rule(PACK_ATTENTION_HEADS),
        // What is left of heads between transposes are those of images.
        Pass::rule(PACK_CHANNEL_HEADS),
        // Around packed heads the batch alone may be left to transpose.
        Pass::rule(RECOGNIZE_TRANSPOSE),
        // Layers that keep their axes can be moved to where fewest transposes are left.
        Pass::rule(UNMERGE_ROWS),
    ]
}
