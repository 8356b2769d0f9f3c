//! Numbers, ranks and element types of inputs and outputs that do not fit the operator.

use planish_op::infer::InferErrorKind::{BadShape, BadType, ExtraInput, MissingInput};

use crate::check;
use crate::common::*;

const ONES: [&str; 30] = ["x"; 30];

#[test]
fn counts_of_inputs_and_outputs() {
    let only = |n: planish_onnx::Node<'static>| bytes(through_with(vec![zeros("v", &[3])], vec![n]));
    check(vec![
        (
            "none",
            only(node("Add", &[], &["y"])),
            Kind::Infer(MissingInput),
            "node Add making `y`: Add: input 0",
        ),
        ("one of two", only(node("Add", &["x"], &["y"])), Kind::Infer(MissingInput), "input 1 is missing"),
        ("an omitted one", only(node("Add", &["", "x"], &["y"])), Kind::Infer(MissingInput), "input 0"),
        (
            "thirty",
            only(node("Relu", &ONES, &["y"])),
            Kind::Infer(ExtraInput),
            "at most 1 inputs are taken, there are 30",
        ),
        ("three", only(node("Sub", &["x", "x", "x"], &["y"])), Kind::Infer(ExtraInput), "at most 2 inputs"),
        (
            "to a source",
            only(
                node("RandomNormal", &["x"], &["y"])
                    .with("shape", planish_onnx::AttributeValue::Ints(vec![1])),
            ),
            Kind::Infer(ExtraInput),
            "at most 0",
        ),
        (
            "none to a variadic",
            only(node("Concat", &[], &["y"]).with("axis", planish_onnx::AttributeValue::Int(0))),
            Kind::Infer(MissingInput),
            "input 0",
        ),
        (
            "batch norm",
            only(node("BatchNormalization", &["x", "v", "v"], &["y"])),
            Kind::Infer(MissingInput),
            "is missing",
        ),
        (
            "outputs",
            only(node("Relu", &["x"], &["y", "z", "w"])),
            Kind::Graph,
            "Relu has 1 outputs, 3 are used",
        ),
        ("if", only(node("If", &[], &["y"])), Kind::Invalid, "input 0 is missing"),
    ]);
}

#[test]
fn ranks_and_shapes() {
    let with =
        |dims: &[i64], n: planish_onnx::Node<'static>| bytes(through_with(vec![zeros("w", dims)], vec![n]));
    check(vec![
        ("broadcast", with(&[4], node("Add", &["x", "w"], &["y"])), Kind::Infer(BadShape), "[2,3]"),
        (
            "inner",
            with(&[4, 4], node("MatMul", &["x", "w"], &["y"])),
            Kind::Infer(BadShape),
            "inner dimensions",
        ),
        ("scalar product", with(&[], node("MatMul", &["x", "w"], &["y"])), Kind::Infer(BadShape), "a scalar"),
        ("gemm", with(&[1, 3, 3], node("Gemm", &["x", "w"], &["y"])), Kind::Infer(BadShape), "rank 2"),
        ("conv", with(&[1, 1, 3, 3], node("Conv", &["x", "w"], &["y"])), Kind::Infer(BadShape), "spatial"),
        (
            "vector norm",
            with(&[7], node("LayerNormalization", &["x", "w"], &["y"])),
            Kind::Infer(BadShape),
            "broadcast",
        ),
        ("square", with(&[2, 3], node("Det", &["w"], &["y"])), Kind::Infer(BadShape), "square"),
    ]);
    let shapes = |values: &[i64], op: &'static str| {
        bytes(through_with(vec![ints("s", values)], vec![node(op, &["x", "s"], &["y"])]))
    };
    check(vec![
        ("reshape", shapes(&[5], "Reshape"), Kind::Infer(BadShape), "6 elements do not make a tensor [5]"),
        ("two open", shapes(&[-1, -1], "Reshape"), Kind::Infer(BadShape), "-1 stands twice"),
        ("negative", shapes(&[-2, 3], "Reshape"), Kind::Infer(BadShape), "-2"),
        ("squeeze", shapes(&[0], "Squeeze"), Kind::Infer(BadShape), "is not 1"),
        ("expand", shapes(&[5, 5], "Expand"), Kind::Infer(BadShape), "cannot be expanded"),
        ("tile", shapes(&[1, 1, 1], "Tile"), Kind::Infer(BadShape), "3 repeats"),
        ("pads", shapes(&[1, 1, 1], "Pad"), Kind::Infer(BadShape), "3 pads"),
        ("gather", shapes(&[2], "Gather"), Kind::Infer(BadShape), "index 2 is outside"),
        ("topk", shapes(&[4], "TopK"), Kind::Infer(BadShape), "k is 4"),
    ]);
}

#[test]
fn element_types() {
    let with = |op: &'static str, inputs: &[&'static str]| {
        let mut graph = through(vec![node(op, inputs, &["y"])]);
        graph.inputs.push(value("n", I64, &[2, 3]));
        graph.inputs.push(value("b", BOOL, &[2, 3]));
        bytes(graph)
    };
    check(vec![
        ("mixed", with("Add", &["x", "n"]), Kind::Infer(BadType), "input 1 is i64"),
        (
            "add truths",
            with("Add", &["b", "b"]),
            Kind::Infer(BadType),
            "not defined for elements of type bool",
        ),
        ("and numbers", with("And", &["x", "x"]), Kind::Infer(BadType), "f32"),
        ("condition", with("Where", &["x", "x", "x"]), Kind::Infer(BadType), "f32"),
        ("index", with("Gather", &["x", "x"]), Kind::Infer(BadType), "f32"),
        ("shape", with("Reshape", &["x", "x"]), Kind::Infer(BadType), "must hold integers"),
        ("sine", with("Sin", &["n"]), Kind::Infer(BadType), "i64"),
        ("a tensor", with("SequenceAt", &["x", "n"]), Kind::Infer(BadType), "must be a sequence"),
        ("quantized", with("MatMulInteger", &["x", "x"]), Kind::Infer(BadType), "f32"),
        ("softmax", with("Softmax", &["n"]), Kind::Infer(BadType), "i64"),
    ]);
}
