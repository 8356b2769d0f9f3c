//! Takes away what quantization makes needless: a DequantizeLinear that is quantized again in the same way, and clamps
//! that the ends of the integers' range are anyway.
//!
//! - `QuantizeLinear(DequantizeLinear(q))` with equal scales and zero points is `q`: every integer comes back, since f32
//!   holds it and rounds twice by less than a thousandth of a step. So does every float of 8 bits.
//! - `QuantizeLinear(Relu(x))` is `QuantizeLinear(x)` where 0 is the smallest integer, and likewise for Clip where its
//!   ends become the ends of the range.
//! - A zero point of DequantizeLinear that is 0 says nothing: none at all is what kernels look for.
//! - `Relu(DequantizeLinear(q))` is `DequantizeLinear(q)` where no integer stands for less than 0, and likewise for Clip.

use planish_ir::{Node, NodeId};
use planish_op::Op;

use crate::pattern::{Finder, Found, Miss, blocked, output};
use crate::quantization::{Quantization, dequantize_of, ends};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// A DequantizeLinear and a QuantizeLinear that undo each other.
pub(crate) const CANCEL_QUANTIZATION: Finder = Finder { name: "cancel_quantization", find: find_pair };

/// Relu and Clip beside quantization.
pub(crate) const ABSORB_CLAMPS: Finder = Finder { name: "absorb_clamps", find: find_clamp };

/// Zero points that are 0.
pub(crate) const DROP_ZERO_POINTS: Finder = Finder { name: "drop_zero_points", find: find_zero };

fn find_zero(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::DequantizeLinear(_), Some(zero_point)) = (&node.op, cx.input(node, 2)) else {
        return Err(Miss::No);
    };
    if cx.splat(zero_point) != Some(0.0) {
        return Err(Miss::No);
    }
    let mut patch = Patch::new();
    let inputs = node.inputs[..2].iter().map(|id| id.map(Operand::Old)).collect();
    let same = patch.node_with(&node.name, node.op.clone(), inputs, 1);
    patch.replace(output(node)?, same[0]);
    Ok(patch)
}

fn find_pair(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    if !matches!(node.op, Op::QuantizeLinear(_)) {
        return Err(Miss::No);
    }
    let (result, Some(x)) = (output(node)?, cx.input(node, 0)) else { return Err(Miss::No) };
    let Some((_, inner, from)) = dequantize_of(cx, x) else { return Err(Miss::No) };
    let Some(to) = Quantization::by_quantize(cx, node) else { return Err(Miss::No) };
    let Some(integers) = cx.input(inner, 0) else { return Err(Miss::No) };
    if from != to {
        return blocked("it is quantized again with another scale, zero point or type");
    }
    if cx.is_output(result) && !cx.can_become_output(integers) {
        return blocked("an output of the graph needs a node of its own");
    }
    Ok(Patch::replacing(result, integers))
}

fn find_clamp(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let result = output(node)?;
    if let Some(to) = Quantization::by_quantize(cx, node) {
        // The ends of floats of 8 bits are far beyond what activations are clamped to.
        if to.dtype.is_float() {
            return Err(Miss::No);
        }
        let Some((clamp, inner)) = cx.input(node, 0).and_then(|x| cx.producer(x)) else {
            return Err(Miss::No);
        };
        let Some([low, high]) = clamped(cx, inner) else { return Err(Miss::No) };
        let [first, last] = ends(to.dtype);
        if to.integer(low) != first || to.integer(high) != last {
            return blocked("its ends are not those of the integers after it");
        }
        let (Some(x), mut patch) = (cx.input(inner, 0), Patch::new()) else { return Err(Miss::No) };
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        inputs[0] = Some(x.into());
        let quantized = patch.node_with(&node.name, node.op.clone(), inputs, 1);
        patch.replace(result, quantized[0]);
        patch.relies_on(clamp);
        return Ok(patch);
    }
    let Some([low, high]) = clamped(cx, node) else { return Err(Miss::No) };
    let Some(x) = cx.input(node, 0) else { return Err(Miss::No) };
    let Some((_, _, from)) = dequantize_of(cx, x) else { return Err(Miss::No) };
    if from.dtype.is_float() {
        return Err(Miss::No);
    }
    let [first, last] = ends(from.dtype);
    if from.number(first) < low || from.number(last) > high {
        return blocked("integers before it stand for numbers beyond its ends");
    }
    if cx.is_output(result) && !cx.can_become_output(x) {
        return blocked("an output of the graph needs a node of its own");
    }
    Ok(Patch::replacing(result, x))
}

