//! Prunes the weights of products to 2:4 sparsity: of each four neighbours along the sum the two of the largest magnitude stay,
//! the others become zero. It changes what the model computes, so it is done on request only.
//!
//! `plain_zeros` is for weights that are so already: training that multiplies by a mask leaves zeros with a sign, which kernels
//! would have to store. They become zeros without one; no sum changes by it, but for the sign of a zero.

use planish_ir::{Graph, Node, NodeId};
use planish_op::two_of_four::{Fours, summed_axis};
use planish_tensor::{Bytes, DType, Tensor};

use crate::rule::{Match, Operand, Patch, Rule};
use crate::view::View;

/// Sums of fewer products are not worth half of them: first convolutions, which accuracy hangs on, have three channels.
const SHORTEST: usize = 16;

/// Prunes the weights of products.
pub(crate) struct PruneWeights;

impl Rule for PruneWeights {
    fn name(&self) -> &'static str {
        "prune_weights"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let Some((weight, axis)) = weight_of(cx, node) else { return Match::No };
        let Some(elements) = Elements::of(weight) else {
            return Match::blocked("its weights are no floats of 16 or 32 bits");
        };
        let Some(pruned) = elements.pruned(axis) else { return Match::No };
        if weight.shape()[axis] < SHORTEST {
            return Match::blocked("it adds up few products");
        }
        if !is_read_alike(cx, node, axis) {
            return Match::blocked("others read its weights otherwise");
        }
        with_weight(cx, node, pruned)
    }
}

/// Takes the signs off zeros in weights that are 2:4 sparse.
pub(crate) struct PlainZeros;

impl Rule for PlainZeros {
    fn name(&self) -> &'static str {
        "plain_zeros"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let Some((weight, axis)) = weight_of(cx, node) else { return Match::No };
        let Some(elements) = Elements::of(weight) else { return Match::No };
        let is_signed = |place: usize| elements.magnitude(place) == 0 && elements.is_set(place);
        // Most weights are dense, which their first few elements tell.
        if !elements.is_two_of_four(axis) || !(0..weight.len()).any(is_signed) {
            return Match::No;
        }
        with_weight(cx, node, elements.without((0..weight.len()).filter(|place| is_signed(*place))))
    }
}

/// The constant weight of a product, and the axis that it adds up along.
fn weight_of<'g>(cx: &View<'g>, node: &Node) -> Option<(&'g Tensor, usize)> {
    let weight = cx.constant_input(node, 1)?;
    Some((weight, summed_axis(&node.op, weight.rank())?))
}

/// Whether everything that reads a node's weight multiplies by it and adds up along the same axis.
fn is_read_alike(cx: &View<'_>, node: &Node, axis: usize) -> bool {
    let Some(id) = cx.input(node, 1) else { return false };
    let is_alike = |reader: &NodeId| {
        let reader = cx.node(*reader);
        let n_reads = reader.inputs.iter().filter(|input| **input == Some(id)).count();
        let own_axis = weight_of(cx, reader).map(|(_, axis)| axis);
        cx.input(reader, 1) == Some(id) && n_reads == 1 && own_axis == Some(axis)
    };
    !cx.is_output(id) && cx.readers(id).iter().all(is_alike)
}

/// The node with another weight.
fn with_weight(cx: &View<'_>, node: &Node, weight: Tensor) -> Match {
    let Some(id) = cx.input(node, 1) else { return Match::No };
    let mut patch = Patch::new();
    let mut inputs: Vec<Option<Operand>> = node.inputs.iter().map(|id| id.map(Operand::Old)).collect();
    inputs[1] = Some(patch.constant(cx.name(id), weight));
    patch.with_inputs(cx, node, inputs);
    Match::Rewrite(patch)
}

/// The bits of floats.
struct Elements<'a> {
    tensor: &'a Tensor,
    bytes: &'a [u8],
    size: usize,
}

impl<'a> Elements<'a> {
    fn of(tensor: &'a Tensor) -> Option<Elements<'a>> {
        let size = match tensor.dtype() {
            DType::F32 => 4,
            DType::F16 | DType::BF16 => 2,
            _ => return None,
        };
        Some(Elements { tensor, bytes: tensor.bytes(), size })
    }

    fn element(&self, place: usize) -> &'a [u8] {
        &self.bytes[place * self.size..(place + 1) * self.size]
    }

    fn is_set(&self, place: usize) -> bool {
        self.element(place).iter().any(|byte| *byte != 0)
    }

    /// The bits without the sign, which are ordered as magnitudes are.
    fn magnitude(&self, place: usize) -> u32 {
        match *self.element(place) {
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) & 0x7fff_ffff,
            [a, b] => u32::from(u16::from_le_bytes([a, b])) & 0x7fff,
            _ => 0,
        }
    }

    fn is_two_of_four(&self, axis: usize) -> bool {
        let is_large = |place: &&usize| self.magnitude(**place) != 0;
        let few = |places: &[usize]| places.iter().filter(is_large).count() <= 2;
        Fours::along(self.tensor.shape(), axis).all(few)
    }

    /// With the two largest of each four alone, the first of equal ones; `None` where they are alone already.
    fn pruned(&self, axis: usize) -> Option<Tensor> {
        if self.is_two_of_four(axis) {
            return None;
        }
        let mut gone = Vec::new();
        Fours::along(self.tensor.shape(), axis).all(|places| {
            let mut by_magnitude = places.to_vec();
            by_magnitude.sort_by_key(|place| std::cmp::Reverse(self.magnitude(*place)));
            gone.extend(by_magnitude.into_iter().skip(2));
            true
        });
        Some(self.without(gone.into_iter()))
    }

    /// With zeros at these places.
    fn without(&self, places: impl Iterator<Item = usize>) -> Tensor {
        let mut bytes = self.bytes.to_vec();
        places.for_each(|place| bytes[place * self.size..(place + 1) * self.size].fill(0));
        Tensor::from_bytes(self.tensor.dtype(), self.tensor.shape(), Bytes::from_vec(bytes))
            .expect("as many bytes as before")
    }
}

