//! What memory plans and contexts say that they take, against what the device has less of.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::{Profile, SymbolRange};
use planish_runtime::Engine;

use crate::device::Fake;
use crate::random;

#[test]
fn memory_is_known_before_a_run_and_listed_after_it() {
    let graph: Graph = r#"graph "g" {
        input %x: f32[batch, 3]
        const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
        %p: f32[batch, 2] = MatMul(%x, %w)
        %e: f32[batch, 2] = Mul(%p, %p)
        %y: f32[batch, 2] = Add(%e, %p)
        output %y
    }"#
    .parse()
    .unwrap();
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let range = SymbolRange { symbol: "batch".into(), min: 1, opt: 2, max: 64 };
    let profiles = vec![Profile { ranges: vec![range] }];
    let options = BuildOptions { tune_level: 0, threads: 1, profiles, ..BuildOptions::default() };
    let plan = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap().plan;
    let engine = Engine::new(plan, backends).unwrap();
    let needs = engine.memory_at(&[("batch".into(), 40)]).unwrap();
    assert!(needs.is_whole);
    let [host, device] = needs.targets[..] else { panic!("{needs:?}") };
    assert!(device.on_device && !host.on_device);
    assert_eq!((device.weights, device.workspace, device.values), (24, 128, 0));
    assert_eq!((host.weights, host.values), (0, 40 * 2 * 4));
    // Three values of 40 rows or more are alive at a time, at multiples of 64 bytes, and workspace.
    assert!(device.arena >= 3 * 320 && device.arena < 4 * 512, "{device:?}");
    let mut before = engine.device_memory().unwrap();
    assert_eq!(before.pooled, 24);
    let mut contexts = Vec::new();
    for _ in 0..2 {
        let mut context = engine.context().unwrap();
        for seed in 0..3 {
            context.run_values(&[random(&[40, 3], seed)]).unwrap();
        }
        let memory = context.memory();
        assert_eq!((memory.device_arena, memory.device_workspace), (device.arena, 128));
        assert_eq!(memory.device_values, 0);
        assert_eq!(memory.host, host.arena + host.values);
        let n_kernels = 64 * engine.plan().program.steps.len().saturating_sub(2);
        assert_eq!((memory.n_graphs, memory.graphs), (1, n_kernels));
        // The device has less by what is listed; its captured graphs live elsewhere.
        let after = engine.device_memory().unwrap();
        assert_eq!(before.free - after.free, memory.device_arena);
        before = after;
        contexts.push(context);
    }
}
