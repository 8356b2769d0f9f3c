//! What an inference rule sees and says: inputs with their types and known contents, and typed refusals.

use std::fmt;

use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::window::{WindowError, WindowErrorKind};
use crate::{TensorType, ValueType};

/// A small integer tensor of rank 0 or 1 whose elements are known as dimensions, numbers or symbolic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolicInts {
    pub dims: Vec<Dim>,
    /// Rank 0 (one element) instead of rank 1.
    pub is_scalar: bool,
}

/// What is known of a value's elements before any run.
#[derive(Clone, Debug)]
pub enum Content {
    /// A constant.
    Tensor(Tensor),
    /// Integers that depend on symbolic dimensions.
    Ints(SymbolicInts),
    /// The same for an integer tensor of rank 2 or more, whose type has a shape of numbers: the elements in
    /// row-major order. Exporters turn lists of pads about in such a form.
    Grid(Vec<Dim>),
}

/// Contents longer than this are not followed: shapes are short, and hostile files are not.
pub const MAX_FOLLOWED_INTS: usize = 1024;

/// Tensors of more dimensions than this are refused, as NumPy does: only hostile files have them, and every
/// value behind such a tensor would carry as many again.
pub const MAX_RANK: usize = 64;

/// One input of the node: its type and what is known of its elements.
#[derive(Clone, Copy, Debug)]
pub struct InferInput<'a> {
    pub ty: &'a ValueType,
    pub content: Option<&'a Content>,
}

/// One output: its type and what is known of its elements.
#[derive(Clone, Debug)]
pub struct Inferred {
    pub ty: ValueType,
    pub content: Option<Content>,
}

impl Inferred {
    pub fn tensor(dtype: DType, shape: Shape) -> Inferred {
        Inferred { ty: ValueType::tensor(dtype, shape), content: None }
    }

    /// A tensor whose shape may be unknown.
    pub fn maybe_ranked(dtype: DType, shape: Option<Shape>) -> Inferred {
        Inferred { ty: ValueType::Tensor(TensorType { dtype, shape }), content: None }
    }

    /// A tensor of integers whose elements are known; contents that are too long are dropped.
    pub fn ints(dtype: DType, ints: SymbolicInts) -> Inferred {
        let shape: Shape = match ints.is_scalar {
            true => Shape::scalar(),
            false => Shape::from_iter([Dim::from(ints.dims.len())]),
        };
        let content = (ints.dims.len() <= MAX_FOLLOWED_INTS).then_some(Content::Ints(ints));
        Inferred { ty: ValueType::tensor(dtype, shape), content }
    }
}

/// The state of one inference: the node's inputs, the number of outputs asked for, and fresh symbols.
pub struct Inference<'a> {
    op: &'a str,
    inputs: &'a [Option<InferInput<'a>>],
    n_outputs: usize,
    fresh_symbol: &'a mut dyn FnMut(&str) -> Dim,
}

