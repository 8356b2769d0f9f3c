//! Recognizes means written as a sum over the number of elements.

use planish_ir::NodeId;
use planish_op::{Op, ReduceMean};

use crate::pattern::{
    Finder, Found, Miss, blocked, made_by, output, private, reduced_axes, relying_on, two_inputs, with_number,
};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// How far a factor may be from one over the number of elements, relatively: half a unit of `f32`.
const MAX_FACTOR_ERROR: f64 = 6e-8;

/// A ReduceSum divided by, or multiplied with one over, how much it adds up.
pub(crate) const RECOGNIZE_REDUCE_MEAN: Finder = Finder { name: "recognize_reduce_mean", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    let (sum, divisor) = match (&node.op, two_inputs(node).ok_or(Miss::No)?) {
        (Op::Div(_), [sum, number]) => (sum, cx.splat(number).ok_or(Miss::No)?),
        (Op::Mul(_), pair) => {
            let (sum, factor) = with_number(cx, pair).ok_or(Miss::No)?;
            (sum, 1.0 / factor)
        }
        _ => return Err(Miss::No),
    };
    let (id, reduction) = made_by(cx, sum, |op| matches!(op, Op::ReduceSum(_))).ok_or(Miss::No)?;
    let Op::ReduceSum(op) = &reduction.op else { return Err(Miss::No) };
    let x = cx.input(reduction, 0).ok_or(Miss::No)?;
    let axes = reduced_axes(cx, reduction, op.noop_with_empty_axes).ok_or(Miss::No)?;
    let shape = cx.shape(x).ok_or(Miss::No)?;
    let sizes: Option<Vec<usize>> = axes.iter().map(|&axis| shape.get(axis)?.as_usize()).collect();
    let Some(sizes) = sizes else { return blocked("the number of added elements is not known") };
    let n: usize = sizes.iter().product();
    // Of nothing the sum is 0 and the mean undefined; integers divide another way.
    if n == 0 || !cx.dtype(x).is_some_and(|dtype| dtype.is_wide_float()) {
        return Err(Miss::No);
    }
    if (divisor - n as f64).abs() > MAX_FACTOR_ERROR * n as f64 {
        return Err(Miss::No);
    }
    if !cx.same_type(sum, y) {
        return blocked("the divisor adds axes to the sum");
    }
    private(cx, &[id], root)?;
    let mut patch = Patch::new();
    let op = ReduceMean { noop_with_empty_axes: op.noop_with_empty_axes, keepdims: op.keepdims };
    let mut inputs = vec![x.into()];
    inputs.extend(cx.input(reduction, 1).map(Operand::from));
    let mean = patch.node(&reduction.name, op, &inputs);
    patch.replace(y, mean);
    Ok(relying_on(patch, &[id]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, SPECIAL, agrees, becomes, leaves, refuses};

    const SUM: &str = "input %x: f32[n,8] const %last: i64[1] = [1] const %n8: f32[] = [8] const %e: f32[] = [0.125] \
        const %wide: f32[1,1,1] = [8] %s: f32[n,1] = ReduceSum(%x, %last) \"mean\"";

    #[test]
    fn quotients_and_products_are_found() {
        let form = format!("{SUM} %y: f32[n,1] = Div(%s, %n8) output %y");
        becomes(
            RECOGNIZE_REDUCE_MEAN,
            &form,
            "input %x: f32[n,8] const %last: i64[1] = [1] %y: f32[n,1] = ReduceMean(%x, %last) \"mean\" \
             output %y",
            Feed { sizes: &[("n", 9)], ..SPECIAL },
        );
        let form = format!("{SUM} %y: f32[n,1] = Mul(%e, %s) output %y");
        agrees(RECOGNIZE_REDUCE_MEAN, &form, Feed { sizes: &[("n", 9)], ..SPECIAL });
    }

    #[test]
    fn another_divisor_stays() {
        leaves(RECOGNIZE_REDUCE_MEAN, &format!("{SUM} %y: f32[n,1] = Mul(%s, %n8) output %y"));
    }

    #[test]
    fn an_unknown_number_of_elements_is_refused() {
        let form = format!("{SUM} %y: f32[1,8] = Div(%s, %n8) output %y")
            .replace("i64[1] = [1]", "i64[1] = [0]")
            .replace("f32[n,1]", "f32[1,8]");
        refuses(RECOGNIZE_REDUCE_MEAN, &form, "the number of added elements is not known");
    }

    #[test]
    fn a_divisor_with_more_axes_is_refused() {
        refuses(
            RECOGNIZE_REDUCE_MEAN,
            &format!("{SUM} %y: f32[1,n,1] = Div(%s, %wide) output %y"),
            "the divisor adds axes to the sum",
        );
    }

    #[test]
    fn a_sum_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_REDUCE_MEAN,
            &format!("{SUM} %y: f32[n,1] = Div(%s, %n8) output %y, %s"),
            "`s` is an output of the graph",
        );
    }
}
