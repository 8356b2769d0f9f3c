//! Computes before a loop what each of its trips would compute again: nodes of a Loop's, Scan's or SequenceMap's body that
//! read nothing but constants and what the body captures. The body captures their results instead.
//!
//! A loop without a trip would not have computed them, so only nodes are taken that cannot fail whatever the values are:
//! those that read floats, beside constants.

use std::sync::Arc;

use planish_ir::{Declared, Graph, GraphError, NewNode, NewOutput, Node, NodeId, ValueId, is_function};
use planish_op::{Op, ValueType};

use crate::rule::{Bodies, Match, Operand, Patch, Rule};
use crate::view::View;

/// Nodes of loops that are the same in every trip.
pub(crate) struct HoistInvariants;

impl Rule for HoistInvariants {
    fn name(&self) -> &'static str {
        "hoist_invariants"
    }

    fn try_at(&self, cx: &View<'_>, id: NodeId) -> Match {
        let node = cx.node(id);
        let ([body], Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_)) = (&node.bodies[..], &node.op) else {
            return Match::No;
        };
        let invariant = Invariant::of(body, node.n_captured);
        if !invariant.has_work(body) {
            return Match::No;
        }
        match invariant.hoisted(node, body) {
            Ok(patch) => Match::Rewrite(patch),
            Err(error) => Match::blocked(format!("the body without what never changes is none: {error}")),
        }
    }
}

/// What is the same in every trip.
struct Invariant {
    /// The nodes of the body that move, by their place.
    nodes: Vec<bool>,
    /// Their results.
    values: Vec<bool>,
    /// Results that the rest of the body reads, in order.
    frontier: Vec<ValueId>,
}

impl Invariant {
    fn of(body: &Graph, n_captured: usize) -> Invariant {
        let captured = &body.inputs()[body.inputs().len() - n_captured..];
        let mut invariant = Invariant {
            nodes: vec![false; body.nodes().len()],
            values: vec![false; body.values().len()],
            frontier: Vec::new(),
        };
        let mut is_known = vec![false; body.values().len()];
        captured.iter().for_each(|id| is_known[id.index()] = true);
        let known_symbols: Vec<Arc<str>> =
            captured.iter().flat_map(|id| symbols(&body.value(*id).ty)).collect();
        for (id, node) in body.nodes() {
            let mut reads_captured = false;
            let is_same = node.inputs.iter().flatten().all(|id| {
                let value = body.value(*id);
                let is_float = value.ty.as_tensor().is_some_and(|tensor| tensor.dtype.is_float());
                reads_captured |= is_known[id.index()];
                value.constant().is_some() || (is_known[id.index()] && is_float)
            });
            // Sizes that only the node itself can tell would be unknown where it stood.
            let is_sized = |id: &ValueId| {
                let ty = &body.value(*id).ty;
                ty.as_tensor().is_some()
                    && symbols(ty).iter().all(|name| !name.contains('\'') || known_symbols.contains(name))
            };
            if is_same && reads_captured && can_move(&node.op) && node.outputs.iter().flatten().all(is_sized)
            {
                invariant.nodes[id.index()] = true;
                for id in node.outputs.iter().flatten() {
                    is_known[id.index()] = true;
                    invariant.values[id.index()] = true;
                }
            }
        }
        invariant.leave_copies(body);
        invariant
    }

    /// Leaves where they are, from the last to the first, nodes that only copy and whose result the rest of the body reads:
    /// that result may be larger than what it is a copy of.
    fn leave_copies(&mut self, body: &Graph) {
        let mut is_read = vec![false; body.values().len()];
        body.outputs().iter().for_each(|id| is_read[id.index()] = true);
        let nodes: Vec<(NodeId, &Node)> = body.nodes().collect();
        for (id, node) in nodes.into_iter().rev() {
            let mut outputs = node.outputs.iter().flatten();
            if self.nodes[id.index()] && is_copy(&node.op) && outputs.any(|id| is_read[id.index()]) {
                self.nodes[id.index()] = false;
                node.outputs.iter().flatten().for_each(|id| self.values[id.index()] = false);
            }
            if !self.nodes[id.index()] {
                node.inputs.iter().flatten().for_each(|id| is_read[id.index()] = true);
            }
        }
        let read =
            body.values().map(|(id, _)| id).filter(|id| is_read[id.index()] && self.values[id.index()]);
        self.frontier = read.collect();
    }

    /// Whether what moves computes anything.
    fn has_work(&self, body: &Graph) -> bool {
        body.nodes().any(|(id, node)| self.nodes[id.index()] && !is_copy(&node.op))
    }

