//! Shared by the tests: protobuf messages made field by field, and a model that uses everything.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::borrow::Cow;

use planish_onnx::{
    Attribute, AttributeKind, AttributeValue, DataType, Dimension, External, Function, Graph, Model, Node,
    OpsetImport, QuantizationAnnotation, SparseTensor, Tensor, TensorData, Type, ValueInfo,
};

/// A protobuf message being put together, right or wrong.
#[derive(Debug, Clone, Default)]
pub struct Msg(pub Vec<u8>);

impl Msg {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub fn tag(self, field: u64, wire_type: u64) -> Self {
        self.varint(field << 3 | wire_type)
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn int(self, field: u64, value: i64) -> Self {
        self.tag(field, 0).varint(value as u64)
    }

    pub fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        self.tag(field, 2).varint(bytes.len() as u64).raw(bytes)
    }

    pub fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub fn msg(self, field: u64, message: &Msg) -> Self {
        self.bytes(field, &message.0)
    }
}

/// A model with this graph and nothing else wrong.
pub fn with_graph(graph: &Msg) -> Vec<u8> {
    Msg::new().int(1, 10).msg(7, graph).msg(8, &Msg::new().int(2, 21)).0
}

/// A model with this one node.
pub fn with_node(node: &Msg) -> Vec<u8> {
    with_graph(&Msg::new().msg(1, node))
}

/// A model with one node, named `act`, with this attribute.
pub fn with_attribute(attribute: &Msg) -> Vec<u8> {
    with_node(&Msg::new().text(3, "act").text(4, "Relu").msg(5, attribute))
}

/// A model with this initializer.
pub fn with_tensor(tensor: &Msg) -> Vec<u8> {
    with_graph(&Msg::new().msg(5, tensor))
}

/// A model with one input of this type.
pub fn with_type(ty: &Msg) -> Vec<u8> {
    with_graph(&Msg::new().msg(11, &Msg::new().text(1, "x").msg(2, ty)))
}

