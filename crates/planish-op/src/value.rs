//! What flows along an edge: its type (`ValueType`) and, when something is evaluated, the value itself.

use std::fmt;

use planish_tensor::{DType, Dim, Shape, Tensor};

/// The type of a tensor: elements always known, shape as far as known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    pub dtype: DType,
    /// `None` if not even the rank is known.
    pub shape: Option<Shape>,
}

impl TensorType {
    pub fn new(dtype: DType, shape: Shape) -> TensorType {
        TensorType { dtype, shape: Some(shape) }
    }

    pub fn unranked(dtype: DType) -> TensorType {
        TensorType { dtype, shape: None }
    }

    pub fn rank(&self) -> Option<usize> {
        self.shape.as_ref().map(Shape::rank)
    }
}

/// The type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ValueType {
    Tensor(TensorType),
    Sequence(Box<ValueType>),
    Optional(Box<ValueType>),
}

impl ValueType {
    pub fn tensor(dtype: DType, shape: Shape) -> ValueType {
        ValueType::Tensor(TensorType::new(dtype, shape))
    }

    pub fn unranked(dtype: DType) -> ValueType {
        ValueType::Tensor(TensorType::unranked(dtype))
    }

    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            ValueType::Tensor(tensor) => Some(tensor),
            ValueType::Sequence(_) | ValueType::Optional(_) => None,
        }
    }

    /// The type of a sequence's elements if each is of one or the other type; `None` if they cannot be in one
    /// sequence. Dimensions that differ become `unknown()`: a symbol would claim that all elements agree.
    pub fn joined_element(&self, other: &ValueType) -> Option<ValueType> {
        match (self, other) {
            (ValueType::Tensor(a), ValueType::Tensor(b)) if a.dtype == b.dtype => {
                let shape = match (&a.shape, &b.shape) {
                    (Some(a), Some(b)) if a.rank() == b.rank() => {
                        let either = |(a, b): (&Dim, &Dim)| if a == b { a.clone() } else { Dim::UNKNOWN };
                        Some(a.iter().zip(b).map(either).collect())
                    }
                    _ => None,
                };
                Some(ValueType::Tensor(TensorType { dtype: a.dtype, shape }))
            }
            (ValueType::Sequence(a), ValueType::Sequence(b)) => {
                Some(ValueType::Sequence(Box::new(a.joined_element(b)?)))
            }
            (ValueType::Optional(a), ValueType::Optional(b)) => {
                Some(ValueType::Optional(Box::new(a.joined_element(b)?)))
            }
            _ => None,
        }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Some(shape) => write!(f, "{}{shape}", self.dtype),
            None => write!(f, "{}[*]", self.dtype),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Tensor(tensor) => tensor.fmt(f),
            ValueType::Sequence(element) => write!(f, "seq({element})"),
            ValueType::Optional(element) => write!(f, "optional({element})"),
        }
    }
}

/// A value at run time.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    Tensor(Tensor),
    Sequence(Vec<Value>),
    Optional(Option<Box<Value>>),
}

impl Value {
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Value::Tensor(tensor) => Some(tensor),
            Value::Sequence(_) | Value::Optional(_) => None,
        }
    }

    /// The bytes of all elements, and what it takes to hold them: a sequence of nothings is not free.
    pub fn bytes(&self) -> u64 {
        let own = size_of::<Value>() as u64;
        let inner = match self {
            Value::Tensor(tensor) => tensor.bytes().len() as u64,
            Value::Sequence(elements) => elements.iter().map(Value::bytes).sum(),
            Value::Optional(inner) => inner.as_ref().map_or(0, |inner| inner.bytes()),
        };
        own + inner
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}
