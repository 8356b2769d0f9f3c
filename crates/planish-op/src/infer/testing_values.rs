//! What inference tests share: inputs written as text, outputs read as text.

use planish_tensor::{Dim, Shape, Tensor};

use super::{Content, InferErrorKind, InferInput, Inference, Inferred, SymbolicInts};
use crate::{Op, ValueType};

/// One input of a test node.
pub(super) type Input = Option<(ValueType, Option<Content>)>;

pub(super) const ABSENT: Input = None;

/// An input of a type such as `f32[n,3]`, `f32[*]` or `seq(i64[2])`, contents unknown.
pub(super) fn of(text: &str) -> Input {
    Some((parse(text), None))
}

/// A constant input.
pub(super) fn constant(tensor: Tensor) -> Input {
    let ty = ValueType::tensor(tensor.dtype(), Shape::from(tensor.shape()));
    Some((ty, Some(Content::Tensor(tensor))))
}

/// A vector of i64 with these contents, numbers or symbols.
pub(super) fn ints(dims: &[&str]) -> Input {
    let dims: Vec<Dim> = dims.iter().map(|dim| dim.parse().unwrap()).collect();
    let ty = ValueType::tensor(planish_tensor::DType::I64, Shape::from([dims.len()]));
    Some((ty, Some(Content::Ints(SymbolicInts { dims, is_scalar: false }))))
}

pub(super) fn parse(text: &str) -> ValueType {
    if let Some(element) = text.strip_prefix("seq(").and_then(|rest| rest.strip_suffix(')')) {
        return ValueType::Sequence(Box::new(parse(element)));
    }
    if let Some(element) = text.strip_prefix("optional(").and_then(|rest| rest.strip_suffix(')')) {
        return ValueType::Optional(Box::new(parse(element)));
    }
    let (dtype, shape) = text.split_at(text.find('[').unwrap());
    let dtype = dtype.parse().unwrap();
    if shape == "[*]" { ValueType::unranked(dtype) } else { ValueType::tensor(dtype, shape.parse().unwrap()) }
}

/// What inference says of one node; fresh dimensions are `hint0`, `hint1`, ...
pub(super) fn inferred(
    op: impl Into<Op>,
    inputs: &[Input],
    n_outputs: usize,
) -> Result<Vec<Inferred>, InferErrorKind> {
    let op = op.into();
    let views: Vec<Option<InferInput<'_>>> = inputs
        .iter()
        .map(|input| input.as_ref().map(|(ty, content)| InferInput { ty, content: content.as_ref() }))
        .collect();
    let mut n_fresh = 0;
    let mut fresh = |hint: &str| {
        n_fresh += 1;
        Dim::symbol(&format!("{hint}{}", n_fresh - 1))
    };
    let mut cx = Inference::new(op.name(), &views, n_outputs, &mut fresh);
    let outputs = super::infer(&op, &mut cx).map_err(|error| error.kind())?;
    assert_eq!(outputs.len(), n_outputs);
    Ok(outputs)
}

/// The type of a node's only output as text.
pub(super) fn output(op: impl Into<Op>, inputs: &[Input]) -> Result<String, InferErrorKind> {
    inferred(op, inputs, 1).map(|outputs| outputs[0].ty.to_string())
}
