//! The memory that hostile models make the importer take, measured as the peak of this process.
//!
//! One test in a binary of its own: the peak is that of everything that ran before.

#![cfg(target_os = "linux")]

mod common;

use common::*;
use planish_onnx::AttributeValue::{Int, Ints};
use planish_onnx::{Dimension, Graph, Node, SparseTensor, ValueInfo};

/// What any model may take, however small; the reader's and the importer's floors together.
const FLOOR: usize = 192 << 20;
/// What a model may take for each of its bytes besides.
const PER_BYTE: usize = 100;

/// The peak of this process so far.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells of processes");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().expect("a number") * 1024
}

fn leaked(text: String) -> &'static str {
    text.leak()
}

/// A graph from a shape `s` that inference knows as 64 sums of 100 symbols each.
fn long_sums() -> Graph<'static> {
    let mut graph = through(vec![]);
    let names: Vec<&'static str> = (0..100).map(|idx| leaked(format!("x{idx}"))).collect();
    graph.inputs = names.iter().map(|&name| symbolic(name, F32, &[name, "rest"])).collect();
    let mut all = node("Concat", &[], &["all"]).with("axis", Int(0));
    all.inputs = names.iter().map(|&name| name.into()).collect();
    let mut repeated = node("Concat", &[], &["s"]).with("axis", Int(0));
    repeated.inputs = vec!["length".into(); 64];
    graph.initializers = vec![ints("one", &[1])];
    graph.nodes = vec![all, node("Shape", &["all"], &["length"]).with("end", Int(1)), repeated];
    graph
}

/// The nodes after `first`, one after the other.
fn extend(
    graph: &mut Graph<'static>,
    n: usize,
    first: &'static str,
    link: impl Fn(&'static str, &'static str) -> Node<'static>,
) {
    let mut last = first;
    for idx in 0..n {
        let name = leaked(format!("v{idx}"));
        graph.nodes.push(link(last, name));
        last = name;
    }
    graph.outputs = vec![untyped(last)];
}

#[test]
fn hostile_models_take_little_memory() {
    let mut bombs: Vec<(&str, Graph<'static>)> = Vec::new();

    // Each node makes 64 new sums of a hundred terms.
    let mut sums = long_sums();
    extend(&mut sums, 5000, "s", |from, to| node("Add", &[from, "one"], &[to]));
    bombs.push(("contents", sums));

    // The same in shapes.
    let mut shapes = long_sums();
    shapes.initializers.push(ints("pads", &[1; 128]));
    shapes.nodes.push(node("ConstantOfShape", &["s"], &["wide"]));
    extend(&mut shapes, 5000, "wide", |from, to| node("Pad", &[from, "pads"], &[to]));
    bombs.push(("shapes", shapes));

    // One long content that a node names again and again.
    for op in ["Max", "Concat"] {
        let mut repeated = long_sums();
        let mut join = node("Concat", &[], &["long"]).with("axis", Int(0));
        join.inputs = vec!["s".into(); 16];
        let mut all = node(op, &[], &["y"]);
        all.inputs = vec!["long".into(); 50_000];
        if op == "Concat" {
            all = all.with("axis", Int(0));
        }
        repeated.nodes.extend([join, all]);
        repeated.outputs = vec![untyped("y")];
        bombs.push(("repeated inputs", repeated));
    }

    // Long contents captured by thousands of branches.
    let mut captured = long_sums();
    captured.inputs.push(value("c", BOOL, &[]));
    extend(&mut captured, 3000, "s", |_, to| {
        let inside = || branch("t", vec![node("Neg", &["s"], &["t"])]);
        node("If", &["c"], &[to]).with("then_branch", body(inside())).with("else_branch", body(inside()))
    });
    bombs.push(("captured", captured));

    // Wide shapes of plain numbers and of symbols.
    for symbols in [false, true] {
        let mut wide = through(vec![]);
        let dim = |axis: usize| match symbols {
            true => Dimension::Param(format!("symbol_{axis}").into()),
            false => Dimension::Value(1),
        };
        wide.inputs = vec![ValueInfo::tensor("x", F32, (0..64).map(dim).collect())];
        extend(&mut wide, 20_000, "x", |from, to| node("Relu", &[from], &[to]));
        bombs.push(("wide", wide));
    }

    // A permutation that tells of a rank of a million.
    let mut permuted = through(vec![node("Transpose", &["x"], &["y"]).with("perm", Ints(vec![0; 1 << 20]))]);
    permuted.inputs = vec![unranked("x", F32)];
    bombs.push(("permuted", permuted));

    // A sparse tensor of two gigabytes, and many of 50 MB.
    let sparse = |name: String, count: i64| SparseTensor {
        values: planish_onnx::Tensor { name: name.into(), ..zeros("", &[1]) },
        indices: ints("", &[0]),
        dims: vec![count],
    };
    for (n, count) in [(1, 1 << 29), (50, 12 << 20)] {
        let mut graph = through(vec![node("Relu", &["x"], &["y"])]);
        graph.sparse_initializers = (0..n).map(|idx| sparse(format!("w{idx}"), count)).collect();
        bombs.push(("sparse", graph));
    }

    for (name, graph) in bombs {
        let file = bytes(graph);
        let size = file.len();
        let _ = import(file);
        // The peak of all bombs so far, so that the worst is found whichever it is.
        let taken = peak();
        assert!(taken < FLOOR + PER_BYTE * size, "{name}: {size} bytes of file took {} MB", taken >> 20);
    }
}
