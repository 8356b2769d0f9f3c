//! What is written reads back the same, and the bytes are those that protobuf itself makes.

mod common;

use common::{Msg, everything, with_attribute, with_graph, with_node, with_tensor, with_type};
use planish_onnx::{
    AttributeKind, AttributeValue, DataType, Dimension, Graph, Model, Node, OpsetImport, Tensor, TensorData,
    Type, Value, ValueInfo, read, read_optional, read_sequence, read_tensor, write, write_tensor,
};

#[test]
fn every_field_survives() {
    let model = everything();
    let bytes = write(&model);
    assert_eq!(read(&bytes).unwrap(), model);
    // Nothing is copied: the text lies in the file's bytes.
    let again = read(&bytes).unwrap();
    assert!(bytes.as_ptr_range().contains(&again.producer_name.as_ptr()));
    assert_eq!(write(&again), bytes);
}

#[test]
fn tensors_stand_alone() {
    for tensor in everything().graph.initializers {
        assert_eq!(read_tensor(&write_tensor(&tensor)).unwrap(), tensor);
    }
}

/// `onnx.helper.make_model` of one Relu, serialized by the protobuf library of onnx 1.22.
const RELU: &[u8] = include_bytes!("data/relu.onnx");

#[test]
fn bytes_are_those_of_the_protobuf_library() {
    let dims = || vec![Dimension::Param("n".into()), Dimension::Value(4)];
    let model = Model {
        ir_version: 10,
        opset_imports: vec![OpsetImport { domain: "ai.onnx".into(), version: 21 }],
        producer_name: "oracle".into(),
        graph: Graph {
            name: "g".into(),
            nodes: vec![Node { name: "act".into(), ..Node::new("Relu", &["x"], &["y"]) }],
            initializers: vec![Tensor {
                name: "c".into(),
                data_type: DataType::Int64,
                dims: vec![3],
                data: TensorData::Int64s(vec![1, -1, 300]),
                ..Tensor::default()
            }],
            inputs: vec![ValueInfo::tensor("x", DataType::Float, dims())],
            outputs: vec![ValueInfo::tensor("y", DataType::Float, dims())],
            ..Graph::default()
        },
        ..Model::default()
    };
    assert_eq!(read(RELU).unwrap(), model);
    assert_eq!(write(&model), RELU);
}

#[test]
fn packed_and_unpacked_lists_are_the_same() {
    let packed = Msg::new().text(1, "a").int(20, 7).bytes(8, &[1, 0x80, 1, 3]);
    let unpacked = Msg::new().text(1, "a").int(20, 7).int(8, 1).bytes(8, &[0x80, 1]).int(8, 3);
    for attribute in [packed, unpacked] {
        let bytes = with_attribute(&attribute);
        let model = read(&bytes).unwrap();
        assert_eq!(model.graph.nodes[0].attributes[0].value, AttributeValue::Ints(vec![1, 128, 3]));
    }
    let one = 1f32.to_le_bytes();
    let two = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    let lists = [
        Msg::new().text(1, "a").int(20, 6).bytes(7, &two).tag(7, 5).raw(&one),
        Msg::new().text(1, "a").int(20, 6).tag(7, 5).raw(&one).tag(7, 5).raw(&two[4..]).tag(7, 5).raw(&one),
    ];
    for attribute in lists {
        let bytes = with_attribute(&attribute);
        let model = read(&bytes).unwrap();
        assert_eq!(model.graph.nodes[0].attributes[0].value, AttributeValue::Floats(vec![1.0, 2.0, 1.0]));
    }
}

#[test]
fn old_attributes_without_a_kind_are_deduced() {
    let cases = [
        (Msg::new().text(1, "a").int(3, 5), AttributeKind::Int),
        (Msg::new().text(1, "a").tag(2, 5).raw(&1f32.to_le_bytes()), AttributeKind::Float),
        (Msg::new().text(1, "a").text(4, "s"), AttributeKind::String),
        (Msg::new().text(1, "a").int(8, 5), AttributeKind::Ints),
        (Msg::new().text(1, "a").bytes(7, &1f32.to_le_bytes()), AttributeKind::Floats),
        (Msg::new().text(1, "a").text(9, "s"), AttributeKind::Strings),
        (Msg::new().text(1, "a").msg(5, &Msg::new().int(2, 1)), AttributeKind::Tensor),
        (Msg::new().text(1, "a").msg(6, &Msg::new()), AttributeKind::Graph),
        (Msg::new().text(1, "a").msg(10, &Msg::new().int(2, 1)), AttributeKind::Tensors),
        (Msg::new().text(1, "a").msg(11, &Msg::new()), AttributeKind::Graphs),
        (Msg::new().text(1, "a").msg(14, &Msg::new().msg(1, &Msg::new())), AttributeKind::Type),
        (Msg::new().text(1, "a").msg(15, &Msg::new().msg(1, &Msg::new())), AttributeKind::Types),
        // A kind that is given counts, and its value may be left out where it is the default.
        (Msg::new().text(1, "a").int(3, 5).int(20, 7), AttributeKind::Ints),
        (Msg::new().text(1, "a").int(20, 3), AttributeKind::String),
        (Msg::new().text(1, "a").text(21, "outer").int(20, 1), AttributeKind::Float),
    ];
    for (attribute, kind) in cases {
        let bytes = with_attribute(&attribute);
        let model = read(&bytes).unwrap();
        assert_eq!(model.graph.nodes[0].attributes[0].value.kind(), kind, "{attribute:?}");
    }
}

