//! Computes once what is computed twice: equal constants become one, and so do equal nodes over equal inputs.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use planish_ir::{Node, NodeId, ValueId, is_function};
use planish_op::Op;
use planish_tensor::{DType, Tensor};

use crate::rule::{Match, Patch, Proposals, Sweep};
use crate::view::View;

/// Equal constants and equal nodes.
pub(crate) struct ShareCommonSubexpressions;

impl Sweep for ShareCommonSubexpressions {
    fn name(&self) -> &'static str {
        "share_common_subexpressions"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let graph = cx.graph();
        let mut first: Vec<ValueId> = graph.values().map(|(id, _)| id).collect();
        share_constants(cx, &mut first, proposals);
        let mut seen: HashMap<Key<'_>, Vec<NodeId>> = HashMap::new();
        for (id, node) in graph.nodes() {
            // An Identity is where an output must have a node of its own.
            if !is_function(&node.op) || matches!(node.op, Op::Identity(_)) {
                continue;
            }
            let candidates = seen.entry(key(node, &first)).or_default();
            let same = candidates.iter().find(|other| is_same(graph.node(**other), node));
            let Some(&same) = same else {
                candidates.push(id);
                continue;
            };
            let mut patch = Patch::new();
            for (old, with) in node.outputs.iter().zip(&graph.node(same).outputs) {
                if let (Some(old), Some(with)) = (old, with) {
                    patch.replace(*old, *with);
                    first[old.index()] = first[with.index()];
                }
            }
            proposals.add(id, Match::Rewrite(patch));
        }
    }
}

/// What equal nodes have in common; attributes are compared beside it.
#[derive(PartialEq, Eq, Hash)]
struct Key<'g> {
    op: &'g str,
    inputs: Vec<Option<ValueId>>,
    n_outputs: usize,
}

fn key<'g>(node: &'g Node, first: &[ValueId]) -> Key<'g> {
    let mut inputs: Vec<Option<ValueId>> =
        node.inputs.iter().map(|input| input.map(|input| first[input.index()])).collect();
    if matches!(node.op, Op::Add(_) | Op::Mul(_) | Op::And(_) | Op::Or(_) | Op::Xor(_) | Op::Equal(_)) {
        inputs.sort_unstable();
    }
    Key { op: node.op.name(), inputs, n_outputs: node.outputs.len() }
}

/// Whether `first` gives all that `second` does. Attributes are compared bit by bit, so -0 is not 0.
fn is_same(first: &Node, second: &Node) -> bool {
    let gives = |(first, second): (&Option<ValueId>, &Option<ValueId>)| first.is_some() || second.is_none();
    first.op.attributes() == second.op.attributes() && first.outputs.iter().zip(&second.outputs).all(gives)
}

/// Different constants of one type whose sampled bytes are equal.
type Constants<'g> = Vec<(ValueId, &'g Tensor)>;

/// Replaces constants by the first that is equal, all in one patch.
fn share_constants(cx: &View<'_>, first: &mut [ValueId], proposals: &mut Proposals) {
    let mut seen: HashMap<(DType, &[usize], u64), Constants<'_>> = HashMap::new();
    let mut patch = Patch::new();
    let mut root = None;
    for (id, value) in cx.graph().values() {
        let (Some(tensor), Some(&reader)) = (value.constant(), cx.readers(id).first()) else { continue };
        if cx.is_output(id) {
            continue;
        }
        let candidates = seen.entry((tensor.dtype(), tensor.shape(), fingerprint(tensor))).or_default();
        match candidates.iter().find(|(_, other)| *other == tensor) {
            Some(&(same, _)) => {
                first[id.index()] = same;
                patch.replace(id, same);
                // A patch belongs to a node: one that reads a constant.
                root = Some(reader);
            }
            None => candidates.push((id, tensor)),
        }
    }
    if let Some(root) = root {
        proposals.add(root, Match::Rewrite(patch));
    }
}

/// Bytes of a constant that are hashed: weights differ in the first few, and equality is checked anyway.
const SAMPLE: usize = 64;

