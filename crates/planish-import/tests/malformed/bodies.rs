//! Control flow: missing bodies, wrong arities and types, and bodies within bodies.

use planish_onnx::AttributeValue::{Int, Ints};
use planish_onnx::{Graph, Node, OnnxErrorKind};
use planish_op::infer::InferErrorKind::{BadShape, BadType};

use crate::check;
use crate::common::*;

fn relu_branch() -> Graph<'static> {
    branch("t", vec![node("Relu", &["x"], &["t"])])
}

/// A model of one node over `x`, a condition `c` and a count `n`.
fn control(node: Node<'static>) -> Vec<u8> {
    let mut graph = through(vec![node]);
    graph.inputs.push(value("c", BOOL, &[]));
    graph.inputs.push(value("cs", BOOL, &[3]));
    graph.inputs.push(value("n", I64, &[]));
    bytes(graph)
}

fn choose(inputs: &[&'static str], then: Graph<'static>, other: Graph<'static>) -> Vec<u8> {
    control(node("If", inputs, &["y"]).with("then_branch", body(then)).with("else_branch", body(other)))
}

#[test]
fn branches() {
    let none = || Graph { outputs: vec![], ..relu_branch() };
    let whole = branch("t", vec![node("Shape", &["x"], &["t"])]);
    let taking = Graph { inputs: vec![value("formal", F32, &[1])], ..relu_branch() };
    check(vec![
        (
            "no else",
            control(node("If", &["c"], &["y"]).with("then_branch", body(relu_branch()))),
            Kind::Invalid,
            "If needs the attribute `else_branch`",
        ),
        (
            "no graph",
            control(
                node("If", &["c"], &["y"])
                    .with("then_branch", Int(1))
                    .with("else_branch", body(relu_branch())),
            ),
            Kind::Invalid,
            "attribute `then_branch` must be a graph",
        ),
        ("with inputs", choose(&["c"], taking, relu_branch()), Kind::Invalid, "takes 1 inputs, 0 are given"),
        (
            "one and none",
            choose(&["c"], relu_branch(), none()),
            Kind::Body,
            "the branches have 1 and 0 outputs",
        ),
        ("too few", choose(&["c"], none(), none()), Kind::Graph, "If has 0 outputs, 1 are used"),
        ("other types", choose(&["c"], relu_branch(), whole), Kind::Body, "types of the bodies' outputs"),
        (
            "a float decides",
            choose(&["x"], relu_branch(), relu_branch()),
            Kind::Infer(BadType),
            "must be boolean",
        ),
        (
            "three decide",
            choose(&["cs"], relu_branch(), relu_branch()),
            Kind::Infer(BadShape),
            "not one element",
        ),
        (
            "too many",
            choose(&["c", "c"], relu_branch(), relu_branch()),
            Kind::Invalid,
            "If takes one input, there are 2",
        ),
    ]);
    // A condition that is known decides at import: the other branch is not looked at, the taken one is.
    let decided = |taken: Graph<'static>| {
        let choice = node("If", &["yes"], &["y"])
            .with("then_branch", body(taken))
            .with("else_branch", body(relu_branch()));
        let yes = planish_onnx::Tensor::raw("yes", BOOL, vec![], vec![1u8]);
        bytes(through_with(vec![yes], vec![choice]))
    };
    let taking = Graph { inputs: vec![value("formal", F32, &[1])], ..relu_branch() };
    check(vec![
        ("taken, too few", decided(none()), Kind::Invalid, "the branch has 0 outputs, the node 1"),
        ("taken, with inputs", decided(taking), Kind::Invalid, "must not take inputs"),
        (
            "taken, undefined",
            decided(branch("t", vec![node("Relu", &["lost"], &["t"])])),
            Kind::Undefined,
            "the value `lost`",
        ),
        (
            "taken, cyclic",
            decided(branch("t", vec![node("Relu", &["t"], &["t"])])),
            Kind::Cycle,
            "node Relu making `t`",
        ),
    ]);
}

