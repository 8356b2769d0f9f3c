//! From bytes to the structures of [`crate::model`]: one function a message, one file a family of messages.

mod attribute;
mod graph;
mod sniff;
mod tensor;
mod types;
mod value;

use std::borrow::Cow;

use crate::error::{OnnxError, OnnxErrorKind, Result};
use crate::wire::{Budget, Field, Message};
use crate::{Metadata, Model, OpsetImport, OptionalValue, Sequence, Tensor};

/// Reads a model file. Text and weights are borrowed from `bytes`.
pub fn read(bytes: &[u8]) -> Result<Model<'_>> {
    let budget = Budget::for_file(bytes);
    let mut model = Model::default();
    let mut has_graph = false;
    let result = read_model(Message::root(bytes, &budget), &mut model, &mut has_graph);
    if !has_graph {
        // Before a graph is seen, a failure may mean that this is another kind of file altogether.
        if let Some(what) = sniff::other_file(bytes) {
            return Err(what);
        }
    }
    result?;
    if !has_graph {
        return Err(OnnxError::new(OnnxErrorKind::MissingField, "the model has no graph").inside("graph"));
    }
    if model.ir_version < 0 || (1..3).contains(&model.ir_version) {
        return Err(OnnxError::new(
            OnnxErrorKind::Unsupported,
            format!("IR version {} is older than 3, the first with operator set versions", model.ir_version),
        )
        .inside("ir_version")
        .hint("convert the model with a newer ONNX version"));
    }
    Ok(model)
}

/// Reads one tensor of its own: a `.pb` file of the conformance data.
pub fn read_tensor(bytes: &[u8]) -> Result<Tensor<'_>> {
    tensor::tensor(Message::root(bytes, &Budget::for_file(bytes)))
}

/// Reads a sequence of its own: a `.pb` file of the conformance data.
pub fn read_sequence(bytes: &[u8]) -> Result<Sequence<'_>> {
    value::sequence(Message::root(bytes, &Budget::for_file(bytes)))
}

/// Reads an optional value of its own: a `.pb` file of the conformance data.
pub fn read_optional(bytes: &[u8]) -> Result<OptionalValue<'_>> {
    value::optional(Message::root(bytes, &Budget::for_file(bytes)))
}

fn read_model<'a>(mut message: Message<'a, '_>, model: &mut Model<'a>, has_graph: &mut bool) -> Result<()> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => model.ir_version = field.int64("ir_version")?,
            2 => model.producer_name = field.text("producer_name")?,
            3 => model.producer_version = field.text("producer_version")?,
            4 => model.domain = field.text("domain")?,
            5 => model.model_version = field.int64("model_version")?,
            6 => model.doc_string = field.text("doc_string")?,
            7 => {
                model.graph = message.one(&field, "graph", graph::graph)?;
                *has_graph = true;
            }
            8 => message.each(&field, "opset_import", &mut model.opset_imports, opset_import)?,
            14 => metadata_entry(&message, &field, "metadata_props", &mut model.metadata)?,
            25 => message.each(&field, "functions", &mut model.functions, graph::function)?,
            _ => {}
        }
    }
    Ok(())
}

fn opset_import<'a>(mut message: Message<'a, '_>) -> Result<OpsetImport<'a>> {
    let mut import = OpsetImport::default();
    let mut has_version = false;
    while let Some(field) = message.next()? {
        match field.number {
            1 => import.domain = field.text("domain")?,
            2 => {
                import.version = field.int64("version")?;
                has_version = true;
            }
            _ => {}
        }
    }
    if !has_version {
        return Err(missing("version", "the operator set has no version", message.start()));
    }
    Ok(import)
}

/// Reads one `StringStringEntryProto` onto a list. Entries with neither key nor value say nothing and are
/// not kept, so that a run of them costs no memory.
fn metadata_entry<'a>(
    message: &Message<'a, '_>,
    field: &Field<'a>,
    name: &'static str,
    list: &mut Metadata<'a>,
) -> Result<()> {
    let entry = message.nth(field, name, list.len(), string_entry)?;
    if entry.0.is_empty() && entry.1.is_empty() { Ok(()) } else { message.push(list, entry) }
}

fn string_entry<'a>(mut message: Message<'a, '_>) -> Result<(Cow<'a, str>, Cow<'a, str>)> {
    let mut entry = (Cow::Borrowed(""), Cow::Borrowed(""));
    while let Some(field) = message.next()? {
        match field.number {
            1 => entry.0 = field.text("key")?,
            2 => entry.1 = field.text("value")?,
            _ => {}
        }
    }
    Ok(entry)
}

fn missing(field: &'static str, what: &str, offset: usize) -> OnnxError {
    OnnxError::new(OnnxErrorKind::MissingField, what).at(offset).inside(field)
}
