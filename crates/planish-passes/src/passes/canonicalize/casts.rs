//! Casts one after another: one, where the first loses nothing.

use planish_ir::{Node, ValueId};
use planish_op::{Cast, Op};
use planish_tensor::DType;

use crate::rule::{Match, Patch};
use crate::view::View;

/// Whether every number of `from` is one of `to`.
fn keeps_all(from: DType, to: DType) -> bool {
    /// Bits of the significand, of which integers up to that power of two are exact.
    fn exact_bits(dtype: DType) -> Option<u32> {
        match dtype {
            DType::F64 => Some(53),
            DType::F32 => Some(24),
            DType::F16 => Some(11),
            DType::BF16 => Some(8),
            _ => None,
        }
    }
    match (from, to) {
        _ if from == to => true,
        (DType::Bool, _) => to.is_whole_int() || exact_bits(to).is_some(),
        (DType::F16 | DType::BF16, DType::F32 | DType::F64) | (DType::F32, DType::F64) => true,
        _ => match (from.int_range(), to.int_range(), exact_bits(to)) {
            (Some(from), Some(to), _) => to.0 <= from.0 && from.1 <= to.1,
            (Some(from), None, Some(bits)) => {
                let limit = 1i128 << bits;
                -limit <= from.0 && from.1 <= limit
            }
            _ => false,
        },
    }
}

pub(super) fn merge(cx: &View<'_>, op: &Cast, node: &Node, output: ValueId) -> Match {
    let Some((_, before)) = cx.input(node, 0).and_then(|id| cx.producer(id)) else { return Match::No };
    let (Op::Cast(first), Some(source)) = (&before.op, cx.input(before, 0)) else { return Match::No };
    let Some(from) = cx.dtype(source) else { return Match::No };
    if !keeps_all(from, first.to) {
        return Match::blocked("the first of two casts loses digits");
    }
    // A truth value made a number is 0 or 1 in every type.
    let mut patch = Patch::new();
    let new = patch.node(&node.name, op.clone(), &[source.into()]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::{check, kept};
    use expect_test::expect;

    #[test]
    fn a_detour_through_a_wider_type_is_cut() {
        check(
            Canonicalize,
            "input %x: f16[n] %p: f32[n] = Cast(%x) {to=f32} \"p\" %y: i32[n] = Cast(%p) {to=i32} \"y\" output %y",
            expect![[r#"
                input %x: f16[n]
                %y: i32[n] = Cast(%x) {to=i32} "y"
                output %y
            "#]],
        );
        let narrow = "input %x: f32[n] %p: f16[n] = Cast(%x) {to=f16} %y: f32[n] = Cast(%p) {to=f32}";
        kept(Canonicalize, narrow, "y", "the first of two casts loses digits");
    }

    #[test]
    fn what_is_kept() {
        use DType::*;
        for (from, to) in [(Bool, F16), (I8, I32), (U8, I16), (I16, F32), (I32, F64), (F16, F64), (U8, F16)] {
            assert!(keeps_all(from, to), "{from} {to}");
        }
        for (from, to) in
            [(I64, F64), (I32, F32), (U32, I32), (F32, BF16), (F16, BF16), (I64, I32), (I16, F16)]
        {
            assert!(!keeps_all(from, to), "{from} {to}");
        }
    }
}
