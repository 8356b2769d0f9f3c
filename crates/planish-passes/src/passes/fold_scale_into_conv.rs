//! Folds products, quotients, sums and differences with one constant per channel into the layer before them.
//!
//! A Transpose between the layer and the constant is stepped over, and so is a bias that stands apart (after a
//! stack of products), which is scaled too.

use planish_ir::{NodeId, ValueId};
use planish_op::{Add, Op};
use planish_tensor::{Tensor, distinct_axes};

use crate::layer::{Affine, Layer, along, spread};
use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// Mul, Div, Add and Sub after Conv, ConvTranspose, Gemm and MatMul.
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
        // What the layer gives is told from the rest first, so that only layers are refused with a reason.
        if !leads_to_layer(cx, value) {
            return Match::No;
        }
        let Some((axis, numbers)) = cx.rank(value).and_then(|rank| along(constant, rank)) else {
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
        match fold(cx, &mut patch, value, axis, &affine) {
            Ok(new) => patch.replace(output, new),
            Err(reason) => return Match::blocked(reason),
        }
        Match::Rewrite(patch)
    }
}

/// The two operands of a sum, the constant one last.
fn with_constant(cx: &View<'_>, inputs: &[Option<ValueId>]) -> Option<(ValueId, ValueId)> {
    let &[Some(left), Some(right)] = inputs else { return None };
    match (cx.constant(left), cx.constant(right)) {
        (None, Some(_)) => Some((left, right)),
        (Some(_), None) => Some((right, left)),
        _ => None,
    }
}

/// Whether a value is a layer's, possibly after a Transpose and a bias.
fn leads_to_layer(cx: &View<'_>, value: ValueId) -> bool {
    let Some((_, node)) = cx.producer(value) else { return false };
    match &node.op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_) => true,
        Op::Transpose(_) => cx.input(node, 0).is_some_and(|input| leads_to_layer(cx, input)),
        Op::Add(_) => with_constant(cx, &node.inputs).is_some_and(|(sum, _)| {
            // Sums over sums would have become one already.
            cx.producer(sum).is_some_and(|(_, node)| matches!(node.op, Op::MatMul(_)))
        }),
        _ => false,
    }
}

