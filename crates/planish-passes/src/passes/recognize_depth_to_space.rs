//! Recognizes DepthToSpace and SpaceToDepth written out as Reshape, Transpose, Reshape.

use planish_ir::NodeId;
use planish_op::{DepthToSpace, DepthToSpaceMode, Op, SpaceToDepth};
use planish_tensor::{Dim, Shape};

use crate::pattern::{Finder, Found, Miss, blocked, made_by, one_input, output, private, relying_on};
use crate::rule::Patch;
use crate::view::View;

/// Blocks of pixels that come from channels or go there.
pub(crate) const RECOGNIZE_DEPTH_TO_SPACE: Finder = Finder { name: "recognize_depth_to_space", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Reshape(_) = node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let turned = cx.input(node, 0).ok_or(Miss::No)?;
    let (transpose, turn) = made_by(cx, turned, |op| matches!(op, Op::Transpose(_))).ok_or(Miss::No)?;
    let apart = one_input(turn).ok_or(Miss::No)?;
    let (_, split) = made_by(cx, apart, |op| matches!(op, Op::Reshape(_))).ok_or(Miss::No)?;
    let x = cx.input(split, 0).ok_or(Miss::No)?;
    let shapes = (cx.shape(x), cx.shape(apart), cx.shape(y));
    let (Some(before), Some(middle), Some(after)) = shapes else { return Err(Miss::No) };
    if (before.rank(), middle.rank(), after.rank()) != (4, 6, 4) {
        return Err(Miss::No);
    }
    let Op::Transpose(op) = &turn.op else { return Err(Miss::No) };
    let op = match op.perm.as_deref() {
        Some([0, 3, 4, 1, 5, 2]) => to_space(before, middle, after, DepthToSpaceMode::Dcr)?,
        Some([0, 1, 4, 2, 5, 3]) => to_space(before, middle, after, DepthToSpaceMode::Crd)?,
        Some([0, 3, 5, 1, 2, 4]) => {
            SpaceToDepth { blocksize: to_depth(before, middle, after).ok_or(Miss::No)? }.into()
        }
        // PyTorch's pixel_unshuffle.
        Some([0, 1, 3, 5, 2, 4]) if to_depth(before, middle, after).is_some() => {
            return blocked("the channels lie outside of the block, those of SpaceToDepth inside");
        }
        _ => return Err(Miss::No),
    };
    private(cx, &[transpose], root)?;
    let mut patch = Patch::new();
    let result = patch.node(&turn.name, op, &[x.into()]);
    patch.replace(y, result);
    Ok(relying_on(patch, &[transpose]))
}

/// The block size, if `[n, c·b·b, h, w]` becomes `[n, c, h·b, w·b]` through the six axes of the mode.
fn to_space(before: &Shape, middle: &Shape, after: &Shape, mode: DepthToSpaceMode) -> Found<Op> {
    let blocks = match mode {
        DepthToSpaceMode::Dcr => [1, 2],
        DepthToSpaceMode::Crd => [2, 3],
    };
    let channels = if blocks == [1, 2] { 3 } else { 1 };
    let block = middle[blocks[0]].as_const().filter(|&block| block >= 1).ok_or(Miss::No)?;
    let size = Dim::from(block);
    let fits = middle[blocks[1]] == size
        && [&before[0], &before[2], &before[3]] == [&middle[0], &middle[4], &middle[5]]
        && before[1] == &middle[channels] * &(&size * &size)
        && after[0] == middle[0]
        && after[1] == middle[channels]
        && after[2] == &middle[4] * &size
        && after[3] == &middle[5] * &size
        && !before.iter().chain(after).any(Dim::is_unknown);
    if fits { Ok(DepthToSpace { mode, blocksize: block }.into()) } else { Err(Miss::No) }
}

