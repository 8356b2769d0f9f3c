//! Inference written as text, for tests: types go in as `f32[2,h]` and come out the same way.
//!
//! An operator is its attribute struct or made from its name by [`named`]; an input is made by [`of`],
//! [`constant`], [`numbers`] or [`ints`]. [`assert_output`] and [`assert_refused`] take these, [`gives`] and
//! [`refuses`] are the same where everything can be text. Fresh dimensions are called by their hint and a number: `batch0`, `channels1`, …

use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::{Attribute, Op, ValueType};

use super::{Content, InferErrorKind, InferInput, Inference, Inferred, SymbolicInts, infer};

/// One input of a test node.
pub(super) type Input = Option<(ValueType, Option<Content>)>;

/// An optional input that is not there.
pub(super) const ABSENT: Input = None;

/// An input of a type such as `f32[n,3]`, `f32[*]` or `seq(i64[2])`, contents unknown; a vector of known
/// numbers such as `i64=4,5`; or, if the text is empty, an absent one.
pub(super) fn of(text: &str) -> Input {
    if text.is_empty() {
        return ABSENT;
    }
    match text.strip_prefix("i64=") {
        Some("") => numbers(&[]),
        Some(list) => numbers(&list.split(',').map(|value| value.parse().unwrap()).collect::<Vec<i64>>()),
        None => Some((parse(text), None)),
    }
}

/// A constant input.
pub(super) fn constant(tensor: Tensor) -> Input {
    let ty = ValueType::tensor(tensor.dtype(), Shape::from(tensor.shape()));
    Some((ty, Some(Content::Tensor(tensor))))
}

/// A constant vector of i64.
pub(super) fn numbers(values: &[i64]) -> Input {
    constant(Tensor::vector(values.to_vec()))
}

/// A vector of i64 with these contents, numbers or symbols.
pub(super) fn ints(dims: &[&str]) -> Input {
    let dims = dims.iter().map(|dim| dim.parse().unwrap()).collect();
    as_input(Inferred::ints(DType::I64, SymbolicInts { dims, is_scalar: false }))
}

/// The output of one node as an input of the next.
pub(super) fn as_input(output: Inferred) -> Input {
    Some((output.ty, output.content))
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

/// An operator by its name.
pub(super) fn named(name: &str, attributes: &[(&str, Attribute)]) -> Op {
    let attributes: Vec<(String, Attribute)> =
        attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    Op::from_attributes(name, &attributes).unwrap()
}

/// An attribute of integers.
pub(super) fn int_list(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}

/// What inference says of one node.
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
    let outputs = infer(&op, &mut cx).map_err(|error| error.kind())?;
    assert_eq!(outputs.len(), n_outputs);
    Ok(outputs)
}

/// The types of a node's outputs as text.
pub(super) fn outputs(
    op: impl Into<Op>,
    inputs: &[Input],
    n_outputs: usize,
) -> Result<Vec<String>, InferErrorKind> {
    inferred(op, inputs, n_outputs)
        .map(|outputs| outputs.iter().map(|output| output.ty.to_string()).collect())
}

/// The type of a node's only output as text.
pub(super) fn output(op: impl Into<Op>, inputs: &[Input]) -> Result<String, InferErrorKind> {
    outputs(op, inputs, 1).map(|mut outputs| outputs.remove(0))
}

/// The known elements of an output as text, `?` where one is not known.
pub(super) fn elements(output: &Inferred) -> Option<String> {
    let dim_text = |dim: &Dim| if dim.is_unknown() { "?".to_string() } else { dim.to_string() };
    let elements: Vec<String> = match output.content.as_ref()? {
        Content::Ints(SymbolicInts { dims, .. }) | Content::Grid(dims) => dims.iter().map(dim_text).collect(),
        Content::Tensor(tensor) => tensor.to_f64s().iter().map(f64::to_string).collect(),
    };
    Some(elements.join(","))
}

/// Asserts what the only output is.
#[track_caller]
pub(super) fn assert_output(op: impl Into<Op>, inputs: &[Input], expected: &str) {
    assert_eq!(output(op, inputs), Ok(expected.to_string()));
}

/// Asserts that a node is refused.
#[track_caller]
pub(super) fn assert_refused(op: impl Into<Op>, inputs: &[Input], kind: InferErrorKind) {
    assert_eq!(output(op, inputs), Err(kind));
}

/// The types of the outputs of a named operator, everything as text.
pub(super) fn check(
    name: &str,
    attributes: &[(&str, Attribute)],
    inputs: &[&str],
    n_outputs: usize,
) -> Result<Vec<String>, InferErrorKind> {
    let inputs: Vec<Input> = inputs.iter().map(|text| of(text)).collect();
    outputs(named(name, attributes), &inputs, n_outputs)
}

/// The type of the only output of a named operator, everything as text.
pub(super) fn first(
    name: &str,
    attributes: &[(&str, Attribute)],
    inputs: &[&str],
) -> Result<String, InferErrorKind> {
    check(name, attributes, inputs, 1).map(|mut outputs| outputs.remove(0))
}

/// Asserts what the outputs of a named operator are.
#[track_caller]
pub(super) fn gives(name: &str, attributes: &[(&str, Attribute)], inputs: &[&str], expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|ty| ty.to_string()).collect();
    assert_eq!(check(name, attributes, inputs, expected.len()), Ok(expected));
}

/// Asserts that a named operator is refused.
#[track_caller]
pub(super) fn refuses(name: &str, attributes: &[(&str, Attribute)], inputs: &[&str], kind: InferErrorKind) {
    assert_eq!(check(name, attributes, inputs, 1), Err(kind));
}
