//! Parts of a model as models of their own.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use planish_import::types::data_type;
use planish_onnx::{Graph, Model, ValueInfo};
use planish_tensor::Tensor;

use super::file::{Types, value_info};
use super::names::{constants, producers, reads};
use crate::{Error, ErrorKind};

fn refused<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::BadOption, message))
}

/// The part of a model that makes `outputs` of `inputs`, both values by name; without inputs, of those of the model that
/// it needs.
/// [`crate::onnx`] has an example.
pub fn extract<'a>(
    model: &Model<'a>,
    types: &Types,
    inputs: &[String],
    outputs: &[String],
) -> Result<Model<'a>, Error> {
    let graph = &model.graph;
    let makers = producers(graph);
    let known: HashSet<&str> = constants(graph).collect();
    let given: HashSet<&str> = graph.inputs.iter().map(|input| input.name.as_ref()).collect();
    for name in inputs.iter().chain(outputs).map(String::as_str) {
        if !(makers.contains_key(name) || known.contains(name) || given.contains(name)) {
            return refused(format!("the model has no value `{name}`; `planish inspect --graph` lists them"));
        }
    }
    let asked: HashSet<&str> = inputs.iter().map(String::as_str).collect();
    let mut nodes = BTreeSet::new();
    let mut needed = HashSet::new();
    let mut open: Vec<&str> = outputs.iter().map(String::as_str).collect();
    while let Some(name) = open.pop() {
        if asked.contains(name) || known.contains(name) {
            needed.insert(name);
        } else if let Some(&idx) = makers.get(name) {
            if nodes.insert(idx) {
                open.extend(reads(&graph.nodes[idx]));
            }
        } else if given.contains(name) && inputs.is_empty() {
            needed.insert(name);
        } else if given.contains(name) {
            return refused(format!(
                "the outputs need the model's input `{name}`, too; add it to the inputs"
            ));
        } else {
            return refused(format!("nothing makes `{name}`, which the outputs need"));
        }
    }
    if let Some(unused) = inputs.iter().find(|name| !needed.contains(name.as_str())) {
        return refused(format!("the outputs do not depend on `{unused}`; leave it out of the inputs"));
    }
    let ports: Vec<&str> = match inputs.is_empty() {
        // In the model's own order.
        true => graph
            .inputs
            .iter()
            .map(|input| input.name.as_ref())
            .filter(|name| needed.contains(name))
            .collect(),
        false => inputs.iter().map(String::as_str).collect(),
    };
    let ports = ports.into_iter().filter(|name| !known.contains(name) || asked.contains(name));
    let inputs = typed(ports, types, &graph.inputs)?;
    let outputs = outputs.iter().map(|name| port(name, types, &graph.outputs)).collect();
    Ok(part(model, &nodes, inputs, outputs))
}

/// The model of these nodes alone, by index: what they read of others becomes inputs, or constants where `frozen` has it,
/// and what others read of them becomes outputs.
/// [`crate::onnx`] has an example.
pub fn keep_nodes<'a>(
    model: &Model<'a>,
    types: &Types,
    nodes: &BTreeSet<usize>,
    frozen: &HashMap<String, Tensor>,
) -> Result<Model<'a>, Error> {
    let graph = &model.graph;
    let known: HashSet<&str> = constants(graph).collect();
    let kept = || nodes.iter().filter_map(|&idx| graph.nodes.get(idx));
    let made: HashSet<&str> = kept().flat_map(|node| &node.outputs).map(AsRef::<str>::as_ref).collect();
    let mut seen = HashSet::new();
    let outside: Vec<&str> = kept()
        .flat_map(reads)
        .filter(|name| !made.contains(name) && !known.contains(name) && seen.insert(*name))
        .collect();
    let (held, ports): (Vec<&str>, Vec<&str>) =
        outside.into_iter().partition(|name| frozen.contains_key(*name));
    let others = graph.nodes.iter().enumerate().filter(|(idx, _)| !nodes.contains(idx)).map(|(_, node)| node);
    let mut wanted: HashSet<&str> = others.flat_map(reads).collect();
    wanted.extend(graph.outputs.iter().map(|output| output.name.as_ref()));
    let outputs = kept()
        .flat_map(|node| &node.outputs)
        .map(AsRef::<str>::as_ref)
        .filter(|name| !name.is_empty() && wanted.contains(name))
        .map(|name| port(name, types, &graph.outputs))
        .collect();
    // Types alone say what sizes they are at.
    let inputs = typed(ports.into_iter(), types, &[])?;
    let mut cut = part(model, nodes, inputs, outputs);
    cut.graph.initializers.extend(held.into_iter().map(|name| constant(name, &frozen[name])));
    Ok(cut)
}

