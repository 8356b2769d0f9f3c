//! Says powers with a constant exponent as what they are: a square, a reciprocal.
//!
//! After the recognition of patterns, which know squares as Pow. `Pow(x, 0.5)` stays: it takes -0 to +0 and
//! -Inf to +Inf, a square root does not.

use planish_ir::NodeId;
use planish_op::{Mul, Op, Reciprocal};

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Pow with the exponent 2 or -1.
pub(crate) struct SimplifyPowers;

impl Rule for SimplifyPowers {
    fn name(&self) -> &'static str {
        "simplify_powers"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::Pow(_), &[Some(base), Some(exponent)], &[Some(output)]) =
            (&node.op, &node.inputs[..], &node.outputs[..])
        else {
            return Match::No;
        };
        let Some(number) = cx.splat(exponent) else { return Match::No };
        if !cx.dtype(base).is_some_and(|dtype| dtype.is_float()) {
            return Match::No;
        }
        if number == 0.5 {
            return Match::blocked("a square root differs at -0 and -Inf");
        }
        if !cx.same_type(base, output) {
            return Match::blocked("the exponent makes the result larger");
        }
        let mut patch = Patch::new();
        let new = match number {
            2.0 => patch.node(&node.name, Mul {}, &[base.into(), base.into()]),
            -1.0 => patch.node(&node.name, Reciprocal {}, &[base.into()]),
            _ => return Match::No,
        };
        patch.replace(output, new);
        Match::Rewrite(patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn squares_and_reciprocals() {
        check_same(
            SimplifyPowers,
            "input %x: f32[n] const %two: f32[] = 2 const %m: f32[1] = [-1] %a: f32[n] = Pow(%x, %two) \"a\" \
             %y: f32[n] = Pow(%a, %m) \"y\" output %y",
            expect![[r#"
            input %x: f32[n]
            %a: f32[n] = Mul(%x, %x) "a"
            %y: f32[n] = Reciprocal(%a) "y"
            output %y
        "#]],
        );
    }

    #[test]
    fn refusals() {
        let root = "input %x: f32[n] const %h: f32[] = 0.5 %y: f32[n] = Pow(%x, %h)";
        kept(SimplifyPowers, root, "y", "a square root differs at -0 and -Inf");
        let wide = "input %x: f32[n] const %h: f32[2,1] = [2, 2] %y: f32[2,n] = Pow(%x, %h)";
        kept(SimplifyPowers, wide, "y", "the exponent makes the result larger");
        kept(SimplifyPowers, "input %x: f32[n] const %h: f32[] = 3 %y: f32[n] = Pow(%x, %h)", "y", "");
        kept(SimplifyPowers, "input %x: i64[n] const %h: i64[] = 2 %y: i64[n] = Pow(%x, %h)", "y", "");
    }
}