/// The products whose weights `after` has by the same names as `before` with fewer elements, and which part of a weight's
/// norm is left.
pub fn kept_norms(before: &Graph, after: &Graph) -> Vec<(String, f64)> {
    let cx = View::new(after);
    let norm = |tensor: &Tensor| tensor.to_f64s().iter().map(|x| x * x).sum::<f64>().sqrt();
    let kept = |node: &Node| {
        let (weight, _) = weight_of(&cx, node)?;
        let name = cx.input(node, 1).map(|id| cx.name(id))?;
        let whole =
            before.values().find_map(|(_, value)| value.constant().filter(|_| &*value.name == name))?;
        let is_pruned = whole.shape() == weight.shape() && whole != weight;
        is_pruned.then(|| norm(weight) / norm(whole).max(f64::MIN_POSITIVE))
    };
    let nodes = after.nodes().map(|(_, node)| node);
    nodes.filter_map(|node| Some((cx.label(node).to_string(), kept(node)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{check, graph, run};
    use expect_test::expect;
    use planish_op::two_of_four::is_two_of_four;

    #[test]
    fn the_two_largest_of_four_stay() {
        // Sums go along the rows of %w and along the columns of %v, which have 16 elements each, all but four of them zero.
        let zeros = "0,0,0,0, 0,0,0,0, 0,0,0,0";
        check(
            PruneWeights,
            &format!(
                "input %x: f32[2,16] const %w: f32[16,1] = [1,-3,0.5,2, {zeros}] \
                 const %v: f16[1,16] = [4,4,4,-4, {zeros}] input %z: f16[2,16] \
                 %a: f32[2,1] = MatMul(%x, %w) \"a\" %b: f16[2,1] = Gemm(%z, %v) {{trans_b=true}} \"b\" output %a, %b"
            ),
            expect![[r#"
                input %x: f32[2,16]
                input %z: f16[2,16]
                const %w: f32[16,1] = [0, -3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
                const %v: f16[1,16] = [4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
                %a: f32[2,1] = MatMul(%x, %w) "a"
                %b: f16[2,1] = Gemm(%z, %v) {trans_b=true} "b"
                output %a, %b
            "#]],
        );
    }

    #[test]
    fn what_stays_dense_says_why() {
        let ones = |n: usize| vec!["1"; n].join(",");
        let text = format!(
            "input %x: f32[2,3] const %w: f32[3,1] = [{}] %a: f32[2,1] = MatMul(%x, %w) \"short\" \
             input %y: f32[16,16] const %v: f32[16,16] = [{}] %b: f32[16,16] = MatMul(%y, %v) \"shared\" \
             %c: f32[16,16] = Add(%b, %v) output %a, %c",
            ones(3),
            ones(256)
        );
        let (_, report) = run(Pass::rule(PruneWeights), &text);
        let reasons: Vec<&str> = report.refusals.iter().map(|refusal| refusal.reason.as_str()).collect();
        assert_eq!(report.hits, 0);
        assert_eq!(reasons, ["it adds up few products", "others read its weights otherwise"]);
    }

    #[test]
    fn channels_of_convolutions_are_pruned_and_the_norm_is_told() {
        let numbers: Vec<String> = (0..2 * 16 * 9).map(|i| format!("{}", i * 37 % 101)).collect();
        let text = format!(
            "input %x: f32[1,16,5,5] const %w: f32[2,16,3,3] = [{}] %y: f32[1,2,3,3] = Conv(%x, %w) \"conv\" output %y",
            numbers.join(",")
        );
        let (after, report) = run(Pass::rule(PruneWeights), &text);
        assert_eq!(report.hits, 1);
        let weight = after.values().find_map(|(_, value)| value.constant()).unwrap();
        assert!(is_two_of_four(weight, 1) && !is_two_of_four(weight, 2));
        let kept = kept_norms(&graph(&text), &after);
        assert_eq!(kept.len(), 1);
        // Of four numbers that are spread evenly the two largest have most of the squares.
        assert!(kept[0].0 == "conv" && (0.9..0.99).contains(&kept[0].1), "{kept:?}");
        assert!(kept_norms(&after, &after).is_empty());
    }

    #[test]
    fn zeros_lose_their_sign_where_weights_are_sparse() {
        check(
            PlainZeros,
            "input %x: f32[2,4] const %w: f32[4,1] = [1,-0.0,2,-0.0] const %v: f32[4,1] = [1,-0.0,2,3] \
             %a: f32[2,1] = MatMul(%x, %w) \"a\" %b: f32[2,1] = MatMul(%x, %v) \"b\" output %a, %b",
            expect![[r#"
                input %x: f32[2,4]
                const %v: f32[4,1] = [1, -0, 2, 3]
                const %w: f32[4,1] = [1, 0, 2, 0]
                %a: f32[2,1] = MatMul(%x, %w) "a"
                %b: f32[2,1] = MatMul(%x, %v) "b"
                output %a, %b
            "#]],
        );
    }
}
