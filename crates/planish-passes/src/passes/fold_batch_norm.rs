//! Folds BatchNormalization into the layer before it, or the one after it, or makes it a product and a sum. Weights of
//! 16 bits are left as they are, since rounding them again costs more than the sum after them.
//!
//! Where a Relu stands between the layer and it, scales above zero go past the Relu into the layer, and a shift is left.
//! They could go into the layer behind as well; but channels that are never above zero have a variance of 0 and so scales
//! a hundred times those of others, which as weights of one layer leave few of 8 bits to the rest. Past a MaxPool it goes
//! down, with scales above zero: there are fewer elements behind it, and a layer may be.
//!
//! At inference the statistics are constants, so the node is `x · s + t` per channel with
//! `s = scale / sqrt(variance + epsilon)` and `t = bias - mean · s`.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Add, BatchNormalization, Mul, Op};
use planish_tensor::{DType, Tensor};

use crate::layer::{Affine, Layer};
use crate::pattern::cast;
use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// BatchNormalization outside training.
pub(crate) struct FoldBatchNorm;

impl Rule for FoldBatchNorm {
    fn name(&self) -> &'static str {
        "fold_batch_norm"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let Op::BatchNormalization(op) = &node.op else { return Match::No };
        let (Some(input), Some(&Some(output))) = (cx.input(node, 0), node.outputs.first()) else {
            return Match::No;
        };
        if op.training_mode {
            return Match::blocked("it is in training mode");
        }
        let Some(affine) = affine(cx, op, node) else {
            return Match::blocked("its scale, bias, mean and variance are not all constant");
        };
        if !affine.is_finite() {
            return Match::blocked("a channel's scale or shift is not finite");
        }
        let mut patch = Patch::new();
        let new = into_layer_before(cx, &mut patch, input, &affine);
        if let Some(new) = new {
            patch.replace(output, new);
            return Match::Rewrite(patch);
        }
        if let Some(patch) = past_relu(cx, node, op, (input, output), &affine) {
            return Match::Rewrite(patch);
        }
        if let Some(patch) = into_layer_behind(cx, input, output, &affine) {
            return Match::Rewrite(patch);
        }
        if let Some(patch) = past_max_pool(cx, node, (input, output), &affine) {
            return Match::Rewrite(patch);
        }
        product_and_sum(cx, node, input, output, &affine)
    }
}

