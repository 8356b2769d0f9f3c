//! What must hold when something goes wrong: kernels that panic while launches are captured, drivers that panic, a
//! device that is lost, buffers of another device; and whose numbers `Context::output` shows.

use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Device, QueueOptions};
use planish_op::Value;
use planish_runtime::{Bindings, Context, DeviceView, Engine, RunErrorKind};
use planish_tensor::DType;

use crate::assert_near;
use crate::device::Fake;
use crate::pipeline::{assert_computed, bindings};
use crate::running::{engine, floats, inputs, plan, quick};

/// Two branches after one product, so that a captured graph has two streams.
const BRANCHES: &str = r#"graph "g" {
    input %x: f32[batch, 2]
    const %w: f32[2, 2] = [1, -2, 3, 4]
    %a: f32[batch, 2] = MatMul(%x, %w)
    %b: f32[batch, 2] = MatMul(%a, %w)
    %c: f32[batch, 2] = Mul(%a, %a)
    %d: f32[batch, 2] = MatMul(%c, %w)
    %y: f32[batch, 2] = Add(%b, %d)
    output %y
}"#;

fn assert_runs_right(context: &mut Context, graph: &Graph, given: Vec<Value>) {
    assert_near(&context.run_values(&given).unwrap(), &interpret(graph, given).unwrap());
}

#[test]
fn a_panic_while_launches_are_recorded_leaves_everything_usable() {
    for (text, n_inputs) in [(None, 2), (Some(BRANCHES), 1)] {
        let fake = Fake::default();
        let (engine, graph) = match text {
            None => engine(&fake),
            Some(text) => {
                let (plan, graph) = plan(&fake, text, quick());
                let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
                (Engine::new(plan, backends).unwrap(), graph)
            }
        };
        let given = |seed| match n_inputs {
            2 => inputs(2, seed),
            _ => inputs(2, seed).split_off(1),
        };
        let mut context = engine.context().unwrap();
        let before = fake.launches().0;
        assert_runs_right(&mut context, &graph, given(1));
        let n_launches = fake.launches().0 - before;
        assert!(n_launches >= 2);
        // The second run captures; each of its launches breaks once, and every try begins anew.
        for n in 1..=n_launches {
            fake.panic_at_launch(n);
            let error = context.run_values(&given(2)).unwrap_err();
            assert_eq!(*error.kind(), RunErrorKind::Failed);
            assert!(error.to_string().contains("a launch that breaks"), "{error}");
            assert_eq!(fake.n_capturing(), 0, "launch {n} left a captured graph open");
            assert!(context.output(0).is_none());
        }
        // Ranges were ended, too; the next run captures, the one after it replays.
        fake.ranges();
        for seed in 3..6 {
            assert_runs_right(&mut context, &graph, given(seed));
        }
        assert_eq!(fake.launches().0 - before, n_launches, "nothing was captured");
        assert!(fake.launches().2 >= 2, "nothing was replayed");
    }
}

#[test]
fn a_panic_of_a_driver_comes_back_from_the_runner_with_the_buffers() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given = inputs(2, 1);
    assert_runs_right(&mut context, &graph, given.clone());
    let ready = bindings(&context, &given);
    // Waiting is what a run ends with, and what is done when one fails: this panic leaves the run itself.
    fake.panic_in_waits(true);
    let (back, result) = context.run_async(ready).unwrap().wait_with_buffers();
    let error = result.unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::Failed);
    assert!(error.to_string().contains("a driver that breaks"), "{error}");
    assert!(context.output(0).is_none());
    fake.panic_in_waits(false);
    let done = context.run_async(back).unwrap().wait().unwrap();
    assert_computed(&done, &graph, &given);
    // Also where nobody asks for the buffers of a run that breaks, and on the caller's own thread.
    let n_launches = fake.launches().0;
    let unwanted = bindings(&context, &given);
    fake.panic_at_launch(1);
    drop(context.run_async(unwanted).unwrap());
    let mut own = bindings(&context, &given);
    fake.panic_at_launch(1);
    assert!(context.run_bound(&mut own).is_err());
    assert_eq!(fake.launches().0, n_launches, "a launch that was to break did not");
    drop((done, own));
    // Nothing points at the buffers that went.
    assert_runs_right(&mut context, &graph, inputs(2, 5));
}