impl<'a> Inference<'a> {
    /// `fresh_symbol` makes a dimension that no other value has, from a hint for its name.
    pub fn new(
        op: &'a str,
        inputs: &'a [Option<InferInput<'a>>],
        n_outputs: usize,
        fresh_symbol: &'a mut dyn FnMut(&str) -> Dim,
    ) -> Self {
        Inference { op, inputs, n_outputs, fresh_symbol }
    }

    /// The number of input positions, absent optional ones included.
    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs that the node has; a rule returns exactly as many.
    pub fn n_outputs(&self) -> usize {
        self.n_outputs
    }

    pub fn has_input(&self, idx: usize) -> bool {
        matches!(self.inputs.get(idx), Some(Some(_)))
    }

    /// The type of a required input of any kind.
    pub fn value(&self, idx: usize) -> Result<&'a ValueType, InferError> {
        match self.inputs.get(idx) {
            Some(Some(input)) => Ok(input.ty),
            _ => Err(self.error(InferErrorKind::MissingInput, format!("input {idx} is missing"))),
        }
    }

    /// The type of a required tensor input.
    pub fn tensor(&self, idx: usize) -> Result<&'a TensorType, InferError> {
        let ty = self.value(idx)?;
        ty.as_tensor().ok_or_else(|| {
            self.error(InferErrorKind::BadType, format!("input {idx} must be a tensor, it is {ty}"))
        })
    }

    /// The type of an optional tensor input.
    pub fn optional_tensor(&self, idx: usize) -> Result<Option<&'a TensorType>, InferError> {
        if self.has_input(idx) { self.tensor(idx).map(Some) } else { Ok(None) }
    }

    pub fn dtype(&self, idx: usize) -> Result<DType, InferError> {
        Ok(self.tensor(idx)?.dtype)
    }

    /// The shape of a required tensor input, if its rank is known.
    pub fn shape(&self, idx: usize) -> Result<Option<&'a Shape>, InferError> {
        Ok(self.tensor(idx)?.shape.as_ref())
    }

    /// The shape of a required input, which must have this rank; `None` if its rank is unknown.
    pub fn shape_of_rank(&self, idx: usize, rank: usize) -> Result<Option<&'a Shape>, InferError> {
        match self.shape(idx)? {
            Some(shape) if shape.rank() != rank => Err(self.error(
                InferErrorKind::BadShape,
                format!("input {idx} must have rank {rank}, its shape is {shape}"),
            )),
            shape => Ok(shape),
        }
    }

    /// The input's elements, if it is a constant.
    pub fn constant(&self, idx: usize) -> Option<&'a Tensor> {
        match self.inputs.get(idx)?.as_ref()?.content? {
            Content::Tensor(tensor) => Some(tensor),
            Content::Ints(_) | Content::Grid(_) => None,
        }
    }

    /// The input's known contents as they are, to hand on unchanged.
    pub fn content(&self, idx: usize) -> Option<&'a Content> {
        self.inputs.get(idx)?.as_ref()?.content
    }

    /// The input's elements as dimensions, if it is an integer tensor of rank 0 or 1 with known contents.
    pub fn ints(&self, idx: usize) -> Option<SymbolicInts> {
        match self.inputs.get(idx)?.as_ref()?.content? {
            Content::Ints(ints) => Some(ints.clone()),
            Content::Tensor(tensor) => {
                let followed = tensor.dtype().is_int() || tensor.dtype() == DType::Bool;
                if !followed || tensor.rank() > 1 || tensor.len() > MAX_FOLLOWED_INTS {
                    return None;
                }
                let dims = tensor.to_i64s().into_iter().map(Dim::from).collect();
                Some(SymbolicInts { dims, is_scalar: tensor.rank() == 0 })
            }
            Content::Grid(_) => None,
        }
    }

    /// The input's elements as plain integers, if all are known numbers. Unlike `ints`, any rank will do.
    pub fn const_ints(&self, idx: usize) -> Option<Vec<i64>> {
        match self.inputs.get(idx)?.as_ref()?.content? {
            Content::Ints(ints) => ints.dims.iter().map(Dim::as_const).collect(),
            Content::Grid(dims) => dims.iter().map(Dim::as_const).collect(),
            Content::Tensor(tensor) if tensor.len() <= MAX_FOLLOWED_INTS => Some(tensor.to_i64s()),
            Content::Tensor(_) => None,
        }
    }

    /// A dimension that is known only at run time and has a name of its own.
    pub fn fresh_dim(&mut self, hint: &str) -> Dim {
        (self.fresh_symbol)(hint)
    }

    /// A shape of fresh dimensions. Of a rank beyond [`MAX_RANK`] only so many are made as show that: the
    /// graph refuses the shape, and the rank may be any number from the file.
    pub fn fresh_shape(&mut self, rank: usize, hint: &str) -> Shape {
        (0..rank.min(MAX_RANK + 1)).map(|_| self.fresh_dim(hint)).collect()
    }

    pub fn error(&self, kind: InferErrorKind, detail: impl Into<String>) -> InferError {
        InferError { op: self.op.to_string(), kind, detail: detail.into() }
    }

    pub fn bad_shape(&self, detail: impl Into<String>) -> InferError {
        self.error(InferErrorKind::BadShape, detail)
    }

    pub fn bad_type(&self, detail: impl Into<String>) -> InferError {
        self.error(InferErrorKind::BadType, detail)
    }

    pub fn bad_attribute(&self, detail: impl Into<String>) -> InferError {
        self.error(InferErrorKind::BadAttribute, detail)
    }

    /// The refusal of windows that cannot be placed.
    pub fn bad_window(&self, error: WindowError) -> InferError {
        match error.kind() {
            WindowErrorKind::Attribute => self.bad_attribute(error.to_string()),
            WindowErrorKind::Shape => self.bad_shape(error.to_string()),
        }
    }

    /// `axis` counted from the front, refused if outside the rank.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, InferError> {
        planish_tensor::normalize_axis(axis, rank).map_err(|error| self.bad_attribute(error.to_string()))
    }

    /// Axes counted from the front, refused if one is outside the rank or named twice.
    pub fn distinct_axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, InferError> {
        planish_tensor::distinct_axes(axes, rank).map_err(|error| self.bad_attribute(error.to_string()))
    }

    pub(super) fn needs_graph(&self) -> Result<Vec<Inferred>, InferError> {
        Err(self.error(InferErrorKind::NeedsGraph, "control flow is inferred with its bodies"))
    }

    pub(super) fn needs_plugin(&self) -> Result<Vec<Inferred>, InferError> {
        Err(self.error(
            InferErrorKind::NeedsPlugin,
            "no plugin that is loaded provides this operator: give its file by `--plugin FILE`",
        ))
    }
}

impl fmt::Debug for Inference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inference")
            .field("op", &self.op)
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a node's inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InferErrorKind {
    MissingInput,
    /// More inputs than the operator takes.
    ExtraInput,
    BadType,
    BadShape,
    BadAttribute,
    /// The node has bodies; ask the graph.
    NeedsGraph,
    /// The node is a plugin's, and the plugin is not here.
    NeedsPlugin,
}

/// A node whose inputs, attributes and operator do not fit together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InferError {
    op: String,
    kind: InferErrorKind,
    detail: String,
}

impl InferError {
    pub fn new(op: &str, kind: InferErrorKind, detail: impl Into<String>) -> InferError {
        InferError { op: op.to_string(), kind, detail: detail.into() }
    }

    pub fn kind(&self) -> InferErrorKind {
        self.kind
    }
}

impl fmt::Display for InferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.detail)
    }
}

impl std::error::Error for InferError {}
