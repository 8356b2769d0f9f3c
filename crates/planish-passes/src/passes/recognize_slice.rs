//! Recognizes slices written as an axis that is split off, moved to the front and indexed: PyTorch takes
//! queries, keys and values apart in this way, which would move the whole projection.

use planish_ir::{NodeId, ValueId};
use planish_op::{Op, Slice, Transpose};
use planish_tensor::{Dim, Shape, Tensor, normalize_axis};

use crate::pattern::{Finder, Found, Miss, blocked, made_by, one_input, output};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Gather of one constant index from an axis that a Reshape made.
pub(crate) const RECOGNIZE_SLICE: Finder = Finder { name: "recognize_slice", find };

/// The axis and index of a Gather that takes one part of a value.
fn selected(cx: &View<'_>, id: NodeId) -> Option<(ValueId, usize, i64)> {
    let node = cx.node(id);
    let Op::Gather(op) = &node.op else { return None };
    let data = cx.input(node, 0)?;
    let indices = cx.input(node, 1)?;
    let [index] = cx.constant(indices).filter(|indices| indices.rank() == 0)?.to_i64s()[..] else {
        return None;
    };
    let axis = normalize_axis(op.axis, cx.rank(data)?).ok()?;
    Some((data, axis, index))
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let (data, moved_axis, index) = selected(cx, root).ok_or(Miss::No)?;
    let y = output(cx.node(root))?;
    // The Transpose between, if there is one, and the axis before it.
    let turn = made_by(cx, data, |op| matches!(op, Op::Transpose(_)));
    let perm = turn.and_then(|(_, node)| match &node.op {
        Op::Transpose(op) => op.perm.clone(),
        _ => None,
    });
    let (split, axis, perm) = match (turn, perm) {
        (Some((_, node)), Some(perm)) => {
            let from = usize::try_from(perm[moved_axis]).map_err(|_| Miss::No)?;
            (one_input(node).ok_or(Miss::No)?, from, without(&perm, moved_axis))
        }
        (Some(_), None) => return Err(Miss::No),
        (None, _) => (data, moved_axis, Vec::new()),
    };
    let (_, reshape) = made_by(cx, split, |op| matches!(op, Op::Reshape(_))).ok_or(Miss::No)?;
    let x = cx.input(reshape, 0).ok_or(Miss::No)?;
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(split)) else { return Err(Miss::No) };
    let Some((n_parts, size)) = parts(before, after, axis) else { return Err(Miss::No) };
    let index = if index < 0 { index + n_parts } else { index };
    if !(0..n_parts).contains(&index) {
        return Err(Miss::No);
    }
    // If others need the moved value, moving parts of it again only adds work.
    let selects_same = |&reader: &NodeId| {
        selected(cx, reader).is_some_and(|(from, other, _)| (from, other) == (data, moved_axis))
    };
    if turn.is_some() && (cx.is_output(data) || !cx.readers(data).iter().all(selects_same)) {
        return blocked(format!("`{}` is read in other ways too", cx.name(data)));
    }
    let mut patch = Patch::new();
    let name = &*cx.node(root).name;
    let mut bound = |name: &str, number: i64| patch.constant(name, Tensor::vector(vec![number]));
    let bounds = [bound("start", index * size), bound("end", (index + 1) * size), bound("axis", axis as i64)];
    let inputs: Vec<Operand> = [x.into()].into_iter().chain(bounds).collect();
    let mut result = patch.node(name, Slice {}, &inputs);
    if !perm.iter().copied().eq(0..perm.len() as i64) {
        result = patch.node(name, Transpose { perm: Some(perm) }, &[result]);
    }
    patch.replace(y, result);
    Ok(patch)
}

/// A permutation with the entry at `place` taken out.
fn without(perm: &[i64], place: usize) -> Vec<i64> {
    let gone = perm[place];
    let kept = perm.iter().filter(|&&axis| axis != gone);
    kept.map(|&axis| if axis > gone { axis - 1 } else { axis }).collect()
}

