//! Recognizes Swish (SiLU): `x · sigmoid(alpha·x)`.

use planish_ir::NodeId;
use planish_op::{Op, Swish};

use crate::formula::{Gated, gated, polynomial};
use crate::pattern::{Found, Miss, first_found, made_by, one_input, rewrite_unary};
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// A value times its own sigmoid, whose argument may be scaled (by 1.702 in the quick form of GELU).
pub(crate) struct RecognizeSwish;

impl Rule for RecognizeSwish {
    fn name(&self) -> &'static str {
        "recognize_swish"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        find(cx, id).into()
    }
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    if !matches!(node.op, Op::Mul(_)) {
        return Err(Miss::No);
    }
    let sigmoid = |value| {
        let (id, node) = made_by(cx, value, |op| matches!(op, Op::Sigmoid(_)))?;
        Some((id, one_input(node)?))
    };
    let check = |product| {
        let Gated { x, constant, gate: (sigmoid, arg), nodes } = product;
        // Most sigmoids gate another value than their argument: those are no refusals.
        let inner = polynomial(cx, arg, x).ok_or(Miss::No)?;
        match (constant, inner.coefs) {
            (1.0, [0.0, alpha, 0.0, 0.0]) if alpha != 0.0 => {
                let parts = nodes.into_iter().chain([sigmoid]).chain(inner.nodes);
                rewrite_unary(cx, root, x, Swish { alpha: alpha as f32 }, parts)
            }
            _ => Err(Miss::No),
        }
    };
    first_found(gated(cx, node, sigmoid).into_iter().map(check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, agrees};
    use crate::testing::check;
    use expect_test::expect;

    const SILU: &str =
        "input %x: f32[batch,3] %s: f32[batch,3] = Sigmoid(%x) %y: f32[batch,3] = Mul(%x, %s) \"act\"";

    #[test]
    fn a_value_times_its_sigmoid_is_swish() {
        check(
            RecognizeSwish,
            &format!("{SILU} output %y"),
            expect![[r#"
            input %x: f32[batch,3]
            %y: f32[batch,3] = Swish(%x) "act"
            output %y
        "#]],
        );
        agrees(RecognizeSwish, &format!("{SILU} output %y"), Feed { sizes: &[("batch", 5)], ..SPECIAL });
        let swapped = SILU.replace("Mul(%x, %s)", "Mul(%s, %x)");
        agrees(RecognizeSwish, &format!("{swapped} output %y"), Feed { sizes: &[("batch", 5)], ..SPECIAL });
    }

    #[test]
    fn a_scale_becomes_alpha() {
        let quick = "input %x: f32[8] const %a: f32[] = [1.702] %m: f32[8] = Mul(%x, %a) %s: f32[8] = Sigmoid(%m) \
            %y: f32[8] = Mul(%x, %s) output %y";
        check(
            RecognizeSwish,
            quick,
            expect![[r#"
            input %x: f32[8]
            %y: f32[8] = Swish(%x) {alpha=1.702}
            output %y
        "#]],
        );
        agrees(RecognizeSwish, quick, SPECIAL);
    }

    #[test]
    fn a_gate_on_another_value_stays() {
        check(
            RecognizeSwish,
            "input %x: f32[8] input %g: f32[8] %s: f32[8] = Sigmoid(%g) %y: f32[8] = Mul(%x, %s) output %y",
            expect![[r#"
                input %x: f32[8]
                input %g: f32[8]
                %s: f32[8] = Sigmoid(%g)
                %y: f32[8] = Mul(%x, %s)
                output %y
            "#]],
        );
    }

    #[test]
    fn a_shifted_or_constant_argument_stays() {
        check(
            RecognizeSwish,
            "input %x: f32[8] const %a: f32[] = [1] %m: f32[8] = Add(%x, %a) %s: f32[8] = Sigmoid(%m) \
             %y: f32[8] = Mul(%x, %s) output %y",
            expect![[r#"
                input %x: f32[8]
                const %a: f32[] = 1
                %m: f32[8] = Add(%x, %a)
                %s: f32[8] = Sigmoid(%m)
                %y: f32[8] = Mul(%x, %s)
                output %y
            "#]],
        );
    }

    #[test]
    fn a_sigmoid_that_others_read_is_refused() {
        check(
            RecognizeSwish,
            &format!("{SILU} %z: f32[batch,3] = Relu(%s) output %y, %z"),
            expect![[r#"
            input %x: f32[batch,3]
            %s: f32[batch,3] = Sigmoid(%x)
            %y: f32[batch,3] = Mul(%x, %s) "act"
            %z: f32[batch,3] = Relu(%s)
            output %y, %z
            refused at act: `s` is read by another node too
        "#]],
        );
    }

    #[test]
    fn an_unknown_shape_is_refused() {
        check(
            RecognizeSwish,
            "input %x: f32[*] %s: f32[*] = Sigmoid(%x) %y: f32[*] = Mul(%x, %s) output %y",
            expect![[r#"
                input %x: f32[*]
                %s: f32[*] = Sigmoid(%x)
                %y: f32[*] = Mul(%x, %s)
                output %y
                refused at : the result is not known to have the shape of the argument
            "#]],
        );
    }
}
