//! The nodes that `--layer-precision NAME:fp32` must name so that a value is not rounded.

use std::collections::HashSet;

use planish_ir::{Graph, Node, ValueId};
use planish_op::{Class, Op};

/// All that reads a value in its rounded form, and for floats of 16 bits what makes it, too: a node that stays in f32 reads
/// and makes f32.
pub(super) fn of_value(graph: &Graph, name: &str) -> Vec<String> {
    let Some(value) = graph.find(name) else { return Vec::new() };
    let mut pins = Vec::new();
    let is_float = graph.value(value).ty.as_tensor().is_some_and(|ty| ty.dtype.is_float());
    if let Some(maker) = graph.value(value).producer.filter(|_| is_float) {
        pins.push(label(graph, graph.node(maker)));
    }
    let mut seen = HashSet::new();
    let mut open = vec![value];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        for (_, node) in graph.nodes().filter(|(_, node)| node.inputs.contains(&Some(id))) {
            match passes_on(&node.op) {
                true => open.extend(node.outputs.iter().flatten()),
                false => pins.push(label(graph, node)),
            }
        }
    }
    pins.sort();
    pins.dedup();
    pins
}

/// Whether a node hands integers on as they are.
fn passes_on(op: &Op) -> bool {
    matches!(op, Op::DequantizeLinear(_) | Op::MaxPool(_) | Op::Cast(_)) || op.class() == Class::Movement
}

/// As patterns of names see it.
pub(crate) fn label(graph: &Graph, node: &Node) -> String {
    let output: Option<ValueId> = node.outputs.iter().flatten().next().copied();
    match output {
        Some(output) if node.name.is_empty() => graph.value(output).name.to_string(),
        _ => node.name.to_string(),
    }
}
