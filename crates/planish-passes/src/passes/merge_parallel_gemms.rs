//! Makes one wide layer of several that read the same value: products with constant weights (query, key and
//! value projections) and convolutions with equal windows. A Split hands each reader its part.
//!
//! The input is read and packed once, and narrow layers fill the machine together. An activation that all of
//! them end with goes along; where one is finished by arithmetic of its own (a residual sum), nothing is merged:
//! a kernel does that for free where it stores the layer's output, and after a Split it cannot.

use std::collections::HashMap;

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Add, Concat, Gemm, Op, Split, Value};
use planish_tensor::{DType, Tensor};

use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::view::View;

/// Terms of each sum below which taking the result apart costs more than reading the input once saves: a
/// product of depth 32 does 64 operations for each element that a Split may have to move.
const MIN_DEPTH: usize = 32;
/// Columns from which a layer fills the machine alone.
const MAX_COLUMNS: usize = 1024;

/// Parallel MatMul, Gemm and Conv.
pub(crate) struct MergeParallelGemms;

impl Sweep for MergeParallelGemms {
    fn name(&self) -> &'static str {
        "merge_parallel_gemms"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let mut groups: HashMap<Key, Vec<Branch<'_>>> = HashMap::new();
        let mut order = Vec::new();
        for (id, node) in cx.graph().nodes() {
            let Some((key, branch)) = branch(cx, id, node) else { continue };
            let group = groups.entry(key.clone()).or_default();
            if group.is_empty() {
                order.push(key);
            }
            group.push(branch);
        }
        for key in order {
            let Some(branches) = groups.remove(&key).filter(|branches| branches.len() > 1) else { continue };
            let root = branches[0].id;
            if branches.iter().any(|branch| branch.is_finished_later) {
                let reason = "a layer is finished by arithmetic of its own, which is free there";
                proposals.add(root, Match::blocked(reason));
            } else if key.depth < MIN_DEPTH {
                proposals.add(root, Match::blocked("the sums are too short to make up for a Split"));
            } else if branches.iter().any(|branch| branch.n_columns > MAX_COLUMNS) {
                proposals.add(root, Match::blocked("each layer is wide enough alone"));
            } else if let Some(patch) = merge(cx, &key, &branches) {
                proposals.add(root, Match::Rewrite(patch));
            }
        }
    }
}

/// What layers must have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    input: ValueId,
    /// The operator with its attributes.
    op: String,
    dtype: DType,
    /// The weight's shape without the columns.
    shape: Vec<usize>,
    has_bias: bool,
    /// The activation after the layer with its attributes, and its further inputs.
    activation: Option<(String, Vec<Option<ValueId>>)>,
    /// Terms of each sum.
    depth: usize,
}

struct Branch<'g> {
    id: NodeId,
    node: &'g Node,
    weight: &'g Tensor,
    bias: Option<&'g Tensor>,
    n_columns: usize,
    activation: Option<&'g Node>,
    /// The layer's output, after its bias and activation.
    output: ValueId,
    /// Whether elementwise arithmetic reads the output.
    is_finished_later: bool,
}

fn branch<'g>(cx: &View<'g>, id: NodeId, node: &'g Node) -> Option<(Key, Branch<'g>)> {
    let (input, weight) = (cx.input(node, 0)?, cx.constant_input(node, 1)?);
    let mut output = (*node.outputs.first()?)?;
    let (column_axis, depth) = match &node.op {
        Op::Conv(op) if op.group == 1 && weight.rank() > 2 => (0, weight.shape()[1..].iter().product()),
        Op::MatMul(_) if weight.rank() == 2 && cx.constant(input).is_none() => (1, weight.shape()[0]),
        Op::Gemm(op) if is_plain(op) && weight.rank() == 2 => (1, weight.shape()[0]),
        _ => return None,
    };
    let n_columns = weight.shape()[column_axis];
    let bias = match (&node.op, cx.input(node, 2)) {
        (Op::MatMul(_), _) => match added(cx, output, n_columns) {
            Some((bias, sum)) => {
                output = sum;
                Some(bias)
            }
            None => None,
        },
        (_, Some(bias)) => Some(cx.constant(bias).filter(|bias| bias.shape() == [n_columns])?),
        (_, None) => None,
    };
    let activation = cx.sole_reader(output).map(|(_, reader)| reader).filter(|reader| reader.op.is_unary());
    if let Some(&Some(after)) = activation.and_then(|activation| activation.outputs.first()) {
        output = after;
    }
    let is_finished_later = cx.readers(output).iter().any(|reader| {
        let op = &cx.node(*reader).op;
        op.is_unary() || op.is_broadcast()
    });
    let mut shape = weight.shape().to_vec();
    shape.remove(column_axis);
    let key = Key {
        input,
        op: format!("{:?}", node.op),
        dtype: weight.dtype(),
        shape,
        has_bias: bias.is_some(),
        activation: activation.map(|node| (format!("{:?}", node.op), node.inputs[1..].to_vec())),
        depth,
    };
    Some((key, Branch { id, node, weight, bias, n_columns, activation, output, is_finished_later }))
}

