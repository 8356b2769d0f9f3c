//! Moves quantization past operators that only move elements, so that these work on integers: DequantizeLinear down,
//! QuantizeLinear up. Chains of layers stay in 8 bits then, and pairs meet that cancel.
//!
//! Elements keep their order under quantization, so MaxPool counts as movement; where QuantizeLinear moves above it, NaN
//! is left out of account, whose integer means nothing. Padding is put in as the integer that stands for it.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{DequantizeLinear, Op, PadMode};
use planish_tensor::normalize_axis;

use crate::pattern::{Finder, Found, Miss, blocked, output};
use crate::quantization::{Quantization, dequantize_of, is_byte, moved_inputs, moved_inputs_of};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Movement of numbers that stand for integers: the integers are moved.
pub(crate) const PUSH_DEQUANTIZE: Finder = Finder { name: "push_dequantize", find: find_push };

/// Movement of numbers that become integers: they become so before.
pub(crate) const PULL_QUANTIZE: Finder = Finder { name: "pull_quantize", find: find_pull };

fn find_push(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    if matches!(node.op, Op::Gather(_)) {
        return looked_up(cx, node, output(node)?);
    }
    let (Some(moved), result) = (moved_inputs(node), output(node)?) else { return Err(Miss::No) };
    if matches!(node.op, Op::Transpose(_))
        && let Some(patch) = transposed_weights(cx, node, result)
    {
        return Ok(patch);
    }
    let mut common: Option<Quantization> = None;
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    for place in moved {
        let maker = cx.input(node, place).and_then(|id| dequantize_of(cx, id));
        let Some((_, maker, own)) = maker else {
            // Parts that are integers meet one that is not.
            return if common.is_some() { blocked("not all parts are integers") } else { Err(Miss::No) };
        };
        if common.is_some_and(|common| common != own) {
            return blocked("its parts have different scales, zero points or types");
        }
        common = Some(own);
        inputs[place] = cx.input(maker, 0).map(Operand::Old);
    }
    let Some(common) = common else { return Err(Miss::No) };
    if moved_inputs_of(node, common.dtype).is_none() {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    if let Some(value) = padding(cx, node)? {
        let integer = if common.dtype.is_float() { 0 } else { common.integer(value) };
        if common.number(integer) != value {
            return blocked("no integer stands for the padding");
        }
        pad_with(&mut patch, &mut inputs, node, common, integer);
    }
    let made = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.has_shape_of(cx, made[0], common.dtype, result);
    let name = format!("{}.dequantize", cx.name(result));
    let numbers = common.dequantize(&mut patch, &name, made[0]);
    patch.replace(result, numbers);
    Ok(patch)
}

/// Numbers looked up in a table of integers: the integers are looked up, and the table stays as small as it is.
fn looked_up(cx: &View<'_>, node: &Node, result: ValueId) -> Found<Patch> {
    let Some((_, maker, by)) = cx.input(node, 0).and_then(|id| dequantize_of(cx, id)) else {
        return Err(Miss::No);
    };
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[0] = cx.input(maker, 0).map(Operand::Old);
    let mut patch = Patch::new();
    let made = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.has_shape_of(cx, made[0], by.dtype, result);
    let numbers = by.dequantize(&mut patch, &format!("{}.dequantize", cx.name(result)), made[0]);
    patch.replace(result, numbers);
    Ok(patch)
}

/// Weights that are transposed after they became numbers, with a scale for each of several channels: the integers are
/// transposed.
fn transposed_weights(cx: &View<'_>, node: &Node, result: ValueId) -> Option<Patch> {
    let Op::Transpose(transpose) = &node.op else { return None };
    let (_, maker) = cx.producer(cx.input(node, 0)?)?;
    let Op::DequantizeLinear(op) = &maker.op else { return None };
    let integers = cx.input(maker, 0).filter(|id| cx.constant(*id).is_some() && is_byte(cx.dtype(*id)))?;
    if op.block_size != 0 || cx.constant_input(maker, 1)?.rank() != 1 {
        return None;
    }
    let rank = cx.rank(integers)?;
    let axis = normalize_axis(op.axis, rank).ok()?;
    let moved = match &transpose.perm {
        Some(perm) => perm.iter().position(|&from| usize::try_from(from) == Ok(axis))?,
        None => rank - 1 - axis,
    };
    let mut patch = Patch::new();
    let turned = patch.node(&node.name, node.op.clone(), &[integers.into()]);
    let mut inputs: Vec<Option<Operand>> = maker.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[0] = Some(turned);
    let op = DequantizeLinear { axis: moved as i64, ..op.clone() };
    let numbers = patch.node_with(&maker.name, op, inputs, 1);
    patch.replace(result, numbers[0]);
    Some(patch)
}

fn find_pull(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Some(to), result) = (Quantization::by_quantize(cx, node), output(node)?) else {
        return Err(Miss::No);
    };
    let Some((mover, inner)) = cx.input(node, 0).and_then(|id| cx.producer(id)) else {
        return Err(Miss::No);
    };
    if matches!(inner.op, Op::Split(_)) {
        return pull_past_split(cx, id, (mover, inner), to);
    }
    let Some(moved) = moved_inputs_of(inner, to.dtype) else { return Err(Miss::No) };
    let made = output(inner)?;
    if cx.sole_reader(made).is_none() {
        return blocked("what is moved is read as numbers too");
    }
    // A part of a value alone becomes integers, copies do once.
    if matches!(inner.op, Op::Slice(_)) {
        return blocked("a slice has fewer elements to quantize than what it is of");
    }
    let is_made = |place: usize| cx.input(inner, place).is_some_and(|id| cx.producer(id).is_some());
    if !moved.clone().any(is_made) {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    let mut inputs: Vec<Option<Operand>> = inner.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    for place in moved {
        let Some(part) = cx.input(inner, place) else { return Err(Miss::No) };
        let integers = to.quantize(&mut patch, &format!("{}.quantize", cx.name(part)), part.into());
        patch.has_shape_of(cx, integers, to.dtype, part);
        inputs[place] = Some(integers);
    }
    if let Some(value) = padding(cx, inner)? {
        if to.dtype.is_float() && value != 0.0 {
            return blocked("it pads floats of 8 bits with another number than 0");
        }
        pad_with(
            &mut patch,
            &mut inputs,
            inner,
            to,
            if value == 0.0 { to.zero_point } else { to.integer(value) },
        );
    }
    let moved = patch.node_with(&inner.name, inner.op.clone(), inputs, 1);
    patch.has_shape_of(cx, moved[0], to.dtype, made);
    patch.replace(result, moved[0]);
    patch.relies_on(mover);
    Ok(patch)
}

/// Parts of a value that all become the same integers: the whole does. The first part's QuantizeLinear takes the others along.
fn pull_past_split(
    cx: &View<'_>,
    id: NodeId,
    (mover, split): (NodeId, &Node),
    to: Quantization,
) -> Found<Patch> {
    let Some(whole) = cx.input(split, 0).filter(|whole| cx.producer(*whole).is_some()) else {
        return Err(Miss::No);
    };
    let mut parts = Vec::with_capacity(split.outputs.len());
    for part in &split.outputs {
        let reader = part.and_then(|part| Some((part, cx.sole_reader(part)?)));
        let Some((part, (reader, node))) = reader else {
            return blocked("a part of what is split is read as numbers too");
        };
        if Quantization::by_quantize(cx, node) != Some(to) {
            return blocked("parts of what is split become different integers");
        }
        parts.push((part, reader, output(node)?));
    }
    if parts.first().is_none_or(|(_, first, _)| *first != id) {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    let integers = to.quantize(&mut patch, &format!("{}.quantize", cx.name(whole)), whole.into());
    patch.has_shape_of(cx, integers, to.dtype, whole);
    let mut inputs: Vec<Option<Operand>> = split.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[0] = Some(integers);
    let made = patch.node_with(&split.name, split.op.clone(), inputs, parts.len());
    for ((part, reader, result), made) in parts.into_iter().zip(made) {
        patch.has_shape_of(cx, made, to.dtype, part);
        patch.replace(result, made);
        if reader != id {
            patch.relies_on(reader);
        }
    }
    patch.relies_on(mover);
    Ok(patch)
}

/// What a node pads with, if it does.
fn padding(cx: &View<'_>, node: &Node) -> Found<Option<f32>> {
    match (&node.op, cx.input(node, 2)) {
        (Op::Pad(op), _) if op.mode != PadMode::Constant => Ok(None),
        (Op::Pad(_), None) => Ok(Some(0.0)),
        (Op::Pad(_), Some(value)) => match cx.splat(value) {
            Some(value) => Ok(Some(value as f32)),
            None => blocked("what is padded with is not known"),
        },
        _ => Ok(None),
    }
}

fn pad_with(
    patch: &mut Patch,
    inputs: &mut Vec<Option<Operand>>,
    node: &Node,
    by: Quantization,
    integer: i64,
) {
    inputs.resize(inputs.len().max(3), None);
    inputs[2] = Some(patch.constant(&format!("{}.padding", node.name), by.scalar(integer)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{PLAIN, agrees, leaves, refuses};
    use crate::driver::Pass;
    use crate::testing::{check, run};
    use expect_test::expect;

    const GIVEN: &str = "const %s: f32[] = 0.5 const %z: u8[] = 3 const %t: f32[] = 0.25 \
        const %flat: i64[2] = [1, 32] const %pads: i64[8] = [0,0,1,1,0,0,1,1] const %one: f32[] = 1 \
        const %odd: f32[] = 0.3 const %twice: f32[4] = [1, 1, 2, 2] const %a: i64[1] = [1] const %b: i64[1] = [3] \
        const %two: i64[1] = [2]";

    /// Movements of a value of shape 1 x 2 x 4 x 4, with their output types.
    const MOVES: &[(&str, &str)] = &[
        ("Reshape(%v, %flat)", "[1,32]"),
        ("Flatten(%v)", "[1,32]"),
        ("Transpose(%v) {perm=[0,2,3,1]}", "[1,4,4,2]"),
        ("MaxPool(%v) {kernel_shape=[3,3], pads=[1,1,1,1]}", "[1,2,4,4]"),
        ("Pad(%v, %pads)", "[1,2,6,6]"),
        ("Pad(%v, %pads, %one)", "[1,2,6,6]"),
        ("Pad(%v, %pads) {mode=\"reflect\"}", "[1,2,6,6]"),
        (
            "Resize(%v, _, %twice) {mode=\"nearest\", coordinate_transformation_mode=\"asymmetric\"}",
            "[1,2,8,8]",
        ),
        ("Concat(%v, %v) {axis=1}", "[1,4,4,4]"),
        ("Unsqueeze(%v, %a)", "[1,1,2,4,4]"),
        ("DepthToSpace(%w) {blocksize=2}", "[1,1,8,8]"),
    ];

    #[test]
    fn integers_are_moved_in_place_of_numbers() {
        for (movement, shape) in MOVES.iter().chain(&[("Slice(%v, %a, %b, %two)", "[1,2,2,4]")]) {
            let text = format!(
                "input %q: u8[1,2,4,4] input %r: u8[1,4,4,4] {GIVEN} %v: f32[1,2,4,4] = DequantizeLinear(%q, %s, %z) \
                 %w: f32[1,4,4,4] = DequantizeLinear(%r, %s, %z) %y: f32{shape} = {movement} output %y"
            );
            agrees(PUSH_DEQUANTIZE, &text, PLAIN);
            let (after, _) = run(Pass::rule(PUSH_DEQUANTIZE), &text);
            let last = after.nodes().last().map(|(_, node)| node.op.name());
            assert_eq!(last, Some("DequantizeLinear"), "{movement}");
        }
    }

    #[test]
    fn numbers_become_integers_before_they_are_moved() {
        for (movement, shape) in MOVES {
            let text = format!(
                "input %x: f32[1,2,4,4] input %u: f32[1,4,4,4] {GIVEN} %v: f32[1,2,4,4] = Sin(%x) \
                 %w: f32[1,4,4,4] = Sin(%u) %m: f32{shape} = {movement} %y: u8{shape} = QuantizeLinear(%m, %s, %z) output %y"
            );
            agrees(PULL_QUANTIZE, &text, PLAIN);
            let (after, _) = run(Pass::rule(PULL_QUANTIZE), &text);
            let last = after.nodes().last().map(|(_, node)| node.op.name());
            assert_ne!(last, Some("QuantizeLinear"), "{movement}");
        }
    }

    #[test]
    fn parts_of_a_split_become_integers_together() {
        let text = |second: &str| {
            format!(
                "input %x: f32[1,6] {GIVEN} %v: f32[1,6] = Sin(%x) %p: f32[1,3], %q: f32[1,3] = Split(%v) {{axis=1, num_outputs=2}} \
                 %y: u8[1,3] = QuantizeLinear(%p, %s, %z) %w: u8[1,3] = QuantizeLinear(%q, %{second}, %z) output %y, %w"
            )
        };
        agrees(PULL_QUANTIZE, &text("s"), PLAIN);
        let (after, _) = run(Pass::rule(PULL_QUANTIZE), &text("s"));
        let ops: Vec<&str> = after.nodes().map(|(_, node)| node.op.name()).collect();
        assert_eq!(ops, ["Sin", "QuantizeLinear", "Split"]);
        refuses(PULL_QUANTIZE, &text("t"), "parts of what is split become different integers");
    }

    /// Floats of 8 bits are copied and padded with zeros, and neither pooled nor resized.
    #[test]
    fn floats_of_8_bits_are_only_copied() {
        for (movement, shape) in MOVES {
            let text = format!(
                "input %x: f32[1,2,4,4] input %u: f32[1,4,4,4] {GIVEN} const %e: f8e4m3fn[] = 0 \
                 %v: f32[1,2,4,4] = Sin(%x) %w: f32[1,4,4,4] = Sin(%u) %m: f32{shape} = {movement} \
                 %y: f8e4m3fn{shape} = QuantizeLinear(%m, %s, %e) output %y"
            );
            let (after, _) = run(Pass::rule(PULL_QUANTIZE), &text);
            let last = after.nodes().last().map(|(_, node)| node.op.name());
            let stays = movement.starts_with("MaxPool")
                || movement.starts_with("Resize")
                || movement.contains("%pads, %one");
            assert_eq!(last == Some("QuantizeLinear"), stays, "{movement}");
            if !stays {
                agrees(PULL_QUANTIZE, &text, PLAIN);
            }
        }
    }

    #[test]
    fn transposed_weights_keep_a_scale_for_each_channel() {
        check(
            PUSH_DEQUANTIZE,
            "input %x: f32[1,2] const %w: i8[3,2] = [1, 2, 3, 4, 5, 6] const %s: f32[3] = [1, 2, 3] \
             %d: f32[3,2] = DequantizeLinear(%w, %s) {axis=0} \"d\" %t: f32[2,3] = Transpose(%d) \"t\" \
             %y: f32[1,3] = MatMul(%x, %t) \"m\" output %y",
            expect![[r#"
                input %x: f32[1,2]
                const %w: i8[3,2] = [1, 2, 3, 4, 5, 6]
                const %s: f32[3] = [1, 2, 3]
                %t.1: i8[2,3] = Transpose(%w) "t"
                %t: f32[2,3] = DequantizeLinear(%t.1, %s) "d"
                %y: f32[1,3] = MatMul(%x, %t) "m"
                output %y
            "#]],
        );
    }

    #[test]
    fn tables_are_looked_up_in_as_integers() {
        let text = format!(
            "input %at: i64[2,3] {GIVEN} const %q: u8[4,2] = [1, 2, 3, 4, 5, 6, 7, 255] \
             %v: f32[4,2] = DequantizeLinear(%q, %s, %z) %y: f32[2,3,2] = Gather(%v, %at) output %y"
        );
        let (after, _) = run(Pass::rule(PUSH_DEQUANTIZE), &text);
        let ops: Vec<&str> = after.nodes().map(|(_, node)| node.op.name()).collect();
        assert_eq!(ops, ["Gather", "DequantizeLinear"]);
        let at = planish_tensor::Tensor::new(&[2, 3], vec![0i64, 3, 2, 1, 1, -1]).unwrap();
        let of = |graph: &planish_ir::Graph| {
            let outputs = planish_ir::interpret(graph, vec![at.clone().into()]).unwrap();
            outputs[0].as_tensor().unwrap().to_f64s()
        };
        assert_eq!(of(&after), of(&crate::testing::graph(&text)));
    }

    #[test]
    fn parts_must_be_alike() {
        let text = |parts: &str| {
            format!(
                "input %p: u8[2] input %q: u8[2] input %x: f32[2] {GIVEN} %a1: f32[2] = DequantizeLinear(%p, %s, %z) \
                 %b1: f32[2] = DequantizeLinear(%q, %t, %z) %y: f32[4] = Concat({parts}) {{axis=0}} output %y"
            )
        };
        let different = "its parts have different scales, zero points or types";
        refuses(PUSH_DEQUANTIZE, &text("%a1, %b1"), different);
        refuses(PUSH_DEQUANTIZE, &text("%a1, %x"), "not all parts are integers");
        leaves(PUSH_DEQUANTIZE, &text("%x, %a1"));
    }

    #[test]
    fn what_has_no_integer_or_is_read_as_numbers_stays() {
        let padded = |value: &str| {
            format!(
                "input %q: u8[1,2,4,4] {GIVEN} %v: f32[1,2,4,4] = DequantizeLinear(%q, %s, %z) \
                 %y: f32[1,2,6,6] = Pad(%v, %pads, %{value}) output %y"
            )
        };
        refuses(PUSH_DEQUANTIZE, &padded("odd"), "no integer stands for the padding");
        let read_twice = format!(
            "input %x: f32[1,32] {GIVEN} %v: f32[1,32] = Sin(%x) %m: f32[32,1] = Transpose(%v) \
             %y: u8[32,1] = QuantizeLinear(%m, %s, %z) output %y, %m"
        );
        refuses(PULL_QUANTIZE, &read_twice, "what is moved is read as numbers too");
        let of_an_input = format!(
            "input %x: f32[1,32] {GIVEN} %m: f32[32,1] = Transpose(%x) %y: u8[32,1] = QuantizeLinear(%m, %s, %z) output %y"
        );
        leaves(PULL_QUANTIZE, &of_an_input);
    }
}
