//! ONNX element and value types to ours and back.

use planish_onnx::{DataType, Dimension, Type};
use planish_op::{TensorType, ValueType};
use planish_tensor::{DType, Dim, Shape};

use crate::error::{ImportError, ImportErrorKind};

/// Our element type; strings, complex numbers and "undefined" are refused by name.
pub fn dtype(data_type: DataType) -> Result<DType, ImportError> {
    Ok(match data_type {
        DataType::Float => DType::F32,
        DataType::Double => DType::F64,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bool => DType::Bool,
        DataType::Float8E4M3FN => DType::F8E4M3FN,
        DataType::Float8E4M3FNUZ => DType::F8E4M3FNUZ,
        DataType::Float8E5M2 => DType::F8E5M2,
        DataType::Float8E5M2FNUZ => DType::F8E5M2FNUZ,
        DataType::Float8E8M0 => DType::F8E8M0,
        DataType::Float4E2M1 => DType::F4E2M1,
        DataType::Int4 => DType::I4,
        DataType::Uint4 => DType::U4,
        DataType::Int2 => DType::I2,
        DataType::Uint2 => DType::U2,
        DataType::Undefined | DataType::String | DataType::Complex64 | DataType::Complex128 => {
            let what = format!("the element type {}", data_type.name());
            return Err(ImportError::new(ImportErrorKind::UnsupportedType { what }));
        }
    })
}

/// The ONNX element type of ours.
pub fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DataType::Double,
        DType::F32 => DataType::Float,
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::Bool => DataType::Bool,
        DType::F8E4M3FN => DataType::Float8E4M3FN,
        DType::F8E4M3FNUZ => DataType::Float8E4M3FNUZ,
        DType::F8E5M2 => DataType::Float8E5M2,
        DType::F8E5M2FNUZ => DataType::Float8E5M2FNUZ,
        DType::F8E8M0 => DataType::Float8E8M0,
        DType::F4E2M1 => DataType::Float4E2M1,
        DType::I4 => DataType::Int4,
        DType::U4 => DataType::Uint4,
        DType::I2 => DataType::Int2,
        DType::U2 => DataType::Uint2,
    }
}

/// Our value type. `unknown(axis)` names a dimension of which the file says nothing.
pub(crate) fn value_type(
    ty: &Type<'_>,
    unknown: &mut dyn FnMut(usize) -> Dim,
) -> Result<ValueType, ImportError> {
    Ok(match ty {
        Type::Tensor { elem, shape } => {
            let dtype = dtype(*elem)?;
            let shape = shape.as_ref().map(|dims| {
                dims.iter().enumerate().map(|(axis, dim)| dimension(dim, axis, unknown)).collect::<Shape>()
            });
            ValueType::Tensor(TensorType { dtype, shape })
        }
        Type::Sequence(element) => ValueType::Sequence(Box::new(value_type(element, unknown)?)),
        Type::Optional(element) => ValueType::Optional(Box::new(value_type(element, unknown)?)),
        Type::SparseTensor { .. } => return Err(unsupported("a sparse tensor as input or output")),
        Type::Map { .. } => return Err(unsupported("a map as input or output")),
        Type::Opaque { .. } => return Err(unsupported("an opaque type")),
    })
}

fn unsupported(what: &str) -> ImportError {
    ImportError::new(ImportErrorKind::UnsupportedType { what: what.into() })
}

fn dimension(dim: &Dimension<'_>, axis: usize, unknown: &mut dyn FnMut(usize) -> Dim) -> Dim {
    match dim {
        Dimension::Value(number) if *number >= 0 => Dim::from(*number),
        // Exporters write a plain number as text now and then, and -1 for "any".
        Dimension::Param(name) => match name.parse::<i64>() {
            Ok(number) if number >= 0 => Dim::from(number),
            Ok(_) => unknown(axis),
            Err(_) if name.is_empty() || name == "?" => unknown(axis),
            // The apostrophe marks symbols that inference makes; a name of the file must not meet one.
            Err(_) => Dim::symbol(&name.replace('\'', "\u{2bc}")),
        },
        Dimension::Value(_) | Dimension::Unknown => unknown(axis),
    }
}
