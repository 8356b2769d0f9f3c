//! Networks by hand: names, shapes and refusals, and that plans and ONNX files of them compute the same.

use planish_op::infer::{Content, SymbolicInts};
use planish_op::{Attribute, Op, ResizeMode, Value};
use planish_tensor::{Bytes, DType, Tensor};

use super::*;
use crate::{Builder, Device, Engine, ErrorKind, View};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::new(shape, vec![1.0f32; shape.iter().product()]).unwrap()
}

/// Small numbers of both signs that differ from place to place.
fn waves(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::new(shape, (0..n).map(|i| ((i * 7 % 13) as f32 - 6.0) / 8.0).collect()).unwrap()
}

fn message(result: Result<Wire, Error>) -> String {
    let error = result.expect_err("it must be refused");
    assert_eq!(*error.kind(), ErrorKind::BadModel);
    error.to_string()
}

#[test]
fn layers_are_named_after_their_operators_or_as_asked() {
    let mut net = NetworkBuilder::new("names");
    let x = net.input("x", DType::F32, [2, 4]).unwrap();
    let first = net.relu(x).unwrap();
    let named = net.named("gate").sigmoid(first).unwrap();
    let second = net.relu(named).unwrap();
    let names: Vec<&str> = [first, named, second].map(|wire| net.name_of(wire).unwrap()).to_vec();
    assert_eq!(names, ["relu_1", "gate", "relu_2"]);
    let scaled = net.named("scale").mul(second, 3.0).unwrap();
    assert!(net.graph.find("scale.b").is_some(), "the number is a constant of the layer");
    let parts = net.named("parts").split(scaled, &[1, 3], 1).unwrap();
    assert_eq!(net.name_of(parts[1]).unwrap(), "parts.1");
}

#[test]
fn names_are_taken_once() {
    let mut net = NetworkBuilder::new("names");
    let x = net.input("x", DType::F32, "n").unwrap();
    let taken = "a value of this name is there already; give it another";
    assert_eq!(message(net.input("x", DType::F32, "n")), format!("input `x`: {taken}"));
    assert_eq!(message(net.constant("x", ones(&[1]))), format!("constant `x`: {taken}"));
    assert_eq!(message(net.named("x").relu(x)), format!("layer `x`: {taken}"));
    assert_eq!(message(net.input("", DType::F32, "n")), "input: the name is empty; give it one");
    // A refused layer keeps nobody from trying again under its name.
    assert!(net.named("sum").add(x, waves(&[2, 3])).is_ok());
    assert!(net.named("next").matmul(waves(&[2, 3]), waves(&[2, 3])).is_err());
    assert!(net.named("next").matmul(waves(&[2, 3]), waves(&[3, 2])).is_ok());
}

