//! Graphs broken in one way each, and the error that says so.

use planish_op::infer::{Content, SymbolicInts};
use planish_op::{Custom, If, Loop, Op, Scan, SequenceMap, ValueType};
use planish_tensor::{DType, Dim, Shape, Tensor};

use crate::graph::{Declared, Graph, GraphErrorKind, NewNode, NewOutput};
use crate::id::{NodeId, ValueId};

fn f32s(dims: &[i64]) -> ValueType {
    ValueType::tensor(DType::F32, Shape::fixed(dims))
}

fn custom(name: &str, inputs: &[ValueId], outputs: &[(&str, ValueType)]) -> NewNode {
    let op = Custom { domain: "test".into(), name: "Any".into(), version: 1, attributes: Vec::new() };
    let exact = |(name, ty): &(&str, ValueType)| NewOutput::Value {
        name: (*name).into(),
        declared: Declared::Exact(ty.clone()),
    };
    NewNode {
        name: name.into(),
        op: Op::Custom(op),
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: outputs.iter().map(exact).collect(),
        bodies: Vec::new(),
        n_captured: 0,
    }
}

/// x, w → first → a; a, x → second → b; output b.
fn chain() -> Graph {
    let mut graph = Graph::new("chain");
    let x = graph.add_input("x", f32s(&[2])).unwrap();
    let w = graph.add_constant("w", Tensor::vector(vec![1f32, 2.0])).unwrap();
    graph.add_node(custom("first", &[x, w], &[("a", f32s(&[2]))])).unwrap();
    let a = graph.find("a").unwrap();
    graph.add_node(custom("second", &[a, x], &[("b", f32s(&[2]))])).unwrap();
    let b = graph.find("b").unwrap();
    graph.set_outputs(vec![b]);
    graph.verify().unwrap();
    graph
}

fn value(idx: usize) -> ValueId {
    ValueId::from_index(idx).unwrap()
}

#[track_caller]
fn refused(graph: &Graph, message: &str) {
    assert_eq!(graph.verify().unwrap_err().to_string(), message);
}

#[test]
fn ids_out_of_range() {
    let mut graph = chain();
    graph.outputs[0] = value(9);
    refused(&graph, "`chain`: an output is value 9, there are 4 values");
    let mut graph = chain();
    graph.inputs[0] = value(4);
    refused(&graph, "`chain`: an input is value 4, there are 4 values");
    let mut graph = chain();
    graph.nodes[0].inputs[1] = Some(value(4));
    refused(&graph, "`first`: an input is value 4, there are 4 values");
    let mut graph = chain();
    graph.nodes[1].outputs[0] = Some(value(8));
    refused(&graph, "`second`: an output is value 8, there are 4 values");
    let mut graph = chain();
    graph.values[3].producer = NodeId::from_index(2);
    refused(&graph, "`b`: the producer is node 2, there are 2 nodes");
}

#[test]
fn names_wrong() {
    let mut graph = chain();
    graph.values[1].name = "x".into();
    assert_eq!(graph.verify().unwrap_err().kind(), &GraphErrorKind::DuplicateName);
    let mut graph = chain();
    graph.by_name.insert("w".into(), value(0));
    refused(&graph, "`w`: the name leads to value 0, it is value 1");
    let mut graph = chain();
    graph.by_name.remove("a");
    refused(&graph, "`a`: the name leads to no value");
    let mut graph = chain();
    graph.by_name.insert("ghost".into(), value(0));
    refused(&graph, "`ghost`: no value has this name, yet it leads to one");
}

#[test]
fn inputs_wrong() {
    let mut graph = chain();
    graph.inputs.push(value(0));
    refused(&graph, "`x`: is an input twice");
    let mut graph = chain();
    graph.inputs.push(value(2));
    refused(&graph, "`a`: is an input and made by a node");
    let mut graph = chain();
    graph.inputs.push(value(1));
    refused(&graph, "`w`: is an input and a constant");
}

#[test]
fn producers_disagree() {
    let mut graph = chain();
    graph.nodes[1].outputs.push(Some(value(2)));
    refused(&graph, "`a`: is made by node `first` and node `second`");
    let mut graph = chain();
    graph.values[2].producer = NodeId::from_index(1);
    refused(&graph, "`a`: names node `second` as its maker, node `first` makes it");
    let mut graph = chain();
    graph.nodes[1].outputs[0] = None;
    refused(&graph, "`b`: names node `second` as its maker, no node makes it");
    let mut graph = chain();
    graph.nodes[0].outputs.push(Some(value(0)));
    refused(&graph, "`x`: names no node as its maker, node `first` makes it");
}

