//! Drops what no output needs: whole nodes, and outputs of nodes that nothing reads.
//!
//! The driver leaves dead nodes after whenever it rebuilds a graph; this pass is there for graphs that nothing
//! else changes, and counts.

use crate::rule::{Match, Patch, Proposals, Sweep};
use crate::view::View;

/// Nodes and outputs that are not read.
pub(crate) struct RemoveDead;

impl Sweep for RemoveDead {
    fn name(&self) -> &'static str {
        "remove_dead"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let graph = cx.graph();
        let mut is_live = vec![false; graph.nodes().len()];
        let mut stack: Vec<_> = graph.outputs().iter().filter_map(|id| graph.value(*id).producer).collect();
        while let Some(id) = stack.pop() {
            if !std::mem::replace(&mut is_live[id.index()], true) {
                let inputs = graph.node(id).inputs.iter().flatten();
                stack.extend(inputs.filter_map(|id| graph.value(*id).producer));
            }
        }
        for (id, node) in graph.nodes() {
            let is_unread = |id: &planish_ir::ValueId| cx.readers(*id).is_empty() && !cx.is_output(*id);
            if !is_live[id.index()] || node.outputs.iter().flatten().any(is_unread) {
                proposals.add(id, Match::Rewrite(Patch::new()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::check_pass;
    use expect_test::expect;

    #[test]
    fn unread_nodes_outputs_and_constants_go() {
        check_pass(
            Pass::sweep(RemoveDead),
            "input %x: f32[4] input %unused: f32[1] const %w: f32[4] = [1, 2, 3, 4] const %k: i64[1] = [2] \
             %a: f32[4] = Mul(%x, %w) %b: f32[4] = Neg(%a) %v: f32[2], %i: i64[2] = TopK(%x, %k) \"top\" output %v",
            expect![[r#"
                input %x: f32[4]
                input %unused: f32[1]
                const %k: i64[1] = [2]
                %v: f32[2], _ = TopK(%x, %k) "top"
                output %v
            "#]],
        );
    }

    #[test]
    fn a_graph_without_waste_is_not_touched() {
        let text = "input %x: f32[4] %y: f32[4] = Neg(%x) output %y";
        assert_eq!(crate::testing::run(Pass::sweep(RemoveDead), text).1.hits, 0);
    }
}
