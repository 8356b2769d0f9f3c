//! Moves Expand down through pointwise operators, and drops it where they broadcast by themselves: masks stay
//! as small as they were made. A tensor of one number in all elements is that number, expanded.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Expand, Op};
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, made_by, output};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Expand before a pointwise operator.
pub(crate) const PUSH_EXPANDS: Finder = Finder { name: "push_expands", find };

/// What an Expand is of, and its target.
fn expanded(cx: &View<'_>, value: ValueId) -> Option<(ValueId, ValueId)> {
    let (_, node) = made_by(cx, value, |op| matches!(op, Op::Expand(_)))?;
    Some((cx.input(node, 0)?, cx.input(node, 1)?))
}

/// The number that a ConstantOfShape fills a tensor with.
fn number(cx: &View<'_>, value: ValueId) -> Option<Tensor> {
    let (_, node) = made_by(cx, value, |op| matches!(op, Op::ConstantOfShape(_)))?;
    let Op::ConstantOfShape(op) = &node.op else { return None };
    match &op.value {
        Some(tensor) => tensor.reshaped(&[]).ok(),
        None => Tensor::zeros(DType::F32, &[]).ok(),
    }
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    if !node.op.is_broadcast() && !node.op.is_unary() {
        return Err(Miss::No);
    }
    let y = output(node)?;
    let given = || node.inputs.iter().flatten().copied();
    let filled = given().find_map(|id| Some((id, number(cx, id)?)));
    let wide = given().find_map(|id| Some((id, expanded(cx, id)?)));
    if filled.is_none() && wide.is_none() {
        return Err(Miss::No);
    }
    let Some(shape) = cx.shape(y).filter(|shape| !shape.iter().any(Dim::is_unknown)) else {
        return blocked("the shape of the result is not known");
    };
    if let Some((filled, number)) = filled {
        let others: Vec<Option<ValueId>> =
            node.inputs.iter().map(|id| id.filter(|&id| id != filled)).collect();
        if joint_shape(cx, &others).as_ref() == Some(shape) {
            let mut patch = Patch::new();
            let number = patch.constant(cx.name(filled), number);
            let inputs =
                node.inputs.iter().map(|id| id.map(|id| if id == filled { number } else { id.into() }));
            let result = patch.node_with(&node.name, node.op.clone(), inputs.collect(), 1);
            patch.replace(y, result[0]);
            return Ok(patch);
        }
    }
    let (wide, (narrow, target)) = wide.ok_or(Miss::No)?;
    let with_narrow = |id: ValueId| if id == wide { narrow } else { id };
    let inputs: Vec<Option<ValueId>> = node.inputs.iter().map(|id| id.map(with_narrow)).collect();
    let small = joint_shape(cx, &inputs).ok_or(Miss::No)?;
    let mut patch = Patch::new();
    let operands = inputs.iter().map(|id| id.map(Operand::from)).collect();
    if small == *shape {
        let result = patch.node_with(&node.name, node.op.clone(), operands, 1);
        patch.replace(y, result[0]);
        return Ok(patch);
    }
    if cx.shape(wide) != Some(shape) {
        return Err(Miss::No);
    }
    if !only_numbers_beside(cx, node, wide) || cx.sole_reader(wide).is_none() {
        return Err(Miss::No);
    }
    // Expanding later changes nothing, and what is computed before is smaller.
    let result = patch.node_with(&node.name, node.op.clone(), operands, 1);
    let result = patch.node(&node.name, Expand {}, &[result[0], target.into()]);
    patch.replace(y, result);
    Ok(patch)
}

/// The shape that values broadcast to together.
fn joint_shape(cx: &View<'_>, inputs: &[Option<ValueId>]) -> Option<Shape> {
    inputs.iter().flatten().try_fold(Shape::scalar(), |joint, &id| {
        let shape = cx.shape(id).filter(|shape| !shape.iter().any(Dim::is_unknown))?;
        Shape::broadcast(&joint, shape).ok()
    })
}

