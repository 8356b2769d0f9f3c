//! The order of nodes: kept if it can be run, else sorted; cycles are named.

use std::collections::{BTreeSet, HashMap, HashSet};

use planish_onnx::{Attribute, AttributeValue, Graph, Node};

use crate::error::{ImportError, ImportErrorKind, shorten};
use crate::node::describe;

/// What each body of a model reads from outside, found once: asking again at every level would multiply the
/// work by the depth.
#[derive(Debug, Default)]
pub(crate) struct FreeNames<'m> {
    /// By the address of the body.
    of_bodies: HashMap<*const Graph<'m>, Vec<&'m str>>,
}

impl<'m> FreeNames<'m> {
    /// Of all bodies in `graph`. The reader bounds the nesting, so recursion is bounded too.
    pub(crate) fn new(graph: &'m Graph<'m>) -> FreeNames<'m> {
        let mut all = FreeNames::default();
        all.add_bodies_of(graph);
        all
    }

    fn add_bodies_of(&mut self, graph: &'m Graph<'m>) {
        for body in graph.nodes.iter().flat_map(|node| &node.attributes).flat_map(bodies) {
            self.add_bodies_of(body);
            let names = self.read_by(body);
            self.of_bodies.insert(std::ptr::from_ref(body), names);
        }
    }

    /// What a body reads but does not define, each name once.
    fn read_by(&self, body: &'m Graph<'m>) -> Vec<&'m str> {
        let mut seen: HashSet<&str> = HashSet::from([""]);
        seen.extend(body.inputs.iter().map(|input| input.name.as_ref()));
        seen.extend(body.initializers.iter().map(|tensor| tensor.name.as_ref()));
        seen.extend(body.sparse_initializers.iter().map(|sparse| sparse.values.name.as_ref()));
        seen.extend(body.nodes.iter().flat_map(|node| &node.outputs).map(AsRef::<str>::as_ref));
        let in_nodes = body.nodes.iter().flat_map(|node| self.of(node));
        let outputs = body.outputs.iter().map(|output| output.name.as_ref());
        in_nodes.chain(outputs).filter(|name| seen.insert(name)).collect()
    }

    /// Every name that a node reads, those that its bodies take from outside included.
    fn of<'s>(&'s self, node: &'m Node<'m>) -> impl Iterator<Item = &'m str> + use<'s, 'm> {
        let inputs = node.inputs.iter().map(AsRef::as_ref).filter(|name: &&str| !name.is_empty());
        let bodies = node.attributes.iter().flat_map(bodies);
        inputs.chain(
            bodies.flat_map(|body| {
                self.of_bodies.get(&std::ptr::from_ref(body)).into_iter().flatten().copied()
            }),
        )
    }
}

fn bodies<'m>(attribute: &'m Attribute<'m>) -> &'m [Graph<'m>] {
    match &attribute.value {
        AttributeValue::Graph(body) => std::slice::from_ref(body),
        AttributeValue::Graphs(bodies) => bodies,
        _ => &[],
    }
}

/// Which node of a graph makes each value.
pub(crate) type Producers<'m> = HashMap<&'m str, usize>;

pub(crate) fn producers<'m>(graph: &'m Graph<'m>) -> Result<Producers<'m>, ImportError> {
    let mut producers = HashMap::with_capacity(graph.nodes.len());
    for (idx, node) in graph.nodes.iter().enumerate() {
        for output in node.outputs.iter().filter(|name| !name.is_empty()) {
            if producers.insert(output.as_ref(), idx).is_some() {
                let detail = format!("two nodes make a value called `{}`", shorten(output));
                return Err(ImportError::invalid(detail).at(|| describe(node)));
            }
        }
    }
    Ok(producers)
}

/// Indices of the graph's nodes in an order that can be run. `is_known` tells of values from outside.
pub(crate) fn runnable_order<'m>(
    graph: &'m Graph<'m>,
    producers: &Producers<'m>,
    free_names: &FreeNames<'m>,
    is_known: &dyn Fn(&str) -> bool,
) -> Result<Vec<usize>, ImportError> {
    let mut dependencies: Vec<Vec<usize>> = Vec::with_capacity(graph.nodes.len());
    let mut sorted = true;
    for (idx, node) in graph.nodes.iter().enumerate() {
        let mut own = Vec::new();
        for name in free_names.of(node) {
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
    let mut ready: BTreeSet<usize> = (0..n_nodes).filter(|&idx| waiting[idx] == 0).collect();
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
