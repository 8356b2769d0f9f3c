//! Folds products, quotients, sums and differences with one constant per channel into the layer before them.

use planish_ir::NodeId;
use planish_op::Op;

use crate::layer::{Affine, Layer, along_axis};
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Mul, Div, Add and Sub behind Conv, ConvTranspose, Gemm and MatMul.
pub(crate) struct FoldScaleIntoConv;

impl Rule for FoldScaleIntoConv {
    fn name(&self) -> &'static str {
        "fold_scale_into_conv"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        if !matches!(node.op, Op::Mul(_) | Op::Div(_) | Op::Add(_) | Op::Sub(_)) {
            return Match::No;
        }
        let (&[Some(left), Some(right)], &[Some(output)]) = (&node.inputs[..], &node.outputs[..]) else {
            return Match::No;
        };
        let (value, constant, is_left) = match (cx.constant(left), cx.constant(right)) {
            (None, Some(constant)) => (left, constant, true),
            (Some(constant), None) => (right, constant, false),
            _ => return Match::No,
        };
        let Some((layer_id, layer_node)) = cx.producer(value) else { return Match::No };
        let layer = match Layer::of(cx, layer_node) {
            None => return Match::No,
            Some(Err(reason)) => return Match::blocked(reason),
            Some(Ok(layer)) => layer,
        };
        if cx.sole_reader(value).is_none() {
            return Match::blocked("what the layer gives is read by others too");
        }
        let Some(rank) = cx.rank(value) else { return Match::No };
        let Some(numbers) = along_axis(constant, rank, layer.channel_axis(), layer.n_channels()) else {
            return Match::blocked("the constant does not have one number per channel");
        };
        let (ones, zeros) = (vec![1.0; numbers.len()], vec![0.0; numbers.len()]);
        let negative = |numbers: &[f64]| numbers.iter().map(|number| -number).collect::<Vec<f64>>();
        let affine = match (&node.op, is_left) {
            (Op::Mul(_), _) => Affine { scale: numbers, shift: zeros },
            (Op::Div(_), true) => {
                Affine { scale: numbers.iter().map(|number| 1.0 / number).collect(), shift: zeros }
            }
            (Op::Add(_), _) => Affine { scale: ones, shift: numbers },
            (Op::Sub(_), true) => Affine { scale: ones, shift: negative(&numbers) },
            (Op::Sub(_), false) => Affine { scale: negative(&ones), shift: numbers },
            _ => return Match::blocked("a constant is divided by what the layer gives"),
        };
        if !affine.is_finite() {
            return Match::blocked("a number of the constant is not finite");
        }
        let mut patch = Patch::new();
        patch.relies_on(layer_id);
        match layer.scaled(cx, &mut patch, &affine) {
            Ok(new) => patch.replace(output, new),
            Err(reason) => return Match::blocked(reason),
        }
        Match::Rewrite(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, kept, same_outputs};
    use expect_test::expect;

    const CONV: &str = "input %x: f32[3,1,4] const %w: f32[2,1,2] = [1, 2, 3, 4] const %k: f32[2,1] = [2, -4] \
                        const %h: f32[] = 0.5 %c: f32[3,2,3] = Conv(%x, %w) \"conv\"";

    #[test]
    fn a_chain_goes_into_the_convolution() {
        let before = format!(
            "{CONV} %p: f32[3,2,3] = Mul(%c, %k) %q: f32[3,2,3] = Add(%k, %p) %r: f32[3,2,3] = Div(%q, %h) \
             %s: f32[3,2,3] = Sub(%h, %r) %y: f32[3,2,3] = Sub(%s, %k) output %y"
        );
        check(
            FoldScaleIntoConv,
            &before,
            expect![[r#"
                input %x: f32[3,1,4]
                const %w: f32[2,1,2] = [-4, -8, 24, 32]
                const %conv.bias: f32[2] = [-5.5, 12.5]
                %y: f32[3,2,3] = Conv(%x, %w, %conv.bias) "conv"
                output %y
            "#]],
        );
        same_outputs(FoldScaleIntoConv, &before);
    }

    #[test]
    fn into_products() {
        let before = "input %x: f32[2,3,2] const %w: f32[2,2] = [1, 2, 3, 4] const %k: f32[2] = [2, -4] \
                      %c: f32[2,3,2] = MatMul(%x, %w) \"product\" %y: f32[2,3,2] = Mul(%c, %k) output %y";
        check(
            FoldScaleIntoConv,
            before,
            expect![[r#"
                input %x: f32[2,3,2]
                const %w: f32[2,2] = [2, -8, 6, -16]
                %y: f32[2,3,2] = MatMul(%x, %w) "product"
                output %y
            "#]],
        );
        same_outputs(FoldScaleIntoConv, before);
    }

    #[test]
    fn refusals() {
        let cases = [
            ("%y: f32[3,2,3] = Div(%h, %c)", "a constant is divided by what the layer gives"),
            (
                "const %l: f32[3] = [1, 2, 3] %y: f32[3,2,3] = Mul(%c, %l)",
                "the constant does not have one number per channel",
            ),
            ("const %z: f32[] = 0 %y: f32[3,2,3] = Div(%c, %z)", "a number of the constant is not finite"),
            (
                "%d: f32[3,2,3] = Mul(%c, %h) %y: f32[3,2,3] = Add(%c, %d)",
                "what the layer gives is read by others too",
            ),
        ];
        for (statements, reason) in cases {
            kept(FoldScaleIntoConv, &format!("{CONV} {statements}"), "y", reason);
        }
        let open = CONV.replace("const %w: f32[2,1,2] = [1, 2, 3, 4]", "input %w: f32[2,1,2]");
        let mul = "%y: f32[3,2,3] = Mul(%c, %h)";
        kept(FoldScaleIntoConv, &format!("{open} {mul}"), "y", "the weights are not constant");
        let half = format!("{CONV} {mul}").replace("f32", "f16");
        let reason = "weights of less than single precision would be rounded twice";
        kept(FoldScaleIntoConv, &half, "y", reason);
        let bias =
            CONV.replace("Conv(%x, %w)", "Conv(%x, %w, %b)").replace("const %h", "input %b: f32[2] const %h");
        kept(FoldScaleIntoConv, &format!("{bias} {mul}"), "y", "the bias is not constant");
        let wide = "input %x: f32[2,3,2] const %w: f32[2,2] = [1, 2, 3, 4] const %k: f32[2] = [2, -4] \
                    %c: f32[2,3,2] = MatMul(%x, %w) %y: f32[2,3,2] = Add(%c, %k)";
        kept(FoldScaleIntoConv, wide, "y", "a product of more than two dimensions has no bias");
        let batched = wide.replace("f32[2,2] = [1, 2, 3, 4]", "f32[1,2,2] = [1, 2, 3, 4]");
        kept(FoldScaleIntoConv, &batched, "y", "the weights are not a matrix");
        let gemm = "input %x: f32[2,2] const %w: f32[2,2] = [1, 2, 3, 4] const %k: f32[2,1] = [2, -4] const %h: f32[] = 2 \
                    %c: f32[2,2] = Gemm(%x, %w, %k) %y: f32[2,2] = Mul(%c, %h)";
        kept(FoldScaleIntoConv, gemm, "y", "the bias is not one number per channel");
    }
}
