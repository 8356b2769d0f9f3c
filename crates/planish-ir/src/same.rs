//! Whether two graphs are the same, and where they first differ.

use planish_op::Op;
use planish_op::infer::Content;

use crate::graph::{Graph, Node};
use crate::id::ValueId;

impl Graph {
    /// `Ok` if both have the same inputs, constants, nodes and outputs, in the same order, with the same names
    /// and types; otherwise the first difference in words.
    ///
    /// Ids, values that nothing makes, and what inference knows of elements do not count: the text form keeps
    /// none of them.
    pub fn same_as(&self, other: &Graph) -> Result<(), String> {
        differ("the graph's name", &self.name, &other.name)?;
        values(self, other, "input", self.inputs(), other.inputs())?;
        constants(self, other)?;
        differ("the number of nodes", &self.nodes.len(), &other.nodes.len())?;
        for (idx, (a, b)) in self.nodes.iter().zip(&other.nodes).enumerate() {
            nodes(self, other, a, b).map_err(|what| format!("node {idx} `{}`: {what}", a.name))?;
        }
        values(self, other, "output", self.outputs(), other.outputs())
    }
}

fn differ<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, a: &T, b: &T) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{what} is {a:?} here, {b:?} there")) }
}

fn values(a: &Graph, b: &Graph, what: &str, ids: &[ValueId], others: &[ValueId]) -> Result<(), String> {
    differ(&format!("the number of {what}s"), &ids.len(), &others.len())?;
    for (idx, (&id, &other)) in ids.iter().zip(others).enumerate() {
        value(a, b, &format!("{what} {idx}"), Some(id), Some(other))?;
    }
    Ok(())
}

fn value(
    a: &Graph,
    b: &Graph,
    what: &str,
    id: Option<ValueId>,
    other: Option<ValueId>,
) -> Result<(), String> {
    let (id, other) = match (id, other) {
        (Some(id), Some(other)) => (a.value(id), b.value(other)),
        (None, None) => return Ok(()),
        (id, _) => {
            let (here, there) = if id.is_some() { ("given", "absent") } else { ("absent", "given") };
            return Err(format!("{what} is {here} here, {there} there"));
        }
    };
    differ(&format!("the name of {what}"), &*id.name, &*other.name)?;
    if id.ty != other.ty {
        return Err(format!("the type of `{}` is {} here, {} there", id.name, id.ty, other.ty));
    }
    Ok(())
}

fn constants(a: &Graph, b: &Graph) -> Result<(), String> {
    let list = |graph: &'_ Graph| -> Vec<_> {
        graph.values().filter(|(_, value)| value.constant().is_some()).map(|(id, _)| id).collect()
    };
    let (ids, others) = (list(a), list(b));
    values(a, b, "constant", &ids, &others)?;
    for (&id, &other) in ids.iter().zip(&others) {
        let elements = |graph: &Graph, id: ValueId| match &graph.value(id).content {
            Some(Content::Tensor(tensor)) => Some(tensor.clone()),
            _ => None,
        };
        if elements(a, id) != elements(b, other) {
            return Err(format!("the elements of the constant `{}` differ", a.value(id).name));
        }
    }
    Ok(())
}

fn nodes(a: &Graph, b: &Graph, node: &Node, other: &Node) -> Result<(), String> {
    differ("the name", &*node.name, &*other.name)?;
    ops(&node.op, &other.op)?;
    differ("the number of captured values", &node.n_captured, &other.n_captured)?;
    for (what, ids, others) in
        [("input", &node.inputs, &other.inputs), ("output", &node.outputs, &other.outputs)]
    {
        differ(&format!("the number of {what}s"), &ids.len(), &others.len())?;
        for (idx, (id, other)) in ids.iter().zip(others).enumerate() {
            value(a, b, &format!("{what} {idx}"), *id, *other)?;
        }
    }
    differ("the number of bodies", &node.bodies.len(), &other.bodies.len())?;
    for (body, other) in node.bodies.iter().zip(&other.bodies) {
        body.same_as(other).map_err(|what| format!("body `{}`: {what}", body.name))?;
    }
    Ok(())
}

/// Operators compared through their attributes, whose floats are equal bit by bit.
fn ops(a: &Op, b: &Op) -> Result<(), String> {
    let identity = |op: &Op| match op {
        Op::Custom(op) => format!("{}.{} version {}", op.domain, op.name, op.version),
        op => op.name().to_string(),
    };
    differ("the operator", &identity(a), &identity(b))?;
    differ("the list of attributes", &a.attributes(), &b.attributes())
}
