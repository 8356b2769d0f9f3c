//! The structures of an ONNX file, borrowing their text and data from its bytes.
//!
//! What running a model does not need is read over and not kept: training information, device
//! configurations, and the denotations of types and dimensions.

use std::borrow::Cow;

use crate::{DataType, SparseTensor, Tensor};

/// Key and value pairs, in file order.
pub type Metadata<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A whole file: `ModelProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Model<'a> {
    /// Version of the file format; 0 where the file does not say.
    pub ir_version: i64,
    /// Operator set versions by domain.
    pub opset_imports: Vec<OpsetImport<'a>>,
    /// The tool that wrote the file.
    pub producer_name: Cow<'a, str>,
    /// That tool's version.
    pub producer_version: Cow<'a, str>,
    /// Reverse domain name of the model's owner.
    pub domain: Cow<'a, str>,
    /// The owner's version of the model.
    pub model_version: i64,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// The computation.
    pub graph: Graph<'a>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
    /// Model-local functions; see [`crate::inline_functions`].
    pub functions: Vec<Function<'a>>,
}

/// One operator set that the model uses: `OperatorSetIdProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpsetImport<'a> {
    /// Empty (or `ai.onnx`) for the standard operators.
    pub domain: Cow<'a, str>,
    /// The version.
    pub version: i64,
}

/// A computation: `GraphProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// Nodes, in an order in which they can run.
    pub nodes: Vec<Node<'a>>,
    /// Constants, by name.
    pub initializers: Vec<Tensor<'a>>,
    /// Constants stored sparsely; the name is that of their values.
    pub sparse_initializers: Vec<SparseTensor<'a>>,
    /// Inputs (older files list the initializers here too).
    pub inputs: Vec<ValueInfo<'a>>,
    /// Outputs.
    pub outputs: Vec<ValueInfo<'a>>,
    /// Types of values in between.
    pub value_infos: Vec<ValueInfo<'a>>,
    /// Which tensors hold the quantization parameters of which.
    pub quantization_annotations: Vec<QuantizationAnnotation<'a>>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
}

/// Quantization parameters of one tensor: `TensorAnnotation`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuantizationAnnotation<'a> {
    /// The tensor annotated.
    pub tensor_name: Cow<'a, str>,
    /// Parameter kind (such as `SCALE_TENSOR`) to tensor name.
    pub parameters: Metadata<'a>,
}

/// One operation: `NodeProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node<'a> {
    /// Names of the values read; empty for an omitted optional input.
    pub inputs: Vec<Cow<'a, str>>,
    /// Names of the values made; empty for an omitted optional output.
    pub outputs: Vec<Cow<'a, str>>,
    /// Name, often empty.
    pub name: Cow<'a, str>,
    /// Operator.
    pub op_type: Cow<'a, str>,
    /// Operator set; empty for the standard one.
    pub domain: Cow<'a, str>,
    /// Which overload of a model-local function.
    pub overload: Cow<'a, str>,
    /// Named parameters.
    pub attributes: Vec<Attribute<'a>>,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
    /// The operator set version of this node, where it came out of a function that imports another
    /// version than the model does. Not part of the file: reading leaves it `None`, writing loses it.
    pub opset: Option<i64>,
}

impl<'a> Node<'a> {
    /// A node of the standard operator set.
    pub fn new(op_type: impl Into<Cow<'a, str>>, inputs: &[&'a str], outputs: &[&'a str]) -> Self {
        let names = |names: &[&'a str]| names.iter().map(|&name| Cow::Borrowed(name)).collect();
        Self { op_type: op_type.into(), inputs: names(inputs), outputs: names(outputs), ..Self::default() }
    }

    /// The attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}

/// One named parameter of a node: `AttributeProto`.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Inside a function: the function's attribute that gives the value. Empty otherwise.
    pub ref_attr_name: Cow<'a, str>,
    /// Value.
    pub value: AttributeValue<'a>,
    /// Description.
    pub doc_string: Cow<'a, str>,
}

impl<'a> Attribute<'a> {
    /// A plain attribute.
    pub fn new(name: impl Into<Cow<'a, str>>, value: AttributeValue<'a>) -> Self {
        Self { name: name.into(), ref_attr_name: Cow::Borrowed(""), value, doc_string: Cow::Borrowed("") }
    }

