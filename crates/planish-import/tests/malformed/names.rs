//! Names: cycles, values that nothing makes, names used twice, types and operators refused by name.

use planish_onnx::{
    AttributeValue, DataType, Graph, Node, SparseTensor, Tensor, TensorData, Type, ValueInfo,
};

use crate::check;
use crate::common::*;

#[test]
fn cycles() {
    let if_reading = |name: &'static str| {
        let inside = || branch("inside", vec![node("Relu", &[name], &["inside"])]);
        node("If", &["c"], &["made"]).with("then_branch", body(inside())).with("else_branch", body(inside()))
    };
    let mut through_a_body = through(vec![if_reading("y"), node("Relu", &["made"], &["y"])]);
    through_a_body.inputs.push(value("c", BOOL, &[]));
    let in_a_body = branch("q", vec![node("Abs", &["q"], &["p"]), node("Abs", &["p"], &["q"])]);
    let inner = node("If", &["c"], &["y"])
        .with("then_branch", body(in_a_body.clone()))
        .with("else_branch", body(in_a_body));
    let mut cycle_in_a_body = through(vec![inner]);
    cycle_in_a_body.inputs.push(value("c", BOOL, &[]));
    check(vec![
        (
            "two nodes",
            bytes(through(vec![
                Node { name: "first".into(), ..node("Add", &["x", "b"], &["a"]) },
                Node { name: "second".into(), ..node("Relu", &["a"], &["b"]) },
                node("Relu", &["b"], &["y"]),
            ])),
            Kind::Cycle,
            "the graph has a cycle through node `first` (Add), node `second` (Relu)",
        ),
        (
            "itself",
            bytes(through(vec![node("Add", &["x", "y"], &["y"])])),
            Kind::Cycle,
            "node Add making `y`",
        ),
        ("through a body", bytes(through_a_body), Kind::Cycle, "a cycle through node If making `made`"),
        ("in a body", bytes(cycle_in_a_body), Kind::Cycle, "a cycle through node Abs making `p`"),
    ]);
}

#[test]
fn values_that_nothing_makes() {
    let mut no_output = through(vec![node("Relu", &["x"], &["z"])]);
    no_output.outputs = vec![untyped("nowhere")];
    let with_branches = |then: Graph<'static>| {
        let other = branch("o", vec![node("Relu", &["x"], &["o"])]);
        let choice =
            node("If", &["c"], &["y"]).with("then_branch", body(then)).with("else_branch", body(other));
        let mut graph = through(vec![choice]);
        graph.inputs.push(value("c", BOOL, &[]));
        bytes(graph)
    };
    let leaking = vec![
        node("If", &["c"], &["z"])
            .with("then_branch", body(branch("t", vec![node("Relu", &["x"], &["t"])])))
            .with("else_branch", body(branch("e", vec![node("Relu", &["x"], &["e"])]))),
        node("Add", &["z", "t"], &["y"]),
    ];
    let mut leaking = through(leaking);
    leaking.inputs.push(value("c", BOOL, &[]));
    check(vec![
        (
            "an input",
            bytes(through(vec![node("Add", &["x", "missing.weight"], &["y"])])),
            Kind::Undefined,
            "node Add making `y`: the value `missing.weight` is neither an input",
        ),
        ("an output", bytes(no_output), Kind::Undefined, "graph output `nowhere`: the value `nowhere`"),
        (
            "in a branch",
            with_branches(branch("t", vec![node("Add", &["x", "lost"], &["t"])])),
            Kind::Undefined,
            "the value `lost`",
        ),
        ("the output of a branch", with_branches(branch("t", vec![])), Kind::Undefined, "the value `t`"),
        ("what a branch keeps to itself", bytes(leaking), Kind::Undefined, "the value `t`"),
        (
            "a name with line breaks",
            bytes(through(vec![node("Relu", &["lost\n\u{1b}[31mname"], &["y"])])),
            Kind::Undefined,
            "the value `lost\\n\\u{1b}[31mname`",
        ),
        (
            "a name of a megabyte",
            bytes(through(vec![Node {
                inputs: vec!["n".repeat(1 << 20).into()],
                name: "o".repeat(1 << 20).into(),
                ..node("Relu", &[], &["y"])
            }])),
            Kind::Undefined,
            "nnn…` is neither",
        ),
    ]);
}

