//! Weights streamed through a ring of device memory: the same bits as without, in whatever way a plan is run.

use std::fmt::Write;
use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::Plan;
use planish_runtime::{
    Bindings, ContextOptions, DeviceTarget, DeviceView, Engine, EngineOptions, RunErrorKind, View,
};

use planish_tensor::DType;

use crate::device::Fake;
use crate::random;
use crate::running::floats;

/// Rows and columns of a product's weight: 256 bytes, as much as weights lie apart.
const SIDE: usize = 8;
const BYTES: usize = SIDE * SIDE * 4;
const PRODUCTS: usize = 9;

/// Products one after the other, each with a weight of its own, and two that branch off and come together again.
fn model(seed: u64) -> Graph {
    let mut text = format!("graph \"g\" {{\n input %x0: f32[2, {SIDE}]\n");
    let weight = |at: u64| -> String {
        let values = floats(&random(&[SIDE, SIDE], seed + at));
        values.iter().map(|value| format!("{:.3}", value * 0.3)).collect::<Vec<_>>().join(", ")
    };
    for at in 0..PRODUCTS {
        writeln!(text, " const %w{at}: f32[{SIDE}, {SIDE}] = [{}]", weight(at as u64)).unwrap();
    }
    for at in 0..PRODUCTS - 2 {
        writeln!(text, " %p{at}: f32[2, {SIDE}] = MatMul(%x{at}, %w{at})").unwrap();
        writeln!(text, " %x{}: f32[2, {SIDE}] = Relu(%p{at})", at + 1).unwrap();
    }
    let last = PRODUCTS - 2;
    writeln!(text, " %a: f32[2, {SIDE}] = MatMul(%x{last}, %w{last})").unwrap();
    writeln!(text, " %b: f32[2, {SIDE}] = MatMul(%x{last}, %w{})", last + 1).unwrap();
    writeln!(text, " %y: f32[2, {SIDE}] = Add(%a, %b)\n output %y\n}}").unwrap();
    text.parse().unwrap()
}

fn built(fake: &Fake, seed: u64) -> (Plan, Vec<Arc<dyn Backend>>) {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let plan = build(&model(seed), &backends, &options, &mut TimingCache::default()).unwrap().plan;
    (plan, backends)
}

fn budget(bytes: usize) -> EngineOptions {
    EngineOptions { weight_budget: Some(bytes), ..EngineOptions::default() }
}

/// The bits of the only output.
fn bits(values: &[Value]) -> Vec<u32> {
    values.iter().flat_map(floats).map(f32::to_bits).collect()
}

fn run(context: &mut planish_runtime::Context, seed: u64) -> Vec<u32> {
    bits(&context.run_values(&[random(&[2, SIDE], seed)]).unwrap())
}

#[test]
fn every_budget_gives_the_same_bits() {
    let fake = Fake::default();
    let (plan, backends) = built(&fake, 1);
    let whole = Engine::new(plan.clone(), backends.clone()).unwrap();
    let mut plain = whole.context().unwrap();
    let want: Vec<Vec<u32>> = (0..5).map(|seed| run(&mut plain, seed)).collect();
    assert!(want[0] != want[1] && want[0].iter().any(|bits| *bits != 0));
    drop((plain, whole));
    for n_groups in 1..=PRODUCTS {
        for streams in [1, 3] {
            let engine =
                Engine::with_options(plan.clone(), backends.clone(), budget(n_groups * BYTES)).unwrap();
            let needs = engine.memory_at(&[]).unwrap().targets[1];
            assert!(needs.weights + needs.ring <= n_groups * BYTES, "{needs:?}");
            assert_eq!(needs.weights + needs.streamed, PRODUCTS * BYTES);
            assert_eq!(needs.streamed > 0, n_groups < PRODUCTS);
            assert_eq!(engine.weight_bytes(), PRODUCTS * BYTES);
            let options = ContextOptions { streams, ..ContextOptions::new(1) };
            let mut context = engine.context_with(options).unwrap();
            // Step by step, captured, replayed.
            for (seed, want) in want.iter().enumerate() {
                assert_eq!(run(&mut context, seed as u64), *want, "{n_groups} groups, run {seed}");
            }
            assert_eq!(context.memory().device_ring, needs.ring);
            assert!(context.graphs().0 > 0, "nothing was captured");
        }
    }
    assert!(fake.launches().2 > 0, "nothing was replayed");
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

#[test]
fn contexts_of_one_engine_run_at_the_same_time() {
    let fake = Fake::default();
    let (plan, backends) = built(&fake, 2);
    let mut plain = Engine::new(plan.clone(), backends.clone()).unwrap().context().unwrap();
    let want: Vec<Vec<u32>> = (0..8).map(|seed| run(&mut plain, seed)).collect();
    let engine = Engine::with_options(plan, backends, budget(3 * BYTES)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (mut context, want) = (engine.context().unwrap(), &want);
            scope.spawn(move || {
                for at in 0..8 {
                    let seed = (at * 3 + thread) % 8;
                    assert_eq!(run(&mut context, seed as u64), want[seed], "thread {thread}, run {at}");
                }
            });
        }
    });
}

