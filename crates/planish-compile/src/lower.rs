//! A graph to steps: which nodes one kernel may cover, and what runs on the host.

pub(crate) mod candidates;
mod place;

use std::collections::{HashMap, HashSet};

use planish_ir::{Graph, Node, NodeId, ValueId};
use planish_kernel::{
    Backend, Candidate, Operand, Prices, Problem, Proposal, Ref, Region, RegionNode, Whole,
};
use planish_op::{Op, ValueType};
use planish_tensor::Tensor;

use crate::backends::{Backends, HOST};
use crate::error::BuildError;
use crate::lower::candidates::{is_within, views};
use crate::lower::place::{Carried, Unit, better_on_host};
use crate::options::{BuildOptions, Precision};
use crate::precision::numeric;
use crate::price::policy::{self, MAX_HOME_BYTES};
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
    let setting = Setting { backends, sizes, options };
    let n_nodes = graph.nodes().len() as u32;
    let mut taken = vec![false; n_nodes as usize];
    let mut regions: Vec<(Vec<u32>, u32)> = Vec::new();
    for target in backends.by_preference() {
        let backend = backends.get(target);
        let mut offers: Vec<Vec<u32>> =
            backend.regions(&whole).into_iter().map(|Proposal { nodes, .. }| nodes).collect();
        if target != HOST {
            offers.extend((0..n_nodes).map(|node| vec![node]));
        } else if !options.strict && options.price_transfers {
            let on_host = lowering.cheaper_on_host(&whole, &regions, &setting);
            on_host.iter().for_each(|&node| taken[node as usize] = false);
            regions.retain(|(nodes, _)| !nodes.iter().any(|node| on_host.contains(node)));
        }
        for nodes in offers {
            if nodes.iter().any(|&node| taken[node as usize]) {
                continue;
            }
            let step = lowering.step(&whole, &nodes, target);
            let has_kernel = || {
                let problem = lowering.draft.problem(&step, sizes, options.threads);
                problem.is_some_and(|problem| setting.usable(backend, &problem).next().is_some())
            };
            if allows(&step.region, &nodes) && has_kernel() {
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

/// What candidates are asked for.
#[derive(Clone, Copy)]
struct Setting<'a> {
    backends: Backends<'a>,
    sizes: &'a Sizes,
    options: &'a BuildOptions,
}

impl Setting<'_> {
    /// The candidates that a plan may use, the slow reference left out.
    fn usable<'p>(
        &'p self,
        backend: &'p dyn Backend,
        problem: &'p Problem,
    ) -> impl Iterator<Item = Candidate> + 'p {
        let takes = |source: &str| self.options.takes_source(source);
        backend.candidates_from(problem, &policy::budget(self.options.tune_level), &takes).into_iter().filter(
            move |candidate| {
                !candidate.slow
                    && self.options.takes(backend, candidate)
                    && is_within(backend, problem, candidate, self.options.workspace)
            },
        )
    }

    /// What a step costs on its target by the cost model, if there is a kernel for it.
    fn predicted_ns(&self, draft: &Draft, step: &DraftStep) -> Option<f64> {
        if !views(draft, step).is_empty() {
            return Some(0.0);
        }
        let backend = self.backends.get(step.target);
        let problem = draft.problem(step, self.sizes, self.options.threads)?;
        let fastest =
            self.usable(backend, &problem).map(|candidate| candidate.predicted_ns).min_by(f64::total_cmp);
        fastest.map(|ns| ns + backend.prices().step_ns)
    }
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

    /// Nodes in regions of devices that cost less on the host, the transfers that this saves counted in.
    fn cheaper_on_host(&self, whole: &Whole, regions: &[(Vec<u32>, u32)], setting: &Setting<'_>) -> Vec<u32> {
        let taken: HashSet<u32> = regions.iter().flat_map(|(nodes, _)| nodes.iter().copied()).collect();
        if taken.len() == self.node_ids.len() {
            return Vec::new();
        }
        let of_host = (0..self.node_ids.len() as u32).filter(|node| !taken.contains(node));
        let all: Vec<(Vec<u32>, u32)> =
            regions.iter().cloned().chain(of_host.map(|node| (vec![node], HOST))).collect();
        let largest = setting.sizes.largest(&setting.options.profiles);
        let is_light = |step: &DraftStep| {
            let bytes = |value: &usize| {
                let operand = largest.operand(&self.draft.values[*value].ty, planish_kernel::Layout::Plain);
                operand.map_or(usize::MAX, |operand| operand.span_bytes())
            };
            step.inputs.iter().flatten().chain(&step.outputs).all(|value| bytes(value) <= MAX_HOME_BYTES)
        };
        let unit = |(nodes, target): &(Vec<u32>, u32)| {
            let step = self.step(whole, nodes, *target);
            let on_host = |&node: &u32| setting.predicted_ns(&self.draft, &self.step(whole, &[node], HOST));
            let carried = |value: &usize| !matches!(self.draft.values[*value].source, Source::Weight(_));
            Unit {
                target: *target,
                there_ns: match *target {
                    HOST => 0.0,
                    _ => setting.predicted_ns(&self.draft, &step).unwrap_or(f64::INFINITY),
                },
                host_ns: match *target {
                    HOST => Some(0.0),
                    _ if !is_light(&step) => None,
                    // As one step if the host has a kernel for it, else node by node.
                    _ => setting
                        .predicted_ns(&self.draft, &DraftStep { target: HOST, ..step.clone() })
                        .or_else(|| nodes.iter().map(on_host).sum()),
                },
                reads: step.inputs.iter().flatten().copied().filter(carried).collect(),
                writes: step.outputs,
            }
        };
        let units: Vec<Unit> = all.iter().map(unit).collect();
        let carried = |(at, value): (usize, &DraftValue)| {
            let operand = setting.sizes.operand(&value.ty, planish_kernel::Layout::Plain);
            Carried {
                bytes: operand.map_or(0, |operand| operand.span_bytes()),
                is_output: self.draft.outputs.contains(&at),
            }
        };
        let values: Vec<Carried> = self.draft.values.iter().enumerate().map(carried).collect();
        let prices: Vec<Prices> = setting.backends.all().iter().map(|backend| backend.prices()).collect();
        let on_host = better_on_host(&units, &values, &prices);
        on_host.into_iter().flat_map(|unit| all[unit].0.iter().copied()).collect()
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
