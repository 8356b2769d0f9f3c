//! Gives every reader of dequantized integers a DequantizeLinear of its own, and every element-wise reader of widened 16-bit
//! floats a Cast.
//!
//! A kernel that reads integers covers the DequantizeLinear before it; one that others read too would have to be
//! computed, and its numbers written. So it is with the cast of a residual, or of what becomes integers. Nothing that joins equal nodes may run after this.

use planish_ir::{Node, ValueId};
use planish_op::Op;
use planish_tensor::DType;

use crate::quantization::{is_byte, is_small_int};
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// DequantizeLinear of 4-bit and 8-bit integers, and of 8-bit floats, that several nodes read.
pub(crate) struct CopyDequantize;

impl Sweep for CopyDequantize {
    fn name(&self) -> &'static str {
        "copy_dequantize"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        for (id, node) in cx.graph().nodes() {
            let shared: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
            let is_shared = |value: &ValueId| {
                let first = cx.readers(*value).first();
                maker(cx, node, *value).is_some() && (first != Some(&id) || cx.is_output(*value))
            };
            if !shared.iter().any(is_shared) {
                continue;
            }
            if !node.bodies.is_empty() {
                proposals.add(id, Match::blocked("its bodies read the numbers"));
                continue;
            }
            proposals.add(id, Match::Rewrite(with_own(cx, node, is_shared)));
        }
    }
}

/// Who makes a value that `reader` should have made for itself.
fn maker<'g>(cx: &View<'g>, reader: &Node, value: ValueId) -> Option<&'g Node> {
    let (_, maker) = cx.producer(value)?;
    let dtype = cx.input(maker, 0).and_then(|id| cx.dtype(id));
    let is_own = match &maker.op {
        Op::DequantizeLinear(_) => is_small_int(dtype) || is_byte(dtype),
        Op::Cast(cast) => {
            let is_half = matches!(dtype, Some(DType::F16 | DType::BF16));
            cast.to == DType::F32
                && is_half
                && reader.op.is_elementwise()
                && !matches!(reader.op, Op::Cast(_))
        }
        _ => false,
    };
    is_own.then_some(maker)
}

/// The node with a DequantizeLinear of its own for each value that others read.
fn with_own(cx: &View<'_>, node: &Node, is_shared: impl Fn(&ValueId) -> bool) -> Patch {
    let mut patch = Patch::new();
    let mut copies: Vec<(ValueId, Operand)> = Vec::new();
    for &value in node.inputs.iter().flatten() {
        if copies.iter().any(|(old, _)| *old == value) || !is_shared(&value) {
            continue;
        }
        let Some(maker) = maker(cx, node, value) else { continue };
        let inputs = maker.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        let name = format!("{} for {}", maker.name, node.name);
        let copy = patch.node_with(&name, maker.op.clone(), inputs, 1)[0];
        if let Some(dtype) = cx.dtype(value) {
            patch.has_shape_of(cx, copy, dtype, value);
        }
        copies.push((value, copy));
    }
    let own = |id: &Option<ValueId>| {
        id.map(|id| copies.iter().find(|(old, _)| *old == id).map_or(Operand::Old(id), |(_, copy)| *copy))
    };
    let made = patch.node_with(
        &node.name,
        node.op.clone(),
        node.inputs.iter().map(own).collect(),
        node.outputs.len(),
    );
    for (old, made) in node.outputs.iter().zip(made) {
        let Some(old) = *old else { continue };
        if let Some(dtype) = cx.dtype(old) {
            patch.has_shape_of(cx, made, dtype, old);
        }
        patch.replace(old, made);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::check_pass;
    use expect_test::expect;

    #[test]
    fn each_reader_and_the_output_has_its_own() {
        check_pass(
            Pass::sweep(CopyDequantize),
            "input %q: u8[4] const %s: f32[] = 0.5 %a: f32[4] = DequantizeLinear(%q, %s) \"d\" \
             %b: f32[4] = Relu(%a) \"b\" %c: f32[4] = Add(%a, %a) \"c\" %e: f32[4] = Add(%b, %a) \"e\" output %a, %c, %e",
            expect![[r#"
                input %q: u8[4]
                const %s: f32[] = 0.5
                %a: f32[4] = DequantizeLinear(%q, %s) "d"
                %"d for b": f32[4] = DequantizeLinear(%q, %s) "d for b"
                %b: f32[4] = Relu(%"d for b") "b"
                %"d for c": f32[4] = DequantizeLinear(%q, %s) "d for c"
                %c: f32[4] = Add(%"d for c", %"d for c") "c"
                %"d for e": f32[4] = DequantizeLinear(%q, %s) "d for e"
                %e: f32[4] = Add(%b, %"d for e") "e"
                output %a, %c, %e
            "#]],
        );
    }

    #[test]
    fn element_wise_readers_of_widened_halves_have_their_own() {
        check_pass(
            Pass::sweep(CopyDequantize),
            "input %h: f16[4] const %s: f32[] = 0.5 const %z: i8[] = 0 %a: f32[4] = Cast(%h) {to=f32} \"a\" \
             %q: i8[4] = QuantizeLinear(%a, %s, %z) \"q\" %b: f32[4] = Add(%a, %s) \"b\" \
             %c: f32[4] = Softmax(%a) \"c\" output %q, %b, %c",
            expect![[r#"
                input %h: f16[4]
                const %s: f32[] = 0.5
                const %z: i8[] = 0
                %a: f32[4] = Cast(%h) {to=f32} "a"
                %q: i8[4] = QuantizeLinear(%a, %s, %z) "q"
                %"a for b": f32[4] = Cast(%h) {to=f32} "a for b"
                %b: f32[4] = Add(%"a for b", %s) "b"
                %c: f32[4] = Softmax(%a) "c"
                output %q, %b, %c
            "#]],
        );
    }

    #[test]
    fn sole_readers_and_wider_integers_stay() {
        check_pass(
            Pass::sweep(CopyDequantize),
            "input %q: u8[4] input %i: i32[4] const %s: f32[] = 0.5 %a: f32[4] = DequantizeLinear(%q, %s) \"d\" \
             %b: f32[4] = Mul(%a, %a) \"b\" %w: f32[4] = DequantizeLinear(%i, %s) \"w\" \
             %c: f32[4] = Add(%w, %b) \"c\" %e: f32[4] = Relu(%w) \"e\" output %c, %e",
            expect![[r#"
                input %q: u8[4]
                input %i: i32[4]
                const %s: f32[] = 0.5
                %a: f32[4] = DequantizeLinear(%q, %s) "d"
                %b: f32[4] = Mul(%a, %a) "b"
                %w: f32[4] = DequantizeLinear(%i, %s) "w"
                %c: f32[4] = Add(%w, %b) "c"
                %e: f32[4] = Relu(%w) "e"
                output %c, %e
            "#]],
        );
    }
}
