//! Recognizes RMSNormalization written out: a value over its root mean square along the last axes.

use planish_ir::NodeId;
use planish_op::RMSNormalization;

use crate::normal::{Rows, affinity, is_parameter, normal, off_center, parameter, rows};
use crate::pattern::{Finder, Found, Miss, output, private};
use crate::rule::Patch;
use crate::view::View;

/// Quotients of a value and its root mean square, with the scale after them.
pub(crate) const RECOGNIZE_RMS_NORM: Finder = Finder { name: "recognize_rms_norm", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let normal = normal(cx, root).ok_or(Miss::No)?;
    // With its mean taken off it is a layer norm, which says itself what is wrong.
    if off_center(cx, &normal).is_some() || normal.axes.is_empty() {
        return Err(Miss::No);
    }
    let x = normal.value;
    let Rows { y, axis, sizes } = rows(cx, root, x, &normal)?;
    let inner = normal.nodes;
    private(cx, &inner, root)?;
    let mut after = affinity(cx, y, normal.early_scale, |id| is_parameter(cx, id, x, &normal.axes));
    if after.shift.take().is_some() {
        // There is no shift in this operator: the sum, always the last node, stays.
        after.nodes.pop();
        after.result = after.nodes.last().map_or(Ok(y), |&node| output(cx.node(node)))?;
    }
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let op = RMSNormalization { stash_type: 1, epsilon: normal.epsilon as f32, axis };
    after.replaced_by(patch, &cx.node(root).name, op, &[x.into(), scale], inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, leaves, refuses};
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
            RECOGNIZE_RMS_NORM,
            &form,
            expect![[r#"
            input %x: f32[b,s,4]
            const %w: f32[4] = [1, 2, 3, 4]
            %y: f32[b,s,4] = RMSNormalization(%x, %w) {epsilon=1e-6}
            output %y
        "#]],
        );
        let special = [f64::NAN, f64::INFINITY, 0.0];
        agrees(RECOGNIZE_RMS_NORM, &form, Feed { sizes: SIZES, special: &special });
    }

    #[test]
    fn quotients_are_found_and_sums_stay_behind() {
        let form = format!(
            "{FORM} %n: f32[b,s,4] = Div(%x, %r) %m: f32[b,s,4] = Mul(%n, %w) %y: f32[b,s,4] = Add(%m, %w) output %y"
        );
        becomes(
            RECOGNIZE_RMS_NORM,
            &form,
            "input %x: f32[b,s,4] const %w: f32[4] = [1, 2, 3, 4] \
             %m: f32[b,s,4] = RMSNormalization(%x, %w) {epsilon=1e-6} %y: f32[b,s,4] = Add(%m, %w) \
             output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn the_mean_square_of_another_value_stays() {
        leaves(
            RECOGNIZE_RMS_NORM,
            &format!("{FORM} input %z: f32[b,s,4] %y: f32[b,s,4] = Div(%z, %r) output %y"),
        );
    }

    #[test]
    fn a_root_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_RMS_NORM,
            &format!("{FORM} %y: f32[b,s,4] = Div(%x, %r) output %y, %r"),
            "`r` is an output of the graph",
        );
    }

    #[test]
    fn first_axes_are_refused() {
        let form = format!("{FORM} %y: f32[b,s,4] = Div(%x, %r) output %y")
            .replace("[-1]", "[0]")
            .replace("f32[b,s,1]", "f32[1,s,4]");
        refuses(RECOGNIZE_RMS_NORM, &form, "the axes [0] are not the last ones");
    }
}
