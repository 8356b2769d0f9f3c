//! Recognizes Einsum as what it is: a transpose of one operand, a matrix product of two, or their product element
//! by element where nothing is summed (`i,j->ij`, the angles of rotary embeddings).
//!
//! The letters of two operands fall into four groups: shared by both and the result (batch), of one and the
//! result (rows, columns), shared and summed. With each operand transposed to `batch, rows, summed` and
//! `batch, summed, columns`, groups of several letters merged (none are an axis of 1), the rest is one MatMul. Of more
//! operands two at a time become one, those first whose product is smallest.

use planish_ir::{Node, NodeId, ValueId};
use planish_op::einsum::{Equation, Label};
use planish_op::{MatMul, Mul, Op, Transpose, Unsqueeze};
use planish_tensor::{Dim, Shape, Tensor};

use crate::pattern::{Finder, Found, Miss, blocked, output};
use crate::reshape::reshaped;
use crate::rule::{Operand, Patch};
use crate::view::View;

/// Equations of any number of operands.
pub(crate) const RECOGNIZE_EINSUM: Finder = Finder { name: "recognize_einsum", find };

/// An operand with a label for every axis.
#[derive(Clone)]
struct Labeled {
    value: Operand,
    labels: Vec<Label>,
    shape: Shape,
}

fn find(cx: &View<'_>, root: NodeId) -> Found<Patch> {
    let node = cx.node(root);
    let Op::Einsum(op) = &node.op else { return Err(Miss::No) };
    let y = output(node)?;
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let shapes: Option<Vec<&Shape>> = operands.iter().map(|&id| cx.shape(id)).collect();
    let Some(shapes) = shapes else { return blocked("the rank of an operand is not known") };
    let ranks: Vec<usize> = shapes.iter().map(|shape| shape.rank()).collect();
    let equation = Equation::parse(&op.equation).map_err(|_| Miss::No)?;
    let labels = equation.label(&ranks).map_err(|_| Miss::No)?;
    let mut terms = Vec::with_capacity(operands.len());
    for ((id, shape), labels) in operands.into_iter().zip(shapes).zip(labels.inputs) {
        if (1..labels.len()).any(|idx| labels[..idx].contains(&labels[idx])) {
            return blocked("an operand has one letter twice: its diagonal is taken");
        }
        if shape.iter().any(Dim::is_unknown) {
            return blocked("the shape of an operand is not known");
        }
        terms.push(Labeled { value: id.into(), labels, shape: shape.clone() });
    }
    let mut patch = Patch::new();
    let result = match &terms[..] {
        [x] => {
            if x.labels.len() != labels.output.len() {
                return blocked("a sum of one operand is not a product");
            }
            x.clone()
        }
        [] => return Err(Miss::No),
        _ => chained(&mut patch, node, terms, &labels.output)?,
    };
    let result = turned(&mut patch, &node.name, result, &labels.output).ok_or(Miss::No)?;
    let Operand::New(_) = result.value else { return Err(Miss::No) };
    if Some(&result.shape) != cx.shape(y) {
        return blocked("the shape of the result is not that of the product");
    }
    patch.replace(y, result.value);
    Ok(patch)
}

/// What a size that is not known counts where products are compared.
const OPEN_SIZE: u64 = 64;

/// The product of two and more, two at a time.
fn chained(patch: &mut Patch, node: &Node, mut terms: Vec<Labeled>, output: &[Label]) -> Found<Labeled> {
    // What the product of two keeps: the letters of the output and of operands that are still to come.
    let kept = |terms: &[Labeled], one: usize, other: usize| -> Vec<Label> {
        let is_read = |label: &Label| {
            let others = terms.iter().enumerate().filter(|(at, _)| *at != one && *at != other);
            output.contains(label) || others.clone().any(|(_, term)| term.labels.contains(label))
        };
        let mut labels = terms[one].labels.clone();
        labels.extend(terms[other].labels.iter().filter(|label| !terms[one].labels.contains(label)));
        labels.into_iter().filter(is_read).collect()
    };
    while terms.len() > 2 {
        let size = |one: usize, other: usize| -> u64 {
            let of = |term: &Labeled, label: &Label| {
                let axis = term.labels.iter().position(|own| own == label)?;
                Some(term.shape.get(axis)?.as_const().map_or(OPEN_SIZE, |size| size.unsigned_abs()))
            };
            let labels = kept(&terms, one, other);
            let sizes =
                labels.iter().filter_map(|label| of(&terms[one], label).or_else(|| of(&terms[other], label)));
            sizes.fold(1, u64::saturating_mul)
        };
        let n = terms.len();
        let mut pairs: Vec<(usize, usize)> =
            (0..n).flat_map(|one| (one + 1..n).map(move |other| (one, other))).collect();
        pairs.sort_by_key(|&(one, other)| size(one, other));
        // Not every product can be written where sizes are open.
        let mut refusal = Miss::No;
        let made = pairs.into_iter().find_map(|(one, other)| {
            let n_items = patch.items.len();
            match product(patch, node, &terms[one], &terms[other], &kept(&terms, one, other)) {
                Ok(made) => Some((one, other, made)),
                Err(miss) => {
                    patch.items.truncate(n_items);
                    refusal = miss;
                    None
                }
            }
        });
        let Some((one, other, made)) = made else { return Err(refusal) };
        terms.remove(other);
        terms[one] = made;
    }
    let [a, b] = &terms[..] else { return Err(Miss::No) };
    product(patch, node, a, b, output)
}

