//! Values that are parts of others: nothing is copied to split or to join them, and the outputs are the reference's.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::Backend;
use planish_op::Value;
use planish_runtime::Engine;
use planish_testing::Random;

/// Relative to the largest output: kernels sum in f32 where the reference sums in f64.
const TOLERANCE: f64 = 1e-5;

/// A graph over one image, with weights of the given sizes drawn at random.
fn graph(input: &str, weights: &[(&str, [usize; 4])], nodes: &str) -> Graph {
    let mut numbers = Random::new(9);
    let constant = |(name, dims): &(&str, [usize; 4])| {
        let list: Vec<String> =
            numbers.floats(dims).to_f64s().iter().map(|number| format!("{number:.3}")).collect();
        format!("const %{name}: f32{dims:?} = [{}]", list.join(","))
    };
    let constants: Vec<String> = weights.iter().map(constant).collect();
    format!("graph \"parts\" {{ input %x: {input} {} {nodes} output %y }}", constants.join(" "))
        .parse()
        .unwrap()
}

/// Builds the graph, compares its outputs, and gives the names of the steps that are left.
#[track_caller]
fn steps(graph: &Graph, sizes: &[[usize; 4]]) -> Vec<String> {
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let built = build(graph, std::slice::from_ref(&backend), &options, &mut TimingCache::default()).unwrap();
    let steps = built.plan.program.steps.iter().map(|step| step.region.ops()).collect();
    let engine = Engine::new(built.plan, vec![backend]).unwrap();
    let mut context = engine.context().unwrap();
    context.set_poison(true);
    for (seed, dims) in sizes.iter().enumerate() {
        let x = Value::Tensor(Random::new(seed as u64).floats(dims));
        let want = interpret(graph, vec![x.clone()]).unwrap();
        let got = context.run_values(&[x]).unwrap();
        let [got, want] = [&got[0], &want[0]].map(|value| value.as_tensor().unwrap().to_f64s());
        let largest = want.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        assert_eq!(got.len(), want.len());
        assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() <= TOLERANCE * largest));
    }
    steps
}

/// Steps that only take values apart or put them together; what brings the image into another layout stays.
fn copies(steps: &[String]) -> Vec<&String> {
    steps.iter().filter(|ops| matches!(&***ops, "Concat" | "Split" | "Slice")).collect()
}

/// The block of a YOLO: one half of a layer's result goes on, and both halves are joined with what came of it.
#[test]
fn halves_that_are_joined_again_are_copied_nowhere() {
    let weights = [("a", [16, 16, 1, 1]), ("b", [8, 8, 3, 3]), ("c", [16, 24, 1, 1])];
    let nodes = "%p: f32[n,16,12,12] = Conv(%x, %a) \
                 %l: f32[n,8,12,12], %r: f32[n,8,12,12] = Split(%p) {axis=1, num_outputs=2} \
                 %m: f32[n,8,12,12] = Conv(%r, %b) {pads=[1,1,1,1]} %s: f32[n,8,12,12] = Add(%m, %r) \
                 %j: f32[n,24,12,12] = Concat(%l, %r, %s) {axis=1} %y: f32[n,16,12,12] = Conv(%j, %c)";
    let graph = graph("f32[n,16,12,12]", &weights, nodes);
    let steps = steps(&graph, &[[1, 16, 12, 12], [3, 16, 12, 12]]);
    assert_eq!(copies(&steps), [""; 0], "{steps:?}");
}

#[test]
fn a_concatenation_lies_inside_of_another_one() {
    let weights =
        [("a", [16, 16, 1, 1]), ("b", [16, 16, 1, 1]), ("c", [16, 32, 3, 3]), ("d", [16, 48, 1, 1])];
    let nodes = "%p: f32[n,16,12,12] = Conv(%x, %a) %q: f32[n,16,12,12] = Conv(%p, %b) \
                 %i: f32[n,32,12,12] = Concat(%p, %q) {axis=1} \
                 %r: f32[n,16,12,12] = Conv(%i, %c) {pads=[1,1,1,1]} \
                 %j: f32[n,48,12,12] = Concat(%i, %r) {axis=1} %y: f32[n,16,12,12] = Conv(%j, %d)";
    let steps = steps(&graph("f32[n,16,12,12]", &weights, nodes), &[[1, 16, 12, 12], [2, 16, 12, 12]]);
    assert_eq!(copies(&steps), [""; 0], "{steps:?}");
}

/// What is joined in another order, or is an output of the model, is copied, and right.
#[test]
fn parts_in_another_order_are_right() {
    let weights = [("a", [16, 16, 1, 1]), ("b", [8, 24, 3, 3])];
    let nodes = "%p: f32[n,16,9,9] = Conv(%x, %a) \
                 %l: f32[n,8,9,9], %r: f32[n,8,9,9] = Split(%p) {axis=1, num_outputs=2} \
                 %j: f32[n,24,9,9] = Concat(%r, %l, %r) {axis=1} %y: f32[n,8,9,9] = Conv(%j, %b) {pads=[1,1,1,1]}";
    let graph = graph("f32[n,16,9,9]", &weights, nodes);
    let steps = steps(&graph, &[[1, 16, 9, 9], [2, 16, 9, 9]]);
    assert!(!copies(&steps).is_empty(), "{steps:?}");
}
