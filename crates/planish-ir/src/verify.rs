//! `Graph::verify`: everything that the other stages take for granted about a graph, checked.
//!
//! A graph that verifies can be printed, run and rewritten without a look at each link. Passes call this
//! after every change in debug and test builds, so a broken link is found beside the pass that broke it.

use std::collections::HashSet;

use planish_op::infer::Content;
use planish_op::{TensorType, ValueType};
use planish_tensor::{DType, Shape};

use crate::control;
use crate::graph::{Graph, GraphError, GraphErrorKind, Node, NodeParts};
use crate::id::{NodeId, ValueId};
use crate::knowledge::Knowledge;

#[cfg(test)]
mod tests;

impl Graph {
    /// Checks every invariant of the graph and of the bodies in it.
    ///
    /// - ids point into the arenas; value names are unique and `find` knows them all;
    /// - inputs are distinct, come from no node and are no constants;
    /// - a value has at most one producer, and node and value agree about it;
    /// - nodes stand in an order that can be run, and outputs are made by something;
    /// - the type of a constant is that of its tensor, and known contents fit their type;
    /// - bodies take what their node hands them, and captured values keep their type on the way in;
    /// - inference, asked again, contradicts no type. The node of a plugin that is not loaded is exempt: its rule is the plugin's.
    ///
    /// A value that nothing makes is allowed as long as nothing reads it.
    pub fn verify(&self) -> Result<(), GraphError> {
        let check = Check { graph: self };
        check.ids()?;
        check.names()?;
        check.inputs()?;
        check.producers()?;
        check.contents()?;
        check.order()?;
        self.nodes.iter().try_for_each(|node| check.types(node))
    }
}

struct Check<'g> {
    graph: &'g Graph,
}

fn invalid(place: &str, detail: impl Into<String>) -> GraphError {
    GraphError::new(GraphErrorKind::Invalid(detail.into()), place)
}

