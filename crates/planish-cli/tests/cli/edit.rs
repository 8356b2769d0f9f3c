//! `planish simplify`, `extract`, `surgeon` and `check` of models: files that other runtimes load.

use std::borrow::Cow;
use std::fs;

use planish_onnx::{DataType, Dimension, Graph, Node, Tensor, ValueInfo};
use serde_json::Value;

use crate::{Folder, fails, linear, model, planish, succeeds};

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn named<'a>(op: &'a str, name: &'a str, inputs: &[&'a str], outputs: &[&'a str]) -> Node<'a> {
    Node { name: name.into(), ..Node::new(op, inputs, outputs) }
}

/// `y = relu(x + (1 + 1))`, with all that a linter looks for: dead nodes and weights, two nodes of one name, a wrong declared
/// shape, an open dimension without a name, a denormal weight.
fn untidy() -> Vec<u8> {
    let graph = Graph {
        name: "untidy".into(),
        nodes: vec![
            named("Add", "twin", &["one", "one"], &["two"]),
            named("Add", "twin", &["x", "two"], &["sum"]),
            named("Dropout", "drop", &["sum"], &["kept", "mask"]),
            named("Neg", "dead", &["sum"], &["unread"]),
            named("Relu", "relu", &["kept"], &["y"]),
        ],
        initializers: vec![
            Tensor::raw("one", DataType::Float, vec![2], floats(&[1.0, f32::from_bits(1)])),
            Tensor::raw("unused", DataType::Float, vec![1], floats(&[1.0])),
        ],
        inputs: vec![ValueInfo::tensor("x", DataType::Float, vec![Dimension::Unknown, Dimension::Value(2)])],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, vec![Dimension::Unknown, Dimension::Value(2)])],
        value_infos: vec![ValueInfo::tensor("two", DataType::Float, vec![Dimension::Value(7)])],
        ..Graph::default()
    };
    model(graph)
}

fn nodes(folder: &Folder, name: &str) -> Vec<(String, String)> {
    let bytes = fs::read(folder.path(name)).unwrap();
    let model = planish_onnx::read(&bytes).unwrap();
    model.graph.nodes.iter().map(|node| (node.op_type.to_string(), node.name.to_string())).collect()
}

#[test]
fn a_model_is_looked_over_and_repaired() {
    let folder = Folder::new("lint");
    let path = |name: &str| folder.path(name).display().to_string();
    let untidy = folder.put("untidy.onnx", &untidy());
    let ended = planish(&["check", &untidy, "--json"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut rules: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect();
    rules.sort_unstable();
    assert_eq!(
        rules,
        [
            "dead-node",
            "dead-output",
            "declared-shape",
            "denormal-weight",
            "duplicate-node-name",
            "unnamed-dimension",
            "unused-initializer"
        ]
    );
    let fixed = path("fixed.onnx");
    succeeds(&["check", &untidy, "--fix", "-o", &fixed]);
    let clean = succeeds(&["check", &fixed, "--strict"]).stdout;
    assert_eq!(clean, "found   0\n");
    let names: Vec<String> = nodes(&folder, "fixed.onnx").into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["twin", "twin_2", "drop", "relu"]);
    let run = |model: &str| {
        let out = path("out.npz");
        succeeds(&["run", model, "--random", "1", "--shapes", "x:3x2", "-o", &out]);
        fs::read(out).unwrap()
    };
    assert_eq!(run(&untidy), run(&fixed));
    fails(
        &folder,
        &["check", &untidy, "--fix", "-o", &untidy],
        2,
        "cannot write {}/untidy.onnx: it is a file that this command reads; give another name",
    );
    assert_eq!(planish(&["check", &folder.put("none.onnx", b"\x08nothing")]).code, Some(2));
}

#[test]
fn weights_that_are_no_numbers_are_errors() {
    let folder = Folder::new("lint-nan");
    let graph = Graph {
        name: "nan".into(),
        nodes: vec![Node::new("Add", &["x", "w"], &["h"]), Node::new("Wonder", &["h"], &["y"])],
        initializers: vec![Tensor::raw("w", DataType::Float, vec![2], floats(&[f32::NAN, f32::INFINITY]))],
        inputs: vec![ValueInfo::tensor("x", DataType::Float, vec![Dimension::Value(2)])],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, vec![Dimension::Value(2)])],
        ..Graph::default()
    };
    let ended = planish(&["check", &folder.put("nan.onnx", &model(graph))]);
    assert_eq!(ended.code, Some(1));
    for text in
        ["error   nan-weight: w: 1 of 2 elements are NaN", "infinite-weight", "error   unsupported-operator"]
    {
        assert!(ended.stdout.contains(text), "{text} is not in\n{}", ended.stdout);
    }
}

