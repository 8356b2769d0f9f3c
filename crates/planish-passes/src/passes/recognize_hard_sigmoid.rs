//! Recognizes HardSigmoid written out: `clip(x + 3, 0, 6) / 6` and `clip(alpha·x + beta, 0, 1)`.

use planish_ir::{NodeId, ValueId};
use planish_op::{HardSigmoid, Op};

use crate::formula::{affine, polynomial, ramp};
use crate::pattern::{
    Finder, Found, Miss, blocked, is_number, output, rewrite_unary, two_inputs, with_number,
};
use crate::rule::Patch;
use crate::view::View;

/// A ramp from 0 to 1 of a scaled and shifted value.
pub(crate) const RECOGNIZE_HARD_SIGMOID: Finder = Finder { name: "recognize_hard_sigmoid", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    // The number that the ramp is multiplied with.
    let (value, factor) = match (&node.op, two_inputs(node)) {
        (Op::Clip(_) | Op::Min(_) | Op::Relu(_), _) => (y, 1.0),
        (Op::Mul(_), Some(pair)) => with_number(cx, pair).ok_or(Miss::No)?,
        (Op::Div(_), Some([value, number])) => (value, 1.0 / cx.splat(number).ok_or(Miss::No)?),
        _ => return Err(Miss::No),
    };
    let ramp = ramp(cx, value).ok_or(Miss::No)?;
    let x = argument(cx, ramp.arg).ok_or(Miss::No)?;
    let inner = polynomial(cx, ramp.arg, x).ok_or(Miss::No)?;
    let [offset, slope, 0.0, 0.0] = inner.coefs else { return Err(Miss::No) };
    if ramp.low != 0.0 || ramp.high <= 0.0 {
        return Err(Miss::No);
    }
    let dtype = cx.dtype(x).ok_or(Miss::No)?;
    if !is_number(factor * ramp.high, 1.0, dtype) {
        // A bare Clip up to 6 is the activation of that name.
        return match value == y {
            true => Err(Miss::No),
            false => blocked(format!("the ramp goes up to {:.4}, not to 1", factor * ramp.high)),
        };
    }
    let op = HardSigmoid { alpha: (factor * slope) as f32, beta: (factor * offset) as f32 };
    rewrite_unary(cx, root, x, op, ramp.nodes.into_iter().chain(inner.nodes))
}

/// The value that `arg` is a shifted, or a scaled and then shifted copy of. What is scaled and shifted before
/// that belongs to the layer above.
fn argument(cx: &View<'_>, arg: ValueId) -> Option<ValueId> {
    let (_, node) = cx.producer(arg).filter(|(_, node)| matches!(node.op, Op::Add(_) | Op::Sub(_)))?;
    let shifted = affine(cx, arg);
    if shifted.nodes.len() == 1 {
        return Some(shifted.value);
    }
    let (before, _) = with_number(cx, two_inputs(node)?)?;
    let scaled = cx.producer(before).filter(|(_, node)| matches!(node.op, Op::Mul(_) | Op::Div(_)));
    match scaled {
        // A scaled value that others read too is an argument of its own.
        Some((_, node)) if cx.sole_reader(before).is_some() => {
            let [a, b] = two_inputs(node)?;
            Some(if cx.splat(b).is_some() { a } else { b })
        }
        _ => Some(before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{SPECIAL, agrees, becomes, leaves, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const HEAD: &str = "input %x: f32[16] const %three: f32[] = [3] const %zero: f32[] = [0] const %six: f32[] = [6] \
        const %a: f32[] = [0.2] const %h: f32[] = [0.5] const %one: f32[] = [1]";

    #[test]
    fn a_divided_relu6_is_found() {
        let form = format!(
            "{HEAD} %s: f32[16] = Add(%x, %three) %c: f32[16] = Clip(%s, %zero, %six) %y: f32[16] = Div(%c, %six) output %y"
        );
        becomes(
            RECOGNIZE_HARD_SIGMOID,
            &form,
            "input %x: f32[16] %y: f32[16] = HardSigmoid(%x) {alpha=0.16666667} output %y",
            SPECIAL,
        );
    }

    #[test]
    fn a_clipped_line_is_found() {
        let form = format!(
            "{HEAD} %m: f32[16] = Mul(%a, %x) %s: f32[16] = Add(%m, %h) %y: f32[16] = Clip(%s, %zero, %one) output %y"
        );
        becomes(
            RECOGNIZE_HARD_SIGMOID,
            &form,
            "input %x: f32[16] %y: f32[16] = HardSigmoid(%x) output %y",
            SPECIAL,
        );
    }

    #[test]
    fn the_body_of_onnx_is_found() {
        let form = format!(
            "{HEAD} %m: f32[16] = Mul(%x, %a) %s: f32[16] = Add(%m, %h) %n: f32[16] = Min(%s, %one) \
             %y: f32[16] = Relu(%n) output %y"
        );
        agrees(RECOGNIZE_HARD_SIGMOID, &form, SPECIAL);
    }

    #[test]
    fn what_scales_the_argument_before_stays_with_its_layer() {
        let form = format!(
            "{HEAD} %p: f32[16] = Add(%x, %h) %s: f32[16] = Add(%p, %three) %c: f32[16] = Clip(%s, %zero, %six) \
             %y: f32[16] = Div(%c, %six) output %y"
        );
        check(
            RECOGNIZE_HARD_SIGMOID,
            &form,
            expect![[r#"
            input %x: f32[16]
            const %h: f32[] = 0.5
            %p: f32[16] = Add(%x, %h)
            %y: f32[16] = HardSigmoid(%p) {alpha=0.16666667}
            output %y
        "#]],
        );
    }

    #[test]
    fn a_ramp_that_does_not_end_at_one_is_refused() {
        refuses(
            RECOGNIZE_HARD_SIGMOID,
            &format!(
                "{HEAD} %s: f32[16] = Add(%x, %three) %c: f32[16] = Clip(%s, %zero, %six) %y: f32[16] = Div(%c, %three) output %y"
            ),
            "the ramp goes up to 2.0000, not to 1",
        );
    }

    #[test]
    fn a_clip_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_HARD_SIGMOID,
            &format!(
                "{HEAD} %s: f32[16] = Add(%x, %three) %c: f32[16] = Clip(%s, %zero, %six) %y: f32[16] = Div(%c, %six) \
                 output %y, %c"
            ),
            "`c` is an output of the graph",
        );
    }

    #[test]
    fn a_plain_clip_stays() {
        leaves(RECOGNIZE_HARD_SIGMOID, &format!("{HEAD} %y: f32[16] = Clip(%x, %zero, %six) output %y"));
    }
}