/// The product with the labels `batch, rows, columns`.
fn product(patch: &mut Patch, node: &Node, a: &Labeled, b: &Labeled, output: &[Label]) -> Found<Labeled> {
    let pick = |labels: &[Label], in_other: &[Label], shared: bool, kept: bool| -> Vec<Label> {
        let fits = |label: &&Label| in_other.contains(label) == shared && output.contains(label) == kept;
        labels.iter().filter(fits).copied().collect()
    };
    let batch: Vec<Label> =
        output.iter().filter(|l| a.labels.contains(l) && b.labels.contains(l)).copied().collect();
    let summed = pick(&a.labels, &b.labels, true, false);
    let rows = pick(&a.labels, &b.labels, false, true);
    let columns = pick(&b.labels, &a.labels, false, true);
    let lone =
        pick(&a.labels, &b.labels, false, false).len() + pick(&b.labels, &a.labels, false, false).len();
    if lone > 0 {
        return blocked("an operand is summed alone");
    }
    let size = |x: &Labeled, label: &Label| {
        let axis = x.labels.iter().position(|other| other == label)?;
        x.shape.get(axis).cloned()
    };
    if batch.iter().chain(&summed).any(|label| size(a, label) != size(b, label)) {
        return blocked("an axis is broadcast between the operands");
    }
    if summed.is_empty() {
        return spread(patch, &node.name, a, b, output);
    }
    // The operand without an axis of its own comes second: its columns are an axis of 1, which is dropped again.
    let (a, b, rows, columns) = match rows.is_empty() {
        true => (b, a, columns, rows),
        false => (a, b, rows, columns),
    };
    let order = |groups: [&[Label]; 3]| groups.concat();
    let name = &*node.name;
    let a = turned(patch, name, a.clone(), &order([&batch, &rows, &summed])).ok_or(Miss::No)?;
    let b = turned(patch, name, b.clone(), &order([&batch, &summed, &columns])).ok_or(Miss::No)?;
    let (n_batch, n_rows) = (batch.len(), rows.len());
    // Without a batch MatMul takes any number of row axes as they are.
    let row_groups = if n_batch == 0 { vec![1; n_rows] } else { vec![n_rows] };
    let a_groups = [vec![1; n_batch], row_groups.clone(), vec![summed.len()]].concat();
    let b_groups = [vec![1; n_batch], vec![summed.len()], vec![columns.len()]].concat();
    let left = merged(patch, name, &a, &a_groups)?;
    let right = merged(patch, name, &b, &b_groups)?;
    let value = patch.node(name, MatMul {}, &[left.0, right.0]);
    let whole = order([&batch, &rows, &columns]);
    let sizes: Shape =
        a.shape.iter().take(n_batch + n_rows).chain(b.shape.iter().skip(n_batch + summed.len())).collect();
    let made: Shape = left.1.iter().take(left.1.rank() - 1).chain(right.1.dims().last()).collect();
    let value = match made == sizes {
        true => value,
        false => reshaped(patch, name, value, &made, sizes.dims())?,
    };
    Ok(Labeled { value, labels: whole, shape: sizes })
}

/// The product element by element, with the labels of the output.
fn spread(patch: &mut Patch, name: &str, a: &Labeled, b: &Labeled, output: &[Label]) -> Found<Labeled> {
    let size = |label: &Label| {
        let of = |x: &Labeled| x.shape.get(x.labels.iter().position(|other| other == label)?).cloned();
        of(a).or_else(|| of(b))
    };
    let shape = output.iter().map(size).collect::<Option<Shape>>().ok_or(Miss::No)?;
    let mut factors = Vec::with_capacity(2);
    for x in [a, b] {
        let own: Vec<Label> = output.iter().filter(|label| x.labels.contains(label)).copied().collect();
        let x = turned(patch, name, x.clone(), &own).ok_or(Miss::No)?;
        // Axes that only the other factor has; those in front come by broadcasting.
        let first = output.iter().position(|label| own.contains(label)).unwrap_or(output.len());
        let missing = |(_, label): &(usize, &Label)| !own.contains(label);
        let at = output[first..].iter().enumerate().filter(missing).map(|(at, _)| at as i64).collect();
        factors.push(widened(patch, name, x.value, at));
    }
    let value = patch.node(name, Mul {}, &factors);
    Ok(Labeled { value, labels: output.to_vec(), shape })
}

