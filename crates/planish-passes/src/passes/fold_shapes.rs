//! Turns arithmetic on sizes into constants where inference knows the outcome.
//!
//! What Shape, Gather, Concat and their kind make of a dynamic model's sizes is known as numbers or symbols.
//! Numbers become constants. A Reshape to symbols becomes one that copies dimensions (0) or takes the rest (-1),
//! where that says the same, and the arithmetic after it goes.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::infer::Content;
use planish_op::{Op, Reshape};
use planish_tensor::{Dim, Tensor};

use crate::reshape;
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Known contents, and Reshape to known symbols.
pub(crate) struct FoldShapes;

impl Rule for FoldShapes {
    fn name(&self) -> &'static str {
        "fold_shapes"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        match &node.op {
            // An Identity that holds a constant is there because an output must have a node.
            Op::Identity(_) => Match::No,
            Op::Reshape(op) if contents(cx, node).is_none() => constant_target(cx, op, node),
            _ => contents(cx, node).map_or(Match::No, Match::Rewrite),
        }
    }
}

/// The patch for a node whose outputs are all known as numbers.
fn contents(cx: &View<'_>, node: &Node) -> Option<Patch> {
    let mut patch = Patch::new();
    let mut is_any = false;
    for &output in node.outputs.iter().flatten() {
        let constant = patch.constant(cx.name(output), known(cx, output)?);
        patch.replace(output, constant);
        is_any = true;
    }
    is_any.then_some(patch)
}

fn known(cx: &View<'_>, id: ValueId) -> Option<Tensor> {
    let value = cx.graph().value(id);
    let dims = match value.content.as_ref()? {
        Content::Tensor(tensor) => return Some(tensor.clone()),
        Content::Ints(ints) => &ints.dims,
        Content::Grid(dims) => dims,
    };
    let numbers: Vec<i64> = dims.iter().map(Dim::as_const).collect::<Option<_>>()?;
    let ty = value.ty.as_tensor()?;
    // A declared shape may say less than the contents do.
    let shape = match value.content.as_ref()? {
        Content::Ints(ints) if ints.is_scalar => Vec::new(),
        Content::Ints(ints) => vec![ints.dims.len()],
        _ => ty.shape.as_ref()?.as_fixed()?,
    };
    Tensor::from_i64s(ty.dtype, &shape, &numbers).ok()
}

