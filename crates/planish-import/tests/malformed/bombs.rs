//! Small files that ask for a lot: many nodes, expressions that grow, contents that are copied, functions that
//! expand. Each is imported or refused soon; `tests/memory.rs` watches the memory of the worst.

use std::time::{Duration, Instant};

use planish_onnx::AttributeValue::{Int, Ints};
use planish_onnx::{Function, Graph, Node, OnnxErrorKind, OpsetImport, write};

use crate::check;
use crate::common::*;

/// For one file, in an unoptimized build on a loaded machine.
const LIMIT: Duration = Duration::from_secs(20);

fn names(prefix: &str, n: usize) -> Vec<&'static str> {
    (0..n).map(|idx| &*format!("{prefix}{idx}").leak()).collect()
}

/// Imports what is not an error, and only large.
#[track_caller]
fn imports_soon(name: &str, graph: Graph<'static>) {
    let bytes = bytes(graph);
    let (size, start) = (bytes.len(), Instant::now());
    let result = import(bytes);
    assert!(start.elapsed() < LIMIT, "{name} ({size} bytes) took {:?}", start.elapsed());
    if let Err(error) = result {
        panic!("{name}: {error}");
    }
}

/// Nodes from `x` on, each made from the name before and its own.
fn chain(n: usize, link: impl Fn(&'static str, &'static str) -> Vec<Node<'static>>) -> Graph<'static> {
    let names = names("v", n);
    let mut last = "x";
    let mut nodes = Vec::new();
    for &name in &names {
        nodes.extend(link(last, name));
        last = name;
    }
    let mut graph = through(nodes);
    graph.outputs = vec![untyped(last)];
    graph
}

#[test]
fn many_small_nodes() {
    imports_soon("a chain", chain(20_000, |from, to| vec![node("Relu", &[from], &[to])]));
    let mut backwards = chain(20_000, |from, to| vec![node("Relu", &[from], &[to])]);
    backwards.nodes.reverse();
    imports_soon("a chain written backwards", backwards);
}

#[test]
fn names_that_collide() {
    // Each node makes its axes under the same name, as it has no output to name them after.
    let nodes: Vec<Node<'static>> = (0..20_000)
        .map(|_| Node { name: "same".into(), ..node("Squeeze", &["x"], &[""]).with("axes", Ints(vec![0])) })
        .chain([node("Relu", &["x"], &["y"])])
        .collect();
    let mut graph = through(nodes);
    graph.inputs = vec![value("x", F32, &[1, 3])];
    let start = Instant::now();
    import(write(&model_at(11, graph))).expect("unused nodes are no error");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    // Names that are taken by values to come.
    let nodes = vec![
        node("Squeeze", &["x"], &["y"]).with("axes", Ints(vec![0])),
        node("Relu", &["x"], &["y/axes"]),
        node("Relu", &["x"], &["y/axes.2"]),
    ];
    let mut graph = through(nodes);
    graph.inputs = vec![value("x", F32, &[1, 3])];
    import(write(&model_at(11, graph))).expect("made names give way to those of the file");
}

#[test]
fn expressions_that_grow() {
    let dims = |graph: &mut Graph<'static>| graph.inputs = vec![symbolic("x", F32, &["a", "b", "c"])];
    // s = s * s + s on symbolic sizes: degree and terms would double with every step.
    let mut squares = chain(500, |from, to| {
        let product: &'static str = format!("{to}.product").leak();
        vec![node("Mul", &[from, from], &[product]), node("Add", &[product, from], &[to])]
    });
    squares.nodes.insert(0, node("Shape", &["x"], &["v"]));
    squares.nodes[1].inputs = vec!["v".into(), "v".into()];
    squares.nodes[2].inputs[1] = "v".into();
    dims(&mut squares);
    imports_soon("squares", squares);
    // Concatenation doubles an axis with every step.
    let mut doubled = chain(500, |from, to| vec![node("Concat", &[from, from], &[to]).with("axis", Int(1))]);
    dims(&mut doubled);
    imports_soon("doubled", doubled);
    // The outer sum of two axes: sizes multiply.
    let mut multiplied = chain(300, |from, to| vec![node("Flatten", &[from], &[to]).with("axis", Int(0))]);
    dims(&mut multiplied);
    imports_soon("flattened", multiplied);
    // Quotients of quotients.
    let mut halved = chain(300, |from, to| {
        vec![
            node("MaxPool", &[from], &[to])
                .with("kernel_shape", Ints(vec![3]))
                .with("strides", Ints(vec![2])),
        ]
    });
    dims(&mut halved);
    imports_soon("halved", halved);
}

#[test]
fn contents_that_are_copied() {
    // A vector of sizes that gets longer and longer.
    let mut longer = chain(3000, |from, to| vec![node("Concat", &[from, "s"], &[to]).with("axis", Int(0))]);
    longer.nodes[0].inputs[0] = "s".into();
    longer.nodes.insert(0, node("Shape", &["x"], &["s"]));
    longer.inputs = vec![symbolic("x", F32, &["a", "b"])];
    imports_soon("longer", longer);
    // One long vector that a node reads twenty thousand times.
    let repeated = |op: &'static str| {
        let mut all = node(op, &[], &["y"]);
        all.inputs = vec!["long".into(); 20_000];
        if op == "Concat" {
            all = all.with("axis", Int(0));
        }
        let mut join = node("Concat", &[], &["long"]).with("axis", Int(0));
        join.inputs = vec!["s".into(); 500];
        let mut graph = through(vec![node("Shape", &["x"], &["s"]), join, all]);
        graph.inputs = vec![symbolic("x", F32, &["a", "b"])];
        graph
    };
    imports_soon("max of one", repeated("Max"));
    imports_soon("concat of one", repeated("Concat"));
    // One long vector with a new one after it in every node.
    let mut many = chain(3000, |from, to| vec![node("Add", &[from, "long"], &[to])]);
    let mut join = node("Concat", &[], &["long"]).with("axis", Int(0));
    join.inputs = vec!["s".into(); 500];
    many.nodes[0].inputs[0] = "long".into();
    many.nodes.splice(0..0, [node("Shape", &["x"], &["s"]), join]);
    many.inputs = vec![symbolic("x", F32, &["a", "b"])];
    imports_soon("sums", many);
}

