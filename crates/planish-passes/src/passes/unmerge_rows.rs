//! Lets products with a matrix keep the axes of their rows, which exporters merge before and split after:
//! MatMul takes any number of them, and what stands around the product can then be seen as one.

use planish_ir::{NodeId, ValueId};
use planish_op::{Add, Gemm, MatMul, Op, Reshape};
use planish_tensor::{Dim, Shape, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, made_by, output, private, relying_on, two_inputs};
use crate::reshape::target;
use crate::rule::Patch;
use crate::view::View;

/// Reshape, product, Reshape with the same leading axes at both ends.
pub(crate) const UNMERGE_ROWS: Finder = Finder { name: "unmerge_rows", find };

/// A product of merged rows: its first operand, the weights, what is added, its nodes.
struct Layer {
    rows: ValueId,
    weight: ValueId,
    bias: Option<ValueId>,
    nodes: Vec<NodeId>,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Reshape(_) = node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let layer = layer(cx, cx.input(node, 0).ok_or(Miss::No)?).ok_or(Miss::No)?;
    let (_, merge) = made_by(cx, layer.rows, |op| matches!(op, Op::Reshape(_))).ok_or(Miss::No)?;
    let x = cx.input(merge, 0).ok_or(Miss::No)?;
    let shapes = (cx.shape(x), cx.shape(layer.weight), cx.shape(y));
    let (Some(before), Some(weight), Some(after)) = shapes else { return Err(Miss::No) };
    let wide = with_rows_of(before, weight).ok_or(Miss::No)?;
    if !keeps_rows(&wide, after) {
        return Err(Miss::No);
    }
    // A bias of its own for each row cannot be told apart from its shape once rows have several axes.
    let is_per_column = |id: ValueId| {
        cx.shape(id).is_some_and(|shape| shape.iter().rev().skip(1).all(|dim| *dim == Dim::ONE))
    };
    if layer.bias.is_some_and(|bias| !is_per_column(bias)) {
        return blocked("what is added differs from row to row");
    }
    private(cx, &layer.nodes, root)?;
    let mut patch = Patch::new();
    let name = layer.nodes.last().map_or(&*node.name, |&id| &*cx.node(id).name);
    let mut result = patch.node(name, MatMul {}, &[x.into(), layer.weight.into()]);
    if let Some(bias) = layer.bias {
        result = patch.node(name, Add {}, &[result, bias.into()]);
    }
    if wide != *after {
        let Ok(sizes) = target(&wide, after.dims()) else { return Err(Miss::No) };
        let sizes = patch.constant(&format!("{}.shape", node.name), Tensor::vector(sizes));
        result = patch.node(&node.name, Reshape { allowzero: false }, &[result, sizes]);
    }
    patch.replace(y, result);
    Ok(relying_on(patch, &layer.nodes))
}

fn layer(cx: &View<'_>, value: ValueId) -> Option<Layer> {
    const PLAIN: Gemm = Gemm { beta: 1.0, trans_b: false, alpha: 1.0, trans_a: false };
    let (id, node) = cx.producer(value)?;
    let is_matrix = |id: ValueId| cx.rank(id) == Some(2);
    match &node.op {
        Op::MatMul(_) => {
            let [rows, weight] = two_inputs(node)?;
            (is_matrix(rows) && is_matrix(weight)).then(|| Layer {
                rows,
                weight,
                bias: None,
                nodes: vec![id],
            })
        }
        Op::Gemm(op) if *op == PLAIN => {
            let (rows, weight) = (cx.input(node, 0)?, cx.input(node, 1)?);
            Some(Layer { rows, weight, bias: cx.input(node, 2), nodes: vec![id] })
        }
        Op::Add(_) => {
            let [a, b] = two_inputs(node)?;
            [(a, b), (b, a)].into_iter().find_map(|(product, bias)| {
                let mut found = layer(cx, product).filter(|found| found.bias.is_none())?;
                cx.constant(bias)?;
                found.bias = Some(bias);
                found.nodes.insert(0, id);
                Some(found)
            })
        }
        _ => None,
    }
}

/// The shape of a product of `before`, which has several axes of rows, with a matrix.
fn with_rows_of(before: &Shape, weight: &Shape) -> Option<Shape> {
    let [rows @ .., depth] = before.dims() else { return None };
    let fits = rows.len() > 1 && *depth == weight[0] && !before.iter().chain(weight).any(Dim::is_unknown);
    fits.then(|| rows.iter().chain([&weight[1]]).cloned().collect())
}

