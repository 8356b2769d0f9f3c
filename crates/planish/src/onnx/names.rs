//! Who makes and who reads which value.

use std::collections::{HashMap, HashSet};

use planish_onnx::{Attribute, AttributeValue, Graph, Node, Tensor};

/// Every name that a node reads, each once: its inputs, and what its bodies take from outside.
/// [`crate::onnx`] has an example.
pub fn reads<'m>(node: &'m Node<'_>) -> Vec<&'m str> {
    let mut seen = HashSet::from([""]);
    let inputs = node.inputs.iter().map(AsRef::<str>::as_ref);
    let captured = node.attributes.iter().flat_map(bodies).flat_map(free_names);
    inputs.chain(captured).filter(|name| seen.insert(name)).collect()
}

/// What a body reads and does not define.
fn free_names<'m>(body: &'m Graph<'_>) -> Vec<&'m str> {
    let mut seen: HashSet<&str> = HashSet::from([""]);
    seen.extend(body.inputs.iter().map(|input| input.name.as_ref()));
    seen.extend(constants(body));
    seen.extend(body.nodes.iter().flat_map(|node| &node.outputs).map(AsRef::<str>::as_ref));
    let outputs = body.outputs.iter().map(|output| output.name.as_ref());
    body.nodes.iter().flat_map(reads).chain(outputs).filter(|name| seen.insert(name)).collect()
}

/// The graphs that an attribute holds.
pub(super) fn bodies<'m, 'a>(attribute: &'m Attribute<'a>) -> &'m [Graph<'a>] {
    match &attribute.value {
        AttributeValue::Graph(body) => std::slice::from_ref(body),
        AttributeValue::Graphs(bodies) => bodies,
        _ => &[],
    }
}

pub(super) fn bodies_mut<'m, 'a>(attribute: &'m mut Attribute<'a>) -> &'m mut [Graph<'a>] {
    match &mut attribute.value {
        AttributeValue::Graph(body) => std::slice::from_mut(body),
        AttributeValue::Graphs(bodies) => bodies,
        _ => &mut [],
    }
}

/// The names of a graph's constants.
pub(super) fn constants<'m>(graph: &'m Graph<'_>) -> impl Iterator<Item = &'m str> {
    let sparse = graph.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref());
    graph.initializers.iter().map(|tensor| tensor.name.as_ref()).chain(sparse)
}

/// The node that makes each value.
pub(super) fn producers<'m>(graph: &'m Graph<'_>) -> HashMap<&'m str, usize> {
    let mut makers = HashMap::new();
    for (idx, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|output| !output.is_empty()) {
            makers.entry(output.as_ref()).or_insert(idx);
        }
    }
    makers
}

/// Every value that something reads: nodes, their bodies, and the graph's outputs.
pub(super) fn read_names<'m>(graph: &'m Graph<'_>) -> HashSet<&'m str> {
    let outputs = graph.outputs.iter().map(|output| output.name.as_ref());
    graph.nodes.iter().flat_map(reads).chain(outputs).collect()
}

/// The nodes that the graph's outputs need.
pub(super) fn live_nodes(graph: &Graph<'_>) -> Vec<bool> {
    let makers = producers(graph);
    let mut is_live = vec![false; graph.nodes.len()];
    let mut open: Vec<&str> = graph.outputs.iter().map(|output| output.name.as_ref()).collect();
    while let Some(name) = open.pop() {
        if let Some(&idx) = makers.get(name)
            && !is_live[idx]
        {
            is_live[idx] = true;
            open.extend(reads(&graph.nodes[idx]));
        }
    }
    is_live
}

/// Visits every tensor of a graph, those in attributes and bodies included.
pub(super) fn each_tensor_mut<'a, E>(
    graph: &mut Graph<'a>,
    visit: &mut dyn FnMut(&mut Tensor<'a>) -> Result<(), E>,
) -> Result<(), E> {
    graph.initializers.iter_mut().try_for_each(&mut *visit)?;
    for sparse in &mut graph.sparse_initializers {
        visit(&mut sparse.values)?;
        visit(&mut sparse.indices)?;
    }
    graph.nodes.iter_mut().try_for_each(|node| each_tensor_of(node, visit))
}

/// Visits every tensor in a node's attributes.
pub(super) fn each_tensor_of<'a, E>(
    node: &mut Node<'a>,
    visit: &mut dyn FnMut(&mut Tensor<'a>) -> Result<(), E>,
) -> Result<(), E> {
    for attribute in &mut node.attributes {
        match &mut attribute.value {
            AttributeValue::Tensor(tensor) => visit(tensor)?,
            AttributeValue::Tensors(tensors) => tensors.iter_mut().try_for_each(&mut *visit)?,
            _ => {}
        }
        for body in bodies_mut(attribute) {
            each_tensor_mut(body, visit)?;
        }
    }
    Ok(())
}

/// The dense constants of a graph and of its Constant nodes, bodies included, each with the name that it is known by.
pub(super) fn each_constant<'m, 'a>(graph: &'m Graph<'a>, visit: &mut dyn FnMut(&'m str, &'m Tensor<'a>)) {
    graph.initializers.iter().for_each(|tensor| visit(&tensor.name, tensor));
    for node in &graph.nodes {
        for attribute in &node.attributes {
            if let (AttributeValue::Tensor(tensor), Some(output)) = (&attribute.value, node.outputs.first()) {
                visit(output, tensor);
            }
            bodies(attribute).iter().for_each(|body| each_constant(body, visit));
        }
    }
}
