//! Removes nodes that hand on their input as it is.
//!
//! Bits count: `x + 0` turns -0 into +0 and stays, `x - 0` and `x · 1` do not and go.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::Op;
use planish_tensor::normalize_axis;

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Identity, Dropout outside training, casts to the own type, and data movement that moves nothing.
pub(crate) struct RemoveIdentity;

impl Rule for RemoveIdentity {
    fn name(&self) -> &'static str {
        "remove_identity"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Some(Some(to)), true) = (node.outputs.first().copied(), node.bodies.is_empty()) else {
            return Match::No;
        };
        let from = match handed_on(cx, node, to) {
            Found::Input(from) => from,
            Found::No => return Match::No,
            Found::Blocked(reason) => return Match::blocked(reason),
        };
        if node.outputs[1..].iter().flatten().any(|id| !cx.readers(*id).is_empty() || cx.is_output(*id)) {
            return Match::blocked("its second output is read");
        }
        if cx.is_output(to) && !cx.can_become_output(from) {
            return Match::blocked("an output must differ from inputs, constants and other outputs");
        }
        Match::Rewrite(Patch::replacing(to, from))
    }
}

enum Found {
    /// This one comes out as it is.
    Input(ValueId),
    No,
    Blocked(&'static str),
}

/// The input that `to`, the first output, is the same as.
fn handed_on(cx: &View<'_>, node: &Node, to: ValueId) -> Found {
    let Some(first) = cx.input(node, 0) else { return Found::No };
    let when = |is_same: bool| if is_same { Found::Input(first) } else { Found::No };
    let ones = |idx: usize| match cx.input(node, idx) {
        None => true,
        Some(id) => cx.ints(id).is_some_and(|ints| ints.iter().all(|&int| int == 1)),
    };
    match &node.op {
        Op::Identity(_) => Found::Input(first),
        Op::Dropout(_) => match cx.input(node, 2) {
            None => Found::Input(first),
            Some(mode) => match cx.constant(mode).map(|mode| mode.to_i64s()) {
                Some(mode) if mode.iter().all(|&mode| mode == 0) => Found::Input(first),
                Some(_) => Found::Blocked("it is in training mode"),
                None => Found::Blocked("whether it is in training mode is known only at run time"),
            },
        },
        Op::Cast(op) => when(cx.dtype(first) == Some(op.to)),
        // Elements stay in order, so the shape says it all.
        Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_) | Op::Expand(_) | Op::Tile(_) => {
            when(cx.same_type(first, to))
        }
        Op::Transpose(op) => when(match &op.perm {
            Some(perm) => perm.iter().enumerate().all(|(axis, &from)| from == axis as i64),
            None => cx.rank(first).is_some_and(|rank| rank <= 1),
        }),
        // A step of -1 leaves the shape and turns the elements round.
        Op::Slice(_) => when(cx.same_type(first, to) && ones(4)),
        Op::Pad(_) => {
            let pads = cx.input(node, 1).and_then(|pads| cx.ints(pads));
            when(pads.is_some_and(|pads| pads.iter().all(|&pad| pad == 0)))
        }
        Op::Concat(op) if node.inputs.len() > 1 => {
            rejoined(cx, op.axis, node).map_or(Found::No, Found::Input)
        }
        Op::Concat(_) | Op::Sum(_) | Op::Mean(_) | Op::Min(_) | Op::Max(_) => when(node.inputs.len() == 1),
        Op::Split(_) => when(node.outputs.len() == 1 && cx.same_type(first, to)),
        Op::MaxPool(op) => when(op.kernel_shape.iter().all(|&size| size == 1) && cx.same_type(first, to)),
        Op::AveragePool(op) => when(op.kernel_shape.iter().all(|&size| size == 1) && cx.same_type(first, to)),
        Op::Add(_) | Op::Sub(_) | Op::Mul(_) | Op::Div(_) | Op::Pow(_) => neutral(cx, node, first, to),
        _ => Found::No,
    }
}

