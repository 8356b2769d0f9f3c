//! Recognizes rotary position embedding in the form of two halves: `x·cos + [-x₂, x₁]·sin`.
//!
//! The operator takes one angle per pair, so the table must repeat itself: both halves of cos and sin are
//! known to be equal, as constants or as functions of one value concatenated with itself.

use planish_ir::{NodeId, ValueId};
use planish_op::{Op, RotaryEmbedding, Slice};
use planish_tensor::{Dim, Shape, Tensor, normalize_axis};

use crate::pattern::{
    Finder, Found, Miss, blocked, made_by, one_input, output, private, relying_on, two_inputs,
};
use crate::reshape::{reshaped, reshaped_input};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// How many nodes a table may be away from the concatenation that doubles it.
const MAX_STEPS: usize = 8;

/// Sums of a value and its rotated halves, each times a table.
pub(crate) const RECOGNIZE_ROTARY_EMBEDDING: Finder = Finder { name: "recognize_rotary_embedding", find };

/// The pieces of one embedding.
struct Parts {
    x: ValueId,
    cos: ValueId,
    sin: ValueId,
    nodes: Vec<NodeId>,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Add(_) = node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let Parts { x, cos, sin, nodes } = parts(cx, two_inputs(node).ok_or(Miss::No)?).ok_or(Miss::No)?;
    let shape = cx.shape(x).ok_or(Miss::No)?;
    let [batch, _, sequence, size] = shape.dims() else {
        return blocked("the rotated value has no axes for batch, heads, sequence and size");
    };
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    let half = size.as_const().ok_or(Miss::No)? / 2;
    let rows = [batch.clone(), sequence.clone(), Dim::from(half)];
    for table in [cos, sin] {
        if !repeats(cx, table, half, MAX_STEPS) {
            return blocked("the halves of the table are not known to be equal");
        }
        if !fits(cx.shape(table).ok_or(Miss::No)?, batch, sequence, size) {
            return blocked("the table does not have a row for every step of every sequence");
        }
    }
    private(cx, &nodes, root)?;
    let mut patch = Patch::new();
    let name = &*node.name;
    let cos = cache(cx, &mut patch, name, cos, half, &rows)?;
    let sin = cache(cx, &mut patch, name, sin, half, &rows)?;
    let op = RotaryEmbedding { num_heads: None, rotary_embedding_dim: 0, interleaved: false };
    let result = patch.node(name, op, &[x.into(), cos, sin]);
    patch.replace(y, result);
    Ok(relying_on(patch, &nodes))
}

/// Reads `x·cos + rotated(x)·sin`.
fn parts(cx: &View<'_>, [a, b]: [ValueId; 2]) -> Option<Parts> {
    let product = |id| {
        let (id, node) = made_by(cx, id, |op| matches!(op, Op::Mul(_)))?;
        Some((id, two_inputs(node)?))
    };
    let ((first, first_pair), (second, second_pair)) = (product(a)?, product(b)?);
    let both = [(first_pair, second_pair), (second_pair, first_pair)];
    both.into_iter().find_map(|(plain, turned)| {
        let orders = |[a, b]: [ValueId; 2]| [(a, b), (b, a)];
        orders(turned).into_iter().find_map(|(halves, sin)| {
            let (x, mut nodes) = rotated(cx, halves)?;
            let cos = orders(plain).into_iter().find(|(value, _)| *value == x)?.1;
            nodes.extend([first, second]);
            Some(Parts { x, cos, sin, nodes })
        })
    })
}

/// `x` of `[-x₂, x₁]`, and the nodes.
fn rotated(cx: &View<'_>, value: ValueId) -> Option<(ValueId, Vec<NodeId>)> {
    let (join, node) = made_by(cx, value, |op| matches!(op, Op::Concat(_)))?;
    let Op::Concat(op) = &node.op else { return None };
    let [negative, first] = two_inputs(node)?;
    let last = cx.rank(value)?.checked_sub(1)?;
    let (neg, node) = made_by(cx, negative, |op| matches!(op, Op::Neg(_)))?;
    let second = one_input(node)?;
    let size = cx.shape(value)?.get(last)?.as_const()?;
    if normalize_axis(op.axis, last + 1) != Ok(last) || size % 2 != 0 {
        return None;
    }
    let (x, low) = half(cx, first, last, 0, size / 2)?;
    let (other, high) = half(cx, second, last, size / 2, size)?;
    (x == other && cx.same_type(x, value)).then(|| (x, vec![join, neg, low, high]))
}

