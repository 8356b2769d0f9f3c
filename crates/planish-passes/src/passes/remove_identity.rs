//! Removes nodes that hand on their input as it is.

use planish_ir::NodeId;
use planish_op::Op;

use crate::rule::{Match, Patch, Rule};
use crate::view::View;

/// Identity.
pub(crate) struct RemoveIdentity;

impl Rule for RemoveIdentity {
    fn name(&self) -> &'static str {
        "remove_identity"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Op::Identity(_), &[Some(from)], &[Some(to)]) = (&node.op, &node.inputs[..], &node.outputs[..])
        else {
            return Match::No;
        };
        if cx.is_output(to) && !cx.can_become_output(from) {
            return Match::blocked("an output must differ from inputs, constants and other outputs");
        }
        Match::Rewrite(Patch::replacing(to, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;
    use expect_test::expect;

    #[test]
    fn chains_vanish_at_once_and_outputs_keep_their_names() {
        check(
            RemoveIdentity,
            "input %x: f32[2] %a: f32[2] = Relu(%x) \"r\" %b: f32[2] = Identity(%a) %c: f32[2] = Identity(%b) \
             %y: f32[2] = Identity(%c) output %y",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Relu(%x) "r"
                output %y
            "#]],
        );
        check(
            RemoveIdentity,
            "input %x: f32[2] %a: f32[2] = Identity(%x) %y: f32[2] = Identity(%a) %z: f32[2] = Identity(%a) output %y, %z",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Identity(%x)
                %z: f32[2] = Identity(%x)
                output %y, %z
                refused at : an output must differ from inputs, constants and other outputs
                refused at : an output must differ from inputs, constants and other outputs
            "#]],
        );
    }
}
