//! The same graph at given sizes: symbols replaced, every type inferred again.

use planish_op::ValueType;
use planish_op::infer::Content;
use planish_tensor::{Dim, Shape};

use crate::control;
use crate::graph::{Declared, Graph, GraphError, NewNode, NewOutput, Node};
use crate::id::ValueId;

impl Graph {
    /// This graph with the symbols that `lookup` knows replaced by numbers. Sizes that the operators refuse
    /// are an error.
    pub fn specialize(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Result<Graph, GraphError> {
        let replace = |name: &str| lookup(name).map(Dim::from);
        specialize(self, &replace, &[])
    }
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<Dim>;
/// What a body's input is known to be outside; `None` for a formal one.
type Known = Option<(ValueType, Option<Content>)>;

fn specialize(graph: &Graph, lookup: Lookup<'_>, known: &[Known]) -> Result<Graph, GraphError> {
    // Old symbols stay in hints, so new ones are numbered after them.
    let mut new =
        Graph { name: graph.name.clone(), n_fresh_symbols: graph.n_fresh_symbols, ..Graph::default() };
    let mut ids: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for (idx, &id) in graph.inputs().iter().enumerate() {
        let value = graph.value(id);
        let (ty, content) = match known.get(idx) {
            Some(Some((ty, content))) => (ty.clone(), content.clone()),
            _ => (substitute(&value.ty, lookup), None),
        };
        ids[id.index()] = Some(new.add_known_input(&value.name, ty, content)?);
    }
    for (id, value) in graph.values() {
        if let Some(tensor) = value.constant() {
            ids[id.index()] = Some(new.add_constant(&value.name, tensor.clone())?);
        }
    }
    for (_, node) in graph.nodes() {
        let inputs: Vec<Option<ValueId>> =
            node.inputs.iter().map(|id| id.and_then(|id| ids[id.index()])).collect();
        let bodies = bodies(&new, node, &inputs, lookup)?;
        let output = |id: &Option<ValueId>| match id.map(|id| graph.value(id)) {
            None => NewOutput::Skip,
            Some(value) => {
                let declared = substitute(&value.ty, lookup);
                // Without its plugin a node has only the types that it came with.
                let declared = match node.op {
                    planish_op::Op::Custom(_) => Declared::Exact(declared),
                    _ => Declared::Hint(declared),
                };
                NewOutput::Value { name: value.name.clone(), declared }
            }
        };
        let outputs = node.outputs.iter().map(output).collect();
        let (name, op, n_captured) = (node.name.clone(), node.op.clone(), node.n_captured);
        let made = new.add_node(NewNode { name, op, inputs, outputs, bodies, n_captured })?;
        for (old, id) in node.outputs.iter().zip(&new.node(made).outputs) {
            if let Some(old) = old {
                ids[old.index()] = *id;
            }
        }
    }
    let outputs = graph.outputs().iter().filter_map(|id| ids[id.index()]).collect();
    new.set_outputs(outputs);
    Ok(new)
}

fn bodies(
    outer: &Graph,
    node: &Node,
    inputs: &[Option<ValueId>],
    lookup: Lookup<'_>,
) -> Result<Vec<Graph>, GraphError> {
    let n_own = inputs.len().saturating_sub(node.n_captured);
    let formals = (0..control::n_formal(&node.op, n_own)).map(|_| None);
    let captured = inputs[n_own..].iter().map(|id| {
        let value = outer.value((*id)?);
        Some((value.ty.clone(), value.content.clone()))
    });
    let known: Vec<Known> = formals.chain(captured).collect();
    let inside = |body: &Graph| {
        specialize(body, lookup, &known)
            .map_err(|error| error.inside(&format!("{}/{}", node.name, body.name)))
    };
    node.bodies.iter().map(inside).collect()
}

fn substitute(ty: &ValueType, lookup: Lookup<'_>) -> ValueType {
    match ty {
        ValueType::Tensor(tensor) => {
            let mut tensor = tensor.clone();
            tensor.shape = tensor.shape.as_ref().map(|shape: &Shape| shape.substitute(lookup));
            ValueType::Tensor(tensor)
        }
        ValueType::Sequence(element) => ValueType::Sequence(Box::new(substitute(element, lookup))),
        ValueType::Optional(element) => ValueType::Optional(Box::new(substitute(element, lookup))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, sizes: &[(&str, i64)]) -> Result<Graph, GraphError> {
        let graph: Graph = text.parse().unwrap();
        let lookup = |name: &str| sizes.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
        let new = graph.specialize(&lookup)?;
        new.verify().unwrap();
        Ok(new)
    }

    fn type_of(graph: &Graph, name: &str) -> String {
        graph.value(graph.find(name).unwrap()).ty.to_string()
    }

    #[test]
    fn sizes_flow_through() {
        let text = "graph \"g\" { input %x: f32[n,8] const %w: f32[8,2] = hex \"00000000000000000000000000000000\
                    000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\"\n\
                    %y: f32[n,2] = MatMul(%x, %w) \"product\" %z: f32[n] = custom \"d\" \"n\" 1(%y) output %y }";
        let graph = at(text, &[("n", 5)]).unwrap();
        assert_eq!((type_of(&graph, "y").as_str(), type_of(&graph, "z").as_str()), ("f32[5,2]", "f32[5]"));
        assert_eq!(graph.outputs().len(), 1);
        assert_eq!(type_of(&at(text, &[]).unwrap(), "y"), "f32[n,2]");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let text =
            "graph \"g\" { input %x: f32[n,8] input %y: f32[m,8] %z: f32[n,8] = Add(%x, %y) output %z }";
        assert_eq!(type_of(&at(text, &[("n", 4), ("m", 1)]).unwrap(), "z"), "f32[4,8]");
        assert!(at(text, &[("n", 4), ("m", 3)]).is_err());
    }

    #[test]
    fn bodies_see_the_sizes_outside() {
        let body = |name: &str| {
            format!(
                "graph \"{name}\" {{ input %x: f32[n] %z: f32[2*n] = Concat(%x, %x) {{axis=0}} output %z }}"
            )
        };
        let text = format!(
            "graph \"g\" {{ input %c: bool[] input %x: f32[n]\n%y: f32[2*n] = If(%c; %x) [{}, {}] output %y }}",
            body("then"),
            body("else")
        );
        let graph = at(&text, &[("n", 3)]).unwrap();
        assert_eq!(type_of(&graph, "y"), "f32[6]");
        let (_, node) = graph.nodes().next().unwrap();
        assert_eq!(type_of(&node.bodies[0], "z"), "f32[6]");
    }
}
