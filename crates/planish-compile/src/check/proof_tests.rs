//! Faults planted in plans that the proof alone must see, since it is all that large models get as a whole.

use std::sync::Arc;

use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::{Outcome, Plan, Storage};
use planish_runtime::{Engine, Placement, Space};
use planish_tensor::{Dim, Tensor};

use super::{prove, replay, wires};
use crate::backends::Backends;
use crate::build::{Assembled, assemble};
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// Something to confuse everywhere: products, a residual, a square transpose, a concatenation, a division.
fn model(rows: usize) -> Graph {
    let numbers = |n: usize| vec!["0.5"; n].join(",");
    format!(
        r#"graph "g" {{
    input %x: f32[{rows}, 16]
    input %z: f32[16, 16]
    const %v: f32[16, 16] = [{v}]
    const %w: f32[16, 16] = [{w}]
    %a: f32[{rows}, 16] = MatMul(%x, %v)
    %b: f32[{rows}, 16] = Softmax(%a)
    %c: f32[{rows}, 16] = MatMul(%b, %w)
    %d: f32[{rows}, 16] = Softmax(%c)
    %e: f32[{rows}, 16] = Sub(%a, %d)
    %s: f32[{rows}, 16] = Softmax(%e)
    %t: f32[{rows}, 32] = Concat(%s, %d) {{ axis = 1 }}
    %u: f32[{rows}, 32] = Softmax(%t)
    %sq: f32[16, 16] = Softmax(%z)
    %tr: f32[16, 16] = Transpose(%sq) {{ perm = [1, 0] }}
    %y: f32[16, 16] = Softmax(%tr)
    output %u, %e, %y
}}"#,
        v = numbers(256),
        w = numbers(256),
    )
    .parse()
    .unwrap()
}

struct Built {
    graph: Graph,
    plan: Plan,
    tensors: Vec<Tensor>,
    backends: Vec<Arc<dyn Backend>>,
}

fn built(rows: usize) -> Built {
    let graph = model(rows);
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let list = Backends::new(&backends).unwrap();
    let Assembled { plan, tensors, .. } =
        assemble(&graph, true, list, &options, &mut TimingCache::default(), &mut Stages::start()).unwrap();
    Built { graph, plan, tensors, backends }
}

/// What the proof says of a plan.
fn proof(built: &Built) -> Option<String> {
    let engine = Engine::new(built.plan.clone(), built.backends.clone()).unwrap();
    let checks =
        prove(&built.graph, &engine, &built.tensors, std::slice::from_ref(&built.plan.header.tuned_at), 2);
    assert_eq!(checks.len(), 2);
    checks.into_iter().find_map(|check| match check.outcome {
        Outcome::Failed(why) => Some(why),
        Outcome::Passed => {
            assert!(check.n_points > 0, "{} compared nothing", check.subject);
            None
        }
        Outcome::Skipped(why) => panic!("skipped: {why}"),
    })
}

fn value(plan: &Plan, name: &str) -> usize {
    plan.program.values.iter().position(|value| value.name == name).unwrap()
}

fn maker(plan: &Plan, name: &str) -> usize {
    let made = Some(value(plan, name) as u32);
    plan.program.steps.iter().position(|step| step.outputs.contains(&made)).unwrap()
}

fn offset_of<'p>(plan: &'p mut Plan, name: &str) -> &'p mut Dim {
    let at = value(plan, name);
    match &mut plan.program.values[at].storage {
        Storage::Inside { offset, .. } => offset,
        storage => panic!("`{name}` is not a part: {storage:?}"),
    }
}

type Plant = fn(&mut Plan);