#[test]
fn models_are_simplified_and_cut() {
    let folder = Folder::new("simplify");
    let path = |name: &str| folder.path(name).display().to_string();
    let (untidy, simple) = (folder.put("untidy.onnx", &untidy()), path("simple.onnx"));
    let shown = succeeds(&["simplify", &untidy, "-o", &simple, "--check", "2"]).stdout;
    assert!(shown.contains("(5 nodes before, 2 now)") && shown.matches("check   ").count() == 2, "{shown}");
    let ops: Vec<String> = nodes(&folder, "simple.onnx").into_iter().map(|(op, _)| op).collect();
    assert_eq!(ops, ["Add", "Relu"]);
    let (linear, part) = (folder.put("linear.onnx", &linear()), path("part.onnx"));
    succeeds(&["extract", &linear, "--inputs", "xw:4x2:float", "--outputs", "y", "-o", &part]);
    let bytes = fs::read(&part).unwrap();
    let cut = planish_onnx::read(&bytes).unwrap();
    assert_eq!((cut.graph.nodes.len(), cut.graph.initializers.len()), (1, 1));
    assert_eq!(
        cut.graph.inputs[0],
        ValueInfo::tensor("xw", DataType::Float, vec![Dimension::Value(4), Dimension::Value(2)])
    );
    succeeds(&["run", &part]);
    for (arguments, line) in [
        (&["--outputs", "z"][..], "the model has no value `z`; `planish inspect --graph` lists them"),
        (
            &["--inputs", "z", "--outputs", "y"],
            "the model has no value `z`; `planish inspect --graph` lists them",
        ),
        (
            &["--inputs", "y", "--outputs", "xw"],
            "the outputs need the model's input `x`, too; add it to the inputs",
        ),
    ] {
        fails(&folder, &[&["extract", &linear, "-o", &part], arguments].concat(), 2, line);
    }
    assert_eq!(planish(&["simplify", &linear, "-o", &part, "--opset", "7"]).code, Some(2));
    assert_eq!(planish(&["simplify", &linear, "-o", &part, "--disable-pass", "nonsense"]).code, Some(2));
}

#[test]
fn a_surgeon_changes_single_things() {
    let folder = Folder::new("surgeon");
    let path = |name: &str| folder.path(name).display().to_string();
    let (linear, out) = (folder.put("linear.onnx", &linear()), path("out.onnx"));
    let ops = || nodes(&folder, "out.onnx").into_iter().map(|(op, _)| op).collect::<Vec<_>>();
    succeeds(&[
        "surgeon",
        "insert",
        &linear,
        "--op",
        "LeakyRelu",
        "--inputs",
        "xw",
        "--outputs",
        "xw2",
        "--attrs",
        "alpha=-0.5",
        "--mark",
        "-o",
        &out,
    ]);
    assert_eq!(ops(), ["MatMul", "LeakyRelu", "Add", "ArgMax"]);
    // Another node in the place of the sum.
    succeeds(&[
        "surgeon",
        "insert",
        &linear,
        "--op",
        "Mul",
        "--inputs",
        "xw",
        "b",
        "--outputs",
        "y",
        "-o",
        &out,
    ]);
    assert_eq!(ops(), ["MatMul", "Mul", "ArgMax"]);
    succeeds(&["surgeon", "remove", &linear, "--nodes", "op:Add", "-o", &out]);
    assert_eq!(ops(), ["MatMul", "ArgMax"]);
    succeeds(&["surgeon", "prune", &linear, "--outputs", "to*", "-o", &out]);
    assert_eq!(ops(), ["MatMul", "Add"]);
    succeeds(&["surgeon", "rename", &linear, "--values", "x=pixels", "--nodes", "largest=best", "-o", &out]);
    let bytes = fs::read(&out).unwrap();
    let renamed = planish_onnx::read(&bytes).unwrap();
    assert_eq!(renamed.graph.inputs[0].name, Cow::from("pixels"));
    assert!(renamed.graph.nodes.iter().any(|node| node.name == "best"));
    succeeds(&["surgeon", "reshape", &linear, "--inputs", "x:5,3", "-o", &out]);
    assert!(succeeds(&["inspect", &out]).stdout.contains("f32[5,3]"));
    succeeds(&["surgeon", "sanitize", &linear, "--fold-constants", "-o", &out]);
    for (arguments, line) in [
        (&["remove", &linear, "--nodes", "nobody"][..], "no node has a name like this: `nobody`"),
        (&["rename", &linear, "--values", "x=w"], "there is a value `w` already"),
        (&["rename", &linear, "--values", "x"], "`x` names no two names; give OLD=NEW"),
        (&["prune", &linear, "--outputs", "*"], "all outputs have a name like `*`"),
        (
            &["insert", &linear, "--op", "Relu", "--inputs", "z", "--outputs", "y"],
            "the model has no value `z` that the node could read",
        ),
        (&["reshape", &linear, "--inputs", "x:5"], "the input `x` has 2 dimensions, 1 are given"),
    ] {
        fails(&folder, &[&["surgeon"], arguments, &["-o", &path("none.onnx")]].concat(), 2, line);
        assert!(!folder.path("none.onnx").exists());
    }
}

