//! Recognizes PRelu written out: `relu(x) - slope · relu(-x)`, as Keras and mobile exporters do.

use planish_ir::{NodeId, ValueId};
use planish_op::{LeakyRelu, Neg, Op, PRelu};

use crate::pattern::{
    Finder, Found, Miss, blocked, broadcasts_into, made_by, one_input, output, private, relying_on,
    rewrite_unary, two_inputs,
};
use crate::rule::Patch;
use crate::view::View;

/// The positive part of a value minus its scaled negative part.
pub(crate) const RECOGNIZE_PRELU: Finder = Finder { name: "recognize_prelu", find };

/// `sign · factor · relu(-x)`, or `relu(-x)` with a sign alone.
struct Negative {
    x: ValueId,
    factor: Option<ValueId>,
    sign: f64,
    parts: Vec<NodeId>,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let pairs = match (&node.op, two_inputs(node).ok_or(Miss::No)?) {
        (Op::Add(_), [a, b]) => vec![(a, b, 1.0), (b, a, 1.0)],
        (Op::Sub(_), [a, b]) => vec![(a, b, -1.0)],
        _ => return Err(Miss::No),
    };
    let (x, negative) = pairs
        .into_iter()
        .find_map(|(positive, negative, sign)| {
            let (relu, positive) = made_by(cx, positive, |op| matches!(op, Op::Relu(_)))?;
            let x = one_input(positive)?;
            let mut negative = read_negative(cx, negative)?;
            negative.sign *= sign;
            negative.parts.push(relu);
            (negative.x == x).then_some((x, negative))
        })
        .ok_or(Miss::No)?;
    let Negative { factor: Some(factor), sign, parts, .. } = negative else { return Err(Miss::No) };
    if let Some(number) = cx.splat(factor) {
        return rewrite_unary(cx, root, x, LeakyRelu { alpha: (-sign * number) as f32 }, parts);
    }
    let y = output(node)?;
    let (Some(slope_shape), Some(shape)) = (cx.shape(factor), cx.shape(x)) else { return Err(Miss::No) };
    if !broadcasts_into(slope_shape, shape) || !cx.same_type(x, y) {
        return blocked("the slopes do not fit the shape of the argument");
    }
    private(cx, &parts, root)?;
    let mut patch = Patch::new();
    let slope = match sign {
        -1.0 => factor.into(),
        _ => patch.node(&node.name, Neg {}, &[factor.into()]),
    };
    let result = patch.node(&node.name, PRelu {}, &[x.into(), slope]);
    patch.replace(y, result);
    Ok(relying_on(patch, &parts))
}

fn read_negative(cx: &View<'_>, value: ValueId) -> Option<Negative> {
    let (id, node) = cx.producer(value)?;
    match (&node.op, two_inputs(node)) {
        (Op::Relu(_), None) => {
            let (neg, inner) = made_by(cx, one_input(node)?, |op| matches!(op, Op::Neg(_)))?;
            Some(Negative { x: one_input(inner)?, factor: None, sign: 1.0, parts: vec![id, neg] })
        }
        (Op::Neg(_), None) => {
            let mut inner = read_negative(cx, one_input(node)?)?;
            inner.sign = -inner.sign;
            inner.parts.push(id);
            Some(inner)
        }
        (Op::Mul(_), Some([a, b])) => [(a, b), (b, a)].into_iter().find_map(|(factor, negative)| {
            let mut inner = read_negative(cx, negative).filter(|inner| inner.factor.is_none())?;
            inner.factor = Some(factor);
            inner.parts.push(id);
            Some(inner)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, becomes, leaves, refuses};

    const HEAD: &str = "input %x: f32[n,2,3] const %a: f32[2,1] = [0.25,-0.5] const %s: f32[] = [0.1] \
        %p: f32[n,2,3] = Relu(%x) %m: f32[n,2,3] = Neg(%x) %r: f32[n,2,3] = Relu(%m)";

    #[test]
    fn differences_and_sums_of_negated_parts_are_found() {
        for form in [
            "%t: f32[n,2,3] = Mul(%a, %r) %y: f32[n,2,3] = Sub(%p, %t)",
            "%q: f32[n,2,3] = Neg(%r) %t: f32[n,2,3] = Mul(%q, %a) %y: f32[n,2,3] = Add(%t, %p)",
        ] {
            becomes(
                RECOGNIZE_PRELU,
                &format!("{HEAD} {form} output %y"),
                "input %x: f32[n,2,3] const %a: f32[2,1] = [0.25, -0.5] %y: f32[n,2,3] = PRelu(%x, %a) output %y",
                Feed { sizes: &[("n", 4)], ..SPECIAL },
            );
        }
    }

    #[test]
    fn a_sum_with_negative_slopes_is_found() {
        let form = format!("{HEAD} %t: f32[n,2,3] = Mul(%a, %r) %y: f32[n,2,3] = Add(%p, %t) output %y");
        becomes(
            RECOGNIZE_PRELU,
            &form,
            "input %x: f32[n,2,3] const %a: f32[2,1] = [0.25, -0.5] %Neg: f32[2,1] = Neg(%a) \
             %y: f32[n,2,3] = PRelu(%x, %Neg) output %y",
            Feed { sizes: &[("n", 4)], ..SPECIAL },
        );
    }

    #[test]
    fn one_slope_is_leaky_relu() {
        let form = format!("{HEAD} %t: f32[n,2,3] = Mul(%s, %r) %y: f32[n,2,3] = Sub(%p, %t) output %y");
        becomes(
            RECOGNIZE_PRELU,
            &form,
            "input %x: f32[n,2,3] %y: f32[n,2,3] = LeakyRelu(%x) {alpha=0.1} output %y",
            Feed { sizes: &[("n", 4)], ..SPECIAL },
        );
    }

    #[test]
    fn slopes_with_more_axes_are_refused() {
        refuses(
            RECOGNIZE_PRELU,
            "input %x: f32[3] input %a: f32[2,3] %p: f32[3] = Relu(%x) %m: f32[3] = Neg(%x) %r: f32[3] = Relu(%m) \
             %t: f32[2,3] = Mul(%a, %r) %y: f32[2,3] = Sub(%p, %t) output %y",
            "the slopes do not fit the shape of the argument",
        );
    }

    #[test]
    fn a_part_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_PRELU,
            &format!("{HEAD} %t: f32[n,2,3] = Mul(%a, %r) %y: f32[n,2,3] = Sub(%p, %t) output %y, %p"),
            "`p` is an output of the graph",
        );
    }

    #[test]
    fn the_negative_part_of_another_value_stays() {
        let form = HEAD.replace("Neg(%x)", "Neg(%z)");
        leaves(
            RECOGNIZE_PRELU,
            &format!(
                "input %z: f32[n,2,3] {form} %t: f32[n,2,3] = Mul(%a, %r) %y: f32[n,2,3] = Sub(%p, %t) output %y"
            ),
        );
    }
}