fn affine(cx: &View<'_>, op: &BatchNormalization, node: &Node) -> Option<Affine> {
    let numbers = |idx: usize| cx.constant_input(node, idx).map(Tensor::to_f64s);
    let (scale, bias, mean, variance) = (numbers(1)?, numbers(2)?, numbers(3)?, numbers(4)?);
    if [bias.len(), mean.len(), variance.len()] != [scale.len(); 3] {
        return None;
    }
    let epsilon = f64::from(op.epsilon);
    let scale: Vec<f64> =
        scale.iter().zip(&variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
    let shift = bias.iter().zip(&mean).zip(&scale).map(|((bias, mean), scale)| bias - mean * scale).collect();
    Some(Affine { scale, shift })
}

fn into_layer_before(cx: &View<'_>, patch: &mut Patch, input: ValueId, affine: &Affine) -> Option<Operand> {
    let (layer_id, layer_node) = cx.producer(input)?;
    cx.sole_reader(input)?;
    let layer = Layer::of(cx, layer_node)?.ok()?;
    if layer.channel_axis() != 1 || layer.n_channels() != affine.scale.len() {
        return None;
    }
    patch.relies_on(layer_id);
    layer.scaled(cx, patch, affine).ok()
}

/// Moves the scales past a Relu into the layer before it; what is left is a BatchNormalization that only shifts.
fn past_relu(
    cx: &View<'_>,
    node: &Node,
    op: &BatchNormalization,
    (input, output): (ValueId, ValueId),
    affine: &Affine,
) -> Option<Patch> {
    let can_move = affine.scale.iter().all(|&scale| scale > 0.0) && !affine.only_shifts();
    let (relu_id, relu) = cx.producer(input).filter(|_| can_move)?;
    if !matches!(relu.op, Op::Relu(_) | Op::LeakyRelu(_)) {
        return None;
    }
    cx.sole_reader(input)?;
    let n = affine.scale.len();
    let mut patch = Patch::new();
    let scales = Affine { scale: affine.scale.clone(), shift: vec![0.0; n] };
    let layer = into_layer_before(cx, &mut patch, cx.input(relu, 0)?, &scales)?;
    patch.relies_on(relu_id);
    // Not the name of what was there: ranges of a calibration go by names.
    let scaled = patch.node(&format!("{}.scaled", cx.name(input)), relu.op.clone(), &[layer]);
    let dtype = cx.dtype(input)?;
    let mut constant = |what: &str, numbers: &[f64]| {
        let tensor = Tensor::from_f64s(dtype, &[n], numbers).ok()?;
        Some(patch.constant(&format!("{}.{what}", node.name), tensor))
    };
    let (ones, zeros) = (constant("ones", &vec![1.0; n])?, constant("zeros", &vec![0.0; n])?);
    let shift = constant("shift", &affine.shift)?;
    let shifts = BatchNormalization { epsilon: 0.0, ..op.clone() };
    let shifted = patch.node(&node.name, shifts, &[scaled, ones, shift, zeros, ones]);
    patch.replace(output, shifted);
    Some(patch)
}

fn into_layer_behind(cx: &View<'_>, input: ValueId, output: ValueId, affine: &Affine) -> Option<Patch> {
    let (layer_id, layer_node) = cx.sole_reader(output)?;
    let layer = Layer::of(cx, layer_node)?.ok()?;
    if cx.input(layer_node, 0) != Some(output) {
        return None;
    }
    let mut patch = Patch::new();
    patch.relies_on(layer_id);
    let new = layer.with_scaled_input(cx, &mut patch, input, affine).ok()?;
    patch.replace((*layer_node.outputs.first()?)?, new);
    Some(patch)
}

/// Moves it past a MaxPool that alone reads it: the largest stays the largest where scales are above zero.
fn past_max_pool(
    cx: &View<'_>,
    node: &Node,
    (input, output): (ValueId, ValueId),
    affine: &Affine,
) -> Option<Patch> {
    let (pool_id, pool) = cx.sole_reader(output)?;
    let can_move = affine.scale.iter().all(|&scale| scale > 0.0);
    let (Op::MaxPool(_), &[Some(pooled)], true) = (&pool.op, &pool.outputs[..], can_move) else {
        return None;
    };
    let mut patch = Patch::new();
    patch.relies_on(pool_id);
    let largest = patch.node(&pool.name, pool.op.clone(), &[input.into()]);
    patch.has_shape_of(cx, largest, cx.dtype(pooled)?, pooled);
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[0] = Some(largest);
    let moved = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.replace(pooled, moved[0]);
    Some(patch)
}

fn product_and_sum(cx: &View<'_>, node: &Node, input: ValueId, output: ValueId, affine: &Affine) -> Match {
    let (Some(rank), Some(dtype)) = (cx.rank(input), cx.dtype(input)) else {
        return Match::blocked("the rank of its input is not known");
    };
    let shape: Vec<usize> = [affine.scale.len()].into_iter().chain((2..rank).map(|_| 1)).collect();
    // Numbers of 16 bits are rounded once, after the sum, as the operator rounds them.
    let between = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let number = |numbers: &[f64]| Tensor::from_f64s(between, &shape, numbers);
    let (Ok(scale), Ok(shift)) = (number(&affine.scale), number(&affine.shift)) else {
        return Match::No;
    };
    let mut patch = Patch::new();
    let scale = patch.constant(&format!("{}.scale", node.name), scale);
    let shift = patch.constant(&format!("{}.shift", node.name), shift);
    let mut value = Operand::from(input);
    if between != dtype {
        value = patch.node(&node.name, cast(between), &[value]);
    }
    if !affine.only_shifts() {
        value = patch.node(&node.name, Mul {}, &[value, scale]);
    }
    value = patch.node(&node.name, Add {}, &[value, shift]);
    if between != dtype {
        value = patch.node(&node.name, cast(dtype), &[value]);
    }
    patch.replace(output, value);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, check_same, kept, same_outputs};
    use expect_test::expect;

    const STATISTICS: &str = "const %s: f32[2] = [2, 3] const %b: f32[2] = [1, -1] const %m: f32[2] = [4, 0] \
                              const %v: f32[2] = [0.25, 4]";

    fn text(before: &str) -> String {
        format!("{STATISTICS} {before}")
    }

    /// A convolution of a type, normalized.
    fn convolution(dtype: &str) -> String {
        text(&format!(
            "input %x: {dtype}[n,1,4] const %w: {dtype}[2,1,2] = [1, 2, 3, 4] %c: {dtype}[n,2,3] = Conv(%x, %w) \"conv\" \
             %y: {dtype}[n,2,3] = BatchNormalization(%c, %s, %b, %m, %v) {{epsilon=0}} \"bn\" output %y"
        ))
    }

    #[test]
    fn into_a_convolution() {
        let before = convolution("f32");
        check_same(
            FoldBatchNorm,
            &before,
            expect![[r#"
                input %x: f32[n,1,4]
                const %w: f32[2,1,2] = [4, 8, 4.5, 6]
                const %conv.bias: f32[2] = [-15, -1]
                %y: f32[n,2,3] = Conv(%x, %w, %conv.bias) "conv"
                output %y
            "#]],
        );
    }

    #[test]
    fn into_groups_transposed_convolutions_and_products() {
        for before in [
            "input %x: f32[3,4,5] const %w: f32[2,2,2] = [1, 2, 3, 4, 5, 6, 7, 8] const %c: f32[2] = [1, -2] \
             %a: f32[3,2,4] = Conv(%x, %w, %c) {group=2} %y: f32[3,2,4] = BatchNormalization(%a, %s, %b, %m, %v) output %y",
            "input %x: f32[3,4,5] const %w: f32[4,1,2] = [1, 2, 3, 4, 5, 6, 7, 8] \
             %a: f32[3,2,6] = ConvTranspose(%x, %w) {group=2} %y: f32[3,2,6] = BatchNormalization(%a, %s, %b, %m, %v) output %y",
            "input %x: f32[3,4,5] const %w: f32[4,2,1] = [1, 2, 3, 4, 5, 6, 7, 8] \
             %a: f32[3,2,5] = ConvTranspose(%x, %w) %y: f32[3,2,5] = BatchNormalization(%a, %s, %b, %m, %v) output %y",
            "input %x: f32[3,3] const %w: f32[3,2] = [1, 2, 3, 4, 5, 6] %a: f32[3,2] = MatMul(%x, %w) \
             %y: f32[3,2] = BatchNormalization(%a, %s, %b, %m, %v) output %y",
            "input %x: f32[3,3] const %w: f32[2,3] = [1, 2, 3, 4, 5, 6] const %c: f32[1] = [3] \
             %a: f32[3,2] = Gemm(%x, %w, %c) {alpha=0.5, beta=2, trans_b=true} \
             %y: f32[3,2] = BatchNormalization(%a, %s, %b, %m, %v) output %y",
        ] {
            let (_, after) = same_outputs(FoldBatchNorm, &text(before));
            assert_eq!(after.nodes().len(), 1, "{after}");
        }
    }

    #[test]
    fn into_the_layer_behind() {
        for before in [
            "input %x: f32[3,2,5] const %w: f32[3,2,2] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3] \
             %a: f32[3,2,5] = BatchNormalization(%x, %s, %b, %m, %v) %y: f32[3,3,4] = Conv(%a, %w) output %y",
            "input %x: f32[3,2,5] const %w: f32[4,1,2] = [1, 2, 3, 4, 5, 6, 7, 8] \
             %a: f32[3,2,5] = BatchNormalization(%x, %s, %b, %m, %v) %y: f32[3,4,4] = Conv(%a, %w) {group=2} output %y",
            "input %x: f32[3,2] const %w: f32[2,3] = [1, 2, 3, 4, 5, 6] \
             %a: f32[3,2] = BatchNormalization(%x, %s, %b, %m, %v) %y: f32[3,3] = MatMul(%a, %w) output %y",
        ] {
            let (_, after) = same_outputs(FoldBatchNorm, &text(before));
            assert_eq!(after.nodes().len(), 1, "{after}");
        }
    }

    #[test]
    fn scales_go_past_a_relu_into_the_layer_before_it() {
        let before = text(
            "input %x: f32[3,2,5] const %w: f32[2,2,1] = [1, 2, 3, 4] %c: f32[3,2,5] = Conv(%x, %w) \"c\" \
             %r: f32[3,2,5] = Relu(%c) \"r\" %a: f32[3,2,5] = BatchNormalization(%r, %s, %b, %m, %v) {epsilon=0} \"bn\" \
             %p: f32[3,2,7] = Conv(%a, %w) {pads=[1,1]} output %p",
        );
        check(
            FoldBatchNorm,
            &before,
            expect![[r#"
            input %x: f32[3,2,5]
            const %w: f32[2,2,1] = [1, 2, 3, 4]
            const %w.1: f32[2,2,1] = [4, 8, 4.5, 6]
            const %bn.shift: f32[2,1] = [-15, -1]
            %c: f32[3,2,5] = Conv(%x, %w.1) "c"
            %r.scaled: f32[3,2,5] = Relu(%c) "r.scaled"
            %a: f32[3,2,5] = Add(%r.scaled, %bn.shift) "bn"
            %p: f32[3,2,7] = Conv(%a, %w) {pads=[1,1]}
            output %p
        "#]],
        );
        // Into the layer behind goes what is left, where that does not pad.
        let (_, after) =
            same_outputs(FoldBatchNorm, &before.replace("{pads=[1,1]}", "").replace("3,2,7", "3,2,5"));
        let ops: Vec<&str> = after.nodes().map(|(_, node)| node.op.name()).collect();
        assert_eq!(ops, ["Conv", "Relu", "Conv"], "{after}");
    }

    #[test]
    fn it_goes_past_a_max_pool() {
        let before = |rest: &str| {
            text(&format!(
                "input %x: f32[3,2,6] const %w: f32[2,2,1] = [1, 2, 3, 4] %c: f32[3,2,6] = Conv(%x, %w) \
                 %r: f32[3,2,6] = Relu(%c) %a: f32[3,2,6] = BatchNormalization(%r, %s, %b, %m, %v) {{epsilon=0}} \
                 %q: f32[3,2,3] = MaxPool(%a) {{kernel_shape=[2], strides=[2]}} {rest}"
            ))
        };
        let ops = |rest: &str| {
            let (_, after) = same_outputs(FoldBatchNorm, &before(rest));
            after.nodes().map(|(_, node)| node.op.name()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ops("%y: f32[3,2,3] = Conv(%q, %w) output %y"), "Conv Relu MaxPool Conv");
        assert_eq!(ops("%y: f32[3,2,5] = Conv(%q, %w) {pads=[1,1]} output %y"), "Conv Relu MaxPool Add Conv");
        assert_eq!(ops("output %q"), "Conv Relu MaxPool Add");
        // Others read it before the pool.
        assert_eq!(ops("output %q, %a"), "Conv Relu Add MaxPool");
    }

    #[test]
    fn alone_it_becomes_a_product_and_a_sum() {
        // The convolution after it pads, and the one before it is read twice.
        let before = text(
            "input %x: f32[3,2,5] const %w: f32[2,2,1] = [1, 2, 3, 4] %c: f32[3,2,5] = Conv(%x, %w) \"c\" \
             %a: f32[3,2,5] = BatchNormalization(%c, %s, %b, %m, %v) {epsilon=0} \"bn\" \
             %p: f32[3,2,7] = Conv(%a, %w) {pads=[1,1]} output %p, %c",
        );
        check(
            FoldBatchNorm,
            &before,
            expect![[r#"
            input %x: f32[3,2,5]
            const %w: f32[2,2,1] = [1, 2, 3, 4]
            const %bn.scale: f32[2,1] = [4, 1.5]
            const %bn.shift: f32[2,1] = [-15, -1]
            %c: f32[3,2,5] = Conv(%x, %w) "c"
            %bn: f32[3,2,5] = Mul(%c, %bn.scale) "bn"
            %a: f32[3,2,5] = Add(%bn, %bn.shift) "bn"
            %p: f32[3,2,7] = Conv(%a, %w) {pads=[1,1]}
            output %p, %c
        "#]],
        );
    }

    #[test]
    fn weights_of_half_precision_stay_and_the_sum_is_rounded_once() {
        let before = convolution("f16");
        check(
            FoldBatchNorm,
            &before,
            expect![[r#"
                input %x: f16[n,1,4]
                const %w: f16[2,1,2] = [1, 2, 3, 4]
                const %bn.scale: f32[2,1] = [4, 1.5]
                const %bn.shift: f32[2,1] = [-15, -1]
                %c: f16[n,2,3] = Conv(%x, %w) "conv"
                %bn: f32[n,2,3] = Cast(%c) {to=f32} "bn"
                %bn.1: f32[n,2,3] = Mul(%bn, %bn.scale) "bn"
                %bn.2: f32[n,2,3] = Add(%bn.1, %bn.shift) "bn"
                %y: f16[n,2,3] = Cast(%bn.2) {to=f16} "bn"
                output %y
            "#]],
        );
    }

    #[test]
    fn refusals() {
        let with = |statistics: &str, op: &str| {
            format!(
                "input %x: f32[3,2] {statistics} %y: f32[3,2] = BatchNormalization(%x, %s, %b, %m, %v) {op}"
            )
        };
        let training = "input %x: f32[3,2] const %s: f32[2] = [2, 3] const %b: f32[2] = [1, -1] const %m: f32[2] = [4, 0] \
             const %v: f32[2] = [0.25, 4] \
             %y: f32[3,2], %m2: f32[2], %v2: f32[2] = BatchNormalization(%x, %s, %b, %m, %v) {training_mode=true}";
        kept(FoldBatchNorm, training, "y", "it is in training mode");
        let open = STATISTICS.replace("const %m: f32[2] = [4, 0]", "input %m: f32[2]");
        kept(FoldBatchNorm, &with(&open, ""), "y", "its scale, bias, mean and variance are not all constant");
        let negative = STATISTICS.replace("0.25", "-1");
        kept(FoldBatchNorm, &with(&negative, ""), "y", "a channel's scale or shift is not finite");
        let unranked = with(STATISTICS, "").replace("f32[3,2]", "f32[*]");
        kept(FoldBatchNorm, &unranked, "y", "the rank of its input is not known");
    }
}
