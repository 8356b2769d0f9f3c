//! Removes transposes: merges neighbours, and moves whole regions of nodes that work in any layout to the layout
//! in which fewest elements are transposed.
//!
//! For each order of axes that a Transpose of the graph has, every node that can work in that layout may be
//! moved to it or stay. A value that is made on one side and read on the other must be transposed, at the
//! price of its elements. The cheapest choice is a cut of a network; it is made if it is cheaper than what
//! there is.

mod cut;
mod moves;
mod sides;

use std::collections::{BTreeSet, HashMap};

use planish_ir::{Node, NodeId, ValueId};
use planish_op::{Op, Reshape};
use planish_tensor::{Dim, Shape, Tensor};

use crate::reshape::target;
use crate::rule::{Match, Operand, Patch, Proposals, Sweep};
use crate::transpose::{after, inverse, is_identity, transpose_op, transposed};
use crate::view::View;
use cut::{NEVER, Network, SINK, SOURCE};
use moves::{Input, Moved, moved};
use sides::sides;

/// Orders of axes that are tried in one sweep; more are only in hostile graphs.
const MAX_ORDERS: usize = 16;
/// What a symbolic dimension counts in the price of a value: sizes of a batch and of a sequence are about it.
const ASSUMED_SIZE: u64 = 16;

/// Transposes of every kind.
pub(crate) struct PushTransposes;

impl Sweep for PushTransposes {
    fn name(&self) -> &'static str {
        "push_transposes"
    }

    fn propose(&self, cx: &View<'_>, proposals: &mut Proposals) {
        let transposes =
            || cx.graph().nodes().filter_map(|(id, node)| Some((id, node, transposed(cx, node)?.1)));
        let mut orders = BTreeSet::new();
        for (id, node, perm) in transposes() {
            match merged(cx, node, &perm) {
                Some(patch) => proposals.add(id, Match::Rewrite(patch)),
                None => {
                    orders.insert(perm);
                }
            }
        }
        // A region is moved on what is left when no two transposes meet.
        if proposals.patches.is_empty() {
            for perm in orders.into_iter().take(MAX_ORDERS) {
                Region { cx, perm: &perm }.propose(proposals);
            }
        }
        // Last: as long as it is a Transpose, a region may be moved to where it is none.
        if proposals.patches.is_empty() {
            for (id, node, perm) in transposes() {
                if let Some(patch) = reshaped(cx, node, &perm) {
                    proposals.add(id, Match::Rewrite(patch));
                }
            }
        }
    }
}

/// Whether axes of size 1 are all that a Transpose to this shape moves.
fn moves_units_only(perm: &[usize], after: &Shape) -> bool {
    perm.iter().zip(after.iter()).filter(|(_, dim)| **dim != Dim::ONE).is_sorted_by_key(|(axis, _)| *axis)
}

/// Two transposes as one or none.
fn merged(cx: &View<'_>, node: &Node, perm: &[usize]) -> Option<Patch> {
    let (input, output) = (cx.input(node, 0)?, (*node.outputs.first()?)?);
    let (source, first) = cx.producer(input).and_then(|(_, before)| transposed(cx, before))?;
    let both = after(&first, perm);
    let can_vanish = !cx.is_output(output) || cx.can_become_output(source);
    let mut patch = Patch::new();
    let new = match is_identity(&both) && can_vanish {
        true => Operand::from(source),
        false => patch.node(&node.name, transpose_op(&both), &[source.into()]),
    };
    patch.replace(output, new);
    Some(patch)
}

/// A Transpose that moves axes of size 1 only as a Reshape.
fn reshaped(cx: &View<'_>, node: &Node, perm: &[usize]) -> Option<Patch> {
    let (input, output) = (cx.input(node, 0)?, (*node.outputs.first()?)?);
    let shape = cx.shape(input)?;
    if !moves_units_only(perm, cx.shape(output)?) || is_identity(perm) {
        return None;
    }
    let mut patch = Patch::new();
    let numbers =
        target(shape, cx.shape(output)?.dims()).ok().filter(|_| !shape.dims().contains(&Dim::ZERO))?;
    let constant = patch.constant(&format!("{}.shape", node.name), Tensor::vector(numbers));
    let new = patch.node(&node.name, Reshape { allowzero: false }, &[input.into(), constant]);
    patch.replace(output, new);
    Some(patch)
}

