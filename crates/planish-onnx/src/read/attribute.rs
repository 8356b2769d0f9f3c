//! Attributes: one message with a field for every kind of value.

use std::borrow::Cow;

use super::graph::graph;
use super::missing;
use super::tensor::{sparse_tensor, tensor, to_f32s};
use super::types::ty;
use crate::error::{OnnxError, OnnxErrorKind, Result};
use crate::wire::{Field, Message};
use crate::{Attribute, AttributeKind, AttributeValue, Graph, SparseTensor, Tensor, Type};

/// The value fields as they come, before it is known which of them counts.
#[derive(Default)]
struct Fields<'a> {
    kind: Option<AttributeKind>,
    float: Option<f32>,
    int: Option<i64>,
    string: Option<&'a [u8]>,
    tensor: Option<Box<Tensor<'a>>>,
    graph: Option<Box<Graph<'a>>>,
    sparse_tensor: Option<Box<SparseTensor<'a>>>,
    ty: Option<Box<Type<'a>>>,
    floats: Cow<'a, [u8]>,
    ints: Vec<i64>,
    strings: Vec<Cow<'a, [u8]>>,
    tensors: Vec<Tensor<'a>>,
    graphs: Vec<Graph<'a>>,
    sparse_tensors: Vec<SparseTensor<'a>>,
    types: Vec<Type<'a>>,
}

pub(super) fn attribute<'a>(mut message: Message<'a, '_>) -> Result<Attribute<'a>> {
    let (mut name, mut ref_attr_name, mut doc_string) = Default::default();
    let mut fields = Fields::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => name = field.text("name")?,
            13 => doc_string = field.text("doc_string")?,
            21 => ref_attr_name = field.text("ref_attr_name")?,
            _ => fields.read(&message, &field)?,
        }
    }
    let name: Cow<'a, str> = name;
    if name.is_empty() {
        return Err(missing("name", "the attribute has no name", message.start()));
    }
    let ref_attr_name: Cow<'a, str> = ref_attr_name;
    let value = if ref_attr_name.is_empty() {
        // Float lists stay bytes until here: their copy is counted as it is made.
        message.charge_bytes(fields.floats.len())?;
        fields.choose().ok_or_else(|| {
            let what = format!("the attribute {:?} has no value", crate::error::shorten(&name));
            OnnxError::new(OnnxErrorKind::MissingField, what).at(message.start())
        })?
    } else {
        AttributeValue::Reference(fields.kind.unwrap_or(AttributeKind::Undefined))
    };
    Ok(Attribute { name, ref_attr_name, value, doc_string })
}

impl<'a> Fields<'a> {
    fn read(&mut self, message: &Message<'a, '_>, field: &Field<'a>) -> Result<()> {
        match field.number {
            2 => self.float = Some(field.float("f")?),
            3 => self.int = Some(field.int64("i")?),
            4 => self.string = Some(field.bytes("s")?),
            5 => self.tensor = Some(message.boxed(field, "t", tensor)?),
            6 => self.graph = Some(message.boxed(field, "g", graph)?),
            7 => field.reals("floats", message, &mut self.floats, 4)?,
            8 => field.varints("ints", message, &mut self.ints, |value| value as i64)?,
            9 => message.push(&mut self.strings, Cow::Borrowed(field.bytes("strings")?))?,
            10 => message.each(field, "tensors", &mut self.tensors, tensor)?,
            11 => message.each(field, "graphs", &mut self.graphs, graph)?,
            14 => self.ty = Some(message.boxed(field, "tp", known_type)?),
            15 => message.each(field, "type_protos", &mut self.types, known_type)?,
            20 => self.kind = kind(field)?,
            22 => self.sparse_tensor = Some(message.boxed(field, "sparse_tensor", sparse_tensor)?),
            23 => message.each(field, "sparse_tensors", &mut self.sparse_tensors, sparse_tensor)?,
            _ => {}
        }
        Ok(())
    }

    /// The value that the kind says, or `None` where its field is missing. A missing number, text or list is
    /// its default, which writers may leave out.
    fn choose(self) -> Option<AttributeValue<'a>> {
        let kind = self.kind.or_else(|| self.deduce())?;
        Some(match kind {
            AttributeKind::Undefined => return None,
            AttributeKind::Float => AttributeValue::Float(self.float.unwrap_or_default()),
            AttributeKind::Int => AttributeValue::Int(self.int.unwrap_or_default()),
            AttributeKind::String => AttributeValue::String(Cow::Borrowed(self.string.unwrap_or_default())),
            AttributeKind::Tensor => AttributeValue::Tensor(self.tensor?),
            AttributeKind::Graph => AttributeValue::Graph(self.graph?),
            AttributeKind::SparseTensor => AttributeValue::SparseTensor(self.sparse_tensor?),
            AttributeKind::Type => AttributeValue::Type(self.ty?),
            AttributeKind::Floats => AttributeValue::Floats(to_f32s(&self.floats)),
            AttributeKind::Ints => AttributeValue::Ints(self.ints),
            AttributeKind::Strings => AttributeValue::Strings(self.strings),
            AttributeKind::Tensors => AttributeValue::Tensors(self.tensors),
            AttributeKind::Graphs => AttributeValue::Graphs(self.graphs),
            AttributeKind::SparseTensors => AttributeValue::SparseTensors(self.sparse_tensors),
            AttributeKind::Types => AttributeValue::Types(self.types),
        })
    }

    /// Files from before `type` was required have only the field itself.
    fn deduce(&self) -> Option<AttributeKind> {
        let present = [
            (self.float.is_some(), AttributeKind::Float),
            (self.int.is_some(), AttributeKind::Int),
            (self.string.is_some(), AttributeKind::String),
            (self.tensor.is_some(), AttributeKind::Tensor),
            (self.graph.is_some(), AttributeKind::Graph),
            (self.sparse_tensor.is_some(), AttributeKind::SparseTensor),
            (self.ty.is_some(), AttributeKind::Type),
            (!self.floats.is_empty(), AttributeKind::Floats),
            (!self.ints.is_empty(), AttributeKind::Ints),
            (!self.strings.is_empty(), AttributeKind::Strings),
            (!self.tensors.is_empty(), AttributeKind::Tensors),
            (!self.graphs.is_empty(), AttributeKind::Graphs),
            (!self.sparse_tensors.is_empty(), AttributeKind::SparseTensors),
            (!self.types.is_empty(), AttributeKind::Types),
        ];
        present.into_iter().find_map(|(is_present, kind)| is_present.then_some(kind))
    }
}

fn kind(field: &Field<'_>) -> Result<Option<AttributeKind>> {
    let number = field.int32("type")?;
    match usize::try_from(number).ok().and_then(|index| AttributeKind::ALL.get(index)) {
        Some(AttributeKind::Undefined) => Ok(None),
        Some(&kind) => Ok(Some(kind)),
        None => Err(OnnxError::new(
            OnnxErrorKind::UnknownAttributeType,
            format!("{number} is not an attribute kind of ONNX"),
        )
        .at(field.at())
        .inside("type")),
    }
}

fn known_type<'a>(message: Message<'a, '_>) -> Result<Type<'a>> {
    let start = message.start();
    let what = "the type does not say what it is";
    ty(message)?.ok_or_else(|| OnnxError::new(OnnxErrorKind::MissingField, what).at(start))
}