/// Whether two shapes are the same but for axes of size 1, which a batch of one is in.
fn keeps_rows(wide: &Shape, after: &Shape) -> bool {
    let held =
        |shape: &Shape| -> Vec<Dim> { shape.iter().filter(|dim| **dim != Dim::ONE).cloned().collect() };
    after.rank() == wide.rank() && after.dims().last() == wide.dims().last() && held(wide) == held(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, leaves, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const FEED: Feed<'static> = Feed { sizes: &[("b", 3)], ..PLAIN };
    const HEAD: &str = "input %x: f32[5,b,2] const %flat: i64[2] = [-1,2] const %back: i64[3] = [5,-1,3] \
        const %w: f32[2,3] = [1,2,3,4,5,6] const %c: f32[3] = [1,0,-1] %r: f32[5*b,2] = Reshape(%x, %flat)";

    #[test]
    fn rows_keep_their_axes() {
        let form = format!(
            "{HEAD} %m: f32[5*b,3] = Gemm(%r, %w, %c) \"layer\" %y: f32[5,b,3] = Reshape(%m, %back) output %y"
        );
        check(
            UNMERGE_ROWS,
            &form,
            expect![[r#"
            input %x: f32[5,b,2]
            const %w: f32[2,3] = [1, 2, 3, 4, 5, 6]
            const %c: f32[3] = [1, 0, -1]
            %layer: f32[5,b,3] = MatMul(%x, %w) "layer"
            %y: f32[5,b,3] = Add(%layer, %c) "layer"
            output %y
        "#]],
        );
        agrees(UNMERGE_ROWS, &form, FEED);
        let form = format!(
            "{HEAD} %m: f32[5*b,3] = MatMul(%r, %w) %a: f32[5*b,3] = Add(%c, %m) \
             %y: f32[5,b,3] = Reshape(%a, %back) output %y"
        );
        agrees(UNMERGE_ROWS, &form, FEED);
        let form =
            format!("{HEAD} %m: f32[5*b,3] = MatMul(%r, %w) %y: f32[5,b,3] = Reshape(%m, %back) output %y");
        agrees(UNMERGE_ROWS, &form, FEED);
    }

    #[test]
    fn a_batch_of_one_may_change_its_place() {
        let form = "input %x: f32[1,5,2] const %flat: i64[2] = [-1,2] const %back: i64[3] = [5,1,3] \
            const %w: f32[2,3] = [1,2,3,4,5,6] const %c: f32[3] = [1,0,-1] %r: f32[5,2] = Reshape(%x, %flat) \
            %m: f32[5,3] = Gemm(%r, %w, %c) \"layer\" %y: f32[5,1,3] = Reshape(%m, %back) \"back\" output %y";
        check(
            UNMERGE_ROWS,
            form,
            expect![[r#"
            input %x: f32[1,5,2]
            const %w: f32[2,3] = [1, 2, 3, 4, 5, 6]
            const %c: f32[3] = [1, 0, -1]
            const %back.shape: i64[3] = [5, 1, 3]
            %layer: f32[1,5,3] = MatMul(%x, %w) "layer"
            %layer.1: f32[1,5,3] = Add(%layer, %c) "layer"
            %y: f32[5,1,3] = Reshape(%layer.1, %back.shape) "back"
            output %y
        "#]],
        );
        agrees(UNMERGE_ROWS, form, PLAIN);
    }

    #[test]
    fn rows_that_are_split_in_another_way_stay() {
        leaves(
            UNMERGE_ROWS,
            &format!("{HEAD} %m: f32[5*b,3] = MatMul(%r, %w) %y: f32[b,5,3] = Reshape(%m, %n) output %y")
                .replace("const %back: i64[3] = [5,-1,3]", "const %n: i64[3] = [-1,5,3]"),
        );
    }

    #[test]
    fn an_addend_for_every_row_is_refused() {
        refuses(
            UNMERGE_ROWS,
            "input %x: f32[2,2,2] const %flat: i64[2] = [4,2] const %back: i64[3] = [2,2,1] const %w: f32[2,1] = [1,2] \
             const %c: f32[4,1] = [1,0,-1,2] %r: f32[4,2] = Reshape(%x, %flat) %m: f32[4,1] = Gemm(%r, %w, %c) \
             %y: f32[2,2,1] = Reshape(%m, %back) output %y",
            "what is added differs from row to row",
        );
    }

    #[test]
    fn a_product_that_others_read_is_refused() {
        refuses(
            UNMERGE_ROWS,
            &format!(
                "{HEAD} %m: f32[5*b,3] = MatMul(%r, %w) %y: f32[5,b,3] = Reshape(%m, %back) output %y, %m"
            ),
            "`m` is an output of the graph",
        );
    }
}
