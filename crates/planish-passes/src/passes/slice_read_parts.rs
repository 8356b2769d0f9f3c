//! Takes the parts of a Split that are read as slices where others are not: kernels copy all parts, or none.
//!
//! Flows and gated layers throw one half away, and a model that was cut leaves parts behind.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Op, Slice, Split};
use planish_tensor::{Tensor, normalize_axis};

use crate::pattern::{Finder, Found, Miss, blocked};
use crate::rule::Patch;
use crate::view::View;

/// A Split with an output that nobody reads.
pub(crate) const SLICE_READ_PARTS: Finder = Finder { name: "slice_read_parts", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::Split(op), Some(x)) = (&node.op, cx.input(node, 0)) else { return Err(Miss::No) };
    if node.outputs.iter().all(Option::is_some) {
        return Err(Miss::No);
    }
    let rank = cx.rank(x).ok_or(Miss::No)?;
    let axis = normalize_axis(op.axis, rank).map_err(|_| Miss::No)?;
    let Some(lens) = lens(cx, node, op, x, axis) else {
        return blocked("the sizes of the parts are known only at run time");
    };
    let mut patch = Patch::new();
    let mut start = 0;
    for (output, len) in node.outputs.iter().zip(lens) {
        if let Some(output) = output {
            let [starts, ends, axes] = [("starts", start), ("ends", start + len), ("axes", axis as i64)]
                .map(|(what, at)| patch.constant(&format!("{}.{what}", node.name), Tensor::vector(vec![at])));
            let slice = patch.node(&node.name, Slice {}, &[x.into(), starts, ends, axes]);
            patch.replace(*output, slice);
        }
        start += len;
    }
    Ok(patch)
}

/// How long the parts are: what the model says, or all the same and the last the rest.
fn lens(cx: &View<'_>, node: &Node, op: &Split, x: ValueId, axis: usize) -> Option<Vec<i64>> {
    let n_parts = node.outputs.len();
    if cx.input(node, 1).is_some() {
        let lens = cx.constant_input(node, 1)?.to_i64s();
        return (lens.len() == n_parts).then_some(lens);
    }
    let whole = cx.shape(x)?.get(axis)?.as_const()?;
    let n = op.num_outputs.unwrap_or(n_parts as i64).max(1);
    let len = whole.checked_add(n - 1)? / n;
    (n == n_parts as i64).then(|| (0..n).map(|idx| (whole - idx * len).clamp(0, len)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, leaves, refuses};

    #[test]
    fn the_part_that_is_read_is_sliced() {
        becomes(
            SLICE_READ_PARTS,
            "input %x: f32[n,6] const %s: i64[3] = [1,3,2] \
             _, %b: f32[n,3], _ = Split(%x, %s) {axis=-1} \"half\" output %b",
            "input %x: f32[n,6] const %half.starts: i64[1] = [1] const %half.ends: i64[1] = [4] \
             const %half.axes: i64[1] = [1] %b: f32[n,3] = Slice(%x, %half.starts, %half.ends, %half.axes) \
             \"half\" output %b",
            Feed { sizes: &[("n", 3)], ..PLAIN },
        );
    }

    #[test]
    fn equal_parts_and_a_smaller_last_one_agree() {
        for parts in [
            "%a: f32[3,2], _, %c: f32[1,2] = Split(%x) {num_outputs=3}",
            "_, %a: f32[3,2], %c: f32[1,2] = Split(%x) {num_outputs=3}",
            "%a: f32[3,2], %c: f32[3,2], _ = Split(%x) {num_outputs=3}",
        ] {
            agrees(SLICE_READ_PARTS, &format!("input %x: f32[7,2] {parts} output %a, %c"), PLAIN);
        }
    }

    #[test]
    fn parts_that_are_all_read_stay() {
        leaves(
            SLICE_READ_PARTS,
            "input %x: f32[4] %a: f32[2], %b: f32[2] = Split(%x) {num_outputs=2} output %a, %b",
        );
    }

    #[test]
    fn parts_of_sizes_that_a_run_brings_are_refused() {
        refuses(
            SLICE_READ_PARTS,
            "input %x: f32[4] input %s: i64[2] %a: f32[p], _ = Split(%x, %s) output %a",
            "the sizes of the parts are known only at run time",
        );
    }
}
