//! Drops GatherND whose indices count through a value in its own order: all of it is read, element by element.
//!
//! Exporters that trace masks write `mask[batch, position]` with both counted by ranges and spread over the axes of
//! scores.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Op, Unsqueeze};
use planish_tensor::{Dim, Shape, Tensor, normalize_axis};

use crate::pattern::{Finder, Found, Miss, made_by};
use crate::reshape::reshaped;
use crate::rule::{Operand, Patch};
use crate::view::View;

/// A GatherND that reads everything in order.
pub(crate) const DROP_ORDERED_GATHERS: Finder = Finder { name: "drop_ordered_gathers", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::GatherND(op), [Some(output)]) = (&node.op, &node.outputs[..]) else { return Err(Miss::No) };
    let (Some(data), Some(indices)) = (cx.input(node, 0), cx.input(node, 1)) else { return Err(Miss::No) };
    let (Some(from), Some(to)) = (cx.shape(data), cx.shape(*output)) else { return Err(Miss::No) };
    if op.batch_dims != 0 || from.rank() == 0 {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    if let Some(indices) = cx.constant(indices) {
        if !counts_through(indices, from) {
            return Err(Miss::No);
        }
        let all = reshaped(&mut patch, &node.name, data.into(), from, to.dims())?;
        patch.replace(*output, all);
        return Ok(patch);
    }
    let inserted = inserted_axes(cx, indices, from, to).ok_or(Miss::No)?;
    let mut all = Operand::from(data);
    if !inserted.is_empty() {
        let axes = patch.constant(&format!("{}.axes", node.name), Tensor::vector(inserted));
        all = patch.node(&node.name, Unsqueeze {}, &[all, axes]);
    }
    patch.replace(*output, all);
    Ok(patch)
}

/// Whether constant indices name the elements of a value one after the other, all of them.
fn counts_through(indices: &Tensor, of: &Shape) -> bool {
    let Some(sizes) = of.as_fixed() else { return false };
    let n_elements: usize = sizes.iter().product();
    if indices.shape().last() != Some(&sizes.len()) || indices.len() != n_elements * sizes.len() {
        return false;
    }
    indices.to_i64s().chunks(sizes.len()).enumerate().all(|(at, index)| {
        let flat = index.iter().zip(&sizes).try_fold(0, |flat, (&index, &size)| {
            usize::try_from(index).ok().filter(|index| *index < size).map(|index| flat * size + index)
        });
        flat == Some(at)
    })
}

/// The axes of the output that the value lacks, where each of its own axes is counted along one of the output's, in order.
fn inserted_axes(cx: &View<'_>, indices: ValueId, from: &Shape, to: &Shape) -> Option<Vec<i64>> {
    let (_, concat) = made_by(cx, indices, |op| matches!(op, Op::Concat(_)))?;
    let Op::Concat(op) = &concat.op else { return None };
    let is_last = normalize_axis(op.axis, to.rank() + 1).ok()? == to.rank();
    if !is_last || concat.inputs.len() != from.rank() {
        return None;
    }
    let mut counted = Vec::with_capacity(from.rank());
    for (component, size) in concat.inputs.iter().zip(from.iter()) {
        let least = counted.last().map_or(0, |axis| axis + 1);
        let axis = match counted_axis(cx, (*component)?, to.rank())? {
            Counted::Along(axis, length) if length == *size => axis,
            // The only index of an axis of one element, which any axis of one element can stand for.
            Counted::Zero if size.as_const() == Some(1) => {
                (least..to.rank()).find(|axis| to[*axis].as_const() == Some(1))?
            }
            _ => return None,
        };
        if axis < least || to[axis] != *size {
            return None;
        }
        counted.push(axis);
    }
    let inserted: Vec<usize> = (0..to.rank()).filter(|axis| !counted.contains(axis)).collect();
    let is_one = |axis: &usize| to[*axis].as_const() == Some(1);
    inserted.iter().all(is_one).then(|| inserted.into_iter().map(|axis| axis as i64).collect())
}

/// What an index is, wherever it stands.
enum Counted {
    /// The place along an axis of the output, which counts so many.
    Along(usize, Dim),
    Zero,
}

