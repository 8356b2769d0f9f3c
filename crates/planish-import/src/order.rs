//! The order of nodes: kept if it can be run, else sorted; cycles are named.

use std::collections::{HashMap, HashSet};

use planish_onnx::{AttributeValue, Graph, Node};

use crate::error::{ImportError, ImportErrorKind};
use crate::node::describe;

/// Indices of the graph's nodes in an order that can be run. `is_known` tells of values from outside.
pub(crate) fn runnable_order(
    graph: &Graph<'_>,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Vec<usize>, ImportError> {
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (idx, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if producers.insert(output, idx).is_some() {
                let detail = format!("two nodes make a value called `{output}`");
                return Err(ImportError::invalid(detail).at(|| describe(node)));
            }
        }
    }
    let mut dependencies: Vec<Vec<usize>> = Vec::with_capacity(graph.nodes.len());
    let mut sorted = true;
    for (idx, node) in graph.nodes.iter().enumerate() {
        let mut own = Vec::new();
        for name in free_names(node) {
            match producers.get(name) {
                Some(&producer) => {
                    sorted &= producer < idx;
                    own.push(producer);
                }
                None if is_known(name) => {}
                None => {
                    let kind = ImportErrorKind::UndefinedValue { name: name.to_string() };
                    return Err(ImportError::new(kind).at(|| describe(node)));
                }
            }
        }
        dependencies.push(own);
    }
    if sorted { Ok((0..graph.nodes.len()).collect()) } else { sort(graph, &dependencies) }
}

/// Every name that a node reads, those that its bodies take from outside included.
fn free_names<'g>(node: &'g Node<'_>) -> Vec<&'g str> {
    let mut names: Vec<&str> =
        node.inputs.iter().map(AsRef::as_ref).filter(|name| !name.is_empty()).collect();
    for attribute in &node.attributes {
        match &attribute.value {
            AttributeValue::Graph(body) => body_names(body, &mut names),
            AttributeValue::Graphs(bodies) => bodies.iter().for_each(|body| body_names(body, &mut names)),
            _ => {}
        }
    }
    names
}

/// What a body reads but does not define. The reader bounds the nesting, so recursion is bounded too.
fn body_names<'g>(body: &'g Graph<'_>, names: &mut Vec<&'g str>) {
    let mut defined: HashSet<&str> = HashSet::new();
    defined.extend(body.inputs.iter().map(|input| input.name.as_ref()));
    defined.extend(body.initializers.iter().map(|tensor| tensor.name.as_ref()));
    defined.extend(body.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref()));
    for node in &body.nodes {
        defined.extend(node.outputs.iter().map(AsRef::as_ref));
    }
    for node in &body.nodes {
        names.extend(free_names(node).into_iter().filter(|name| !defined.contains(name)));
    }
    let outputs = body.outputs.iter().map(|output| output.name.as_ref());
    names.extend(outputs.filter(|name| !defined.contains(name) && !name.is_empty()));
}

fn sort(graph: &Graph<'_>, dependencies: &[Vec<usize>]) -> Result<Vec<usize>, ImportError> {
    let n_nodes = dependencies.len();
    let mut waiting: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); n_nodes];
    for (idx, own) in dependencies.iter().enumerate() {
        for &producer in own {
            readers[producer].push(idx);
        }
    }
    // The smallest ready index first, so that the file's order is kept as far as possible.
    let mut ready: std::collections::BTreeSet<usize> =
        (0..n_nodes).filter(|&idx| waiting[idx] == 0).collect();
    let mut order = Vec::with_capacity(n_nodes);
    while let Some(idx) = ready.pop_first() {
        order.push(idx);
        for &reader in &readers[idx] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    if order.len() == n_nodes {
        return Ok(order);
    }
    const SHOWN: usize = 4;
    let stuck = (0..n_nodes).filter(|&idx| waiting[idx] > 0);
    let nodes = stuck.take(SHOWN).map(|idx| describe(&graph.nodes[idx])).collect();
    Err(ImportError::new(ImportErrorKind::Cycle { nodes }))
}
