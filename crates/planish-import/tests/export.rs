//! Graphs written back to ONNX and read again: the same names, the same answers.

mod common;

use common::*;
use planish_import::{ImportErrorKind, Imported, export, import_bytes};
use planish_ir::{Graph, interpret};
use planish_onnx::AttributeValue::{Float, Int, Ints};
use planish_onnx::{DataType, Node, Tensor as OnnxTensor};
use planish_op::{Custom, Op, Value};
use planish_tensor::{Bytes, DType, Tensor};

fn imported(graph: planish_onnx::Graph<'static>) -> Graph {
    import(bytes(graph)).unwrap_or_else(|error| panic!("{error}")).graph
}

fn back(graph: &Graph) -> Imported {
    let file = export(graph).unwrap_or_else(|error| panic!("{error}"));
    import_bytes(&Bytes::from_vec(file), None).unwrap_or_else(|error| panic!("{error}"))
}

/// The names and types of inputs and outputs.
fn face(graph: &Graph) -> Vec<(String, String)> {
    let value = |id| (graph.value(id).name.to_string(), graph.value(id).ty.to_string());
    graph.inputs().iter().chain(graph.outputs()).map(|&id| value(id)).collect()
}

/// Exports, imports, and compares names, types and answers.
#[track_caller]
fn check(graph: &Graph, inputs: Vec<Value>) -> Imported {
    let again = back(graph);
    again.graph.verify().expect("the graph verifies");
    assert_eq!(face(&again.graph), face(graph));
    let expected = interpret(graph, inputs.clone()).unwrap_or_else(|error| panic!("{error}"));
    let found = interpret(&again.graph, inputs).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found, expected);
    again
}

fn matrix() -> Value {
    Tensor::new(&[2, 3], vec![1.0f32, -2.0, 3.0, -4.0, 5.0, -6.0]).expect("six elements").into()
}

fn truth(value: bool) -> Value {
    Tensor::scalar(value).into()
}

fn floats(name: &'static str, dims: &[i64]) -> OnnxTensor<'static> {
    let count: i64 = dims.iter().product();
    let bytes: Vec<u8> = (0..count).flat_map(|idx| (idx as f32 / 4.0 - 1.0).to_le_bytes()).collect();
    OnnxTensor::raw(name, F32, dims.to_vec(), bytes)
}

#[test]
fn a_network_keeps_its_names_and_answers() {
    let nodes = vec![
        Node {
            name: "conv".into(),
            ..node("Conv", &["x", "w", "b"], &["h"])
                .with("pads", Ints(vec![1; 4]))
                .with("auto_pad", word("NOTSET"))
        },
        node("MaxPool", &["h"], &["p", ""]).with("kernel_shape", Ints(vec![2, 2])),
        node("Clip", &["p", "", "six"], &["c"]),
        node("Flatten", &["c"], &["f"]),
        node("Gemm", &["f", "m"], &["y"]).with("transB", Int(1)).with("alpha", Float(0.5)),
    ];
    let mut graph = through_with(
        vec![floats("w", &[2, 1, 3, 3]), floats("b", &[2]), floats("m", &[3, 18]), floats("six", &[])],
        nodes,
    );
    graph.inputs = vec![value("x", F32, &[2, 1, 4, 4])];
    // A symbol among numbers.
    if let Some(planish_onnx::Type::Tensor { shape: Some(dims), .. }) = &mut graph.inputs[0].ty {
        dims[0] = planish_onnx::Dimension::Param("n".into());
    }
    let graph = imported(graph);
    let image: Vec<f32> = (0..32).map(|idx| idx as f32 / 8.0 - 2.0).collect();
    let again = check(&graph, vec![Tensor::new(&[2, 1, 4, 4], image).expect("an image").into()]);
    assert_eq!(again.opsets, [("ai.onnx".to_string(), 21)]);
    assert_eq!(again.producer, format!("planish {}", env!("CARGO_PKG_VERSION")));
    graph.same_as(&again.graph).expect("the same graph, name for name");
}

#[test]
fn bodies_read_outer_values_by_name() {
    // Both branches have a value `t`, read `x` and the constant `w`, and the inner If reads `t` of its outer.
    let inner = |op: &'static str| {
        let choose = node("If", &["d"], &["r"])
            .with("then_branch", body(branch("q", vec![node(op, &["t", "w"], &["q"])])))
            .with("else_branch", body(branch("q", vec![node("Identity", &["t"], &["q"])])));
        branch("r", vec![node("Neg", &["x"], &["t"]), choose])
    };
    let mut graph = through_with(
        vec![floats("w", &[2, 3])],
        vec![
            node("If", &["c"], &["y"])
                .with("then_branch", body(inner("Add")))
                .with("else_branch", body(inner("Mul"))),
        ],
    );
    graph.inputs.extend([value("c", BOOL, &[]), value("d", BOOL, &[])]);
    let graph = imported(graph);
    for (c, d) in [(true, true), (true, false), (false, true), (false, false)] {
        check(&graph, vec![matrix(), truth(c), truth(d)]);
    }
}

