//! Negative, huge and overflowing sizes in initializers, inputs and constants.

use std::time::Instant;

use planish_onnx::{OnnxErrorKind, SparseTensor, Tensor};
use planish_op::infer::InferErrorKind::{BadAttribute, BadShape};

use crate::common::*;
use crate::{TIME_LIMIT, check};

const MAX: i64 = i64::MAX;

#[test]
fn dimensions_of_initializers() {
    let of = |dims: &[i64], n_bytes: usize| {
        let tensor = Tensor::raw("w", F32, dims.to_vec(), vec![0u8; n_bytes]);
        bytes(through_with(vec![tensor], vec![node("Relu", &["x"], &["y"])]))
    };
    let onnx = Kind::Onnx;
    check(vec![
        ("negative", of(&[-1], 4), onnx(OnnxErrorKind::BadDims), "initializer `w`"),
        (
            "smallest",
            of(&[i64::MIN, 2], 4),
            onnx(OnnxErrorKind::BadDims),
            "dimension 0 is -9223372036854775808",
        ),
        ("largest", of(&[MAX], 4), onnx(OnnxErrorKind::BadDims), "more than this machine can address"),
        ("overflow", of(&[1 << 32, 1 << 32], 4), onnx(OnnxErrorKind::BadDims), "multiply to more"),
        ("bytes overflow", of(&[1 << 62], 4), onnx(OnnxErrorKind::BadDims), "more than this machine"),
        ("too few bytes", of(&[2, 2], 12), onnx(OnnxErrorKind::DataLength), "12 bytes of data"),
        ("too many bytes", of(&[2, 2], 20), onnx(OnnxErrorKind::DataLength), "20 bytes of data"),
        ("no bytes", of(&[1 << 40], 0), onnx(OnnxErrorKind::DataLength), "0 bytes of data"),
        ("65 axes", of(&[1; 65], 4), Kind::Graph, "`w`: a tensor of more than 64 dimensions (65)"),
    ]);
}

#[test]
fn sparse_initializers() {
    let of = |dims: &[i64], index: i64| SparseTensor {
        values: zeros("w", &[1]),
        indices: ints("", &[index]),
        dims: dims.to_vec(),
    };
    let with = |list: Vec<SparseTensor<'static>>| {
        let mut graph = through(vec![node("Relu", &["x"], &["y"])]);
        graph.sparse_initializers = list;
        bytes(graph)
    };
    let many = (0..40).map(|idx| {
        let mut sparse = of(&[1 << 20], 0);
        sparse.values.name = format!("w{idx}").into();
        sparse
    });
    let onnx = Kind::Onnx;
    check(vec![
        ("outside", with(vec![of(&[2, 2], 4)]), onnx(OnnxErrorKind::BadSparse), "index 4"),
        ("negative", with(vec![of(&[2, 2], -1)]), onnx(OnnxErrorKind::BadSparse), "index -1"),
        ("overflow", with(vec![of(&[MAX, MAX], 0)]), onnx(OnnxErrorKind::BadDims), "sparse initializer `w`"),
        (
            "a gigabyte",
            with(vec![of(&[1 << 28], 0)]),
            Kind::TooLarge,
            "not in the file would take more than 64 MiB",
        ),
        ("many", with(many.collect()), Kind::TooLarge, "not in the file"),
    ]);
}

#[test]
fn ranks_of_inputs() {
    let of = |rank: usize| {
        let mut graph = through(vec![node("Relu", &["x"], &["y"])]);
        graph.inputs = vec![value("x", F32, &vec![1; rank])];
        graph
    };
    assert!(import(bytes(of(64))).is_ok());
    check(vec![
        ("65", bytes(of(65)), Kind::Graph, "more than 64 dimensions (65) is not supported"),
        ("a million", bytes(of(1_000_000)), Kind::Graph, "more than 64 dimensions (1000000)"),
    ]);
    // A rank that operators make.
    let mut unsqueezed = through_with(
        vec![ints("axes", &(0..63).collect::<Vec<i64>>())],
        vec![node("Unsqueeze", &["x", "axes"], &["y"])],
    );
    let mut permuted = through(vec![
        node("Transpose", &["x"], &["y"])
            .with("perm", planish_onnx::AttributeValue::Ints(vec![0; 1_000_000])),
    ]);
    permuted.inputs = vec![unranked("x", F32)];
    let mut of_shape = through(vec![node("ConstantOfShape", &["x"], &["y"])]);
    of_shape.inputs = vec![value("x", I64, &[1000])];
    check(vec![
        ("unsqueeze", bytes(unsqueezed.clone()), Kind::Graph, "more than 64 dimensions (65)"),
        ("transpose", bytes(permuted), Kind::Graph, "more than 64 dimensions"),
        ("constant", bytes(of_shape.clone()), Kind::Graph, "more than 64 dimensions (1000)"),
    ]);
    of_shape.inputs = vec![value("x", I64, &[MAX])];
    unsqueezed.initializers.clear();
    unsqueezed.inputs.push(value("axes", I64, &[1 << 40]));
    check(vec![
        ("constant", bytes(of_shape), Kind::Infer(BadShape), "has 9223372036854775807 elements"),
        ("unsqueeze", bytes(unsqueezed), Kind::Infer(BadShape), "has 1099511627776 elements"),
    ]);
}

