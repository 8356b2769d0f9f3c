//! Models whose files declare other sizes than their operators make: they build with open and with fixed shapes, and
//! compute what the reference computes.

use planish_onnx::{
    Attribute, AttributeValue, DataType, Dimension, Graph, Node, Tensor, TensorData, ValueInfo,
};

use super::{Folder, elements_f32, model, npy_f32, planish, succeeds};

/// Two plans of one model may differ by how sums are ordered; values of 16 bits that are computed in f32 by how they
/// are rounded between nodes.
const SINGLE: f32 = 1e-5;
const HALF: f32 = 2e-2;

fn value(name: &'static str, elem: DataType, dims: &[&'static str]) -> ValueInfo<'static> {
    let dim = |dim: &&'static str| match dim.parse() {
        Ok(number) => Dimension::Value(number),
        Err(_) => Dimension::Param((*dim).into()),
    };
    ValueInfo::tensor(name, elem, dims.iter().map(dim).collect())
}

fn float(name: &'static str, dims: &[&'static str]) -> ValueInfo<'static> {
    value(name, DataType::Float, dims)
}

fn ints(name: &'static str, values: &[i64]) -> Tensor<'static> {
    let (dims, data) = (vec![values.len() as i64], TensorData::Int64s(values.to_vec()));
    Tensor { name: name.into(), data_type: DataType::Int64, dims, data, ..Tensor::default() }
}

/// Numbers between -0.5 and 0.5 that repeat after some.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|at| (at * 37 % 101) as f32 / 101.0 - 0.5).collect()
}

fn floats(name: &'static str, dims: &[i64], values: &[f32]) -> Tensor<'static> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    Tensor::raw(name, DataType::Float, dims.to_vec(), bytes)
}

