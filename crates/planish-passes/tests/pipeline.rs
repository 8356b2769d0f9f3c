//! The standard pipeline as a whole, and each of its passes alone, on graphs that exporters might write: outputs
//! stay what they were, inputs and outputs keep their names and types, options do what they say.

use std::time::Instant;

use planish_ir::{Graph, NewNode, ValueId, interpret};
use planish_op::{Add, Identity, Op, Relu, Value, ValueType};
use planish_passes::{Match, Operand, Options, PassErrorKind, Patch, Pipeline, Rule, View, standard};
use planish_tensor::{DType, Shape, Tensor};

const GRAPHS: [&str; 3] = [
    include_str!("graphs/convolutional.txt"),
    include_str!("graphs/attention.txt"),
    include_str!("graphs/control.txt"),
];

/// Distance of elements before and after the passes, relative to numbers of about 1: weights are folded and
/// rounded once more (6e-8), a dozen layers deep.
const ROUNDING: f64 = 2e-6;

fn parsed(text: &str) -> Graph {
    text.parse().unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// Inputs of either sign that differ from place to place, with 3 for every open size.
fn inputs(graph: &Graph) -> Vec<Value> {
    let input = |id: &ValueId| {
        let ty = graph.value(*id).ty.as_tensor().unwrap();
        let shape = ty.shape.as_ref().unwrap().eval(&|_| Some(3)).unwrap();
        let count: usize = shape.iter().product();
        let numbers: Vec<f64> = (0..count).map(|place| ((place * 29 + 5) % 19) as f64 / 6.0 - 1.5).collect();
        Tensor::from_f64s(ty.dtype, &shape, &numbers).unwrap().into()
    };
    graph.inputs().iter().map(input).collect()
}

#[track_caller]
fn assert_same(before: &Graph, after: &Graph, what: &str) {
    let names = |graph: &Graph, ids: &[ValueId]| -> Vec<(String, ValueType)> {
        ids.iter().map(|id| (graph.value(*id).name.to_string(), graph.value(*id).ty.clone())).collect()
    };
    assert_eq!(names(before, before.inputs()), names(after, after.inputs()), "{what}");
    // Outputs may learn sizes that only a run could tell before.
    let (old, new) = (names(before, before.outputs()), names(after, after.outputs()));
    let is_same = |((old, was), (new, is)): (&(String, ValueType), &(String, ValueType))| {
        old == new && planish_ir::refines(was, is)
    };
    assert!(old.len() == new.len() && old.iter().zip(&new).all(is_same), "{what}: {old:?} became {new:?}");
    let expected = interpret(before, inputs(before)).unwrap();
    let actual = interpret(after, inputs(before)).unwrap_or_else(|error| panic!("{what}: {error}\n{after}"));
    for (actual, expected) in actual.iter().zip(&expected) {
        let (actual, expected) = (actual.as_tensor().unwrap(), expected.as_tensor().unwrap());
        assert_eq!((actual.dtype(), actual.shape()), (expected.dtype(), expected.shape()), "{what}");
        for (a, e) in actual.to_f64s().into_iter().zip(expected.to_f64s()) {
            assert!((a - e).abs() <= ROUNDING * e.abs().max(1.0), "{what}: {a}, expected {e}\n{after}");
        }
    }
}

#[test]
fn outputs_stay_what_they_were() {
    for text in GRAPHS {
        let graph = parsed(text);
        let (after, report) = standard().run(graph.clone(), &Options::default()).unwrap();
        assert_same(&graph, &after, &graph.name);
        assert!(report.passes.iter().map(|entry| entry.hits).sum::<usize>() >= 5, "{report}");
        // A second run finds next to nothing: passes do not undo one another.
        let (_, again) = standard().run(after, &Options::default()).unwrap();
        assert!(again.passes.iter().map(|entry| entry.hits).sum::<usize>() <= 2, "{}: {again}", graph.name);
    }
}

#[test]
fn each_pass_alone_and_each_beginning_of_the_pipeline_are_sound() {
    let names: Vec<&str> = standard().names().collect();
    for text in GRAPHS {
        let graph = parsed(text);
        for (idx, name) in names.iter().enumerate() {
            let others = names.iter().filter(|other| *other != name).map(|other| other.to_string());
            let alone = Options { disabled: others.collect(), ..Options::default() };
            let (after, _) = standard().run(graph.clone(), &alone).unwrap();
            assert_same(&graph, &after, name);
            let beginning = Options { stop_after: Some(idx + 1), ..Options::default() };
            let (after, report) = standard().run(graph.clone(), &beginning).unwrap();
            assert_eq!(report.passes.len(), idx + 1);
            assert_same(&graph, &after, &format!("up to {name}"));
        }
    }
}

#[test]
fn a_convolutional_network_becomes_its_layers() {
    let (after, _) = standard().run(parsed(GRAPHS[0]), &Options::default()).unwrap();
    let ops: Vec<String> =
        after.nodes().map(|(_, node)| format!("{} {}", node.op.name(), node.name)).collect();
    assert_eq!(
        ops,
        [
            "Conv conv1",
            "Clip min",
            "Conv conv2",
            "Conv conv3",
            "Sigmoid gate",
            "Mul gated",
            "Add residual",
            "Mul half",
            "GlobalAveragePool mean",
            "Reshape flat",
            "Gemm fc"
        ]
    );
}

/// Layers that pad by as much as they compute from their input's size, as networks from TensorFlow do: each tells the
/// sizes of the next once its own padding is a constant.
#[test]
fn sizes_are_followed_through_paddings_that_are_computed_from_them() {
    let mut text = String::from(
        "graph \"g\" { input %x0: f32[1,1,9] const %zeros: i64[5] = [0,0,0,0,0] const %two: i64[1] = [2] \
         const %three: i64[1] = [3] const %third: f32[] = [0.3] ",
    );
    let n_layers = 6;
    for layer in 0..n_layers {
        let next = layer + 1;
        text += &format!(
            "%s{layer}: i64[3] = Shape(%x{layer}) %w{layer}: i64[1] = Slice(%s{layer}, %two, %three) \
             %f{layer}: f32[1] = Cast(%w{layer}) {{to=f32}} %h{layer}: f32[1] = Mul(%f{layer}, %third) \
             %c{layer}: f32[1] = Ceil(%h{layer}) %r{layer}: i64[1] = Cast(%c{layer}) {{to=i64}} \
             %p{layer}: i64[6] = Concat(%zeros, %r{layer}) {{axis=0}} \
             %x{next}: f32[\"a'{layer}\",\"b'{layer}\",\"c'{layer}\"] = Pad(%x{layer}, %p{layer}) ",
        );
    }
    text += &format!("output %x{n_layers} }}");
    let graph = parsed(&text);
    let (after, report) = standard().run(graph.clone(), &Options::default()).unwrap();
    assert!(after.nodes().all(|(_, node)| matches!(node.op, Op::Pad(_))), "{}", after.print_whole());
    assert_same(&graph, &after, "followed");
    // Rounds are one entry, and a run that stops before they end has none: one layer is followed, by its shape alone.
    assert_eq!(report.passes.iter().filter(|entry| entry.pass == "fold_shapes").count(), 1);
    let at = standard().names().position(|name| name == "fold_constants").unwrap();
    let options = Options { stop_after: Some(at), ..Options::default() };
    let (half, _) = standard().run(graph, &options).unwrap();
    let n_left = half.nodes().filter(|(_, node)| matches!(node.op, Op::Shape(_))).count();
    assert_eq!(n_left, n_layers - 1);
}

#[test]
fn options_do_what_they_say() {
    let graph = parsed(GRAPHS[0]);
    let unknown = Options { disabled: vec!["fold_everything".into()], ..Options::default() };
    let error = standard().run(graph.clone(), &unknown).unwrap_err();
    assert!(matches!(error.kind(), PassErrorKind::UnknownPass { .. }));
    let text = error.to_string();
    assert!(text.starts_with("there is no pass `fold_everything`; there are canonicalize, "), "{text}");
    let without = Options { disabled: vec!["fold_batch_norm".into()], ..Options::default() };
    let (after, report) = standard().run(graph.clone(), &without).unwrap();
    assert_eq!(report.hits("fold_batch_norm"), 0);
    assert!(after.nodes().any(|(_, node)| node.op.name() == "BatchNormalization"));
    let (_, quiet) = standard().run(graph.clone(), &Options::default()).unwrap();
    assert!(quiet.passes.iter().all(|entry| entry.refusals.is_empty()));
    let explain = Options { explain: true, ..Options::default() };
    let (_, report) = standard().run(parsed(GRAPHS[2]), &explain).unwrap();
    let refusal = "not at `same`: an output must differ from inputs, constants and other outputs";
    assert!(report.to_string().contains(refusal), "{report}");
}

/// A rule with a fault of the kind that its name says.
struct Faulty(&'static str);

impl Rule for Faulty {
    fn name(&self) -> &'static str {
        self.0
    }

    fn try_at(&self, cx: &View<'_>, id: planish_ir::NodeId) -> Match {
        let node = cx.node(id);
        let (&[Some(input)], &[Some(output)]) = (&node.inputs[..], &node.outputs[..]) else {
            return Match::No;
        };
        if node.op.name() != "Relu" {
            return Match::No;
        }
        let mut patch = Patch::new();
        let new: Operand = match self.0 {
            "cycle" => patch.node("again", Relu {}, &[output.into()]),
            "shape" => {
                let wide = patch.constant("wide", Tensor::new(&[5, 1, 1], vec![0f32; 5]).unwrap());
                patch.node("wider", Add {}, &[input.into(), wide])
            }
            _ => patch.node("empty", Relu {}, &[]),
        };
        patch.replace(output, new);
        Match::Rewrite(patch)
    }
}

#[test]
fn a_faulty_pass_is_named() {
    let graph = parsed("graph \"g\" { input %x: f32[2,2] %y: f32[2,2] = Relu(%x) output %y }");
    for (name, is_kind) in [
        ("cycle", (|kind| matches!(kind, PassErrorKind::Cycle { .. })) as fn(&PassErrorKind) -> bool),
        ("shape", |kind| matches!(kind, PassErrorKind::BadPatch(_))),
        ("arity", |kind| matches!(kind, PassErrorKind::BadPatch(_))),
    ] {
        let pipeline = Pipeline::new(vec![planish_passes::Pass::rule(Faulty(name))]);
        let error = pipeline.run(graph.clone(), &Options::default()).unwrap_err();
        assert_eq!(error.pass(), name);
        assert!(is_kind(error.kind()), "{error}");
        assert!(error.to_string().contains(&format!("pass `{name}`")), "{error}");
    }
}

/// A chain of `n` pairs of nodes, one of which a pass takes away.
fn chain(n: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let ty = ValueType::tensor(DType::F32, Shape::fixed(&[4]));
    let mut at = graph.add_input("x", ty).unwrap();
    let one = graph.add_constant("one", Tensor::vector(vec![1f32, 2.0, 3.0, 4.0])).unwrap();
    for idx in 0..n {
        let mut add = |op: planish_op::Op, inputs: Vec<Option<ValueId>>, name: String| {
            let id = graph.add_node(NewNode::new(&name, op, inputs, &[&name])).unwrap();
            graph.node(id).outputs[0].unwrap()
        };
        let sum = add(Add {}.into(), vec![Some(at), Some(one)], format!("sum{idx}"));
        at = add(Identity {}.into(), vec![Some(sum)], format!("identity{idx}"));
    }
    graph.set_outputs(vec![at]);
    graph
}

#[test]
fn time_grows_with_the_nodes() {
    let time = |n: usize| {
        let graph = chain(n);
        let start = Instant::now();
        let (after, _) = standard().run(graph, &Options::default()).unwrap();
        assert_eq!(after.nodes().len(), n);
        start.elapsed().as_secs_f64()
    };
    // Ten times the nodes: 10 times the time if linear, 100 if quadratic. Other processes disturb, so that one
    // try in five decides.
    let ratio = |_| time(2500) / time(250).max(1e-3);
    let ratios: Vec<f64> = (0..5).map(ratio).take_while(|&ratio| ratio >= 40.0).collect();
    assert!(ratios.len() < 5, "5,000 nodes take {ratios:?} times as long as 500");
}