#[test]
fn shapes_of_inputs_are_numbers_symbols_or_text() {
    let mut net = NetworkBuilder::new("shapes");
    let ty = |name: &str, shape: Result<Wire, Error>, net: &NetworkBuilder| {
        net.type_of(shape.unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap().to_string()
    };
    let a = net.input("a", DType::F32, "batch, 2*seq + 1, 3");
    assert_eq!(ty("a", a, &net), "f32[batch,2*seq+1,3]");
    let b = net.input("b", DType::I64, [1, 2]);
    assert_eq!(ty("b", b, &net), "i64[1,2]");
    let c = net.input("c", DType::Bool, "");
    assert_eq!(ty("c", c, &net), "bool[]");
    let bad = message(net.input("d", DType::F32, "batch,,3"));
    assert!(bad.starts_with("input `d`: `batch,,3` is not a shape: "), "{bad}");
    assert!(bad.ends_with("sizes are numbers and symbols, `batch,3,224,224` for one"), "{bad}");
}

#[test]
fn refusals_name_the_layer_and_its_inputs_and_what_to_try() {
    let mut net = NetworkBuilder::new("refusals");
    let image = net.input("image", DType::F32, "batch,3,32,32").unwrap();
    let conv = message(net.named("stem").conv(image, ones(&[8, 4, 3, 3]), None, Window::new()));
    assert!(conv.starts_with("layer `stem`: Conv: "), "{conv}");
    assert!(conv.contains("(inputs: f32[batch,3,32,32], f32[8,4,3,3]); weights are [filters,"), "{conv}");
    let sum = message(net.add(image, ones(&[3, 5])));
    assert!(sum.starts_with("layer `add_1`: Add: "), "{sum}");
    assert!(sum.contains("`reshape` or `unsqueeze` one operand"), "{sum}");
    let mixed = net.input("ids", DType::I64, "batch").unwrap();
    let types = message(net.add(image, mixed));
    assert!(types.contains("bring its inputs to one type with `cast`"), "{types}");
    let half = message(net.add(mixed, 0.5));
    assert!(half.contains("0.5 is not an i64; cast its other operand"), "{half}");
    let axis = message(net.softmax(image, 7));
    assert!(axis.contains("check the layer's options"), "{axis}");
    let unknown = net.op_by_name("Sofmax", &[], &[Some(image)], 1).unwrap_err().to_string();
    assert!(unknown.contains("Sofmax") && unknown.contains("those of ONNX"), "{unknown}");
    let pool = message(net.max_pool(image, Window::of(&[40, 40])));
    assert!(pool.contains("MaxPool"), "{pool}");
}

#[test]
fn wires_of_another_network_are_refused() {
    let mut one = NetworkBuilder::new("one");
    let mut two = NetworkBuilder::new("two");
    let x = one.input("x", DType::F32, "n").unwrap();
    two.input("x", DType::F32, "n").unwrap();
    let refused = message(two.relu(x));
    assert!(refused.contains("is given a value of another network"), "{refused}");
    assert!(two.output("y", x).is_err());
    assert!(two.type_of(x).is_err());
}

#[test]
fn a_network_needs_an_output() {
    let mut net = NetworkBuilder::new("none");
    net.input("x", DType::F32, "n").unwrap();
    let error = Builder::from_network(net).unwrap_err().to_string();
    assert_eq!(error, "network `none` has no outputs; mark one with `output(name, wire)`");
}

#[test]
fn outputs_have_the_names_that_they_are_given() {
    let mut net = NetworkBuilder::new("outputs");
    let x = net.input("x", DType::F32, [2]).unwrap();
    let y = net.named("y").relu(x).unwrap();
    net.output("y", y).unwrap();
    net.output("again", y).unwrap();
    net.output("x_too", x).unwrap();
    assert!(net.output("y", y).is_err(), "one name, one output");
    let graph = net.finish().unwrap();
    let names: Vec<&str> = graph.outputs().iter().map(|&id| &*graph.value(id).name).collect();
    assert_eq!(names, ["y", "again", "x_too"]);
    let plan = Builder::from_graph(graph).tune_level(0).build().unwrap();
    let mut context = Engine::new(plan, Device::Auto).unwrap().context().unwrap();
    let outputs = context.run(&[("x", View::new(&[2], &[-1.0f32, 2.0]).unwrap())]).unwrap();
    assert_eq!(outputs.get("again").unwrap().as_slice::<f32>().unwrap(), [0.0, 2.0]);
    assert_eq!(outputs.get("x_too").unwrap().as_slice::<f32>().unwrap(), [-1.0, 2.0]);
}

#[test]
fn every_operator_can_be_reached_by_its_name() {
    let mut net = NetworkBuilder::new("all");
    let x = net.input("x", DType::F32, "n,4,8,8").unwrap();
    let mut n_made = 0;
    for spec in Op::SPECS {
        // Most refuse this input; none may be unknown.
        match net.op_by_name(spec.name, &[], &[Some(x)], 1) {
            Ok(_) => n_made += 1,
            Err(error) => assert!(!error.to_string().contains("no operator"), "{error}"),
        }
    }
    assert!(n_made > 60, "only {n_made} took a tensor as their one input");
}

/// A network with most kinds of layers that models have.
fn varied() -> NetworkBuilder {
    let mut net = NetworkBuilder::new("varied");
    let x = net.input("x", DType::F32, "batch,3,8,8").unwrap();
    let weight = waves(&[8, 3, 3, 3]);
    let y = net.conv(x, weight, Some(waves(&[8]).into()), Window::new().pad(1)).unwrap();
    let y = net.batch_norm(y, ones(&[8]), waves(&[8]), waves(&[8]), ones(&[8]), 1e-5).unwrap();
    let y = net.relu(y).unwrap();
    let depth = net.conv(y, waves(&[8, 1, 3, 3]), None, Window::new().same().groups(8)).unwrap();
    let y = net.add(y, depth).unwrap();
    let y = net.group_norm(y, 2, ones(&[8]), waves(&[8]), 1e-5).unwrap();
    let y = net.max_pool(y, Window::of(&[2, 2]).stride(2)).unwrap();
    let up = net.conv_transpose(y, waves(&[8, 4, 2, 2]), None, Window::new().stride(2)).unwrap();
    let wide = net.resize(y, &[1.0, 1.0, 2.0, 2.0], ResizeMode::Linear).unwrap();
    let y = net.concat(&[up, wide], 1).unwrap();
    let y = net.slice(y, 1, 2, 10).unwrap();
    let y = net.average_pool(y, Window::of(&[2, 2]).stride(2)).unwrap();
    let y = net.reshape(y, &[0, 8, -1]).unwrap();
    let y = net.transpose(y, &[0, 2, 1]).unwrap();
    let y = net.layer_norm(y, ones(&[8]), Some(waves(&[8]).into()), -1, 1e-5).unwrap();
    let q = net.linear(y, waves(&[8, 8]), Some(waves(&[8]).into())).unwrap();
    let y = net.attention(q, y, y, None, Heads::of(2)).unwrap();
    let y = net.gelu(y).unwrap();
    let y = net.reduce_mean(y, &[1], false).unwrap();
    let y = net.linear(y, waves(&[5, 8]), Some(waves(&[5]).into())).unwrap();
    let y = net.softmax(y, -1).unwrap();
    let (best, place) = net.top_k(y, 2, -1).unwrap();
    net.output("best", best).unwrap();
    net.output("place", place).unwrap();
    net
}

#[test]
fn a_plan_an_onnx_file_and_the_graph_compute_the_same() {
    let bytes = varied().to_onnx().unwrap();
    let imported = planish_import::import_bytes(&Bytes::from_vec(bytes), None).unwrap().graph;
    let graph = varied().finish().unwrap();
    let x = waves(&[2, 3, 8, 8]);
    let inputs = [("x".to_string(), Value::Tensor(x.clone()))];
    let by_name: HashMap<String, Value> = inputs.into_iter().collect();
    let list = |graph: &Graph| -> Vec<Value> {
        let name = |id: &ValueId| graph.value(*id).name.to_string();
        graph.inputs().iter().map(|id| by_name[&name(id)].clone()).collect()
    };
    let ours = planish_ir::interpret(&graph, list(&graph)).unwrap();
    let theirs = planish_ir::interpret(&imported, list(&imported)).unwrap();
    assert_eq!(ours.len(), 2);
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a.as_tensor().unwrap().to_f64s(), b.as_tensor().unwrap().to_f64s());
    }
    let plan = Builder::from_network(varied()).unwrap().tune_level(0).threads(1).build().unwrap();
    let mut context = Engine::new(plan, Device::Auto).unwrap().context().unwrap();
    let elements = x.elements::<f32>().unwrap();
    let outputs = context.run(&[("x", View::new(&[2, 3, 8, 8], &elements).unwrap())]).unwrap();
    let best = outputs.get("best").unwrap().as_slice::<f32>().unwrap();
    for (got, want) in best.iter().zip(ours[0].as_tensor().unwrap().to_f64s()) {
        // Scores are below 1 and some twenty layers deep: a few hundred roundings of f32.
        assert!((f64::from(*got) - want).abs() < 2e-5, "{got} and {want}");
    }
    let place: Vec<i64> = outputs.get("place").unwrap().as_slice::<i64>().unwrap().to_vec();
    assert_eq!(place, ours[1].as_tensor().unwrap().to_i64s());
}