/// A profiled run, one without captured graphs, one on a stream of the caller, and runs that overlap.
#[test]
fn every_kind_of_run_streams() {
    let fake = Fake::default();
    let (plan, backends) = built(&fake, 3);
    let mut plain = Engine::new(plan.clone(), backends.clone()).unwrap().context().unwrap();
    let want: Vec<Vec<u32>> = (0..6).map(|seed| run(&mut plain, seed)).collect();
    let engine = Engine::with_options(plan, backends, budget(2 * BYTES)).unwrap();
    let given = |seed: usize| floats(&random(&[2, SIDE], seed as u64));
    let options = ContextOptions { captured: false, ..ContextOptions::new(1) };
    let mut uncaptured = engine.context_with(options).unwrap();
    for (seed, want) in want.iter().enumerate() {
        assert_eq!(run(&mut uncaptured, seed as u64), *want);
    }
    let mut context = engine.context().unwrap();
    let x = given(1);
    let times = context.profile(&[("x0", View::new(&[2, SIDE], &x).unwrap())]).unwrap();
    assert_eq!(times.steps.len(), engine.plan().program.steps.len());
    let profiled = context.output(0).unwrap().to_tensor();
    assert_eq!(bits(&[Value::Tensor(profiled)]), want[1]);

    let ready: Vec<Bindings> = (0..6)
        .map(|seed| {
            let mut x = context.input_buffer("x0", &[2, SIDE]).unwrap();
            x.as_mut_slice::<f32>().unwrap().copy_from_slice(&given(seed));
            Bindings::new().input("x0", x).output("y", context.output_buffer("y", &[2, SIDE]).unwrap())
        })
        .collect();
    let mut pipeline = context.pipeline().unwrap();
    let mut done = Vec::new();
    for bindings in ready {
        done.extend(pipeline.push(bindings).unwrap());
    }
    while let Some(last) = pipeline.pop().unwrap() {
        done.push(last);
    }
    drop(pipeline);
    for (done, want) in done.iter().zip(&want) {
        let y = done.get_output("y").unwrap().as_slice::<f32>().unwrap().to_vec();
        assert_eq!(y.into_iter().map(f32::to_bits).collect::<Vec<_>>(), *want);
    }

    let mut x = context.device_input_buffer("x0", &[2, SIDE]).unwrap();
    let y = context.device_output_buffer("y", &[2, SIDE]).unwrap();
    let stream = fake.stream();
    for (seed, want) in want.iter().enumerate() {
        x.upload(View::new(&[2, SIDE], &given(seed)).unwrap()).unwrap();
        // SAFETY: both buffers are there, of these sizes, until the stream was waited for.
        unsafe {
            let inputs = [("x0", DeviceView::from_raw(DType::F32, &[2, SIDE], x.address()))];
            let outputs = [("y", DeviceTarget::from_raw(y.address(), 2 * SIDE * 4))];
            context.run_device(&inputs, &outputs, Some(stream)).unwrap();
        }
        fake.synchronize(stream);
        let bytes = y.download().unwrap();
        let got: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        assert_eq!(got, *want);
    }
}

/// Contexts that ran before take the new weights.
#[test]
fn other_weights_are_streamed_after_a_refit() {
    let fake = Fake::default();
    let ((plan, backends), (other, _)) = (built(&fake, 4), built(&fake, 50));
    let mut plain = Engine::new(other.clone(), backends.clone()).unwrap().context().unwrap();
    let mut engine = Engine::with_options(plan, backends, budget(3 * BYTES)).unwrap();
    let mut context = engine.context().unwrap();
    let before: Vec<Vec<u32>> = (0..3).map(|_| run(&mut context, 7)).collect();
    engine.refit(other).unwrap();
    let want = run(&mut plain, 7);
    for _ in 0..3 {
        assert_eq!(run(&mut context, 7), want);
    }
    assert!(before.iter().all(|before| *before != want));
}

/// A launch that panics leaves nothing behind that a later run could read.
#[test]
fn a_run_after_one_that_broke_is_right() {
    let fake = Fake::default();
    let (plan, backends) = built(&fake, 5);
    let engine = Engine::with_options(plan, backends, budget(2 * BYTES)).unwrap();
    let mut context = engine.context().unwrap();
    let want = run(&mut context, 3);
    for n in 1..6 {
        fake.panic_at_launch(n);
        let mut context = engine.context().unwrap();
        assert!(context.run_values(&[random(&[2, SIDE], 3)]).is_err());
        fake.panic_at_launch(0);
        for _ in 0..3 {
            assert_eq!(run(&mut context, 3), want);
        }
    }
}

#[test]
fn budgets_that_cannot_be_kept_are_refused() {
    let fake = Fake::with_managed_memory();
    let (plan, backends) = built(&fake, 6);
    let refused = |options: EngineOptions| {
        let error = Engine::with_options(plan.clone(), backends.clone(), options).unwrap_err();
        assert_eq!(*error.kind(), RunErrorKind::Lacking);
        error.to_string()
    };
    let line = refused(budget(BYTES - 1));
    assert!(line.contains("255 bytes is too small") && line.contains("need 256"), "{line}");
    let line = refused(EngineOptions { managed_weights: true, ..budget(BYTES) });
    assert!(line.contains("ask for one of both"), "{line}");
    let cpu: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let plan = build(&model(6), &cpu, &options, &mut TimingCache::default()).unwrap().plan;
    let error = Engine::with_options(plan, cpu, budget(BYTES)).unwrap_err();
    assert!(error.to_string().contains("runs on the CPU alone"), "{error}");
}