#[test]
fn contents_of_another_type() {
    let mut graph = chain();
    graph.values[1].ty = f32s(&[3]);
    refused(&graph, "`w`: the type is f32[3], the known elements are of another");
    let mut graph = chain();
    graph.values[1].ty = ValueType::tensor(DType::F32, Shape::from_iter([Dim::symbol("n")]));
    refused(&graph, "`w`: the type is f32[n], the known elements are of another");
    let ints = |dims: Vec<Dim>, is_scalar| Some(Content::Ints(SymbolicInts { dims, is_scalar }));
    let mut graph = chain();
    graph.values[2].content = ints(vec![Dim::ONE, Dim::ONE], false);
    refused(&graph, "`a`: the type is f32[2], the known elements are of another");
    let mut graph = chain();
    graph.values[2].ty = ValueType::tensor(DType::I64, Shape::fixed(&[2]));
    graph.values[2].content = ints(vec![Dim::ONE, Dim::symbol("n")], false);
    graph.verify().unwrap();
    graph.values[2].content = ints(vec![Dim::ONE], false);
    refused(&graph, "`a`: the type is i64[2], the known elements are of another");
    graph.values[2].content = ints(vec![Dim::ONE], true);
    refused(&graph, "`a`: the type is i64[2], the known elements are of another");
}

#[test]
fn order_that_cannot_run() {
    let mut graph = chain();
    graph.nodes.swap(0, 1);
    graph.values[2].producer = NodeId::from_index(1);
    graph.values[3].producer = NodeId::from_index(0);
    refused(&graph, "`second`: reads `a`, which nothing before it makes");
    let mut graph = chain();
    graph.nodes[0].inputs[0] = Some(value(2));
    refused(&graph, "`first`: reads `a`, which nothing before it makes");
    let mut graph = chain();
    graph.set_inputs(Vec::new());
    refused(&graph, "`first`: reads `x`, which nothing before it makes");
}

#[test]
fn outputs_and_orphans() {
    let mut graph = chain();
    let orphan = graph.add_input("orphan", f32s(&[1])).unwrap();
    graph.set_inputs(vec![value(0)]);
    graph.verify().unwrap();
    graph.set_outputs(vec![orphan]);
    refused(&graph, "`orphan`: is an output that nothing makes");
}

#[test]
fn bodies_on_an_operator_without() {
    let mut graph = chain();
    graph.nodes[1].n_captured = 1;
    refused(&graph, "`second`: Any takes no bodies and captures nothing");
    let mut graph = chain();
    graph.nodes[1].bodies.push(Graph::new("extra"));
    refused(&graph, "`second`: Any takes no bodies and captures nothing");
}

fn body(name: &str, inputs: &[(&str, ValueType)], outputs: &[&str]) -> Graph {
    let mut body = Graph::new(name);
    for (name, ty) in inputs {
        body.add_input(name, ty.clone()).unwrap();
    }
    let ids = outputs.iter().map(|name| body.find(name).unwrap()).collect();
    body.set_outputs(ids);
    body
}

fn control(
    op: impl Into<Op>,
    inputs: Vec<Option<ValueId>>,
    bodies: Vec<Graph>,
    n_captured: usize,
) -> NewNode {
    NewNode { bodies, n_captured, ..NewNode::new("control", op, inputs, &["y"]) }
}

fn conditional() -> Graph {
    let mut graph = Graph::new("conditional");
    let c = graph.add_input("c", ValueType::tensor(DType::Bool, Shape::scalar())).unwrap();
    let x = graph.add_input("x", f32s(&[2])).unwrap();
    let bodies = vec![body("then", &[("x", f32s(&[2]))], &["x"]), body("else", &[("z", f32s(&[2]))], &["z"])];
    graph.add_node(control(If {}, vec![Some(c), Some(x)], bodies, 1)).unwrap();
    graph.set_outputs(vec![graph.find("y").unwrap()]);
    graph.verify().unwrap();
    graph
}

#[test]
fn captured_values_wrong() {
    let mut graph = conditional();
    graph.nodes[0].bodies[1].values[0].ty = f32s(&[3]);
    refused(&graph, "`control`: `z` captures f32[3], outside it is f32[2]");
    let mut graph = conditional();
    graph.nodes[0].inputs[1] = None;
    refused(&graph, "`control`: what `x` captures is absent");
    let mut graph = conditional();
    graph.nodes[0].n_captured = 3;
    refused(&graph, "`control`: more captured values than inputs");
    let mut graph = conditional();
    graph.nodes[0].n_captured = 2;
    refused(&graph, "`control`: the body `then` takes 1 inputs, 2 are given");
    let mut graph = conditional();
    graph.nodes[0].bodies.pop();
    refused(&graph, "`control`: If needs 2 bodies, has 1");
}