    fn hoisted(&self, node: &Node, body: &Graph) -> Result<Patch, GraphError> {
        let mut patch = Patch::new();
        let n_formal = body.inputs().len() - node.n_captured;
        let n_own = node.inputs.len() - node.n_captured;
        // Outside, what the moved nodes read and make.
        let mut outside: Vec<Option<Operand>> = vec![None; body.values().len()];
        for (inner, outer) in body.inputs()[n_formal..].iter().zip(&node.inputs[n_own..]) {
            outside[inner.index()] = outer.map(Operand::Old);
        }
        for (_, moved) in body.nodes().filter(|(id, _)| self.nodes[id.index()]) {
            for id in moved.inputs.iter().flatten() {
                let value = body.value(*id);
                if let (None, Some(tensor)) = (outside[id.index()], value.constant()) {
                    outside[id.index()] = Some(patch.constant(&value.name, tensor.clone()));
                }
            }
            let inputs = moved.inputs.iter().map(|id| id.and_then(|id| outside[id.index()])).collect();
            let made = patch.node_with(&moved.name, moved.op.clone(), inputs, moved.outputs.len());
            for (id, made) in moved.outputs.iter().zip(made) {
                if let Some(id) = id {
                    patch.call(made, &body.value(*id).name);
                    outside[id.index()] = Some(made);
                }
            }
        }
        let (body, captured) = self.rest(body, n_formal)?;
        let own = node.inputs[..n_own].iter().map(|id| id.map(Operand::Old));
        let inputs = own.chain(captured.iter().map(|id| outside[id.index()])).collect();
        let bodies = Bodies { graphs: vec![body], n_captured: captured.len() };
        let made = patch.node_with_bodies(&node.name, node.op.clone(), inputs, node.outputs.len(), bodies);
        for (old, new) in node.outputs.iter().zip(made) {
            if let Some(old) = old {
                patch.replace(*old, new);
            }
        }
        Ok(patch)
    }

    /// The body without the moved nodes, and what it captures, by the values of the old body.
    fn rest(&self, old: &Graph, n_formal: usize) -> Result<(Graph, Vec<ValueId>), GraphError> {
        let mut rest = Graph::body(&old.name, old);
        let mut ids: Vec<Option<ValueId>> = vec![None; old.values().len()];
        let mut is_read = vec![false; old.values().len()];
        old.outputs().iter().for_each(|id| is_read[id.index()] = true);
        for (_, node) in old.nodes().filter(|(id, _)| !self.nodes[id.index()]) {
            node.inputs.iter().flatten().for_each(|id| is_read[id.index()] = true);
        }
        let (formals, captured) = old.inputs().split_at(n_formal);
        let read = captured.iter().chain(&self.frontier).copied().filter(|id| is_read[id.index()]);
        let captured: Vec<ValueId> = read.collect();
        for id in formals.iter().chain(&captured) {
            let value = old.value(*id);
            ids[id.index()] =
                Some(rest.add_known_input(&value.name, value.ty.clone(), value.content.clone())?);
        }
        for (id, value) in old.values().filter(|(id, _)| is_read[id.index()]) {
            if let Some(tensor) = value.constant() {
                ids[id.index()] = Some(rest.add_constant(&value.name, tensor.clone())?);
            }
        }
        for (_, node) in old.nodes().filter(|(id, _)| !self.nodes[id.index()]) {
            let output = |id: &Option<ValueId>| match id.map(|id| old.value(id)) {
                None => NewOutput::Skip,
                Some(value) => NewOutput::Value {
                    name: value.name.clone(),
                    declared: Declared::Before(value.ty.clone()),
                },
            };
            let made = rest.add_node(NewNode {
                name: node.name.clone(),
                op: node.op.clone(),
                inputs: node.inputs.iter().map(|id| id.and_then(|id| ids[id.index()])).collect(),
                outputs: node.outputs.iter().map(output).collect(),
                bodies: node.bodies.clone(),
                n_captured: node.n_captured,
            })?;
            for (old, new) in node.outputs.iter().zip(&rest.node(made).outputs) {
                if let Some(old) = old {
                    ids[old.index()] = *new;
                }
            }
        }
        rest.set_outputs(old.outputs().iter().filter_map(|id| ids[id.index()]).collect());
        Ok((rest, captured))
    }
}

