//! Faults planted in plans rather than kernels: memory that two live values share, wires and weights crossed.

use std::sync::Arc;

use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::{Check, Outcome, Plan, StepKind, Storage};
use planish_runtime::Engine;
use planish_tensor::{Dim, Tensor};

use super::{Findings, check};
use crate::backends::Backends;
use crate::build::{Assembled, assemble};
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// Two products with a residual around them, a concatenation, a difference: something to confuse everywhere.
const MODEL: &str = r#"graph "g" {
    input %x: f32[6, 8]
    const %v: f32[8, 8] = [V]
    const %w: f32[8, 8] = [W]
    %a: f32[6, 8] = MatMul(%x, %v)
    %b: f32[6, 8] = Softmax(%a)
    %c: f32[6, 8] = MatMul(%b, %w)
    %d: f32[6, 8] = Softmax(%c)
    %e: f32[6, 8] = Sub(%a, %d)
    %s: f32[6, 8] = Softmax(%e)
    %t: f32[6, 16] = Concat(%s, %d) { axis = 1 }
    %y: f32[6, 16] = Softmax(%t)
    output %y, %e
}"#;

fn weight(seed: u64) -> String {
    let mut numbers = super::inputs::Numbers::new(seed);
    (0..64).map(|_| format!("{:.3}", numbers.below(2000) as f64 / 1000.0 - 1.0)).collect::<Vec<_>>().join(",")
}

/// Assembles the model's plan, plants a fault, and checks it.
fn planted(plant: impl FnOnce(&mut Plan)) -> Findings {
    with_fault(plant, &|graph, plan, tensors, backends, options| {
        check(graph, graph, plan, tensors, backends, options).unwrap()
    })
}

type Look<'a, T> = &'a dyn Fn(&Graph, &Plan, &[Tensor], &[Arc<dyn Backend>], &BuildOptions) -> T;

/// Assembles the model's plan, plants a fault, and looks at it.
fn with_fault<T>(plant: impl FnOnce(&mut Plan), look: Look<'_, T>) -> T {
    let graph: Graph = MODEL
        .replace("[V]", &format!("[{}]", weight(1)))
        .replace("[W]", &format!("[{}]", weight(2)))
        .parse()
        .unwrap();
    let list: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let backends = Backends::new(&list).unwrap();
    let Assembled { mut plan, tensors, .. } =
        assemble(&graph, true, backends, &options, &mut TimingCache::default(), &mut Stages::start())
            .unwrap();
    plant(&mut plan);
    look(&graph, &plan, &tensors, &list, &options)
}

fn value(plan: &Plan, name: &str) -> u32 {
    plan.program.values.iter().position(|value| value.name == name).unwrap() as u32
}

/// The step that makes a value.
fn maker(plan: &Plan, name: &str) -> usize {
    let made = Some(value(plan, name));
    plan.program.steps.iter().position(|step| step.outputs.contains(&made)).unwrap()
}

#[track_caller]
fn caught(name: &str, plant: impl FnOnce(&mut Plan)) -> String {
    let findings = planted(plant);
    let failure = findings.failure();
    assert!(failure.is_some(), "{name} was not seen: {:?}", findings.certificate.checks);
    let failure = failure.unwrap_or_default();
    println!("caught  {name}: {failure}");
    failure
}

#[test]
fn the_plan_passes_without_a_fault() {
    let findings = planted(|_| {});
    assert_eq!(findings.failure(), None);
}

#[test]
fn memory_reused_while_it_is_live() {
    // `a` is read again after `c` is made. The proof sees it first; the steps' check sees it too.
    let plant = |plan: &mut Plan| {
        let (live, other) = (value(plan, "a"), value(plan, "c"));
        plan.program.values[other as usize].storage = Storage::Alias { of: live };
    };
    let failure = caught("a live value is written over", plant);
    assert!(failure.contains("finds an element of `c` at element 0 of `a`"), "{failure}");
    let by_steps = with_fault(plant, &|_, plan, tensors, backends, _| {
        let engine = Engine::new(plan.clone(), backends.to_vec()).unwrap();
        let inputs = super::inputs::random(plan, &plan.header.tuned_at, 0, super::Integers::Wide).unwrap();
        super::steps::Steps::new(&engine, tensors, &*backends[0], 2, None)
            .run(&engine, &[], &inputs, ("", true))
            .checks
    });
    let seen = |check: &Check| matches!(&check.outcome, Outcome::Failed(why) if why.contains("memory was used again"));
    assert!(by_steps.iter().any(seen), "{by_steps:?}");
}

#[test]
fn parts_of_a_concatenation_that_overlap() {
    caught("a part one column early", |plan| {
        let mut inside = None;
        for value in &mut plan.program.values {
            if let Storage::Inside { offset, .. } = &mut value.storage
                && offset.as_const() == Some(8)
            {
                *offset = Dim::from(7);
                inside = Some(());
            }
        }
        assert!(inside.is_some(), "the concatenation is not written in place");
    });
}

