//! Takes casts away that undo each other: to a wider float type that holds every value, and back or further on.

use planish_ir::NodeId;
use planish_op::{Cast, Op};
use planish_tensor::DType;

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// A Cast after a Cast that loses nothing.
pub(crate) struct CancelCasts;

impl Rule for CancelCasts {
    fn name(&self) -> &'static str {
        "cancel_casts"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::Cast(last), Some(middle), Some(&Some(output))) =
            (&node.op, cx.input(node, 0), node.outputs.first())
        else {
            return Match::No;
        };
        let Some((_, first)) = cx.producer(middle) else { return Match::No };
        let (Op::Cast(_), Some(source)) = (&first.op, cx.input(first, 0)) else { return Match::No };
        let (Some(from), Some(through)) = (cx.dtype(source), cx.dtype(middle)) else { return Match::No };
        if !holds(through, from) {
            return Match::blocked("the first cast rounds");
        }
        if from == last.to {
            return Match::Rewrite(Patch::replacing(output, source));
        }
        let mut patch = Patch::new();
        let direct = patch.node(&node.name, Cast { ..last.clone() }, &[source.into()]);
        patch.replace(output, direct);
        Match::Rewrite(patch)
    }
}

/// Whether every value of type `narrow` is one of type `wide`.
fn holds(wide: DType, narrow: DType) -> bool {
    match wide {
        DType::F32 => matches!(narrow, DType::F16 | DType::BF16),
        DType::F64 => matches!(narrow, DType::F16 | DType::BF16 | DType::F32),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, kept};
    use expect_test::expect;

    #[test]
    fn there_and_back_is_nothing() {
        check(
            CancelCasts,
            "input %x: f16[2] %a: f32[2] = Cast(%x) {to=f32} \"a\" %b: f16[2] = Cast(%a) {to=f16} \"b\" \
             %c: i32[2] = Cast(%a) {to=i32} \"c\" %y: f16[2] = Neg(%b) \"y\" output %y, %c",
            expect![[r#"
                input %x: f16[2]
                %c: i32[2] = Cast(%x) {to=i32} "c"
                %y: f16[2] = Neg(%x) "y"
                output %y, %c
            "#]],
        );
    }

    #[test]
    fn a_cast_that_rounds_stays() {
        let text = "input %x: f32[2] %a: f16[2] = Cast(%x) {to=f16} %b: f32[2] = Cast(%a) {to=f32}";
        kept(CancelCasts, text, "b", "the first cast rounds");
    }
}
