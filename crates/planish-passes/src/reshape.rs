//! Targets of Reshape: how a shape is said as a constant, with dimensions that are copied (0) or follow from
//! the rest (-1).

use planish_ir::{Node, ValueId};
use planish_op::{Op, Reshape};
use planish_tensor::{Dim, Shape, Tensor};

use crate::pattern::{Found, blocked};
use crate::rule::{Match, Operand, Patch};
use crate::view::View;

/// The constant target that turns `from` into `to`; in words why there is none.
///
/// `to` may hold a -1 of its own. A size that only a run tells is said as -1 only if no other one is copied:
/// with a copied size of 0 the rest could be anything.
pub(crate) fn target(from: &Shape, to: &[Dim]) -> Result<Vec<i64>, &'static str> {
    let mut numbers = Vec::with_capacity(to.len());
    let mut computes = false;
    for (axis, dim) in to.iter().enumerate() {
        let two = "two dimensions are known only at run time";
        numbers.push(match dim.as_const() {
            Some(-1) if numbers.contains(&-1) => return Err(two),
            Some(number) => number,
            None if !dim.is_unknown() && from.get(axis) == Some(dim) => 0,
            None if numbers.contains(&-1) => return Err(two),
            None => {
                computes = true;
                -1
            }
        });
    }
    if computes && numbers.contains(&0) {
        return Err("a dimension is known only at run time, and another one may be 0");
    }
    Ok(numbers)
}

/// The patch that has a Reshape of `source` in place of `output`, which `node` makes.
pub(crate) fn as_reshape(cx: &View<'_>, node: &Node, source: ValueId, output: ValueId) -> Match {
    let (Some(from), Some(to)) = (cx.shape(source), cx.shape(output)) else {
        return Match::blocked("the rank is not known");
    };
    if to.dims().contains(&Dim::ZERO) {
        return Match::blocked("a dimension is 0");
    }
    let numbers = match target(from, to.dims()) {
        Ok(numbers) => numbers,
        Err(reason) => return Match::blocked(reason),
    };
    let mut patch = Patch::new();
    let shape = patch.constant(&format!("{}.shape", node.name), Tensor::vector(numbers));
    let new = patch.node(&node.name, Reshape { allowzero: false }, &[source.into(), shape]);
    patch.replace(output, new);
    Match::Rewrite(patch)
}

/// A Reshape of `x` in a patch, if the sizes of `to` can be written down as constants.
pub(crate) fn reshaped(
    patch: &mut Patch,
    name: &str,
    x: Operand,
    from: &Shape,
    to: &[Dim],
) -> Found<Operand> {
    match target(from, to) {
        Ok(sizes) => {
            let sizes = patch.constant("shape", Tensor::vector(sizes));
            Ok(patch.node(name, Reshape { allowzero: false }, &[x, sizes]))
        }
        Err(reason) => blocked(reason),
    }
}

/// The input of a node that changes nothing but the shape.
pub(crate) fn reshaped_input(cx: &View<'_>, node: &Node) -> Option<ValueId> {
    match node.op {
        Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_) => cx.input(node, 0),
        _ => None,
    }
}
