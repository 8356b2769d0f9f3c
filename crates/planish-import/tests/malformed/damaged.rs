//! A small network, cut at every byte and with every byte changed: whatever comes of it, it is not a panic.

use planish_onnx::AttributeValue::{Int, Ints};
use planish_onnx::{Graph, Metadata, write};

use crate::common::*;

/// Convolution, normalization, pooling, a residual, a choice, and the shape computation before the last layer.
fn network() -> Vec<u8> {
    let other = branch("b", vec![node("Abs", &["p"], &["b"])]);
    let choice = node("If", &["c"], &["q"])
        .with("then_branch", body(branch("a", vec![node("Relu", &["p"], &["a"])])))
        .with("else_branch", body(other));
    let nodes = vec![
        node("Conv", &["x", "w", "v"], &["h"])
            .with("pads", Ints(vec![1; 4]))
            .with("auto_pad", word("NOTSET")),
        node("BatchNormalization", &["h", "v", "v", "v", "v"], &["n"]),
        node("Add", &["n", "h"], &["r"]),
        node("MaxPool", &["r"], &["p"])
            .with("kernel_shape", Ints(vec![2, 2]))
            .with("strides", Ints(vec![2, 2])),
        choice,
        node("Shape", &["q"], &["s"]),
        node("Gather", &["s", "zero"], &["g"]),
        node("Unsqueeze", &["g", "first"], &["u"]),
        node("Concat", &["u", "rest"], &["t"]).with("axis", Int(0)),
        node("Reshape", &["q", "t"], &["f"]),
        node("Gemm", &["f", "m"], &["y"]).with("transB", Int(1)),
    ];
    let graph = Graph {
        name: "net".into(),
        inputs: vec![symbolic("x", F32, &["n", "c", "h", "w"]), value("c", BOOL, &[])],
        outputs: vec![untyped("y")],
        value_infos: vec![value("p", F32, &[1, 2, 2, 2])],
        initializers: vec![
            zeros("w", &[2, 1, 3, 3]),
            zeros("v", &[2]),
            zeros("m", &[3, 8]),
            int("zero", 0),
            ints("first", &[0]),
            ints("rest", &[-1]),
        ],
        nodes,
        ..Graph::default()
    };
    let metadata: Metadata<'static> = vec![("a".into(), "b".into())];
    let mut model = model(graph);
    model.metadata = metadata;
    write(&model)
}

fn try_it(bytes: Vec<u8>) -> bool {
    match import(bytes) {
        Ok(imported) => {
            // Whatever is accepted is a whole graph.
            imported.graph.verify().expect("an imported graph verifies");
            true
        }
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && !text.contains('\n'), "{text:?}");
            false
        }
    }
}

#[test]
fn the_network_is_fine() {
    assert!(try_it(network()));
}

#[test]
fn every_cut() {
    let whole = network();
    let accepted = (0..whole.len()).filter(|&end| try_it(whole[..end].to_vec())).count();
    // Only where the metadata, the last field, is left out or cut away whole.
    assert!(accepted <= 2, "{accepted} of {} cuts were accepted", whole.len());
}

#[test]
fn every_byte_changed() {
    let whole = network();
    for place in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] ^= change;
            try_it(damaged);
        }
        for number in [0x00, 0x7f, 0xff] {
            let mut damaged = whole.clone();
            damaged[place] = number;
            try_it(damaged);
        }
    }
}

#[test]
fn every_byte_left_out_or_doubled() {
    let whole = network();
    for place in 0..whole.len() {
        let mut shorter = whole.clone();
        shorter.remove(place);
        try_it(shorter);
        let mut longer = whole.clone();
        longer.insert(place, whole[place]);
        try_it(longer);
    }
}