/// The block size, if `[n, c, h·b, w·b]` becomes `[n, b·b·c, h, w]` through `[n, c, h, b, w, b]`.
fn to_depth(before: &Shape, middle: &Shape, after: &Shape) -> Option<i64> {
    let block = middle[3].as_const().filter(|&block| block >= 1)?;
    let size = Dim::from(block);
    let fits = middle[5] == size
        && [&before[0], &before[1]] == [&middle[0], &middle[1]]
        && before[2] == &middle[2] * &size
        && before[3] == &middle[4] * &size
        && after[0] == middle[0]
        && after[1] == &middle[1] * &(&size * &size)
        && [&after[2], &after[3]] == [&middle[2], &middle[4]]
        && !before.iter().chain(after).any(Dim::is_unknown);
    fits.then_some(block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, leaves, refuses};

    const SIZES: &[(&str, i64)] = &[("n", 2)];

    fn form(x: &str, sizes: &str, middle: &str, perm: &str, turned: &str, back: &str, y: &str) -> String {
        format!(
            "input %x: f32{x} const %m: i64[6] = {sizes} const %back: i64[4] = {back} \
             %a: f32{middle} = Reshape(%x, %m) %t: f32{turned} = Transpose(%a) {{perm={perm}}} \"shuffle\" \
             %y: f32{y} = Reshape(%t, %back) output %y"
        )
    }

    fn found(before: &str, after: &str) {
        becomes(RECOGNIZE_DEPTH_TO_SPACE, before, after, Feed { sizes: SIZES, ..PLAIN });
    }

    #[test]
    fn both_orders_of_channels_are_found() {
        let rows = form(
            "[n,12,3,5]",
            "[-1,2,2,3,3,5]",
            "[n,2,2,3,3,5]",
            "[0,3,4,1,5,2]",
            "[n,3,3,2,5,2]",
            "[-1,3,6,10]",
            "[n,3,6,10]",
        );
        found(
            &rows,
            "input %x: f32[n,12,3,5] %y: f32[n,3,6,10] = DepthToSpace(%x) {blocksize=2} \"shuffle\" \
             output %y",
        );
        let columns = form(
            "[n,12,3,5]",
            "[-1,3,2,2,3,5]",
            "[n,3,2,2,3,5]",
            "[0,1,4,2,5,3]",
            "[n,3,3,2,5,2]",
            "[-1,3,6,10]",
            "[n,3,6,10]",
        );
        found(
            &columns,
            "input %x: f32[n,12,3,5] \
             %y: f32[n,3,6,10] = DepthToSpace(%x) {mode=\"CRD\", blocksize=2} \"shuffle\" output %y",
        );
    }

    fn to_depth_form(perm: &str, turned: &str) -> String {
        form("[n,3,6,10]", "[-1,3,3,2,5,2]", "[n,3,3,2,5,2]", perm, turned, "[-1,12,3,5]", "[n,12,3,5]")
    }

    #[test]
    fn the_way_back_is_found() {
        let form = to_depth_form("[0,3,5,1,2,4]", "[n,2,2,3,3,5]");
        found(
            &form,
            "input %x: f32[n,3,6,10] %y: f32[n,12,3,5] = SpaceToDepth(%x) {blocksize=2} \"shuffle\" \
             output %y",
        );
    }

    #[test]
    fn channels_outside_of_the_block_are_refused() {
        refuses(
            RECOGNIZE_DEPTH_TO_SPACE,
            &to_depth_form("[0,1,3,5,2,4]", "[n,3,2,2,3,5]"),
            "the channels lie outside of the block, those of SpaceToDepth inside",
        );
    }

    #[test]
    fn a_shuffle_of_channels_and_unequal_blocks_stay() {
        leaves(
            RECOGNIZE_DEPTH_TO_SPACE,
            &form(
                "[n,12,3,5]",
                "[-1,3,2,2,3,5]",
                "[n,3,2,2,3,5]",
                "[0,2,1,3,4,5]",
                "[n,2,3,2,3,5]",
                "[-1,12,3,5]",
                "[n,12,3,5]",
            ),
        );
        leaves(
            RECOGNIZE_DEPTH_TO_SPACE,
            &form(
                "[n,12,3,5]",
                "[-1,2,3,2,3,5]",
                "[n,2,3,2,3,5]",
                "[0,3,4,1,5,2]",
                "[n,2,3,2,5,3]",
                "[-1,2,6,15]",
                "[n,2,6,15]",
            ),
        );
    }

    #[test]
    fn a_transpose_that_others_read_is_refused() {
        let form = to_depth_form("[0,3,5,1,2,4]", "[n,2,2,3,3,5]").replace("output %y", "output %y, %t");
        refuses(RECOGNIZE_DEPTH_TO_SPACE, &form, "`t` is an output of the graph");
    }
}
