//! Single changes of a model: nodes put in and taken out, values and nodes renamed.

use std::collections::HashMap;

use planish_compile::name_matches as matches;
use planish_onnx::{Attribute, Dimension, Graph, Model, Node, Type, ValueInfo};

use super::file::Types;
use super::fix::remove_dead;
use super::lint::described;
use super::names::{bodies_mut, constants, producers, reads};
use crate::{Error, ErrorKind};

/// One change.
/// [`crate::onnx`] has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Edit {
    /// Puts a node between values. What made its outputs before no longer does; what only that needed goes, too.
    Insert {
        /// The operator.
        op: String,
        /// Its domain, empty for ONNX's own.
        domain: String,
        /// The node's name.
        name: String,
        /// Values that it reads.
        inputs: Vec<String>,
        /// Values that it makes, known to the model or new.
        outputs: Vec<String>,
        /// Its attributes.
        attributes: Vec<Attribute<'static>>,
        /// Whether its outputs become outputs of the model, in place of those that it reads.
        mark: bool,
    },
    /// Takes out the nodes whose name, or operator as in `op:Dropout`, matches a pattern (`*` for any letters, `?` for
    /// one): their readers read the first value that they read.
    Remove {
        /// The pattern.
        pattern: String,
    },
    /// Removes outputs by a pattern, with all that only they needed.
    DropOutputs {
        /// The pattern.
        pattern: String,
    },
    /// Gives a value another name wherever it appears.
    RenameValue {
        /// Its name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Gives a node another name.
    RenameNode {
        /// Its name.
        from: String,
        /// The new one.
        to: String,
    },
    /// Gives an input another shape: numbers, or names for open dimensions.
    Reshape {
        /// The input.
        input: String,
        /// Its dimensions.
        dims: Vec<String>,
    },
}

fn refused<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::BadOption, message))
}

/// Changes a model; gives how many places were changed, which is at least one.
/// [`crate::onnx`] has an example.
pub fn edit(model: &mut Model<'_>, types: &Types, edit: &Edit) -> Result<usize, Error> {
    let graph = &mut model.graph;
    match edit {
        Edit::Insert { op, domain, name, inputs, outputs, attributes, mark } => {
            if *mark {
                graph.outputs.retain(|output| !inputs.iter().any(|name| output.name == *name));
                graph.outputs.extend(
                    outputs
                        .iter()
                        .map(|name| ValueInfo { name: name.clone().into(), ..ValueInfo::default() }),
                );
            }
            let node = Node {
                op_type: op.clone().into(),
                domain: domain.clone().into(),
                name: name.clone().into(),
                inputs: inputs.iter().map(|name| name.clone().into()).collect(),
                outputs: outputs.iter().map(|name| name.clone().into()).collect(),
                attributes: attributes.clone(),
                ..Node::default()
            };
            insert(graph, node).map(|()| 1)
        }
        Edit::Remove { pattern } => remove(graph, pattern, types),
        Edit::DropOutputs { pattern } => {
            let before = graph.outputs.len();
            graph.outputs.retain(|output| !matches(pattern, &output.name));
            let n = before - graph.outputs.len();
            if n == 0 || graph.outputs.is_empty() {
                let what = if n == 0 { "no output has" } else { "all outputs have" };
                return refused(format!("{what} a name like `{pattern}`"));
            }
            remove_dead(graph);
            Ok(n)
        }
        Edit::RenameValue { from, to } => {
            if producers(graph).contains_key(to.as_str())
                || constants(graph).any(|name| name == to)
                || graph.inputs.iter().any(|input| input.name == *to)
            {
                return refused(format!("there is a value `{to}` already"));
            }
            match rename_value(graph, from, to) {
                0 => refused(format!("the model has no value `{from}`")),
                n => Ok(n),
            }
        }
        Edit::RenameNode { from, to } => {
            let mut nodes = graph.nodes.iter_mut().filter(|node| node.name == *from);
            match (nodes.next(), nodes.next()) {
                (Some(node), None) => {
                    node.name = to.clone().into();
                    Ok(1)
                }
                (None, _) => refused(format!("the model has no node `{from}`")),
                (Some(_), Some(_)) => refused(format!(
                    "several nodes are called `{from}`; `planish check --fix` numbers them first"
                )),
            }
        }
        Edit::Reshape { input, dims } => {
            let Some(port) = graph.inputs.iter_mut().find(|port| port.name == *input) else {
                return refused(format!("the model has no input `{input}`"));
            };
            let Some(Type::Tensor { shape, .. }) = &mut port.ty else {
                return refused(format!("the input `{input}` is no tensor"));
            };
            if let Some(own) = shape.as_ref().filter(|own| own.len() != dims.len()) {
                return refused(format!(
                    "the input `{input}` has {} dimensions, {} are given",
                    own.len(),
                    dims.len()
                ));
            }
            *shape = Some(dims.iter().map(|dim| dimension(dim)).collect());
            // They follow from the inputs' shapes, and may be others now.
            graph.value_infos.clear();
            for output in &mut graph.outputs {
                if let Some(Type::Tensor { shape, .. }) = &mut output.ty {
                    shape.iter_mut().flatten().for_each(|dim| *dim = Dimension::Unknown);
                }
            }
            Ok(1)
        }
    }
}

fn dimension(text: &str) -> Dimension<'static> {
    match text.parse() {
        Ok(size) => Dimension::Value(size),
        Err(_) => Dimension::Param(text.to_string().into()),
    }
}