#[test]
fn names_used_twice() {
    let relu = || node("Relu", &["x"], &["y"]);
    let mut two_inputs = through(vec![relu()]);
    two_inputs.inputs.push(value("x", F32, &[2, 3]));
    let sparse = |name: &'static str| SparseTensor {
        values: Tensor { name: name.into(), ..zeros("", &[1]) },
        indices: ints("", &[0]),
        dims: vec![2, 3],
    };
    let mut dense_and_sparse = through_with(vec![zeros("w", &[2, 3])], vec![relu()]);
    dense_and_sparse.sparse_initializers = vec![sparse("w")];
    let with_loop = |step: Graph<'static>| {
        let mut graph = through(vec![node("Loop", &["n", "", "x"], &["y"]).with("body", body(step))]);
        graph.inputs.push(value("n", I64, &[]));
        bytes(graph)
    };
    let step = |nodes: Vec<Node<'static>>| Graph {
        name: "step".into(),
        inputs: vec![value("i", I64, &[]), value("go", BOOL, &[]), value("state", F32, &[2, 3])],
        outputs: vec![untyped("go"), untyped("next")],
        nodes,
        ..Graph::default()
    };
    let next = || node("Relu", &["state"], &["next"]);
    check(vec![
        (
            "two nodes",
            bytes(through(vec![relu(), relu()])),
            Kind::Invalid,
            "node Relu making `y`: two nodes make a value called `y`",
        ),
        (
            "two outputs",
            bytes(through(vec![node("TopK", &["x", "k"], &["y", "y"])])),
            Kind::Invalid,
            "a value called `y`",
        ),
        ("node and input", bytes(through(vec![node("Relu", &["x"], &["x"]), relu()])), Kind::Cycle, "`x`"),
        (
            "node and unread input",
            bytes({
                let mut graph = through(vec![node("Relu", &["x"], &["y"])]);
                graph.inputs.push(value("y", F32, &[1]));
                graph
            }),
            Kind::Duplicate,
            "two values are called `y`",
        ),
        (
            "node and initializer",
            bytes(through_with(vec![zeros("y", &[1])], vec![relu()])),
            Kind::Duplicate,
            "two values are called `y`",
        ),
        ("two inputs", bytes(two_inputs), Kind::Duplicate, "two values are called `x`"),
        (
            "two initializers",
            bytes(through_with(vec![zeros("w", &[1]), zeros("w", &[1])], vec![relu()])),
            Kind::Duplicate,
            "two values are called `w`",
        ),
        ("dense and sparse", bytes(dense_and_sparse), Kind::Duplicate, "two values are called `w`"),
        (
            "constant and node",
            bytes(through(vec![
                node("Constant", &[], &["y"]).with("value_int", AttributeValue::Int(1)),
                relu(),
            ])),
            Kind::Invalid,
            "two nodes make",
        ),
        ("in a body", with_loop(step(vec![next(), next()])), Kind::Invalid, "two nodes make"),
        (
            "formal input and node of a body",
            with_loop(step(vec![next(), node("Not", &["go"], &["i"])])),
            Kind::Duplicate,
            "two values are called `i`",
        ),
        (
            "no name at all",
            bytes(through_with(vec![zeros("", &[1])], vec![relu()])),
            Kind::Invalid,
            "an initializer has no name",
        ),
    ]);
}

#[test]
fn types_refused_by_name() {
    let with_input = |ty: Option<Type<'static>>| {
        let mut graph = through(vec![node("Identity", &["x"], &["y"])]);
        graph.inputs = vec![ValueInfo { name: "x".into(), ty, ..ValueInfo::default() }];
        bytes(graph)
    };
    let of = |elem: DataType| with_input(Some(Type::Tensor { elem, shape: Some(vec![]) }));
    let strings = Tensor {
        name: "w".into(),
        data_type: DataType::String,
        dims: vec![1],
        data: TensorData::Strings(vec![b"text"[..].into()]),
        ..Tensor::default()
    };
    let complex = Tensor::raw("w", DataType::Complex64, vec![1], vec![0u8; 8]);
    let relu = || vec![node("Relu", &["x"], &["y"])];
    let map = Type::Map { key: I64, value: Box::new(Type::Tensor { elem: F32, shape: None }) };
    check(vec![
        (
            "strings",
            of(DataType::String),
            Kind::Type,
            "graph input `x`: the element type string is not supported",
        ),
        ("complex", of(DataType::Complex128), Kind::Type, "the element type complex128 is not supported"),
        ("undefined", of(DataType::Undefined), Kind::Type, "the element type undefined"),
        ("no type", with_input(None), Kind::Invalid, "the graph input `x` has no type"),
        ("a map", with_input(Some(map)), Kind::Type, "a map as input or output"),
        (
            "an opaque",
            with_input(Some(Type::Opaque { domain: "d".into(), name: "n".into() })),
            Kind::Type,
            "an opaque type",
        ),
        (
            "a sparse tensor",
            with_input(Some(Type::SparseTensor { elem: F32, shape: None })),
            Kind::Type,
            "a sparse tensor",
        ),
        (
            "string weights",
            bytes(through_with(vec![strings], relu())),
            Kind::Type,
            "initializer `w`: the element type string",
        ),
        ("complex weights", bytes(through_with(vec![complex], relu())), Kind::Type, "complex64"),
        (
            "a string constant",
            bytes(through(vec![node("Constant", &[], &["y"]).with("value_string", word("text"))])),
            Kind::Type,
            "node Constant making `y`: a string constant",
        ),
    ]);
}

#[test]
fn operators_refused_by_name() {
    let other = |domain: &'static str, op: &'static str, output: &'static str| Node {
        domain: domain.into(),
        ..node(op, &["x"], &[output])
    };
    let inside = branch("t", vec![other("", "Nonsense", "t")]);
    let choice = node("If", &["c"], &["y"]).with("then_branch", body(inside.clone()));
    let choice = choice.with("else_branch", body(inside));
    let mut nested = through(vec![choice]);
    nested.inputs.push(value("c", BOOL, &[]));
    check(vec![
        (
            "several at once",
            bytes(through(vec![
                other("", "Nonsense", "a"),
                other("ai.onnx.ml", "CastMap", "b"),
                other("com.microsoft", "SomethingFused", "c"),
                other("", "StringSplit", "y"),
            ])),
            Kind::Unsupported,
            "4 node(s) are not supported: ai.onnx.Nonsense (opset 21) at node Nonsense making `a`",
        ),
        (
            "with a reason",
            bytes(through(vec![other("", "StringSplit", "y")])),
            Kind::Unsupported,
            "strings are not supported; tokenize before the model",
        ),
        (
            "another domain's name",
            bytes(through(vec![other("", "Inverse", "y")])),
            Kind::Unsupported,
            "ai.onnx.Inverse",
        ),
        ("in a body", bytes(nested), Kind::Unsupported, "2 node(s)"),
    ]);
}