/// How many parts of what size an axis became, if the Reshape only split it in two.
fn parts(before: &Shape, after: &Shape, axis: usize) -> Option<(i64, i64)> {
    if after.rank() != before.rank() + 1 || axis + 1 >= after.rank() {
        return None;
    }
    let (n_parts, size) = (after[axis].as_const()?, after[axis + 1].as_const()?);
    let whole = n_parts.checked_mul(size)?;
    let joined = after.dims()[..axis].iter().cloned().chain([Dim::from(whole)]);
    let joined: Shape = joined.chain(after.dims()[axis + 2..].iter().cloned()).collect();
    let is_split = joined == *before && !before.iter().any(Dim::is_unknown) && n_parts > 0;
    is_split.then_some((n_parts, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, leaves, refuses};

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2)], ..PLAIN };

    /// As in PyTorch's MultiheadAttention.
    const FORM: &str = "input %x: f32[5,b,12] const %by: i64[4] = [0,0,3,4] const %i0: i64[] = [0] const %i2: i64[] = [-1] \
        %r: f32[5,b,3,4] = Reshape(%x, %by) %t: f32[3,5,b,4] = Transpose(%r) {perm=[2,0,1,3]} \
        %q: f32[5,b,4] = Gather(%t, %i0) \"q\" %v: f32[5,b,4] = Gather(%t, %i2) \"v\"";

    #[test]
    fn parts_of_a_projection_are_slices() {
        becomes(
            RECOGNIZE_SLICE,
            &format!("{FORM} output %q, %v"),
            "input %x: f32[5,b,12] const %start: i64[1] = [0] const %end: i64[1] = [4] \
             const %axis: i64[1] = [2] const %start.1: i64[1] = [8] const %end.1: i64[1] = [12] \
             const %axis.1: i64[1] = [2] %q: f32[5,b,4] = Slice(%x, %start, %end, %axis) \"q\" \
             %v: f32[5,b,4] = Slice(%x, %start.1, %end.1, %axis.1) \"v\" output %q, %v",
            FEED,
        );
    }

    #[test]
    fn what_the_transpose_does_besides_stays() {
        let form = "input %x: f32[b,6,5] const %by: i64[4] = [0,2,3,5] const %i: i64[] = [1] \
            %r: f32[b,2,3,5] = Reshape(%x, %by) %t: f32[2,5,b,3] = Transpose(%r) {perm=[1,3,0,2]} \
            %y: f32[5,b,3] = Gather(%t, %i) output %y";
        becomes(
            RECOGNIZE_SLICE,
            form,
            "input %x: f32[b,6,5] const %start: i64[1] = [3] const %end: i64[1] = [6] \
             const %axis: i64[1] = [1] %Slice: f32[b,3,5] = Slice(%x, %start, %end, %axis) \
             %y: f32[5,b,3] = Transpose(%Slice) {perm=[2,0,1]} output %y",
            FEED,
        );
        let form = "input %x: f32[b,6,5] const %by: i64[4] = [0,2,3,5] const %i: i64[] = [1] \
            %r: f32[b,2,3,5] = Reshape(%x, %by) %y: f32[b,3,5] = Gather(%r, %i) {axis=1} output %y";
        agrees(RECOGNIZE_SLICE, form, FEED);
    }

    #[test]
    fn a_moved_value_that_others_read_is_refused() {
        let text = format!("{FORM} %z: f32[3,5,b,4] = Relu(%t) output %q, %z")
            .replace("%v: f32[5,b,4] = Gather(%t, %i2) \"v\"", "")
            .replace("const %i2: i64[] = [-1]", "");
        refuses(RECOGNIZE_SLICE, &text, "`t` is read in other ways too");
    }

    #[test]
    fn indices_of_the_run_and_other_axes_stay() {
        leaves(
            RECOGNIZE_SLICE,
            "input %x: f32[5,b,12] input %i: i64[] const %by: i64[4] = [0,0,3,4] %r: f32[5,b,3,4] = Reshape(%x, %by) \
             %y: f32[5,b,4] = Gather(%r, %i) {axis=2} output %y",
        );
        // Index 0 of the inner axis is not a run of elements.
        leaves(
            RECOGNIZE_SLICE,
            "input %x: f32[5,b,12] const %i: i64[] = [0] const %by: i64[4] = [0,0,3,4] \
             %r: f32[5,b,3,4] = Reshape(%x, %by) %y: f32[5,b,3] = Gather(%r, %i) {axis=3} output %y",
        );
    }
}
