//! Inference written as text, for tests: types go in as `f32[2,h]` and come out the same way.

use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::{Attribute, Op, ValueType};

use super::{Content, InferErrorKind, InferInput, Inference, infer};

/// The types of the first `n_outputs` outputs. An input is a type (`f32[2,h]`, `f32[*]`), a constant vector
/// (`i64=4,5`), or empty where it is absent. Fresh dimensions are called `new0`, `new1`, …
pub(super) fn check(
    op: &str,
    attributes: &[(&str, Attribute)],
    inputs: &[&str],
    n_outputs: usize,
) -> Result<Vec<String>, InferErrorKind> {
    let attributes: Vec<(String, Attribute)> =
        attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let op = Op::from_attributes(op, &attributes).unwrap();
    let inputs: Vec<Option<(ValueType, Option<Content>)>> = inputs.iter().map(|text| read(text)).collect();
    let inputs: Vec<Option<InferInput<'_>>> = inputs
        .iter()
        .map(|input| input.as_ref().map(|(ty, content)| InferInput { ty, content: content.as_ref() }))
        .collect();
    let mut n_fresh = 0;
    let mut fresh = |_: &str| {
        n_fresh += 1;
        Dim::symbol(&format!("new{}", n_fresh - 1))
    };
    let mut cx = Inference::new(op.name(), &inputs, n_outputs, &mut fresh);
    let outputs = infer(&op, &mut cx).map_err(|error| error.kind())?;
    assert_eq!(outputs.len(), n_outputs);
    Ok(outputs.iter().map(|output| output.ty.to_string()).collect())
}

fn read(text: &str) -> Option<(ValueType, Option<Content>)> {
    if text.is_empty() {
        return None;
    }
    if let Some(values) = text.strip_prefix("i64=") {
        let values: Vec<i64> =
            values.split(',').filter(|v| !v.is_empty()).map(|v| v.parse().unwrap()).collect();
        let tensor = Tensor::vector(values);
        let shape = Shape::from(tensor.shape());
        return Some((ValueType::tensor(DType::I64, shape), Some(Content::Tensor(tensor))));
    }
    let (dtype, shape) = text.split_at(text.find('[').unwrap());
    let dtype: DType = dtype.parse().unwrap();
    Some(match shape {
        "[*]" => (ValueType::unranked(dtype), None),
        shape => (ValueType::tensor(dtype, shape.parse().unwrap()), None),
    })
}

/// An attribute of integers.
pub(super) fn ints(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}