/// What a Split took apart, if this Concat puts all of it together again.
fn rejoined(cx: &View<'_>, axis: i64, node: &Node) -> Option<ValueId> {
    let (_, split) = cx.producer(cx.input(node, 0)?)?;
    let (Op::Split(op), Some(whole)) = (&split.op, cx.input(split, 0)) else { return None };
    let rank = cx.rank(whole)?;
    let is_same_axis = normalize_axis(axis, rank).ok()? == normalize_axis(op.axis, rank).ok()?;
    (is_same_axis && split.outputs == node.inputs).then_some(whole)
}

/// Arithmetic with a constant that changes nothing.
fn neutral(cx: &View<'_>, node: &Node, left: ValueId, to: ValueId) -> Found {
    let Some(right) = cx.input(node, 1) else { return Found::No };
    let is_commutative = matches!(node.op, Op::Add(_) | Op::Mul(_));
    for (value, other, is_left) in [(left, right, true), (right, left, false)] {
        if !is_left && !is_commutative {
            continue;
        }
        let Some(number) = cx.splat(other) else { continue };
        let is_float = cx.dtype(value).is_some_and(|dtype| dtype.is_float());
        let is_neutral = match node.op {
            Op::Add(_)
                if is_float && number == 0.0 && number.is_sign_positive() && cx.same_type(value, to) =>
            {
                return Found::Blocked("adding +0 turns -0 into +0");
            }
            Op::Add(_) => number == 0.0,
            // -0 - (+0) is -0, and so is nothing else changed; minus -0 is plus 0.
            Op::Sub(_) => number == 0.0 && number.is_sign_positive(),
            Op::Mul(_) | Op::Div(_) | Op::Pow(_) => number == 1.0,
            _ => false,
        };
        if is_neutral && cx.same_type(value, to) {
            return Found::Input(value);
        }
    }
    Found::No
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, kept, removed};
    use expect_test::expect;

    #[test]
    fn chains_vanish_at_once_and_outputs_keep_their_names() {
        check(
            RemoveIdentity,
            "input %x: f32[2] %a: f32[2] = Relu(%x) \"r\" %b: f32[2] = Identity(%a) %c: f32[2] = Identity(%b) \
             %y: f32[2] = Identity(%c) output %y",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Relu(%x) "r"
                output %y
            "#]],
        );
    }

    #[test]
    fn an_output_stays_apart_from_inputs_and_other_outputs() {
        check(
            RemoveIdentity,
            "input %x: f32[2] %a: f32[2] = Identity(%x) \"a\" %y: f32[2] = Identity(%a) \"b\" \
             %z: f32[2] = Relu(%x) %w: f32[2] = Identity(%z) \"c\" output %y, %z, %w",
            expect![[r#"
                input %x: f32[2]
                %z: f32[2] = Relu(%x)
                %w: f32[2] = Identity(%z) "c"
                %y: f32[2] = Identity(%x) "b"
                output %y, %z, %w
                refused at c: an output must differ from inputs, constants and other outputs
                refused at b: an output must differ from inputs, constants and other outputs
            "#]],
        );
        // Two outputs from one inner value: one takes its place, the other copies.
        check(
            RemoveIdentity,
            "input %x: f32[2] %a: f32[2] = Relu(%x) %y: f32[2] = Identity(%a) \"b\" \
             %z: f32[2] = Identity(%a) \"c\" output %y, %z",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Relu(%x)
                %z: f32[2] = Identity(%y) "c"
                output %y, %z
                refused at c: an output must differ from inputs, constants and other outputs
            "#]],
        );
    }

    #[test]
    fn dropout_goes_unless_it_trains_or_its_mask_is_read() {
        removed(RemoveIdentity, "input %x: f32[2] %y: f32[2] = Dropout(%x)", "y");
        removed(
            RemoveIdentity,
            "input %x: f32[2] const %r: f32[] = 0.5 const %t: bool[] = false %y: f32[2], %m: bool[2] = Dropout(%x, %r, %t)",
            "y",
        );
        kept(
            RemoveIdentity,
            "input %x: f32[2] const %r: f32[] = 0.5 const %t: bool[] = true %y: f32[2] = Dropout(%x, %r, %t)",
            "y",
            "it is in training mode",
        );
        kept(
            RemoveIdentity,
            "input %x: f32[2] const %r: f32[] = 0.5 input %t: bool[] %y: f32[2] = Dropout(%x, %r, %t)",
            "y",
            "whether it is in training mode is known only at run time",
        );
        kept(
            RemoveIdentity,
            "input %x: f32[2] %z: f32[2], %m: bool[2] = Dropout(%x) %y: bool[2] = Not(%m)",
            "y",
            "its second output is read",
        );
    }

    #[test]
    fn movement_that_moves_nothing_goes() {
        for node in [
            "%y: f32[n,2] = Cast(%x) {to=f32}",
            "const %s: i64[2] = [-1, 2] %y: f32[n,2] = Reshape(%x, %s)",
            "const %s: i64[2] = [1, 1] %y: f32[n,2] = Expand(%x, %s)",
            "%y: f32[n,2] = Flatten(%x)",
            "%y: f32[n,2] = Transpose(%x) {perm=[0,1]}",
            "const %b: i64[2] = [0, 0] const %e: i64[2] = [9223372036854775807, 2] %y: f32[n,2] = Slice(%x, %b, %e)",
            "const %p: i64[4] = [0,0,0,0] %y: f32[n,2] = Pad(%x, %p)",
            "%y: f32[n,2] = Concat(%x) {axis=0}",
            "%a: f32[n,1], %b: f32[n,1] = Split(%x) {axis=1, num_outputs=2} %y: f32[n,2] = Concat(%a, %b) {axis=-1}",
            "%y: f32[n,2] = Max(%x)",
            "const %one: f32[1,2] = [1, 1] %y: f32[n,2] = Mul(%one, %x)",
            "const %zero: f32[] = 0 %y: f32[n,2] = Sub(%x, %zero)",
            "const %zero: f32[] = -0.0 %y: f32[n,2] = Add(%x, %zero)",
        ] {
            removed(RemoveIdentity, &format!("input %x: f32[n,2] {node}"), "y");
        }
    }

    #[test]
    fn movement_that_moves_something_stays() {
        for node in [
            "%y: f64[n,2] = Cast(%x) {to=f64}",
            "const %s: i64[2] = [2, -1] %y: f32[2,n] = Reshape(%x, %s)",
            "%y: f32[2,n] = Transpose(%x)",
            "%a: f32[n,1], %b: f32[n,1] = Split(%x) {axis=1, num_outputs=2} %y: f32[n,2] = Concat(%b, %a) {axis=1}",
            "const %b: i64[1] = [-1] const %e: i64[1] = [-9] const %a: i64[1] = [1] %y: f32[n,2] = Slice(%x, %b, %e, %a, %b)",
            "const %p: i64[4] = [0,1,0,0] %y: f32[n,3] = Pad(%x, %p)",
            "const %one: f32[3,1,1] = [1, 1, 1] %y: f32[3,n,2] = Mul(%one, %x)",
            "const %one: f32[] = 1 %y: f32[n,2] = Div(%one, %x)",
            "const %zero: f32[] = -0.0 %y: f32[n,2] = Sub(%x, %zero)",
        ] {
            kept(RemoveIdentity, &format!("input %x: f32[n,2] {node}"), "y", "");
        }
        let text = "input %x: f32[n,2] const %zero: f32[] = 0 %y: f32[n,2] = Add(%x, %zero)";
        kept(RemoveIdentity, text, "y", "adding +0 turns -0 into +0");
    }
}
