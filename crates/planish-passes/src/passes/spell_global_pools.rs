//! Spells means over all spatial axes in one way: GlobalAveragePool.
//!
//! After the recognition of patterns: LayerNorm and InstanceNorm are made of such means. Only where there are
//! two spatial axes or more; a mean over the last of three axes is mostly one over features.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{AutoPad, GlobalAveragePool, Op, Squeeze};
use planish_tensor::{Tensor, distinct_axes};

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// ReduceMean over the spatial axes and AveragePool whose window is all there is.
pub(crate) struct SpellGlobalPools;

impl Rule for SpellGlobalPools {
    fn name(&self) -> &'static str {
        "spell_global_pools"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Some(input), Some(&Some(output))) = (cx.input(node, 0), node.outputs.first()) else {
            return Match::No;
        };
        match &node.op {
            Op::AveragePool(op) => {
                let is_plain = matches!(op.auto_pad, AutoPad::NotSet | AutoPad::Valid)
                    && op.pads.iter().all(|&pad| pad == 0)
                    && op.dilations.iter().all(|&dilation| dilation == 1);
                let Some(shape) = cx.shape(input).filter(|_| is_plain) else { return Match::No };
                let spatial = shape.dims().get(2..).unwrap_or_default();
                let is_whole = spatial.len() == op.kernel_shape.len()
                    && spatial.iter().zip(&op.kernel_shape).all(|(dim, &size)| dim.as_const() == Some(size));
                if is_whole { Match::Rewrite(pooled(cx, node, input, output, true)) } else { Match::No }
            }
            Op::ReduceMean(op) => {
                let (Some(rank), Some(axes)) = (cx.rank(input), axes(cx, node)) else { return Match::No };
                if rank < 4 || axes != (2..rank).collect::<Vec<_>>() {
                    return Match::No;
                }
                Match::Rewrite(pooled(cx, node, input, output, op.keepdims))
            }
            _ => Match::No,
        }
    }
}

fn axes(cx: &View<'_>, node: &Node) -> Option<Vec<usize>> {
    let axes = cx.constant_input(node, 1)?.to_i64s();
    let mut axes = distinct_axes(&axes, cx.rank(cx.input(node, 0)?)?).ok()?;
    axes.sort_unstable();
    Some(axes)
}

fn pooled(cx: &View<'_>, node: &Node, input: ValueId, output: ValueId, keeps: bool) -> Patch {
    let mut patch = Patch::new();
    let mut new = patch.node(&node.name, GlobalAveragePool {}, &[input.into()]);
    if !keeps {
        let axes = (2..cx.rank(input).unwrap_or(2) as i64).collect();
        let axes = patch.constant(&format!("{}.axes", node.name), Tensor::vector::<i64>(axes));
        new = patch.node(&node.name, Squeeze {}, &[new, axes]);
    }
    patch.replace(output, new);
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn all_spellings_become_one() {
        check_same(
            SpellGlobalPools,
            "input %x: f32[n,2,3,4] const %a: i64[2] = [-1, 2] %p: f32[n,2,1,1] = ReduceMean(%x, %a) \"p\" \
             %q: f32[n,2] = ReduceMean(%x, %a) {keepdims=false} \"q\" \
             %r: f32[n,2,1,1] = AveragePool(%x) {kernel_shape=[3,4]} \"r\" output %p, %q, %r",
            expect![[r#"
            input %x: f32[n,2,3,4]
            const %q.axes: i64[2] = [2, 3]
            %p: f32[n,2,1,1] = GlobalAveragePool(%x) "p"
            %q.1: f32[n,2,1,1] = GlobalAveragePool(%x) "q"
            %q: f32[n,2] = Squeeze(%q.1, %q.axes) "q"
            %r: f32[n,2,1,1] = GlobalAveragePool(%x) "r"
            output %p, %q, %r
        "#]],
        );
    }

    #[test]
    fn other_means_stay() {
        for node in [
            "const %a: i64[1] = [3] %y: f32[n,2,3,1] = ReduceMean(%x, %a)",
            "const %a: i64[3] = [1, 2, 3] %y: f32[n,1,1,1] = ReduceMean(%x, %a)",
            "%y: f32[n,2,1,2] = AveragePool(%x) {kernel_shape=[3,3]}",
            "%y: f32[n,2,3,2] = AveragePool(%x) {kernel_shape=[3,4], pads=[1,0,1,1]}",
        ] {
            kept(SpellGlobalPools, &format!("input %x: f32[n,2,3,4] {node}"), "y", "");
        }
        let tokens = "input %x: f32[n,2,3] const %a: i64[1] = [2] %y: f32[n,2,1] = ReduceMean(%x, %a)";
        kept(SpellGlobalPools, tokens, "y", "");
    }
}