/// The operand with axes of 1 at these places of the result.
fn widened(patch: &mut Patch, name: &str, x: Operand, at: Vec<i64>) -> Operand {
    if at.is_empty() {
        return x;
    }
    let axes = patch.constant("axes", Tensor::vector(at));
    patch.node(name, Unsqueeze {}, &[x, axes])
}

/// The operand with its axes in the order of `labels`.
fn turned(patch: &mut Patch, name: &str, x: Labeled, labels: &[Label]) -> Option<Labeled> {
    if x.labels == labels {
        return Some(x);
    }
    let perm: Vec<usize> =
        labels.iter().map(|label| x.labels.iter().position(|other| other == label)).collect::<Option<_>>()?;
    let shape = perm.iter().map(|&axis| x.shape.get(axis).cloned()).collect::<Option<Shape>>()?;
    let perm = perm.into_iter().map(|axis| axis as i64).collect();
    let value = patch.node(name, Transpose { perm: Some(perm) }, &[x.value]);
    Some(Labeled { value, labels: labels.to_vec(), shape })
}

/// The operand with runs of axes merged.
fn merged(patch: &mut Patch, name: &str, x: &Labeled, groups: &[usize]) -> Found<(Operand, Shape)> {
    let mut dims = x.shape.iter();
    let shape: Shape = groups.iter().map(|&n| dims.by_ref().take(n).product::<Dim>()).collect();
    match shape == x.shape {
        true => Ok((x.value, shape)),
        false if groups.iter().all(|&n| n <= 1) => {
            let empty = (0..groups.len()).filter(|&at| groups[at] == 0).map(|at| at as i64).collect();
            Ok((widened(patch, name, x.value, empty), shape))
        }
        false => Ok((reshaped(patch, name, x.value, &x.shape, shape.dims())?, shape)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::{Feed, PLAIN, agrees, becomes, refuses};
    use crate::testing::check;
    use expect_test::expect;

    const FEED: Feed<'static> = Feed { sizes: &[("b", 2), ("s", 3), ("t", 5)], ..PLAIN };

    #[test]
    fn products_of_every_kind_are_found() {
        for (equation, a, b, y) in [
            ("bij,bjk->bik", "[b,s,4]", "[b,4,t]", "[b,s,t]"),
            ("bhid,bhjd->bhij", "[b,2,s,4]", "[b,2,t,4]", "[b,2,s,t]"),
            ("bihd,bjhd->bhij", "[b,s,2,4]", "[b,t,2,4]", "[b,2,s,t]"),
            ("...ij,jk->...ik", "[b,s,4]", "[4,5]", "[b,s,5]"),
            ("abc,cde->abde", "[b,s,4]", "[4,2,3]", "[b,s,2,3]"),
            ("abde,dec->abc", "[b,s,2,3]", "[2,3,4]", "[b,s,4]"),
            ("ij,kj->ki", "[s,4]", "[t,4]", "[t,s]"),
            // An operand without an axis of its own.
            ("bij,bj->bi", "[b,s,4]", "[b,4]", "[b,s]"),
            ("j,bjk->bk", "[4]", "[b,4,t]", "[b,t]"),
            ("bj,bj->b", "[b,s]", "[b,s]", "[b]"),
            ("i,i->", "[s]", "[s]", "[]"),
            ("bhwc,hkc->bhwk", "[2,s,3,4]", "[s,5,4]", "[2,s,3,5]"),
            // Nothing is summed.
            ("i , j -> i j", "[s]", "[4]", "[s,4]"),
            ("i,j->ji", "[s]", "[4]", "[4,s]"),
            ("bi,bj->bij", "[b,s]", "[b,t]", "[b,s,t]"),
            ("bi,jb->jbi", "[b,s]", "[t,b]", "[t,b,s]"),
            ("bij,bij->bji", "[b,s,4]", "[b,s,4]", "[b,4,s]"),
            ("bij,->bij", "[b,s,4]", "[]", "[b,s,4]"),
            ("i,bji->bji", "[4]", "[b,s,4]", "[b,s,4]"),
            ("bi,bj->bji", "[b,s]", "[b,t]", "[b,t,s]"),
            ("bhw,bc->bchw", "[b,s,t]", "[b,4]", "[b,4,s,t]"),
            ("bhd,hd->bh", "[b,s,4]", "[s,4]", "[b,s]"),
        ] {
            let form = format!(
                "input %a: f32{a} input %b: f32{b} %y: f32{y} = Einsum(%a, %b) {{equation=\"{equation}\"}} output %y"
            );
            agrees(RECOGNIZE_EINSUM, &form, FEED);
        }
    }

    #[test]
    fn products_of_several_are_taken_two_at_a_time() {
        for (equation, shapes, y) in [
            ("bij,bjk,bkl->bil", ["[b,s,4]", "[b,4,t]", "[b,t,2]"], "[b,s,2]"),
            ("betf,efd,bte->btd", ["[b,3,s,5]", "[3,5,4]", "[b,s,3]"], "[b,s,4]"),
            ("i,j,k->ijk", ["[s]", "[t]", "[4]"], "[s,t,4]"),
            ("bi,bi,bi->b", ["[b,s]", "[b,s]", "[b,s]"], "[b]"),
            ("ij,jk,->ik", ["[s,4]", "[4,t]", "[]"], "[s,t]"),
        ] {
            let [a, b, c] = shapes;
            let form = format!(
                "input %a: f32{a} input %b: f32{b} input %c: f32{c} \
                 %y: f32{y} = Einsum(%a, %b, %c) {{equation=\"{equation}\"}} output %y"
            );
            agrees(RECOGNIZE_EINSUM, &form, FEED);
        }
    }

    #[test]
    fn heads_are_merged_and_split_around_the_product() {
        check(
            RECOGNIZE_EINSUM,
            "input %a: f32[b,s,4] input %b: f32[4,2,3] \
             %y: f32[b,s,2,3] = Einsum(%a, %b) {equation=\"abc,cde->abde\"} \"heads\" output %y",
            expect![[r#"
                input %a: f32[b,s,4]
                input %b: f32[4,2,3]
                const %shape: i64[2] = [4, 6]
                const %shape.1: i64[4] = [0, 0, 2, 3]
                %heads: f32[4,6] = Reshape(%b, %shape) "heads"
                %heads.1: f32[b,s,6] = MatMul(%a, %heads) "heads"
                %y: f32[b,s,2,3] = Reshape(%heads.1, %shape.1) "heads"
                output %y
            "#]],
        );
    }

    #[test]
    fn an_outer_product_is_a_broadcast() {
        becomes(
            RECOGNIZE_EINSUM,
            "input %t: f32[s] input %f: f32[4] %y: f32[s,4] = Einsum(%t, %f) {equation=\"i,j->ij\"} \"angles\" output %y",
            "input %t: f32[s] input %f: f32[4] const %axes: i64[1] = [1] \
             %angles: f32[s,1] = Unsqueeze(%t, %axes) \"angles\" %y: f32[s,4] = Mul(%angles, %f) \"angles\" output %y",
            FEED,
        );
    }

    #[test]
    fn one_operand_is_a_transpose() {
        let form = "input %a: f32[b,s,4] %y: f32[4,b,s] = Einsum(%a) {equation=\"ijk->kij\"} output %y";
        becomes(
            RECOGNIZE_EINSUM,
            form,
            "input %a: f32[b,s,4] %y: f32[4,b,s] = Transpose(%a) {perm=[2,0,1]} output %y",
            FEED,
        );
    }

    #[test]
    fn what_is_no_product_is_refused() {
        for (equation, a, b, y, reason) in [
            (
                "iij,jk->ik",
                "[3,3,4]",
                "[4,5]",
                "[3,5]",
                "an operand has one letter twice: its diagonal is taken",
            ),
            ("bij,jk->ik", "[2,3,4]", "[4,5]", "[3,5]", "an operand is summed alone"),
            ("bij,bjk->bik", "[2,3,4]", "[1,4,5]", "[2,3,5]", "an axis is broadcast between the operands"),
        ] {
            let form = format!(
                "input %a: f32{a} input %b: f32{b} %y: f32{y} = Einsum(%a, %b) {{equation=\"{equation}\"}} output %y"
            );
            refuses(RECOGNIZE_EINSUM, &form, reason);
        }
        refuses(
            RECOGNIZE_EINSUM,
            "input %a: f32[2,3] %y: f32[2] = Einsum(%a) {equation=\"ij->i\"} output %y",
            "a sum of one operand is not a product",
        );
    }
}