fn is_plain(op: &Gemm) -> bool {
    op.alpha == 1.0 && op.beta == 1.0 && !op.trans_a && !op.trans_b
}

/// The constant row that the only reader of a product adds to it, and the sum.
fn added<'g>(cx: &View<'g>, product: ValueId, n_columns: usize) -> Option<(&'g Tensor, ValueId)> {
    let (_, reader) = cx.sole_reader(product)?;
    let (Op::Add(_), &[Some(left), Some(right)]) = (&reader.op, &reader.inputs[..]) else { return None };
    let row = cx.constant(if left == product { right } else { left })?;
    (row.shape() == [n_columns]).then_some((row, (*reader.outputs.first()?)?))
}

fn merge(cx: &View<'_>, key: &Key, branches: &[Branch<'_>]) -> Option<Patch> {
    let first = &branches[0];
    let is_conv = matches!(first.node.op, Op::Conv(_));
    let weights: Vec<&Tensor> = branches.iter().map(|branch| branch.weight).collect();
    let weight = joined(&weights, if is_conv { 0 } else { 1 })?;
    let mut patch = Patch::new();
    branches.iter().for_each(|branch| patch.relies_on(branch.id));
    let name = |place: usize| cx.input(first.node, place).map_or("", |id| cx.name(id));
    let mut inputs: Vec<Operand> = vec![key.input.into(), patch.constant(name(1), weight)];
    let biases: Vec<&Tensor> = branches.iter().filter_map(|branch| branch.bias).collect();
    let bias = match biases.is_empty() {
        true => None,
        false => Some(patch.constant(&format!("{}.bias", first.node.name), joined(&biases, 0)?)),
    };
    let is_product = matches!(first.node.op, Op::MatMul(_));
    inputs.extend(bias.filter(|_| !is_product));
    let mut wide = patch.node(&first.node.name, first.node.op.clone(), &inputs);
    if let Some(bias) = bias.filter(|_| is_product) {
        wide = patch.node(&first.node.name, Add {}, &[wide, bias]);
    }
    if let Some(activation) = first.activation {
        let rest = activation.inputs[1..].iter().map(|id| id.map(Operand::from));
        let inputs = [Some(wide)].into_iter().chain(rest).collect();
        wide = patch.node_with(&activation.name, activation.op.clone(), inputs, 1)[0];
    }
    let sizes = branches.iter().map(|branch| branch.n_columns as i64).collect();
    let sizes = patch.constant(&format!("{}.sizes", first.node.name), Tensor::vector::<i64>(sizes));
    let axis = if is_conv { 1 } else { cx.rank(first.output)? as i64 - 1 };
    let split = Split { num_outputs: None, axis };
    let parts = patch.node_with(
        &format!("{}.split", first.node.name),
        split,
        vec![Some(wide), Some(sizes)],
        branches.len(),
    );
    for (branch, part) in branches.iter().zip(parts) {
        patch.replace(branch.output, part);
    }
    Some(patch)
}

