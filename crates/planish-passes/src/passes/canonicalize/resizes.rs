//! Resize by scales of which the first are known to be 1 names the other axes only.
//!
//! Sizes that follow from scales of a run are not known; those of batch and channels then stay what they are, and
//! kernels need to know the channels.

use planish_ir::{Node, ValueId};
use planish_op::{Concat, Op, Resize, ResizeAspectPolicy, ResizeCoordinates};

use crate::rule::{Match, Operand, Patch};
use crate::view::View;

const ROI: usize = 1;
const SCALES: usize = 2;
const SIZES: usize = 3;

pub(super) fn name_axes(cx: &View<'_>, op: &Resize, node: &Node, output: ValueId) -> Match {
    let (Some(image), Some(scales)) = (cx.input(node, 0), cx.input(node, SCALES)) else { return Match::No };
    let (Some(rank), Some((_, concat))) = (cx.rank(image), cx.producer(scales)) else { return Match::No };
    let is_plain = op.axes.is_none()
        && op.keep_aspect_ratio_policy == ResizeAspectPolicy::Stretch
        && op.coordinate_transformation_mode != ResizeCoordinates::TfCropAndResize
        && cx.input(node, SIZES).is_none();
    if !matches!(concat.op, Op::Concat(_)) || !is_plain || cx.fixed_shape(scales) != Some(vec![rank]) {
        return Match::No;
    }
    // The parts that are ones, whole, and how many axes they are of.
    let ones = |part: &Option<ValueId>| {
        let tensor = cx.constant((*part)?)?;
        tensor.to_f64s().iter().all(|&scale| scale == 1.0).then_some(tensor.len())
    };
    let known: Vec<usize> = concat.inputs.iter().map_while(ones).collect();
    let n_axes: usize = known.iter().sum();
    if n_axes == 0 || n_axes >= rank {
        return Match::No;
    }
    let rest: Vec<Operand> = concat.inputs[known.len()..].iter().flatten().map(|id| (*id).into()).collect();
    let mut patch = Patch::new();
    let scales = match rest[..] {
        [one] => one,
        _ => patch.node(&concat.name, Concat { axis: 0 }, &rest),
    };
    let op = Resize { axes: Some((n_axes as i64..rank as i64).collect()), ..op.clone() };
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::from)).collect();
    // It is read by another way of cropping alone, and has a pair for each axis.
    inputs[ROI] = None;
    inputs[SCALES] = Some(scales);
    let new = patch.node_with(&node.name, op, inputs, 1);
    patch.replace(output, new[0]);
    Match::Rewrite(patch)
}

#[cfg(test)]
mod tests {
    use crate::agreement::leaves;
    use crate::passes::canonicalize::Canonicalize;
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn scales_of_one_leave_their_axes_alone() {
        check(
            Canonicalize,
            "input %x: f32[n,2,3,4] input %s: f32[1] const %one: f32[1] = [1] \
             %all: f32[4] = Concat(%one, %one, %s, %s) {axis=0} \"all\" \
             %y: f32[a,b,c,d] = Resize(%x, _, %all) \"r\" output %y",
            expect![[r#"
                input %x: f32[n,2,3,4]
                input %s: f32[1]
                %all: f32[2] = Concat(%s, %s) {axis=0} "all"
                %y: f32[a,2,c,d] = Resize(%x, _, %all) {axes=[2,3]} "r"
                output %y
            "#]],
        );
    }

    #[test]
    fn other_scales_stay() {
        leaves(
            Canonicalize,
            "input %x: f32[1,2,3] input %s: f32[2] const %two: f32[1] = [2] %all: f32[3] = Concat(%two, %s) {axis=0} \
             %y: f32[a,b,c] = Resize(%x, _, %all) output %y",
        );
    }
}
