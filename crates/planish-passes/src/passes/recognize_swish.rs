//! Recognizes Swish (SiLU): `x · sigmoid(alpha·x)`.

use planish_ir::NodeId;
use planish_op::{Op, Swish};

use crate::formula::{Gated, find_gated, polynomial};
use crate::pattern::{Finder, Found, Miss, made_by, one_input};
use crate::rule::Patch;
use crate::view::View;

/// A value times its own sigmoid, whose argument may be scaled (by 1.702 in the quick form of GELU).
pub(crate) const RECOGNIZE_SWISH: Finder = Finder { name: "recognize_swish", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let sigmoid = |value| {
        let (id, node) = made_by(cx, value, |op| matches!(op, Op::Sigmoid(_)))?;
        Some((id, one_input(node)?))
    };
    let check = |product: Gated<_>| {
        let (sigmoid, arg) = product.gate;
        // Most sigmoids gate another value than their argument: those are no refusals.
        let inner = polynomial(cx, arg, product.x).ok_or(Miss::No)?;
        let [0.0, alpha, 0.0, 0.0] = inner.coefs else { return Err(Miss::No) };
        if alpha == 0.0 {
            return Err(Miss::No);
        }
        let parts = [sigmoid].into_iter().chain(inner.nodes);
        product.rewrite(cx, root, Swish { alpha: alpha as f32 }, parts)
    };
    find_gated(cx, root, sigmoid, check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, agrees, becomes, leaves, refuses};

    const SILU: &str =
        "input %x: f32[batch,3] %s: f32[batch,3] = Sigmoid(%x) %y: f32[batch,3] = Mul(%x, %s) \"act\"";

    #[test]
    fn a_value_times_its_sigmoid_is_swish() {
        becomes(
            RECOGNIZE_SWISH,
            &format!("{SILU} output %y"),
            "input %x: f32[batch,3] %y: f32[batch,3] = Swish(%x) \"act\" output %y",
            Feed { sizes: &[("batch", 5)], ..SPECIAL },
        );
        let swapped = SILU.replace("Mul(%x, %s)", "Mul(%s, %x)");
        agrees(RECOGNIZE_SWISH, &format!("{swapped} output %y"), Feed { sizes: &[("batch", 5)], ..SPECIAL });
    }

    #[test]
    fn a_scale_becomes_alpha() {
        let quick = "input %x: f32[8] const %a: f32[] = [1.702] %m: f32[8] = Mul(%x, %a) %s: f32[8] = Sigmoid(%m) \
            %y: f32[8] = Mul(%x, %s) output %y";
        becomes(
            RECOGNIZE_SWISH,
            quick,
            "input %x: f32[8] %y: f32[8] = Swish(%x) {alpha=1.702} output %y",
            SPECIAL,
        );
    }

    #[test]
    fn a_gate_on_another_value_stays() {
        leaves(
            RECOGNIZE_SWISH,
            "input %x: f32[8] input %g: f32[8] %s: f32[8] = Sigmoid(%g) %y: f32[8] = Mul(%x, %s) output %y",
        );
    }

    #[test]
    fn a_shifted_or_constant_argument_stays() {
        leaves(
            RECOGNIZE_SWISH,
            "input %x: f32[8] const %a: f32[] = [1] %m: f32[8] = Add(%x, %a) %s: f32[8] = Sigmoid(%m) \
             %y: f32[8] = Mul(%x, %s) output %y",
        );
    }

    #[test]
    fn a_sigmoid_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_SWISH,
            &format!("{SILU} %z: f32[batch,3] = Relu(%s) output %y, %z"),
            "`s` is read by another node too",
        );
    }

    #[test]
    fn an_unknown_shape_is_refused() {
        refuses(
            RECOGNIZE_SWISH,
            "input %x: f32[*] %s: f32[*] = Sigmoid(%x) %y: f32[*] = Mul(%x, %s) output %y",
            "the result is not known to have the shape of the argument",
        );
    }
}
