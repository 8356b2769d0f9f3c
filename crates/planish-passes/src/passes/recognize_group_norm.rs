//! Recognizes GroupNormalization: groups of channels as one axis, normalized as instances or rows, put back,
//! then scaled and shifted by channel. PyTorch's exporter writes it this way.

use planish_ir::{NodeId, ValueId};
use planish_op::{GroupNormalization, Op};
use planish_tensor::Dim;

use crate::normal::{affinity, fixed_sizes, is_parameter, parameter};
use crate::pattern::{Finder, Found, Miss, blocked, made_by, output, private};
use crate::rule::Patch;
use crate::view::View;

/// The axis of the channels.
const CHANNELS: [usize; 1] = [1];

/// A norm between two Reshapes.
pub(crate) const RECOGNIZE_GROUP_NORM: Finder = Finder { name: "recognize_group_norm", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Reshape(_) = node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let back = cx.input(node, 0).ok_or(Miss::No)?;
    let (norm, norm_node) = cx.producer(back).ok_or(Miss::No)?;
    let grouped = cx.input(norm_node, 0).ok_or(Miss::No)?;
    let epsilon = match &norm_node.op {
        Op::InstanceNormalization(op) => op.epsilon,
        // A row per group.
        Op::LayerNormalization(op) if cx.rank(grouped) == Some(3) && matches!(op.axis, -1 | 2) => op.epsilon,
        _ => return Err(Miss::No),
    };
    let (apart, apart_node) = made_by(cx, grouped, |op| matches!(op, Op::Reshape(_))).ok_or(Miss::No)?;
    let x = cx.input(apart_node, 0).ok_or(Miss::No)?;
    let n_groups = groups(cx, x, grouped)?;
    if !cx.same_type(x, y) {
        return blocked("the second Reshape does not give back the shape before the first");
    }
    let is_filled = |idx, number| cx.input(norm_node, idx).is_none_or(|id| cx.splat(id) == Some(number));
    if !is_filled(1, 1.0) || !is_filled(2, 0.0) {
        return blocked("the groups have scales or shifts of their own");
    }
    let sizes = fixed_sizes(cx, x, &CHANNELS)?;
    if sizes[0] % n_groups != 0 {
        return blocked(format!("{} channels do not divide into {n_groups} groups", sizes[0]));
    }
    let mut inner = vec![norm];
    private(cx, &inner, root)?;
    let after = affinity(cx, y, None, |id| is_parameter(cx, id, x, &CHANNELS));
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let shift = parameter(cx, &mut patch, x, after.shift, &sizes, 0.0)?;
    let op = GroupNormalization { stash_type: 1, num_groups: n_groups as i64, epsilon };
    inner.push(apart);
    after.replaced_by(patch, &norm_node.name, op, &[x.into(), scale, shift], inner)
}

