//! Recognizes Mish: `x · tanh(softplus(x))`.

use planish_ir::NodeId;
use planish_op::{Mish, Op};

use crate::formula::find_gated;
use crate::pattern::{Finder, Found, Miss, made_by, one_input};
use crate::rule::Patch;
use crate::view::View;

/// A value times the tanh of its own softplus.
pub(crate) const RECOGNIZE_MISH: Finder = Finder { name: "recognize_mish", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let gate = |value| {
        let (tanh, node) = made_by(cx, value, |op| matches!(op, Op::Tanh(_)))?;
        let (softplus, node) = made_by(cx, one_input(node)?, |op| matches!(op, Op::Softplus(_)))?;
        Some((one_input(node)?, [tanh, softplus]))
    };
    find_gated(cx, root, gate, |product| match product.gate {
        (arg, parts) if arg == product.x => product.rewrite(cx, root, Mish {}, parts),
        _ => Err(Miss::No),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{SPECIAL, becomes, leaves, refuses};

    const FORM: &str =
        "input %x: f32[16] %s: f32[16] = Softplus(%x) %t: f32[16] = Tanh(%s) %y: f32[16] = Mul(%t, %x)";

    #[test]
    fn the_written_form_is_found() {
        becomes(
            RECOGNIZE_MISH,
            &format!("{FORM} output %y"),
            "input %x: f32[16] %y: f32[16] = Mish(%x) output %y",
            SPECIAL,
        );
    }

    #[test]
    fn the_softplus_of_another_value_stays() {
        let form = FORM.replace("Softplus(%x)", "Softplus(%z)");
        leaves(RECOGNIZE_MISH, &format!("input %z: f32[16] {form} output %y"));
    }

    #[test]
    fn a_tanh_that_others_read_is_refused() {
        refuses(RECOGNIZE_MISH, &format!("{FORM} output %y, %t"), "`t` is an output of the graph");
    }
}
