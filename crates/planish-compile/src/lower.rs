//! A graph to steps that may be taken: which nodes one kernel may cover, where each runs, and the ways to do it.
//!
//! - `cover`: which regions are on offer, and which of them compete for the same nodes;
//! - `place`: what a device had better leave to the host;
//! - `steps`: nodes of the graph as a step;
//! - `candidates`: the ways to do a step, each problem asked for once.

pub(crate) mod candidates;
pub(crate) mod cover;
mod place;
mod steps;

pub(crate) use steps::is_parameter;

use std::collections::HashSet;

use planish_ir::{Graph, Node, ValueId};
use planish_kernel::{Operand, Problem, Ref, Region};
use planish_op::two_of_four::summed_axis;
use planish_op::{Op, ValueType};
use planish_tensor::Tensor;

use crate::backends::HOST;
use crate::error::BuildError;
use crate::lower::candidates::{Catalog, Choices};
use crate::lower::cover::{Cluster, Taken};
use crate::lower::steps::Lowering;
use crate::precision::{Products, numeric};
use crate::sizes::Sizes;
use crate::sparsity::Sparsity;

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
    Control { n_captured: usize },
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
    pub(crate) products: Products,
    /// Weights that are 2:4 sparse along an axis that a product adds up along.
    pub(crate) sparse: HashSet<(usize, usize)>,
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
        let mut inputs: Vec<Operand> = step.inputs.iter().map(input).collect::<Option<_>>()?;
        for (place, axis) in summed(&step.region) {
            let read = step.inputs[place].and_then(|value| Some((value, axis(inputs[place].rank())?)));
            inputs[place].two_of_four = read.is_some_and(|read| self.sparse.contains(&read));
        }
        Some(Problem {
            region: step.region.clone(),
            numeric: numeric(&self.products, &step.region, inputs.iter().map(|operand| operand.dtype)),
            inputs,
            outputs: step.outputs.iter().map(|&value| operand(value)).collect::<Option<_>>()?,
            threads,
        })
    }

    /// Whether the sizes of everything the step touches are known before it runs.
    pub(crate) fn is_sized(&self, step: &DraftStep, known: &HashSet<String>) -> bool {
        let sized = |value: usize| {
            let shape = self.values[value].ty.as_tensor().and_then(|ty| ty.shape.as_ref());
            shape.is_some_and(|shape| {
                shape
                    .iter()
                    .all(|dim| !dim.is_unknown() && dim.symbols().iter().all(|s| known.contains(&**s)))
            })
        };
        step.inputs.iter().flatten().chain(&step.outputs).all(|&value| sized(value))
    }
}

/// The inputs of a region that its products read as their weights, with the axes that these add up along at a rank.
fn summed(region: &Region) -> impl Iterator<Item = (usize, impl Fn(usize) -> Option<usize> + '_)> + '_ {
    region.nodes.iter().filter_map(|node| match node.inputs.get(1).copied().flatten() {
        Some(Ref::Input(place)) => Some((place as usize, |rank| summed_axis(&node.op, rank))),
        _ => None,
    })
}

/// A step that may be taken.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) step: DraftStep,
    pub(crate) choices: Choices,
    /// The bodies of control flow.
    pub(crate) bodies: Vec<Lowered>,
}

/// A graph as steps that may be taken, each with the ways to do it. Steps over several nodes stand beside steps over
/// their parts wherever both are possible; prices decide between them.
#[derive(Clone, Debug)]
pub struct Lowered {
    /// Values alone: steps are among the offers.
    pub(crate) draft: Draft,
    pub(crate) offers: Vec<Offer>,
    /// Nodes that are covered together, in an order that can be run.
    pub(crate) clusters: Vec<Cluster>,
}

/// Lowers a graph: regions are on offer where they are allowed and a backend has a kernel for them at the tuned sizes.
/// Devices choose before the host does, which takes what is left.
pub(crate) fn lower(
    graph: &Graph,
    catalog: &Catalog<'_>,
    allows: &dyn Fn(&Region) -> bool,
) -> Result<Lowered, BuildError> {
    let mut lowering = Lowering::new(graph, catalog.products());
    if catalog.options.sparsity != Sparsity::Disable {
        lowering.find_sparse_weights();
    }
    let whole = lowering.whole();
    let Taken { regions, proposals } = cover::take(&lowering, &whole, catalog, allows);
    let mut known: HashSet<String> = HashSet::new();
    for &input in graph.inputs() {
        learn(&graph.value(input).ty, &mut known);
    }
    let mut steps = Vec::with_capacity(regions.len());
    let mut bodies = Vec::with_capacity(regions.len());
    for (region, target) in &regions {
        let mut step = lowering.step(&whole, region, *target);
        let node = graph.node(lowering.node_ids[region[0] as usize]);
        let mut own = Vec::new();
        if matches!(node.op, Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_)) {
            for body in &node.bodies {
                own.push(lower(body, catalog, allows)?);
            }
            step.kind = DraftKind::Control { n_captured: node.n_captured };
        } else if !lowering.draft.is_sized(&step, &known) {
            step.kind = DraftKind::Evaluate;
        }
        if !matches!(step.kind, DraftKind::Kernel) {
            step.target = HOST;
            for &output in &step.outputs {
                learn(&lowering.draft.values[output].ty, &mut known);
            }
        }
        steps.push(step);
        bodies.push(own);
    }
    let copies = lowering.copy_outputs();
    bodies.resize_with(steps.len() + copies.len(), Vec::new);
    let mut offers = Vec::with_capacity(bodies.len());
    for (step, bodies) in steps.into_iter().chain(copies).zip(bodies) {
        let choices = catalog.choices(&lowering.draft, &step)?;
        offers.push(Offer { step, choices, bodies });
    }
    let clusters = cover::compete(&lowering, &whole, catalog, &proposals, &mut offers);
    Ok(Lowered { draft: lowering.draft, offers, clusters })
}

/// The DequantizeLinear of weights that no kernel covers together with their product, by name: their products are not
/// computed in integers.
pub(crate) fn loose_weights(graph: &Graph, catalog: &Catalog<'_>) -> Vec<Box<str>> {
    let lowering = Lowering::new(graph, catalog.products());
    let Taken { regions, .. } = cover::take(&lowering, &lowering.whole(), catalog, &|_| true);
    let alone = regions.iter().filter_map(|(nodes, _)| match nodes[..] {
        [node] => Some(graph.node(lowering.node_ids[node as usize])),
        _ => None,
    });
    let is_constant = |id: &Option<ValueId>| id.is_none_or(|id| graph.value(id).constant().is_some());
    let is_loose =
        |node: &&Node| matches!(node.op, Op::DequantizeLinear(_)) && node.inputs.iter().all(is_constant);
    alone.filter(is_loose).map(|node| node.name.clone()).collect()
}

/// Takes over the symbols that stand alone in a type: a run can read them off.
fn learn(ty: &ValueType, known: &mut HashSet<String>) {
    if let Some(shape) = ty.as_tensor().and_then(|ty| ty.shape.as_ref()) {
        known.extend(shape.iter().filter_map(|dim| dim.as_symbol().map(str::to_string)));
    }
}
