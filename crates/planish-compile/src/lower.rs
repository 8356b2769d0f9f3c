//! A graph to steps: which nodes one kernel may cover, and what runs on the host.

use std::collections::{HashMap, HashSet};

use planish_ir::{Graph, Node, NodeId, ValueId};
use planish_kernel::{Candidate, Operand, Problem, Proposal, Ref, Region, RegionNode, Whole};
use planish_op::{Op, ValueType};
use planish_tensor::Tensor;

use crate::alternatives::is_within;
use crate::backends::{Backends, HOST};
use crate::error::BuildError;
use crate::options::{BuildOptions, Precision};
use crate::precision::numeric;
use crate::sizes::Sizes;

/// Integer constants up to this many elements are parameters (axes, shapes, pads), part of a region.
const MAX_PARAMETER: usize = 64;

/// A value of a draft.
#[derive(Clone, Debug)]
pub(crate) struct DraftValue {
    pub(crate) name: String,
    pub(crate) ty: ValueType,
    pub(crate) source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Input,
    Weight(Tensor),
    Step,
}

/// How a step is run.
#[derive(Clone, Debug)]
pub(crate) enum DraftKind {
    Kernel,
    Evaluate,
    Control { bodies: Vec<Draft>, n_captured: usize },
}

/// A step over a region.
#[derive(Clone, Debug)]
pub(crate) struct DraftStep {
    /// The nodes of the graph that it covers, ascending.
    pub(crate) nodes: Vec<u32>,
    pub(crate) region: Region,
    pub(crate) inputs: Vec<Option<usize>>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) kind: DraftKind,
    /// The backend that runs it, by index.
    pub(crate) target: u32,
}

/// A graph as steps in an order that can be run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) values: Vec<DraftValue>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) steps: Vec<DraftStep>,
    pub(crate) precision: Precision,
}

impl Draft {
    /// The problem that a step is at these sizes, all operands plain.
    pub(crate) fn problem(&self, step: &DraftStep, sizes: &Sizes, threads: usize) -> Option<Problem> {
        let operand = |value: usize| {
            let value = &self.values[value];
            let mut operand = sizes.operand(&value.ty, planish_kernel::Layout::Plain)?;
            operand.constant = matches!(value.source, Source::Weight(_));
            Some(operand)
        };
        let absent =
            planish_kernel::Operand::dense(planish_tensor::DType::F32, &[0], planish_kernel::Layout::Plain);
        let input = |value: &Option<usize>| value.map_or(Some(absent.clone()), operand);
        let inputs: Vec<Operand> = step.inputs.iter().map(input).collect::<Option<_>>()?;
        Some(Problem {
            region: step.region.clone(),
            numeric: numeric(self.precision, &step.region, inputs.iter().map(|operand| operand.dtype)),
            inputs,
            outputs: step.outputs.iter().map(|&value| operand(value)).collect::<Option<_>>()?,
            threads,
        })
    }
}

/// Whether a region of these nodes of the graph may be taken.
pub(crate) type Allows<'a> = &'a dyn Fn(&Region, &[u32]) -> bool;

