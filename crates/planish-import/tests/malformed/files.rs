//! Bytes that are no model, or one that was cut or damaged: the reader's errors arrive through the importer.

use planish_onnx::{Function, Metadata, Node, OnnxErrorKind, OpsetImport, write};

use crate::check;
use crate::common::*;

/// A model with a name in every section that begins with the section's letter.
fn sections() -> Vec<u8> {
    let attributes = vec![
        planish_onnx::Attribute::new("Attribute", planish_onnx::AttributeValue::Ints(vec![1, 2, 3])),
        planish_onnx::Attribute::new("Words", word("Value_of_words")),
    ];
    let mut graph = through(vec![Node {
        name: "Node_name".into(),
        attributes,
        ..node("Operator_type", &["x", "Weight"], &["y"])
    }]);
    graph.name = "Graph_name".into();
    graph.initializers = vec![planish_onnx::Tensor::raw("Weight", F32, vec![2], b"Raw_data".to_vec())];
    graph.inputs.push(symbolic("Input_name", F32, &["Dimension_name"]));
    graph.value_infos = vec![value("Info_name", F32, &[7])];
    let metadata: Metadata<'static> = vec![("Key_name".into(), "Meta_value".into())];
    let mut model = model(graph);
    model.producer_name = "Producer_name".into();
    model.metadata = metadata;
    model.opset_imports.push(OpsetImport { domain: "Domain_name".into(), version: 1 });
    model.functions = vec![Function {
        name: "Function_name".into(),
        domain: "Domain_name".into(),
        inputs: vec!["Formal_name".into()],
        ..Function::default()
    }];
    write(&model)
}

fn place(bytes: &[u8], marker: &str) -> usize {
    let found = bytes.windows(marker.len()).position(|window| window == marker.as_bytes());
    found.unwrap_or_else(|| panic!("the model has no {marker}"))
}

/// Names whose tags stand two bytes before them: field number and wire type, then the length.
const SHORT: [&str; 7] =
    ["Producer_name", "Graph_name", "Node_name", "Operator_type", "Weight", "Input_name", "Dimension_name"];

#[test]
fn files_cut_in_every_section() {
    let whole = sections();
    let others = [
        "Attribute",
        "Value_of_words",
        "Raw_data",
        "Info_name",
        "Key_name",
        "Meta_value",
        "Domain_name",
        "Function_name",
        "Formal_name",
    ];
    for marker in SHORT.into_iter().chain(others) {
        let cut = whole[..place(&whole, marker) + marker.len() / 2].to_vec();
        check(vec![(marker, cut, Kind::Onnx(OnnxErrorKind::Truncated), "cut off or damaged")]);
    }
}

#[test]
fn wire_types_that_do_not_fit() {
    let whole = sections();
    for marker in SHORT {
        let tag = place(&whole, marker) - 2;
        for (wire_type, fragment) in [(3, "is a group"), (6, "unknown wire type 6")] {
            let mut damaged = whole.clone();
            damaged[tag] = damaged[tag] & !7 | wire_type;
            check(vec![(marker, damaged, Kind::Onnx(OnnxErrorKind::WrongWireType), fragment)]);
        }
    }
    // The version as a text.
    let mut damaged = whole.clone();
    assert_eq!(damaged[0], 0x08, "a model starts with its version");
    damaged[0] = 0x0a;
    check(vec![("ir_version", damaged, Kind::Onnx(OnnxErrorKind::WrongWireType), "ir_version")]);
}

#[test]
fn text_that_is_not_utf8() {
    let whole = sections();
    for marker in
        ["Graph_name", "Node_name", "Operator_type", "Attribute", "Weight", "Input_name", "Key_name"]
    {
        let mut damaged = whole.clone();
        damaged[place(&whole, marker) + 1] = 0xff;
        check(vec![(marker, damaged, Kind::Onnx(OnnxErrorKind::InvalidUtf8), "damaged")]);
    }
    let bad = planish_onnx::AttributeValue::String(b"SAME_\xff"[..].into());
    let conv = node("Conv", &["x", "w"], &["y"]).with("auto_pad", bad);
    check(vec![(
        "a word",
        bytes(through_with(vec![zeros("w", &[1, 1, 1])], vec![conv])),
        Kind::Invalid,
        "attribute `auto_pad` is not valid UTF-8",
    )]);
}

#[test]
fn other_files() {
    let of = |kind| Kind::Onnx(kind);
    check(vec![
        ("nothing", vec![], of(OnnxErrorKind::NotOnnx), "an empty file"),
        ("text", b"# Model\n".to_vec(), of(OnnxErrorKind::NotOnnx), "a text file"),
        ("pickle", b"\x80\x02}q\0".to_vec(), of(OnnxErrorKind::NotOnnx), "torch.onnx.export"),
        ("no graph", vec![0x08, 0x0a], of(OnnxErrorKind::MissingField), "the model has no graph"),
        (
            "old format",
            write(&planish_onnx::Model { ir_version: 1, ..model(through(vec![])) }),
            { of(OnnxErrorKind::Unsupported) },
            "IR version 1 is older",
        ),
    ]);
}

#[test]
fn opsets_that_do_not_exist() {
    let relu = || through(vec![node("Relu", &["x"], &["y"])]);
    let two_versions = |domain: &'static str| {
        let mut model = model(relu());
        model.opset_imports.push(OpsetImport { domain: domain.into(), version: 13 });
        write(&model)
    };
    // A function that imports a version of its own.
    let mut with_function = model(through(vec![Node { domain: "own".into(), ..node("F", &["x"], &["y"]) }]));
    with_function.opset_imports.push(OpsetImport { domain: "own".into(), version: 1 });
    with_function.functions = vec![Function {
        name: "F".into(),
        domain: "own".into(),
        inputs: vec!["a".into()],
        outputs: vec!["b".into()],
        nodes: vec![node("Relu", &["a"], &["b"])],
        opset_imports: vec![OpsetImport { domain: "".into(), version: 9999 }],
        ..Function::default()
    }];
    check(vec![
        ("zero", write(&model_at(0, relu())), Kind::Opset, "opset 0 does not exist"),
        ("negative", write(&model_at(-1, relu())), Kind::Opset, "opset -1 does not exist; export with"),
        ("smallest", write(&model_at(i64::MIN, relu())), Kind::Opset, "does not exist"),
        ("future", write(&model_at(9999, relu())), Kind::Opset, "opset 9999 is newer than 27"),
        ("of a function", write(&with_function), Kind::Opset, "opset 9999 is newer than 27"),
        ("twice", two_versions(""), Kind::Invalid, "the domain `ai.onnx` is imported in two versions"),
        ("twice by another name", two_versions("ai.onnx"), Kind::Invalid, "imported in two versions"),
    ]);
}
