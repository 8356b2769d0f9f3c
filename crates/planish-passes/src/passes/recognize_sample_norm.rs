//! Recognizes GroupNormalization of one group: whole samples normalized at once, then scaled and shifted by
//! channel, as networks that separate speech write their global layer norm. A row of such a LayerNormalization is
//! all of a sample, which keeps one thread busy and wants the plain layout; a group is shared among all.

use planish_ir::{NodeId, ValueId};
use planish_op::{GroupNormalization, Op};

use crate::normal::{Affinity, affinity, fixed_sizes, is_parameter, normal, off_center, parameter};
use crate::pattern::{Finder, Found, Miss, blocked, output, private};
use crate::rule::Patch;
use crate::view::View;

/// The axis of the channels.
const CHANNELS: [usize; 1] = [1];

/// A norm over all axes after the first, and what is by channel after it. After transposes have moved: scale and shift
/// may have stood behind one.
pub(crate) const RECOGNIZE_SAMPLE_NORM: Finder = Finder { name: "recognize_sample_norm", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let Sample { x, epsilon, mut inner } = sample(cx, root)?;
    let y = output(cx.node(root))?;
    if !cx.same_type(x, y) {
        return blocked("the result is not known to have the shape of the argument");
    }
    let after = affinity(cx, y, None, |id| is_parameter(cx, id, x, &CHANNELS));
    if !by_channel(cx, &after) {
        return blocked("nothing by channel follows");
    }
    let sizes = fixed_sizes(cx, x, &CHANNELS)?;
    inner.retain(|&node| node != root);
    private(cx, &inner, root)?;
    let mut patch = Patch::new();
    let scale = parameter(cx, &mut patch, x, after.scale, &sizes, 1.0)?;
    let shift = parameter(cx, &mut patch, x, after.shift, &sizes, 0.0)?;
    let op = GroupNormalization { stash_type: 1, num_groups: 1, epsilon };
    after.replaced_by(patch, &cx.node(root).name, op, &[x.into(), scale, shift], inner)
}

/// A value whose samples are normalized, without parameters.
struct Sample {
    x: ValueId,
    epsilon: f32,
    inner: Vec<NodeId>,
}

/// A LayerNormalization that changes nothing by element, or one written out, whose sizes may be open.
fn sample(cx: &View<'_>, root: NodeId) -> Found<Sample> {
    let node = cx.node(root);
    let (sample, first_axis) = match &node.op {
        Op::LayerNormalization(op) => {
            let x = cx.input(node, 0).ok_or(Miss::No)?;
            let is_filled = |idx, number| cx.input(node, idx).is_none_or(|id| cx.splat(id) == Some(number));
            if node.outputs.len() > 1 || !is_filled(1, 1.0) || !is_filled(2, 0.0) {
                return Err(Miss::No);
            }
            let rank = cx.rank(x).ok_or(Miss::No)? as i64;
            let first = if op.axis < 0 { op.axis + rank } else { op.axis };
            (Sample { x, epsilon: op.epsilon, inner: Vec::new() }, first)
        }
        _ => {
            let normal = normal(cx, root).ok_or(Miss::No)?;
            let (x, centering) = off_center(cx, &normal).ok_or(Miss::No)?;
            let rank = cx.rank(x).ok_or(Miss::No)?;
            if normal.early_scale.is_some() || !normal.axes.iter().copied().eq(1..rank) {
                return Err(Miss::No);
            }
            let inner = normal.nodes.into_iter().chain(centering).collect();
            (Sample { x, epsilon: normal.epsilon as f32, inner }, 1)
        }
    };
    match cx.rank(sample.x) {
        Some(3..) if first_axis == 1 => Ok(sample),
        _ => Err(Miss::No),
    }
}

