//! Tests of the recognition of attention: forms of exporters, refusals, and numbers with masks.

use super::*;
use crate::agreement::{Feed, PLAIN, SPECIAL, agrees, becomes, leaves, refuses};

const SIZES: &[(&str, i64)] = &[("b", 2), ("s", 5), ("t", 7)];

/// Without infinities: times a weight below the range of f32 they are NaN node by node, where weights are rounded, and
/// infinite in one operator, where they are not.
const LARGE: Feed<'static> = Feed { sizes: SIZES, special: &[f64::NAN, 0.0, -0.0, 80.0, -80.0, 1e4, -1e4] };

/// Hand-written attention of a BERT, as PyTorch exports it: K is transposed in one go with its heads.
const PLAIN_HEADS: &str = "input %q: f32[b,3,s,4] input %k0: f32[b,t,3,4] input %v: f32[b,3,t,4] \
    const %two: f32[] = [2] const %zero: f32[] = [0] const %far: f32[] = [-inf] \
    %kt: f32[b,3,4,t] = Transpose(%k0) {perm=[0,2,3,1]}";

#[test]
fn a_divided_product_is_found() {
    let form = format!(
        "{PLAIN_HEADS} %s0: f32[b,3,s,t] = MatMul(%q, %kt) %s1: f32[b,3,s,t] = Div(%s0, %two) \
         %w: f32[b,3,s,t] = Softmax(%s1) %y: f32[b,3,s,4] = MatMul(%w, %v) \"attend\" output %y"
    );
    becomes(
        RECOGNIZE_ATTENTION,
        &form,
        "input %q: f32[b,3,s,4] input %k0: f32[b,t,3,4] input %v: f32[b,3,t,4] \
             %attend: f32[b,3,t,4] = Transpose(%k0) {perm=[0,2,1,3]} \"attend\" \
             %y: f32[b,3,s,4] = Attention(%q, %attend, %v) {scale=0.5} \"attend\" output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
    agrees(RECOGNIZE_ATTENTION, &form, LARGE);
}

/// PyTorch's scaled_dot_product_attention: the square root of the scale on both sides, and an added mask.
const SPLIT_SCALE: &str = "input %m: bool[b,1,1,t] const %r: f32[1] = [0.70710677] \
    %mask: f32[b,1,1,t] = Where(%m, %zero, %far) %qs: f32[b,3,s,4] = Mul(%q, %r) \
    %ks: f32[b,3,4,t] = Mul(%kt, %r) %s0: f32[b,3,s,t] = MatMul(%qs, %ks) \
    %s1: f32[b,3,s,t] = Add(%s0, %mask) %w: f32[b,3,s,t] = Softmax(%s1) {axis=3}";

#[test]
fn a_split_scale_and_a_mask_are_found() {
    let form = format!("{PLAIN_HEADS} {SPLIT_SCALE} %y: f32[b,3,s,4] = MatMul(%w, %v) output %y");
    becomes(
        RECOGNIZE_ATTENTION,
        &form,
        "input %q: f32[b,3,s,4] input %k0: f32[b,t,3,4] input %v: f32[b,3,t,4] \
             input %m: bool[b,1,1,t] const %zero: f32[] = 0 const %far: f32[] = -inf \
             %mask: f32[b,1,1,t] = Where(%m, %zero, %far) \
             %Transpose: f32[b,3,t,4] = Transpose(%k0) {perm=[0,2,1,3]} \
             %y: f32[b,3,s,4] = Attention(%q, %Transpose, %v, %mask) {scale=0.49999997} output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
    agrees(RECOGNIZE_ATTENTION, &form, LARGE);
}

#[test]
fn rows_without_any_key_keep_what_the_guard_makes_of_them() {
    let form = format!(
        "{PLAIN_HEADS} {SPLIT_SCALE} %n: bool[b,3,s,t] = IsNaN(%w) %g: f32[b,3,s,t] = Where(%n, %zero, %w) \
         %y: f32[b,3,s,4] = MatMul(%g, %v) output %y"
    );
    becomes(
        RECOGNIZE_ATTENTION,
        &form,
        "input %q: f32[b,3,s,4] input %k0: f32[b,t,3,4] input %v: f32[b,3,t,4] \
             input %m: bool[b,1,1,t] const %zero: f32[] = 0 const %far: f32[] = -inf \
             const %zero.1: f32[] = 0 const %axes: i64[1] = [-2] \
             %mask: f32[b,1,1,t] = Where(%m, %zero, %far) \
             %Transpose: f32[b,3,t,4] = Transpose(%k0) {perm=[0,2,1,3]} \
             %Attention: f32[b,3,s,4] = Attention(%q, %Transpose, %v, %mask) {scale=0.49999997} \
             %Mul: f32[b,3,t,4] = Mul(%v, %zero.1) %ReduceSum: f32[b,3,1,4] = ReduceSum(%Mul, %axes) \
             %IsNaN: bool[b,3,s,4] = IsNaN(%Attention) \
             %y: f32[b,3,s,4] = Where(%IsNaN, %ReduceSum, %Attention) output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
    // One key only: the mask hides it from every query of some batches.
    agrees(RECOGNIZE_ATTENTION, &form, Feed { sizes: &[("b", 9), ("s", 2), ("t", 1)], ..PLAIN });
    agrees(RECOGNIZE_ATTENTION, &form, Feed { sizes: &[("b", 9), ("s", 2), ("t", 1)], ..SPECIAL });
    agrees(RECOGNIZE_ATTENTION, &form, LARGE);
}

#[test]
fn masks_are_added_up() {
    let form = format!(
        "{PLAIN_HEADS} input %bias: f32[3,s,t] input %m: f32[b,1,1,t] %s0: f32[b,3,s,t] = MatMul(%q, %kt) \
         %s1: f32[b,3,s,t] = Div(%s0, %two) %s2: f32[b,3,s,t] = Add(%bias, %s1) %s3: f32[b,3,s,t] = Add(%s2, %m) \
         %w: f32[b,3,s,t] = Softmax(%s3) %y: f32[b,3,s,4] = MatMul(%w, %v) output %y"
    );
    becomes(
        RECOGNIZE_ATTENTION,
        &form,
        "input %q: f32[b,3,s,4] input %k0: f32[b,t,3,4] input %v: f32[b,3,t,4] \
             input %bias: f32[3,s,t] input %m: f32[b,1,1,t] \
             %Transpose: f32[b,3,t,4] = Transpose(%k0) {perm=[0,2,1,3]} \
             %Add: f32[b,3,s,t] = Add(%bias, %m) \
             %y: f32[b,3,s,4] = Attention(%q, %Transpose, %v, %Add) {scale=0.5} output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
}

#[test]
fn columns_are_turned_into_rows() {
    // As in image generators: [batch, channels, pixels], and the weights are transposed instead of V.
    let form = "input %q0: f32[b,8,s] input %k: f32[b,8,s] input %v: f32[b,8,s] const %four: f32[] = [4] \
        %q: f32[b,s,8] = Transpose(%q0) {perm=[0,2,1]} %s0: f32[b,s,s] = MatMul(%q, %k) \
        %s1: f32[b,s,s] = Div(%s0, %four) %w: f32[b,s,s] = Softmax(%s1) \
        %wt: f32[b,s,s] = Transpose(%w) {perm=[0,2,1]} %y: f32[b,8,s] = MatMul(%v, %wt) output %y";
    becomes(
        RECOGNIZE_ATTENTION,
        form,
        "input %q0: f32[b,8,s] input %k: f32[b,8,s] input %v: f32[b,8,s] \
             %q: f32[b,s,8] = Transpose(%q0) {perm=[0,2,1]} \
             %Transpose: f32[b,s,8] = Transpose(%v) {perm=[0,2,1]} \
             %Transpose.1: f32[b,s,8] = Transpose(%k) {perm=[0,2,1]} \
             %Attention: f32[b,s,8] = Attention(%q, %Transpose.1, %Transpose) {kv_num_heads=1, q_num_heads=1, scale=0.25} \
             %y: f32[b,8,s] = Transpose(%Attention) {perm=[0,2,1]} output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
}

#[test]
fn heads_in_the_first_axis_keep_their_masks() {
    let form = "input %q: f32[6,s,4] input %k: f32[6,4,t] input %v: f32[6,t,2] input %m: f32[6,1,t] \
        %s0: f32[6,s,t] = MatMul(%q, %k) %s1: f32[6,s,t] = Add(%s0, %m) %w: f32[6,s,t] = Softmax(%s1) \
        %y: f32[6,s,2] = MatMul(%w, %v) output %y";
    becomes(
        RECOGNIZE_ATTENTION,
        form,
        "input %q: f32[6,s,4] input %k: f32[6,4,t] input %v: f32[6,t,2] input %m: f32[6,1,t] \
             const %axes: i64[1] = [1] %Transpose: f32[6,t,4] = Transpose(%k) {perm=[0,2,1]} \
             %Unsqueeze: f32[6,1,1,t] = Unsqueeze(%m, %axes) \
             %y: f32[6,s,2] = Attention(%q, %Transpose, %v, %Unsqueeze) {kv_num_heads=1, q_num_heads=1, scale=1} \
             output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
}

#[test]
fn plain_matrices_are_one_head() {
    let form = "input %q: f32[s,4] input %k: f32[t,4] input %v: f32[t,2] %kt: f32[4,t] = Transpose(%k) \
        %s0: f32[s,t] = MatMul(%q, %kt) %w: f32[s,t] = Softmax(%s0) %y: f32[s,2] = MatMul(%w, %v) output %y";
    becomes(
        RECOGNIZE_ATTENTION,
        form,
        "input %q: f32[s,4] input %k: f32[t,4] input %v: f32[t,2] const %axes: i64[1] = [0] \
             const %axes.1: i64[1] = [0] %Unsqueeze: f32[1,s,4] = Unsqueeze(%q, %axes) \
             %Unsqueeze.1: f32[1,t,4] = Unsqueeze(%k, %axes) \
             %Unsqueeze.2: f32[1,t,2] = Unsqueeze(%v, %axes) \
             %Attention: f32[1,s,2] = Attention(%Unsqueeze, %Unsqueeze.1, %Unsqueeze.2) {kv_num_heads=1, q_num_heads=1, scale=1} \
             %y: f32[s,2] = Squeeze(%Attention, %axes.1) output %y",
        Feed { sizes: SIZES, ..PLAIN },
    );
}

#[test]
fn keys_that_all_heads_share_stay_shared() {
    let form = "input %q: f32[b,3,s,4] input %k: f32[b,1,4,t] input %v: f32[b,1,t,2] \
        %s0: f32[b,3,s,t] = MatMul(%q, %k) %w: f32[b,3,s,t] = Softmax(%s0) \
        %y: f32[b,3,s,2] = MatMul(%w, %v) output %y";
    agrees(RECOGNIZE_ATTENTION, form, Feed { sizes: SIZES, ..PLAIN });
}

/// Scores, then `middle`, then softmax and the product with V.
fn with_middle(middle: &str) -> String {
    format!(
        "{PLAIN_HEADS} %s0: f32[b,3,s,t] = MatMul(%q, %kt) {middle} %w: f32[b,3,s,t] = Softmax(%s1) \
         %y: f32[b,3,s,4] = MatMul(%w, %v) output %y"
    )
}

#[test]
fn a_mask_with_one_number_for_all_keys_is_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("input %m: f32[b,1,s,1] %s1: f32[b,3,s,t] = Add(%s0, %m)"),
        "a mask [b,1,s,1] has one number for all keys",
    );
}

#[test]
fn a_mask_that_widens_the_scores_is_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        "input %q: f32[1,3,s,4] input %k: f32[1,3,4,t] input %v: f32[1,3,t,2] input %m: f32[b,1,1,t] \
         %s0: f32[1,3,s,t] = MatMul(%q, %k) %s1: f32[b,3,s,t] = Add(%s0, %m) %w: f32[b,3,s,t] = Softmax(%s1) \
         %y: f32[b,3,s,2] = MatMul(%w, %v) output %y",
        "a mask [b,1,1,t] does not broadcast into scores [1,3,s,t]",
    );
}

#[test]
fn scores_replaced_by_a_where_are_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("input %m: bool[b,1,1,t] %s1: f32[b,3,s,t] = Where(%m, %s0, %far)"),
        "a Where puts numbers in place of scores, which an added mask cannot do",
    );
}

