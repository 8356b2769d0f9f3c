//! Constant in all its spellings, and CastLike, whose target type is known here.

use planish_onnx::AttributeValue;
use planish_op::Op;
use planish_tensor::Tensor;

use crate::error::{ImportError, ImportErrorKind};
use crate::node::NodeImport;

pub(super) fn constant(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let [attribute] = n.node.attributes.as_slice() else {
        return Err(ImportError::invalid("Constant needs exactly one of its attributes"));
    };
    let tensor = match (attribute.name.as_ref(), &attribute.value) {
        ("value", AttributeValue::Tensor(tensor)) => n.importer.weights.tensor(tensor)?,
        ("sparse_value", AttributeValue::SparseTensor(sparse)) => n.importer.weights.sparse(sparse)?,
        ("value_int", AttributeValue::Int(number)) => Tensor::scalar(*number),
        ("value_ints", AttributeValue::Ints(numbers)) => Tensor::vector(numbers.clone()),
        ("value_float", AttributeValue::Float(number)) => Tensor::scalar(*number),
        ("value_floats", AttributeValue::Floats(numbers)) => Tensor::vector(numbers.clone()),
        ("value_string" | "value_strings", _) => {
            return Err(ImportError::new(ImportErrorKind::UnsupportedType {
                what: "a string constant".into(),
            }));
        }
        (name, _) => {
            return Err(ImportError::invalid(format!("Constant cannot take its value from `{name}`")));
        }
    };
    let Some(name) = n.node.outputs.first().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    let graph_name = n.importer.frame().own_name(name);
    let id = n.graph().add_constant(&graph_name, tensor)?;
    n.importer.frame().define(name, id);
    Ok(())
}

pub(super) fn cast_like(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let like = n.required(1)?;
    let to = n.type_of(like)?.dtype;
    let mut list = n.op_attributes("Cast", &[])?;
    list.push(("to".to_string(), planish_op::Attribute::DType(to)));
    let op = Op::from_attributes("Cast", &list)?;
    let data = n.required(0)?;
    n.finish(op, &[Some(data)])
}