/// Whether what follows has a number for each channel; one number for all says nothing of channels.
fn by_channel(cx: &View<'_>, after: &Affinity) -> bool {
    [after.scale, after.shift].into_iter().flatten().any(|id| cx.splat(id).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, becomes, leaves, refuses};

    const SIZES: &[(&str, i64)] = &[("n", 2), ("t", 5)];

    const ROWS: &str = "input %x: f32[2,3,4] const %ones: f32[3,4] = [1,1,1,1,1,1,1,1,1,1,1,1] \
        const %g: f32[1,3,1] = [2,-1,3] const %c: f32[3,1] = [0.5,1,0] \
        %l: f32[2,3,4] = LayerNormalization(%x, %ones) {axis=-2, epsilon=0.001} \"norm\"";

    /// As it is written where a length is open.
    const WRITTEN: &str = "input %x: f32[n,3,t] const %axes: i64[2] = [1,2] const %eps: f32[] = [0.001] \
        const %g: f32[1,3,1] = [2,-1,3] const %c: f32[3,1] = [0.5,1,0] \
        %mean: f32[n,1,1] = ReduceMean(%x, %axes) %d: f32[n,3,t] = Sub(%x, %mean) \
        %sq: f32[n,3,t] = Mul(%d, %d) %var: f32[n,1,1] = ReduceMean(%sq, %axes) \
        %ve: f32[n,1,1] = Add(%var, %eps) %dev: f32[n,1,1] = Sqrt(%ve) %l: f32[n,3,t] = Div(%d, %dev) \"norm\"";

    fn affine(form: &str, of: &str) -> String {
        format!("{form} %m: {of} = Mul(%g, %l) %y: {of} = Add(%m, %c) output %y")
    }

    #[test]
    fn rows_of_whole_samples_become_one_group() {
        becomes(
            RECOGNIZE_SAMPLE_NORM,
            &affine(ROWS, "f32[2,3,4]"),
            "input %x: f32[2,3,4] const %g: f32[3] = [2, -1, 3] const %c: f32[3] = [0.5, 1, 0] \
             %y: f32[2,3,4] = GroupNormalization(%x, %g, %c) {num_groups=1, epsilon=0.001} \"norm\" output %y",
            PLAIN,
        );
    }

    #[test]
    fn a_norm_of_an_open_length_is_found() {
        becomes(
            RECOGNIZE_SAMPLE_NORM,
            &affine(WRITTEN, "f32[n,3,t]"),
            "input %x: f32[n,3,t] const %g: f32[3] = [2, -1, 3] const %c: f32[3] = [0.5, 1, 0] \
             %y: f32[n,3,t] = GroupNormalization(%x, %g, %c) {num_groups=1, epsilon=0.001} \"norm\" output %y",
            Feed { sizes: SIZES, ..PLAIN },
        );
    }

    #[test]
    fn a_shift_alone_is_enough() {
        becomes(
            RECOGNIZE_SAMPLE_NORM,
            &format!("{ROWS} %y: f32[2,3,4] = Add(%l, %c) output %y"),
            "input %x: f32[2,3,4] const %filled: f32[3] = [1, 1, 1] const %c: f32[3] = [0.5, 1, 0] \
             %y: f32[2,3,4] = GroupNormalization(%x, %filled, %c) {num_groups=1, epsilon=0.001} \"norm\" output %y",
            PLAIN,
        );
    }

    #[test]
    fn rows_with_numbers_of_their_own_stay() {
        leaves(RECOGNIZE_SAMPLE_NORM, &affine(&ROWS.replace("[1,1,1,", "[1,2,1,"), "f32[2,3,4]"));
    }

    #[test]
    fn rows_of_the_last_axis_stay() {
        let form =
            ROWS.replace("f32[3,4] = [1,1,1,1,1,1,1,1,1,1,1,1]", "f32[4] = [1,1,1,1]").replace("-2", "-1");
        leaves(RECOGNIZE_SAMPLE_NORM, &affine(&form, "f32[2,3,4]"));
    }

    #[test]
    fn a_norm_without_channels_is_refused() {
        refuses(
            RECOGNIZE_SAMPLE_NORM,
            &format!("{ROWS} %y: f32[2,3,4] = Relu(%l) output %y"),
            "nothing by channel follows",
        );
    }

    #[test]
    fn a_deviation_that_others_read_is_refused() {
        let form = format!("{}, %dev", affine(WRITTEN, "f32[n,3,t]"));
        refuses(RECOGNIZE_SAMPLE_NORM, &form, "`dev` is an output of the graph");
    }
}