/// A Reshape whose target is computed, made one with a constant target.
fn constant_target(cx: &View<'_>, op: &Reshape, node: &Node) -> Match {
    let (Some(data), Some(target), Some(&Some(output))) =
        (cx.input(node, 0), cx.input(node, 1), node.outputs.first())
    else {
        return Match::No;
    };
    let (Some(from), Some(dims), None) = (cx.shape(data), cx.dims(target), cx.constant(target)) else {
        return Match::No;
    };
    if op.allowzero && dims.contains(&Dim::ZERO) {
        return Match::blocked("a dimension of 0 is meant as such");
    }
    let numbers = match reshape::target(from, &dims) {
        Ok(numbers) => numbers,
        Err(reason) => return Match::blocked(reason),
    };
    let mut patch = Patch::new();
    let constant = patch.constant(cx.name(target), Tensor::vector(numbers));
    let new = patch.node(&node.name, Reshape { allowzero: false }, &[data.into(), constant]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn known_sizes_become_constants() {
        check(
            FoldShapes,
            "input %x: f32[n,3,4] const %i: i64[] = 2 %s: i64[3] = Shape(%x) %d: i64[] = Gather(%s, %i) \
             %f: i64[] = Mul(%d, %i) output %f",
            expect![[r#"
                input %x: f32[n,3,4]
                const %f.1: i64[] = 8
                %f: i64[] = Identity(%f.1)
                output %f
            "#]],
        );
    }

    #[test]
    fn reshapes_copy_symbols_or_take_the_rest() {
        check(
            FoldShapes,
            "input %x: f32[n,s,8] const %c: i64[2] = [2, 4] const %zero: i64[1] = [0] const %two: i64[1] = [2] \
             %d: i64[3] = Shape(%x) %e: i64[2] = Slice(%d, %zero, %two) %t: i64[4] = Concat(%e, %c) {axis=0} \
             %y: f32[n,s,2,4] = Reshape(%x, %t) \"heads\" output %y",
            expect![[r#"
                input %x: f32[n,s,8]
                const %t: i64[4] = [0, 0, 2, 4]
                %y: f32[n,s,2,4] = Reshape(%x, %t) "heads"
                output %y
            "#]],
        );
        check(
            FoldShapes,
            "input %x: f32[n,s,8] const %i: i64[1] = [0] const %j: i64[1] = [1] const %c: i64[1] = [8] %d: i64[3] = Shape(%x) \
             %a: i64[1] = Gather(%d, %i) %b: i64[1] = Gather(%d, %j) %p: i64[1] = Mul(%a, %b) \
             %t: i64[2] = Concat(%p, %c) {axis=0} %y: f32[n*s,8] = Reshape(%x, %t) \"rows\" output %y",
            expect![[r#"
                input %x: f32[n,s,8]
                const %t: i64[2] = [-1, 8]
                %y: f32[n*s,8] = Reshape(%x, %t) "rows"
                output %y
            "#]],
        );
    }

    #[test]
    fn what_no_constant_can_say_stays() {
        let text = "input %x: f32[n,s,8] input %y: f32[m,k] const %i: i64[1] = [0] const %j: i64[1] = [1] \
             %d: i64[3] = Shape(%x) %e: i64[2] = Shape(%y) \
             %a: i64[1] = Gather(%d, %i) %b: i64[1] = Gather(%d, %j) %t: i64[2] = Concat(%b, %a) {axis=0} ";
        check(
            FoldShapes,
            &format!("{text} %z: f32[m,k] = Reshape(%x, %e) \"to_y\" output %z"),
            expect![[r#"
                input %x: f32[n,s,8]
                input %y: f32[m,k]
                const %i: i64[1] = [0]
                const %j: i64[1] = [1]
                %d: i64[3] = Shape(%x)
                %e: i64[2] = Shape(%y)
                %a: i64[1] = Gather(%d, %i)
                %b: i64[1] = Gather(%d, %j)
                %t: i64[2] = Concat(%b, %a) {axis=0}
                %z: f32[m,k] = Reshape(%x, %e) "to_y"
                output %z
                refused at to_y: two dimensions are known only at run time
            "#]],
        );
        check(
            FoldShapes,
            &format!(
                "{text} const %c: i64[1] = [4] %h: i64[1] = Mul(%b, %c) %u: i64[3] = Concat(%a, %h, %j) {{axis=0}} \
                 %z: f32[n,4*s,1] = Reshape(%x, %u) \"split\" output %z"
            ),
            expect![[r#"
                input %x: f32[n,s,8]
                input %y: f32[m,k]
                const %i: i64[1] = [0]
                const %j: i64[1] = [1]
                const %c: i64[1] = [4]
                %d: i64[3] = Shape(%x)
                %e: i64[2] = Shape(%y)
                %a: i64[1] = Gather(%d, %i)
                %b: i64[1] = Gather(%d, %j)
                %t: i64[2] = Concat(%b, %a) {axis=0}
                %h: i64[1] = Mul(%b, %c)
                %u: i64[3] = Concat(%a, %h, %j) {axis=0}
                %z: f32[n,4*s,1] = Reshape(%x, %u) "split"
                output %z
                refused at split: a dimension is known only at run time, and another one may be 0
            "#]],
        );
        check(
            FoldShapes,
            "input %x: f32[n,0] const %i: i64[1] = [0] %d: i64[2] = Shape(%x) %a: i64[1] = Gather(%d, %i) \
             %t: i64[2] = Concat(%i, %a) {axis=0} %z: f32[0,n] = Reshape(%x, %t) {allowzero=true} \"z\" output %z",
            expect![[r#"
                input %x: f32[n,0]
                const %i: i64[1] = [0]
                %d: i64[2] = Shape(%x)
                %a: i64[1] = Gather(%d, %i)
                %t: i64[2] = Concat(%i, %a) {axis=0}
                %z: f32[0,n] = Reshape(%x, %t) {allowzero=true} "z"
                output %z
                refused at z: a dimension of 0 is meant as such
            "#]],
        );
    }
}