/// A model that has something in every field that this crate keeps.
pub fn everything() -> Model<'static> {
    let then_branch = Graph {
        name: "then".into(),
        nodes: vec![Node::new("Identity", &["x"], &["then_out"])],
        outputs: vec![ValueInfo { name: "then_out".into(), ..ValueInfo::default() }],
        ..Graph::default()
    };
    let floats = Tensor::raw("w", DataType::Float, vec![2], 1.5f32.to_le_bytes().repeat(2));
    let sparse = SparseTensor {
        values: Tensor::raw("sparse", DataType::Float, vec![1], 2f32.to_le_bytes().to_vec()),
        indices: Tensor {
            data_type: DataType::Int64,
            dims: vec![1],
            data: TensorData::Int64s(vec![3]),
            ..Tensor::default()
        },
        dims: vec![2, 2],
    };
    let image = Type::Tensor {
        elem: DataType::Float,
        shape: Some(vec![Dimension::Param("batch".into()), Dimension::Value(3), Dimension::Unknown]),
    };
    let attributes = vec![
        Attribute::new("float", AttributeValue::Float(-0.0)),
        Attribute::new("int", AttributeValue::Int(-7)),
        Attribute::new("string", AttributeValue::String(Cow::Borrowed(b"\xff bytes"))),
        Attribute::new("tensor", AttributeValue::Tensor(Box::new(floats.clone()))),
        Attribute::new("graph", AttributeValue::Graph(Box::new(then_branch.clone()))),
        Attribute::new("sparse", AttributeValue::SparseTensor(Box::new(sparse.clone()))),
        Attribute::new("type", AttributeValue::Type(Box::new(image.clone()))),
        Attribute::new("floats", AttributeValue::Floats(vec![1.0, f32::MIN_POSITIVE])),
        Attribute::new("ints", AttributeValue::Ints(vec![0, -1, i64::MAX, i64::MIN])),
        Attribute::new("strings", AttributeValue::Strings(vec![b"a"[..].into(), b""[..].into()])),
        Attribute::new("tensors", AttributeValue::Tensors(vec![floats.clone()])),
        Attribute::new("graphs", AttributeValue::Graphs(vec![then_branch])),
        Attribute::new("sparses", AttributeValue::SparseTensors(vec![sparse.clone()])),
        Attribute::new("types", AttributeValue::Types(vec![image.clone()])),
        Attribute { doc_string: "why".into(), ..Attribute::new("none", AttributeValue::Ints(vec![])) },
    ];
    let node = Node {
        name: "first".into(),
        domain: "com.example".into(),
        overload: "second".into(),
        doc_string: "a node".into(),
        metadata: vec![("key".into(), "value".into())],
        attributes,
        ..Node::new("Custom", &["x", "", "w"], &["mid", ""])
    };
    let call = Node { domain: "local".into(), name: "call".into(), ..Node::new("Double", &["mid"], &["y"]) };
    let typed = |name: &'static str, data_type, n, data| Tensor {
        name: name.into(),
        data_type,
        dims: vec![n],
        data,
        doc_string: "constant".into(),
        metadata: vec![("from".into(), "test".into())],
    };
    let external = External {
        location: "weights.bin".into(),
        offset: 4096,
        length: Some(8),
        checksum: Some("0123".into()),
    };
    let values = |name: &'static str, ty| ValueInfo {
        name: name.into(),
        ty: Some(ty),
        doc_string: "a value".into(),
        metadata: vec![("k".into(), "v".into())],
    };
    let graph = Graph {
        name: "main".into(),
        doc_string: "the graph".into(),
        nodes: vec![node, call],
        initializers: vec![
            floats,
            typed("bytes", DataType::Uint8, 2, TensorData::Int32s(vec![255, 0])),
            typed("bits", DataType::Int4, 3, TensorData::Int32s(vec![0x21, -8])),
            typed("longs", DataType::Int64, 2, TensorData::Int64s(vec![i64::MIN, 1])),
            typed("words", DataType::Uint32, 1, TensorData::Uint64s(vec![u64::from(u32::MAX)])),
            typed("texts", DataType::String, 1, TensorData::Strings(vec![b"text"[..].into()])),
            typed("away", DataType::Float, 2, TensorData::External(external)),
            typed("odd", DataType::Int32, 1, TensorData::Floats(vec![1.0])),
            typed("odder", DataType::Int32, 1, TensorData::Doubles(vec![1.0])),
        ],
        sparse_initializers: vec![sparse],
        inputs: vec![
            values("x", image.clone()),
            values("list", Type::Sequence(Box::new(image.clone()))),
            values(
                "maybe",
                Type::Optional(Box::new(Type::SparseTensor { elem: DataType::Int8, shape: None })),
            ),
            values("table", Type::Map { key: DataType::Int64, value: Box::new(image.clone()) }),
            values("box", Type::Opaque { domain: "d".into(), name: "n".into() }),
        ],
        outputs: vec![values("y", Type::Tensor { elem: DataType::Undefined, shape: None })],
        value_infos: vec![values("mid", Type::Tensor { elem: DataType::Float8E8M0, shape: Some(vec![]) })],
        quantization_annotations: vec![QuantizationAnnotation {
            tensor_name: "mid".into(),
            parameters: vec![("SCALE_TENSOR".into(), "w".into())],
        }],
        metadata: vec![("graph".into(), "".into())],
    };
    let imports = vec![
        OpsetImport { domain: "".into(), version: 21 },
        OpsetImport { domain: "local".into(), version: 1 },
    ];
    let function = Function {
        name: "Double".into(),
        domain: "local".into(),
        overload: "".into(),
        inputs: vec!["a".into()],
        outputs: vec!["b".into()],
        attributes: vec!["needed".into()],
        attribute_protos: vec![Attribute::new("axis", AttributeValue::Int(1))],
        nodes: vec![Node {
            attributes: vec![Attribute::reference("axis", "axis", AttributeKind::Int)],
            ..Node::new("Add", &["a", "a"], &["b"])
        }],
        opset_imports: imports.clone(),
        value_infos: vec![values("b", image)],
        doc_string: "twice".into(),
        metadata: vec![("f".into(), "g".into())],
    };
    Model {
        ir_version: 13,
        opset_imports: imports,
        producer_name: "planish".into(),
        producer_version: "0.1".into(),
        domain: "org.example".into(),
        model_version: 3,
        doc_string: "everything".into(),
        graph,
        metadata: vec![("m".into(), "é".into())],
        functions: vec![function],
    }
}
