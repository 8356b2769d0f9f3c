//! Recognizes attention: `softmax(scale · Q·Kᵀ + mask) · V`, which becomes one Attention.
//!
//! The scale may stand on the scores, on Q, on K or in parts on both; masks are numbers that are added, and
//! keep their own shape. Products of rank 2 and 3 are those of one head. `V·softmax(…)ᵀ`, as convolutional
//! networks write it, is the transpose of the usual form.
//!
//! A row of scores that is minus infinity throughout has NaN for weights in both forms. Newer exporters put
//! `Where(IsNaN(w), 0, w)` after the softmax, which gives such rows the result `0·V`: zero, or NaN where a
//! column of V is not finite. After Attention the same is `Where(IsNaN(y), ΣV·0, y)`: y is NaN for a row
//! with weights only in columns where V is not finite, and there `ΣV·0` is NaN too.

mod build;
mod read;
#[cfg(test)]
mod tests;

use planish_ir::NodeId;
use planish_op::Op;

use crate::pattern::{Finder, Found, Miss, private};
use crate::rule::Patch;
use crate::view::View;

/// Two matrix products with a softmax between them.
pub(crate) const RECOGNIZE_ATTENTION: Finder = Finder { name: "recognize_attention", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    if !matches!(cx.node(root).op, Op::MatMul(_)) {
        return Err(Miss::No);
    }
    let parts = read::parts(cx, root)?;
    let operands = read::operands(cx, &parts)?;
    private(cx, &parts.nodes, root)?;
    build::patch(cx, root, parts, operands)
}