#[test]
fn loops_and_scans_come_back() {
    let step = planish_onnx::Graph {
        name: "step".into(),
        inputs: vec![value("i", I64, &[]), value("go", BOOL, &[]), value("s", F32, &[2, 3])],
        // What comes in goes out as it is, and the same value twice.
        outputs: vec![untyped("go"), untyped("next"), untyped("next"), untyped("x")],
        nodes: vec![node("Add", &["s", "w"], &["next"])],
        ..planish_onnx::Graph::default()
    };
    let mut graph = through_with(
        vec![floats("w", &[2, 3])],
        vec![node("Loop", &["n", "", "x"], &["y", "all", "same"]).with("body", body(step))],
    );
    graph.inputs.push(value("n", I64, &[]));
    graph.outputs.extend([untyped("all"), untyped("same")]);
    let graph = imported(graph);
    for n in [0i64, 1, 3] {
        let again = back(&graph);
        let inputs = vec![matrix(), Tensor::scalar(n).into()];
        assert_eq!(interpret(&again.graph, inputs.clone()), interpret(&graph, inputs), "{n} turns");
    }

    let step = planish_onnx::Graph {
        name: "step".into(),
        inputs: vec![value("s", F32, &[2]), value("e", F32, &[2])],
        outputs: vec![untyped("sum"), untyped("out")],
        nodes: vec![node("Add", &["s", "e"], &["sum"]), node("Mul", &["sum", "e"], &["out"])],
        ..planish_onnx::Graph::default()
    };
    let scan = node("Scan", &["init", "x"], &["last", "y"])
        .with("body", body(step))
        .with("num_scan_inputs", Int(1))
        .with("scan_input_axes", Ints(vec![1]))
        .with("scan_output_directions", Ints(vec![1]));
    check(&imported(through_with(vec![floats("init", &[2])], vec![scan])), vec![matrix()]);
}

#[test]
fn constants_are_written_once() {
    let branches = || branch("t", vec![node("Add", &["x", "w"], &["t"])]);
    let choose = |output: &'static str| {
        node("If", &["c"], &[output])
            .with("then_branch", body(branches()))
            .with("else_branch", body(branches()))
    };
    let mut graph = through_with(vec![floats("w", &[1000, 2, 3])], vec![choose("y"), choose("z")]);
    graph.outputs.push(untyped("z"));
    graph.inputs.push(value("c", BOOL, &[]));
    let file = bytes(graph);
    let size = file.len();
    let graph = import(file).expect("a model").graph;
    let written = export(&graph).expect("a file").len();
    assert!(written < size + 2000, "{size} bytes became {written}");
}

#[test]
fn spellings_of_its_own() {
    let two = |op: Node<'static>| imported(through(vec![op]));
    check(
        &two(node("Split", &["x"], &["y", "z", "w"]).with("num_outputs", Int(3)).with("axis", Int(1))),
        vec![matrix()],
    );
    check(
        &two(node("Cast", &["x"], &["y"]).with("to", Int(DataType::Int32.to_i32().into()))),
        vec![matrix()],
    );
    check(&two(node("Gelu", &["x"], &["y"]).with("approximate", word("tanh"))), vec![matrix()]);
    check(&two(node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![1, 0]))), vec![matrix()]);
    // An output twice, and an input and a constant as outputs.
    let mut same = through_with(vec![floats("w", &[2])], vec![node("Relu", &["x"], &["y"])]);
    same.outputs.extend([untyped("x"), untyped("w")]);
    check(&imported(same), vec![matrix()]);
    let mut twice = imported(through(vec![node("Relu", &["x"], &["y"])]));
    twice.set_outputs([twice.outputs(), twice.outputs()].concat());
    let again = back(&twice);
    assert_eq!(interpret(&again.graph, vec![matrix()]), interpret(&twice, vec![matrix()]));
    assert_eq!(again.graph.outputs().len(), 2);
    // Operators of another domain.
    let inverse = Node { domain: "com.microsoft".into(), ..node("Inverse", &["x"], &["y"]) };
    let mut square = through(vec![inverse]);
    square.inputs = vec![value("x", F32, &[2, 2])];
    let mut model = model(square);
    model.opset_imports.push(planish_onnx::OpsetImport { domain: "com.microsoft".into(), version: 1 });
    let graph = import(planish_onnx::write(&model)).expect("a model").graph;
    let regular = Tensor::new(&[2, 2], vec![2.0f32, 1.0, 0.0, 4.0]).expect("four elements");
    let again = check(&graph, vec![regular.into()]);
    assert_eq!(again.opsets[1], ("com.microsoft".to_string(), 1));
}