impl Check<'_> {
    fn ids(&self) -> Result<(), GraphError> {
        let (n_values, n_nodes) = (self.graph.values.len(), self.graph.nodes.len());
        let in_range = |place: &str, role: &str, id: ValueId| match id.index() < n_values {
            true => Ok(()),
            false => {
                let detail = format!("{role} is value {}, there are {n_values} values", id.index());
                Err(invalid(place, detail))
            }
        };
        for (role, ids) in [("an input", &self.graph.inputs), ("an output", &self.graph.outputs)] {
            ids.iter().try_for_each(|&id| in_range(&self.graph.name, role, id))?;
        }
        for node in &self.graph.nodes {
            for (role, ids) in [("an input", &node.inputs), ("an output", &node.outputs)] {
                ids.iter().flatten().try_for_each(|&id| in_range(&node.name, role, id))?;
            }
        }
        for value in &self.graph.values {
            if let Some(id) = value.producer.filter(|id| id.index() >= n_nodes) {
                let detail = format!("the producer is node {}, there are {n_nodes} nodes", id.index());
                return Err(invalid(&value.name, detail));
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<(), GraphError> {
        let mut seen = HashSet::with_capacity(self.graph.values.len());
        for (id, value) in self.graph.values() {
            if !seen.insert(&*value.name) {
                return Err(GraphError::new(GraphErrorKind::DuplicateName, &*value.name));
            }
            match self.graph.find(&value.name) {
                Some(found) if found == id => {}
                Some(found) => {
                    let detail =
                        format!("the name leads to value {}, it is value {}", found.index(), id.index());
                    return Err(invalid(&value.name, detail));
                }
                None => return Err(invalid(&value.name, "the name leads to no value")),
            }
        }
        // Every value's name is in the map, so one entry more is a name without a value.
        match self.graph.by_name.keys().find(|name| !seen.contains(&***name)) {
            Some(name) => Err(invalid(name, "no value has this name, yet it leads to one")),
            None => Ok(()),
        }
    }

    fn inputs(&self) -> Result<(), GraphError> {
        let mut seen = HashSet::with_capacity(self.graph.inputs.len());
        for &id in &self.graph.inputs {
            let value = self.graph.value(id);
            if !seen.insert(id) {
                return Err(invalid(&value.name, "is an input twice"));
            }
            if value.producer.is_some() {
                return Err(invalid(&value.name, "is an input and made by a node"));
            }
            if value.constant().is_some() {
                return Err(invalid(&value.name, "is an input and a constant"));
            }
        }
        Ok(())
    }

    /// Nodes and values agree about who makes what.
    fn producers(&self) -> Result<(), GraphError> {
        let mut maker: Vec<Option<NodeId>> = vec![None; self.graph.values.len()];
        for (node_id, node) in self.graph.nodes() {
            for id in node.outputs.iter().flatten() {
                let name = &self.graph.value(*id).name;
                if let Some(other) = maker[id.index()].replace(node_id) {
                    let other = &self.graph.node(other).name;
                    return Err(invalid(name, format!("is made by node `{other}` and node `{}`", node.name)));
                }
            }
        }
        for (id, value) in self.graph.values() {
            let name_of = |id: Option<NodeId>| match id {
                Some(id) => format!("node `{}`", self.graph.node(id).name),
                None => "no node".to_string(),
            };
            if value.producer != maker[id.index()] {
                let (says, is) = (name_of(value.producer), name_of(maker[id.index()]));
                return Err(invalid(&value.name, format!("names {says} as its maker, {is} makes it")));
            }
        }
        Ok(())
    }

    fn contents(&self) -> Result<(), GraphError> {
        for value in &self.graph.values {
            let fits = match (&value.content, &value.ty) {
                (None, _) => true,
                (Some(Content::Tensor(tensor)), ty) => {
                    let own = ValueType::tensor(tensor.dtype(), Shape::from(tensor.shape()));
                    // A constant is its tensor; what inference found out may sit under a declared type.
                    if value.producer.is_none() { *ty == own } else { control::compatible(ty, &own) }
                }
                (Some(Content::Ints(ints)), ValueType::Tensor(TensorType { dtype, shape })) => {
                    let rank = usize::from(!ints.is_scalar);
                    let length = || shape.as_ref().and_then(|shape| shape.get(0)?.as_usize());
                    let count_fits = if ints.is_scalar {
                        ints.dims.len() == 1
                    } else {
                        length().is_none_or(|length| length == ints.dims.len())
                    };
                    let is_whole = dtype.is_int() || *dtype == DType::Bool;
                    is_whole && count_fits && shape.as_ref().is_none_or(|shape| shape.rank() == rank)
                }
                (Some(Content::Grid(dims)), ValueType::Tensor(TensorType { dtype, shape })) => {
                    let count = |shape: &Shape| shape.element_count().as_usize();
                    let fits = |shape: &Shape| {
                        shape.rank() >= 2 && count(shape).is_none_or(|count| count == dims.len())
                    };
                    dtype.is_int() && shape.as_ref().is_none_or(fits)
                }
                (Some(Content::Ints(_) | Content::Grid(_)), _) => false,
            };
            if !fits {
                let detail = format!("the type is {}, the known elements are of another", value.ty);
                return Err(invalid(&value.name, detail));
            }
        }
        Ok(())
    }

    fn order(&self) -> Result<(), GraphError> {
        let mut is_defined: Vec<bool> =
            self.graph.values.iter().map(|value| value.constant().is_some()).collect();
        for id in &self.graph.inputs {
            is_defined[id.index()] = true;
        }
        for node in &self.graph.nodes {
            if let Some(id) = node.inputs.iter().flatten().find(|id| !is_defined[id.index()]) {
                let name = &self.graph.value(*id).name;
                return Err(invalid(&node.name, format!("reads `{name}`, which nothing before it makes")));
            }
            for id in node.outputs.iter().flatten() {
                is_defined[id.index()] = true;
            }
        }
        match self.graph.outputs.iter().find(|id| !is_defined[id.index()]) {
            Some(id) => Err(invalid(&self.graph.value(*id).name, "is an output that nothing makes")),
            None => Ok(()),
        }
    }

    fn types(&self, node: &Node) -> Result<(), GraphError> {
        for body in &node.bodies {
            body.verify().map_err(|error| error.inside(&format!("{}/{}", node.name, body.name)))?;
        }
        if planish_op::plugin::is_missing(&node.op) && node.bodies.is_empty() && node.n_captured == 0 {
            return Ok(());
        }
        let parts = NodeParts {
            name: &node.name,
            op: &node.op,
            inputs: &node.inputs,
            n_outputs: node.outputs.len(),
            bodies: &node.bodies,
            n_captured: node.n_captured,
        };
        // A graph that turned frugal stays so; a fresh count decides only whether this node reads too much.
        let values = node.inputs.iter().flatten().map(|id| self.graph.value(*id));
        let sees_contents =
            Knowledge::default().read(values.map(|value| (&value.ty, value.content.as_ref())));
        // Symbols made here are looked at and thrown away, so their numbers do not matter.
        let inferred =
            self.graph.infer_parts(parts, sees_contents, &mut self.graph.n_fresh_symbols.clone())?;
        for (id, inferred) in node.outputs.iter().zip(inferred) {
            let Some(id) = id else { continue };
            let value = self.graph.value(*id);
            if !control::compatible(&value.ty, &inferred.ty) {
                let detail =
                    format!("output `{}` is {}, inference says {}", value.name, value.ty, inferred.ty);
                return Err(invalid(&node.name, detail));
            }
        }
        Ok(())
    }
}
