//! Adds to a product before its channels are moved in front of places: `Transpose(x · w) + y` becomes
//! `Transpose(x · w + Transpose(y))`, so that the sum can be taken where the product is made.
//!
//! Where channels lie innermost, as GPU convolutions leave them, both transposes only see memory differently.

use planish_ir::{NodeId, ValueId};
use planish_op::{Add, Op};

use crate::pattern::{Finder, Found, Miss, output, private, relying_on, two_inputs};
use crate::rule::{Operand, Patch};
use crate::transpose::{inverse, transpose_op, transposed};
use crate::view::View;

/// Images and volumes.
const MIN_RANK: usize = 4;

/// An Add of a transposed product and a value of the same sizes.
pub(crate) const ADD_TO_PRODUCTS: Finder = Finder { name: "add_to_products", find };

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let (Op::Add(_), Some([a, b])) = (&node.op, two_inputs(node)) else { return Err(Miss::No) };
    let y = output(node)?;
    let product_first = [(a, b), (b, a)].into_iter().find_map(|(product, other)| {
        let (id, input, perm) = turned(cx, product)?;
        let is_added_to =
            moves_channels_forward(&perm) && is_product(cx, input) && cx.shape(other) == cx.shape(y);
        is_added_to.then_some((id, input, perm, other))
    });
    let (transpose, product, perm, other) = product_first.ok_or(Miss::No)?;
    private(cx, &[transpose], root)?;
    let back = inverse(&perm);
    let mut patch = Patch::new();
    let added: Operand = match turned(cx, other) {
        Some((_, source, other_perm)) if other_perm == perm => source.into(),
        _ => {
            let name = format!("{}.channels_last", cx.name(other));
            patch.node(&name, transpose_op(&back), &[other.into()])
        }
    };
    let sum = patch.node(&node.name, Add {}, &[product.into(), added]);
    // Readers that move the channels back read the sum itself.
    for &reader in cx.readers(y) {
        let node = cx.node(reader);
        if let (Some((_, order)), Some(&Some(seen))) = (transposed(cx, node), node.outputs.first())
            && order == back
            && !cx.is_output(seen)
        {
            patch.relies_on(reader);
            patch.replace(seen, sum);
        }
    }
    let moved = patch.node(&node.name, transpose_op(&perm), &[sum]);
    patch.replace(y, moved);
    Ok(relying_on(patch, &[transpose]))
}

/// The Transpose that makes a value, what it reads and its order of axes.
fn turned(cx: &View<'_>, id: ValueId) -> Option<(NodeId, ValueId, Vec<usize>)> {
    let (transpose, node) = cx.producer(id)?;
    let (input, perm) = transposed(cx, node)?;
    Some((transpose, input, perm))
}

fn moves_channels_forward(perm: &[usize]) -> bool {
    let rank = perm.len();
    rank >= MIN_RANK && perm.iter().copied().eq([0, rank - 1].into_iter().chain(1..rank - 1))
}

/// Whether a value is a product with a matrix, or one to which a constant was added.
fn is_product(cx: &View<'_>, id: ValueId) -> bool {
    let Some((_, node)) = cx.producer(id) else { return false };
    match (&node.op, two_inputs(node)) {
        (Op::MatMul(_), _) => true,
        (Op::Add(_), Some([a, b])) => {
            let makes =
                |id: ValueId| cx.producer(id).is_some_and(|(_, node)| matches!(node.op, Op::MatMul(_)));
            makes(a) && cx.constant(b).is_some() || makes(b) && cx.constant(a).is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{PLAIN, becomes, leaves, refuses};

    const PRODUCT: &str = "const %b: f32[5] = [1,2,3,4,5] \
        const %w: f32[4,5] = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20] \
        %m: f32[1,3,2,5] = MatMul(%x, %w) \"m\" %s: f32[1,3,2,5] = Add(%m, %b) \"s\"";
    const INPUTS: &str = "input %x: f32[1,3,2,4] input %r: f32[1,5,3,2]";

    /// The product with its transpose.
    fn block() -> String {
        format!("{INPUTS} {PRODUCT} %t: f32[1,5,3,2] = Transpose(%s) {{perm=[0,3,1,2]}} \"t\"")
    }

    #[test]
    fn a_residual_is_added_where_the_product_is() {
        let block = block();
        let form = format!("{block} %y: f32[1,5,3,2] = Add(%r, %t) \"y\" output %y");
        let wanted = format!(
            "{INPUTS} {PRODUCT} \
             %r.channels_last: f32[1,3,2,5] = Transpose(%r) {{perm=[0,2,3,1]}} \"r.channels_last\" \
             %y.1: f32[1,3,2,5] = Add(%s, %r.channels_last) \"y\" \
             %y: f32[1,5,3,2] = Transpose(%y.1) {{perm=[0,3,1,2]}} \"y\" output %y"
        );
        becomes(ADD_TO_PRODUCTS, &form, &wanted, PLAIN);
    }

    #[test]
    fn transposes_that_meet_vanish() {
        let block = block();
        let form = format!(
            "{block} input %q: f32[1,3,2,5] %u: f32[1,5,3,2] = Transpose(%q) {{perm=[0,3,1,2]}} \"u\" \
             %y: f32[1,5,3,2] = Add(%t, %u) \"y\" %z: f32[1,3,2,5] = Transpose(%y) {{perm=[0,2,3,1]}} \"z\" \
             %l: f32[1,3,2,5] = Relu(%z) %k: f32[1,5,3,2] = Neg(%y) output %l, %k"
        );
        let wanted = format!(
            "{INPUTS} input %q: f32[1,3,2,5] {PRODUCT} %z: f32[1,3,2,5] = Add(%s, %q) \"y\" \
             %y: f32[1,5,3,2] = Transpose(%z) {{perm=[0,3,1,2]}} \"y\" \
             %l: f32[1,3,2,5] = Relu(%z) %k: f32[1,5,3,2] = Neg(%y) output %l, %k"
        );
        becomes(ADD_TO_PRODUCTS, &form, &wanted, PLAIN);
    }

    #[test]
    fn other_sums_stay() {
        let block = block();
        leaves(ADD_TO_PRODUCTS, &format!("{block} %y: f32[1,5,3,2] = Mul(%r, %t) output %y"));
        // What spreads over the product, and what is not a product.
        let spread = format!("{block} input %c: f32[5,1,1] %y: f32[1,5,3,2] = Add(%c, %t) output %y, %r");
        leaves(ADD_TO_PRODUCTS, &spread);
        let form = "input %x: f32[1,3,2,5] input %r: f32[1,5,3,2] %a: f32[1,3,2,5] = Relu(%x) \
            %t: f32[1,5,3,2] = Transpose(%a) {perm=[0,3,1,2]} %y: f32[1,5,3,2] = Add(%r, %t) output %y";
        leaves(ADD_TO_PRODUCTS, form);
        leaves(ADD_TO_PRODUCTS, &form.replace("Relu(%x)", "Add(%x, %x)"));
        refuses(
            ADD_TO_PRODUCTS,
            &format!("{block} %y: f32[1,5,3,2] = Add(%r, %t) output %y, %t"),
            "`t` is an output of the graph",
        );
    }
}