/// Each with a part of what the proof must say.
const FAULTS: &[(&str, &str, Plant)] = &[
    ("operands of a difference exchanged", "something else than the graph's `e`", |plan| {
        let step = maker(plan, "e");
        plan.program.steps[step].inputs.swap(0, 1);
    }),
    ("a step reads another value", "makes of a something else", |plan| {
        let step = maker(plan, "d");
        plan.program.steps[step].inputs[0] = Some(value(plan, "a") as u32);
    }),
    ("a step is missing", "what nothing has written at element 0 of `b`", |plan| {
        let step = maker(plan, "b");
        plan.program.steps.remove(step);
    }),
    ("a live value is written over", "finds an element of `c` at element 0 of `a`", |plan| {
        let at = value(plan, "c");
        plan.program.values[at].storage = Storage::Alias { of: value(plan, "a") as u32 };
    }),
    ("a part one column early", "another element of the same value at element 16 of `t`", |plan| {
        *offset_of(plan, "d") = Dim::from(15)
    }),
    // Nothing, or what lay there before, as the arena has it.
    ("both parts at one place", "at element 16 of `t`", |plan| {
        *offset_of(plan, "d") = Dim::from(0);
    }),
    ("parts exchanged", "at element 0 of `t`", |plan| {
        *offset_of(plan, "d") = Dim::from(0);
        *offset_of(plan, "s") = Dim::from(16);
    }),
    ("a square transpose taken for a view", "another element of the same value", |plan| {
        let (step, from, to) = (maker(plan, "tr"), value(plan, "sq"), value(plan, "tr"));
        plan.program.values[to].storage = Storage::Alias { of: from as u32 };
        plan.program.steps.remove(step);
    }),
    ("outputs exchanged", "the outputs are not those of the graph", |plan| plan.program.outputs.swap(0, 1)),
    ("weights exchanged", "is not `", |plan| {
        let weights: Vec<usize> = (0..plan.program.values.len())
            .filter(|&at| matches!(plan.program.values[at].storage, Storage::Weight(_)))
            .collect();
        let storage = plan.program.values[weights[0]].storage.clone();
        plan.program.values[weights[0]].storage = plan.program.values[weights[1]].storage.clone();
        plan.program.values[weights[1]].storage = storage;
    }),
    ("an attribute changed", "something else than the graph's `y`", |plan| {
        let step = maker(plan, "y");
        plan.program.steps[step].region.nodes[0].op = planish_op::Softmax { axis: 0 }.into();
    }),
    ("a step does another's work", "something else than the graph's `e`", |plan| {
        let step = maker(plan, "e");
        for node in &mut plan.program.steps[step].region.nodes {
            if matches!(node.op, planish_op::Op::Sub(_)) {
                node.op = planish_op::Add {}.into();
            }
        }
    }),
];

#[test]
fn a_sound_plan_is_proven() {
    assert_eq!(proof(&built(6)), None);
    assert_eq!(proof(&built(50_000)), None);
}

#[test]
fn planted_faults_are_seen_without_a_run() {
    let mut n_seen = 0;
    for (name, says, plant) in FAULTS {
        let mut built = built(6);
        plant(&mut built.plan);
        let failure = proof(&built);
        println!("{} {name}: {failure:?}", if failure.is_some() { "seen  " } else { "missed" });
        assert!(failure.as_ref().is_some_and(|why| why.contains(says)), "{name}: {failure:?}");
        n_seen += 1;
    }
    assert_eq!(n_seen, FAULTS.len());
    println!("{n_seen} of {} faults seen", FAULTS.len());
}

#[test]
fn they_are_seen_in_memory_too_large_to_follow_whole() {
    // Some 15 million places: every 17th or so is followed.
    for (name, _, plant) in FAULTS {
        let mut built = built(50_000);
        plant(&mut built.plan);
        assert!(proof(&built).is_some(), "{name} was not seen");
    }
}

/// Replays the sound plan with its memory laid out otherwise.
fn replaced(change: impl FnOnce(&Plan, &mut Placement)) -> Result<u64, String> {
    let built = built(6);
    let engine = Engine::new(built.plan.clone(), built.backends.clone()).unwrap();
    let sizes = &built.plan.header.tuned_at;
    let mut placement = engine.placement(sizes, 2).unwrap();
    change(&built.plan, &mut placement);
    replay::replay(&built.graph, &wires::Wires::new(&built.graph), &built.plan.program, &placement, sizes)
}

#[test]
fn mistakes_of_the_arena_are_seen() {
    assert!(replaced(|_, _| {}).is_ok());
    let workspace = replaced(|plan, placement| {
        // Workspace of the second product where the first one's result waits for the residual.
        let (writes, reads) = (maker(plan, "a"), maker(plan, "c"));
        let place = placement.steps[writes].outputs[0].clone().unwrap();
        assert!(matches!(place.space, Space::Arena(_)));
        placement.steps[reads].workspace = Some((0, place.offset, 64));
    });
    assert!(workspace.as_ref().is_err_and(|why| why.contains("workspace")), "{workspace:?}");
    let live = replaced(|plan, placement| {
        let (first, second) = (maker(plan, "a"), maker(plan, "b"));
        let offset = placement.steps[first].outputs[0].as_ref().unwrap().offset;
        let moved = placement.steps[second].outputs[0].as_mut().unwrap();
        moved.offset = offset + 4;
    });
    assert!(live.is_err(), "two values at one place");
}
