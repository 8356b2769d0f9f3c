//! Computes in f32 what a model has in f16 or bf16, for backends without arithmetic of 16 bits.
//!
//! A node that is raised reads its operands through casts and is read through one, so that nothing around it
//! changes; `drop_roundings` then takes those away that only rounded a value on its way from one raised node to the
//! next, so values between them are more exact than the model's types ask for. Names and types of the graph's
//! inputs and outputs stay as they are.

use planish_ir::NodeId;
use planish_op::{Cast, Op};
use planish_tensor::{DType, Tensor};

use crate::pattern::cast;
use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// Raises a node that reads or makes values of 16 bits.
pub(crate) struct RaisePrecision;

/// Takes a value as it was before it was rounded to 16 bits, where it is computed with in f32.
pub(crate) struct DropRoundings;

impl Rule for RaisePrecision {
    fn name(&self) -> &'static str {
        "raise_precision"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let half = |dtype: Option<DType>| matches!(dtype, Some(DType::F16 | DType::BF16));
        let ends = || node.inputs.iter().chain(&node.outputs).flatten();
        if !ends().any(|&value| half(cx.dtype(value))) || matches!(node.op, Op::Cast(_)) {
            return Match::No;
        }
        if !node.bodies.is_empty() || names_its_type(&node.op) || ends().any(|&id| cx.dtype(id).is_none()) {
            return Match::blocked(format!("{} says itself what type it makes", node.op.name()));
        }
        let mut patch = Patch::new();
        let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
        for (place, input) in node.inputs.iter().enumerate() {
            let Some(value) = input.filter(|id| half(cx.dtype(*id))) else { continue };
            let widened = cx
                .constant(value)
                .and_then(|tensor| Tensor::from_f64s(DType::F32, tensor.shape(), &tensor.to_f64s()).ok());
            inputs[place] = Some(match widened {
                Some(tensor) => patch.constant(cx.name(value), tensor),
                None => patch.node(&format!("{} to f32", cx.name(value)), cast(DType::F32), &[value.into()]),
            });
        }
        let made = patch.node_with(&node.name, node.op.clone(), inputs, node.outputs.len());
        for (old, new) in node.outputs.iter().zip(made) {
            let Some(old) = *old else { continue };
            match cx.dtype(old) {
                Some(to @ (DType::F16 | DType::BF16)) => {
                    patch.has_shape_of(cx, new, DType::F32, old);
                    let back = patch.node(&format!("{} to {}", cx.name(old), to.name()), cast(to), &[new]);
                    patch.replace(old, back);
                }
                _ => patch.replace(old, new),
            }
        }
        Match::Rewrite(patch)
    }
}

impl Rule for DropRoundings {
    fn name(&self) -> &'static str {
        "drop_roundings"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::Cast(Cast { to: DType::F32, .. }), Some(rounded), Some(&Some(output))) =
            (&node.op, cx.input(node, 0), node.outputs.first())
        else {
            return Match::No;
        };
        let Some((_, first)) = cx.producer(rounded) else { return Match::No };
        let (Op::Cast(Cast { to: DType::F16 | DType::BF16, .. }), Some(source)) =
            (&first.op, cx.input(first, 0))
        else {
            return Match::No;
        };
        if cx.dtype(source) != Some(DType::F32) {
            return Match::blocked("it was rounded from another type");
        }
        Match::Rewrite(Patch::replacing(output, source))
    }
}

/// Whether an attribute says which type the operator makes, or the type of a scale does.
fn names_its_type(op: &Op) -> bool {
    matches!(
        op,
        Op::Bernoulli(_)
            | Op::BitCast(_)
            | Op::BlackmanWindow(_)
            | Op::ConstantOfShape(_)
            | Op::Custom(_)
            | Op::DequantizeLinear(_)
            | Op::EyeLike(_)
            | Op::HammingWindow(_)
            | Op::HannWindow(_)
            | Op::MelWeightMatrix(_)
            | Op::QuantizeLinear(_)
            | Op::RandomNormalLike(_)
            | Op::RandomUniformLike(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check, check_pass, kept};
    use expect_test::expect;

    #[test]
    fn nodes_compute_in_f32_between_casts() {
        check_pass(
            Pass::rule(RaisePrecision),
            "input %x: f16[2,3] const %w: f16[3,2] = [1,2,3,4,5,6] %p: f16[2,2] = MatMul(%x, %w) \"p\" \
             %g: bool[2,2] = Greater(%p, %p) \"g\" output %p, %g",
            expect![[r#"
                input %x: f16[2,3]
                const %w: f32[3,2] = [1, 2, 3, 4, 5, 6]
                %"x to f32": f32[2,3] = Cast(%x) {to=f32} "x to f32"
                %p.1: f32[2,2] = MatMul(%"x to f32", %w) "p"
                %p: f16[2,2] = Cast(%p.1) {to=f16} "p to f16"
                %"p to f32": f32[2,2] = Cast(%p) {to=f32} "p to f32"
                %"p to f32.1": f32[2,2] = Cast(%p) {to=f32} "p to f32"
                %g: bool[2,2] = Greater(%"p to f32", %"p to f32.1") "g"
                output %p, %g
            "#]],
        );
    }

    #[test]
    fn values_between_raised_nodes_are_not_rounded() {
        check(
            DropRoundings,
            "input %x: f32[2] %a: f16[2] = Cast(%x) {to=f16} \"a\" %b: f32[2] = Cast(%a) {to=f32} \"b\" \
             %y: f32[2] = Neg(%b) \"y\" output %y",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Neg(%x) "y"
                output %y
            "#]],
        );
    }

    #[test]
    fn what_names_its_type_stays() {
        check(
            RaisePrecision,
            "input %x: f16[2,2] %e: f16[2,2] = EyeLike(%x) \"e\" output %e",
            expect![[r#"
                input %x: f16[2,2]
                %e: f16[2,2] = EyeLike(%x) "e"
                output %e
                refused at e: EyeLike says itself what type it makes
            "#]],
        );
    }

    #[test]
    fn a_rounding_of_another_type_stays() {
        let text = "input %x: f64[2] %a: f16[2] = Cast(%x) {to=f16} %b: f32[2] = Cast(%a) {to=f32}";
        kept(DropRoundings, text, "b", "it was rounded from another type");
    }
}
