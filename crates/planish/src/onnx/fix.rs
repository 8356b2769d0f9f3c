//! Repairs what [`crate::onnx::lint`] finds and a machine can.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use planish_onnx::{DataType, Dimension, Graph, Model, Node, Tensor, TensorData, Type};

use super::file::Types;
use super::lint::{called_functions, disagreement, is_unnamed, plain_domain, used_domains};
use super::names::{constants, each_tensor_mut, live_nodes, producers, read_names, reads};

/// Repairs a model: sorts nodes, removes what nothing needs, gives names where they lack or clash, declares what is
/// inferred, flushes denormal weights. What the model computes stays the same but for these.
/// [`crate::onnx`] has an example.
pub fn fix(model: &mut Model<'_>, types: &Types) {
    let graph = &mut model.graph;
    sort_nodes(graph);
    remove_dead(graph);
    drop_dead_outputs(graph);
    remove_dead(graph);
    number_names(graph);
    let known: HashSet<String> = constants(graph).map(str::to_string).collect();
    graph.inputs.retain(|input| !known.contains(&*input.name));
    name_dimensions(graph);
    declare(graph, types);
    flush_denormals(graph);
    let called: HashSet<(String, String)> = called_functions(model)
        .into_iter()
        .map(|(domain, name)| (domain.to_string(), name.to_string()))
        .collect();
    model.functions.retain(|function| {
        called.contains(&(plain_domain(&function.domain).to_string(), function.name.to_string()))
    });
    let used: HashSet<String> = used_domains(model).into_iter().map(str::to_string).collect();
    model
        .opset_imports
        .retain(|import| used.contains(plain_domain(&import.domain)) || import.domain.is_empty());
}

/// An order of the nodes in which each comes after those whose values it reads, as near to their own as can be; `None`
/// where there is none.
pub(super) fn runnable_order(graph: &Graph<'_>) -> Option<Vec<usize>> {
    let makers = producers(graph);
    let (mut order, mut state) = (Vec::with_capacity(graph.nodes.len()), vec![State::New; graph.nodes.len()]);
    for first in 0..graph.nodes.len() {
        // By hand: a chain of nodes may be longer than the stack is deep.
        let mut open = vec![(first, false)];
        while let Some((idx, is_done)) = open.pop() {
            match (state[idx], is_done) {
                (_, true) => {
                    state[idx] = State::Done;
                    order.push(idx);
                }
                (State::New, false) => {
                    state[idx] = State::Open;
                    open.push((idx, true));
                    let before =
                        reads(&graph.nodes[idx]).into_iter().filter_map(|name| makers.get(name)).rev();
                    open.extend(before.map(|&maker| (maker, false)));
                }
                (State::Open, false) => return None,
                (State::Done, false) => {}
            }
        }
    }
    Some(order)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

fn sort_nodes(graph: &mut Graph<'_>) {
    let Some(order) = runnable_order(graph) else { return };
    let mut nodes: Vec<Option<Node<'_>>> = std::mem::take(&mut graph.nodes).into_iter().map(Some).collect();
    graph.nodes = order.into_iter().filter_map(|idx| nodes[idx].take()).collect();
}

/// Removes nodes, constants and types that no output needs.
pub(super) fn remove_dead(graph: &mut Graph<'_>) {
    let mut is_live = live_nodes(graph).into_iter();
    graph.nodes.retain(|_| is_live.next().unwrap_or(true));
    let read: HashSet<String> = read_names(graph).into_iter().map(str::to_string).collect();
    graph.initializers.retain(|tensor| read.contains(&*tensor.name));
    graph.sparse_initializers.retain(|sparse| read.contains(&*sparse.values.name));
    let made: HashSet<String> = producers(graph).into_keys().map(str::to_string).collect();
    graph.value_infos.retain(|info| made.contains(&*info.name) || read.contains(&*info.name));
    graph.quantization_annotations.retain(|one| read.contains(&*one.tensor_name));
}

/// The outputs of a node that it may leave out; the first, and those whose number means something, may not be.
pub(super) fn optional_outputs<'m, 'a>(node: &'m Node<'a>) -> &'m [Cow<'a, str>] {
    let may_lack = ["Dropout", "MaxPool", "LayerNormalization", "GroupNormalization", "BatchNormalization"];
    let all_may_lack = ["LSTM", "GRU", "RNN"];
    match node.op_type.as_ref() {
        _ if !plain_domain(&node.domain).is_empty() => &[],
        name if all_may_lack.contains(&name) => &node.outputs,
        name if may_lack.contains(&name) => node.outputs.get(1..).unwrap_or_default(),
        _ => &[],
    }
}