/// Whether the other inputs of a node are single numbers.
fn only_numbers_beside(cx: &View<'_>, node: &Node, wide: ValueId) -> bool {
    let is_number = |id: &ValueId| {
        *id == wide || cx.shape(*id).is_some_and(|shape| shape.iter().all(|dim| *dim == Dim::ONE))
    };
    node.inputs.iter().flatten().all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, leaves, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2), ("s", 3)], ..PLAIN };

    #[test]
    fn a_mask_goes_down_to_where_it_is_added() {
        let form = "input %m: bool[b,1,1,s] input %x: f32[b,2,s,s] const %zero: f32[1] = [0] const %far: f32[] = [-9] \
            %sh: i64[4] = Shape(%x) %e: bool[b,2,s,s] = Expand(%m, %sh) %n: bool[b,2,s,s] = Not(%e) \
            %w: f32[b,2,s,s] = Where(%n, %far, %zero) %y: f32[b,2,s,s] = Add(%x, %w) output %y";
        check(
            PUSH_EXPANDS,
            form,
            expect![[r#"
            input %m: bool[b,1,1,s]
            input %x: f32[b,2,s,s]
            const %zero: f32[1] = [0]
            const %far: f32[] = -9
            %Not: bool[b,1,1,s] = Not(%m)
            %Where: f32[b,1,1,s] = Where(%Not, %far, %zero)
            %y: f32[b,2,s,s] = Add(%x, %Where)
            output %y
        "#]],
        );
        agrees(PUSH_EXPANDS, form, FEED);
    }

    #[test]
    fn a_filled_tensor_is_a_number() {
        let form = "input %x: f32[b,s] %sh: i64[2] = Shape(%x) %o: f32[b,s] = ConstantOfShape(%sh) {value=f32[1] [2]} \
            %y: f32[b,s] = Sub(%o, %x) output %y";
        check(
            PUSH_EXPANDS,
            form,
            expect![[r#"
            input %x: f32[b,s]
            const %o: f32[] = 2
            %y: f32[b,s] = Sub(%o, %x)
            output %y
        "#]],
        );
        agrees(PUSH_EXPANDS, form, FEED);
        leaves(
            PUSH_EXPANDS,
            "input %x: f32[1,s] input %sh: i64[2] %o: f32[b,s] = ConstantOfShape(%sh) \
             %y: f32[b,s] = Sub(%o, %x) output %y",
        );
    }

    #[test]
    fn an_expand_that_makes_the_shape_stays() {
        leaves(
            PUSH_EXPANDS,
            "input %x: f32[1,s] input %z: f32[b,1] const %to: i64[2] = [4,1] %e: f32[4,s] = Expand(%x, %to) \
             input %v: f32[1,s] %y: f32[4,s] = Add(%e, %v) output %y",
        );
    }

    #[test]
    fn an_expand_that_others_read_stays_unless_it_is_dropped() {
        let form = "input %x: f32[1,3] const %to: i64[2] = [4,3] const %two: f32[] = [2] %e: f32[4,3] = Expand(%x, %to) \
            %y: f32[4,3] = Mul(%e, %two) output %y, %e";
        leaves(PUSH_EXPANDS, form);
        let form = "input %x: f32[1,3] input %z: f32[4,3] const %to: i64[2] = [4,3] %e: f32[4,3] = Expand(%x, %to) \
            %y: f32[4,3] = Mul(%e, %z) output %y, %e";
        agrees(PUSH_EXPANDS, form, PLAIN);
    }

    #[test]
    fn an_unknown_shape_is_refused() {
        refuses(
            PUSH_EXPANDS,
            "input %x: f32[1,3] input %z: f32[*] const %to: i64[2] = [4,3] %e: f32[4,3] = Expand(%x, %to) \
             %y: f32[*] = Mul(%e, %z) output %y",
            "the shape of the result is not known",
        );
    }
}