/// Sizes in constants that no operator can have.
#[test]
fn impossible_sizes() {
    let by = |op: &'static str, values: &[i64]| {
        bytes(through_with(vec![ints("s", values)], vec![node(op, &["x", "s"], &["y"])]))
    };
    let range = |limit: i64, delta: i64| {
        let constants = vec![int("a", 0), int("b", limit), int("c", delta)];
        bytes(through_with(constants, vec![node("Range", &["a", "b", "c"], &["y"])]))
    };
    let resize = |sizes: &[i64]| {
        bytes(through_with(vec![ints("s", sizes)], vec![node("Resize", &["x", "", "", "s"], &["y"])]))
    };
    let filled = |sizes: &[i64]| {
        bytes(through_with(vec![ints("s", sizes)], vec![node("ConstantOfShape", &["s"], &["y"])]))
    };
    check(vec![
        ("tile", by("Tile", &[-1, 1]), Kind::Infer(BadShape), "cannot be repeated -1 times"),
        ("expand", by("Expand", &[i64::MIN, 3]), Kind::Infer(BadShape), "-9223372036854775808"),
        ("crop", by("Pad", &[i64::MIN, 0, 0, 0]), Kind::Infer(BadShape), "a dimension would be"),
        ("filled", filled(&[2, -3]), Kind::Infer(BadShape), "a dimension would be -3"),
        ("range", range(10, 0), Kind::Infer(BadShape), "delta is 0"),
        ("resize", resize(&[-2, 3]), Kind::Infer(BadShape), "a size cannot be -2"),
        ("resize by too few", resize(&[2]), Kind::Infer(BadShape), "1"),
        ("split", by("Split", &[MAX, MAX]), Kind::Infer(BadAttribute), "2 parts do not fit 1 outputs"),
    ]);
}

/// Sizes that no machine can hold are only numbers to inference: it neither allocates nor overflows.
#[test]
fn absurd_sizes_are_only_numbers() {
    let by = |op: &'static str, values: &[i64]| {
        through_with(vec![ints("s", values)], vec![node(op, &["x", "s"], &["y"])])
    };
    let mut wide = through(vec![
        node("Concat", &["x", "x"], &["both"]).with("axis", planish_onnx::AttributeValue::Int(0)),
        node("Flatten", &["both"], &["flat"]),
        node("Size", &["flat"], &["y"]),
    ]);
    wide.inputs = vec![value("x", F32, &[MAX, MAX, MAX])];
    let mut upscaled = through_with(
        vec![Tensor::raw("s", F32, vec![2], [f32::MAX.to_le_bytes(), 1e30f32.to_le_bytes()].concat())],
        vec![node("Resize", &["x", "", "s"], &["y"])],
    );
    upscaled.name = "upscaled".into();
    let cases = vec![
        ("tile", by("Tile", &[MAX, MAX])),
        ("expand", by("Expand", &[MAX, 2, 3])),
        ("pad", by("Pad", &[MAX, MAX, MAX, MAX])),
        ("filled", through_with(vec![ints("s", &[MAX, MAX])], vec![node("ConstantOfShape", &["s"], &["y"])])),
        (
            "filled and folded",
            through_with(
                vec![ints("s", &[1 << 40])],
                vec![node("ConstantOfShape", &["s"], &["z"]), node("NonZero", &["z"], &["y"])],
            ),
        ),
        (
            "range",
            through_with(
                vec![int("a", i64::MIN), int("b", MAX), int("c", 1)],
                vec![node("Range", &["a", "b", "c"], &["y"])],
            ),
        ),
        (
            "resize",
            through_with(vec![ints("s", &[MAX, MAX])], vec![node("Resize", &["x", "", "", "s"], &["y"])]),
        ),
        ("upscaled", upscaled),
        ("wide", wide),
        (
            "one hot",
            through_with(
                vec![int("d", MAX), zeros("v", &[2])],
                vec![
                    node("Constant", &[], &["i"])
                        .with("value_ints", planish_onnx::AttributeValue::Ints(vec![1, 2])),
                    node("OneHot", &["i", "d", "v"], &["y"]),
                ],
            ),
        ),
        (
            "eye",
            through(vec![
                node("EyeLike", &["x"], &["y"]).with("k", planish_onnx::AttributeValue::Int(i64::MIN)),
            ]),
        ),
        ("window", through_with(vec![int("n", MAX)], vec![node("HannWindow", &["n"], &["y"])])),
        (
            "random",
            through(vec![
                node("RandomNormal", &[], &["y"])
                    .with("shape", planish_onnx::AttributeValue::Ints(vec![MAX, MAX])),
            ]),
        ),
        (
            "samples",
            through(vec![
                node("Multinomial", &["x"], &["y"])
                    .with("sample_size", planish_onnx::AttributeValue::Int(MAX)),
            ]),
        ),
    ];
    for (name, graph) in cases {
        let start = Instant::now();
        let result = import(bytes(graph));
        assert!(start.elapsed() < TIME_LIMIT, "{name} took {:?}", start.elapsed());
        match result {
            Ok(imported) => imported.graph.verify().unwrap_or_else(|error| panic!("{name}: {error}")),
            Err(error) => assert!(matches!(kind(&error), Kind::Infer(_)), "{name}: {error}"),
        }
    }
}