#[test]
fn a_loop_counts_and_reads_what_is_outside() {
    let mut net = NetworkBuilder::new("loop");
    let x = net.input("x", DType::F32, "n").unwrap();
    let trips = net.constant("trips", Tensor::scalar(3i64)).unwrap();
    let mut body = Body::new(&net, "body");
    body.input("i", DType::I64, "").unwrap();
    let go_on = body.input("go_on", DType::Bool, "").unwrap();
    let sum = body.input("sum", DType::F32, "n").unwrap();
    let step = body.capture(&net, x).unwrap();
    assert_eq!(body.capture(&net, x).unwrap(), step, "captured once");
    let next = body.add(sum, step).unwrap();
    body.output("go_on_out", go_on).unwrap();
    body.output("next", next).unwrap();
    let zero = net.sub(x, x).unwrap();
    let out = net.control(planish_op::Loop {}, &[Some(trips), None, Some(zero)], vec![body]).unwrap();
    assert_eq!(out.len(), 1);
    net.output("tripled", out[0]).unwrap();
    let plan = Builder::from_network(net).unwrap().tune_level(0).build().unwrap();
    let mut context = Engine::new(plan, Device::Auto).unwrap().context().unwrap();
    let outputs = context.run(&[("x", View::new(&[2], &[1.0f32, -2.5]).unwrap())]).unwrap();
    assert_eq!(outputs.at(0).unwrap().as_slice::<f32>().unwrap(), [3.0, -7.5]);
}

#[test]
fn bodies_belong_to_one_network() {
    let mut net = NetworkBuilder::new("net");
    let other = NetworkBuilder::new("other");
    let flag = net.input("flag", DType::Bool, "").unwrap();
    let bodies = vec![Body::new(&other, "then"), Body::new(&net, "else")];
    let error = net.control(planish_op::If {}, &[Some(flag)], bodies).unwrap_err().to_string();
    assert!(error.contains("body `then` was made for another network"), "{error}");
}

#[test]
fn what_shapes_say_is_followed_through_layers() {
    let mut net = NetworkBuilder::new("shapes");
    let x = net.input("x", DType::F32, "n,12").unwrap();
    let shape = net.shape(x).unwrap();
    let content = &net.graph.value(shape.id).content;
    assert!(matches!(content, Some(Content::Ints(SymbolicInts { dims, .. })) if dims.len() == 2));
    let attributes = [("axis", Attribute::Int(0))];
    let y = net.op_by_name("Concat", &attributes, &[Some(x), Some(x)], 1).unwrap();
    assert_eq!(net.type_of(y[0]).unwrap().to_string(), "f32[2*n,12]");
    assert_eq!(net.shape_of(y[0]).unwrap().unwrap().rank(), 2);
}
