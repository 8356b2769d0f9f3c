//! Reads a value whole where a Concat puts all of its parts side by side again.
//!
//! Detectors split a layer's result, go on with one half, and concatenate both halves with what came of it. A kernel can
//! write the whole into the concatenation, where its parts can still be read; it cannot write the parts one by one.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Concat, Op};
use planish_tensor::normalize_axis;

use crate::pattern::{Finder, Found, Miss};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// A Concat among whose inputs all outputs of a Split along the same axis stand in their order.
pub(crate) const REJOIN_PARTS: Finder = Finder { name: "rejoin_parts", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::Concat(op), [Some(output)]) = (&node.op, &node.outputs[..]) else { return Err(Miss::No) };
    let rank = cx.rank(*output).ok_or(Miss::No)?;
    let axis = normalize_axis(op.axis, rank).map_err(|_| Miss::No)?;
    let mut inputs: Vec<Operand> = Vec::new();
    let mut at = 0;
    while let Some(input) = node.inputs.get(at) {
        match whole(cx, node, at, axis, rank) {
            Some((whole, n_parts)) => {
                inputs.push(whole.into());
                at += n_parts;
            }
            None => {
                inputs.push(input.ok_or(Miss::No)?.into());
                at += 1;
            }
        }
    }
    if inputs.len() == node.inputs.len() {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    match inputs[..] {
        [whole] => patch.replace(*output, whole),
        _ => {
            let joined = patch.node(&node.name, Concat { axis: op.axis }, &inputs);
            patch.replace(*output, joined);
        }
    }
    Ok(patch)
}

/// The value whose parts stand from input `at` on, and how many they are.
fn whole(cx: &View<'_>, node: &Node, at: usize, axis: usize, rank: usize) -> Option<(ValueId, usize)> {
    let (_, split) = cx.producer(node.inputs[at]?)?;
    let Op::Split(op) = &split.op else { return None };
    let n_parts = split.outputs.len();
    let parts = node.inputs.get(at..at + n_parts)?;
    let same = normalize_axis(op.axis, rank).is_ok_and(|along| along == axis) && n_parts > 1;
    let whole = cx.input(split, 0)?;
    (same && parts == split.outputs && cx.rank(whole) == Some(rank)).then_some((whole, n_parts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, leaves};

    #[test]
    fn parts_beside_others_are_the_whole() {
        becomes(
            REJOIN_PARTS,
            "input %x: f32[n,4] %a: f32[n,2], %b: f32[n,2] = Split(%x) {axis=1, num_outputs=2} %c: f32[n,2] = Neg(%b) \
             %y: f32[n,6] = Concat(%a, %b, %c) {axis=-1} \"join\" output %y",
            "input %x: f32[n,4] _, %b: f32[n,2] = Split(%x) {axis=1, num_outputs=2} %c: f32[n,2] = Neg(%b) \
             %y: f32[n,6] = Concat(%x, %c) {axis=-1} \"join\" output %y",
            Feed { sizes: &[("n", 3)], ..PLAIN },
        );
    }

    #[test]
    fn parts_alone_are_nothing_new() {
        becomes(
            REJOIN_PARTS,
            "input %x: f32[4,3] const %s: i64[3] = [1,2,1] \
             %a: f32[1,3], %b: f32[2,3], %c: f32[1,3] = Split(%x, %s) \
             %j: f32[4,3] = Concat(%a, %b, %c) {axis=0} %y: f32[4,3] = Neg(%j) output %y",
            "input %x: f32[4,3] %y: f32[4,3] = Neg(%x) output %y",
            PLAIN,
        );
    }

    #[test]
    fn other_orders_axes_and_missing_parts_stay() {
        let split = "input %x: f32[4,4] %a: f32[4,2], %b: f32[4,2] = Split(%x) {axis=1, num_outputs=2}";
        for joined in [
            "%y: f32[4,4] = Concat(%b, %a) {axis=1}",
            "%y: f32[8,2] = Concat(%a, %b) {axis=0}",
            "%c: f32[4,2] = Neg(%b) %y: f32[4,6] = Concat(%a, %c, %b) {axis=1}",
            "%c: f32[4,2] = Neg(%b) %y: f32[4,4] = Concat(%a, %c) {axis=1}",
        ] {
            leaves(REJOIN_PARTS, &format!("{split} {joined} output %y"));
        }
    }
}
