//! Takes casts away that undo each other: to a wider float type that holds every value, and back or further on.

use planish_ir::NodeId;
use planish_op::{Cast, Op};
use planish_tensor::DType;

use crate::pattern::{Finder, Found, Miss, blocked};
use crate::rule::Patch;
use crate::view::View;

/// A Cast after a Cast that loses nothing.
pub(crate) const CANCEL_CASTS: Finder = Finder { name: "cancel_casts", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::Cast(last), Some(middle), Some(&Some(output))) =
        (&node.op, cx.input(node, 0), node.outputs.first())
    else {
        return Err(Miss::No);
    };
    let Some((_, first)) = cx.producer(middle) else { return Err(Miss::No) };
    let (Op::Cast(_), Some(source)) = (&first.op, cx.input(first, 0)) else { return Err(Miss::No) };
    let (Some(from), Some(through)) = (cx.dtype(source), cx.dtype(middle)) else { return Err(Miss::No) };
    if !holds(through, from) {
        return blocked("the first cast rounds");
    }
    if from == last.to {
        return Ok(Patch::replacing(output, source));
    }
    let mut patch = Patch::new();
    let direct = patch.node(&node.name, Cast { ..last.clone() }, &[source.into()]);
    patch.replace(output, direct);
    Ok(patch)
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
            CANCEL_CASTS,
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
        kept(CANCEL_CASTS, text, "b", "the first cast rounds");
    }
}