#[test]
fn a_lost_device_is_a_kind_of_its_own() {
    let fake = Fake::default();
    let (engine, _) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given = inputs(2, 1);
    context.run_values(&given).unwrap();
    fake.lose();
    for _ in 0..3 {
        assert_eq!(*context.run_values(&given).unwrap_err().kind(), RunErrorKind::DeviceLost);
    }
    let text = r#"graph "g" {
        input %x: f32[2, 3]
        const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
        %y: f32[2, 2] = MatMul(%x, %w)
        output %y
    }"#;
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
    let options = BuildOptions { tune_level: 1, threads: 1, ..BuildOptions::default() };
    let built = build(&text.parse().unwrap(), &backends, &options, &mut TimingCache::default());
    assert_eq!(*built.unwrap_err().kind(), BuildErrorKind::DeviceLost);
}

#[test]
fn a_lack_of_memory_is_no_mistake_of_a_build() {
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let options = BuildOptions { tune_level: 1, threads: 1, ..BuildOptions::default() };
    let built = || build(&BRANCHES.parse().unwrap(), &backends, &options, &mut TimingCache::default());
    let others = fake.allocate(fake.memory_info().unwrap().free).unwrap();
    let error = built().unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("could not be had: 0 are free"), "{error}");
    drop(others);
    built().unwrap();
}