#[test]
fn loops() {
    let step = |n_inputs: usize, n_outputs: usize| {
        let inputs = [
            value("i", I64, &[]),
            value("go", BOOL, &[]),
            value("s", F32, &[2, 3]),
            value("extra", F32, &[]),
        ];
        let outputs = [untyped("going"), untyped("next"), untyped("seen")];
        Graph {
            name: "step".into(),
            inputs: inputs[..n_inputs].to_vec(),
            outputs: outputs[..n_outputs].to_vec(),
            nodes: vec![
                node("Identity", &["go"], &["going"]),
                node("Relu", &["s"], &["next"]),
                node("Abs", &["s"], &["seen"]),
            ],
            ..Graph::default()
        }
    };
    let with = |inputs: &[&'static str], step: Graph<'static>| {
        control(node("Loop", inputs, &["y"]).with("body", body(step)))
    };
    let mut two_formals = step(2, 2);
    two_formals.nodes = vec![node("Identity", &["go"], &["going"]), node("Relu", &["x"], &["next"])];
    let mut other_type = step(3, 2);
    other_type.outputs[1] = untyped("go");
    check(vec![
        (
            "no body",
            control(node("Loop", &["n", "c", "x"], &["y"])),
            Kind::Invalid,
            "Loop needs the attribute `body`",
        ),
        (
            "too few formals",
            with(&["n", "c", "x"], two_formals),
            Kind::Invalid,
            "Loop has 3 inputs, its body 2",
        ),
        (
            "too many formals",
            with(&["n", "c", "x"], step(4, 2)),
            Kind::Invalid,
            "takes 4 inputs, 3 are given",
        ),
        (
            "too few outputs",
            with(&["n", "c", "x"], step(3, 1)),
            Kind::Body,
            "the body has 1 outputs, at least 2",
        ),
        ("no outputs", with(&["n", "c", "x"], step(3, 0)), Kind::Body, "the body has 0 outputs"),
        (
            "another type comes back",
            with(&["n", "c", "x"], other_type),
            Kind::Body,
            "types of the bodies' outputs",
        ),
        ("an omitted state", with(&["n", "c", ""], step(3, 2)), Kind::Invalid, "input 2 is missing"),
    ]);
}

#[test]
fn scans() {
    let step = || Graph {
        name: "step".into(),
        inputs: vec![value("s", F32, &[3]), value("e", F32, &[3])],
        outputs: vec![untyped("next"), untyped("out")],
        nodes: vec![node("Add", &["s", "e"], &["next"]), node("Relu", &["e"], &["out"])],
        ..Graph::default()
    };
    let with = |n_scanned: i64, axes: &[i64]| {
        let mut scan = node("Scan", &["init", "x"], &["last", "y"])
            .with("body", body(step()))
            .with("num_scan_inputs", Int(n_scanned));
        if !axes.is_empty() {
            scan = scan.with("scan_input_axes", Ints(axes.to_vec()));
        }
        bytes(through_with(vec![zeros("init", &[3])], vec![scan]))
    };
    assert!(import(with(1, &[])).is_ok());
    let map = node("SequenceMap", &["q"], &["y"]).with("body", body(step()));
    let mapped = bytes(through(vec![node("SequenceConstruct", &["x"], &["q"]), map]));
    check(vec![
        ("too many", with(99, &[]), Kind::Invalid, "num_scan_inputs is 99, there are 2 inputs"),
        ("negative", with(-1, &[]), Kind::Invalid, "there are 2 inputs"),
        ("smallest", with(i64::MIN, &[]), Kind::Invalid, "there are 2 inputs"),
        ("none", with(0, &[]), Kind::Body, "num_scan_inputs is 0"),
        ("axis", with(1, &[7]), Kind::Invalid, "axis 7"),
        ("smallest axis", with(1, &[i64::MIN]), Kind::Invalid, "axis -92"),
        ("a map of two", mapped, Kind::Invalid, "takes 2 inputs, 1 are given"),
    ]);
}

/// Ifs within Ifs, `depth` of them.
fn nested(depth: usize) -> Graph<'static> {
    let names: Vec<&'static str> = (0..=depth).map(|level| &*format!("t{level}").leak()).collect();
    let mut inner = branch(names[0], vec![node("Relu", &["x"], &[names[0]])]);
    for pair in names.windows(2) {
        let [below, above] = pair else { continue };
        let choice = node("If", &["c"], &[above])
            .with("then_branch", body(inner))
            .with("else_branch", body(branch(below, vec![node("Abs", &["x"], &[below])])));
        inner = branch(above, vec![choice]);
    }
    let mut graph = through(vec![]);
    graph.outputs = vec![untyped(names[depth])];
    graph.inputs.push(value("c", BOOL, &[]));
    graph.nodes = inner.nodes;
    graph
}

/// The deepest nesting that can be read is imported, verified, printed, parsed and dropped on the stack of a
/// thread of 2 MiB, which is the default, also without optimization.
#[test]
fn nesting_is_bounded() {
    const STACK: usize = 2 << 20;
    let on_a_thread = |graph: Graph<'static>| {
        let run = move || {
            import(bytes(graph)).map(|imported| {
                imported.graph.verify().expect("the graph verifies");
                let planish_ir::Printed { text, constants } = imported.graph.print();
                planish_ir::parse(&text, &constants).map(|again| again.same_as(&imported.graph))
            })
        };
        std::thread::Builder::new().stack_size(STACK).spawn(run).expect("a thread").join().expect("no panic")
    };
    let deepest = (1..60).take_while(|&depth| planish_onnx::read(&bytes(nested(depth))).is_ok()).last();
    let deepest = deepest.expect("one level can be read");
    assert!((20..60).contains(&deepest), "{deepest}");
    let parsed = on_a_thread(nested(deepest)).expect("the deepest model imports");
    assert_eq!(parsed.expect("what can be read can be printed and parsed"), Ok(()), "to the same graph");
    check(vec![
        ("deeper", bytes(nested(deepest + 1)), Kind::Onnx(OnnxErrorKind::TooDeep), "no known exporter"),
        ("far deeper", bytes(nested(300)), Kind::Onnx(OnnxErrorKind::TooDeep), "no known exporter"),
    ]);
}