#[test]
fn a_broken_body_is_named_by_its_path() {
    let mut graph = conditional();
    graph.nodes[0].bodies[0].outputs[0] = value(5);
    refused(&graph, "`control/then/then`: an output is value 5, there are 1 values");
}

#[test]
fn types_that_inference_contradicts() {
    let mut graph = conditional();
    graph.values[2].ty = f32s(&[7]);
    refused(&graph, "`control`: output `y` is f32[7], inference says f32[2]");
    let mut graph = conditional();
    graph.values[2].ty = ValueType::tensor(DType::F32, Shape::from_iter([Dim::symbol("n")]));
    graph.verify().unwrap();
    let mut graph = conditional();
    let extra = graph.add_input("extra", f32s(&[2])).unwrap();
    graph.set_inputs(vec![value(0), value(1)]);
    graph.values[extra.index()].producer = NodeId::from_index(0);
    graph.nodes[0].outputs.push(Some(extra));
    refused(&graph, "`control`: If has 1 outputs, 2 are used");
}

fn looped(carried: ValueType) -> Graph {
    let mut graph = Graph::new("looped");
    let x = graph.add_input("x", f32s(&[2])).unwrap();
    let formals = [
        ("i", ValueType::tensor(DType::I64, Shape::scalar())),
        ("go", ValueType::tensor(DType::Bool, Shape::scalar())),
        ("v", carried),
    ];
    let body = body("body", &formals, &["go", "v"]);
    graph.add_node(control(Loop {}, vec![None, None, Some(x)], vec![body], 0)).unwrap();
    graph
}

#[test]
fn formal_inputs_of_loops() {
    looped(f32s(&[2])).verify().unwrap();
    // The shape may change from step to step, and an optional takes a plain value.
    looped(ValueType::unranked(DType::F32)).verify().unwrap();
    looped(ValueType::Optional(Box::new(f32s(&[2])))).verify().unwrap();
    let mut graph = looped(f32s(&[2]));
    graph.nodes[0].bodies[0].values[2].ty = ValueType::unranked(DType::F16);
    refused(&graph, "`control`: input `v` of the body is f16[*], f32[2] is given");
    let mut graph = looped(f32s(&[2]));
    graph.nodes[0].bodies[0].values[0].ty = f32s(&[]);
    refused(&graph, "`control`: input `i` of the body is f32[], i64 is given");
    let mut graph = looped(f32s(&[2]));
    graph.nodes[0].bodies[0].values[1].ty = f32s(&[]);
    refused(&graph, "`control`: input `go` of the body is f32[], bool is given");
    let mut graph = looped(f32s(&[2]));
    graph.nodes[0].inputs[2] = None;
    refused(&graph, "`control`: input `v` of the body is f32[2], nothing is given");
}

#[test]
fn formal_inputs_of_scans_and_maps() {
    let mut graph = Graph::new("scan");
    let x = graph.add_input("x", f32s(&[5, 2])).unwrap();
    let scan = Scan {
        num_scan_inputs: 1,
        scan_input_axes: Vec::new(),
        scan_output_axes: Vec::new(),
        scan_input_directions: Vec::new(),
        scan_output_directions: Vec::new(),
    };
    graph.add_node(control(scan, vec![Some(x)], vec![body("b", &[("v", f32s(&[2]))], &["v"])], 0)).unwrap();
    graph.verify().unwrap();
    graph.nodes[0].bodies[0].values[0].ty = ValueType::unranked(DType::I8);
    refused(&graph, "`control`: input `v` of the body is i8[*], f32[5,2] is given");

    let mut graph = Graph::new("map");
    let x = graph.add_input("x", ValueType::Sequence(Box::new(f32s(&[2])))).unwrap();
    let bodies = vec![body("b", &[("v", f32s(&[2]))], &["v"])];
    graph.add_node(control(SequenceMap {}, vec![Some(x)], bodies, 0)).unwrap();
    graph.verify().unwrap();
    graph.nodes[0].bodies[0].values[0].ty = ValueType::Sequence(Box::new(f32s(&[2])));
    refused(&graph, "`control`: input `v` of the body is seq(f32[2]), f32[2] is given");
}

#[test]
fn a_refused_name_leaves_the_graph_whole() {
    let mut graph = chain();
    assert!(graph.add_input("w", f32s(&[1])).is_err());
    graph.verify().unwrap();
}