/// The nodes that may move to the layout from which a Transpose by `perm` makes the present one.
struct Region<'a, 'g> {
    cx: &'a View<'g>,
    perm: &'a [usize],
}

impl Region<'_, '_> {
    fn propose(&self, proposals: &mut Proposals) {
        let nodes = self.cx.graph().nodes();
        let movable: HashMap<NodeId, Moved> =
            nodes.filter_map(|(id, node)| Some((id, moved(self.cx, node, self.perm)?))).collect();
        if movable.is_empty() {
            return;
        }
        let order = || self.cx.graph().nodes().map(|(id, _)| id);
        let mut is_moved = false;
        for sides in sides(self.cx, self.perm, &movable) {
            let cheaper = sides.iter().filter_map(|ids| {
                let (present, best, chosen) = self.choose(ids, &movable);
                (best < present && !chosen.is_empty()).then_some((present - best, chosen))
            });
            // The first of equals, so that equal choices do not differ from run to run.
            let Some((_, chosen)) = cheaper.reduce(|a, b| if b.0 > a.0 { b } else { a }) else { continue };
            let chosen: Vec<NodeId> = order().filter(|id| chosen.contains(id)).collect();
            if let (Some(&first), Some(patch)) = (chosen.first(), self.patch(&chosen, &movable)) {
                proposals.add(first, Match::Rewrite(patch));
                is_moved = true;
            }
        }
        let touching = || order().find(|id| movable.contains_key(id) && self.touches_transpose(*id));
        if let Some(first) = touching().filter(|_| !is_moved) {
            let reason = "moving it to the other side of its Transpose transposes no fewer elements";
            proposals.add(first, Match::blocked(reason));
        }
    }

    fn touches_transpose(&self, id: NodeId) -> bool {
        let node = self.cx.node(id);
        let mut inputs = node.inputs.iter().flatten();
        inputs.any(|id| self.cx.producer(*id).is_some_and(|(_, node)| matches!(node.op, Op::Transpose(_))))
    }

    fn price(&self, id: ValueId) -> u64 {
        // Nothing is copied, but a Reshape is left that keeps layers apart.
        if self.cx.shape(id).is_some_and(|shape| moves_units_only(self.perm, shape)) {
            return 1;
        }
        let sizes = self.cx.shape(id).map_or(&[][..], |shape| shape.dims());
        let size = |dim: &Dim| dim.as_usize().map_or(ASSUMED_SIZE, |size| size as u64);
        // At least 1 each, so that transposes of empty values count too.
        sizes.iter().map(size).fold(1u64, u64::saturating_mul).clamp(1, NEVER >> 20)
    }

    /// What the transposes around movable nodes cost now and at best, and which nodes move for that.
    /// The nodes come in the order of the graph: another one would make equal choices differ from run to run.
    fn choose(&self, ids: &[NodeId], movable: &HashMap<NodeId, Moved>) -> (u64, u64, BTreeSet<NodeId>) {
        let mut network = Network::new();
        let mut present = 0u64;
        let vertex: HashMap<NodeId, usize> = ids.iter().map(|&id| (id, network.vertex())).collect();
        let mut values: BTreeSet<ValueId> = BTreeSet::new();
        for id in ids {
            values.extend(self.cx.node(*id).outputs.iter().flatten());
            values.extend(movable[id].relaid());
        }
        for value in values {
            let price = self.price(value);
            let maker = match self.cx.producer(value) {
                Some((id, _)) if vertex.contains_key(&id) => vertex[&id],
                Some((_, node)) => match transposed(self.cx, node) {
                    Some((_, perm)) if perm == self.perm => SOURCE,
                    // A Transpose of another order is one in either layout.
                    Some(_) => network.vertex(),
                    None => SINK,
                },
                None => SINK,
            };
            let mut readers: Vec<usize> = Vec::new();
            for &reader in self.cx.readers(value) {
                match (vertex.get(&reader), transposed(self.cx, self.cx.node(reader))) {
                    (Some(&vertex), _) => readers.push(vertex),
                    (None, Some((_, perm))) if is_identity(&after(self.perm, &perm)) => readers.push(SOURCE),
                    (None, Some(_)) => {}
                    (None, None) => readers.push(SINK),
                }
            }
            if self.cx.is_output(value) {
                readers.push(SINK);
            }
            // The present layout is the sink's side for everything that can move.
            let now = |vertex: usize| vertex == SOURCE;
            let is_crossed = |side: bool| readers.iter().any(|&reader| now(reader) == side);
            present += price * u64::from(if now(maker) { is_crossed(false) } else { is_crossed(true) });
            let (there, back) = (network.vertex(), network.vertex());
            network.edge(maker, there, price);
            network.edge(back, maker, price);
            for reader in readers {
                network.edge(there, reader, NEVER);
                network.edge(reader, back, NEVER);
            }
        }
        let (best, side) = network.cut();
        let chosen = ids.iter().copied().filter(|id| side[vertex[id]]).collect();
        (present, best, chosen)
    }

