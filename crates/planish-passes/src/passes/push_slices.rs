//! Takes slices of channels before the channels are split: `x[B, K·C, H, W]` seen as `[B, K, C, H·W]` and sliced along
//! `K` is a slice of `x` along its channels, seen differently.
//!
//! Queries, keys and values of attention over images are taken apart like this. Before the split the slice can be
//! read where channels lie innermost, as convolutions leave them, and the whole projection need not be reordered.

use planish_ir::NodeId;
use planish_op::{Op, Reshape, Slice};
use planish_tensor::{Dim, Shape, Tensor, normalize_axis};

use crate::pattern::{Finder, Found, Miss, blocked};
use crate::reshape::target;
use crate::rule::Patch;
use crate::view::View;

/// The axis of channels.
const CHANNELS: usize = 1;
/// Images and volumes; for tokens features are innermost anyway.
const MIN_RANK: usize = 4;

/// A Slice of the outer of two axes that a Reshape made of the channels.
pub(crate) const PUSH_SLICES: Finder = Finder { name: "push_slices", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::Slice(_), Some(data), Some(&Some(output))) = (&node.op, cx.input(node, 0), node.outputs.first())
    else {
        return Err(Miss::No);
    };
    let Some((_, reshape)) = cx.producer(data).filter(|(_, node)| matches!(node.op, Op::Reshape(_))) else {
        return Err(Miss::No);
    };
    let Some(source) = cx.input(reshape, 0) else { return Err(Miss::No) };
    let (Some(before), Some(after), Some(to)) = (cx.shape(source), cx.shape(data), cx.shape(output)) else {
        return Err(Miss::No);
    };
    let number = |place: usize| cx.number_input(node, place);
    let axis = number(3).and_then(|axis| normalize_axis(axis, after.rank()).ok());
    if before.rank() < MIN_RANK || after.rank() < 3 || axis != Some(CHANNELS) {
        return Err(Miss::No);
    }
    let size = |shape: &Shape, axis: usize| shape.dims()[axis].as_const();
    let (Some(all), Some(n_parts), Some(part)) =
        (size(before, CHANNELS), size(after, CHANNELS), size(after, CHANNELS + 1))
    else {
        return Err(Miss::No);
    };
    if before.dims()[0] != after.dims()[0] || before.dims()[0].is_unknown() || n_parts * part != all {
        return Err(Miss::No);
    }
    let (Some(start), Some(end)) = (number(1), number(2)) else {
        return blocked("where the slice begins or ends is known only at run time");
    };
    if cx.input(node, 4).is_some() && number(4) != Some(1) {
        return blocked("the slice has steps");
    }
    let place = |at: i64| (if at < 0 { at.saturating_add(n_parts) } else { at }).clamp(0, n_parts);
    let (start, end) = (place(start), place(end));
    if start >= end {
        return blocked("the slice is empty");
    }
    let mut sliced = before.dims().to_vec();
    sliced[CHANNELS] = Dim::from((end - start) * part);
    let numbers = match target(&Shape::new(sliced), to.dims()) {
        Ok(numbers) => numbers,
        Err(reason) => return blocked(reason),
    };
    let mut patch = Patch::new();
    let mut constant = |what: &str, number: i64| {
        patch.constant(&format!("{}.{what}", node.name), Tensor::vector(vec![number]))
    };
    let (starts, ends) = (constant("starts", start * part), constant("ends", end * part));
    let axes = constant("axes", CHANNELS as i64);
    let slice = patch.node(&node.name, Slice {}, &[source.into(), starts, ends, axes]);
    let shape = patch.constant(&format!("{}.shape", node.name), Tensor::vector(numbers));
    let seen = patch.node(&node.name, Reshape { allowzero: false }, &[slice, shape]);
    patch.replace(output, seen);
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    const SPLIT: &str = "input %x: f32[n,6,2,2] const %s: i64[4] = [0, 3, 2, 4] const %a: i64[1] = [1] \
         %r: f32[n,3,2,4] = Reshape(%x, %s) \"r\"";

    #[test]
    fn channels_are_sliced_before_they_are_split() {
        let before = format!(
            "{SPLIT} const %b: i64[1] = [1] const %e: i64[1] = [2] const %f: i64[1] = [-2] const %z: i64[1] = [0] \
             %p: f32[n,1,2,4] = Slice(%r, %b, %e, %a) \"p\" %q: f32[n,1,2,4] = Slice(%r, %z, %f, %a) \"q\" output %p, %q"
        );
        check_same(
            PUSH_SLICES,
            &before,
            expect![[r#"
            input %x: f32[n,6,2,2]
            const %p.starts: i64[1] = [2]
            const %p.ends: i64[1] = [4]
            const %p.axes: i64[1] = [1]
            const %p.shape: i64[4] = [0, 1, 2, 4]
            const %q.starts: i64[1] = [0]
            const %q.ends: i64[1] = [2]
            const %q.axes: i64[1] = [1]
            const %q.shape: i64[4] = [0, 1, 2, 4]
            %p.1: f32[n,2,2,2] = Slice(%x, %p.starts, %p.ends, %p.axes) "p"
            %p: f32[n,1,2,4] = Reshape(%p.1, %p.shape) "p"
            %q.1: f32[n,2,2,2] = Slice(%x, %q.starts, %q.ends, %q.axes) "q"
            %q: f32[n,1,2,4] = Reshape(%q.1, %q.shape) "q"
            output %p, %q
        "#]],
        );
    }

    #[test]
    fn refusals() {
        let steps = format!(
            "{SPLIT} const %b: i64[1] = [0] const %e: i64[1] = [3] const %t: i64[1] = [2] \
             %y: f32[n,2,2,4] = Slice(%r, %b, %e, %a, %t)"
        );
        kept(PUSH_SLICES, &steps, "y", "the slice has steps");
        let open = format!(
            "{SPLIT} input %b: i64[1] const %e: i64[1] = [3] %y: f32[n,k,2,4] = Slice(%r, %b, %e, %a)"
        );
        kept(PUSH_SLICES, &open, "y", "where the slice begins or ends is known only at run time");
        let tokens = "input %x: f32[n,5,6] const %s: i64[4] = [0, 0, 3, 2] const %a: i64[1] = [2] const %b: i64[1] = [0] \
             const %e: i64[1] = [1] %r: f32[n,5,3,2] = Reshape(%x, %s) %y: f32[n,5,1,2] = Slice(%r, %b, %e, %a)";
        kept(PUSH_SLICES, tokens, "y", "");
    }
}