#[test]
fn what_is_unknown_is_skipped_and_the_last_scalar_counts() {
    let node = Msg::new()
        .int(100, 1)
        .tag(101, 1)
        .raw(&[0; 8])
        .text(102, "later")
        .tag(103, 5)
        .raw(&[0; 4])
        .text(4, "Relu")
        .text(4, "Tanh");
    let bytes = with_node(&node);
    let model = read(&bytes).unwrap();
    assert_eq!(model.graph.nodes[0].op_type, "Tanh");
    assert_eq!(write(&model), with_node(&Msg::new().text(4, "Tanh")));
}

#[test]
fn what_exporters_leave_out_is_taken() {
    // No IR version, no operator sets, a value without a type, a shape with an unknown dimension.
    let graph = Msg::new().msg(11, &Msg::new().text(1, "x")).msg(13, &Msg::new());
    let bytes = Msg::new().msg(7, &graph).0;
    let model = read(&bytes).unwrap();
    assert_eq!((model.ir_version, model.graph.inputs[0].ty.clone()), (0, None));
    assert!(model.graph.value_infos.is_empty());

    let shape = Msg::new().msg(1, &Msg::new()).msg(1, &Msg::new().text(2, "")).msg(1, &Msg::new().int(1, 0));
    let bytes = with_type(&Msg::new().msg(1, &Msg::new().int(1, 1).msg(2, &shape)));
    let expected = vec![Dimension::Unknown, Dimension::Unknown, Dimension::Value(0)];
    assert_eq!(
        read(&bytes).unwrap().graph.inputs[0].ty,
        Some(Type::Tensor { elem: DataType::Float, shape: Some(expected) })
    );

    // A sequence of nobody knows what.
    let bytes = with_type(&Msg::new().msg(4, &Msg::new()));
    assert_eq!(read(&bytes).unwrap().graph.inputs[0].ty, None);

    // A newer IR version, and metadata that says nothing.
    let bytes = Msg::new().int(1, 99).msg(7, &Msg::new()).msg(14, &Msg::new()).0;
    let model = read(&bytes).unwrap();
    assert_eq!((model.ir_version, model.metadata.len()), (99, 0));
}

#[test]
fn float_data_is_borrowed_like_raw_data() {
    let floats = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    let bytes = with_tensor(&Msg::new().int(1, 2).int(2, 1).bytes(4, &floats));
    let model = read(&bytes).unwrap();
    let data = model.graph.initializers[0].to_le_bytes().unwrap();
    assert!(bytes.as_ptr_range().contains(&data.as_ptr()));
    assert_eq!(*data, *floats);
}

#[test]
fn weights_are_neither_copied_nor_written_twice() {
    let weights = vec![1u8; 64 << 20];
    let model = Model {
        ir_version: 10,
        graph: Graph {
            initializers: vec![Tensor::raw("w", DataType::Uint8, vec![64 << 20], &weights[..])],
            ..Graph::default()
        },
        ..Model::default()
    };
    let bytes = write(&model);
    assert_eq!(bytes.len(), bytes.capacity());
    let again = read(&bytes).unwrap();
    assert!(bytes.as_ptr_range().contains(&again.graph.initializers[0].to_le_bytes().unwrap().as_ptr()));
}

#[test]
fn sequences_and_optionals_are_read() {
    let tensor = Msg::new().int(1, 1).int(2, 2).bytes(9, &[7]);
    let sequence = Msg::new().text(1, "s").int(2, 1).msg(3, &tensor).msg(3, &tensor);
    let read_back = read_sequence(&sequence.0).unwrap();
    assert_eq!((read_back.name.as_ref(), read_back.values.len()), ("s", 2));
    assert!(matches!(&read_back.values[1], Value::Tensor(tensor) if tensor.dims == [1]));

    let optional = Msg::new().text(1, "o").int(2, 3).msg(5, &sequence);
    let read_back = read_optional(&optional.0).unwrap();
    assert!(matches!(read_back.value.as_deref(), Some(Value::Sequence(inner)) if inner.values.len() == 2));
    let empty = Msg::new().text(1, "o").int(2, 0);
    assert_eq!(read_optional(&empty.0).unwrap().value, None);
    let nested = Msg::new().int(2, 3).msg(5, &sequence).msg(7, &Msg::new());
    assert!(matches!(read_sequence(&nested.0).unwrap().values[..], [Value::Sequence(_), Value::Optional(_)]));
}

#[test]
fn a_graph_message_may_be_empty() {
    assert_eq!(read(&with_graph(&Msg::new())).unwrap().graph, Graph::default());
}
