//! Graphs, nodes and functions.

use super::attribute::attribute;
use super::tensor::{sparse_tensor, tensor};
use super::types::value_info;
use super::{metadata_entry, missing, opset_import};
use crate::error::Result;
use crate::wire::{Field, Message};
use crate::{Function, Graph, Node, QuantizationAnnotation, ValueInfo};

pub(super) fn graph<'a>(mut message: Message<'a, '_>) -> Result<Graph<'a>> {
    let mut graph = Graph::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => message.each(&field, "node", &mut graph.nodes, node)?,
            2 => graph.name = field.text("name")?,
            5 => message.each(&field, "initializer", &mut graph.initializers, tensor)?,
            10 => graph.doc_string = field.text("doc_string")?,
            11 => message.each(&field, "input", &mut graph.inputs, named_value)?,
            12 => message.each(&field, "output", &mut graph.outputs, named_value)?,
            13 => described_value(&message, &field, &mut graph.value_infos)?,
            14 => {
                let list = &mut graph.quantization_annotations;
                message.each(&field, "quantization_annotation", list, quantization_annotation)?;
            }
            15 => {
                message.each(&field, "sparse_initializer", &mut graph.sparse_initializers, sparse_tensor)?;
            }
            16 => metadata_entry(&message, &field, "metadata_props", &mut graph.metadata)?,
            _ => {}
        }
    }
    Ok(graph)
}

pub(super) fn function<'a>(mut message: Message<'a, '_>) -> Result<Function<'a>> {
    let mut function = Function::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => function.name = field.text("name")?,
            4 => message.push(&mut function.inputs, field.text("input")?)?,
            5 => message.push(&mut function.outputs, field.text("output")?)?,
            6 => message.push(&mut function.attributes, field.text("attribute")?)?,
            7 => message.each(&field, "node", &mut function.nodes, node)?,
            8 => function.doc_string = field.text("doc_string")?,
            9 => message.each(&field, "opset_import", &mut function.opset_imports, opset_import)?,
            10 => function.domain = field.text("domain")?,
            11 => message.each(&field, "attribute_proto", &mut function.attribute_protos, attribute)?,
            12 => described_value(&message, &field, &mut function.value_infos)?,
            13 => function.overload = field.text("overload")?,
            14 => metadata_entry(&message, &field, "metadata_props", &mut function.metadata)?,
            _ => {}
        }
    }
    if function.name.is_empty() {
        return Err(missing("name", "the function has no name", message.start()));
    }
    Ok(function)
}

fn node<'a>(message: Message<'a, '_>) -> Result<Node<'a>> {
    let mut node = Node::default();
    match read_node(message, &mut node) {
        Ok(()) => Ok(node),
        Err(error) => Err(error.in_node(&node.name)),
    }
}

fn read_node<'a>(mut message: Message<'a, '_>, node: &mut Node<'a>) -> Result<()> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => message.push(&mut node.inputs, field.text("input")?)?,
            2 => message.push(&mut node.outputs, field.text("output")?)?,
            3 => node.name = field.text("name")?,
            4 => node.op_type = field.text("op_type")?,
            5 => message.each(&field, "attribute", &mut node.attributes, attribute)?,
            6 => node.doc_string = field.text("doc_string")?,
            7 => node.domain = field.text("domain")?,
            8 => node.overload = field.text("overload")?,
            9 => metadata_entry(&message, &field, "metadata_props", &mut node.metadata)?,
            _ => {}
        }
    }
    if node.op_type.is_empty() {
        return Err(missing("op_type", "the node names no operator", message.start()));
    }
    Ok(())
}

/// A graph's input or output, which must have a name to be of any use.
fn named_value<'a>(message: Message<'a, '_>) -> Result<ValueInfo<'a>> {
    let start = message.start();
    let value = value_info(message)?;
    if value.name.is_empty() {
        return Err(missing("name", "the value has no name", start));
    }
    Ok(value)
}

/// The type of a value in between. One without a name describes nothing and is not kept.
fn described_value<'a>(
    message: &Message<'a, '_>,
    field: &Field<'a>,
    list: &mut Vec<ValueInfo<'a>>,
) -> Result<()> {
    let value = message.nth(field, "value_info", list.len(), value_info)?;
    if value.name.is_empty() { Ok(()) } else { message.push(list, value) }
}

fn quantization_annotation<'a>(mut message: Message<'a, '_>) -> Result<QuantizationAnnotation<'a>> {
    let mut annotation = QuantizationAnnotation::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => annotation.tensor_name = field.text("tensor_name")?,
            2 => {
                metadata_entry(&message, &field, "quant_parameter_tensor_names", &mut annotation.parameters)?
            }
            _ => {}
        }
    }
    if annotation.tensor_name.is_empty() {
        return Err(missing("tensor_name", "the annotation names no tensor", message.start()));
    }
    Ok(annotation)
}
