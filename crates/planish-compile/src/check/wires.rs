//! That every step computes the node that the graph has, on the values that the graph says: by names for values
//! (equal expressions have equal numbers), without running anything.

use std::collections::HashMap;

use planish_ir::{Graph, Node, ValueId};
use planish_kernel::{Ref, Region};
use planish_op::Op;
use planish_plan::{Program, StepKind, Storage};
use planish_tensor::{DType, Tensor};

/// What a value is, as an expression over inputs and constants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Expression {
    Input(usize),
    /// Constants by the memory that graph, regions and weights share.
    Constant {
        at: usize,
        bytes: usize,
        dtype: DType,
        dims: Vec<usize>,
    },
    Output {
        op: String,
        inputs: Vec<Option<u32>>,
        place: u32,
    },
    /// A node with bodies is itself only: its bodies are compared apart.
    Control {
        node: usize,
        place: usize,
    },
}

/// Numbers of expressions, and those of a graph's values.
#[derive(Debug)]
pub(super) struct Wires<'g> {
    graph: &'g Graph,
    known: HashMap<Expression, u32>,
    /// By value of the graph.
    of_value: Vec<u32>,
    by_name: HashMap<&'g str, ValueId>,
}

impl<'g> Wires<'g> {
    pub(super) fn new(graph: &'g Graph) -> Wires<'g> {
        let values = || graph.values();
        let mut wires = Wires {
            graph,
            known: HashMap::new(),
            of_value: vec![u32::MAX; values().len()],
            by_name: values().map(|(id, value)| (&*value.name, id)).collect(),
        };
        for (idx, id) in graph.inputs().iter().enumerate() {
            wires.of_value[id.index()] = wires.number(Expression::Input(idx));
        }
        for (id, value) in values() {
            if let Some(tensor) = value.constant() {
                wires.of_value[id.index()] = wires.constant(tensor);
            }
        }
        for (idx, (_, node)) in graph.nodes().enumerate() {
            let inputs =
                node.inputs.iter().map(|id| id.map(|id| wires.of_value[id.index()])).collect::<Vec<_>>();
            for (place, id) in node.outputs.iter().enumerate() {
                let Some(id) = id else { continue };
                wires.of_value[id.index()] = match node.bodies.is_empty() {
                    true => wires.output(&node.op, &inputs, place as u32),
                    false => wires.number(Expression::Control { node: idx, place }),
                };
            }
        }
        wires
    }

    /// The number of a value of the graph.
    pub(super) fn of(&self, id: ValueId) -> u32 {
        self.of_value[id.index()]
    }

    pub(super) fn find(&self, name: &str) -> Option<ValueId> {
        self.by_name.get(name).copied()
    }

    fn number(&mut self, expression: Expression) -> u32 {
        let next = self.known.len() as u32;
        *self.known.entry(expression).or_insert(next)
    }

    fn constant(&mut self, tensor: &Tensor) -> u32 {
        let (at, bytes) = (tensor.bytes().as_ptr().addr(), tensor.bytes().len());
        self.number(Expression::Constant { at, bytes, dtype: tensor.dtype(), dims: tensor.shape().to_vec() })
    }

    fn output(&mut self, op: &Op, inputs: &[Option<u32>], place: u32) -> u32 {
        if let (Op::Identity(_), [Some(of)]) = (op, inputs) {
            return *of;
        }
        let n_given = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let op = format!("{} {:?}", op.name(), op.attributes());
        self.number(Expression::Output { op, inputs: inputs[..n_given].to_vec(), place })
    }

    /// The numbers of a region's outputs over these inputs.
    fn region(&mut self, region: &Region, inputs: &[Option<u32>]) -> Vec<u32> {
        let mut made: Vec<Vec<u32>> = Vec::with_capacity(region.nodes.len());
        for node in &region.nodes {
            let mut read = Vec::with_capacity(node.inputs.len());
            for reference in &node.inputs {
                read.push(reference.and_then(|reference| self.read(reference, region, inputs, &made)));
            }
            made.push((0..node.n_outputs).map(|place| self.output(&node.op, &read, place)).collect());
        }
        let outputs = region.outputs.iter();
        outputs.map(|&output| self.read(output, region, inputs, &made).unwrap_or(u32::MAX)).collect()
    }

    fn read(&mut self, from: Ref, region: &Region, inputs: &[Option<u32>], made: &[Vec<u32>]) -> Option<u32> {
        match from {
            Ref::Input(idx) => inputs.get(idx as usize).copied().flatten(),
            Ref::Constant(idx) => region.constants.get(idx as usize).map(|tensor| self.constant(tensor)),
            Ref::Node { node, output } => made.get(node as usize)?.get(output as usize).copied(),
        }
    }
}

/// Compares a program with its graph; gives the number of steps compared. `weights` are the plan's as the graph has
/// them.
pub(super) fn compare(wires: &mut Wires<'_>, program: &Program, weights: &[Tensor]) -> Result<u64, String> {
    let graph = wires.graph;
    let names: Vec<&str> = program.values.iter().map(|value| value.name.as_str()).collect();
    let name = |value: u32| names[value as usize];
    let mut of_value: Vec<u32> = Vec::with_capacity(program.values.len());
    for value in &program.values {
        let id = wires.find(&value.name).ok_or_else(|| format!("the graph has no `{}`", value.name))?;
        let expected = wires.of(id);
        if let Storage::Weight(weight) = value.storage {
            let tensor = weights.get(weight as usize);
            if tensor.map(|tensor| wires.constant(tensor)) != Some(expected) {
                return Err(format!("weight {weight} is not `{}`", value.name));
            }
        }
        of_value.push(expected);
    }
    let ends = |what: &str, values: &[u32], ids: &[ValueId]| {
        let same = values.len() == ids.len()
            && values.iter().zip(ids).all(|(&value, &id)| of_value[value as usize] == wires.of(id));
        if same { Ok(()) } else { Err(format!("the {what} are not those of the graph")) }
    };
    ends("inputs", &program.inputs, graph.inputs())?;
    ends("outputs", &program.outputs, graph.outputs())?;
    let mut n_steps = 0;
    for (idx, step) in program.steps.iter().enumerate() {
        n_steps += 1;
        let inputs: Vec<Option<u32>> =
            step.inputs.iter().map(|value| value.map(|value| of_value[value as usize])).collect();
        if let StepKind::Control(control) = &step.kind {
            let node = maker(wires, step.outputs.iter().flatten().map(|&value| name(value)))
                .ok_or_else(|| format!("step {idx} (`{}`) is not a node of the graph", step.name))?;
            let read: Vec<Option<u32>> = node.inputs.iter().map(|id| id.map(|id| wires.of(id))).collect();
            if read != inputs || node.bodies.len() != control.bodies.len() {
                return Err(format!("step {idx} (`{}`) reads other values than its node", step.name));
            }
            for (body, of) in control.bodies.iter().zip(&node.bodies) {
                let mut inner = Wires::new(of);
                n_steps += compare(&mut inner, body, weights)
                    .map_err(|why| format!("in a body of step {idx} (`{}`): {why}", step.name))?;
            }
            continue;
        }
        let made = match &step.kind {
            StepKind::Transfer => vec![inputs.first().copied().flatten().unwrap_or(u32::MAX)],
            _ => wires.region(&step.region, &inputs),
        };
        for (&value, made) in step.outputs.iter().zip(made) {
            let Some(value) = value else { continue };
            if of_value[value as usize] != made {
                let read: Vec<&str> = step.inputs.iter().flatten().map(|&value| name(value)).collect();
                return Err(format!(
                    "step {idx} (`{}`) makes of {} something else than the graph's `{}`",
                    step.name,
                    read.join(", "),
                    name(value)
                ));
            }
        }
    }
    Ok(n_steps)
}

/// The node of the graph that makes the first of these values.
fn maker<'g, 'n>(wires: &Wires<'g>, mut names: impl Iterator<Item = &'n str>) -> Option<&'g Node> {
    let id = wires.find(names.next()?)?;
    wires.graph.value(id).producer.map(|node| wires.graph.node(node))
}