fn drop_dead_outputs(graph: &mut Graph<'_>) {
    let read: HashSet<String> = read_names(graph).into_iter().map(str::to_string).collect();
    for node in &mut graph.nodes {
        let n_optional = optional_outputs(node).len();
        let first = node.outputs.len() - n_optional;
        for output in node.outputs[first..].iter_mut().filter(|output| !read.contains(output.as_ref())) {
            *output = Cow::Borrowed("");
        }
        if n_optional > 0 {
            while node.outputs.pop_if(|name| name.is_empty()).is_some() {}
        }
    }
}

/// Later nodes of one name get a number.
fn number_names(graph: &mut Graph<'_>) {
    let mut taken: HashSet<String> = graph.nodes.iter().map(|node| node.name.to_string()).collect();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for node in graph.nodes.iter_mut().filter(|node| !node.name.is_empty()) {
        let n = seen.entry(node.name.to_string()).or_default();
        *n += 1;
        if *n > 1 {
            let wanted = node.name.to_string();
            let name = (*n..).map(|number| format!("{wanted}_{number}")).find(|name| !taken.contains(name));
            if let Some(name) = name {
                taken.insert(name.clone());
                node.name = name.into();
            }
        }
    }
}

fn name_dimensions(graph: &mut Graph<'_>) {
    for input in &mut graph.inputs {
        let name = input.name.to_string();
        if let Some(Type::Tensor { shape: Some(dims), .. }) = &mut input.ty {
            for (axis, dim) in dims.iter_mut().enumerate().filter(|(_, dim)| is_unnamed(dim)) {
                *dim = Dimension::Param(format!("{name}_{axis}").into());
            }
        }
    }
}

/// What inference finds takes the place of what is declared and wrong.
fn declare(graph: &mut Graph<'_>, types: &Types) {
    let made: HashSet<String> = producers(graph).into_keys().map(str::to_string).collect();
    for info in
        graph.outputs.iter_mut().chain(&mut graph.value_infos).filter(|info| made.contains(&*info.name))
    {
        if let (Some(declared), Some(own)) = (&info.ty, types.inferred(&info.name))
            && disagreement(declared, &own).is_some()
        {
            info.ty = Some(own);
        }
    }
}

fn flush_denormals(graph: &mut Graph<'_>) {
    let mut flush = |tensor: &mut Tensor<'_>| -> Result<(), std::convert::Infallible> {
        let Ok(bytes) = tensor.to_le_bytes() else { return Ok(()) };
        // In every format the exponent's bits are 0 and the fraction's are not.
        let is_denormal: fn(&[u8]) -> bool = match tensor.data_type {
            DataType::Float => {
                |chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]).is_subnormal()
            }
            DataType::Double => {
                |chunk| chunk.try_into().is_ok_and(|chunk| f64::from_le_bytes(chunk).is_subnormal())
            }
            DataType::Bfloat16 => |chunk| f32::from_le_bytes([0, 0, chunk[0], chunk[1]]).is_subnormal(),
            _ => return Ok(()),
        };
        let width = tensor.data_type.bits().unwrap_or(8) / 8;
        if !bytes.chunks_exact(width).any(is_denormal) {
            return Ok(());
        }
        let mut flushed = bytes.into_owned();
        flushed.chunks_exact_mut(width).filter(|chunk| is_denormal(chunk)).for_each(|chunk| chunk.fill(0));
        tensor.data = TensorData::Raw(flushed.into());
        Ok(())
    };
    let Ok(()) = each_tensor_mut(graph, &mut flush);
}
