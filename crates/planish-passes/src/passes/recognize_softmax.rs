//! Recognizes softmax and its logarithm written out with the maximum taken off first, as their bodies in ONNX
//! have it.
//!
//! Without the maximum the formula overflows where Softmax does not (`e^89`), and an infinite element leaves
//! zeros beside it where Softmax has NaN: that form stays. So does the logarithm of a Softmax, which is minus
//! infinity where LogSoftmax is a number.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{LogSoftmax, Op, Softmax};

use crate::pattern::{
    Finder, Found, Miss, Reduction, blocked, kept_reduction, made_by, one_input, rewrite_unary, two_inputs,
};
use crate::rule::Patch;
use crate::view::View;

/// Exponentials over their sum, and differences to the logarithm of that sum.
pub(crate) const RECOGNIZE_SOFTMAX: Finder = Finder { name: "recognize_softmax", find };

/// What was read: the operand, the axes that both reductions go over, the nodes.
struct Parts {
    x: ValueId,
    axes: Vec<usize>,
    nodes: Vec<NodeId>,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    if let Op::Log(_) = node.op {
        let softmax = one_input(node).and_then(|x| made_by(cx, x, |op| matches!(op, Op::Softmax(_))));
        return match softmax {
            Some(_) => blocked("the logarithm of a softmax that underflows is minus infinity"),
            None => Err(Miss::No),
        };
    }
    let is_log = matches!(node.op, Op::Sub(_));
    let Parts { x, axes, nodes } = if is_log { log_parts(cx, node) } else { parts(cx, node) }?;
    let &[axis] = &axes[..] else {
        return blocked(format!("the sum goes over the axes {axes:?}, that of softmax over one"));
    };
    let axis = axis as i64 - cx.rank(x).ok_or(Miss::No)? as i64;
    match is_log {
        true => rewrite_unary(cx, root, x, LogSoftmax { axis }, nodes),
        false => rewrite_unary(cx, root, x, Softmax { axis }, nodes),
    }
}

/// `e / Σe` or `e · (1/Σe)`, with `e = exp(x - max x)`.
fn parts(cx: &View<'_>, node: &Node) -> Found<Parts> {
    let [a, b] = two_inputs(node).ok_or(Miss::No)?;
    let (power, sum, mut nodes) = match node.op {
        Op::Div(_) => (a, b, Vec::new()),
        Op::Mul(_) => [(a, b), (b, a)]
            .into_iter()
            .find_map(|(power, factor)| {
                let (id, node) = made_by(cx, factor, |op| matches!(op, Op::Reciprocal(_)))?;
                Some((power, one_input(node)?, vec![id]))
            })
            .ok_or(Miss::No)?,
        _ => return Err(Miss::No),
    };
    let sum = sum_of(cx, sum).filter(|sum| sum.of == power).ok_or(Miss::No)?;
    let (exp, exponent) = made_by(cx, power, |op| matches!(op, Op::Exp(_))).ok_or(Miss::No)?;
    let inside = one_input(exponent).ok_or(Miss::No)?;
    let Some((x, shifting)) = below_maximum(cx, inside, &sum.axes) else {
        return blocked("the maximum is not taken off first, so that other inputs overflow");
    };
    nodes.extend(sum.nodes);
    nodes.push(exp);
    nodes.extend(shifting);
    Ok(Parts { x, axes: sum.axes, nodes })
}

/// `d - log Σ exp(d)` with `d = x - max x`.
fn log_parts(cx: &View<'_>, node: &Node) -> Found<Parts> {
    let read = || {
        let [difference, log] = two_inputs(node)?;
        let (log, node) = made_by(cx, log, |op| matches!(op, Op::Log(_)))?;
        let sum = sum_of(cx, one_input(node)?)?;
        let (exp, node) = made_by(cx, sum.of, |op| matches!(op, Op::Exp(_)))?;
        let (x, shifting) = below_maximum(cx, difference, &sum.axes)?;
        if one_input(node)? != difference {
            return None;
        }
        let nodes = sum.nodes.into_iter().chain([log, exp]).chain(shifting).collect();
        Some(Parts { x, axes: sum.axes, nodes })
    };
    read().ok_or(Miss::No)
}

fn sum_of(cx: &View<'_>, value: ValueId) -> Option<Reduction> {
    kept_reduction(cx, value, |op| match op {
        Op::ReduceSum(op) => Some((op.keepdims, op.noop_with_empty_axes)),
        _ => None,
    })
}