/// The number of groups that a Reshape of `x` makes of its channels.
fn groups(cx: &View<'_>, x: ValueId, grouped: ValueId) -> Found<usize> {
    let (Some(before), Some(after)) = (cx.shape(x), cx.shape(grouped)) else { return Err(Miss::No) };
    if before.rank() < 2 || after.rank() < 3 {
        return Err(Miss::No);
    }
    // With the batch kept, each sample is cut into equal runs, which are whole channels.
    if before[0] != after[0] || before[0].is_unknown() {
        return blocked("the first Reshape does not keep the batch");
    }
    match after.get(1).and_then(Dim::as_usize) {
        Some(n_groups) if n_groups > 0 => Ok(n_groups),
        _ => blocked("the number of groups is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, refuses};

    const SIZES: &[(&str, i64)] = &[("n", 2), ("h", 3), ("w", 4)];

    /// As PyTorch exports it, with the shape taken from the value.
    const FORM: &str = "input %x: f32[n,4,h,w] const %apart: i64[3] = [0,2,-1] const %ones: f32[2] = [1,1] \
        const %zeros: f32[2] = [0,0] const %g: f32[4,1,1] = [1,2,3,4] const %c: f32[4,1,1] = [0,1,0,1] \
        %a: f32[n,2,\"2*h*w\"] = Reshape(%x, %apart) \
        %i: f32[n,2,\"2*h*w\"] = InstanceNormalization(%a, %ones, %zeros) {epsilon=0.001} \"norm\" \
        %s: i64[4] = Shape(%x) %r: f32[n,4,h,w] = Reshape(%i, %s)";

    #[test]
    fn the_form_of_pytorch_is_found() {
        let form = format!("{FORM} %m: f32[n,4,h,w] = Mul(%r, %g) %y: f32[n,4,h,w] = Add(%m, %c) output %y");
        becomes(
            RECOGNIZE_GROUP_NORM,
            &form,
            "input %x: f32[n,4,h,w] const %g: f32[4] = [1, 2, 3, 4] const %c: f32[4] = [0, 1, 0, 1] \
             %y: f32[n,4,h,w] = GroupNormalization(%x, %g, %c) {num_groups=2, epsilon=0.001} \"norm\" \
             output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn rows_and_missing_parameters_are_found() {
        let form = "input %x: f32[2,4,3] const %apart: i64[3] = [2,2,6] const %ones: f32[6] = [1,1,1,1,1,1] \
            const %back: i64[3] = [2,4,3] %a: f32[2,2,6] = Reshape(%x, %apart) \
            %i: f32[2,2,6] = LayerNormalization(%a, %ones) %y: f32[2,4,3] = Reshape(%i, %back) output %y";
        becomes(
            RECOGNIZE_GROUP_NORM,
            form,
            "input %x: f32[2,4,3] const %filled: f32[4] = [1, 1, 1, 1] \
             const %filled.1: f32[4] = [0, 0, 0, 0] \
             %y: f32[2,4,3] = GroupNormalization(%x, %filled, %filled.1) {num_groups=2} output %y",
            PLAIN,
        );
    }

    #[test]
    fn parameters_of_the_groups_are_refused() {
        refuses(
            RECOGNIZE_GROUP_NORM,
            &format!("{FORM} %y: f32[n,4,h,w] = Relu(%r) output %y").replace("[1,1]", "[1,2]"),
            "the groups have scales or shifts of their own",
        );
    }

    #[test]
    fn another_shape_at_the_end_is_refused() {
        refuses(
            RECOGNIZE_GROUP_NORM,
            "input %x: f32[2,4,3] const %apart: i64[3] = [2,2,6] const %ones: f32[2] = [1,1] \
             const %zeros: f32[2] = [0,0] const %back: i64[2] = [2,12] %a: f32[2,2,6] = Reshape(%x, %apart) \
             %i: f32[2,2,6] = InstanceNormalization(%a, %ones, %zeros) %y: f32[2,12] = Reshape(%i, %back) output %y",
            "the second Reshape does not give back the shape before the first",
        );
    }

    #[test]
    fn samples_that_are_mixed_are_refused() {
        refuses(
            RECOGNIZE_GROUP_NORM,
            "input %x: f32[2,4,3] const %apart: i64[3] = [1,4,6] const %ones: f32[4] = [1,1,1,1] \
             const %zeros: f32[4] = [0,0,0,0] const %back: i64[3] = [2,4,3] %a: f32[1,4,6] = Reshape(%x, %apart) \
             %i: f32[1,4,6] = InstanceNormalization(%a, %ones, %zeros) %y: f32[2,4,3] = Reshape(%i, %back) output %y",
            "the first Reshape does not keep the batch",
        );
    }

    #[test]
    fn groups_that_cut_channels_are_refused() {
        refuses(
            RECOGNIZE_GROUP_NORM,
            "input %x: f32[2,4,3] const %apart: i64[3] = [2,6,2] const %ones: f32[6] = [1,1,1,1,1,1] \
             const %zeros: f32[6] = [0,0,0,0,0,0] const %back: i64[3] = [2,4,3] %a: f32[2,6,2] = Reshape(%x, %apart) \
             %i: f32[2,6,2] = InstanceNormalization(%a, %ones, %zeros) %y: f32[2,4,3] = Reshape(%i, %back) output %y",
            "4 channels do not divide into 6 groups",
        );
    }

    #[test]
    fn a_norm_that_others_read_is_refused() {
        refuses(
            RECOGNIZE_GROUP_NORM,
            &format!("{FORM} %y: f32[n,4,h,w] = Relu(%r) output %y, %i"),
            "`i` is an output of the graph",
        );
    }
}
