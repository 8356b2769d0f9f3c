//! What a reference function sees: the node's inputs, and typed refusals.

use std::fmt;

use planish_op::Value;
use planish_op::window::{WindowError, WindowErrorKind};
use planish_tensor::{DType, Tensor, TensorError};

/// One value per output.
pub type EvalResult = Result<Vec<Value>, EvalError>;

/// The inputs of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Evaluation<'a> {
    op: &'a str,
    inputs: &'a [Option<&'a Value>],
    n_outputs: usize,
    /// The most bytes that an output may have.
    max_bytes: usize,
}

impl<'a> Evaluation<'a> {
    pub fn new(op: &'a str, inputs: &'a [Option<&'a Value>], n_outputs: usize) -> Self {
        Evaluation { op, inputs, n_outputs, max_bytes: usize::MAX }
    }

    /// The same, with outputs refused that have more bytes than this.
    pub fn within(self, max_bytes: usize) -> Self {
        Evaluation { max_bytes, ..self }
    }

    /// The most bytes that an output may have.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// The number of input positions, absent optional ones included.
    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs that are wanted; optional ones beyond need not be computed.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    pub fn value(&self, idx: usize) -> Result<&'a Value, EvalError> {
        match self.inputs.get(idx) {
            Some(Some(value)) => Ok(value),
            _ => Err(self.error(EvalErrorKind::MissingInput, format!("input {idx} is missing"))),
        }
    }

    pub fn optional_value(&self, idx: usize) -> Option<&'a Value> {
        self.inputs.get(idx).copied().flatten()
    }

    /// A required tensor input.
    pub fn tensor(&self, idx: usize) -> Result<&'a Tensor, EvalError> {
        self.value(idx)?
            .as_tensor()
            .ok_or_else(|| self.error(EvalErrorKind::BadType, format!("input {idx} must be a tensor")))
    }

    /// An optional tensor input.
    pub fn optional_tensor(&self, idx: usize) -> Result<Option<&'a Tensor>, EvalError> {
        self.optional_value(idx).map(|_| self.tensor(idx)).transpose()
    }

    /// All inputs as tensors, for variadic operators.
    pub fn tensors(&self) -> Result<Vec<&'a Tensor>, EvalError> {
        (0..self.n_inputs()).map(|idx| self.tensor(idx)).collect()
    }

    /// The elements of a required integer input.
    pub fn ints(&self, idx: usize) -> Result<Vec<i64>, EvalError> {
        Ok(self.tensor(idx)?.to_i64s())
    }

    /// The elements of a required input of floats that arithmetic is defined on.
    pub fn floats(&self, idx: usize) -> Result<Vec<f64>, EvalError> {
        let tensor = self.tensor(idx)?;
        self.common_float(&[tensor])?;
        Ok(tensor.to_f64s())
    }

    /// The one element type of `tensors`.
    pub fn common_type(&self, tensors: &[&Tensor]) -> Result<DType, EvalError> {
        let Some((first, rest)) = tensors.split_first() else {
            return Err(self.error(EvalErrorKind::MissingInput, "at least one input is needed"));
        };
        match rest.iter().find(|other| other.dtype() != first.dtype()) {
            None => Ok(first.dtype()),
            Some(other) => {
                let (first, other) = (first.dtype(), other.dtype());
                let detail = format!("operands of types {first} and {other} do not mix; insert a Cast");
                Err(self.error(EvalErrorKind::BadType, detail))
            }
        }
    }

    /// The one element type of `tensors`, which must be a float that arithmetic is defined on.
    pub fn common_float(&self, tensors: &[&Tensor]) -> Result<DType, EvalError> {
        let dtype = self.common_type(tensors)?;
        if dtype.is_wide_float() { Ok(dtype) } else { Err(self.bad_type(dtype)) }
    }

    /// `axis` counted from the front, refused if outside the rank.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, EvalError> {
        planish_tensor::normalize_axis(axis, rank).map_err(|error| self.bad_attribute(error.to_string()))
    }

    /// Axes counted from the front, refused if one is outside the rank or named twice.
    pub fn distinct_axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, EvalError> {
        planish_tensor::distinct_axes(axes, rank).map_err(|error| self.bad_attribute(error.to_string()))
    }

    pub fn error(&self, kind: EvalErrorKind, detail: impl Into<String>) -> EvalError {
        EvalError { op: self.op.to_string(), kind, detail: detail.into() }
    }

    pub fn bad_shape(&self, detail: impl Into<String>) -> EvalError {
        self.error(EvalErrorKind::BadShape, detail)
    }

    pub fn bad_attribute(&self, detail: impl Into<String>) -> EvalError {
        self.error(EvalErrorKind::BadAttribute, detail)
    }

    /// The refusal of windows that cannot be placed.
    pub fn bad_window(&self, error: WindowError) -> EvalError {
        match error.kind() {
            WindowErrorKind::Attribute => self.bad_attribute(error.to_string()),
            _ => self.bad_shape(error.to_string()),
        }
    }

    /// The refusal of an element type that the operator does not define.
    pub fn bad_type(&self, dtype: DType) -> EvalError {
        self.error(EvalErrorKind::BadType, format!("not defined for elements of type {dtype}"))
    }
}

/// Why an operator could not be evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EvalErrorKind {
    MissingInput,
    BadType,
    BadShape,
    BadAttribute,
    /// A value that the operator does not accept (an index out of range, say).
    BadValue,
    /// What there is no memory for.
    TooLarge,
    /// More than whoever runs allows: trips of loops, or bytes.
    Limit,
    /// Whoever runs asked to stop.
    Cancelled,
    NeedsGraph,
    NeedsPlugin,
}

/// An operator that could not be evaluated on these inputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EvalError {
    op: String,
    kind: EvalErrorKind,
    detail: String,
}

impl EvalError {
    pub fn new(op: &str, kind: EvalErrorKind, detail: impl Into<String>) -> EvalError {
        EvalError { op: op.to_string(), kind, detail: detail.into() }
    }

    pub fn kind(&self) -> EvalErrorKind {
        self.kind
    }
}

impl From<TensorError> for EvalError {
    fn from(error: TensorError) -> EvalError {
        let kind = match error {
            TensorError::TooLarge { .. } => EvalErrorKind::TooLarge,
            _ => EvalErrorKind::BadShape,
        };
        EvalError { op: "tensor".into(), kind, detail: error.to_string() }
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.detail)
    }
}

impl std::error::Error for EvalError {}