fn symbols(ty: &ValueType) -> Vec<Arc<str>> {
    let dims = ty.as_tensor().and_then(|tensor| tensor.shape.as_ref()).map_or(&[][..], |shape| shape.dims());
    dims.iter().flat_map(|dim| dim.symbols()).collect()
}

/// Whether the node is a function of its inputs that takes all floats there are. A Range of floats makes as many elements
/// as their values say.
fn can_move(op: &Op) -> bool {
    is_function(op) && !matches!(op, Op::Range(_))
}

/// Whether the node makes nothing that was not there.
fn is_copy(op: &Op) -> bool {
    matches!(
        op,
        Op::Expand(_)
            | Op::Tile(_)
            | Op::Identity(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Concat(_)
            | Op::Pad(_)
            | Op::Cast(_)
            | Op::DequantizeLinear(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check, check_same};
    use expect_test::expect;

    #[test]
    fn what_reads_only_captured_floats_and_constants_moves() {
        check_same(
            HoistInvariants,
            "graph \"g\" { input %x: f32[2,3] input %s: f32[2] const %trips: i64[] = 3 const %yes: bool[] = true \
             %last: f32[2], %all: f32[steps,2] = Loop(%trips, %yes, %s; %x) \"loop\" [ graph \"body\" { \
             input %i: i64[] input %go: bool[] input %h: f32[2] input %x: f32[2,3] \
             const %w: f32[3] = [1, 2, 3] const %two: f32[] = 2 \
             %p: f32[2] = MatMul(%x, %w) \"product\" %q: f32[2] = Mul(%p, %two) \"scaled\" \
             %next: f32[2] = Add(%h, %q) \"next\" output %go, %next, %next } ] output %last, %all }",
            expect![[r#"
                input %x: f32[2,3]
                input %s: f32[2]
                const %trips: i64[] = 3
                const %yes: bool[] = true
                const %w: f32[3] = [1, 2, 3]
                const %two: f32[] = 2
                %p: f32[2] = MatMul(%x, %w) "product"
                %q: f32[2] = Mul(%p, %two) "scaled"
                %last: f32[2], %all: f32[steps,2] = Loop(%trips, %yes, %s; %q) "loop" [
                  graph "body" {
                    input %i: i64[]
                    input %go: bool[]
                    input %h: f32[2]
                    input %q: f32[2]
                    %next: f32[2] = Add(%h, %q) "next"
                    output %go, %next, %next
                  }
                ]
                output %last, %all
            "#]],
        );
    }

    #[test]
    fn what_a_trip_changes_integers_and_copies_stay() {
        check(
            HoistInvariants,
            "graph \"g\" { input %x: f32[2] input %k: i64[2] const %trips: i64[] = 3 const %yes: bool[] = true \
             %last: f32[2] = Loop(%trips, %yes, %x; %x, %k) \"loop\" [ graph \"body\" { \
             input %i: i64[] input %go: bool[] input %h: f32[2] input %x: f32[2] input %k: i64[2] \
             const %wide: i64[2] = [4, 2] const %sum: i64[1] = [0] \
             %picked: f32[2] = Gather(%x, %k) \"pick\" %wider: f32[4,2] = Expand(%x, %wide) \"expand\" \
             %all: f32[4,2] = Mul(%wider, %h) \"all\" %one: f32[1,2] = ReduceMean(%all, %sum) \"mean\" \
             %next: f32[1,2] = Add(%one, %picked) \"next\" \
             const %line: i64[1] = [2] %flat: f32[2] = Reshape(%next, %line) \"flat\" \
             output %go, %flat } ] output %last }",
            expect![[r#"
                input %x: f32[2]
                input %k: i64[2]
                const %trips: i64[] = 3
                const %yes: bool[] = true
                %last: f32[2] = Loop(%trips, %yes, %x; %x, %k) "loop" [
                  graph "body" {
                    input %i: i64[]
                    input %go: bool[]
                    input %h: f32[2]
                    input %x: f32[2]
                    input %k: i64[2]
                    const %wide: i64[2] = [4, 2]
                    const %sum: i64[1] = [0]
                    const %line: i64[1] = [2]
                    %picked: f32[2] = Gather(%x, %k) "pick"
                    %wider: f32[4,2] = Expand(%x, %wide) "expand"
                    %all: f32[4,2] = Mul(%wider, %h) "all"
                    %one: f32[1,2] = ReduceMean(%all, %sum) "mean"
                    %next: f32[1,2] = Add(%one, %picked) "next"
                    %flat: f32[2] = Reshape(%next, %line) "flat"
                    output %go, %flat
                  }
                ]
                output %last
            "#]],
        );
    }
}
