//! ONNX attributes to the kinds that the operator table asks for.

use planish_onnx::{AttributeValue, DataType};
use planish_op::{Attribute, AttributeKind, FieldSpec};

use crate::error::{ImportError, ImportErrorKind};
use crate::tensors::Weights;
use crate::types;

/// The value of an attribute as the field wants it.
pub(crate) fn convert(
    field: &FieldSpec,
    value: &AttributeValue<'_>,
    weights: &mut Weights<'_>,
) -> Result<Attribute, ImportError> {
    let wrong = || {
        let detail = format!(
            "attribute `{}` should be of kind {:?}, it is {:?}",
            field.name,
            field.kind,
            value.kind()
        );
        ImportError::invalid(detail)
    };
    Ok(match (field.kind, value) {
        (AttributeKind::Bool, AttributeValue::Int(number)) => Attribute::Bool(*number != 0),
        (AttributeKind::Int, AttributeValue::Int(number)) => Attribute::Int(*number),
        (AttributeKind::Float, AttributeValue::Float(number)) => Attribute::Float(*number),
        (AttributeKind::Float, AttributeValue::Int(number)) => Attribute::Float(*number as f32),
        (AttributeKind::Str, AttributeValue::String(text)) => Attribute::Str(utf8(text, field.name)?),
        (AttributeKind::Ints, AttributeValue::Ints(numbers)) => Attribute::Ints(numbers.clone()),
        (AttributeKind::Floats, AttributeValue::Floats(numbers)) => Attribute::Floats(numbers.clone()),
        (AttributeKind::Strs, AttributeValue::Strings(texts)) => {
            Attribute::Strs(texts.iter().map(|text| utf8(text, field.name)).collect::<Result<_, _>>()?)
        }
        // An empty list says nothing of its kind.
        (AttributeKind::Ints, AttributeValue::Floats(numbers)) if numbers.is_empty() => {
            Attribute::Ints(vec![])
        }
        (AttributeKind::Floats, AttributeValue::Ints(numbers)) if numbers.is_empty() => {
            Attribute::Floats(vec![])
        }
        (AttributeKind::DType, AttributeValue::Int(number)) => Attribute::DType(dtype(*number)?),
        (AttributeKind::Tensor, AttributeValue::Tensor(tensor)) => Attribute::Tensor(weights.tensor(tensor)?),
        (AttributeKind::Type, AttributeValue::Type(ty)) => {
            let mut unknown = |axis: usize| planish_tensor::Dim::symbol(&format!("any.{axis}"));
            Attribute::Type(types::value_type(ty, &mut unknown)?)
        }
        _ => return Err(wrong()),
    })
}

pub(crate) fn utf8(text: &[u8], name: &str) -> Result<String, ImportError> {
    match std::str::from_utf8(text) {
        Ok(text) => Ok(text.to_string()),
        Err(_) => Err(ImportError::invalid(format!("attribute `{name}` is not valid UTF-8"))),
    }
}

/// The element type with this ONNX number.
pub(crate) fn dtype(number: i64) -> Result<planish_tensor::DType, ImportError> {
    let unknown = || {
        ImportError::new(ImportErrorKind::UnsupportedType {
            what: format!("the element type number {number}"),
        })
    };
    let number = i32::try_from(number).map_err(|_| unknown())?;
    types::dtype(DataType::from_i32(number).map_err(|_| unknown())?)
}
