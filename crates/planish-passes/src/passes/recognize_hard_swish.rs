//! Recognizes HardSwish: `x · clip(x + 3, 0, 6) / 6`, also as `x · hard_sigmoid(x, 1/6, 1/2)`.

use planish_ir::{NodeId, ValueId};
use planish_op::{HardSwish, Op};

use crate::formula::{Gated, gated, polynomial, ramp};
use crate::pattern::{
    Found, Miss, blocked, first_found, is_number, made_by, one_input, output, rewrite_unary,
};
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// A value times a ramp of itself.
pub(crate) struct RecognizeHardSwish;

impl Rule for RecognizeHardSwish {
    fn name(&self) -> &'static str {
        "recognize_hard_swish"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        find(cx, id).into()
    }
}

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
    let node = cx.node(root);
    if !matches!(node.op, Op::Mul(_) | Op::Div(_)) {
        return Err(Miss::No);
    }
    let products = gated(cx, node, |value| read_gate(cx, value));
    first_found(products.into_iter().map(|product| check(cx, root, product)))
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
        // If more factors follow, the node after is asked too.
        let y = output(cx.node(root))?;
        let goes_on = cx.sole_reader(y).is_some_and(|(_, node)| matches!(node.op, Op::Mul(_) | Op::Div(_)));
        return match goes_on {
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
    use crate::agreement::{Feed, SPECIAL, agrees};
    use crate::testing::check;
    use expect_test::expect;

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
            check(
                RecognizeHardSwish,
                &form,
                expect![[r#"
                input %x: f32[n,4]
                %y: f32[n,4] = HardSwish(%x)
                output %y
            "#]],
            );
            agrees(RecognizeHardSwish, &form, Feed { sizes: &[("n", 6)], ..SPECIAL });
        }
    }

    #[test]
    fn another_ramp_is_refused() {
        check(
            RecognizeHardSwish,
            &format!("{HEAD} %h: f32[n,4] = HardSigmoid(%x) %y: f32[n,4] = Mul(%x, %h) output %y"),
            expect![[r#"
                input %x: f32[n,4]
                const %three: f32[1] = [3]
                const %zero: f32[] = 0
                const %six: f32[] = 6
                %h: f32[n,4] = HardSigmoid(%x)
                %y: f32[n,4] = Mul(%x, %h)
                output %y
                refused at : the ramp is 0.2000·x + 0.5000 up to 1.0000, that of HardSwish is x/6 + 0.5 up to 1
            "#]],
        );
    }

    #[test]
    fn a_ramp_of_another_value_stays() {
        check(
            RecognizeHardSwish,
            &format!(
                "{HEAD} input %g: f32[n,4] %h: f32[n,4] = HardSigmoid(%g) {{alpha=0.16666667}} \
                 %y: f32[n,4] = Mul(%x, %h) output %y"
            ),
            expect![[r#"
                input %x: f32[n,4]
                input %g: f32[n,4]
                const %three: f32[1] = [3]
                const %zero: f32[] = 0
                const %six: f32[] = 6
                %h: f32[n,4] = HardSigmoid(%g) {alpha=0.16666667}
                %y: f32[n,4] = Mul(%x, %h)
                output %y
            "#]],
        );
    }

    #[test]
    fn a_ramp_that_others_read_is_refused() {
        check(
            RecognizeHardSwish,
            &format!(
                "{HEAD} %h: f32[n,4] = HardSigmoid(%x) {{alpha=0.16666667}} %y: f32[n,4] = Mul(%x, %h) output %y, %h"
            ),
            expect![[r#"
                input %x: f32[n,4]
                const %three: f32[1] = [3]
                const %zero: f32[] = 0
                const %six: f32[] = 6
                %h: f32[n,4] = HardSigmoid(%x) {alpha=0.16666667}
                %y: f32[n,4] = Mul(%x, %h)
                output %y, %h
                refused at : `h` is an output of the graph
            "#]],
        );
    }
}