/// `y = x w` with a depth of 16; of the weights' columns the first is 2:4 sparse or none.
fn product(is_sparse: bool) -> Vec<u8> {
    let weight = |at: usize| if is_sparse && at % 4 < 2 { 0.0 } else { 1.0 + (at * 5 % 7) as f32 };
    let values: Vec<f32> = (0..16 * 2).map(|at| weight(at / 2)).collect();
    let matrix = |n: i64| vec![Dimension::Value(3), Dimension::Value(n)];
    let graph = Graph {
        name: "product".into(),
        nodes: vec![named("MatMul", "layer", &["x", "w"], &["y"])],
        initializers: vec![Tensor::raw("w", DataType::Float, vec![16, 2], floats(&values))],
        inputs: vec![ValueInfo::tensor("x", DataType::Float, matrix(16))],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, matrix(2))],
        ..Graph::default()
    };
    model(graph)
}

#[test]
fn weights_are_pruned_to_two_of_four_and_counted() {
    let folder = Folder::new("sparsify");
    let (dense, sparse) =
        (folder.put("dense.onnx", &product(false)), folder.put("sparse.onnx", &product(true)));
    let found = "sparsity    1 of 1 layers have weights that are 2:4 sparse";
    assert!(!succeeds(&["inspect", &dense]).stdout.contains("sparsity"));
    assert!(succeeds(&["inspect", &sparse]).stdout.contains(found));
    let pruned = folder.path("pruned.onnx").display().to_string();
    let ended = succeeds(&["surgeon", "sparsify", &dense, "-o", &pruned]);
    assert_eq!(ended.stdout, format!("model   {pruned} (1 of 1 layers are 2:4 sparse)\n"));
    assert!(ended.stderr.contains("keep 9") && ended.stderr.contains("least of `layer`"), "{}", ended.stderr);
    assert!(succeeds(&["inspect", &pruned]).stdout.contains(found));

    // A plan that was pruned computes what the pruned model computes.
    let plan = folder.path("forced.plan").display().to_string();
    let ended = succeeds(&["build", &dense, "--device", "cpu", "--sparsity", "force", "-o", &plan]);
    assert!(ended.stderr.contains("which changes results"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("1 of 1 layers have weights that are 2:4 sparse; 0 steps"),
        "{}",
        ended.stderr
    );
    let limit = ["--max-error", "rel<=1e-5"];
    succeeds(&[&["compare", &pruned, &plan][..], &limit].concat());
    assert_eq!(planish(&[&["compare", &dense, &plan][..], &limit].concat()).code, Some(1));
    let ended = succeeds(&["build", &sparse, "--device", "cpu", "--sparsity", "disable", "-o", &plan]);
    assert!(!ended.stderr.contains("2:4"), "{}", ended.stderr);
    let ended = planish(&["build", &sparse, "--sparsity", "on", "-o", &plan]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("is not enable, disable or force"), "{}", ended.stderr);
}