/// How one component of the indices, `[…, 1]` over the output's `rank` axes, counts.
fn counted_axis(cx: &View<'_>, component: ValueId, rank: usize) -> Option<Counted> {
    if cx.splat(component) == Some(0.0) {
        return Some(Counted::Zero);
    }
    let (_, node) = made_by(cx, component, |op| matches!(op, Op::Reshape(_) | Op::Unsqueeze(_)))?;
    let spread = cx.input(node, 0)?;
    let (from, to) = (cx.shape(spread)?, cx.shape(component)?);
    let lacks_last =
        from.rank() == rank && to.dims()[..rank] == *from.dims() && to[rank].as_const() == Some(1);
    if !lacks_last {
        return None;
    }
    let placed = match cx.producer(spread) {
        Some((_, node)) if matches!(node.op, Op::Expand(_)) => cx.input(node, 0)?,
        _ => spread,
    };
    if cx.splat(placed) == Some(0.0) {
        return Some(Counted::Zero);
    }
    let range = match cx.producer(placed)? {
        (_, node) if matches!(node.op, Op::Reshape(_) | Op::Unsqueeze(_)) => cx.input(node, 0)?,
        _ => placed,
    };
    let (_, node) = made_by(cx, range, |op| matches!(op, Op::Range(_)))?;
    let length = counts_from_zero(cx, node).then(|| cx.shape(range)?.get(0).cloned())??;
    let shape = cx.shape(placed)?;
    let is_long = |axis: &usize| shape[*axis].as_const() != Some(1);
    let long: Vec<usize> = (0..shape.rank()).filter(is_long).collect();
    match long[..] {
        [axis] if shape.rank() == rank && shape[axis] == length => Some(Counted::Along(axis, length)),
        _ => None,
    }
}

/// Whether a Range begins at 0 and goes up by 1.
fn counts_from_zero(cx: &View<'_>, range: &Node) -> bool {
    cx.number_input(range, 0) == Some(0) && cx.number_input(range, 2) == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, leaves};

    #[test]
    fn constant_indices_in_order_are_everything() {
        becomes(
            DROP_ORDERED_GATHERS,
            "input %x: f32[2,3] const %i: i64[2,1,3,2] = [0,0,0,1,0,2,1,0,1,1,1,2] \
             %y: f32[2,1,3] = GatherND(%x, %i) \"mask\" output %y",
            "input %x: f32[2,3] const %shape: i64[3] = [2,1,3] %y: f32[2,1,3] = Reshape(%x, %shape) \"mask\" output %y",
            PLAIN,
        );
        // One of them exchanged, and one that counts from the end.
        for indices in ["[0,0,0,1,0,2,1,1,1,0,1,2]", "[0,0,0,1,0,-1,1,0,1,1,1,2]"] {
            leaves(
                DROP_ORDERED_GATHERS,
                &format!(
                    "input %x: f32[2,3] const %i: i64[2,1,3,2] = {indices} %y: f32[2,1,3] = GatherND(%x, %i) output %y"
                ),
            );
        }
    }

    /// `x[batch, position]` over `[batch, 1, 1, position]`, or what `rows` and `columns` make of the two ranges.
    fn counted(rows: &str, columns: &str) -> String {
        format!(
            "input %x: f32[b,s] const %zero: i64[] = 0 const %one: i64[] = 1 const %r: i64[4] = [-1,1,1,1] \
             const %c: i64[4] = [1,1,1,-1] const %last: i64[1] = 4 const %none: i64[0] = [] \
             %shape: i64[2] = Shape(%x) %b1: i64[1], %s1: i64[1] = Split(%shape) {{num_outputs=2}} \
             %bn: i64[] = Reshape(%b1, %none) %sn: i64[] = Reshape(%s1, %none) \
             %br: i64[b] = Range(%zero, %bn, %one) %sr: i64[s] = Range(%zero, %sn, %one) \
             %b4: i64[b,1,1,1] = Reshape(%br, %r) %s4: i64[1,1,1,s] = Reshape(%sr, %c) \
             %both: i64[b,1,1,s] = Max(%b4, %s4) %all: i64[4] = Shape(%both) \
             %be: i64[b,1,1,s] = Expand({rows}, %all) %se: i64[b,1,1,s] = Expand({columns}, %all) \
             %b5: i64[b,1,1,s,1] = Unsqueeze(%be, %last) %s5: i64[b,1,1,s,1] = Unsqueeze(%se, %last) \
             %i: i64[b,1,1,s,2] = Concat(%b5, %s5) {{axis=-1}} %y: f32[b,1,1,s] = GatherND(%x, %i) \"mask\" output %y"
        )
    }

    #[test]
    fn ranges_over_the_axes_are_everything() {
        becomes(
            DROP_ORDERED_GATHERS,
            &counted("%b4", "%s4"),
            "input %x: f32[b,s] const %mask.axes: i64[2] = [1,2] %y: f32[b,1,1,s] = Unsqueeze(%x, %mask.axes) \"mask\" output %y",
            Feed { sizes: &[("b", 2), ("s", 3)], ..PLAIN },
        );
    }

    #[test]
    fn other_ranges_stay() {
        // Rows by positions, and positions by rows.
        leaves(DROP_ORDERED_GATHERS, &counted("%s4", "%b4"));
        leaves(DROP_ORDERED_GATHERS, &counted("%b4", "%b4"));
    }
}