/// `x` of `x - max x` over these axes, and the nodes.
fn below_maximum(cx: &View<'_>, value: ValueId, axes: &[usize]) -> Option<(ValueId, Vec<NodeId>)> {
    let (id, node) = made_by(cx, value, |op| matches!(op, Op::Sub(_)))?;
    let [x, maximum] = two_inputs(node)?;
    let maximum = kept_reduction(cx, maximum, |op| match op {
        Op::ReduceMax(op) => Some((op.keepdims, op.noop_with_empty_axes)),
        _ => None,
    })?;
    let mut nodes = maximum.nodes;
    nodes.push(id);
    (maximum.of == x && maximum.axes == axes).then_some((x, nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, agrees, becomes, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const HEAD: &str = "input %x: f32[n,6] const %last: i64[1] = [-1] %m: f32[n,1] = ReduceMax(%x, %last) \
        %d: f32[n,6] = Sub(%x, %m) %e: f32[n,6] = Exp(%d) %s: f32[n,1] = ReduceSum(%e, %last)";
    const SIZES: &[(&str, i64)] = &[("n", 7)];

    #[test]
    fn quotients_and_products_are_found() {
        for tail in [
            "%y: f32[n,6] = Div(%e, %s) output %y",
            "%r: f32[n,1] = Reciprocal(%s) %y: f32[n,6] = Mul(%r, %e) output %y",
        ] {
            let form = format!("{HEAD} {tail}");
            agrees(RECOGNIZE_SOFTMAX, &form, Feed { sizes: SIZES, ..SPECIAL });
        }
        check(
            RECOGNIZE_SOFTMAX,
            &format!("{HEAD} %y: f32[n,6] = Div(%e, %s) \"soft\" output %y"),
            expect![[r#"
                input %x: f32[n,6]
                %y: f32[n,6] = Softmax(%x) "soft"
                output %y
            "#]],
        );
    }

    #[test]
    fn reductions_whose_axis_is_put_back_are_found() {
        let form = format!(
            "{} %s: f32[n] = ReduceSum(%e, %last) {{keepdims=false}} %s1: f32[n,1] = Unsqueeze(%s, %last) \
             %y: f32[n,6] = Div(%e, %s1) output %y",
            &HEAD[..HEAD.find("%s:").unwrap()]
        );
        agrees(RECOGNIZE_SOFTMAX, &form, Feed { sizes: SIZES, ..SPECIAL });
    }

    #[test]
    fn the_logarithm_is_found() {
        let form = format!("{HEAD} %l: f32[n,1] = Log(%s) %y: f32[n,6] = Sub(%d, %l) output %y");
        becomes(
            RECOGNIZE_SOFTMAX,
            &form,
            "input %x: f32[n,6] %y: f32[n,6] = LogSoftmax(%x) output %y",
            Feed { sizes: SIZES, ..SPECIAL },
        );
    }

    #[test]
    fn exponentials_that_may_overflow_are_refused() {
        refuses(
            RECOGNIZE_SOFTMAX,
            "input %x: f32[n,6] const %last: i64[1] = [-1] %e: f32[n,6] = Exp(%x) \
             %s: f32[n,1] = ReduceSum(%e, %last) %y: f32[n,6] = Div(%e, %s) output %y",
            "the maximum is not taken off first, so that other inputs overflow",
        );
    }

    #[test]
    fn the_logarithm_of_a_softmax_is_refused() {
        refuses(
            RECOGNIZE_SOFTMAX,
            "input %x: f32[n,6] %s: f32[n,6] = Softmax(%x) %y: f32[n,6] = Log(%s) output %y",
            "the logarithm of a softmax that underflows is minus infinity",
        );
    }

    #[test]
    fn two_axes_are_refused() {
        let form = format!("{HEAD} %y: f32[n,6] = Div(%e, %s) output %y")
            .replace("i64[1] = [-1]", "i64[2] = [0,1]")
            .replace("f32[n,1]", "f32[1,1]");
        refuses(RECOGNIZE_SOFTMAX, &form, "the sum goes over the axes [0, 1], that of softmax over one");
    }

    #[test]
    fn a_sum_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_SOFTMAX,
            &format!("{HEAD} %y: f32[n,6] = Div(%e, %s) output %y, %s"),
            "`s` is an output of the graph",
        );
    }
}