    /// An attribute of a function's node that takes the value of the function's own attribute.
    pub fn reference(
        name: impl Into<Cow<'a, str>>,
        ref_attr_name: impl Into<Cow<'a, str>>,
        kind: AttributeKind,
    ) -> Self {
        let value = AttributeValue::Reference(kind);
        Self { ref_attr_name: ref_attr_name.into(), ..Self::new(name, value) }
    }
}

/// The value of an attribute; boxed where large, so that a list of attributes stays small.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum AttributeValue<'a> {
    Float(f32),
    Int(i64),
    String(Cow<'a, [u8]>),
    Tensor(Box<Tensor<'a>>),
    Graph(Box<Graph<'a>>),
    SparseTensor(Box<SparseTensor<'a>>),
    Type(Box<Type<'a>>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Strings(Vec<Cow<'a, [u8]>>),
    Tensors(Vec<Tensor<'a>>),
    Graphs(Vec<Graph<'a>>),
    SparseTensors(Vec<SparseTensor<'a>>),
    Types(Vec<Type<'a>>),
    /// `ref_attr_name` of the attribute is set; the kind is what the reference declares.
    Reference(AttributeKind),
}

/// Which kind of value an attribute has: `AttributeProto.AttributeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AttributeKind {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    Type = 13,
    Types = 14,
}

impl AttributeKind {
    /// Every kind, by number.
    pub const ALL: [Self; 15] = [
        Self::Undefined,
        Self::Float,
        Self::Int,
        Self::String,
        Self::Tensor,
        Self::Graph,
        Self::Floats,
        Self::Ints,
        Self::Strings,
        Self::Tensors,
        Self::Graphs,
        Self::SparseTensor,
        Self::SparseTensors,
        Self::Type,
        Self::Types,
    ];
}

impl AttributeValue<'_> {
    /// Which kind of value this is; of a reference, the kind that it declares.
    pub fn kind(&self) -> AttributeKind {
        match self {
            Self::Float(_) => AttributeKind::Float,
            Self::Int(_) => AttributeKind::Int,
            Self::String(_) => AttributeKind::String,
            Self::Tensor(_) => AttributeKind::Tensor,
            Self::Graph(_) => AttributeKind::Graph,
            Self::SparseTensor(_) => AttributeKind::SparseTensor,
            Self::Type(_) => AttributeKind::Type,
            Self::Floats(_) => AttributeKind::Floats,
            Self::Ints(_) => AttributeKind::Ints,
            Self::Strings(_) => AttributeKind::Strings,
            Self::Tensors(_) => AttributeKind::Tensors,
            Self::Graphs(_) => AttributeKind::Graphs,
            Self::SparseTensors(_) => AttributeKind::SparseTensors,
            Self::Types(_) => AttributeKind::Types,
            Self::Reference(kind) => *kind,
        }
    }
}

/// A named value and its type: `ValueInfoProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueInfo<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Type, where the file says enough of it.
    pub ty: Option<Type<'a>>,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
}

impl<'a> ValueInfo<'a> {
    /// A tensor of known rank.
    pub fn tensor(name: impl Into<Cow<'a, str>>, elem: DataType, dims: Vec<Dimension<'a>>) -> Self {
        Self { name: name.into(), ty: Some(Type::Tensor { elem, shape: Some(dims) }), ..Self::default() }
    }
}

/// The type of a value: `TypeProto`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Type<'a> {
    Tensor { elem: DataType, shape: Option<Vec<Dimension<'a>>> },
    SparseTensor { elem: DataType, shape: Option<Vec<Dimension<'a>>> },
    Sequence(Box<Type<'a>>),
    Optional(Box<Type<'a>>),
    Map { key: DataType, value: Box<Type<'a>> },
    Opaque { domain: Cow<'a, str>, name: Cow<'a, str> },
}

/// One dimension of a shape.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Dimension<'a> {
    /// A number; some exporters write -1 or 0 for a dimension that they do not know.
    Value(i64),
    /// A name that stands for the same number wherever it appears.
    Param(Cow<'a, str>),
    /// Nothing is said.
    #[default]
    Unknown,
}

/// A model-local function: `FunctionProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Function<'a> {
    /// Name, the `op_type` of its calls.
    pub name: Cow<'a, str>,
    /// Domain of its calls.
    pub domain: Cow<'a, str>,
    /// Overload of its calls.
    pub overload: Cow<'a, str>,
    /// Formal inputs.
    pub inputs: Vec<Cow<'a, str>>,
    /// Formal outputs.
    pub outputs: Vec<Cow<'a, str>>,
    /// Attributes without a default.
    pub attributes: Vec<Cow<'a, str>>,
    /// Attributes with their defaults.
    pub attribute_protos: Vec<Attribute<'a>>,
    /// Body.
    pub nodes: Vec<Node<'a>>,
    /// Operator sets of the body.
    pub opset_imports: Vec<OpsetImport<'a>>,
    /// Types of values in the body.
    pub value_infos: Vec<ValueInfo<'a>>,
    /// Description.
    pub doc_string: Cow<'a, str>,
    /// Free key and value pairs.
    pub metadata: Metadata<'a>,
}

/// A value of the conformance data: what a `.pb` file beside a test model may hold.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value<'a> {
    Tensor(Tensor<'a>),
    SparseTensor(SparseTensor<'a>),
    Sequence(Sequence<'a>),
    Optional(OptionalValue<'a>),
}

/// A list of values: `SequenceProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sequence<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// The elements, all of one kind.
    pub values: Vec<Value<'a>>,
}

/// A value that may be absent: `OptionalProto`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptionalValue<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// The value, if any.
    pub value: Option<Box<Value<'a>>>,
}
