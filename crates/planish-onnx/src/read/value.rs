//! Sequences and optionals of the conformance data (`onnx-data.proto`).

use super::tensor::{sparse_tensor, tensor};
use crate::error::{OnnxError, OnnxErrorKind, Result};
use crate::wire::{Field, Message};
use crate::{OptionalValue, Sequence, Value};

pub(super) fn sequence<'a>(mut message: Message<'a, '_>) -> Result<Sequence<'a>> {
    let mut sequence = Sequence::default();
    while let Some(field) = message.next()? {
        let list = &mut sequence.values;
        match field.number {
            1 => sequence.name = field.text("name")?,
            3 => message.each(&field, "tensor_values", list, |m| tensor(m).map(Value::Tensor))?,
            4 => message
                .each(&field, "sparse_tensor_values", list, |m| sparse_tensor(m).map(Value::SparseTensor))?,
            5 => message.each(&field, "sequence_values", list, |m| self::sequence(m).map(Value::Sequence))?,
            6 => return Err(map(&field, "map_values")),
            7 => message.each(&field, "optional_values", list, |m| optional(m).map(Value::Optional))?,
            _ => {}
        }
    }
    Ok(sequence)
}

pub(super) fn optional<'a>(mut message: Message<'a, '_>) -> Result<OptionalValue<'a>> {
    let mut result = OptionalValue::default();
    while let Some(field) = message.next()? {
        let value = match field.number {
            1 => {
                result.name = field.text("name")?;
                continue;
            }
            3 => message.boxed(&field, "tensor_value", |m| tensor(m).map(Value::Tensor))?,
            4 => {
                message.boxed(&field, "sparse_tensor_value", |m| sparse_tensor(m).map(Value::SparseTensor))?
            }
            5 => message.boxed(&field, "sequence_value", |m| sequence(m).map(Value::Sequence))?,
            6 => return Err(map(&field, "map_value")),
            7 => message.boxed(&field, "optional_value", |m| optional(m).map(Value::Optional))?,
            _ => continue,
        };
        result.value = Some(value);
    }
    Ok(result)
}

fn map(field: &Field<'_>, name: &'static str) -> OnnxError {
    OnnxError::new(OnnxErrorKind::Unsupported, "maps are not supported").at(field.at()).inside(name)
}
