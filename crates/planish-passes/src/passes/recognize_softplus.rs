//! Recognizes softplus written out: `ln(e^x + 1)`.
//!
//! That is the body which ONNX gives Softplus, so the operator means the same; it does not overflow on the
//! way, where the nodes one by one give infinity for x above 88.7.

use planish_ir::{NodeId, ValueId};
use planish_op::{Op, Softplus};

use crate::pattern::{Finder, Found, Miss, made_by, one_input, rewrite_unary, two_inputs, with_number};
use crate::rule::Patch;
use crate::view::View;

/// The logarithm of one plus an exponential.
pub(crate) const RECOGNIZE_SOFTPLUS: Finder = Finder { name: "recognize_softplus", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let (x, parts) = read(cx, root).ok_or(Miss::No)?;
    rewrite_unary(cx, root, x, Softplus {}, parts)
}

fn read(cx: &View<'_>, root: NodeId) -> Option<(ValueId, [NodeId; 2])> {
    let node = cx.node(root);
    let Op::Log(_) = node.op else { return None };
    let (add, sum) = made_by(cx, one_input(node)?, |op| matches!(op, Op::Add(_)))?;
    let (power, 1.0) = with_number(cx, two_inputs(sum)?)? else { return None };
    let (exp, power) = made_by(cx, power, |op| matches!(op, Op::Exp(_)))?;
    Some((one_input(power)?, [add, exp]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{PLAIN, becomes, leaves, refuses};

    const FORM: &str = "input %x: f32[16] const %one: f32[] = [1] %e: f32[16] = Exp(%x) \
        %s: f32[16] = Add(%one, %e) %y: f32[16] = Log(%s)";

    #[test]
    fn the_written_form_is_found() {
        becomes(
            RECOGNIZE_SOFTPLUS,
            &format!("{FORM} output %y"),
            "input %x: f32[16] %y: f32[16] = Softplus(%x) output %y",
            PLAIN,
        );
    }

    #[test]
    fn another_summand_stays() {
        leaves(RECOGNIZE_SOFTPLUS, &format!("{FORM} output %y").replace("[1]", "[2]"));
    }

    #[test]
    fn a_sum_that_others_read_is_refused() {
        refuses(RECOGNIZE_SOFTPLUS, &format!("{FORM} output %y, %s"), "`s` is an output of the graph");
    }
}
