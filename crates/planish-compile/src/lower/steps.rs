//! Values and steps of a lowering: a graph as one region, and any of its nodes as a step.

use std::collections::{HashMap, HashSet};

use planish_ir::{Graph, Node, NodeId, ValueId};
use planish_kernel::{Ref, Region, RegionNode, Whole};
use planish_op::{Op, ValueType};
use planish_tensor::Tensor;

use crate::backends::HOST;
use crate::lower::{Draft, DraftKind, DraftStep, DraftValue, Source};
use crate::precision::Products;
use crate::sparsity::sparse_weights;

/// Integer constants up to this many elements are parameters (axes, shapes, pads), part of a region.
const MAX_PARAMETER: usize = 64;

/// A graph that is being lowered.
pub(super) struct Lowering<'a> {
    pub(super) graph: &'a Graph,
    pub(super) node_ids: Vec<NodeId>,
    /// Its values; steps come when they are chosen.
    pub(super) draft: Draft,
    value_of: HashMap<ValueId, usize>,
}

impl Lowering<'_> {
    pub(super) fn new(graph: &Graph, products: Products) -> Lowering<'_> {
        let node_ids = graph.nodes().map(|(id, _)| id).collect();
        let draft = Draft { products, ..Draft::default() };
        let mut lowering = Lowering { graph, node_ids, draft, value_of: HashMap::new() };
        lowering.values();
        lowering
    }

    /// Every input, weight and output of a node as a value of the draft.
    fn values(&mut self) {
        let graph = self.graph;
        for &id in graph.inputs() {
            let at = self.add(id, Source::Input);
            self.draft.inputs.push(at);
        }
        for (id, value) in graph.values() {
            if let Some(tensor) = value.constant() {
                self.add(id, Source::Weight(tensor.clone()));
            }
        }
        for (_, node) in graph.nodes() {
            for id in node.outputs.iter().flatten() {
                self.add(*id, Source::Step);
            }
        }
        self.draft.outputs = graph.outputs().iter().map(|id| self.value_of[id]).collect();
    }

    fn add(&mut self, id: ValueId, source: Source) -> usize {
        let value = self.graph.value(id);
        let at = self.draft.values.len();
        self.draft.values.push(DraftValue { name: value.name.to_string(), ty: value.ty.clone(), source });
        self.value_of.insert(id, at);
        at
    }

    /// Looks for weights that are 2:4 sparse.
    pub(super) fn find_sparse_weights(&mut self) {
        let found = sparse_weights(self.graph).into_iter();
        self.draft.sparse = found.map(|(id, axis)| (self.value_of[&id], axis)).collect();
    }

    /// The graph as one region. Its inputs are the values of the draft, by number.
    pub(super) fn whole(&self) -> Whole {
        let mut region = Region { n_inputs: self.draft.values.len() as u32, ..Region::default() };
        let mut made: HashMap<ValueId, Ref> = HashMap::new();
        let mut types = Vec::new();
        for (idx, (_, node)) in self.graph.nodes().enumerate() {
            let mut inputs = Vec::with_capacity(node.inputs.len());
            for (place, id) in node.inputs.iter().enumerate() {
                inputs.push(id.map(|id| match (made.get(&id), self.graph.value(id).constant()) {
                    (Some(reference), _) => *reference,
                    (None, Some(tensor)) if is_parameter(&node.op, place, tensor) => {
                        region.constants.push(tensor.clone());
                        Ref::Constant(region.constants.len() as u32 - 1)
                    }
                    (None, _) => Ref::Input(self.value_of[&id] as u32),
                }));
            }
            for (output, id) in node.outputs.iter().enumerate() {
                if let Some(id) = id {
                    made.insert(*id, Ref::Node { node: idx as u32, output: output as u32 });
                }
            }
            let untyped = ValueType::unranked(planish_tensor::DType::F32);
            let ty = |id: &Option<ValueId>| id.map_or(untyped.clone(), |id| self.graph.value(id).ty.clone());
            types.push(node.outputs.iter().map(ty).collect());
            region.nodes.push(RegionNode {
                name: node.name.to_string(),
                op: node.op.clone(),
                inputs,
                n_outputs: node.outputs.len() as u32,
            });
        }
        region.outputs = self.graph.outputs().iter().filter_map(|id| made.get(id).copied()).collect();
        let inputs = self.draft.values.iter().map(|value| value.ty.clone()).collect();
        let weights =
            self.draft.values.iter().map(|value| matches!(value.source, Source::Weight(_))).collect();
        Whole::new(region, inputs, weights, types)
    }

    /// A step over some nodes of the graph, ascending.
    pub(super) fn step(&self, whole: &Whole, nodes: &[u32], target: u32) -> DraftStep {
        let graph_nodes: Vec<&Node> =
            nodes.iter().map(|&node| self.graph.node(self.node_ids[node as usize])).collect();
        let mut region = Region::default();
        let mut inputs: Vec<Option<usize>> = Vec::new();
        let mut input_of: HashMap<usize, u32> = HashMap::new();
        for &node in nodes {
            let from = &whole.region.nodes[node as usize];
            let mut take = |value: usize, inputs: &mut Vec<Option<usize>>| {
                let at = *input_of.entry(value).or_insert_with(|| {
                    inputs.push(Some(value));
                    inputs.len() as u32 - 1
                });
                Ref::Input(at)
            };
            let wired = from.inputs.iter().map(|reference| {
                reference.map(|reference| match reference {
                    Ref::Constant(idx) => {
                        region.constants.push(whole.region.constants[idx as usize].clone());
                        Ref::Constant(region.constants.len() as u32 - 1)
                    }
                    Ref::Input(value) => take(value as usize, &mut inputs),
                    Ref::Node { node: producer, output } => match nodes.iter().position(|&n| n == producer) {
                        Some(inside) => Ref::Node { node: inside as u32, output },
                        None => {
                            let id =
                                self.graph.node(self.node_ids[producer as usize]).outputs[output as usize];
                            let id = id.expect("a reader's value is wanted");
                            take(self.value_of[&id], &mut inputs)
                        }
                    },
                })
            });
            let wired = wired.collect();
            region.nodes.push(RegionNode { inputs: wired, ..from.clone() });
        }
        // Control flow is handed its inputs one by one, so each place needs its own.
        if let [node] = graph_nodes[..]
            && !node.bodies.is_empty()
        {
            inputs = node.inputs.iter().map(|id| id.map(|id| self.value_of[&id])).collect();
            region.constants.clear();
            let wired = |(at, id): (usize, &Option<ValueId>)| id.map(|_| Ref::Input(at as u32));
            region.nodes[0].inputs = node.inputs.iter().enumerate().map(wired).collect();
        }
        region.n_inputs = inputs.len() as u32;
        let mut outputs = Vec::new();
        let last = nodes.len() - 1;
        for (at, node) in graph_nodes.iter().enumerate() {
            // What the last node makes, and what nodes before it make for others too.
            let is_read = |user: &u32| !nodes.contains(user);
            if at != last && !whole.users(nodes[at]).iter().any(is_read) && !whole.is_output(nodes[at]) {
                continue;
            }
            for (output, id) in node.outputs.iter().enumerate() {
                let Some(id) = id else { continue };
                region.outputs.push(Ref::Node { node: at as u32, output: output as u32 });
                outputs.push(self.value_of[id]);
            }
        }
        DraftStep { nodes: nodes.to_vec(), region, inputs, outputs, kind: DraftKind::Kernel, target }
    }

    /// An output that is an input, a weight or another output gets a copy of its own: these steps make them.
    pub(super) fn copy_outputs(&mut self) -> Vec<DraftStep> {
        let mut seen = HashSet::new();
        let mut copies = Vec::new();
        for idx in 0..self.draft.outputs.len() {
            let value = self.draft.outputs[idx];
            let made = matches!(self.draft.values[value].source, Source::Step);
            if made && seen.insert(value) {
                continue;
            }
            let copy = self.draft.values.len();
            let DraftValue { name, ty, .. } = self.draft.values[value].clone();
            let is_tensor = ty.as_tensor().is_some_and(|ty| ty.shape.is_some());
            self.draft.values.push(DraftValue { name: name.clone(), ty, source: Source::Step });
            let mut region = Region::single(planish_op::Identity {}.into(), 1, 1);
            region.nodes[0].name = format!("copy of {name}");
            let kind = if is_tensor { DraftKind::Kernel } else { DraftKind::Evaluate };
            let (inputs, outputs) = (vec![Some(value)], vec![copy]);
            copies.push(DraftStep { nodes: Vec::new(), region, inputs, outputs, kind, target: HOST });
            self.draft.outputs[idx] = copy;
        }
        copies
    }
}

/// Whether a constant is a parameter of the operator rather than a weight.
pub(crate) fn is_parameter(op: &Op, place: usize, tensor: &Tensor) -> bool {
    let small = tensor.len() <= 1 || (tensor.dtype().is_int() && tensor.len() <= MAX_PARAMETER);
    (small && !is_weight(op, place)) || (matches!(op, Op::Resize(_)) && place > 0)
}

/// Whether kernels read this input from memory, of however few elements: one channel has a filter of one element.
fn is_weight(op: &Op, place: usize) -> bool {
    match op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::MatMul(_) | Op::Gemm(_) => place < 2,
        Op::LayerNormalization(_)
        | Op::RMSNormalization(_)
        | Op::GroupNormalization(_)
        | Op::InstanceNormalization(_) => true,
        _ => false,
    }
}