fn insert<'a>(graph: &mut Graph<'a>, node: Node<'a>) -> Result<(), Error> {
    let makers = producers(graph);
    let is_known = |name: &str| {
        makers.contains_key(name)
            || constants(graph).any(|known| known == name)
            || graph.inputs.iter().any(|input| input.name == name)
    };
    if let Some(unknown) = node.inputs.iter().find(|name| !name.is_empty() && !is_known(name)) {
        return refused(format!("the model has no value `{unknown}` that the node could read"));
    }
    if let Some(input) =
        node.outputs.iter().find(|name| graph.inputs.iter().any(|input| input.name == **name))
    {
        return refused(format!("`{input}` is an input of the model, no node can make it"));
    }
    // After the last node that makes what it reads.
    let at = node.inputs.iter().filter_map(|name| makers.get(name.as_ref())).max().map_or(0, |idx| idx + 1);
    for other in &mut graph.nodes {
        for output in
            other.outputs.iter_mut().filter(|output| !output.is_empty() && node.outputs.contains(output))
        {
            *output = "".into();
        }
    }
    let outputs = node.outputs.clone();
    graph.value_infos.retain(|info| !outputs.contains(&info.name));
    graph.nodes.insert(at, node);
    graph.nodes.retain(|node| node.outputs.iter().any(|output| !output.is_empty()));
    let is_read = outputs.iter().any(|name| {
        graph.outputs.iter().any(|output| output.name == *name)
            || graph.nodes.iter().any(|node| reads(node).contains(&name.as_ref()))
    });
    if !is_read {
        return refused(format!("nothing reads `{}`, so the node would do nothing", outputs.join("`, `")));
    }
    remove_dead(graph);
    Ok(())
}

fn remove(graph: &mut Graph<'_>, pattern: &str, types: &Types) -> Result<usize, Error> {
    let is_meant = |node: &Node<'_>| match pattern.strip_prefix("op:") {
        Some(op) => matches(op, &node.op_type),
        None => matches(pattern, &node.name),
    };
    let mut instead: HashMap<String, String> = HashMap::new();
    for node in graph.nodes.iter().filter(|node| is_meant(node)) {
        let (Some(input), Some(output)) = (node.inputs.first(), node.outputs.first()) else {
            return refused(format!("{} reads nothing that could take its place", described(node)));
        };
        if let (Some(before), Some(after)) = (types.of(input), types.of(output))
            && element(&before) != element(&after)
        {
            return refused(format!(
                "{} changes the type of what it reads; it cannot be left out",
                described(node)
            ));
        }
        instead.insert(output.to_string(), input.to_string());
    }
    if instead.is_empty() {
        let what = if pattern.starts_with("op:") { "is of this operator" } else { "has a name like this" };
        return refused(format!("no node {what}: `{pattern}`"));
    }
    // A chain of them reads what the first one read.
    let source = |name: &str| {
        let mut name = name;
        while let Some(before) = instead.get(name) {
            name = before;
        }
        name.to_string()
    };
    let ports: Vec<String> = graph.outputs.iter().map(|port| port.name.to_string()).collect();
    for output in ports.iter().filter(|port| instead.contains_key(*port)) {
        let input = source(output);
        let inner = producers(graph).contains_key(input.as_str());
        if !inner || ports.contains(&input) {
            return refused(format!("the output `{output}` would be nothing but `{input}`"));
        }
        // The output keeps its name: what made the value before makes it under this name.
        graph.nodes.retain(|node| !is_meant(node) || node.outputs.first().is_none_or(|own| own != output));
        rename_value(graph, &input, output);
    }
    let renamed: Vec<(String, String)> =
        instead.keys().map(|output| (output.clone(), source(output))).collect();
    graph.nodes.retain(|node| !is_meant(node));
    for (output, input) in renamed.iter().filter(|(output, input)| output != input) {
        if !producers(graph).contains_key(output.as_str()) {
            rename_reads(graph, output, input);
        }
    }
    let n = instead.len();
    remove_dead(graph);
    Ok(n)
}

fn element(ty: &Type<'_>) -> Option<planish_onnx::DataType> {
    match ty {
        Type::Tensor { elem, .. } => Some(*elem),
        _ => None,
    }
}

/// Every place of a graph and its bodies that names this value.
fn rename_value(graph: &mut Graph<'_>, from: &str, to: &str) -> usize {
    let mut n = rename_reads(graph, from, to);
    let mut rename = |name: &mut std::borrow::Cow<'_, str>| {
        if *name == from {
            *name = to.to_string().into();
            n += 1;
        }
    };
    graph.nodes.iter_mut().flat_map(|node| &mut node.outputs).for_each(&mut rename);
    graph.initializers.iter_mut().for_each(|tensor| rename(&mut tensor.name));
    graph.sparse_initializers.iter_mut().for_each(|sparse| rename(&mut sparse.values.name));
    let infos = graph.inputs.iter_mut().chain(&mut graph.outputs).chain(&mut graph.value_infos);
    infos.for_each(|info| rename(&mut info.name));
    graph.quantization_annotations.iter_mut().for_each(|one| rename(&mut one.tensor_name));
    n
}

/// The same of those that read it.
fn rename_reads(graph: &mut Graph<'_>, from: &str, to: &str) -> usize {
    let mut n = 0;
    for node in &mut graph.nodes {
        for input in node.inputs.iter_mut().filter(|input| **input == from) {
            *input = to.to_string().into();
            n += 1;
        }
        for body in node.attributes.iter_mut().flat_map(bodies_mut) {
            let hides = producers(body).contains_key(from)
                || constants(body).any(|name| name == from)
                || body.inputs.iter().any(|input| input.name == from);
            if !hides {
                n += rename_reads(body, from, to);
                for output in body.outputs.iter_mut().filter(|output| output.name == from) {
                    output.name = to.to_string().into();
                    n += 1;
                }
            }
        }
    }
    n
}
