//! From the structures of [`crate::model`] to bytes: one function a message.
//!
//! Fields with their default value are left out, as protobuf writers do.

mod sink;
mod tensor;

use std::borrow::Cow;

use sink::Sink;

use crate::{
    Attribute, AttributeValue, DataType, Dimension, Function, Graph, Model, Node, OpsetImport,
    QuantizationAnnotation, Tensor, Type, ValueInfo,
};

/// The bytes of a model file. The memory taken is that of the result.
pub fn write(model: &Model<'_>) -> Vec<u8> {
    Sink::build(|sink| write_model(sink, model))
}

/// The bytes of one tensor of its own.
pub fn write_tensor(tensor: &Tensor<'_>) -> Vec<u8> {
    Sink::build(|sink| tensor::tensor(sink, tensor))
}

fn write_model(sink: &mut Sink, model: &Model<'_>) {
    if model.ir_version != 0 {
        sink.int(1, model.ir_version);
    }
    sink.text(2, &model.producer_name);
    sink.text(3, &model.producer_version);
    sink.text(4, &model.domain);
    if model.model_version != 0 {
        sink.int(5, model.model_version);
    }
    sink.text(6, &model.doc_string);
    sink.message(7, |sink| graph(sink, &model.graph));
    opset_imports(sink, 8, &model.opset_imports);
    entries(sink, 14, &model.metadata);
    for item in &model.functions {
        sink.message(25, |sink| function(sink, item));
    }
}