/// The value of which `part` has the elements from `start` to `end` along the last axis, and the node.
fn half(cx: &View<'_>, part: ValueId, last: usize, start: i64, end: i64) -> Option<(ValueId, NodeId)> {
    let (id, node) = cx.producer(part)?;
    let x = cx.input(node, 0)?;
    let is_last = |axis: i64| normalize_axis(axis, last + 1) == Ok(last);
    let size = cx.shape(x)?.get(last)?.as_const()?;
    let is_half = match &node.op {
        Op::Slice(_) => {
            let number = |idx| match cx.ints(cx.input(node, idx)?)?[..] {
                [number] => Some(number),
                _ => None,
            };
            let place = |number: i64| (if number < 0 { number + size } else { number }).clamp(0, size);
            let steps = cx.input(node, 4).is_none() || number(4) == Some(1);
            is_last(number(3)?) && place(number(1)?) == start && place(number(2)?) == end && steps
        }
        // The first or the second of two equal parts.
        Op::Split(op) => {
            let place = node.outputs.iter().position(|output| *output == Some(part))? as i64;
            let own = cx.shape(part)?.get(last)?.as_const()?;
            is_last(op.axis) && node.outputs.len() == 2 && 2 * own == size && place * own == start
        }
        _ => false,
    };
    is_half.then_some((x, id))
}

/// Whether the two halves along the last axis are equal.
fn repeats(cx: &View<'_>, table: ValueId, half: i64, steps: usize) -> bool {
    if let Some(tensor) = cx.constant(table) {
        let Ok(half) = usize::try_from(half) else { return false };
        let numbers = tensor.to_f64s();
        let is_row = tensor.shape().last() == Some(&(2 * half)) && half > 0;
        return is_row && numbers.chunks_exact(2 * half).all(|row| row[..half] == row[half..]);
    }
    let Some((_, node)) = cx.producer(table).filter(|_| steps > 0) else { return false };
    let Some(&last) = cx.shape(table).and_then(|shape| shape.dims().last()).as_ref() else { return false };
    let keeps_last = |id: ValueId| cx.shape(id).is_some_and(|shape| shape.dims().last() == Some(last));
    let through =
        |id: Option<ValueId>| id.is_some_and(|id| keeps_last(id) && repeats(cx, id, half, steps - 1));
    match &node.op {
        Op::Concat(op) => {
            let rank = cx.rank(table).unwrap_or(0);
            let axis = normalize_axis(op.axis, rank);
            rank > 0 && axis == Ok(rank - 1) && two_inputs(node).is_some_and(|[a, b]| a == b)
        }
        // A number scales all rows.
        Op::Mul(_) => two_inputs(node).is_some_and(|[a, b]| match (cx.splat(a), cx.splat(b)) {
            (None, Some(_)) => through(Some(a)),
            (Some(_), None) => through(Some(b)),
            _ => false,
        }),
        op if op.is_unary() => through(cx.input(node, 0)),
        _ => through(reshaped_input(cx, node)),
    }
}

/// Whether a table broadcasts over the heads alone.
fn fits(table: &Shape, batch: &Dim, sequence: &Dim, size: &Dim) -> bool {
    let is_one = |dim: &Dim| *dim == Dim::ONE;
    match table.dims() {
        [b, heads, s, d] => b == batch && is_one(heads) && s == sequence && d == size,
        // Without an axis of batches it is the same for all of them.
        [s, d] => is_one(batch) && s == sequence && d == size,
        [heads, s, d] => is_one(batch) && is_one(heads) && s == sequence && d == size,
        _ => false,
    }
}