/// Lowers a graph: regions are taken where they are allowed and a backend has a kernel for them at these sizes.
/// Devices choose before the host does, which takes what is left. Bodies take every region.
pub(crate) fn lower(
    graph: &Graph,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
    allows: Allows<'_>,
) -> Result<Draft, BuildError> {
    let node_ids = graph.nodes().map(|(id, _)| id).collect();
    let draft = Draft { precision: options.precision, ..Draft::default() };
    let mut lowering = Lowering { graph, node_ids, draft, value_of: HashMap::new() };
    lowering.values();
    let whole = lowering.whole();
    let n_nodes = graph.nodes().len() as u32;
    let mut taken = vec![false; n_nodes as usize];
    let mut regions: Vec<(Vec<u32>, u32)> = Vec::new();
    for target in backends.by_preference() {
        let backend = backends.get(target);
        let mut offers: Vec<Vec<u32>> =
            backend.regions(&whole).into_iter().map(|Proposal { nodes, .. }| nodes).collect();
        if target != HOST {
            offers.extend((0..n_nodes).map(|node| vec![node]));
        }
        for nodes in offers {
            if nodes.iter().any(|&node| taken[node as usize]) {
                continue;
            }
            let step = lowering.step(&whole, &nodes, target);
            if !allows(&step.region, &nodes) {
                continue;
            }
            let Some(problem) = lowering.draft.problem(&step, sizes, options.threads) else { continue };
            let usable = |candidate: &Candidate| {
                !candidate.slow
                    && options.takes(backend, candidate)
                    && is_within(backend, &problem, candidate, options.workspace)
            };
            if backend.candidates(&problem).iter().any(usable) {
                nodes.iter().for_each(|&node| taken[node as usize] = true);
                regions.push((nodes, target));
            }
        }
    }
    regions.extend((0..n_nodes).filter(|&node| !taken[node as usize]).map(|node| (vec![node], HOST)));
    // A region's output is made by its last node, so ordering by that keeps producers before readers.
    regions.sort_by_key(|(nodes, _)| nodes.last().copied());
    let mut known: HashSet<String> = HashSet::new();
    for &input in graph.inputs() {
        learn(&graph.value(input).ty, &mut known);
    }
    let nodes: Vec<&Node> = graph.nodes().map(|(_, node)| node).collect();
    for (region, target) in &regions {
        let mut step = lowering.step(&whole, region, *target);
        let node = nodes[region[0] as usize];
        let is_control = matches!(node.op, Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_));
        if is_control {
            let bodies = node.bodies.iter().map(|body| lower(body, backends, sizes, options, &|_, _| true));
            let bodies = bodies.collect::<Result<_, _>>()?;
            step.kind = DraftKind::Control { bodies, n_captured: node.n_captured };
        } else if !lowering.is_sized(&step, &known) {
            step.kind = DraftKind::Evaluate;
        }
        if !matches!(step.kind, DraftKind::Kernel) {
            step.target = HOST;
            for &output in &step.outputs {
                learn(&lowering.draft.values[output].ty, &mut known);
            }
        }
        lowering.draft.steps.push(step);
    }
    lowering.copy_outputs();
    Ok(lowering.draft)
}

/// Takes over the symbols that stand alone in a type: a run can read them off.
fn learn(ty: &ValueType, known: &mut HashSet<String>) {
    if let Some(shape) = ty.as_tensor().and_then(|ty| ty.shape.as_ref()) {
        known.extend(shape.iter().filter_map(|dim| dim.as_symbol().map(str::to_string)));
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    node_ids: Vec<NodeId>,
    draft: Draft,
    value_of: HashMap<ValueId, usize>,
}

impl Lowering<'_> {
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

    /// The graph as one region. Its inputs are the values of the draft, by number.
    fn whole(&self) -> Whole {
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
    fn step(&self, whole: &Whole, nodes: &[u32], target: u32) -> DraftStep {
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
        for (output, id) in graph_nodes[last].outputs.iter().enumerate() {
            let Some(id) = id else { continue };
            region.outputs.push(Ref::Node { node: last as u32, output: output as u32 });
            outputs.push(self.value_of[id]);
        }
        DraftStep { nodes: nodes.to_vec(), region, inputs, outputs, kind: DraftKind::Kernel, target }
    }

    /// Whether the sizes of everything the step touches are known before it runs.
    fn is_sized(&self, step: &DraftStep, known: &HashSet<String>) -> bool {
        let sized = |value: usize| {
            let shape = self.draft.values[value].ty.as_tensor().and_then(|ty| ty.shape.as_ref());
            shape.is_some_and(|shape| {
                shape
                    .iter()
                    .all(|dim| !dim.is_unknown() && dim.symbols().iter().all(|s| known.contains(&**s)))
            })
        };
        step.inputs.iter().flatten().chain(&step.outputs).all(|&value| sized(value))
    }

    /// An output that is an input, a weight or another output gets a copy of its own.
    fn copy_outputs(&mut self) {
        let mut seen = HashSet::new();
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
            self.draft.steps.push(DraftStep {
                nodes: Vec::new(),
                region,
                inputs,
                outputs,
                kind,
                target: HOST,
            });
            self.draft.outputs[idx] = copy;
        }
    }
}

/// Whether a constant is a parameter of the operator rather than a weight.
fn is_parameter(op: &Op, place: usize, tensor: &Tensor) -> bool {
    let small = tensor.len() <= 1 || (tensor.dtype().is_int() && tensor.len() <= MAX_PARAMETER);
    small || (matches!(op, Op::Resize(_)) && place > 0)
}
