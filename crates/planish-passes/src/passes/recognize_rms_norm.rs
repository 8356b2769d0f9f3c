//! Recognizes RMSNormalization written out: a value over its root mean square along the last axes.

use planish_ir::NodeId;
use planish_op::RMSNormalization;

use super::recognize_layer_norm::first_of_last;
use crate::normal::{affinity, fixed_sizes, is_parameter, normal, off_center, parameter};
use crate::pattern::{Found, Miss, blocked, output, private, relying_on};
use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Quotients of a value and its root mean square, with the scale after them.
pub(crate) struct RecognizeRmsNorm;

impl Rule for RecognizeRmsNorm {
    fn name(&self) -> &'static str {
        "recognize_rms_norm"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        find(cx, id).into()
    }
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let normal = normal(cx, root).ok_or(Miss::No)?;
    // With its mean taken off it is a layer norm, which says itself what is wrong.
    if off_center(cx, &normal).is_some() || normal.axes.is_empty() {
        return Err(Miss::No);
    }
    let x = normal.value;
    let Some(first) = first_of_last(cx, x, &normal.axes) else {
        return blocked(format!("the axes {:?} are not the last ones", normal.axes));
    };
    if normal.early_scale.is_some_and(|scale| !is_parameter(cx, scale, x, &normal.axes)) {
        return blocked("the scale is not one number per normalized element");
    }
    let y = output(cx.node(root))?;
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    let sizes = fixed_sizes(cx, x, &normal.axes)?;
    let mut inner = normal.nodes;
    private(cx, &inner, root)?;
    let mut after = affinity(cx, y, normal.early_scale, |id| is_parameter(cx, id, x, &normal.axes));
    if after.shift.take().is_some() {
        // There is no shift in this operator: the sum, always the last node, stays.
        after.nodes.pop();
        after.result = after.nodes.last().map_or(Ok(y), |&node| output(cx.node(node)))?;
    }
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let rank = cx.rank(x).unwrap_or(first);
    let op =
        RMSNormalization { stash_type: 1, epsilon: normal.epsilon as f32, axis: first as i64 - rank as i64 };
    let result = patch.node(&cx.node(root).name, op, &[x.into(), scale]);
    patch.replace(after.result, result);
    inner.extend(after.nodes);
    Ok(relying_on(patch, &inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, leaves, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const SIZES: &[(&str, i64)] = &[("b", 2), ("s", 3)];

    /// As Llama models write it.
    const FORM: &str = "input %x: f32[b,s,4] const %last: i64[1] = [-1] const %two: f32[] = [2] \
        const %one: f32[] = [1] const %eps: f32[] = [0.000001] const %w: f32[4] = [1,2,3,4] \
        %sq: f32[b,s,4] = Pow(%x, %two) %ms: f32[b,s,1] = ReduceMean(%sq, %last) \
        %e: f32[b,s,1] = Add(%ms, %eps) %r: f32[b,s,1] = Sqrt(%e)";

    #[test]
    fn products_with_a_reciprocal_are_found() {
        let form = format!(
            "{FORM} %q: f32[b,s,1] = Div(%one, %r) %n: f32[b,s,4] = Mul(%x, %q) %y: f32[b,s,4] = Mul(%w, %n) \"rms\" output %y"
        );
        check(
            RecognizeRmsNorm,
            &form,
            expect![[r#"
            input %x: f32[b,s,4]
            const %w: f32[4] = [1, 2, 3, 4]
            %y: f32[b,s,4] = RMSNormalization(%x, %w) {epsilon=1e-6}
            output %y
        "#]],
        );
        let special = [f64::NAN, f64::INFINITY, 0.0];
        agrees(RecognizeRmsNorm, &form, Feed { sizes: SIZES, special: &special });
    }

    #[test]
    fn quotients_are_found_and_sums_stay_behind() {
        let form = format!(
            "{FORM} %n: f32[b,s,4] = Div(%x, %r) %m: f32[b,s,4] = Mul(%n, %w) %y: f32[b,s,4] = Add(%m, %w) output %y"
        );
        check(
            RecognizeRmsNorm,
            &form,
            expect![[r#"
            input %x: f32[b,s,4]
            const %w: f32[4] = [1, 2, 3, 4]
            %m: f32[b,s,4] = RMSNormalization(%x, %w) {epsilon=1e-6}
            %y: f32[b,s,4] = Add(%m, %w)
            output %y
        "#]],
        );
        agrees(RecognizeRmsNorm, &form, Feed { sizes: SIZES, ..PLAIN });
    }

    #[test]
    fn the_mean_square_of_another_value_stays() {
        leaves(
            RecognizeRmsNorm,
            &format!("{FORM} input %z: f32[b,s,4] %y: f32[b,s,4] = Div(%z, %r) output %y"),
        );
    }

    #[test]
    fn a_root_that_others_read_is_refused() {
        refuses(
            RecognizeRmsNorm,
            &format!("{FORM} %y: f32[b,s,4] = Div(%x, %r) output %y, %r"),
            "`r` is an output of the graph",
        );
    }

    #[test]
    fn first_axes_are_refused() {
        let form = format!("{FORM} %y: f32[b,s,4] = Div(%x, %r) output %y")
            .replace("[-1]", "[0]")
            .replace("f32[b,s,1]", "f32[1,s,4]");
        refuses(RecognizeRmsNorm, &form, "the axes [0] are not the last ones");
    }
}
