//! Recognizes Mish: `x · tanh(softplus(x))`.

use planish_ir::NodeId;
use planish_op::{Mish, Op};

use crate::formula::{Gated, gated};
use crate::pattern::{Found, Miss, first_found, made_by, one_input, rewrite_unary};
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// A value times the tanh of its own softplus.
pub(crate) struct RecognizeMish;

impl Rule for RecognizeMish {
    fn name(&self) -> &'static str {
        "recognize_mish"
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
    let gate = |value| {
        let (tanh, node) = made_by(cx, value, |op| matches!(op, Op::Tanh(_)))?;
        let (softplus, node) = made_by(cx, one_input(node)?, |op| matches!(op, Op::Softplus(_)))?;
        Some((one_input(node)?, [tanh, softplus]))
    };
    let check = |product| {
        let Gated { x, constant, gate: (arg, parts), nodes } = product;
        match (constant, arg == x) {
            (1.0, true) => rewrite_unary(cx, root, x, Mish {}, nodes.into_iter().chain(parts)),
            _ => Err(Miss::No),
        }
    };
    first_found(gated(cx, node, gate).into_iter().map(check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{SPECIAL, agrees};
    use crate::testing::check;
    use expect_test::expect;

    const FORM: &str =
        "input %x: f32[16] %s: f32[16] = Softplus(%x) %t: f32[16] = Tanh(%s) %y: f32[16] = Mul(%t, %x)";

    #[test]
    fn the_written_form_is_found() {
        check(
            RecognizeMish,
            &format!("{FORM} output %y"),
            expect![[r#"
            input %x: f32[16]
            %y: f32[16] = Mish(%x)
            output %y
        "#]],
        );
        agrees(RecognizeMish, &format!("{FORM} output %y"), SPECIAL);
    }

    #[test]
    fn the_softplus_of_another_value_stays() {
        let form = FORM.replace("Softplus(%x)", "Softplus(%z)");
        check(
            RecognizeMish,
            &format!("input %z: f32[16] {form} output %y"),
            expect![[r#"
            input %z: f32[16]
            input %x: f32[16]
            %s: f32[16] = Softplus(%z)
            %t: f32[16] = Tanh(%s)
            %y: f32[16] = Mul(%t, %x)
            output %y
        "#]],
        );
    }

    #[test]
    fn a_tanh_that_others_read_is_refused() {
        check(
            RecognizeMish,
            &format!("{FORM} output %y, %t"),
            expect![[r#"
            input %x: f32[16]
            %s: f32[16] = Softplus(%x)
            %t: f32[16] = Tanh(%s)
            %y: f32[16] = Mul(%t, %x)
            output %y, %t
            refused at : `t` is an output of the graph
        "#]],
        );
    }
}
