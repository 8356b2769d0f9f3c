//! Makes one Reshape of two in a row.

use planish_ir::NodeId;

use crate::reshape::{as_reshape, reshaped_input};
use crate::rule::{Match, Rule};
use crate::view::View;

/// Reshape, Flatten, Squeeze and Unsqueeze one after another.
pub(crate) struct MergeReshapes;

impl Rule for MergeReshapes {
    fn name(&self) -> &'static str {
        "merge_reshapes"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let (Some(between), Some(&Some(output))) = (reshaped_input(cx, node), node.outputs.first()) else {
            return Match::No;
        };
        let Some(source) = cx.producer(between).and_then(|(_, before)| reshaped_input(cx, before)) else {
            return Match::No;
        };
        as_reshape(cx, node, source, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    #[test]
    fn a_chain_becomes_one() {
        check_same(
            MergeReshapes,
            "input %x: f32[n,6,1] const %a: i64[1] = [2] const %s: i64[3] = [0, 2, 3] const %b: i64[1] = [0] \
             %p: f32[n,6] = Squeeze(%x, %a) \"p\" %q: f32[n,2,3] = Reshape(%p, %s) \"q\" \
             %r: f32[1,n,2,3] = Unsqueeze(%q, %b) \"r\" %y: f32[1,6*n] = Flatten(%r) \"y\" output %y",
            expect![[r#"
            input %x: f32[n,6,1]
            const %y.shape: i64[2] = [1, -1]
            %y: f32[1,6*n] = Reshape(%x, %y.shape) "y"
            output %y
        "#]],
        );
    }

    #[test]
    fn refusals() {
        kept(
            MergeReshapes,
            "input %x: f32[n,m,2] const %s: i64[1] = [-1] input %t: i64[2] %p: f32[2*n*m] = Reshape(%x, %s) \
             %y: f32[k,l] = Reshape(%p, %t)",
            "y",
            "two dimensions are known only at run time",
        );
        kept(
            MergeReshapes,
            "input %x: f32[*] const %s: i64[1] = [-1] const %t: i64[2] = [-1, 2] %p: f32[k] = Reshape(%x, %s) \
             %y: f32[l,2] = Reshape(%p, %t)",
            "y",
            "the rank is not known",
        );
        kept(
            MergeReshapes,
            "input %x: f32[0,2] const %s: i64[1] = [-1] const %t: i64[2] = [2, 0] %p: f32[0] = Reshape(%x, %s) \
             %y: f32[2,0] = Reshape(%p, %t) {allowzero=true}",
            "y",
            "a dimension is 0",
        );
    }
}