#[test]
fn wires_and_weights_crossed() {
    caught("operands of a difference exchanged", |plan| {
        let step = maker(plan, "e");
        plan.program.steps[step].inputs.swap(0, 1);
    });
    caught("a step reads another value", |plan| {
        let step = maker(plan, "d");
        let (right, wrong) = (Some(value(plan, "c")), Some(value(plan, "a")));
        for input in plan.program.steps[step].inputs.iter_mut().filter(|input| **input == right) {
            *input = wrong;
        }
    });
    caught("two layers' weights exchanged", |plan| {
        let (one, two) = (plan.weights[0].bytes.clone(), plan.weights[1].bytes.clone());
        (plan.weights[0].bytes, plan.weights[1].bytes) = (two, one);
    });
}

#[test]
fn a_step_left_out() {
    caught("a step is missing", |plan| {
        let step = maker(plan, "s");
        assert!(matches!(plan.program.steps[step].kind, StepKind::Kernel { .. }));
        plan.program.steps.remove(step);
    });
}

/// What passes make of a model, wrongly: each with the model and what it became. Every step of the plan computes its
/// node faithfully; only the whole model against the reference shows it.
const WRONG_PASSES: &[(&str, &str, &str)] = &[
    ("a Relu is dropped", "Relu(%a)", "Identity(%a)"),
    ("a Relu becomes a LeakyRelu", "Relu(%a)", "LeakyRelu(%a) { alpha = 0.2 }"),
    ("a difference becomes a sum", "Sub(%r, %k)", "Add(%r, %k)"),
    ("operands of a difference exchanged", "Sub(%r, %k)", "Sub(%k, %r)"),
    ("a softmax over another axis", "Softmax(%s)", "Softmax(%s) { axis = 0 }"),
    ("a folded normalization of a negative variance", "Softmax(%s)", "Sqrt(%s)"),
    ("a division by zero", "Softmax(%s)", "Log(%r)"),
    ("a transposed product", "MatMul(%x, %w)", "MatMul(%x, %v)"),
    ("a constant folded one place on", "[1, 2, 3, 4, 5, 6, 7, 8]", "[8, 1, 2, 3, 4, 5, 6, 7]"),
    ("a constant folded with another rounding", "[1, 2, 3, 4, 5, 6, 7, 8]", "[1.3, 2, 3, 4, 5, 6, 7, 8]"),
    ("a constant folded to infinity", "[1, 2, 3, 4, 5, 6, 7, 8]", "[inf, 2, 3, 4, 5, 6, 7, 8]"),
    ("a constant folded to NaN", "[1, 2, 3, 4, 5, 6, 7, 8]", "[nan, 2, 3, 4, 5, 6, 7, 8]"),
    ("a negated constant", "[1, 2, 3, 4, 5, 6, 7, 8]", "[-1, -2, -3, -4, -5, -6, -7, -8]"),
];

#[test]
fn wrong_passes_and_folded_constants_are_seen() {
    let text = r#"graph "g" {
        input %x: f32[8, 8]
        const %w: f32[8, 8] = [W]
        const %v: f32[8, 8] = [V]
        const %k: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]
        %a: f32[8, 8] = MatMul(%x, %w)
        %r: f32[8, 8] = Relu(%a)
        %s: f32[8, 8] = Sub(%r, %k)
        %y: f32[8, 8] = Softmax(%s)
        %z: f32[8, 8] = MatMul(%x, %v)
        %o: f32[8, 8] = Add(%y, %z)
        output %o
    }"#;
    let text = text.replace("[W]", &format!("[{}]", weight(1))).replace("[V]", &format!("[{}]", weight(2)));
    let graph: Graph = text.parse().unwrap();
    let list: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let mut n_seen = 0;
    for (name, right, wrong) in [&("nothing is wrong", "", "")].into_iter().chain(WRONG_PASSES) {
        assert!(text.contains(right), "{name}: {right} does not occur");
        let optimized: Graph =
            text.replace(right, wrong).parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        let backends = Backends::new(&list).unwrap();
        let Assembled { plan, tensors, .. } =
            assemble(&optimized, true, backends, &options, &mut TimingCache::default(), &mut Stages::start())
                .unwrap();
        let findings = check(&graph, &optimized, &plan, &tensors, &list, &options).unwrap();
        println!("{name}: {:?}", findings.failure());
        assert_eq!(findings.failure().is_some(), !right.is_empty(), "{name}");
        n_seen += usize::from(findings.failure().is_some());
    }
    assert_eq!(n_seen, WRONG_PASSES.len());
}