    fn patch(&self, chosen: &[NodeId], movable: &HashMap<NodeId, Moved>) -> Option<Patch> {
        let cx = self.cx;
        let mut patch = Patch::new();
        // Values in the other layout.
        let mut relaid: HashMap<ValueId, Operand> = HashMap::new();
        let back = inverse(self.perm);
        for &id in chosen {
            let (node, moved) = (cx.node(id), &movable[&id]);
            patch.relies_on(id);
            let mut inputs = Vec::with_capacity(moved.inputs.len());
            for input in &moved.inputs {
                inputs.push(match input {
                    None => None,
                    Some(Input::Same(id)) => Some(Operand::from(*id)),
                    Some(Input::Fresh(id, tensor)) => Some(patch.constant(cx.name(*id), tensor.clone())),
                    Some(Input::Relaid(value)) => Some(match relaid.get(value) {
                        Some(known) => *known,
                        None => {
                            let new = self.entry(&mut patch, *value, &back);
                            relaid.insert(*value, new);
                            new
                        }
                    }),
                });
            }
            let outputs = patch.node_with(&node.name, moved.op.clone(), inputs, node.outputs.len());
            for (old, new) in node.outputs.iter().zip(outputs) {
                if let Some(old) = old {
                    relaid.insert(*old, new);
                }
            }
        }
        for &id in chosen {
            for &old in cx.node(id).outputs.iter().flatten() {
                self.exit(&mut patch, old, *relaid.get(&old)?, chosen);
            }
        }
        Some(patch)
    }

    /// A value from outside in the other layout.
    fn entry(&self, patch: &mut Patch, value: ValueId, back: &[usize]) -> Operand {
        let before = self.cx.producer(value);
        match before.and_then(|(_, node)| Some((node, transposed(self.cx, node)?))) {
            Some((node, (source, first))) => {
                let both = after(&first, back);
                match is_identity(&both) {
                    true => source.into(),
                    false => patch.node(&node.name, transpose_op(&both), &[source.into()]),
                }
            }
            None => {
                let name = format!("{}.transposed", self.cx.name(value));
                patch.node(&name, transpose_op(back), &[value.into()])
            }
        }
    }

