//! `planish inspect`.

use std::fs;

use expect_test::expect;
use planish_onnx::{DataType, Dimension, Graph, Node, ValueInfo};

use crate::{Folder, linear, model, planish, succeeds};

#[test]
fn tables() {
    let folder = Folder::new("inspect");
    let model = folder.put("linear.onnx", &linear());
    let shown = succeeds(&["inspect", &model]).stdout.replace(&folder.0.display().to_string(), "FOLDER");
    expect![[r#"
        model       FOLDER/linear.onnx (249 B)
        producer    test
        format      ONNX IR 10, opset ai.onnx 21
        graph       `linear`, 3 nodes
        inputs
          x  f32[batch,3]
        outputs
          y    f32[batch,2]
          top  i64[batch]
        operators
          Add     1
          ArgMax  1
          MatMul  1
        parameters  8
        weights     32 B (f32 32 B)
        work        16 FLOP per inference at --shapes x:1x3; multiply and add counted as two
        unsupported none
    "#]]
    .assert_eq(&shown);
    let shown = succeeds(&["inspect", &model, "--shapes", "x:10x3"]).stdout;
    assert!(shown.contains("work        160 FLOP per inference at --shapes x:10x3;"), "{shown}");
}

#[test]
fn the_graph_as_text() {
    let folder = Folder::new("graph");
    let model = folder.put("linear.onnx", &linear());
    let text = succeeds(&["inspect", &model, "--graph"]).stdout;
    expect![[r#"
        graph "linear" {
          input %x: f32[batch,3]
          const %w: f32[3,2] = [1, 2, 3, 4, 5, 6]
          const %b: f32[2] = [0.5, -0.5]
          %xw: f32[batch,2] = MatMul(%x, %w)
          %y: f32[batch,2] = Add(%xw, %b)
          %top: i64[batch] = ArgMax(%y) {keepdims=false, axis=1} "largest"
          output %y, %top
        }
    "#]]
    .assert_eq(&text);
    text.parse::<planish_ir::Graph>().unwrap().verify().unwrap();
}

#[test]
fn json() {
    let folder = Folder::new("inspect-json");
    let model = folder.put("linear.onnx", &linear());
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&["inspect", &model, "--json"]).stdout).unwrap();
    assert_eq!(json["parameters"], 8);
    assert_eq!(json["weights"]["f32"]["bytes"], 32);
    assert_eq!(json["opsets"]["ai.onnx"], 21);
    assert_eq!(json["flops"], 16);
    assert_eq!(json["inputs"][0]["type"], "f32[batch,3]");
    assert_eq!(json["unsupported"].as_array().unwrap().len(), 0);
    let file = folder.path("report.json");
    let shown = succeeds(&["inspect", &model, &format!("--json={}", file.display())]).stdout;
    assert!(shown.starts_with("model "), "{shown}");
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(saved, json);
}

#[test]
fn unsupported_operators_are_all_listed() {
    let folder = Folder::new("unsupported");
    let mut own = Node::new("Twist", &["a"], &["y"]);
    own.domain = "my.domain".into();
    own.name = "second".into();
    let graph = Graph {
        name: "odd".into(),
        nodes: vec![Node::new("StringNormalizer", &["x"], &["a"]), own],
        inputs: vec![ValueInfo::tensor("x", DataType::Float, vec![Dimension::Param("n".into())])],
        outputs: vec![ValueInfo::tensor("y", DataType::Float, vec![])],
        ..Graph::default()
    };
    let path = folder.put("odd.onnx", &model(graph));
    let ended = planish(&["inspect", &path]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""));
    assert!(ended.stdout.contains("unsupported 2 nodes"), "{}", ended.stdout);
    assert!(ended.stdout.contains("  x  f32[n]\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("StringNormalizer") && ended.stdout.contains("my.domain.Twist"));
    let json: serde_json::Value =
        serde_json::from_str(&planish(&["inspect", &path, "--json"]).stdout).unwrap();
    assert_eq!(json["unsupported"][1]["op_type"], "Twist");
    let ended = planish(&["run", &path]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("2 node(s) are not supported"), "{}", ended.stderr);
}

#[test]
fn a_plan_says_its_memory_before_it_runs() {
    let folder = Folder::new("memory");
    let model = folder.put("linear.onnx", &linear());
    let plan = folder.path("linear.plan").display().to_string();
    let sizes = ["--opt-shapes", "x:4x3", "--max-shapes", "x:1000x3"];
    let build = ["build", &model, "-o", &plan, "--device", "cpu", "--tune-level", "0"];
    succeeds(&[&build[..], &sizes].concat());
    let shown = succeeds(&["inspect", &plan]).stdout;
    // Outputs: two floats and an index a row.
    for (rows, outputs) in [(4, "64 B"), (1000, "16.0 kB")] {
        let begins = format!("memory      cpu at batch={rows}: weights ");
        let line = shown.lines().find(|line| line.starts_with(&begins)).unwrap_or_else(|| panic!("{shown}"));
        assert!(
            line.contains("; each context arena ") && line.ends_with(&format!("outputs {outputs}")),
            "{line}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&["inspect", &plan, "--json"]).stdout).unwrap();
    assert_eq!(json["memory"][1]["sizes"]["batch"], 1000);
    assert_eq!(json["memory"][1]["targets"][0]["output_bytes"], 16_000);
    assert_eq!(json["memory"][1]["whole"], true);
}
