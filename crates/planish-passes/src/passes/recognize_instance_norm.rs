//! Recognizes InstanceNormalization written out: each channel of `[N, C, …]` less its mean, over its
//! deviation.

use planish_ir::NodeId;
use planish_op::InstanceNormalization;

use crate::normal::{affinity, fixed_sizes, is_parameter, normal, off_center, parameter};
use crate::pattern::{Finder, Found, Miss, blocked, output, private};
use crate::rule::Patch;
use crate::view::View;

/// The axis of the channels.
const CHANNELS: [usize; 1] = [1];

/// Quotients of a value centered over all axes after the channels and its deviation.
pub(crate) const RECOGNIZE_INSTANCE_NORM: Finder = Finder { name: "recognize_instance_norm", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let normal = normal(cx, root).ok_or(Miss::No)?;
    let (x, centering) = off_center(cx, &normal).ok_or(Miss::No)?;
    let rank = cx.rank(x).ok_or(Miss::No)?;
    if rank < 3 || !normal.axes.iter().copied().eq(2..rank) {
        return Err(Miss::No);
    }
    let y = output(cx.node(root))?;
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    let is_per_channel = |id| is_parameter(cx, id, x, &CHANNELS);
    if normal.early_scale.is_some_and(|scale| !is_per_channel(scale)) {
        return Err(Miss::No);
    }
    let after = affinity(cx, y, normal.early_scale, is_per_channel);
    // With parameters per element, or of rank 3 without any, it is a layer norm.
    let is_layer = rank == 3 && after.scale.is_none() && after.shift.is_none();
    let follows = affinity(cx, y, None, |id| is_parameter(cx, id, x, &normal.axes));
    if is_layer || (after.result == y && follows.result != y) {
        return Err(Miss::No);
    }
    let sizes = fixed_sizes(cx, x, &CHANNELS)?;
    let mut inner = normal.nodes;
    inner.extend(centering);
    private(cx, &inner, root)?;
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let shift = parameter(cx, &mut patch, x, after.shift, &sizes, 0.0)?;
    let op = InstanceNormalization { epsilon: normal.epsilon as f32 };
    after.replaced_by(patch, &cx.node(root).name, op, &[x.into(), scale, shift], inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, leaves, refuses};

    const SIZES: &[(&str, i64)] = &[("n", 2), ("h", 3), ("w", 4)];

    const FORM: &str = "input %x: f32[n,2,h,w] const %axes: i64[2] = [2,3] const %eps: f32[] = [0.00001] \
        const %g: f32[1,2,1,1] = [2,-1] const %c: f32[2,1,1] = [0.5,1] \
        %mean: f32[n,2,1,1] = ReduceMean(%x, %axes) %d: f32[n,2,h,w] = Sub(%x, %mean) \
        %sq: f32[n,2,h,w] = Mul(%d, %d) %var: f32[n,2,1,1] = ReduceMean(%sq, %axes) \
        %ve: f32[n,2,1,1] = Add(%var, %eps) %dev: f32[n,2,1,1] = Sqrt(%ve) %q: f32[n,2,h,w] = Div(%d, %dev)";

    #[test]
    fn scale_and_shift_per_channel_go_along() {
        let form = format!("{FORM} %m: f32[n,2,h,w] = Mul(%q, %g) %y: f32[n,2,h,w] = Add(%m, %c) output %y");
        becomes(
            RECOGNIZE_INSTANCE_NORM,
            &form,
            "input %x: f32[n,2,h,w] const %g: f32[2] = [2, -1] const %c: f32[2] = [0.5, 1] \
             %y: f32[n,2,h,w] = InstanceNormalization(%x, %g, %c) output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn without_parameters_they_are_ones_and_zeros() {
        let form = format!("{FORM} %y: f32[n,2,h,w] = Relu(%q) output %y");
        becomes(
            RECOGNIZE_INSTANCE_NORM,
            &form,
            "input %x: f32[n,2,h,w] const %filled: f32[2] = [1, 1] const %filled.1: f32[2] = [0, 0] \
             %q: f32[n,2,h,w] = InstanceNormalization(%x, %filled, %filled.1) %y: f32[n,2,h,w] = Relu(%q) \
             output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn parameters_per_element_are_a_layer_norm() {
        let form = format!("{FORM} %y: f32[n,2,3,4] = Mul(%q, %e) output %y")
            .replace("f32[n,2,h,w]", "f32[n,2,3,4]")
            .replace("const %eps", "input %e: f32[3,4] const %eps");
        leaves(RECOGNIZE_INSTANCE_NORM, &form);
    }

    #[test]
    fn rows_of_a_sequence_are_a_layer_norm() {
        leaves(
            RECOGNIZE_INSTANCE_NORM,
            "input %x: f32[b,s,4] const %last: i64[1] = [-1] const %eps: f32[] = [0.00001] \
             %mean: f32[b,s,1] = ReduceMean(%x, %last) %d: f32[b,s,4] = Sub(%x, %mean) %sq: f32[b,s,4] = Mul(%d, %d) \
             %var: f32[b,s,1] = ReduceMean(%sq, %last) %ve: f32[b,s,1] = Add(%var, %eps) %dev: f32[b,s,1] = Sqrt(%ve) \
             %y: f32[b,s,4] = Div(%d, %dev) output %y",
        );
    }

    #[test]
    fn an_unknown_number_of_channels_is_refused() {
        let form = format!("{FORM} %y: f32[n,c,h,w] = Relu(%q) output %y")
            .replace("f32[n,2,", "f32[n,c,")
            .replace("const %g: f32[1,2,1,1] = [2,-1] const %c: f32[2,1,1] = [0.5,1]", "");
        refuses(RECOGNIZE_INSTANCE_NORM, &form, "the size of a normalized axis is not known");
    }

    #[test]
    fn a_deviation_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_INSTANCE_NORM,
            &format!("{FORM} %y: f32[n,2,h,w] = Relu(%q) output %y, %dev"),
            "`dev` is an output of the graph",
        );
    }
}