    /// Gives the readers of a moved value that did not move themselves what they read.
    fn exit(&self, patch: &mut Patch, old: ValueId, new: Operand, chosen: &[NodeId]) {
        let cx = self.cx;
        let mut is_read = cx.is_output(old);
        for &reader in cx.readers(old) {
            let node = cx.node(reader);
            match (transposed(cx, node), node.outputs.first()) {
                (Some((_, second)), Some(&Some(output))) => {
                    let both = after(self.perm, &second);
                    let new = match is_identity(&both) {
                        true => new,
                        false => patch.node(&node.name, transpose_op(&both), &[new]),
                    };
                    patch.relies_on(reader);
                    patch.replace(output, new);
                }
                _ => is_read |= chosen.binary_search(&reader).is_err(),
            }
        }
        if is_read {
            let name = format!("{}.transposed", cx.name(old));
            let transposed = patch.node(&name, transpose_op(self.perm), &[new]);
            patch.replace(old, transposed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Pass;
    use crate::testing::{assert_same_outputs, check_pass, graph, run};
    use expect_test::expect;

    fn check(before: &str, after: expect_test::Expect) {
        check_pass(Pass::sweep(PushTransposes), before, after);
    }

    /// How many transposes are left; outputs are checked to be the same.
    fn left(text: &str) -> usize {
        let (after, _) = run(Pass::sweep(PushTransposes), text);
        assert_same_outputs(&graph(text), &after);
        after.nodes().filter(|(_, node)| matches!(node.op, Op::Transpose(_))).count()
    }

    #[test]
    fn a_layer_between_transposes_of_unit_axes_needs_no_reshapes() {
        // A batch of one that is moved after the tokens and back, around a layer and before a residual.
        let before = "input %x: f32[1,3,2] const %w: f32[2,2] = [1,2,3,4] const %b: f32[2] = [5,6] \
             %t: f32[3,1,2] = Transpose(%x) {perm=[1,0,2]} \"t\" %m: f32[3,1,2] = MatMul(%t, %w) \"m\" \
             %a: f32[3,1,2] = Add(%m, %b) \"a\" %u: f32[1,3,2] = Transpose(%a) {perm=[1,0,2]} \"u\" \
             %y: f32[1,3,2] = Add(%u, %x) \"y\" output %y";
        check(
            before,
            expect![[r#"
            input %x: f32[1,3,2]
            const %w: f32[2,2] = [1, 2, 3, 4]
            const %b: f32[1,1,2] = [5, 6]
            %m: f32[1,3,2] = MatMul(%x, %w) "m"
            %u: f32[1,3,2] = Add(%m, %b) "a"
            %y: f32[1,3,2] = Add(%u, %x) "y"
            output %y
        "#]],
        );
        assert_eq!(left(before), 0);
    }

    #[test]
    fn neighbours_merge_and_unit_axes_are_reshaped() {
        check(
            "input %x: f32[n,2,3] input %u: f32[1,n,4] %a: f32[3,n,2] = Transpose(%x) {perm=[2,0,1]} \
             %b: f32[2,3,n] = Transpose(%a) {perm=[2,0,1]} \"b\" %y: f32[2,3,n] = Relu(%b) \
             %z: f32[n,1,4] = Transpose(%u) {perm=[1,0,2]} \"z\" output %y, %z",
            expect![[r#"
                input %x: f32[n,2,3]
                input %u: f32[1,n,4]
                const %z.shape: i64[3] = [-1, 1, 4]
                %b: f32[2,3,n] = Transpose(%x) {perm=[1,2,0]} "b"
                %y: f32[2,3,n] = Relu(%b)
                %z: f32[n,1,4] = Reshape(%u, %z.shape) "z"
                output %y, %z
                refused at y: moving it to the other side of its Transpose transposes no fewer elements
            "#]],
        );
    }

    #[test]
    fn transposes_meet_through_a_region() {
        check(
            "input %x: f32[n,2,3,4] const %w: f32[2] = [1, 2] input %r: f32[n,2,3,4] \
             %a: f32[n,3,4,2] = Transpose(%x) {perm=[0,2,3,1]} %b: f32[n,3,4,2] = Mul(%a, %w) \"b\" \
             %c: f32[n,3,4,2] = Transpose(%r) {perm=[0,2,3,1]} %d: f32[n,3,4,2] = Add(%b, %c) \"d\" \
             %e: f32[n,3,4,2] = Relu(%d) \"e\" %y: f32[n,2,3,4] = Transpose(%e) {perm=[0,3,1,2]} \"back\" output %y",
            expect![[r#"
                input %x: f32[n,2,3,4]
                input %r: f32[n,2,3,4]
                const %w: f32[1,2,1,1] = [1, 2]
                %b: f32[n,2,3,4] = Mul(%x, %w) "b"
                %d: f32[n,2,3,4] = Add(%b, %r) "d"
                %y: f32[n,2,3,4] = Relu(%d) "e"
                output %y
            "#]],
        );
    }

    #[test]
    fn axes_follow() {
        // What makes %b from %a, and the type of %b transposed back.
        let cases = [
            ("%b: f32[n,3,4,4] = Concat(%a, %a) {axis=3}", "[n,4,3,4]"),
            ("const %k: i64[1] = [-1] %b: f32[n,3,4,1] = ReduceMean(%a, %k)", "[n,1,3,4]"),
            ("const %k: i64[8] = [0,1,2,0,0,0,0,1] %b: f32[n,4,6,3] = Pad(%a, %k)", "[n,3,4,6]"),
            (
                "const %k: i64[2] = [1,2] const %l: i64[1] = [1] %b: f32[n,6,4,2] = Pad(%a, %k, _, %l)",
                "[n,2,6,4]",
            ),
            (
                "const %k: i64[2] = [0,1] const %l: i64[2] = [9,3] %b: f32[n,2,4,2] = Slice(%a, %k, %l)",
                "[n,2,2,4]",
            ),
            (
                "const %k: i64[1] = [1] const %l: i64[1] = [3] const %m: i64[1] = [2] %b: f32[n,3,2,2] = Slice(%a, %k, %l, %m)",
                "[n,2,3,2]",
            ),
            ("const %s: f32[4] = [1,2,2,1] %b: f32[n,6,8,2] = Resize(%a, _, %s)", "[n,2,6,8]"),
            ("%b: f32[n,3,4,2] = Softmax(%a) {axis=1}", "[n,2,3,4]"),
            (
                "const %s: f32[2] = [0.5, 0.25] const %z: u8[2] = [1, 2] %q: u8[n,3,4,2] = QuantizeLinear(%a, %s, %z) {axis=3} \
                 %b: f32[n,3,4,2] = DequantizeLinear(%q, %s, %z) {axis=-1}",
                "[n,2,3,4]",
            ),
            ("const %t: i64[4] = [1,2,1,3] %b: f32[n,6,4,6] = Tile(%a, %t)", "[n,6,6,4]"),
            ("%b: f32[n,3,4,1], %c: f32[n,3,4,1] = Split(%a) {axis=3, num_outputs=2}", "[n,1,3,4]"),
            ("%m: i64[n,1,4,2] = ArgMax(%a) {axis=1} %b: f32[n,1,4,2] = Cast(%m) {to=f32}", "[n,2,1,4]"),
        ];
        for (node, back) in cases {
            let text = format!(
                "input %x: f32[n,2,3,4] %a: f32[n,3,4,2] = Transpose(%x) {{perm=[0,2,3,1]}} {node} \
                 %y: f32{back} = Transpose(%b) {{perm=[0,3,1,2]}} output %y"
            );
            assert_eq!(left(&text), 0, "{text}");
        }
    }

    #[test]
    fn what_does_not_pay_stays() {
        check(
            "input %x: f32[n,2,3] const %w: f32[2,2] = [1, 2, 3, 4] %a: f32[n,3,2] = Transpose(%x) {perm=[0,2,1]} \
             %b: f32[n,3,2] = Relu(%a) \"relu\" %y: f32[n,3,2] = MatMul(%b, %w) output %y",
            expect![[r#"
                input %x: f32[n,2,3]
                const %w: f32[2,2] = [1, 2, 3, 4]
                %a: f32[n,3,2] = Transpose(%x) {perm=[0,2,1]}
                %b: f32[n,3,2] = Relu(%a) "relu"
                %y: f32[n,3,2] = MatMul(%b, %w)
                output %y
                refused at relu: moving it to the other side of its Transpose transposes no fewer elements
            "#]],
        );
        // The innermost axis of a softmax stays innermost.
        let softmax = "input %x: f32[2,3] %a: f32[3,2] = Transpose(%x) %b: f32[3,2] = Softmax(%a) \
                       %y: f32[2,3] = Transpose(%b) output %y";
        assert_eq!(left(softmax), 2);
    }

    #[test]
    fn fewer_elements_are_transposed_after_a_reduction() {
        check(
            "input %x: f32[2,3,4] const %w: f32[1,2] = [1, 2] const %k: i64[1] = [1] \
             %a: f32[2,4,3] = Transpose(%x) {perm=[0,2,1]} %b: f32[2,1,3] = ReduceMax(%a, %k) \"max\" \
             %c: f32[3,2,1] = Transpose(%b) {perm=[2,0,1]} %y: f32[3,2,2] = MatMul(%c, %w) output %y",
            expect![[r#"
                input %x: f32[2,3,4]
                const %w: f32[1,2] = [1, 2]
                const %k: i64[1] = [2]
                %max: f32[2,3,1] = ReduceMax(%x, %k) "max"
                %c: f32[3,2,1] = Transpose(%max) {perm=[1,0,2]}
                %y: f32[3,2,2] = MatMul(%c, %w)
                output %y
                refused at y: moving it to the other side of its Transpose transposes no fewer elements
            "#]],
        );
    }

    #[test]
    fn outputs_keep_their_layout() {
        let text = "input %x: f32[2,3] %a: f32[3,2] = Transpose(%x) %b: f32[3,2] = Relu(%a) \
                    %y: f32[2,3] = Transpose(%b) %z: f32[2,3] = Neg(%y) output %b, %z";
        assert_eq!(left(text), 1);
    }

    #[test]
    fn rows_of_a_transformer_stay_in_the_order_of_its_input() {
        // As in PyTorch's MultiheadAttention: the batch is moved after the sequence and back.
        let text = "input %x: f32[3,5,4] const %w: f32[4,4] = [1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2] const %g: f32[4] = [1,2,3,4] \
            %t: f32[5,3,4] = Transpose(%x) {perm=[1,0,2]} %n: f32[5,3,4] = LayerNormalization(%t, %g) \
            %m: f32[5,3,4] = MatMul(%n, %w) %y: f32[3,5,4] = Transpose(%m) {perm=[1,0,2]} output %y";
        assert_eq!(left(text), 0);
        // A product sums along the last axis, which must stay the last.
        let text = "input %x: f32[3,4,4] const %w: f32[4,4] = [1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2] \
            %t: f32[3,4,4] = Transpose(%x) {perm=[0,2,1]} %m: f32[3,4,4] = MatMul(%t, %w) \
            %y: f32[3,4,4] = Transpose(%m) {perm=[0,2,1]} output %y";
        assert_eq!(left(text), 2);
    }

    #[test]
    fn nothing_is_computed_twice() {
        let mut text = String::from(
            "input %a0: f32[b,5,2] const %w: f32[2,2] = [1,2,3,4] const %ws: f32[2,6] = [1,2,3,4,5,6,7,8,9,8,7,6] \
             const %g: f32[2] = [1,2] const %n0: i64[1] = [0] const %n2: i64[1] = [2] const %n4: i64[1] = [4] const %n6: i64[1] = [6] ",
        );
        for layer in 0..3 {
            let next = layer + 1;
            let slices: String = [("q", "%n0, %n2"), ("k", "%n2, %n4"), ("v", "%n4, %n6")]
                .iter()
                .map(|(name, bounds)| {
                    format!(
                        "%{name}s{layer}: f32[5,b,2] = Slice(%m{layer}, {bounds}, %n2) \
                         %{name}{layer}: f32[b,5,2] = Transpose(%{name}s{layer}) {{perm=[1,0,2]}} "
                    )
                })
                .collect();
            text.push_str(&format!(
                "%l{layer}: f32[b,5,2] = LayerNormalization(%a{layer}, %g) \
                 %t{layer}: f32[5,b,2] = Transpose(%l{layer}) {{perm=[1,0,2]}} \
                 %m{layer}: f32[5,b,6] = MatMul(%t{layer}, %ws) {slices} \
                 %at{layer}: f32[b,5,2] = Attention(%q{layer}, %k{layer}, %v{layer}) {{kv_num_heads=1, q_num_heads=1}} \
                 %s{layer}: f32[5,b,2] = Transpose(%at{layer}) {{perm=[1,0,2]}} %z{layer}: f32[5,b,2] = MatMul(%s{layer}, %w) \
                 %u{layer}: f32[b,5,2] = Transpose(%z{layer}) {{perm=[1,0,2]}} \
                 %b{layer}: f32[b,5,2] = Add(%a{layer}, %u{layer}) %o{layer}: f32[b,5,2] = LayerNormalization(%b{layer}, %g) \
                 %p{layer}: f32[b,5,2] = MatMul(%o{layer}, %w) %c{layer}: f32[b,5,2] = Add(%p{layer}, %g) \
                 %r{layer}: f32[b,5,2] = Gelu(%c{layer}) %a{next}: f32[b,5,2] = Add(%b{layer}, %r{layer}) "
            ));
        }
        text.push_str("output %a3");
        let (after, _) = run(Pass::sweep(PushTransposes), &text);
        let count = |wanted: fn(&Op) -> bool| after.nodes().filter(|(_, node)| wanted(&node.op)).count();
        assert_eq!(count(|op| matches!(op, Op::Transpose(_))), 0, "{after}");
        assert_eq!(count(|op| matches!(op, Op::Gelu(_))), 3, "{after}");
    }
}