fn opset_imports(sink: &mut Sink, field: u32, imports: &[OpsetImport<'_>]) {
    for import in imports {
        sink.message(field, |sink| {
            sink.text(1, &import.domain);
            sink.int(2, import.version);
        });
    }
}

fn entries(sink: &mut Sink, field: u32, entries: &[(Cow<'_, str>, Cow<'_, str>)]) {
    for (key, value) in entries {
        sink.message(field, |sink| {
            sink.text(1, key);
            sink.text(2, value);
        });
    }
}

fn names(sink: &mut Sink, field: u32, names: &[Cow<'_, str>]) {
    for name in names {
        // An empty name stands for an omitted input or output, so it is written too.
        sink.bytes(field, name.as_bytes());
    }
}

fn graph(sink: &mut Sink, graph: &Graph<'_>) {
    nodes(sink, 1, &graph.nodes);
    sink.text(2, &graph.name);
    for item in &graph.initializers {
        sink.message(5, |sink| tensor::tensor(sink, item));
    }
    sink.text(10, &graph.doc_string);
    value_infos(sink, 11, &graph.inputs);
    value_infos(sink, 12, &graph.outputs);
    value_infos(sink, 13, &graph.value_infos);
    for item in &graph.quantization_annotations {
        sink.message(14, |sink| quantization_annotation(sink, item));
    }
    for item in &graph.sparse_initializers {
        sink.message(15, |sink| tensor::sparse_tensor(sink, item));
    }
    entries(sink, 16, &graph.metadata);
}

fn quantization_annotation(sink: &mut Sink, annotation: &QuantizationAnnotation<'_>) {
    sink.text(1, &annotation.tensor_name);
    entries(sink, 2, &annotation.parameters);
}

fn function(sink: &mut Sink, function: &Function<'_>) {
    sink.text(1, &function.name);
    names(sink, 4, &function.inputs);
    names(sink, 5, &function.outputs);
    names(sink, 6, &function.attributes);
    nodes(sink, 7, &function.nodes);
    sink.text(8, &function.doc_string);
    opset_imports(sink, 9, &function.opset_imports);
    sink.text(10, &function.domain);
    for item in &function.attribute_protos {
        sink.message(11, |sink| attribute(sink, item));
    }
    value_infos(sink, 12, &function.value_infos);
    sink.text(13, &function.overload);
    entries(sink, 14, &function.metadata);
}

fn nodes(sink: &mut Sink, field: u32, nodes: &[Node<'_>]) {
    for node in nodes {
        sink.message(field, |sink| {
            names(sink, 1, &node.inputs);
            names(sink, 2, &node.outputs);
            sink.text(3, &node.name);
            sink.text(4, &node.op_type);
            for item in &node.attributes {
                sink.message(5, |sink| attribute(sink, item));
            }
            sink.text(6, &node.doc_string);
            sink.text(7, &node.domain);
            sink.text(8, &node.overload);
            entries(sink, 9, &node.metadata);
        });
    }
}

fn attribute(sink: &mut Sink, attribute: &Attribute<'_>) {
    sink.text(1, &attribute.name);
    match &attribute.value {
        AttributeValue::Float(value) => sink.float(2, *value),
        AttributeValue::Int(value) => sink.int(3, *value),
        AttributeValue::String(value) => sink.bytes(4, value),
        AttributeValue::Tensor(value) => sink.message(5, |sink| tensor::tensor(sink, value)),
        AttributeValue::Graph(value) => sink.message(6, |sink| graph(sink, value)),
        AttributeValue::SparseTensor(value) => sink.message(22, |sink| tensor::sparse_tensor(sink, value)),
        AttributeValue::Type(value) => sink.message(14, |sink| ty(sink, value)),
        // Proto2 does not pack these unless told to, and ONNX does not tell.
        AttributeValue::Floats(values) => values.iter().for_each(|value| sink.float(7, *value)),
        AttributeValue::Ints(values) => values.iter().for_each(|value| sink.int(8, *value)),
        AttributeValue::Strings(values) => values.iter().for_each(|value| sink.bytes(9, value)),
        AttributeValue::Tensors(values) => {
            values.iter().for_each(|value| sink.message(10, |sink| tensor::tensor(sink, value)));
        }
        AttributeValue::Graphs(values) => {
            values.iter().for_each(|value| sink.message(11, |sink| graph(sink, value)));
        }
        AttributeValue::SparseTensors(values) => {
            values.iter().for_each(|value| sink.message(23, |sink| tensor::sparse_tensor(sink, value)));
        }
        AttributeValue::Types(values) => {
            values.iter().for_each(|value| sink.message(15, |sink| ty(sink, value)));
        }
        AttributeValue::Reference(_) => {}
    }
    sink.text(13, &attribute.doc_string);
    sink.int(20, attribute.value.kind() as i64);
    sink.text(21, &attribute.ref_attr_name);
}

fn value_infos(sink: &mut Sink, field: u32, values: &[ValueInfo<'_>]) {
    for value in values {
        sink.message(field, |sink| {
            sink.text(1, &value.name);
            if let Some(value) = &value.ty {
                sink.message(2, |sink| ty(sink, value));
            }
            sink.text(3, &value.doc_string);
            entries(sink, 4, &value.metadata);
        });
    }
}

fn ty(sink: &mut Sink, value: &Type<'_>) {
    match value {
        Type::Tensor { elem, shape } => sink.message(1, |sink| tensor_type(sink, *elem, shape.as_deref())),
        Type::SparseTensor { elem, shape } => {
            sink.message(8, |sink| tensor_type(sink, *elem, shape.as_deref()));
        }
        Type::Sequence(elem) => sink.message(4, |sink| sink.message(1, |sink| ty(sink, elem))),
        Type::Optional(elem) => sink.message(9, |sink| sink.message(1, |sink| ty(sink, elem))),
        Type::Map { key, value } => sink.message(5, |sink| {
            sink.int(1, key.to_i32().into());
            sink.message(2, |sink| ty(sink, value));
        }),
        Type::Opaque { domain, name } => sink.message(7, |sink| {
            sink.text(1, domain);
            sink.text(2, name);
        }),
    }
}

fn tensor_type(sink: &mut Sink, elem: DataType, shape: Option<&[Dimension<'_>]>) {
    if elem != DataType::Undefined {
        sink.int(1, elem.to_i32().into());
    }
    let Some(dims) = shape else { return };
    sink.message(2, |sink| {
        for dim in dims {
            sink.message(1, |sink| match dim {
                Dimension::Value(value) => sink.int(1, *value),
                Dimension::Param(name) => sink.text(2, name),
                Dimension::Unknown => {}
            });
        }
    });
}