fn weight(name: &'static str, dims: &[i64]) -> Tensor<'static> {
    floats(name, dims, &numbers(dims.iter().product::<i64>() as usize))
}

fn node(op: &'static str, inputs: &[&'static str], output: &'static str) -> Node<'static> {
    Node::new(op, inputs, &[output])
}

fn with(mut node: Node<'static>, name: &'static str, value: AttributeValue<'static>) -> Node<'static> {
    node.attributes.push(Attribute::new(name, value));
    node
}

fn cast(input: &'static str, output: &'static str, to: DataType) -> Node<'static> {
    with(node("Cast", &[input], output), "to", AttributeValue::Int(to as i64))
}

fn concat(inputs: &[&'static str], output: &'static str, axis: i64) -> Node<'static> {
    with(node("Concat", inputs, output), "axis", AttributeValue::Int(axis))
}

/// Builds a model open and for the shapes of its inputs, runs both plans and the reference on numbers, and compares.
/// Gives what the open build said.
#[track_caller]
fn agrees(name: &str, graph: Graph<'_>, inputs: &[(&str, &[usize])], tolerance: f32) -> String {
    let folder = Folder::new(name);
    let file = folder.put("model.onnx", &model(graph));
    let at = |name: &str| folder.path(name).display().to_string();
    let mut feeds = Vec::new();
    let mut shapes = Vec::new();
    for (input, dims) in inputs {
        let tuple: String = dims.iter().map(|dim| format!("{dim},")).collect();
        let array = npy_f32(&format!("({tuple})"), &numbers(dims.iter().product()));
        feeds.push("--input".to_string());
        feeds.push(format!("{input}={}", folder.put(&format!("{input}.npy"), &array)));
        let sizes: Vec<String> = dims.iter().map(usize::to_string).collect();
        shapes.push(format!("{input}:{}", sizes.join("x")));
    }
    let run = |model: &str, backend: &str, out: &str| {
        let mut arguments = vec!["run", model, "--backend", backend, "-o", out];
        arguments.extend(feeds.iter().map(String::as_str));
        succeeds(&arguments);
        elements_f32(&std::path::Path::new(out).join("y.npy"))
    };
    let exact = run(&file, "reference", &at("exact"));
    let built = ["build", file.as_str(), "--tune-level", "0", "--device", "cpu", "-o"];
    let (open, fixed) = (at("open.plan"), at("fixed.plan"));
    let said = succeeds(&[&built[..], &[&open]].concat()).stderr;
    succeeds(&[&built[..], &[&fixed, "--shapes", &shapes.join(",")]].concat());
    // The model itself builds in memory at whatever its inputs are.
    let mut plans = vec![fixed, file.clone()];
    let tied = said_apart(
        &planish(&[&["run", &file, "--device", "cpu", "-o", &at("tied")][..], &arguments(&feeds)].concat())
            .stderr,
    );
    if !tied {
        plans.push(open);
    }
    for (idx, plan) in plans.iter().enumerate() {
        let got = run(plan, "cpu", &at(&format!("out{idx}")));
        assert_eq!(got.len(), exact.len(), "{name}: {plan}");
        let off = got.iter().zip(&exact).map(|(got, exact)| (got - exact).abs()).fold(0.0, f32::max);
        assert!(off <= tolerance, "{name}: {plan} is {off} off");
    }
    said
}

fn arguments(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

/// Whether inputs have several sizes for one symbol, which a plan with open sizes takes as equal.
fn said_apart(stderr: &str) -> bool {
    stderr.contains("stands for several sizes")
}

/// Twice the batch, by arithmetic in floating point that inference does not follow.
fn guided() -> Graph<'static> {
    Graph {
        name: "guided".into(),
        inputs: vec![float("x", &["batch", "4"])],
        outputs: vec![float("y", &["batch", "4"])],
        value_infos: vec![float("both", &["batch", "4"]), float("z", &["batch", "4"])],
        initializers: vec![floats("twice", &[2], &[2.0, 1.0]), weight("w", &[4, 4])],
        nodes: vec![
            node("Shape", &["x"], "s"),
            cast("s", "f", DataType::Float),
            node("Mul", &["f", "twice"], "f2"),
            cast("f2", "i", DataType::Int64),
            node("ConstantOfShape", &["i"], "z"),
            concat(&["x", "x"], "both", 0),
            node("Add", &["z", "both"], "sum"),
            node("MatMul", &["sum", "w"], "y"),
        ],
        ..Graph::default()
    }
}

#[test]
fn a_batch_that_is_twice_the_declared_one() {
    let said = agrees("guided", guided(), &[("x", &[1, 4])], SINGLE);
    assert!(said.contains("declares other sizes than the model computes"), "{said}");
    assert!(said.contains("`both` is declared [batch,4] and is [2*batch,4]"), "{said}");
    agrees("guided3", guided(), &[("x", &[3, 4])], SINGLE);
}

/// A U-Net of one level, in 16 bits inside, whose scales are put together by nodes.
fn unet(inner: DataType) -> Graph<'static> {
    let conv = |inputs: &[&'static str], output: &'static str, stride: i64| {
        let conv = with(node("Conv", inputs, output), "pads", AttributeValue::Ints(vec![1, 1, 1, 1]));
        with(conv, "strides", AttributeValue::Ints(vec![stride, stride]))
    };
    let resize =
        with(node("Resize", &["low", "", "scales"], "up"), "mode", AttributeValue::String(b"nearest".into()));
    Graph {
        name: "unet".into(),
        inputs: vec![float("x", &["batch", "3", "16", "16"])],
        outputs: vec![float("y", &["batch", "2", "batch", "wide"])],
        value_infos: vec![
            value("up", inner, &["unk_1", "6", "unk_2", "unk_3"]),
            value("joined", inner, &["unk_4", "12", "unk_5", "unk_6"]),
        ],
        initializers: vec![
            weight("w1", &[6, 3, 3, 3]),
            weight("w2", &[6, 6, 3, 3]),
            weight("w3", &[2, 12, 3, 3]),
            floats("ones", &[2], &[1.0, 1.0]),
            floats("twos", &[2], &[2.0, 2.0]),
        ],
        nodes: vec![
            cast("x", "x16", inner),
            cast("w1", "w1_16", inner),
            cast("w2", "w2_16", inner),
            cast("w3", "w3_16", inner),
            conv(&["x16", "w1_16"], "first", 1),
            node("Relu", &["first"], "skip"),
            conv(&["skip", "w2_16"], "down", 2),
            node("Relu", &["down"], "low"),
            concat(&["ones", "twos"], "scales", 0),
            resize,
            concat(&["up", "skip"], "joined", 1),
            conv(&["joined", "w3_16"], "y16", 1),
            cast("y16", "y", DataType::Float),
        ],
        ..Graph::default()
    }
}

#[test]
fn a_unet_of_16_bits_with_an_open_batch() {
    for (name, inner) in [("f16", DataType::Float16), ("bf16", DataType::Bfloat16), ("f32", DataType::Float)]
    {
        // bf16 has eight bits less for its mantissa than f16's three more: its roundings are eight times as large.
        let tolerance = if inner == DataType::Bfloat16 { 8.0 * HALF } else { HALF };
        for batch in [1, 2] {
            let said = agrees(
                &format!("unet-{name}-{batch}"),
                unet(inner),
                &[("x", &[batch, 3, 16, 16])],
                tolerance,
            );
            assert!(said.contains("`y` is declared [batch,2,batch,wide] and is [batch,2,16,16]"), "{said}");
        }
    }
}

/// What `x` gives is joined with as many rows as it has numbers above 0, which only a run tells.
fn grown() -> Graph<'static> {
    Graph {
        name: "grown".into(),
        inputs: vec![float("x", &["batch", "4"])],
        outputs: vec![float("y", &["batch", "4"])],
        value_infos: vec![float("rows", &["batch", "4"]), float("more", &["batch", "4"])],
        initializers: vec![
            floats("zero", &[], &[0.0]),
            ints("one", &[1]),
            ints("two", &[2]),
            ints("four", &[4]),
        ],
        nodes: vec![
            node("Sigmoid", &["x"], "early"),
            node("Greater", &["x", "zero"], "above"),
            node("NonZero", &["above"], "places"),
            node("Shape", &["places"], "s"),
            node("Slice", &["s", "one", "two"], "count"),
            concat(&["count", "four"], "sizes", 0),
            node("ConstantOfShape", &["sizes"], "rows"),
            node("Exp", &["rows"], "more"),
            concat(&["early", "more"], "all", 0),
            node("Sigmoid", &["all"], "y"),
        ],
        ..Graph::default()
    }
}