/// Makes values outputs, after those that the model has.
/// [`crate::onnx`] has an example.
pub fn mark_outputs(model: &mut Model<'_>, types: &Types, names: &[String]) -> Result<(), Error> {
    for name in names {
        if !producers(&model.graph).contains_key(name.as_str()) {
            return refused(format!("no node of the model makes `{name}`"));
        }
        if model.graph.outputs.iter().all(|output| output.name != *name) {
            model.graph.outputs.push(value_info(name, types));
            model.graph.value_infos.retain(|info| info.name != *name);
        }
    }
    Ok(())
}

fn constant(name: &str, tensor: &Tensor) -> planish_onnx::Tensor<'static> {
    let dims = tensor.shape().iter().map(|&size| size as i64).collect();
    planish_onnx::Tensor::raw(name.to_string(), data_type(tensor.dtype()), dims, tensor.bytes().to_vec())
}

/// The model's own declaration of a value, or its type.
fn port<'a>(name: &str, types: &Types, declared: &[ValueInfo<'a>]) -> ValueInfo<'a> {
    match declared.iter().find(|info| info.name == name && info.ty.is_some()) {
        Some(info) => info.clone(),
        None => value_info(name, types),
    }
}

/// Inputs, whose types must be known.
fn typed<'a>(
    names: impl Iterator<Item = impl AsRef<str>>,
    types: &Types,
    declared: &[ValueInfo<'a>],
) -> Result<Vec<ValueInfo<'a>>, Error> {
    let one = |name: &str| {
        let info = port(name, types, declared);
        if info.ty.is_none() {
            return refused(format!(
                "the type of `{name}` is not known; give it with the input, as in {name}:1x3x224x224:float"
            ));
        }
        Ok(info)
    };
    names.map(|name| one(name.as_ref())).collect()
}

/// These nodes with what they need, in the model's order.
fn part<'a>(
    model: &Model<'a>,
    nodes: &BTreeSet<usize>,
    inputs: Vec<ValueInfo<'a>>,
    outputs: Vec<ValueInfo<'a>>,
) -> Model<'a> {
    let graph = &model.graph;
    let kept: Vec<_> = nodes.iter().filter_map(|&idx| graph.nodes.get(idx)).cloned().collect();
    let is_port = |name: &str| inputs.iter().chain(&outputs).any(|info| info.name == name);
    let (needed, made) = {
        let mut needed: HashSet<String> = kept.iter().flat_map(reads).map(str::to_string).collect();
        needed.extend(outputs.iter().map(|output| output.name.to_string()));
        let made: HashSet<String> = kept.iter().flat_map(|node| &node.outputs).map(Cow::to_string).collect();
        (needed, made)
    };
    let is_input = |name: &str| inputs.iter().any(|info| info.name == name);
    let is_needed = |name: &str| needed.contains(name) && !is_input(name);
    let initializers = graph.initializers.iter().filter(|tensor| is_needed(&tensor.name)).cloned().collect();
    let sparse =
        graph.sparse_initializers.iter().filter(|sparse| is_needed(&sparse.values.name)).cloned().collect();
    let value_infos = graph
        .value_infos
        .iter()
        .filter(|info| made.contains(&*info.name) && !is_port(&info.name))
        .cloned()
        .collect();
    let annotations = graph.quantization_annotations.iter();
    let quantization_annotations = annotations
        .filter(|one| made.contains(&*one.tensor_name) || is_needed(&one.tensor_name))
        .cloned()
        .collect();
    let graph = Graph {
        name: graph.name.clone(),
        doc_string: graph.doc_string.clone(),
        nodes: kept,
        initializers,
        sparse_initializers: sparse,
        inputs,
        outputs,
        value_infos,
        quantization_annotations,
        metadata: graph.metadata.clone(),
    };
    Model {
        ir_version: model.ir_version,
        opset_imports: model.opset_imports.clone(),
        producer_name: model.producer_name.clone(),
        producer_version: model.producer_version.clone(),
        domain: model.domain.clone(),
        model_version: model.model_version,
        doc_string: model.doc_string.clone(),
        graph,
        metadata: model.metadata.clone(),
        functions: model.functions.clone(),
    }
}