fn joined(tensors: &[&Tensor], axis: i64) -> Option<Tensor> {
    let values: Vec<Value> = tensors.iter().map(|&tensor| tensor.clone().into()).collect();
    let operands: Vec<Option<&Value>> = values.iter().map(Some).collect();
    let joined = planish_reference::evaluate(&Concat { axis }.into(), &operands, 1).ok()?;
    joined.first()?.as_tensor().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{assert_same_outputs, graph, run};

    /// A constant of this shape whose elements count upwards in quarters.
    fn weight(name: &str, shape: &[usize]) -> String {
        let count: usize = shape.iter().product();
        let numbers: Vec<String> = (0..count).map(|n| format!("{}", (n % 17) as f32 * 0.25 - 2.0)).collect();
        format!("const %{name}: f32{shape:?} = [{}] ", numbers.join(", "))
    }

    /// Names of the operators left; outputs are checked to be the same.
    fn merged(text: &str) -> (Vec<String>, Vec<String>) {
        let (after, report) = run(Pass::sweep(MergeParallelGemms), text);
        assert_same_outputs(&graph(text), &after);
        let ops = after.nodes().map(|(_, node)| format!("{} {}", node.op.name(), node.name)).collect();
        (ops, report.refusals.into_iter().map(|refusal| refusal.reason).collect())
    }

    #[test]
    fn projections_become_one() {
        let text = weight("q", &[32, 2])
            + &weight("k", &[32, 3])
            + &weight("b", &[2])
            + &weight("c", &[3])
            + "input %x: f32[n,s,32] %p: f32[n,s,2] = MatMul(%x, %q) \"q\" %r: f32[n,s,3] = MatMul(%x, %k) \"k\" \
               %s: f32[n,s,2] = Add(%p, %b) %t: f32[n,s,3] = Add(%c, %r) output %s, %t";
        assert_eq!(merged(&text).0, ["MatMul q", "Add q", "Split q.split"]);
    }

    #[test]
    fn gemms_and_convolutions_become_one() {
        let text = weight("v", &[32, 2])
            + &weight("w", &[32, 2])
            + &weight("b", &[2])
            + "input %x: f32[n,32] %p: f32[n,2] = Gemm(%x, %v, %b) \"p\" %r: f32[n,2] = Gemm(%x, %w, %b) \"r\" \
               %s: f32[n,2] = Relu(%p) \"s\" %t: f32[n,2] = Relu(%r) %y: f32[n,2] = MatMul(%s, %u) %z: f32[n,2] = MatMul(%t, %u) output %y, %z";
        let text = weight("u", &[2, 2]) + &text;
        assert_eq!(merged(&text).0, ["Gemm p", "Relu s", "Split p.split", "MatMul ", "MatMul "]);
        let text = weight("v", &[2, 16, 2])
            + &weight("w", &[3, 16, 2])
            + "input %x: f32[2,16,5] %p: f32[2,2,4] = Conv(%x, %v) \"p\" %r: f32[2,3,4] = Conv(%x, %w) \"r\" output %p, %r";
        assert_eq!(merged(&text).0, ["Conv p", "Split p.split"]);
    }

    #[test]
    fn what_differs_or_does_not_pay_stays() {
        let text = weight("v", &[2, 16, 2])
            + &weight("w", &[3, 16, 2])
            + "input %x: f32[2,16,5] %p: f32[2,2,4] = Conv(%x, %v) %r: f32[2,3,6] = Conv(%x, %w) {pads=[1,1]} output %p, %r";
        assert_eq!(merged(&text), (vec!["Conv ".to_string(), "Conv ".into()], vec![]));
        let text = weight("v", &[32, 2])
            + &weight("w", &[32, 2])
            + "input %x: f32[n,32] input %z: f32[n,2] %p: f32[n,2] = MatMul(%x, %v) %r: f32[n,2] = MatMul(%x, %w) \
               %s: f32[n,2] = Add(%p, %z) output %s, %r";
        assert_eq!(merged(&text).1, ["a layer is finished by arithmetic of its own, which is free there"]);
        let text = weight("v", &[4, 2])
            + &weight("w", &[4, 2])
            + "input %x: f32[n,4] %p: f32[n,2] = MatMul(%x, %v) %r: f32[n,2] = MatMul(%x, %w) output %p, %r";
        assert_eq!(merged(&text).1, ["the sums are too short to make up for a Split"]);
        let text = weight("v", &[32, 1025])
            + &weight("w", &[32, 2])
            + "input %x: f32[n,32] %p: f32[n,1025] = MatMul(%x, %v) %r: f32[n,2] = MatMul(%x, %w) output %p, %r";
        assert_eq!(merged(&text).1, ["each layer is wide enough alone"]);
    }
}