/// The first half of a table as `[batch, sequence, half]`.
fn cache(
    cx: &View<'_>,
    patch: &mut Patch,
    name: &str,
    table: ValueId,
    half: i64,
    rows: &[Dim; 3],
) -> Found<Operand> {
    let mut vector = |name: &str, number: i64| patch.constant(name, Tensor::vector(vec![number]));
    let bounds = [vector("start", 0), vector("end", half), vector("axis", -1)];
    let inputs: Vec<Operand> = [table.into()].into_iter().chain(bounds).collect();
    let first = patch.node(name, Slice {}, &inputs);
    let shape = cx.shape(table).ok_or(Miss::No)?;
    let from: Shape = shape.iter().take(shape.rank() - 1).cloned().chain([Dim::from(half)]).collect();
    reshaped(patch, name, first, &from, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, leaves, refuses};

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2)], ..PLAIN };

    /// As Llama models compute it: angles, doubled, with an axis for the heads.
    const TABLES: &str = "input %x: f32[b,3,5,4] input %f: f32[b,5,2] const %one: i64[1] = [1] \
        %ff: f32[b,5,4] = Concat(%f, %f) {axis=-1} %c0: f32[b,5,4] = Cos(%ff) %s0: f32[b,5,4] = Sin(%ff) \
        %cos: f32[b,1,5,4] = Unsqueeze(%c0, %one) %sin: f32[b,1,5,4] = Unsqueeze(%s0, %one)";
    const HALVES: &str = "const %n0: i64[1] = [0] const %n2: i64[1] = [2] const %end: i64[1] = [9223372036854775807] \
        const %last: i64[1] = [3] %x1: f32[b,3,5,2] = Slice(%x, %n0, %n2, %last) \
        %x2: f32[b,3,5,2] = Slice(%x, %n2, %end, %last) %neg: f32[b,3,5,2] = Neg(%x2) \
        %rot: f32[b,3,5,4] = Concat(%neg, %x1) {axis=3}";
    const SUM: &str = "%a: f32[b,3,5,4] = Mul(%x, %cos) %m: f32[b,3,5,4] = Mul(%rot, %sin) \
        %y: f32[b,3,5,4] = Add(%a, %m) \"rope\" output %y";

    #[test]
    fn computed_tables_are_found() {
        let form = format!("{TABLES} {HALVES} {SUM}");
        becomes(
            RECOGNIZE_ROTARY_EMBEDDING,
            &form,
            "input %x: f32[b,3,5,4] input %f: f32[b,5,2] const %one: i64[1] = [1] \
             const %start: i64[1] = [0] const %end: i64[1] = [2] const %axis: i64[1] = [-1] \
             const %shape: i64[3] = [0, 5, 2] const %start.1: i64[1] = [0] const %end.1: i64[1] = [2] \
             const %axis.1: i64[1] = [-1] const %shape.1: i64[3] = [0, 5, 2] \
             %ff: f32[b,5,4] = Concat(%f, %f) {axis=-1} %c0: f32[b,5,4] = Cos(%ff) \
             %s0: f32[b,5,4] = Sin(%ff) %cos: f32[b,1,5,4] = Unsqueeze(%c0, %one) \
             %sin: f32[b,1,5,4] = Unsqueeze(%s0, %one) \
             %rope: f32[b,1,5,2] = Slice(%cos, %start, %end, %axis) \"rope\" \
             %rope.1: f32[b,5,2] = Reshape(%rope, %shape) \"rope\" \
             %rope.2: f32[b,1,5,2] = Slice(%sin, %start.1, %end.1, %axis.1) \"rope\" \
             %rope.3: f32[b,5,2] = Reshape(%rope.2, %shape.1) \"rope\" \
             %y: f32[b,3,5,4] = RotaryEmbedding(%x, %rope.1, %rope.3) \"rope\" output %y",
            FEED,
        );
    }

    #[test]
    fn constant_tables_and_splits_are_found() {
        let form = "input %x: f32[1,3,2,4] const %cos: f32[2,4] = [1,0,1,0,2,1,2,1] const %sin: f32[2,4] = [0,1,0,1,3,2,3,2] \
            const %two: i64[2] = [2,2] %x1: f32[1,3,2,2], %x2: f32[1,3,2,2] = Split(%x, %two) {axis=-1} \
            %neg: f32[1,3,2,2] = Neg(%x2) %rot: f32[1,3,2,4] = Concat(%neg, %x1) {axis=-1} \
            %m: f32[1,3,2,4] = Mul(%sin, %rot) %a: f32[1,3,2,4] = Mul(%x, %cos) %y: f32[1,3,2,4] = Add(%m, %a) output %y";
        agrees(RECOGNIZE_ROTARY_EMBEDDING, form, PLAIN);
    }

    #[test]
    fn halves_that_differ_are_refused() {
        let form = format!("{TABLES} {HALVES} {SUM}")
            .replace("Concat(%f, %f)", "Concat(%f, %g)")
            .replace("input %f:", "input %g: f32[b,5,2] input %f:");
        refuses(RECOGNIZE_ROTARY_EMBEDDING, &form, "the halves of the table are not known to be equal");
    }

    #[test]
    fn a_table_for_all_batches_is_refused() {
        let form = format!("{TABLES} {HALVES} {SUM}")
            .replace("f32[b,5,", "f32[1,5,")
            .replace("f32[b,1,5,4]", "f32[1,1,5,4]");
        refuses(
            RECOGNIZE_ROTARY_EMBEDDING,
            &form,
            "the table does not have a row for every step of every sequence",
        );
    }

    #[test]
    fn other_halves_and_signs_stay() {
        leaves(
            RECOGNIZE_ROTARY_EMBEDDING,
            &format!("{TABLES} {HALVES} {SUM}").replace("Concat(%neg, %x1)", "Concat(%x1, %neg)"),
        );
        leaves(
            RECOGNIZE_ROTARY_EMBEDDING,
            &format!("{TABLES} {HALVES} {SUM}").replace("Neg(%x2)", "Neg(%x1)"),
        );
    }

    #[test]
    fn rotated_halves_that_others_read_are_refused() {
        refuses(
            RECOGNIZE_ROTARY_EMBEDDING,
            &format!("{TABLES} {HALVES} {SUM}, %rot"),
            "`rot` is an output of the graph",
        );
    }
}
