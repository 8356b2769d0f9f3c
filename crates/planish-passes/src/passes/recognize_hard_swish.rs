//! Recognizes HardSwish: `x · clip(x + 3, 0, 6) / 6`, also as `x · hard_sigmoid(x, 1/6, 1/2)`.

use planish_ir::{NodeId, ValueId};
use planish_op::{HardSwish, Op};

use crate::formula::{Gated, find_gated, polynomial, ramp};
use crate::pattern::{
    Finder, Found, Miss, blocked, has_more_factors, is_number, made_by, one_input, rewrite_unary,
};
use crate::rule::Patch;
use crate::view::View;

/// A value times a ramp of itself.
pub(crate) const RECOGNIZE_HARD_SWISH: Finder = Finder { name: "recognize_hard_swish", find };

/// `clip(slope·arg + offset, 0, high)`
#[derive(Clone, Debug)]
struct Gate {
    arg: ValueId,
    slope: f64,
    offset: f64,
    high: f64,
    nodes: Vec<NodeId>,
}

fn read_gate(cx: &View<'_>, value: ValueId) -> Option<Gate> {
    if let Some((id, node)) = made_by(cx, value, |op| matches!(op, Op::HardSigmoid(_))) {
        let Op::HardSigmoid(op) = &node.op else { return None };
        let (slope, offset) = (f64::from(op.alpha), f64::from(op.beta));
        return Some(Gate { arg: one_input(node)?, slope, offset, high: 1.0, nodes: vec![id] });
    }
    let ramp = ramp(cx, value).filter(|ramp| ramp.low == 0.0)?;
    Some(Gate { arg: ramp.arg, slope: 1.0, offset: 0.0, high: ramp.high, nodes: ramp.nodes })
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    find_gated(cx, root, |value| read_gate(cx, value), |product| check(cx, root, product))
}

fn check(cx: &View<'_>, root: NodeId, product: Gated<Gate>) -> Found<Patch> {
    let Gated { x, constant, gate, nodes } = product;
    // Squeeze-and-excite multiplies another value: no refusal.
    let inner = polynomial(cx, gate.arg, x).ok_or(Miss::No)?;
    let [offset, slope, 0.0, 0.0] = inner.coefs else { return Err(Miss::No) };
    let slope = constant * gate.slope * slope;
    let offset = constant * (gate.slope * offset + gate.offset);
    let high = constant * gate.high;
    let dtype = cx.dtype(x).ok_or(Miss::No)?;
    let is_hard_swish =
        is_number(slope, 1.0 / 6.0, dtype) && is_number(offset, 0.5, dtype) && is_number(high, 1.0, dtype);
    if !is_hard_swish {
        return match has_more_factors(cx, root)? {
            true => Err(Miss::No),
            false => blocked(format!(
                "the ramp is {slope:.4}·x + {offset:.4} up to {high:.4}, that of HardSwish is x/6 + 0.5 up to 1"
            )),
        };
    }
    let parts = nodes.into_iter().chain(gate.nodes).chain(inner.nodes);
    rewrite_unary(cx, root, x, HardSwish {}, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, becomes, leaves, refuses};

    const HEAD: &str =
        "input %x: f32[n,4] const %three: f32[1] = [3] const %zero: f32[] = [0] const %six: f32[] = [6]";

    #[test]
    fn every_form_is_found() {
        for form in [
            // PaddlePaddle and PyTorch before opset 14.
            "%a: f32[n,4] = Add(%x, %three) %c: f32[n,4] = Clip(%a, %zero, %six) %m: f32[n,4] = Mul(%x, %c) \
             %y: f32[n,4] = Div(%m, %six)",
            "%a: f32[n,4] = Add(%three, %x) %c: f32[n,4] = Clip(%a, %zero, %six) %m: f32[n,4] = Div(%c, %six) \
             %y: f32[n,4] = Mul(%m, %x)",
            // TensorFlow's relu6.
            "%a: f32[n,4] = Add(%x, %three) %r: f32[n,4] = Relu(%a) %c: f32[n,4] = Min(%r, %six) \
             %m: f32[n,4] = Mul(%x, %c) %y: f32[n,4] = Div(%m, %six)",
            "%h: f32[n,4] = HardSigmoid(%x) {alpha=0.16666667} %y: f32[n,4] = Mul(%x, %h)",
            // PaddlePaddle rounds 1/6 to 7 digits.
            "%h: f32[n,4] = HardSigmoid(%x) {alpha=0.1666667} %y: f32[n,4] = Mul(%h, %x)",
        ] {
            let form = format!("{HEAD} {form} output %y");
            becomes(
                RECOGNIZE_HARD_SWISH,
                &form,
                "input %x: f32[n,4] %y: f32[n,4] = HardSwish(%x) output %y",
                Feed { sizes: &[("n", 6)], ..SPECIAL },
            );
        }
    }

    #[test]
    fn another_ramp_is_refused() {
        refuses(
            RECOGNIZE_HARD_SWISH,
            &format!("{HEAD} %h: f32[n,4] = HardSigmoid(%x) %y: f32[n,4] = Mul(%x, %h) output %y"),
            "the ramp is 0.2000·x + 0.5000 up to 1.0000, that of HardSwish is x/6 + 0.5 up to 1",
        );
    }

    #[test]
    fn a_ramp_of_another_value_stays() {
        leaves(
            RECOGNIZE_HARD_SWISH,
            &format!(
                "{HEAD} input %g: f32[n,4] %h: f32[n,4] = HardSigmoid(%g) {{alpha=0.16666667}} \
                 %y: f32[n,4] = Mul(%x, %h) output %y"
            ),
        );
    }

    #[test]
    fn a_ramp_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_HARD_SWISH,
            &format!(
                "{HEAD} %h: f32[n,4] = HardSigmoid(%x) {{alpha=0.16666667}} %y: f32[n,4] = Mul(%x, %h) output %y, %h"
            ),
            "`h` is an output of the graph",
        );
    }
}
