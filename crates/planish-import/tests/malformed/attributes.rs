//! Attributes that are missing, unknown, of the wrong kind or out of every range.

use planish_onnx::AttributeValue::{self, Float, Int, Ints};
use planish_onnx::{Node, write};
use planish_op::infer::InferErrorKind::{BadAttribute, BadShape};

use crate::check;
use crate::common::*;

fn only(node: Node<'static>) -> Vec<u8> {
    bytes(through(vec![node]))
}

/// A model of one node over an image.
fn image(op: &'static str, name: &'static str, value_of: AttributeValue<'static>) -> Vec<u8> {
    let inputs: &[&str] = if op.starts_with("Conv") { &["x", "w"] } else { &["x"] };
    let mut node = node(op, inputs, &["y"]).with(name, value_of);
    if op == "MaxPool" && name != "kernel_shape" {
        node = node.with("kernel_shape", Ints(vec![3, 3]));
    }
    let mut graph = through_with(vec![zeros("w", &[4, 2, 3, 3])], vec![node]);
    graph.inputs = vec![value("x", F32, &[1, if op == "ConvTranspose" { 4 } else { 2 }, 8, 8])];
    bytes(graph)
}

#[test]
fn windows() {
    let infer = Kind::Infer(BadAttribute);
    for op in ["Conv", "ConvTranspose", "MaxPool"] {
        check(vec![
            ("kernel", image(op, "kernel_shape", Ints(vec![3])), infer, "kernel_shape"),
            ("negative kernel", image(op, "kernel_shape", Ints(vec![-3, 3])), infer, "-3"),
            (
                "huge kernel",
                image(op, "kernel_shape", Ints(vec![i64::MAX, i64::MAX])),
                { if op == "MaxPool" { Kind::Infer(BadShape) } else { infer } },
                "9223372036854775807",
            ),
            ("zero stride", image(op, "strides", Ints(vec![0, 1])), infer, "strides"),
            ("negative stride", image(op, "strides", Ints(vec![-1, 1])), infer, "strides"),
            ("smallest stride", image(op, "strides", Ints(vec![i64::MIN, 1])), infer, "strides"),
            ("zero dilation", image(op, "dilations", Ints(vec![0, 1])), infer, "dilations"),
            ("three dilations", image(op, "dilations", Ints(vec![1, 1, 1])), infer, "dilations"),
            ("negative pads", image(op, "pads", Ints(vec![-1, 0, 0, 0])), infer, "pads"),
            ("two pads", image(op, "pads", Ints(vec![1, 1])), infer, "pads has 2 entries, expected 4"),
            ("huge pads", image(op, "pads", Ints(vec![i64::MAX; 4])), infer, "sizes overflow"),
        ]);
    }
    for group in [0, -1, i64::MIN] {
        for op in ["Conv", "ConvTranspose"] {
            check(vec![("group", image(op, "group", Int(group)), infer, "group must be at least 1")]);
        }
    }
    check(vec![
        ("many groups", image("Conv", "group", Int(i64::MAX)), Kind::Infer(BadShape), "groups"),
        (
            "a word",
            image("Conv", "auto_pad", word("SAME")),
            Kind::Attribute,
            "it is one of NOTSET, SAME_UPPER",
        ),
        ("an empty word", image("Conv", "auto_pad", word("")), Kind::Attribute, "auto_pad"),
    ]);
}

#[test]
fn axes_and_sizes() {
    let infer = Kind::Infer(BadAttribute);
    let split = |sizes: &[i64]| {
        let mut graph = through_with(vec![ints("s", sizes)], vec![node("Split", &["x", "s"], &["y", "z"])]);
        graph.inputs = vec![value("x", F32, &[6])];
        bytes(graph)
    };
    let parts = |n: i64| only(node("Split", &["x"], &["y", "z"]).with("num_outputs", Int(n)));
    check(vec![
        (
            "smallest axis",
            only(node("Concat", &["x", "x"], &["y"]).with("axis", Int(i64::MIN))),
            infer,
            "axis -92",
        ),
        ("largest axis", only(node("Softmax", &["x"], &["y"]).with("axis", Int(i64::MAX))), infer, "axis 92"),
        ("axis 2 of 2", only(node("Softmax", &["x"], &["y"]).with("axis", Int(2))), infer, "axis 2"),
        ("flatten", only(node("Flatten", &["x"], &["y"]).with("axis", Int(i64::MIN))), infer, "axis"),
        (
            "perm repeats",
            only(node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![1, 1]))),
            infer,
            "twice",
        ),
        (
            "perm beyond",
            only(node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![0, 2]))),
            infer,
            "axis 2",
        ),
        (
            "perm longer",
            only(node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![0, 1, 2]))),
            infer,
            "does not fit",
        ),
        (
            "perm of a million",
            only(node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![0; 1 << 20]))),
            infer,
            "…",
        ),
        ("block 0", image("DepthToSpace", "blocksize", Int(0)), infer, "blocksize must be positive"),
        ("block -1", image("SpaceToDepth", "blocksize", Int(-1)), infer, "blocksize must be positive"),
        (
            "block 3",
            image("SpaceToDepth", "blocksize", Int(3)),
            Kind::Infer(BadShape),
            "does not divide by 3",
        ),
        ("groups", image("LRN", "size", Int(0)), infer, "size must be at least 1"),
        (
            "parts that do not add up",
            split(&[4, 4]),
            Kind::Infer(BadShape),
            "is 6 in one place and 8 in another",
        ),
        ("negative parts", split(&[-2, 8]), Kind::Infer(BadShape), "-2"),
        ("overflowing parts", split(&[i64::MAX, i64::MAX]), Kind::Infer(BadShape), "add up to more"),
        ("three parts", split(&[2, 2, 2]), infer, "3 parts do not fit 2 outputs"),
        ("no parts", parts(0), infer, "0 parts"),
        ("negative number of parts", parts(-1), infer, "parts do not fit"),
        (
            "gather",
            only(node("Gather", &["x", "x"], &["y"]).with("axis", Int(9))),
            Kind::Infer(planish_op::infer::InferErrorKind::BadType),
            "f32",
        ),
        (
            "einsum",
            only(node("Einsum", &["x"], &["y"]).with("equation", word("ij->k"))),
            infer,
            "is in no input",
        ),
        (
            "heads",
            only(node("RotaryEmbedding", &["x", "x", "x"], &["y"]).with("num_heads", Int(0))),
            Kind::Infer(BadShape),
            "rank 3 or 4",
        ),
        ("p", only(node("LpNormalization", &["x"], &["y"]).with("p", Int(7))), infer, "p must be 1 or 2"),
        ("mode", only(node("Mod", &["x", "x"], &["y"])), infer, "fmod"),
        (
            "stash",
            only(node("LayerNormalization", &["x", "x"], &["y"]).with("stash_type", Int(99))),
            infer,
            "stash_type 99",
        ),
    ]);
    let legacy = node("Add", &["x", "x"], &["y"]).with("broadcast", Int(1)).with("axis", Int(i64::MIN));
    let legacy = write(&model_at(6, through(vec![legacy])));
    check(vec![("before opset 7", legacy, Kind::Invalid, "leaves no room for the second operand")]);
}