#[test]
fn a_mask_that_is_scaled_too_is_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle(
            "input %m: f32[b,1,s,t] %a: f32[b,3,s,t] = Add(%s0, %m) %s1: f32[b,3,s,t] = Div(%a, %two)",
        ),
        "the mask is scaled together with the scores",
    );
}

#[test]
fn a_temperature_per_head_is_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("input %m: f32[3,1,1] %s1: f32[b,3,s,t] = Mul(%s0, %m)"),
        "the scores are scaled by more than one number",
    );
}

#[test]
fn weights_that_others_read_are_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("%s1: f32[b,3,s,t] = Div(%s0, %two)").replace("output %y", "output %y, %w"),
        "`w` is an output of the graph",
    );
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("%s1: f32[b,3,s,t] = Div(%s0, %two)")
            .replace("output %y", "%z: f32[b,3,s,t] = Relu(%s0) output %y, %z"),
        "`s0` is read by another node too",
    );
}

#[test]
fn a_softmax_along_the_queries_is_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        &with_middle("%s1: f32[b,3,s,t] = Div(%s0, %two)").replace("Softmax(%s1)", "Softmax(%s1) {axis=2}"),
        "the softmax goes along axis 2, not along the keys",
    );
}

#[test]
fn keys_that_broadcast_over_batches_are_refused() {
    refuses(
        RECOGNIZE_ATTENTION,
        "input %q: f32[b,3,s,4] input %k: f32[3,4,t] input %v: f32[b,3,t,2] \
         %s0: f32[b,3,s,t] = MatMul(%q, %k) %w: f32[b,3,s,t] = Softmax(%s0) \
         %y: f32[b,3,s,2] = MatMul(%w, %v) output %y",
        "queries [b,3,s,4], keys [3,t,4] and values [b,3,t,2] are not of one rank up to 4",
    );
    refuses(
        RECOGNIZE_ATTENTION,
        "input %q: f32[b,3,s,4] input %k: f32[1,3,4,t] input %v: f32[b,3,t,2] \
         %s0: f32[b,3,s,t] = MatMul(%q, %k) %w: f32[b,3,s,t] = Softmax(%s0) \
         %y: f32[b,3,s,2] = MatMul(%w, %v) output %y",
        "queries [b,3,s,4], keys [1,3,t,4] and values [b,3,t,2] do not fit without broadcasting",
    );
}

#[test]
fn a_product_after_a_softmax_of_something_else_stays() {
    leaves(
        RECOGNIZE_ATTENTION,
        "input %x: f32[b,s,t] input %v: f32[b,t,2] %w: f32[b,s,t] = Softmax(%x) \
         %y: f32[b,s,2] = MatMul(%w, %v) output %y",
    );
}
