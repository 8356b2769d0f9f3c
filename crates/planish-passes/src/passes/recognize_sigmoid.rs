//! Recognizes the logistic function written out: `1 / (1 + e^-x)`.
//!
//! Where `e^-x` overflows, both forms give 0.

use planish_ir::{NodeId, ValueId};
use planish_op::{Op, Sigmoid};

use crate::pattern::{Finder, Found, Miss, made_by, one_input, rewrite_unary, two_inputs, with_number};
use crate::rule::Patch;
use crate::view::View;

/// The reciprocal of one plus an exponential of a negated value.
pub(crate) const RECOGNIZE_SIGMOID: Finder = Finder { name: "recognize_sigmoid", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let (x, parts) = read(cx, root).ok_or(Miss::No)?;
    rewrite_unary(cx, root, x, Sigmoid {}, parts)
}

fn read(cx: &View<'_>, root: NodeId) -> Option<(ValueId, [NodeId; 3])> {
    let node = cx.node(root);
    let sum = match (&node.op, two_inputs(node)) {
        (Op::Reciprocal(_), None) => one_input(node)?,
        (Op::Div(_), Some([one, sum])) if cx.splat(one) == Some(1.0) => sum,
        _ => return None,
    };
    let (add, sum) = made_by(cx, sum, |op| matches!(op, Op::Add(_)))?;
    let (power, 1.0) = with_number(cx, two_inputs(sum)?)? else { return None };
    let (exp, power) = made_by(cx, power, |op| matches!(op, Op::Exp(_)))?;
    let (neg, negated) = cx.producer(one_input(power)?)?;
    let x = match (&negated.op, two_inputs(negated)) {
        (Op::Neg(_), None) => one_input(negated)?,
        (Op::Mul(_), Some(pair)) => with_number(cx, pair).filter(|(_, number)| *number == -1.0)?.0,
        _ => return None,
    };
    Some((x, [add, exp, neg]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{SPECIAL, becomes, leaves, refuses};

    const TAIL: &str =
        "input %x: f32[16] const %one: f32[] = [1] %n: f32[16] = Neg(%x) %e: f32[16] = Exp(%n)";

    #[test]
    fn both_ways_to_divide_are_found() {
        for form in [
            "%s: f32[16] = Add(%e, %one) %y: f32[16] = Reciprocal(%s) output %y",
            "%s: f32[16] = Add(%one, %e) %y: f32[16] = Div(%one, %s) output %y",
        ] {
            becomes(
                RECOGNIZE_SIGMOID,
                &format!("{TAIL} {form}"),
                "input %x: f32[16] %y: f32[16] = Sigmoid(%x) output %y",
                SPECIAL,
            );
        }
    }

    #[test]
    fn another_numerator_stays() {
        leaves(
            RECOGNIZE_SIGMOID,
            &format!(
                "{TAIL} const %two: f32[] = [2] %s: f32[16] = Add(%one, %e) %y: f32[16] = Div(%two, %s) output %y"
            ),
        );
    }

    #[test]
    fn an_exponential_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_SIGMOID,
            &format!("{TAIL} %s: f32[16] = Add(%e, %one) %y: f32[16] = Reciprocal(%s) output %y, %e"),
            "`e` is an output of the graph",
        );
    }
}