#[test]
fn kinds_and_names() {
    let constant = || node("Constant", &[], &["y"]);
    let graph = || body(branch("t", vec![node("Relu", &["x"], &["t"])]));
    check(vec![
        (
            "missing",
            only(node("Concat", &["x", "x"], &["y"])),
            Kind::Attribute,
            "Concat needs the attribute `axis`",
        ),
        ("missing kernel", only(node("MaxPool", &["x"], &["y"])), Kind::Attribute, "`kernel_shape`"),
        (
            "unknown",
            only(node("Relu", &["x"], &["y"]).with("slope", Float(0.1))),
            Kind::Invalid,
            "Relu has no attribute `slope` in opset 21",
        ),
        (
            "of a later opset",
            write(&model_at(11, through(vec![node("Cast", &["x"], &["y"]).with("nonsense", Int(1))]))),
            Kind::Invalid,
            "no attribute `nonsense` in opset 11",
        ),
        (
            "twice",
            only(node("Softmax", &["x"], &["y"]).with("axis", Int(0)).with("axis", Int(1))),
            Kind::Invalid,
            "attribute `axis` is given twice",
        ),
        (
            "a float",
            only(node("Softmax", &["x"], &["y"]).with("axis", Float(1.0))),
            Kind::Invalid,
            "attribute `axis` should be of kind Int, it is Float",
        ),
        (
            "a word",
            only(node("Softmax", &["x"], &["y"]).with("axis", word("last"))),
            Kind::Invalid,
            "should be of kind Int",
        ),
        (
            "a list",
            only(node("Softmax", &["x"], &["y"]).with("axis", Ints(vec![1]))),
            Kind::Invalid,
            "it is Ints",
        ),
        (
            "a graph",
            only(node("Softmax", &["x"], &["y"]).with("axis", graph())),
            Kind::Invalid,
            "it is Graph",
        ),
        ("a number", image("Conv", "auto_pad", Int(1)), Kind::Invalid, "should be of kind Str"),
        ("no list", image("Conv", "strides", Int(2)), Kind::Invalid, "should be of kind Ints"),
        (
            "no type",
            only(node("Cast", &["x"], &["y"]).with("to", Int(99))),
            Kind::Type,
            "the element type number 99",
        ),
        (
            "a huge type",
            only(node("Cast", &["x"], &["y"]).with("to", Int(i64::MAX))),
            Kind::Type,
            "the element type number 92",
        ),
        (
            "strings",
            only(node("Cast", &["x"], &["y"]).with("to", Int(8))),
            Kind::Type,
            "the element type string",
        ),
        ("complex", only(node("Cast", &["x"], &["y"]).with("to", Int(14))), Kind::Type, "complex64"),
        (
            "a type by name",
            only(node("Cast", &["x"], &["y"]).with("to", word("float"))),
            Kind::Invalid,
            "should be of kind DType",
        ),
        ("no value", only(constant()), Kind::Invalid, "Constant needs exactly one of its attributes"),
        (
            "two values",
            only(constant().with("value_int", Int(1)).with("value_float", Float(1.0))),
            Kind::Invalid,
            "exactly one",
        ),
        (
            "another value",
            only(constant().with("value_int", Float(1.0))),
            Kind::Invalid,
            "cannot take its value from `value_int`",
        ),
        ("a graph as value", only(constant().with("value", graph())), Kind::Invalid, "from `value`"),
        (
            "padding",
            only(node("Pad", &["x", "x"], &["y"]).with("mode", word("warp"))),
            Kind::Attribute,
            "one of constant, reflect, edge, wrap",
        ),
        (
            "a value of two elements",
            {
                let two = AttributeValue::Tensor(Box::new(zeros("", &[2])));
                bytes(through_with(
                    vec![ints("s", &[1])],
                    vec![node("ConstantOfShape", &["s"], &["y"]).with("value", two)],
                ))
            },
            Kind::Infer(BadAttribute),
            "one element",
        ),
        (
            "broken tensor",
            only(constant().with(
                "value",
                AttributeValue::Tensor(Box::new(planish_onnx::Tensor::raw("", F32, vec![3], vec![0u8; 4]))),
            )),
            Kind::Onnx(planish_onnx::OnnxErrorKind::DataLength),
            "4 bytes of data",
        ),
    ]);
}
