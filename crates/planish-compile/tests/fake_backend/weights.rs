//! Weights in managed memory.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Device, QueueOptions};
use planish_plan::Plan;
use planish_runtime::{CodeFrom, Engine, EngineOptions, RunErrorKind};

use crate::device::Fake;
use crate::{assert_near, random};

const MODEL: &str = r#"graph "g" {
    input %x: f32[2, 3]
    const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
    const %v: f32[2, 3] = [1, 2, 3, -4, 5, 6]
    %p: f32[2, 2] = MatMul(%x, %w)
    %r: f32[2, 2] = Relu(%p)
    %q: f32[2, 3] = MatMul(%r, %v)
    output %q
}"#;

const MANAGED: EngineOptions =
    EngineOptions { managed_weights: true, weight_budget: None, code: CodeFrom::Plan };

fn plan(backends: &[Arc<dyn Backend>]) -> (Plan, Graph) {
    let graph: Graph = MODEL.parse().unwrap();
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    (build(&graph, backends, &options, &mut TimingCache::default()).unwrap().plan, graph)
}

#[test]
fn all_weights_are_one_piece_of_managed_memory() {
    let fake = Fake::with_managed_memory();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let (plan, graph) = plan(&backends);
    let engine = Engine::with_options(plan.clone(), backends.clone(), MANAGED).unwrap();
    // Two weights, each at a place of its own that a device's allocation could have.
    assert_eq!(fake.managed(), [2 * 256]);
    assert_eq!(engine.weight_bytes(), 2 * 24);
    let mut context = engine.context().unwrap();
    for seed in 0..3 {
        let inputs = vec![random(&[2, 3], seed)];
        assert_near(&context.run_values(&inputs).unwrap(), &interpret(&graph, inputs).unwrap());
    }
    drop((context, engine));
    Engine::new(plan, backends).unwrap();
    assert_eq!(fake.managed().len(), 1, "weights are managed without being asked for");
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

#[test]
fn what_a_device_cannot_do_is_refused() {
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
    let (plan, _) = plan(&backends);
    let error = Engine::with_options(plan, backends, MANAGED).unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::Lacking);
    assert_eq!(error.to_string(), "fake has no managed memory");
}

#[test]
fn more_than_is_free_is_refused() {
    let fake = Fake::with_managed_memory();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let (plan, _) = plan(&backends);
    let free = fake.memory_info().unwrap().free;
    let others = fake.allocate(free - 300).unwrap();
    let error = Engine::with_options(plan.clone(), backends.clone(), MANAGED).unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::OutOfMemory);
    assert_eq!(error.to_string(), "512 bytes of managed memory could not be had: 300 are free");
    drop(others);
    Engine::with_options(plan, backends, MANAGED).unwrap();
    fake.queue(QueueOptions::new(1)).unwrap().synchronize().unwrap();
}

#[test]
fn a_plan_on_the_cpu_has_none() {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let (plan, _) = plan(&backends);
    let error = Engine::with_options(plan, backends, MANAGED).unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::Lacking);
    assert!(error.to_string().contains("runs on the CPU alone"), "{error}");
}
