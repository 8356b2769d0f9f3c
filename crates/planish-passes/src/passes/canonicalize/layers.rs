//! Matrix products: Gemm without factors and transposed constants, and Gemm for a product plus bias.

use planish_ir::{Node, ValueId};
use planish_op::{Gemm, MatMul, Op};
use planish_tensor::{DType, Tensor};

use crate::rule::{Match, Operand, Patch};
use crate::view::View;

const PLAIN: Gemm = Gemm { alpha: 1.0, beta: 1.0, trans_a: false, trans_b: false };

/// A Gemm with constant weights: factors and the transposition go into the constants; without a bias it is a
/// MatMul.
pub(super) fn plain_gemm(cx: &View<'_>, op: &Gemm, node: &Node, output: ValueId) -> Match {
    let (Some(a), Some(b)) = (cx.input(node, 0), cx.input(node, 1)) else { return Match::No };
    let c = cx.input(node, 2);
    let (weight, bias) = (cx.constant(b), c.map(|c| cx.constant(c)));
    let is_wide = |tensor: &Tensor| matches!(tensor.dtype(), DType::F32 | DType::F64);
    let mut new = op.clone();
    let mut patch = Patch::new();
    let mut inputs: Vec<Option<Operand>> = vec![Some(a.into()), Some(b.into())];
    if let Some(mut weight) = weight.cloned() {
        if op.trans_b {
            let Some(turned) = transposed(&weight) else { return Match::No };
            (weight, new.trans_b) = (turned, false);
        }
        if op.alpha != 1.0 && is_wide(&weight) {
            let Some(scaled) = scaled(&weight, op.alpha) else { return Match::No };
            (weight, new.alpha) = (scaled, 1.0);
        }
        if new != *op {
            inputs[1] = Some(patch.constant(cx.name(b), weight));
        }
    } else if op.alpha != 1.0 || op.trans_b {
        return Match::blocked("the weights are not constant");
    }
    match (c, bias) {
        (Some(c), Some(Some(bias))) if op.beta != 1.0 && is_wide(bias) => {
            let Some(scaled) = scaled(bias, op.beta) else { return Match::No };
            inputs.push(Some(patch.constant(cx.name(c), scaled)));
            new.beta = 1.0;
        }
        (Some(c), _) => inputs.push(Some(c.into())),
        // The factor of a bias that is not there says nothing.
        (None, _) => new.beta = 1.0,
    }
    if c.is_none() && new == PLAIN {
        let product = patch.node_with(&node.name, MatMul {}, inputs, 1);
        patch.replace(output, product[0]);
        return Match::Rewrite(patch);
    }
    if new == *op {
        return Match::No;
    }
    let product = patch.node_with(&node.name, new, inputs, 1);
    patch.replace(output, product[0]);
    Match::Rewrite(patch)
}

fn transposed(matrix: &Tensor) -> Option<Tensor> {
    let op = Op::from(planish_op::Transpose { perm: Some(vec![1, 0]) });
    let value = matrix.clone().into();
    planish_reference::evaluate(&op, &[Some(&value)], 1).ok()?.pop()?.as_tensor().cloned()
}

fn scaled(tensor: &Tensor, factor: f32) -> Option<Tensor> {
    let numbers: Vec<f64> = tensor.to_f64s().into_iter().map(|number| number * f64::from(factor)).collect();
    Tensor::from_f64s(tensor.dtype(), tensor.shape(), &numbers).ok()
}

