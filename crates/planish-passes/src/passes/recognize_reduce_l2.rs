//! Recognizes Euclidean norms written out: `√Σx²`, the body that ONNX gives ReduceL2.
//!
//! A quotient by such a norm is not made an LpNormalization: that is 0 for a zero vector, where a quotient is
//! NaN, and a bound below the norm (`max(norm, 1e-12)`), which PyTorch writes, has no place in it.

use planish_ir::NodeId;
use planish_op::{Op, ReduceL2};

use crate::pattern::{Finder, Found, Miss, made_by, one_input, output, private, relying_on, two_inputs};
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Roots of sums of squares.
pub(crate) const RECOGNIZE_REDUCE_L2: Finder = Finder { name: "recognize_reduce_l2", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let y = output(node)?;
    let sum = match (&node.op, two_inputs(node)) {
        (Op::Sqrt(_), None) => one_input(node),
        (Op::Pow(_), Some([sum, power])) if cx.splat(power) == Some(0.5) => Some(sum),
        _ => None,
    }
    .ok_or(Miss::No)?;
    let (id, reduction) = cx.producer(sum).ok_or(Miss::No)?;
    let operand = cx.input(reduction, 0).ok_or(Miss::No)?;
    let mut inner = vec![id];
    let (x, op) = match &reduction.op {
        Op::ReduceSumSquare(op) => {
            (operand, ReduceL2 { noop_with_empty_axes: op.noop_with_empty_axes, keepdims: op.keepdims })
        }
        Op::ReduceSum(op) => {
            let (id, square) =
                made_by(cx, operand, |op| matches!(op, Op::Mul(_) | Op::Pow(_))).ok_or(Miss::No)?;
            let [a, b] = two_inputs(square).ok_or(Miss::No)?;
            let is_square = match square.op {
                Op::Mul(_) => a == b,
                _ => cx.splat(b) == Some(2.0) && cx.same_type(a, operand),
            };
            if !is_square || op.noop_with_empty_axes {
                return Err(Miss::No);
            }
            inner.push(id);
            (a, ReduceL2 { noop_with_empty_axes: false, keepdims: op.keepdims })
        }
        _ => return Err(Miss::No),
    };
    // Without axes the squares stay as they are, and so does the norm's absolute value.
    if op.noop_with_empty_axes || !cx.dtype(x).is_some_and(|dtype| dtype.is_wide_float()) {
        return Err(Miss::No);
    }
    private(cx, &inner, root)?;
    let mut patch = Patch::new();
    let mut inputs = vec![x.into()];
    inputs.extend(cx.input(reduction, 1).map(Operand::from));
    let norm = patch.node(&reduction.name, op, &inputs);
    patch.replace(y, norm);
    Ok(relying_on(patch, &inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, agrees, leaves, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const HEAD: &str = "input %x: f32[n,8] input %z: f32[n,8] const %last: i64[1] = [-1] const %two: f32[] = [2] \
        const %half: f32[] = [0.5]";
    const FEED: Feed<'static> = Feed { sizes: &[("n", 4)], special: &[f64::NAN, f64::INFINITY, 0.0] };

    #[test]
    fn every_way_to_square_is_found() {
        let product = format!(
            "{HEAD} %q: f32[n,8] = Mul(%x, %x) %s: f32[n,1] = ReduceSum(%q, %last) %y: f32[n,1] = Sqrt(%s) output %y"
        );
        check(
            RECOGNIZE_REDUCE_L2,
            &product,
            expect![[r#"
            input %x: f32[n,8]
            input %z: f32[n,8]
            const %last: i64[1] = [-1]
            %y: f32[n,1] = ReduceL2(%x, %last)
            output %y
        "#]],
        );
        let power = format!(
            "{HEAD} %q: f32[n,8] = Pow(%x, %two) %s: f32[n] = ReduceSum(%q, %last) {{keepdims=false}} \
             %y: f32[n] = Pow(%s, %half) output %y"
        );
        let whole =
            format!("{HEAD} %s: f32[n,1] = ReduceSumSquare(%x, %last) %y: f32[n,1] = Sqrt(%s) output %y");
        for form in [product, power, whole] {
            agrees(RECOGNIZE_REDUCE_L2, &form, FEED);
            agrees(RECOGNIZE_REDUCE_L2, &form, Feed { special: &[], ..FEED });
        }
    }

    #[test]
    fn other_products_stay() {
        leaves(
            RECOGNIZE_REDUCE_L2,
            &format!(
                "{HEAD} %q: f32[n,8] = Mul(%x, %z) %s: f32[n,1] = ReduceSum(%q, %last) %y: f32[n,1] = Sqrt(%s) output %y"
            ),
        );
    }

    #[test]
    fn squares_that_others_read_are_refused() {
        refuses(
            RECOGNIZE_REDUCE_L2,
            &format!(
                "{HEAD} %q: f32[n,8] = Mul(%x, %x) %s: f32[n,1] = ReduceSum(%q, %last) %y: f32[n,1] = Sqrt(%s) output %y, %q"
            ),
            "`q` is an output of the graph",
        );
    }
}
