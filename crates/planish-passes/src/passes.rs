//! The passes, one file each, named verb and object.

pub(crate) mod add_to_products;
pub(crate) mod cancel_casts;
pub(crate) mod canonicalize;
pub(crate) mod fold_batch_norm;
pub(crate) mod fold_constants;
pub(crate) mod fold_dequantized_weights;
pub(crate) mod fold_scale_into_conv;
pub(crate) mod fold_shapes;
pub(crate) mod lower_precision;
pub(crate) mod merge_parallel_gemms;
pub(crate) mod merge_reshapes;
pub(crate) mod pack_attention_heads;
pub(crate) mod push_expands;
pub(crate) mod push_slices;
pub(crate) mod push_transposes;
pub(crate) mod remove_dead;
pub(crate) mod remove_identity;
pub(crate) mod share_common_subexpressions;
pub(crate) mod simplify_powers;
pub(crate) mod slice_tokens;
pub(crate) mod spell_global_pools;
pub(crate) mod unmerge_rows;

// What exporters take apart, put together again. Shared reading of patterns: `pattern.rs`, `formula.rs`.
pub(crate) mod raise_precision;
pub(crate) mod recognize_attention;
pub(crate) mod recognize_depth_to_space;
pub(crate) mod recognize_einsum;
pub(crate) mod recognize_gelu;
pub(crate) mod recognize_group_norm;
pub(crate) mod recognize_hard_sigmoid;
pub(crate) mod recognize_hard_swish;
pub(crate) mod recognize_instance_norm;
pub(crate) mod recognize_layer_norm;
pub(crate) mod recognize_mish;
pub(crate) mod recognize_prelu;
pub(crate) mod recognize_reduce_l2;
pub(crate) mod recognize_reduce_mean;
pub(crate) mod recognize_rms_norm;
pub(crate) mod recognize_rotary_embedding;
pub(crate) mod recognize_sigmoid;
pub(crate) mod recognize_slice;
pub(crate) mod recognize_softmax;
pub(crate) mod recognize_softplus;
pub(crate) mod recognize_swish;
pub(crate) mod recognize_transpose;