#[test]
fn the_opset_is_the_oldest_that_will_do() {
    let opset = |graph: &Graph| back(graph).opsets[0].1;
    assert_eq!(opset(&imported(through(vec![node("Relu", &["x"], &["y"])]))), 21);
    assert_eq!(
        opset(
            &import(planish_onnx::write(&model_at(24, through(vec![node("Swish", &["x"], &["y"])]))))
                .expect("a model")
                .graph
        ),
        24
    );
    let norm = through_with(vec![floats("w", &[3])], vec![node("RMSNormalization", &["x", "w"], &["y"])]);
    assert_eq!(opset(&import(planish_onnx::write(&model_at(23, norm))).expect("a model").graph), 23);
    let to = |data_type: DataType| {
        let cast = node("Cast", &["x"], &["y"]).with("to", Int(data_type.to_i32().into()));
        import(planish_onnx::write(&model_at(25, through(vec![cast])))).expect("a model").graph
    };
    assert_eq!(opset(&to(DataType::Float16)), 21);
    assert_eq!(opset(&to(DataType::Float4E2M1)), 23);
    assert_eq!(opset(&to(DataType::Bfloat16)), 24);
    assert_eq!(opset(&to(DataType::Uint2)), 25);
    // In a body too.
    let inside = || branch("t", vec![node("CumProd", &["x", "zero"], &["t"])]);
    let choose =
        node("If", &["c"], &["y"]).with("then_branch", body(inside())).with("else_branch", body(inside()));
    let mut graph = through_with(vec![int("zero", 0)], vec![choose]);
    graph.inputs.push(value("c", BOOL, &[]));
    assert_eq!(opset(&import(planish_onnx::write(&model_at(26, graph))).expect("a model").graph), 26);
}

#[test]
fn the_first_resize_in_todays_words() {
    let resize = |scales: [f32; 2], mode: &'static str| {
        let scales: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        let scales = OnnxTensor::raw("s", F32, vec![2], scales);
        let node = node("Resize", &["x", "s"], &["y"]).with("mode", word(mode));
        import(planish_onnx::write(&model_at(10, through_with(vec![scales], vec![node]))))
            .expect("a model")
            .graph
    };
    for scales in [[2.0, 1.5], [1.0, 1.0], [0.5, 0.75], [1.0, 0.5]] {
        check(&resize(scales, "nearest"), vec![matrix()]);
        check(&resize(scales, "linear"), vec![matrix()]);
    }
    check(&resize([2.0, 0.5], "linear"), vec![matrix()]);
    let error = export(&resize([2.0, 0.5], "nearest")).expect_err("one word cannot say both");
    assert!(matches!(error.kind(), ImportErrorKind::NotExpressible { .. }), "{error}");
    assert!(error.to_string().contains("ONNX cannot say Resize that rounds as in opset 10"), "{error}");
}

#[test]
fn a_plugins_operator_keeps_its_domain() {
    let pair = planish_op::ValueType::tensor(DType::F32, [2].into());
    let mut graph = Graph::new("plugin");
    let x = graph.add_input("x", pair.clone()).expect("an input");
    let op = Custom {
        domain: "org.example".into(),
        name: "Twist".into(),
        version: 3,
        attributes: vec![("turns".into(), planish_op::Attribute::Int(2))],
    };
    let mut new = planish_ir::NewNode::new("twist", Op::Custom(op), vec![Some(x)], &[]);
    let declared = planish_ir::Declared::Exact(pair);
    new.outputs = vec![planish_ir::NewOutput::Value { name: "y".into(), declared }];
    graph.add_node(new).expect("a node");
    graph.set_outputs(vec![graph.find("y").expect("the output")]);
    let file = export(&graph).expect("a file");
    let model = planish_onnx::read(&file).expect("a model");
    let node = &model.graph.nodes[0];
    assert_eq!((&*node.domain, &*node.op_type, &*node.name), ("org.example", "Twist", "twist"));
    assert_eq!(node.attributes[0].value, Int(2));
    assert!(model.opset_imports.iter().any(|import| import.domain == "org.example" && import.version == 3));
}