/// Adds what makes `value` with `affine` applied along `axis` (`None`: one number for all).
fn fold(
    cx: &View<'_>,
    patch: &mut Patch,
    value: ValueId,
    axis: Option<usize>,
    affine: &Affine,
) -> Result<Operand, &'static str> {
    let (id, node) = cx.producer(value).ok_or("nothing makes it")?;
    if cx.sole_reader(value).is_none() {
        return Err("what the layer gives is read by others too");
    }
    patch.relies_on(id);
    match (&node.op, cx.input(node, 0)) {
        (Op::Transpose(op), Some(input)) => {
            let rank = cx.rank(input).ok_or("the rank is not known")?;
            let perm = match &op.perm {
                Some(perm) => distinct_axes(perm, rank).map_err(|_| "the axes are not an order")?,
                None => (0..rank).rev().collect(),
            };
            let axis = match axis {
                Some(axis) => Some(*perm.get(axis).ok_or("the axes are not an order")?),
                None => None,
            };
            let new = fold(cx, patch, input, axis, affine)?;
            Ok(patch.node(&node.name, op.clone(), &[new]))
        }
        (Op::Add(_), _) => {
            let (product, bias) = with_constant(cx, &node.inputs).ok_or("the sum has no constant")?;
            let (rank, tensor) = (cx.rank(product).unwrap_or(0), cx.constant(bias));
            let tensor = tensor.ok_or("the sum has no constant")?;
            let (own, numbers) = along(tensor, rank).ok_or("the bias is not one number per channel")?;
            if own.is_some() && axis.is_some() && own != axis {
                return Err("the bias and the constant lie along different axes");
            }
            let n = numbers.len().max(affine.scale.len());
            let each = |numbers: &[f64]| {
                spread(numbers.to_vec(), n).ok_or("the constant and the bias differ in size")
            };
            let (numbers, scale, shift) = (each(&numbers)?, each(&affine.scale)?, each(&affine.shift)?);
            let sums: Vec<f64> = numbers
                .iter()
                .zip(&scale)
                .zip(&shift)
                .map(|((bias, scale), shift)| bias * scale + shift)
                .collect();
            let new = match affine.scale.iter().all(|&scale| scale == 1.0) {
                true => product.into(),
                false => {
                    let zeros = vec![0.0; affine.scale.len()];
                    let only = Affine { scale: affine.scale.clone(), shift: zeros };
                    fold(cx, patch, product, axis, &only)?
                }
            };
            let mut shape = vec![1; rank];
            if let Some(axis) = own.or(axis) {
                shape[axis] = n;
            }
            let first = shape.iter().position(|&size| size != 1).unwrap_or(rank);
            let bad = "the bias does not fit its shape";
            let sums = Tensor::from_f64s(tensor.dtype(), &shape[first..], &sums).map_err(|_| bad)?;
            let sums = patch.constant(cx.name(bias), sums);
            Ok(patch.node(&node.name, Add {}, &[new, sums]))
        }
        _ => {
            let layer = Layer::of(cx, node).ok_or("it is not a layer")??;
            if axis.is_some_and(|axis| axis != layer.channel_axis()) {
                return Err("the constant does not have one number per channel");
            }
            let each = |numbers: &[f64]| {
                let bad = "the constant does not have one number per channel";
                spread(numbers.to_vec(), layer.n_channels()).ok_or(bad)
            };
            let affine = Affine { scale: each(&affine.scale)?, shift: each(&affine.shift)? };
            layer.scaled(cx, patch, &affine)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    const CONV: &str = "input %x: f32[3,1,4] const %w: f32[2,1,2] = [1, 2, 3, 4] const %k: f32[2,1] = [2, -4] \
                        const %h: f32[] = 0.5 %c: f32[3,2,3] = Conv(%x, %w) \"conv\"";

    #[test]
    fn a_chain_goes_into_the_convolution() {
        let before = format!(
            "{CONV} %p: f32[3,2,3] = Mul(%c, %k) %q: f32[3,2,3] = Add(%k, %p) %r: f32[3,2,3] = Div(%q, %h) \
             %s: f32[3,2,3] = Sub(%h, %r) %y: f32[3,2,3] = Sub(%s, %k) output %y"
        );
        check_same(
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
    }

    #[test]
    fn into_products() {
        check_same(
            FoldScaleIntoConv,
            "input %x: f32[2,3,2] const %w: f32[2,2] = [1, 2, 3, 4] const %k: f32[2] = [2, -4] \
                      %c: f32[2,3,2] = MatMul(%x, %w) \"product\" %y: f32[2,3,2] = Mul(%c, %k) output %y",
            expect![[r#"
                input %x: f32[2,3,2]
                const %w: f32[2,2] = [2, -8, 6, -16]
                %y: f32[2,3,2] = MatMul(%x, %w) "product"
                output %y
            "#]],
        );
    }

    #[test]
    fn through_a_transpose_and_a_bias_apart() {
        check_same(
            FoldScaleIntoConv,
            "input %x: f32[2,3,2] const %w: f32[2,2] = [1, 2, 3, 4] const %b: f32[2] = [2, -4] \
                      const %k: f32[2,1] = [3, 0.5] const %l: f32[2,1] = [1, 2] %c: f32[2,3,2] = MatMul(%x, %w) \"product\" \
                      %d: f32[2,3,2] = Add(%b, %c) \"bias\" %e: f32[2,2,3] = Transpose(%d) {perm=[0,2,1]} \"turn\" \
                      %f: f32[2,2,3] = Mul(%e, %k) %y: f32[2,2,3] = Add(%f, %l) output %y",
            expect![[r#"
            input %x: f32[2,3,2]
            const %w: f32[2,2] = [3, 1, 9, 2]
            const %b: f32[2] = [7, 0]
            %product: f32[2,3,2] = MatMul(%x, %w) "product"
            %bias: f32[2,3,2] = Add(%product, %b) "bias"
            %y: f32[2,2,3] = Transpose(%bias) {perm=[0,2,1]} "turn"
            output %y
            refused at bias: a product of more than two dimensions has no bias
        "#]],
        );
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
        let across = "input %x: f32[2,3,2] const %w: f32[2,2] = [1, 2, 3, 4] const %b: f32[2] = [2, -4] const %k: f32[3,1] = [2, -4, 1] \
                      %c: f32[2,3,2] = MatMul(%x, %w) %d: f32[2,3,2] = Add(%b, %c) %y: f32[2,3,2] = Mul(%d, %k)";
        let (_, report) =
            crate::testing::run(crate::driver::Pass::rule(FoldScaleIntoConv), &format!("{across} output %y"));
        let reasons: Vec<&str> = report.refusals.iter().map(|refusal| &*refusal.reason).collect();
        assert_eq!(
            reasons,
            [
                "a product of more than two dimensions has no bias",
                "the bias and the constant lie along different axes"
            ]
        );
        let batched = wide.replace("f32[2,2] = [1, 2, 3, 4]", "f32[1,2,2] = [1, 2, 3, 4]");
        kept(FoldScaleIntoConv, &batched, "y", "the weights are not a matrix");
        let gemm = "input %x: f32[2,2] const %w: f32[2,2] = [1, 2, 3, 4] const %k: f32[2,1] = [2, -4] const %h: f32[] = 2 \
                    %c: f32[2,2] = Gemm(%x, %w, %k) %y: f32[2,2] = Mul(%c, %h)";
        kept(FoldScaleIntoConv, gemm, "y", "the bias is not one number per channel");
    }
}
