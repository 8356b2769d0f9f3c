//! Recognizes LayerNormalization written out: a value less its mean, over its deviation, along the last axes.

use planish_ir::NodeId;
use planish_op::LayerNormalization;

use crate::normal::{Rows, affinity, is_parameter, normal, off_center, parameter, rows};
use crate::pattern::{Finder, Found, Miss, private};
use crate::rule::Patch;
use crate::view::View;

/// Quotients of a centered value and its deviation, with the scale and shift after them.
pub(crate) const RECOGNIZE_LAYER_NORM: Finder = Finder { name: "recognize_layer_norm", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let normal = normal(cx, root).ok_or(Miss::No)?;
    let (x, centering) = off_center(cx, &normal).ok_or(Miss::No)?;
    let Rows { y, axis, sizes } = rows(cx, root, x, &normal)?;
    let mut inner = normal.nodes;
    inner.extend(centering);
    inner.retain(|&node| node != root);
    private(cx, &inner, root)?;
    let after = affinity(cx, y, normal.early_scale, |id| is_parameter(cx, id, x, &normal.axes));
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let mut inputs = vec![x.into(), scale];
    if after.shift.is_some() {
        inputs.push(parameter(cx, &mut patch, x, after.shift, &sizes, 0.0)?);
    }
    let op = LayerNormalization { stash_type: 1, epsilon: normal.epsilon as f32, axis };
    after.replaced_by(patch, &cx.node(root).name, op, &inputs, inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, SPECIAL, agrees, becomes, leaves, refuses};

    const SIZES: &[(&str, i64)] = &[("b", 2), ("s", 3)];

    /// As PyTorch wrote it before opset 17, up to the normalized value.
    const PLAIN_FORM: &str = "input %x: f32[b,s,4] const %last: i64[1] = [-1] const %two: f32[] = [2] \
        const %eps: f32[] = [0.00001] const %w: f32[4] = [1,2,3,4] const %c: f32[1,1,4] = [0.5,0,-1,1] \
        %mean: f32[b,s,1] = ReduceMean(%x, %last) %d: f32[b,s,4] = Sub(%x, %mean) %sq: f32[b,s,4] = Pow(%d, %two) \
        %var: f32[b,s,1] = ReduceMean(%sq, %last) %ve: f32[b,s,1] = Add(%var, %eps) %dev: f32[b,s,1] = Sqrt(%ve)";

    const QUOTIENT: &str = "%n: f32[b,s,4] = Div(%d, %dev)";
    const AFFINE: &str = "%m: f32[b,s,4] = Mul(%n, %w) \"norm\" %y: f32[b,s,4] = Add(%m, %c) output %y";

    /// What all of it together is.
    const NORMALIZED: &str = "input %x: f32[b,s,4] const %w: f32[4] = [1, 2, 3, 4] \
        const %c: f32[4] = [0.5, 0, -1, 1] %y: f32[b,s,4] = LayerNormalization(%x, %w, %c) output %y";

    #[test]
    fn the_form_of_old_opsets_is_found() {
        let form = format!("{PLAIN_FORM} {QUOTIENT} {AFFINE}");
        becomes(RECOGNIZE_LAYER_NORM, &form, NORMALIZED, Feed { sizes: SIZES, ..PLAIN });
        let special = [f64::NAN, f64::INFINITY, 0.0];
        agrees(RECOGNIZE_LAYER_NORM, &form, Feed { sizes: SIZES, special: &special });
    }

    #[test]
    fn reciprocals_and_powers_are_found() {
        for quotient in [
            "%r: f32[b,s,1] = Reciprocal(%dev) %n: f32[b,s,4] = Mul(%d, %r)",
            "const %one: f32[] = [1] %r: f32[b,s,1] = Div(%one, %dev) %n: f32[b,s,4] = Mul(%r, %d)",
            "const %neg: f32[] = [-0.5] %r: f32[b,s,1] = Pow(%ve, %neg) %n: f32[b,s,4] = Mul(%d, %r)",
        ] {
            let form = format!("{PLAIN_FORM} {quotient} {AFFINE}");
            let form = match form.contains("Pow(%ve") {
                true => form.replace("%dev: f32[b,s,1] = Sqrt(%ve)", ""),
                false => form,
            };
            agrees(RECOGNIZE_LAYER_NORM, &form, Feed { sizes: SIZES, ..PLAIN });
        }
    }

    #[test]
    fn a_scale_on_the_reciprocal_is_found() {
        let form = format!(
            "{PLAIN_FORM} %r: f32[b,s,1] = Reciprocal(%dev) %rw: f32[b,s,4] = Mul(%r, %w) \
             %n: f32[b,s,4] = Mul(%d, %rw) %y: f32[b,s,4] = Add(%n, %c) output %y"
        );
        becomes(RECOGNIZE_LAYER_NORM, &form, NORMALIZED, Feed { sizes: SIZES, ..PLAIN });
    }

    #[test]
    fn a_difference_that_stands_twice_and_the_body_of_onnx_are_found() {
        for form in [
            "%d: f32[2,6] = Sub(%x, %mean) %d2: f32[2,6] = Sub(%x, %mean) %sq: f32[2,6] = Mul(%d2, %d2) \
             %var: f32[2,1] = ReduceMean(%sq, %last) %ve: f32[2,1] = Add(%eps, %var) %dev: f32[2,1] = Sqrt(%ve)",
            "%sq: f32[2,6] = Mul(%x, %x) %ms: f32[2,1] = ReduceMean(%sq, %last) %sm: f32[2,1] = Mul(%mean, %mean) \
             %var: f32[2,1] = Sub(%ms, %sm) %ve: f32[2,1] = Add(%var, %eps) %dev: f32[2,1] = Sqrt(%ve) \
             %d: f32[2,6] = Sub(%x, %mean)",
        ] {
            let form = format!(
                "input %x: f32[2,6] const %last: i64[1] = [1] const %eps: f32[] = [0.001] \
                 %mean: f32[2,1] = ReduceMean(%x, %last) {form} %y: f32[2,6] = Div(%d, %dev) output %y"
            );
            becomes(
                RECOGNIZE_LAYER_NORM,
                &form,
                "input %x: f32[2,6] const %filled: f32[6] = [1, 1, 1, 1, 1, 1] \
                 %y: f32[2,6] = LayerNormalization(%x, %filled) {epsilon=0.001} output %y",
                PLAIN,
            );
        }
    }

    #[test]
    fn a_scale_per_row_stays_behind() {
        let form =
            format!("input %k: f32[s,1] {PLAIN_FORM} {QUOTIENT} %y: f32[b,s,4] = Mul(%n, %k) output %y");
        becomes(
            RECOGNIZE_LAYER_NORM,
            &form,
            "input %k: f32[s,1] input %x: f32[b,s,4] const %filled: f32[4] = [1, 1, 1, 1] \
             %n: f32[b,s,4] = LayerNormalization(%x, %filled) %y: f32[b,s,4] = Mul(%n, %k) output %y",
            Feed { sizes: SIZES, ..SPECIAL },
        );
    }

    #[test]
    fn axes_in_the_middle_are_refused() {
        let form = "input %x: f32[2,6,3] const %axis: i64[1] = [1] const %eps: f32[] = [0.001] \
            %mean: f32[2,1,3] = ReduceMean(%x, %axis) %d: f32[2,6,3] = Sub(%x, %mean) %sq: f32[2,6,3] = Mul(%d, %d) \
            %var: f32[2,1,3] = ReduceMean(%sq, %axis) %ve: f32[2,1,3] = Add(%var, %eps) %dev: f32[2,1,3] = Sqrt(%ve) \
            %y: f32[2,6,3] = Div(%d, %dev) output %y";
        refuses(RECOGNIZE_LAYER_NORM, form, "the axes [1] are not the last ones");
    }

    #[test]
    fn means_of_other_axes_stay() {
        let form = format!("{PLAIN_FORM} {QUOTIENT} {AFFINE}").replace(
            "%mean: f32[b,s,1] = ReduceMean(%x, %last)",
            "const %mid: i64[1] = [1] %mean: f32[b,1,4] = ReduceMean(%x, %mid)",
        );
        leaves(RECOGNIZE_LAYER_NORM, &form);
    }

    #[test]
    fn an_unknown_size_is_refused() {
        let form = "input %x: f32[2,n] const %last: i64[1] = [1] const %eps: f32[] = [0.001] \
            %mean: f32[2,1] = ReduceMean(%x, %last) %d: f32[2,n] = Sub(%x, %mean) %sq: f32[2,n] = Mul(%d, %d) \
            %var: f32[2,1] = ReduceMean(%sq, %last) %ve: f32[2,1] = Add(%eps, %var) %dev: f32[2,1] = Sqrt(%ve) \
            %y: f32[2,n] = Div(%d, %dev) output %y";
        refuses(RECOGNIZE_LAYER_NORM, form, "the size of a normalized axis is not known");
    }

    #[test]
    fn a_variance_that_others_read_is_refused() {
        let form = format!("{PLAIN_FORM} {QUOTIENT} {AFFINE}, %var");
        refuses(RECOGNIZE_LAYER_NORM, &form, "`var` is an output of the graph");
    }
}