#[test]
fn a_join_whose_size_only_a_run_tells() {
    agrees("grown", grown(), &[("x", &[2, 4])], SINGLE);
    agrees("grown5", grown(), &[("x", &[5, 4])], SINGLE);
}

#[test]
fn numbers_ranks_and_names_that_are_wrong() {
    let graph = Graph {
        name: "wrong".into(),
        inputs: vec![float("x", &["n", "4"])],
        outputs: vec![float("y", &["7", "n", "4"])],
        value_infos: vec![float("a", &["9", "9"]), float("b", &["4", "n"]), float("c", &["n"])],
        initializers: vec![weight("w", &[4, 4])],
        nodes: vec![
            node("Relu", &["x"], "a"),
            node("MatMul", &["a", "w"], "b"),
            node("Sigmoid", &["b"], "c"),
            node("Add", &["c", "x"], "y"),
        ],
        ..Graph::default()
    };
    let said = agrees("wrong", graph, &[("x", &[3, 4])], SINGLE);
    let expected = "which count: `y` is declared [7,n,4] and is [n,4], `a` is declared [9,9] and is [n,4], `b` is \
                    declared [4,n] and is [n,4], and 1 more";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn one_name_for_sizes_of_inputs_that_differ() {
    let graph = || Graph {
        name: "apart".into(),
        inputs: vec![float("a", &["batch", "n"]), float("b", &["batch", "n"])],
        outputs: vec![float("y", &["batch", "n"])],
        nodes: vec![concat(&["a", "b"], "ab", 1), node("Sigmoid", &["ab"], "y")],
        ..Graph::default()
    };
    let said = agrees("apart", graph(), &[("a", &[2, 3]), ("b", &[2, 5])], SINGLE);
    assert!(said.contains("`y` is declared [batch,n] and is [batch,2*n]"), "{said}");
    let folder = Folder::new("apart-range");
    let file = folder.put("model.onnx", &model(graph()));
    let plan = folder.path("m.plan").display().to_string();
    let build = ["build", &file, "-o", &plan, "--tune-level", "0", "--device", "cpu"];
    let range = ["--min-shapes", "a:1x2,b:1x2", "--max-shapes", "a:4x8,b:4x16"];
    assert!(said_apart(&succeeds(&[&build[..], &range[..]].concat()).stderr));
    succeeds(&["run", &plan, "--device", "cpu", "--shapes", "a:2x8,b:2x3", "--random", "1"]);
    // A plan that holds the two to be equal says so.
    succeeds(&build);
    let ended = planish(&["run", &plan, "--device", "cpu", "--shapes", "a:2x8,b:2x3", "--random", "1"]);
    assert_eq!(ended.code, Some(2));
    let expected = "error: the plan was made for one size of `n`, the inputs have several; build it with --shapes \
                    that give each input its own\n";
    assert_eq!(ended.stderr, expected);
}
