//! Types, shapes and named values.

use super::metadata_entry;
use crate::error::Result;
use crate::wire::{Field, Message};
use crate::{DataType, Dimension, Type, ValueInfo};

type Shape<'a> = Option<Vec<Dimension<'a>>>;

pub(super) fn value_info<'a>(mut message: Message<'a, '_>) -> Result<ValueInfo<'a>> {
    let mut value = ValueInfo::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => value.name = field.text("name")?,
            2 => value.ty = message.one(&field, "type", ty)?,
            3 => value.doc_string = field.text("doc_string")?,
            4 => metadata_entry(&message, &field, "metadata_props", &mut value.metadata)?,
            _ => {}
        }
    }
    Ok(value)
}

/// A type, or `None` where the message does not say which: an empty message, or a sequence of nobody knows
/// what. Exporters write both for values that they could not infer.
pub(super) fn ty<'a>(mut message: Message<'a, '_>) -> Result<Option<Type<'a>>> {
    let mut result = None;
    while let Some(field) = message.next()? {
        match field.number {
            1 => {
                let (elem, shape) = message.one(&field, "tensor_type", tensor_type)?;
                result = Some(Type::Tensor { elem, shape });
            }
            4 => result = message.one(&field, "sequence_type", element_type)?.map(Type::Sequence),
            5 => result = message.one(&field, "map_type", map_type)?,
            7 => result = Some(message.one(&field, "opaque_type", opaque_type)?),
            8 => {
                let (elem, shape) = message.one(&field, "sparse_tensor_type", tensor_type)?;
                result = Some(Type::SparseTensor { elem, shape });
            }
            9 => result = message.one(&field, "optional_type", element_type)?.map(Type::Optional),
            _ => {}
        }
    }
    Ok(result)
}

fn tensor_type<'a>(mut message: Message<'a, '_>) -> Result<(DataType, Shape<'a>)> {
    let mut elem = DataType::Undefined;
    let mut dims = None;
    while let Some(field) = message.next()? {
        match field.number {
            1 => elem = data_type(&field, "elem_type")?,
            2 => dims = Some(message.one(&field, "shape", shape)?),
            _ => {}
        }
    }
    Ok((elem, dims))
}

fn shape<'a>(mut message: Message<'a, '_>) -> Result<Vec<Dimension<'a>>> {
    let mut dims = Vec::new();
    while let Some(field) = message.next()? {
        if field.number == 1 {
            message.each(&field, "dim", &mut dims, dimension)?;
        }
    }
    Ok(dims)
}

fn dimension<'a>(mut message: Message<'a, '_>) -> Result<Dimension<'a>> {
    let mut dim = Dimension::Unknown;
    while let Some(field) = message.next()? {
        match field.number {
            1 => dim = Dimension::Value(field.int64("dim_value")?),
            2 => {
                let name = field.text("dim_param")?;
                dim = if name.is_empty() { Dimension::Unknown } else { Dimension::Param(name) };
            }
            _ => {}
        }
    }
    Ok(dim)
}

/// The element type of a sequence or an optional.
fn element_type<'a>(mut message: Message<'a, '_>) -> Result<Option<Box<Type<'a>>>> {
    let mut elem = None;
    while let Some(field) = message.next()? {
        if field.number == 1 {
            message.charge::<Type<'_>>()?;
            elem = message.one(&field, "elem_type", ty)?.map(Box::new);
        }
    }
    Ok(elem)
}

fn map_type<'a>(mut message: Message<'a, '_>) -> Result<Option<Type<'a>>> {
    let mut key = DataType::Undefined;
    let mut value = None;
    while let Some(field) = message.next()? {
        match field.number {
            1 => key = data_type(&field, "key_type")?,
            2 => {
                message.charge::<Type<'_>>()?;
                value = message.one(&field, "value_type", ty)?.map(Box::new);
            }
            _ => {}
        }
    }
    Ok(value.map(|value| Type::Map { key, value }))
}

fn opaque_type<'a>(mut message: Message<'a, '_>) -> Result<Type<'a>> {
    let (mut domain, mut name) = Default::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => domain = field.text("domain")?,
            2 => name = field.text("name")?,
            _ => {}
        }
    }
    Ok(Type::Opaque { domain, name })
}

pub(super) fn data_type(field: &Field<'_>, name: &'static str) -> Result<DataType> {
    DataType::from_i32(field.int32(name)?).map_err(|error| error.at(field.at()).inside(name))
}
