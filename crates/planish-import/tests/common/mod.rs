//! Shared by the tests: models put together in a few words, and errors looked at in a few.

#![allow(dead_code, unreachable_pub, reason = "each test uses its own part")]

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use planish_import::{ImportError, ImportErrorKind, Imported, import_bytes};
use planish_ir::GraphErrorKind;
use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Model, Node, OnnxErrorKind, OpsetImport, Tensor,
    TensorData, Type, ValueInfo, write,
};
use planish_op::infer::InferErrorKind;
use planish_tensor::Bytes;

pub const F32: DataType = DataType::Float;
pub const I64: DataType = DataType::Int64;
pub const BOOL: DataType = DataType::Bool;

/// A value of fixed shape.
pub fn value(name: &'static str, elem: DataType, dims: &[i64]) -> ValueInfo<'static> {
    ValueInfo::tensor(name, elem, dims.iter().map(|&dim| Dimension::Value(dim)).collect())
}

/// A value whose dimensions are symbols.
pub fn symbolic(name: &'static str, elem: DataType, dims: &[&'static str]) -> ValueInfo<'static> {
    ValueInfo::tensor(name, elem, dims.iter().map(|&dim| Dimension::Param(dim.into())).collect())
}

/// A value of unknown rank.
pub fn unranked(name: &'static str, elem: DataType) -> ValueInfo<'static> {
    let ty = Some(Type::Tensor { elem, shape: None });
    ValueInfo { name: name.into(), ty, ..ValueInfo::default() }
}

/// A value of which only the name is given.
pub fn untyped(name: impl Into<Cow<'static, str>>) -> ValueInfo<'static> {
    ValueInfo { name: name.into(), ..ValueInfo::default() }
}

/// A vector of integers as an initializer.
pub fn ints(name: &'static str, values: &[i64]) -> Tensor<'static> {
    let (dims, data) = (vec![values.len() as i64], TensorData::Int64s(values.to_vec()));
    Tensor { name: name.into(), data_type: I64, dims, data, ..Tensor::default() }
}

/// One integer as an initializer.
pub fn int(name: &'static str, value: i64) -> Tensor<'static> {
    Tensor { dims: vec![], ..ints(name, &[value]) }
}

/// Zeros as an initializer.
pub fn zeros(name: &'static str, dims: &[i64]) -> Tensor<'static> {
    let n_bytes = dims.iter().product::<i64>() as usize * 4;
    Tensor::raw(name, F32, dims.to_vec(), vec![0u8; n_bytes])
}

pub fn node(op: &'static str, inputs: &[&'static str], outputs: &[&'static str]) -> Node<'static> {
    Node::new(op, inputs, outputs)
}

/// The node with one attribute more.
pub trait With {
    fn with(self, name: &'static str, value: AttributeValue<'static>) -> Self;
}

impl With for Node<'static> {
    fn with(mut self, name: &'static str, value: AttributeValue<'static>) -> Self {
        self.attributes.push(Attribute::new(name, value));
        self
    }
}

pub fn word(text: &'static str) -> AttributeValue<'static> {
    AttributeValue::String(text.as_bytes().into())
}

pub fn body(graph: Graph<'static>) -> AttributeValue<'static> {
    AttributeValue::Graph(Box::new(graph))
}

/// A graph from `x` (a float matrix of 2 by 3) to `y` through these nodes.
pub fn through(nodes: Vec<Node<'static>>) -> Graph<'static> {
    Graph {
        name: "test".into(),
        inputs: vec![value("x", F32, &[2, 3])],
        outputs: vec![untyped("y")],
        nodes,
        ..Graph::default()
    }
}

/// The same with initializers.
pub fn through_with(initializers: Vec<Tensor<'static>>, nodes: Vec<Node<'static>>) -> Graph<'static> {
    Graph { initializers, ..through(nodes) }
}

/// A body without inputs that makes `output` by these nodes.
pub fn branch(output: &'static str, nodes: Vec<Node<'static>>) -> Graph<'static> {
    Graph { name: "branch".into(), outputs: vec![untyped(output)], nodes, ..Graph::default() }
}

pub fn model_at(opset: i64, graph: Graph<'static>) -> Model<'static> {
    let opset_imports = vec![OpsetImport { domain: "".into(), version: opset }];
    Model { ir_version: 10, opset_imports, graph, ..Model::default() }
}

pub fn model(graph: Graph<'static>) -> Model<'static> {
    model_at(21, graph)
}

pub fn bytes(graph: Graph<'static>) -> Vec<u8> {
    write(&model(graph))
}

/// Imports a file. `cargo xtask malformed` sets a folder to have them all, for `planish build`.
pub fn import(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    if let Some(folder) = std::env::var_os("PLANISH_MALFORMED_TO") {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default().replace("::", "_");
        let name = format!("{test}_{:016x}.onnx", hasher.finish());
        std::fs::write(std::path::Path::new(&folder).join(name), &bytes).unwrap();
    }
    import_bytes(&Bytes::from_vec(bytes), None)
}

/// The kinds of failure in one word each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Io,
    Onnx(OnnxErrorKind),
    Unsupported,
    Opset,
    Attribute,
    Undefined,
    Cycle,
    Type,
    Infer(InferErrorKind),
    Duplicate,
    Body,
    Graph,
    TooLarge,
    Invalid,
}

pub fn kind(error: &ImportError) -> Kind {
    match error.kind() {
        ImportErrorKind::Io { .. } => Kind::Io,
        ImportErrorKind::Onnx(error) => Kind::Onnx(error.kind()),
        ImportErrorKind::Unsupported(_) => Kind::Unsupported,
        ImportErrorKind::Opset { .. } => Kind::Opset,
        ImportErrorKind::Attribute(_) => Kind::Attribute,
        ImportErrorKind::UndefinedValue { .. } => Kind::Undefined,
        ImportErrorKind::Cycle { .. } => Kind::Cycle,
        ImportErrorKind::UnsupportedType { .. } => Kind::Type,
        ImportErrorKind::Graph(error) => match error.kind() {
            GraphErrorKind::Infer(error) => Kind::Infer(error.kind()),
            GraphErrorKind::DuplicateName => Kind::Duplicate,
            GraphErrorKind::BadBody(_) => Kind::Body,
            _ => Kind::Graph,
        },
        ImportErrorKind::TooLarge { .. } => Kind::TooLarge,
        _ => Kind::Invalid,
    }
}
