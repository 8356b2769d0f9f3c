//! What a copy of a piece of graph costs in memory. Text and weights borrowed from the file cost nothing.

use std::borrow::Cow;

use crate::{
    Attribute, AttributeValue, Graph, Metadata, Node, SparseTensor, Tensor, TensorData, Type, ValueInfo,
};

/// A name in a list or a table.
pub(super) const NAME: usize = 2 * size_of::<Cow<'static, str>>();

/// Bytes of a node with all that hangs on it.
pub(super) fn node(node: &Node<'_>) -> usize {
    size_of::<Node<'_>>()
        + names(&node.inputs)
        + names(&node.outputs)
        + texts([&node.name, &node.op_type, &node.domain, &node.overload, &node.doc_string])
        + node.attributes.iter().map(attribute).sum::<usize>()
        + metadata(&node.metadata)
}

fn attribute(attribute: &Attribute<'_>) -> usize {
    texts([&attribute.name, &attribute.ref_attr_name, &attribute.doc_string]) + value(&attribute.value)
}

/// Bytes of an attribute's value.
pub(super) fn value(value: &AttributeValue<'_>) -> usize {
    let below = match value {
        AttributeValue::Float(_) | AttributeValue::Int(_) | AttributeValue::Reference(_) => 0,
        AttributeValue::String(text) => bytes(text),
        AttributeValue::Tensor(value) => tensor(value),
        AttributeValue::Graph(value) => graph(value),
        AttributeValue::SparseTensor(value) => sparse(value),
        AttributeValue::Type(value) => ty(value),
        AttributeValue::Floats(values) => values.len() * 4,
        AttributeValue::Ints(values) => values.len() * 8,
        AttributeValue::Strings(values) => values.iter().map(|text| NAME + bytes(text)).sum(),
        AttributeValue::Tensors(values) => values.iter().map(tensor).sum(),
        AttributeValue::Graphs(values) => values.iter().map(graph).sum(),
        AttributeValue::SparseTensors(values) => values.iter().map(sparse).sum(),
        AttributeValue::Types(values) => values.iter().map(ty).sum(),
    };
    size_of::<Attribute<'_>>() + below
}

/// Nodes inside an attribute's value.
pub(super) fn nodes(value: &AttributeValue<'_>) -> usize {
    let in_graph = |graph: &Graph<'_>| -> usize {
        let inside = graph.nodes.iter().flat_map(|node| &node.attributes);
        graph.nodes.len() + inside.map(|attribute| nodes(&attribute.value)).sum::<usize>()
    };
    match value {
        AttributeValue::Graph(graph) => in_graph(graph),
        AttributeValue::Graphs(graphs) => graphs.iter().map(in_graph).sum(),
        _ => 0,
    }
}

fn graph(graph: &Graph<'_>) -> usize {
    let values = graph.inputs.iter().chain(&graph.outputs).chain(&graph.value_infos);
    let annotations = graph.quantization_annotations.iter();
    size_of::<Graph<'_>>()
        + texts([&graph.name, &graph.doc_string])
        + graph.nodes.iter().map(node).sum::<usize>()
        + graph.initializers.iter().map(tensor).sum::<usize>()
        + graph.sparse_initializers.iter().map(sparse).sum::<usize>()
        + values.map(value_info).sum::<usize>()
        + annotations.map(|one| NAME + text(&one.tensor_name) + metadata(&one.parameters)).sum::<usize>()
        + metadata(&graph.metadata)
}

fn tensor(tensor: &Tensor<'_>) -> usize {
    let data = match &tensor.data {
        TensorData::Raw(data) => bytes(data),
        TensorData::Floats(values) => values.len() * 4,
        TensorData::Int32s(values) => values.len() * 4,
        TensorData::Int64s(values) => values.len() * 8,
        TensorData::Doubles(values) => values.len() * 8,
        TensorData::Uint64s(values) => values.len() * 8,
        TensorData::Strings(values) => values.iter().map(|text| NAME + bytes(text)).sum(),
        TensorData::External(external) => text(&external.location),
    };
    size_of::<Tensor<'_>>()
        + tensor.dims.len() * 8
        + data
        + texts([&tensor.name, &tensor.doc_string])
        + metadata(&tensor.metadata)
}

fn sparse(sparse: &SparseTensor<'_>) -> usize {
    tensor(&sparse.values) + tensor(&sparse.indices) + sparse.dims.len() * 8
}

fn value_info(value: &ValueInfo<'_>) -> usize {
    size_of::<ValueInfo<'_>>()
        + texts([&value.name, &value.doc_string])
        + value.ty.as_ref().map_or(0, ty)
        + metadata(&value.metadata)
}

fn ty(value: &Type<'_>) -> usize {
    let below = match value {
        Type::Tensor { shape, .. } | Type::SparseTensor { shape, .. } => {
            shape.as_ref().map_or(0, |dims| dims.len() * NAME)
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map { value: inner, .. } => ty(inner),
        Type::Opaque { domain, name } => texts([domain, name]),
    };
    size_of::<Type<'_>>() + below
}

fn metadata(entries: &Metadata<'_>) -> usize {
    entries.iter().map(|(key, value)| NAME + texts([key, value])).sum()
}

fn names(list: &[Cow<'_, str>]) -> usize {
    list.iter().map(|name| NAME + text(name)).sum()
}

fn texts<const N: usize>(list: [&Cow<'_, str>; N]) -> usize {
    list.into_iter().map(text).sum()
}

#[expect(clippy::ptr_arg, reason = "borrowed and owned differ here")]
fn text(text: &Cow<'_, str>) -> usize {
    match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(text) => text.len(),
    }
}

#[expect(clippy::ptr_arg, reason = "borrowed and owned differ here")]
fn bytes(data: &Cow<'_, [u8]>) -> usize {
    match data {
        Cow::Borrowed(_) => 0,
        Cow::Owned(data) => data.len(),
    }
}