/// A product of two matrices, the second constant, plus a constant row: one Gemm.
pub(super) fn product_and_sum(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let &[Some(left), Some(right)] = &node.inputs[..] else { return Match::No };
    let (product, bias) = match (cx.constant(left), cx.constant(right)) {
        (None, Some(_)) => (left, right),
        (Some(_), None) => (right, left),
        _ => return Match::No,
    };
    let Some((id, matmul)) = cx.producer(product) else { return Match::No };
    let &[Some(a), Some(b)] = &matmul.inputs[..] else { return Match::No };
    let is_matrix = |id: ValueId| cx.rank(id) == Some(2);
    if !matches!(matmul.op, Op::MatMul(_)) || cx.constant(b).is_none() || !is_matrix(a) || !is_matrix(b) {
        return Match::No;
    }
    if cx.sole_reader(product).is_none() {
        return Match::blocked("the product is read by others too");
    }
    let n = cx.shape(b).and_then(|shape| shape.get(1)?.as_usize());
    let Some(row) = cx.constant(bias).filter(|row| Some(row.len()) == n && row.shape().last() == n.as_ref())
    else {
        return Match::blocked("what is added is not one number per column");
    };
    let Ok(row) = row.reshaped(&[row.len()]) else { return Match::No };
    let mut patch = Patch::new();
    patch.relies_on(id);
    let row = patch.constant(cx.name(bias), row);
    let gemm = patch.node(&matmul.name, PLAIN, &[a.into(), b.into(), row]);
    patch.replace(output, gemm);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn factors_and_transposition_go_into_constants() {
        check_same(
            Canonicalize,
            "input %x: f32[n,2] const %w: f32[3,2] = [1, 2, 3, 4, 5, 6] const %b: f32[3] = [1, 2, 3] \
             %y: f32[n,3] = Gemm(%x, %w, %b) {alpha=0.5, beta=2, trans_b=true} \"fc\" \
             %z: f32[n,3] = Gemm(%x, %w) {beta=3, trans_b=true} \"product\" output %y, %z",
            expect![[r#"
            input %x: f32[n,2]
            const %w: f32[2,3] = [0.5, 1.5, 2.5, 1, 2, 3]
            const %b: f32[3] = [2, 4, 6]
            const %w.1: f32[2,3] = [1, 3, 5, 2, 4, 6]
            %y: f32[n,3] = Gemm(%x, %w, %b) "fc"
            %z: f32[n,3] = MatMul(%x, %w.1) "product"
            output %y, %z
        "#]],
        );
    }

    #[test]
    fn product_and_bias_are_a_gemm() {
        check_same(
            Canonicalize,
            "input %x: f32[n,2] const %w: f32[2,3] = [1, 2, 3, 4, 5, 6] const %b: f32[1,3] = [1, 2, 3] \
             %p: f32[n,3] = MatMul(%x, %w) \"fc\" %y: f32[n,3] = Add(%b, %p) \"sum\" output %y",
            expect![[r#"
            input %x: f32[n,2]
            const %w: f32[2,3] = [1, 2, 3, 4, 5, 6]
            const %b: f32[3] = [1, 2, 3]
            %y: f32[n,3] = Gemm(%x, %w, %b) "fc"
            output %y
        "#]],
        );
    }

    #[test]
    fn refusals() {
        kept(
            Canonicalize,
            "input %x: f32[n,2] input %w: f32[3,2] %y: f32[n,3] = Gemm(%x, %w) {trans_b=true}",
            "y",
            "the weights are not constant",
        );
        let product = "input %x: f32[2,2] const %w: f32[2,2] = [1, 2, 3, 4] const %b: f32[2,1] = [1, 2] \
                       const %r: f32[2] = [1, 2] %p: f32[2,2] = MatMul(%x, %w)";
        let column = format!("{product} %y: f32[2,2] = Add(%p, %b)");
        kept(Canonicalize, &column, "y", "what is added is not one number per column");
        let twice = format!("{product} %q: f32[2,2] = Add(%p, %r) %y: f32[2,2] = Mul(%p, %q)");
        kept(Canonicalize, &twice, "y", "the product is read by others too");
        // A stack of products stays a product and a sum.
        kept(
            Canonicalize,
            "input %x: f32[n,s,2] const %w: f32[2,2] = [1, 2, 3, 4] const %b: f32[2] = [1, 2] \
             %p: f32[n,s,2] = MatMul(%x, %w) %y: f32[n,s,2] = Add(%p, %b)",
            "y",
            "",
        );
    }
}