fn fingerprint(tensor: &Tensor) -> u64 {
    let bytes = tensor.bytes();
    let mut hasher = DefaultHasher::new();
    bytes.iter().take(SAMPLE).for_each(|byte| byte.hash(&mut hasher));
    bytes.iter().rev().take(SAMPLE).for_each(|byte| byte.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::check_pass;
    use expect_test::expect;

    fn check(before: &str, after: expect_test::Expect) {
        check_pass(Pass::sweep(ShareCommonSubexpressions), before, after);
    }

    #[test]
    fn equal_chains_over_equal_constants_are_computed_once() {
        check(
            "input %x: f32[2] const %a: f32[2] = [1, 2] const %b: f32[2] = [1, 2] const %c: f32[2] = [1, -2] \
             %p: f32[2] = Add(%x, %a) \"p\" %q: f32[2] = Add(%b, %x) \"q\" %r: f32[2] = Add(%x, %c) \"r\" \
             %s: f32[2] = Relu(%p) %t: f32[2] = Relu(%q) %y: f32[2] = Sum(%s, %t, %r) output %y",
            expect![[r#"
                input %x: f32[2]
                const %a: f32[2] = [1, 2]
                const %c: f32[2] = [1, -2]
                %p: f32[2] = Add(%x, %a) "p"
                %r: f32[2] = Add(%x, %c) "r"
                %s: f32[2] = Relu(%p)
                %y: f32[2] = Sum(%s, %s, %r)
                output %y
            "#]],
        );
    }

    #[test]
    fn different_attributes_zeros_and_random_numbers_stay_apart() {
        check(
            "input %x: f32[2] const %a: f32[1] = [0] const %b: f32[1] = [-0.0] %p: f32[2] = Add(%x, %a) \
             %q: f32[2] = Add(%x, %b) %r: f32[2] = Elu(%x) {alpha=0.5} %s: f32[2] = Elu(%x) {alpha=0.25} \
             %t: f32[2] = RandomNormalLike(%x) %u: f32[2] = RandomNormalLike(%x) \
             %v: f32[2] = Sub(%p, %q) %w: f32[2] = Sub(%q, %p) \
             %y: f32[2] = Sum(%p, %q, %r, %s, %t, %u, %v, %w) output %y",
            expect![[r#"
                input %x: f32[2]
                const %a: f32[1] = [0]
                const %b: f32[1] = [-0]
                %p: f32[2] = Add(%x, %a)
                %q: f32[2] = Add(%x, %b)
                %r: f32[2] = Elu(%x) {alpha=0.5}
                %s: f32[2] = Elu(%x) {alpha=0.25}
                %t: f32[2] = RandomNormalLike(%x)
                %u: f32[2] = RandomNormalLike(%x)
                %v: f32[2] = Sub(%p, %q)
                %w: f32[2] = Sub(%q, %p)
                %y: f32[2] = Sum(%p, %q, %r, %s, %t, %u, %v, %w)
                output %y
            "#]],
        );
    }

    #[test]
    fn two_equal_outputs_keep_both_names() {
        check(
            "input %x: f32[2] %y: f32[2] = Relu(%x) \"a\" %z: f32[2] = Relu(%x) \"b\" output %y, %z",
            expect![[r#"
                input %x: f32[2]
                %y: f32[2] = Relu(%x) "a"
                %z: f32[2] = Identity(%y) "b"
                output %y, %z
            "#]],
        );
    }

    #[test]
    fn an_output_that_only_the_second_gives_is_not_taken_from_the_first() {
        check(
            "input %x: f32[4] const %k: i64[1] = [1] %v: f32[1], _ = TopK(%x, %k) _, %i: i64[1] = TopK(%x, %k) output %v, %i",
            expect![[r#"
                input %x: f32[4]
                const %k: i64[1] = [1]
                %v: f32[1], _ = TopK(%x, %k)
                _, %i: i64[1] = TopK(%x, %k)
                output %v, %i
            "#]],
        );
    }
}
