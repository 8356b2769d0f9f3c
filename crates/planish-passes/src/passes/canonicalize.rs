//! Brings what can be said in several ways to one, so that later passes and lowering know one spelling.
//!
//! What is said is the same to the last bit, but for `layers`, where constants are folded and rounded once.

mod arithmetic;
mod casts;
mod clamps;
mod layers;
mod padding;
mod resizes;

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Op, Reshape};
use planish_tensor::Tensor;

use crate::reshape::as_reshape;
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// One spelling each for shapes, arithmetic with constants, clamps, casts, products, padding and resizes.
pub(crate) struct Canonicalize;

impl Rule for Canonicalize {
    fn name(&self) -> &'static str {
        "canonicalize"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let Some(&Some(output)) = node.outputs.first() else { return Match::No };
        match &node.op {
            Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_) => reshape(cx, node, output),
            Op::Reshape(op) if op.allowzero => plain_reshape(cx, node, output),
            Op::Gather(op) => gather_of_all(cx, op.axis, node, output),
            Op::Relu(_) | Op::Clip(_) => clamps::merge(cx, node, output),
            Op::Cast(op) => casts::merge(cx, op, node, output),
            Op::Gemm(op) => layers::plain_gemm(cx, op, node, output),
            Op::Conv(_) | Op::AveragePool(_) | Op::MaxPool(_) => padding::merge(cx, node, output),
            Op::Resize(op) => resizes::name_axes(cx, op, node, output),
            Op::PRelu(_) => arithmetic::leaky(cx, node, output),
            Op::Add(_) => match layers::product_and_sum(cx, node, output) {
                Match::No => arithmetic::simplify(cx, node, output),
                found => found,
            },
            Op::Max(_) | Op::Min(_) => match clamps::extremes(cx, node, output) {
                Match::No => arithmetic::simplify(cx, node, output),
                found => found,
            },
            _ => arithmetic::simplify(cx, node, output),
        }
    }
}

/// Flatten, Squeeze and Unsqueeze as Reshape, where the shape can be said.
fn reshape(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let Some(input) = cx.input(node, 0) else { return Match::No };
    as_reshape(cx, node, input, output)
}

/// A Reshape that takes 0 as a size, without a 0 in its target: then the usual one says the same.
fn plain_reshape(cx: &View<'_>, node: &Node, output: ValueId) -> Match {
    let (Some(input), Some(shape)) = (cx.input(node, 0), cx.input(node, 1)) else { return Match::No };
    if cx.constant(shape).is_none_or(|shape| shape.to_i64s().contains(&0)) {
        return Match::No;
    }
    let mut patch = Patch::new();
    let new = patch.node(&node.name, Reshape { allowzero: false }, &[input.into(), shape.into()]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

/// A Gather of all elements of a vector in their order: a Reshape. Exporters write strided views so.
fn gather_of_all(cx: &View<'_>, axis: i64, node: &Node, output: ValueId) -> Match {
    let (Some(input), Some(indices)) = (cx.input(node, 0), cx.constant_input(node, 1)) else {
        return Match::No;
    };
    let (Some(&[n]), true) = (cx.fixed_shape(input).as_deref(), axis == 0 || axis == -1) else {
        return Match::No;
    };
    if indices.len() != n || indices.to_i64s().into_iter().zip(0..).any(|(index, place)| index != place) {
        return Match::No;
    }
    let shape: Vec<i64> = indices.shape().iter().map(|&size| size as i64).collect();
    let mut patch = Patch::new();
    let shape = patch.constant(&format!("{}.shape", node.name), Tensor::vector(shape));
    let new = patch.node(&node.name, Reshape { allowzero: false }, &[input.into(), shape]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, kept};
    use expect_test::expect;

    #[test]
    fn changes_of_shape_are_reshapes() {
        check(
            Canonicalize,
            "input %x: f32[n,2,1,3] const %a: i64[1] = [2] %p: f32[n,6] = Flatten(%x) \"p\" \
             %q: f32[n,2,3] = Squeeze(%x, %a) \"q\" %r: f32[n,2,1,1,3] = Unsqueeze(%x, %a) \"r\" output %p, %q, %r",
            expect![[r#"
                input %x: f32[n,2,1,3]
                const %p.shape: i64[2] = [0, 6]
                const %q.shape: i64[3] = [0, 2, 3]
                const %r.shape: i64[5] = [0, 2, 1, 1, 3]
                %p: f32[n,6] = Reshape(%x, %p.shape) "p"
                %q: f32[n,2,3] = Reshape(%x, %q.shape) "q"
                %r: f32[n,2,1,1,3] = Reshape(%x, %r.shape) "r"
                output %p, %q, %r
            "#]],
        );
    }

    #[test]
    fn strided_views_and_odd_reshapes_are_reshapes() {
        check(
            Canonicalize,
            "input %x: f32[4] const %i: i64[2,2] = [0, 1, 2, 3] const %s: i64[2] = [-1, 1] %p: f32[2,2] = Gather(%x, %i) \"p\" \
             %q: f32[4,1] = Reshape(%x, %s) {allowzero=true} \"q\" output %p, %q",
            expect![[r#"
                input %x: f32[4]
                const %s: i64[2] = [-1, 1]
                const %p.shape: i64[2] = [2, 2]
                %p: f32[2,2] = Reshape(%x, %p.shape) "p"
                %q: f32[4,1] = Reshape(%x, %s) "q"
                output %p, %q
            "#]],
        );
        kept(Canonicalize, "input %x: f32[4] const %i: i64[2] = [0, 1] %y: f32[2] = Gather(%x, %i)", "y", "");
        kept(Canonicalize, "input %x: f32[2] const %i: i64[2] = [1, 0] %y: f32[2] = Gather(%x, %i)", "y", "");
        let zero =
            "input %x: f32[0,2] const %s: i64[2] = [2, 0] %y: f32[2,0] = Reshape(%x, %s) {allowzero=true}";
        kept(Canonicalize, zero, "y", "");
    }

    #[test]
    fn shapes_that_cannot_be_said_stay() {
        let text = |ty: &str, out: &str| {
            format!("input %x: f32{ty} const %a: i64[1] = [0] %y: f32{out} = Unsqueeze(%x, %a)")
        };
        kept(Canonicalize, &text("[*]", "[*]"), "y", "the rank is not known");
        kept(Canonicalize, &text("[0]", "[1,0]"), "y", "a dimension is 0");
        kept(Canonicalize, &text("[n,m]", "[1,n,m]"), "y", "two dimensions are known only at run time");
    }
}