#[test]
fn buffers_of_another_device_are_refused() {
    let (one, other) = (Fake::default(), Fake::default());
    let ((engine_one, graph), (engine_other, _)) = (engine(&one), engine(&other));
    let (mut context, stranger) = (engine_one.context().unwrap(), engine_other.context().unwrap());
    let given = inputs(2, 1);
    let refused = |context: &mut Context, mut bindings: Bindings, what: &str| {
        let error = context.run_bound(&mut bindings).unwrap_err();
        assert_eq!(*error.kind(), RunErrorKind::WrongInputs, "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    let with_input = |context: &Context, buffer: planish_runtime::Buffer| {
        let mut all = bindings(context, &given);
        all.take_input("x").unwrap();
        all.input("x", buffer)
    };
    let foreign = stranger.device_input_buffer("x", &[2, 3]).unwrap();
    let all = with_input(&context, foreign.into());
    refused(&mut context, all, "input `x` lies on another device");
    let foreign = stranger.device_output_buffer("y", &[2, 2]).unwrap();
    let mut all = bindings(&context, &given);
    all.take_output("y").unwrap();
    refused(&mut context, all.output("y", foreign), "output `y` lies on another device");
    // A plan without a device takes none at all, its own kind of memory included.
    let cpu: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let built = build(&graph, &cpu, &quick(), &mut TimingCache::default()).unwrap();
    let mut on_cpu = Engine::new(built.plan, cpu).unwrap().context().unwrap();
    let foreign = stranger.device_input_buffer("x", &[2, 3]).unwrap();
    let all = with_input(&on_cpu, foreign.into());
    refused(&mut on_cpu, all, "give it host buffers");
    // What another device pinned is host memory like any other.
    let mut pinned_elsewhere = bindings(&stranger, &given);
    for context in [&mut context, &mut on_cpu] {
        context.run_bound(&mut pinned_elsewhere).unwrap();
        assert_computed(&pinned_elsewhere, &graph, &given);
    }
    // Two engines on one device chain their buffers.
    let second = engine(&one).0.context().unwrap();
    let mut shared = second.device_input_buffer("x", &[2, 3]).unwrap();
    shared.upload(planish_runtime::View::new(&[2, 3], &floats(&given[0])).unwrap()).unwrap();
    let mut all = with_input(&context, shared.into());
    context.run_bound(&mut all).unwrap();
    assert_computed(&all, &graph, &given);
}

#[test]
fn outputs_are_those_of_the_last_run_or_none() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let shown = |context: &Context| context.output(0).map(|y| y.as_slice::<f32>().unwrap().to_vec());
    let right = |given: &[Value]| floats(&interpret(&graph, given.to_vec()).unwrap()[0]);
    let near = |got: Option<Vec<f32>>, want: Vec<f32>| {
        let got = got.expect("there is no output");
        assert!(got.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-4), "{got:?} against {want:?}");
    };
    context.run_values(&inputs(2, 1)).unwrap();
    near(shown(&context), right(&inputs(2, 1)));

    let mut bound = bindings(&context, &inputs(2, 2));
    context.run_bound(&mut bound).unwrap();
    assert_eq!(shown(&context), None);
    // Without a buffer for it an output stays in the context.
    bound.take_output("y").unwrap();
    context.run_bound(&mut bound).unwrap();
    near(shown(&context), right(&inputs(2, 2)));

    let ready = bindings(&context, &inputs(2, 3));
    let done = context.run_async(ready).unwrap().wait().unwrap();
    assert_eq!(shown(&context), None);
    drop(done);
    context.run_values(&inputs(2, 4)).unwrap();
    near(shown(&context), right(&inputs(2, 4)));

    // Opening a pipeline changes nothing, its runs do.
    drop(context.pipeline().unwrap());
    near(shown(&context), right(&inputs(2, 4)));
    let ready = bindings(&context, &inputs(2, 5));
    let mut pipeline = context.pipeline().unwrap();
    pipeline.push(ready).unwrap();
    drop(pipeline);
    assert_eq!(shown(&context), None);

    // A run that failed before it began left nothing either.
    context.run_values(&inputs(2, 6)).unwrap();
    assert!(context.run_bound(&mut Bindings::new()).is_err());
    assert_eq!(shown(&context), None);

    // A run on the caller's stream that nobody has waited for: its output in the context may not be there yet.
    let memory = [24, 16].map(|bytes| fake.allocate(bytes).unwrap());
    let mut queue = fake.queue(QueueOptions::new(1)).unwrap();
    let given = inputs(2, 7);
    for (memory, value) in memory.iter().zip(&given) {
        // SAFETY: the memory is this long, and no run is under way.
        unsafe { queue.upload(memory.address(), value.as_tensor().unwrap().bytes()).unwrap() };
    }
    queue.synchronize().unwrap();
    let stream = fake.stream();
    // SAFETY: the memory is there, of these sizes, until the end of the test, and the stream too.
    unsafe {
        let x = DeviceView::from_raw(DType::F32, &[2, 3], memory[0].address().0);
        let b = DeviceView::from_raw(DType::F32, &[2, 2], memory[1].address().0);
        context.run_device(&[("x", x), ("b", b)], &[], Some(stream)).unwrap();
    }
    assert_eq!(shown(&context), None);
    context.run_values(&inputs(2, 8)).unwrap();
    near(shown(&context), right(&inputs(2, 8)));
}

#[test]
fn outputs_that_are_always_bound_take_no_memory() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let (mut bound, mut own) = (engine.context().unwrap(), engine.context().unwrap());
    let given = inputs(64, 1);
    let mut buffers = bindings(&bound, &given);
    for _ in 0..3 {
        bound.run_bound(&mut buffers).unwrap();
        own.run_values(&given).unwrap();
    }
    assert_computed(&buffers, &graph, &given);
    assert_eq!(own.arena_bytes() - bound.arena_bytes(), 64 * 2 * size_of::<f32>());
    // And it is there once it is needed, for sizes that are known already.
    assert_runs_right(&mut bound, &graph, inputs(64, 2));
    assert_eq!(own.arena_bytes(), bound.arena_bytes());
}