/// The ends that a node clamps to.
fn clamped(cx: &View<'_>, node: &Node) -> Option<[f32; 2]> {
    let end = |place: usize, none: f32| match cx.input(node, place) {
        Some(id) => cx.splat(id).map(|end| end as f32),
        None => Some(none),
    };
    match node.op {
        Op::Relu(_) => Some([0.0, f32::INFINITY]),
        Op::Clip(_) => Some([end(1, f32::NEG_INFINITY)?, end(2, f32::INFINITY)?]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{SPECIAL, agrees, becomes, refuses};

    const SCALES: &str =
        "const %s: f32[] = 0.5 const %t: f32[] = 0.25 const %z: u8[] = 0 const %m: u8[] = 128";

    #[test]
    fn there_and_back_is_nothing() {
        becomes(
            CANCEL_QUANTIZATION,
            "input %x: u8[4] const %h: i64[2] = [2, 2] const %s: f32[] = 0.5 const %z: u8[] = 3 const %t: f32[1] = [0.5] \
             const %y: u8[1] = [3] %a: f32[4] = DequantizeLinear(%x, %s, %z) %q: u8[4] = QuantizeLinear(%a, %t, %y) \
             %r: u8[2,2] = Reshape(%q, %h) output %r",
            "input %x: u8[4] const %h: i64[2] = [2, 2] %r: u8[2,2] = Reshape(%x, %h) output %r",
            SPECIAL,
        );
    }

    /// Of floats of 8 bits too: every one of them comes back.
    #[test]
    fn floats_of_8_bits_come_back() {
        for scale in ["0.5", "0.0123", "3.7"] {
            let text = format!(
                "input %x: f32[64] const %s: f32[] = {scale} const %z: f8e4m3fn[] = 0 \
                 %p: f8e4m3fn[64] = QuantizeLinear(%x, %s, %z) %a: f32[64] = DequantizeLinear(%p, %s, %z) \
                 %q: f8e4m3fn[64] = QuantizeLinear(%a, %s, %z) %y: f32[64] = DequantizeLinear(%q, %s, %z) output %y"
            );
            agrees(CANCEL_QUANTIZATION, &text, SPECIAL);
        }
    }

    #[test]
    fn zero_points_of_zero_are_left_out() {
        becomes(
            DROP_ZERO_POINTS,
            "input %x: i8[2,3] const %s: f32[3] = [0.5, 1, 2] const %z: i8[3] = [0, 0, 0] \
             %a: f32[2,3] = DequantizeLinear(%x, %s, %z) %y: f32[2,3] = Neg(%a) output %y",
            "input %x: i8[2,3] const %s: f32[3] = [0.5, 1, 2] \
             %a: f32[2,3] = DequantizeLinear(%x, %s) %y: f32[2,3] = Neg(%a) output %y",
            SPECIAL,
        );
    }

    #[test]
    fn another_scale_is_a_rounding() {
        let text = format!(
            "input %x: u8[4] {SCALES} %a: f32[4] = DequantizeLinear(%x, %s, %z) \
             %q: u8[4] = QuantizeLinear(%a, %t, %z) %y: u8[4] = Identity(%q) output %y"
        );
        refuses(CANCEL_QUANTIZATION, &text, "it is quantized again with another scale, zero point or type");
    }

    #[test]
    fn clamps_at_the_ends_of_the_range_go() {
        for clamp in ["Relu(%x)", "Clip(%x, %low, %high)", "Clip(%x, %low)"] {
            let text = format!(
                "input %x: f32[64] {SCALES} const %low: f32[] = 0 const %high: f32[] = 127.5 \
                 %r: f32[64] = {clamp} %y: u8[64] = QuantizeLinear(%r, %s, %z) output %y"
            );
            agrees(ABSORB_CLAMPS, &text, SPECIAL);
        }
        for (clamp, zero) in [("Relu(%x)", "m"), ("Clip(%x, %low, %high)", "z")] {
            let text = format!(
                "input %x: f32[64] {SCALES} const %low: f32[] = 0 const %high: f32[] = 6 \
                 %r: f32[64] = {clamp} %y: u8[64] = QuantizeLinear(%r, %s, %{zero}) output %y"
            );
            refuses(ABSORB_CLAMPS, &text, "its ends are not those of the integers after it");
        }
    }

    #[test]
    fn clamps_of_what_is_within_go() {
        let text = |zero: &str| {
            format!(
                "input %q: u8[64] {SCALES} %x: f32[64] = DequantizeLinear(%q, %s, %{zero}) \
                 %r: f32[64] = Relu(%x) %y: f32[64] = Neg(%r) output %y"
            )
        };
        agrees(ABSORB_CLAMPS, &text("z"), SPECIAL);
        refuses(ABSORB_CLAMPS, &text("m"), "integers before it stand for numbers beyond its ends");
    }
}