#[test]
fn branches_by_the_thousand() {
    // Taken branches in a graph of many names: none may cost as much as there are names.
    let yes = planish_onnx::Tensor::raw("yes", BOOL, vec![], vec![1u8]);
    let mut taken = chain(3000, |from, to| {
        let inside = || branch("t", vec![node("Relu", &[from], &["t"])]);
        vec![
            node("If", &["yes"], &[to])
                .with("then_branch", body(inside()))
                .with("else_branch", body(inside())),
            node("Abs", &[to], &[format!("{to}.abs").leak()]),
        ]
    });
    taken.initializers = vec![yes];
    imports_soon("taken", taken);
    // One If that captures thousands of values in both branches.
    let captured = names("v", 3000);
    let reading = |order: &mut dyn Iterator<Item = &'static str>| {
        let mut sum = node("Sum", &[], &["t"]);
        sum.inputs = order.map(Into::into).collect();
        branch("t", vec![sum])
    };
    let mut nodes: Vec<Node<'static>> = captured.iter().map(|&name| node("Relu", &["x"], &[name])).collect();
    nodes.push(
        node("If", &["c"], &["y"])
            .with("then_branch", body(reading(&mut captured.iter().copied())))
            .with("else_branch", body(reading(&mut captured.iter().rev().copied()))),
    );
    let mut wide = through(nodes);
    wide.inputs.push(value("c", BOOL, &[]));
    imports_soon("captured", wide);
}

#[test]
fn types_within_types() {
    let nested = chain(1000, |from, to| vec![node("SequenceConstruct", &[from], &[to])]);
    let optional = chain(1000, |from, to| vec![node("Optional", &[from], &[to])]);
    check(vec![
        ("sequences", bytes(nested), Kind::Graph, "sequences and optionals nest deeper than 8 levels"),
        ("optionals", bytes(optional), Kind::Infer(planish_op::infer::InferErrorKind::BadType), ""),
    ]);
}

#[test]
fn functions_that_expand() {
    // Each function calls the next one twice.
    let doubling = |n: usize| {
        let names = names("f", n + 1);
        let functions = names.windows(2).map(|pair| {
            function(
                pair[0],
                vec![
                    Node { domain: "own".into(), ..node(pair[1], &["a"], &["b"]) },
                    Node { domain: "own".into(), ..node(pair[1], &["b"], &["c"]) },
                ],
            )
        });
        let last = function(names[n], vec![node("Relu", &["a"], &["c"])]);
        functions.chain([last]).collect::<Vec<_>>()
    };
    fn function(name: &'static str, nodes: Vec<Node<'static>>) -> Function<'static> {
        Function {
            name: name.into(),
            domain: "own".into(),
            inputs: vec!["a".into()],
            outputs: vec!["c".into()],
            nodes,
            opset_imports: vec![OpsetImport { domain: "".into(), version: 21 }],
            ..Function::default()
        }
    }
    let calling = |functions: Vec<Function<'static>>| {
        let mut model = model(through(vec![Node { domain: "own".into(), ..node("f0", &["x"], &["y"]) }]));
        model.opset_imports.push(OpsetImport { domain: "own".into(), version: 1 });
        model.functions = functions;
        write(&model)
    };
    let itself = function("f0", vec![Node { domain: "own".into(), ..node("f0", &["a"], &["c"]) }]);
    assert_eq!(import(calling(doubling(8))).expect("256 nodes").graph.nodes().len(), 256);
    check(vec![
        ("itself", calling(vec![itself]), Kind::Onnx(OnnxErrorKind::FunctionRecursion), "calls itself"),
        ("lost", calling(vec![]), Kind::Unsupported, "own.f0"),
    ]);
    let start = Instant::now();
    let error = import(calling(doubling(60))).expect_err("a thousand million million nodes");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    assert_eq!(kind(&error), Kind::Onnx(OnnxErrorKind::FunctionExpansion), "{error}");
}

#[test]
fn empty_messages() {
    // A graph of nothing but empty nodes, inputs and initializers: two bytes each.
    for (field, kind, fragment) in [
        (1u8, OnnxErrorKind::MissingField, "names no operator"),
        (5, OnnxErrorKind::MissingField, "no element type"),
        (11, OnnxErrorKind::MissingField, "no name"),
    ] {
        let graph = [field << 3 | 2, 0].repeat(500_000);
        let mut file = vec![0x08, 10, 0x3a];
        let mut length = graph.len();
        while length >= 0x80 {
            file.push(length as u8 | 0x80);
            length >>= 7;
        }
        file.push(length as u8);
        file.extend(graph);
        check(vec![("empty messages", file, Kind::Onnx(kind), fragment)]);
    }
}
