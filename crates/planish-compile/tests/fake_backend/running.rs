//! Runs on the device: captured and replayed, on pinned and device buffers, on the caller's streams, timed.

use std::sync::Arc;

use planish_compile::{BuildError, BuildErrorKind, BuildOptions, Built, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Device};
use planish_op::Value;
use planish_plan::{Plan, Profile, StepKind, SymbolRange};
use planish_runtime::{Bindings, ContextOptions, DeviceTarget, DeviceView, Engine, RunErrorKind, View, Wait};
use planish_tensor::{Bytes, DType, Tensor};

use crate::device::Fake;
use crate::{assert_near, random};

/// `relu(x · w) + x'`, all of it on the device.
const MODEL: &str = r#"graph "g" {
    input %x: f32[batch, 3]
    input %b: f32[batch, 2]
    const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
    %p: f32[batch, 2] = MatMul(%x, %w)
    %r: f32[batch, 2] = Relu(%p)
    %y: f32[batch, 2] = Add(%r, %b)
    output %y
}"#;

pub(crate) fn plan(fake: &Fake, text: &str, options: BuildOptions) -> (Plan, Graph) {
    (try_build(fake.clone(), text, options).unwrap().plan, text.parse().unwrap())
}

fn try_build(fake: Fake, text: &str, options: BuildOptions) -> Result<Built, BuildError> {
    let graph: Graph = text.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
    build(&graph, &backends, &options, &mut TimingCache::default())
}

pub(crate) fn quick() -> BuildOptions {
    let range = SymbolRange { symbol: "batch".into(), min: 1, opt: 2, max: 64 };
    BuildOptions {
        tune_level: 0,
        threads: 1,
        profiles: vec![Profile { ranges: vec![range] }],
        ..BuildOptions::default()
    }
}

pub(crate) fn engine(fake: &Fake) -> (Engine, Graph) {
    let (plan, graph) = plan(fake, MODEL, quick());
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    (Engine::new(plan, backends).unwrap(), graph)
}

pub(crate) fn inputs(batch: usize, seed: u64) -> Vec<Value> {
    vec![random(&[batch, 3], seed), random(&[batch, 2], seed + 1)]
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    value.as_tensor().unwrap().elements::<f32>().unwrap().into_owned()
}

#[test]
fn launches_are_recorded_at_the_second_run_and_replayed_from_then_on() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context =
        engine.context_with(ContextOptions { wait: Wait::Spin, ..ContextOptions::new(1) }).unwrap();
    let run = |context: &mut planish_runtime::Context, batch: usize, seed: u64| {
        let before = fake.launches();
        let inputs = inputs(batch, seed);
        assert_near(&context.run_values(&inputs).unwrap(), &interpret(&graph, inputs).unwrap());
        let after = fake.launches();
        (after.0 - before.0, after.1 - before.1, after.2 - before.2)
    };
    // Two launches: the product with its Relu, and the sum; both inputs are brought before the first.
    assert_eq!(run(&mut context, 2, 1), (2, 0, 0));
    assert_eq!(run(&mut context, 2, 2), (0, 1, 1));
    assert_eq!(run(&mut context, 2, 3), (0, 0, 1));
    // Another size has a captured graph of its own; its memory is larger, so the first is made anew at new addresses.
    assert_eq!(run(&mut context, 5, 4), (2, 0, 0));
    assert_eq!(run(&mut context, 5, 5), (0, 1, 1));
    let back = [run(&mut context, 2, 6), run(&mut context, 2, 7), run(&mut context, 2, 8)];
    assert_eq!(back[2], (0, 0, 1), "{back:?}");
    let plain = ContextOptions { captured: false, ..ContextOptions::new(1) };
    let mut context = engine.context_with(plain).unwrap();
    for seed in 0..4 {
        assert_eq!(run(&mut context, 2, seed), (2, 0, 0));
    }
}

#[test]
fn spans_are_one_call_and_captured_graphs_are_bounded() {
    let fake = Fake::default();
    let text = r#"graph "g" {
        input %x: f32[batch, 4]
        %a: f32[batch, 4] = Add(%x, %x)
        %m: f32[batch, 4] = Mul(%a, %x)
        %r: f32[batch, 4] = Relu(%m)
        %s: f32[batch, 4] = Add(%r, %a)
        output %s
    }"#;
    let (plan, graph) = plan(&fake, text, quick());
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let engine = Engine::new(plan, backends).unwrap();
    let mut context = engine.context().unwrap();
    let mut last = (0, 0, 0);
    for run in 0..5 {
        let inputs = vec![random(&[3, 4], run)];
        let before = fake.launches();
        assert_near(&context.run_values(&inputs).unwrap(), &interpret(&graph, inputs).unwrap());
        let after = fake.launches();
        last = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        let expected = [(4, 0, 0), (0, 1, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)][run as usize];
        assert_eq!(last, expected, "run {run}");
    }
    assert_eq!(last, (0, 0, 1));
    assert_eq!(context.graphs(), (1, 4 * 64));
    // More sizes than are kept: the oldest go, with their captured graphs.
    for batch in 1..=40 {
        for seed in 0..2 {
            let inputs = vec![random(&[batch, 4], seed)];
            assert_near(&context.run_values(&inputs).unwrap(), &interpret(&graph, inputs).unwrap());
        }
    }
    assert!(context.graphs().0 <= 32, "{:?}", context.graphs());
    drop((context, engine));
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

/// Two branches, twice.
const BRANCHES: &str = r#"graph "g" {
    input %x: f32[batch, 4]
    const %w: f32[4, 4] = [1, -2, 3, 4, -5, 6, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1]
    %a: f32[batch, 4] = MatMul(%x, %w)
    %b: f32[batch, 4] = MatMul(%a, %w)
    %c: f32[batch, 4] = Mul(%a, %a)
    %d: f32[batch, 4] = MatMul(%c, %w)
    %e: f32[batch, 4] = Add(%b, %d)
    %f: f32[batch, 4] = MatMul(%e, %w)
    %g: f32[batch, 4] = Mul(%e, %e)
    %h: f32[batch, 4] = Add(%f, %g)
    %i: f32[batch, 4] = Relu(%e)
    output %h, %i
}"#;

/// Branches of a captured graph on several streams: whatever order the device takes that the events allow, results stay.
#[test]
fn branches_are_recorded_on_streams_of_their_own() {
    let fake = Fake::default();
    let (plan, graph) = plan(&fake, BRANCHES, quick());
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let engine = Engine::new(plan, backends).unwrap();
    for streams in 1..=4 {
        let mut context = engine.context_with(ContextOptions { streams, ..ContextOptions::new(1) }).unwrap();
        for batch in [2, 5, 2] {
            for seed in 0..4 {
                let before = fake.launches();
                let inputs = vec![random(&[batch, 4], seed)];
                assert_near(&context.run_values(&inputs).unwrap(), &interpret(&graph, inputs).unwrap());
                let after = fake.launches();
                if seed == 3 {
                    assert_eq!((after.0 - before.0, after.2 - before.2), (0, 1), "{streams} streams");
                }
            }
        }
        let (n, bytes) = context.graphs();
        assert!(n >= 2 && bytes > 0, "{streams} streams");
    }
    drop(engine);
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

/// A planted fault: two streams race, since one does not wait for the other. The self-check must not let it pass.
#[test]
fn a_race_between_two_streams_is_seen() {
    let fake = Fake::default();
    fake.forget_waits();
    let graph: Graph = BRANCHES.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let error = build(&graph, &backends, &quick(), &mut TimingCache::default()).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::CheckFailed, "{error}");
    println!("caught  a race between two streams: {error}");
}

#[test]
fn pinned_buffers_and_runs_beside_the_caller() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    for seed in 0..4 {
        let given = inputs(2, seed);
        let mut x = context.input_buffer("x", &[2, 3]).unwrap();
        let mut b = context.input_buffer("b", &[2, 2]).unwrap();
        assert_eq!(x.as_slice::<f32>().unwrap(), [0.0; 6]);
        x.as_mut_slice::<f32>().unwrap().copy_from_slice(&floats(&given[0]));
        b.as_mut_slice::<f32>().unwrap().copy_from_slice(&floats(&given[1]));
        let y = context.output_buffer("y", &[2, 2]).unwrap();
        let bindings = Bindings::new().input("x", x).input("b", b).output("y", y);
        let done = context.run_async(bindings).unwrap().wait().unwrap();
        let got = done.get_output("y").unwrap().as_slice::<f32>().unwrap().to_vec();
        let got = Value::Tensor(Tensor::new(&[2, 2], got).unwrap());
        assert_near(&[got], &interpret(&graph, given).unwrap());
    }
}

#[test]
fn device_buffers_are_read_and_written_where_they_lie() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let x = context.device_input_buffer("x", &[2, 3]).unwrap();
    let b = context.device_input_buffer("b", &[2, 2]).unwrap();
    let y = context.device_output_buffer("y", &[4, 2]).unwrap();
    let mut bindings = Bindings::new().input("x", x).input("b", b).output("y", y);
    for seed in 0..4 {
        let given = inputs(2, seed);
        for (name, value) in ["x", "b"].into_iter().zip(&given) {
            let view = View::from(value.as_tensor().unwrap());
            bindings.device_input_mut(name).unwrap().upload(view).unwrap();
        }
        let n_copies = fake.n_copies();
        context.run_bound(&mut bindings).unwrap();
        assert_eq!(fake.n_copies(), n_copies, "something was copied over the bus");
        let y = bindings.device_output("y").unwrap();
        assert_eq!(y.dims(), [2, 2]);
        let got = Tensor::from_bytes(DType::F32, &[2, 2], Bytes::from_vec(y.download().unwrap())).unwrap();
        assert_near(&[Value::Tensor(got)], &interpret(&graph, given.clone()).unwrap());
        // The inputs are as they were: nothing is computed in place there.
        let x = bindings.device_input_mut("x").unwrap().download().unwrap();
        assert_eq!(x, given[0].as_tensor().unwrap().bytes().to_vec());
    }
    assert!(fake.launches().2 > 0, "nothing was replayed");
    let error =
        bindings.device_input_mut("x").unwrap().upload(View::new(&[9], &[0f32; 9]).unwrap()).unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::WrongShape);
}

#[test]
fn streams_and_pointers_of_the_caller() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let (one, two) = (fake.stream(), fake.stream());
    let memory = |bytes: usize| fake.allocate(bytes).unwrap();
    let (x, b, y) = (memory(24), memory(16), memory(16));
    let mut queue = fake.queue(planish_kernel::QueueOptions::new(1)).unwrap();
    for (run, stream) in [Some(one), Some(one), Some(two), None, Some(one), Some(one)].into_iter().enumerate()
    {
        let given = inputs(2, run as u64);
        for (memory, value) in [&x, &b].into_iter().zip(&given) {
            // SAFETY: the memory is this long, and no run is under way.
            unsafe { queue.upload(memory.address(), value.as_tensor().unwrap().bytes()).unwrap() };
        }
        queue.synchronize().unwrap();
        // SAFETY: the memory is there, of these sizes, until the end of the test, and the streams too.
        unsafe {
            let inputs = [
                ("x", DeviceView::from_raw(DType::F32, &[2, 3], x.address().0)),
                ("b", DeviceView::from_raw(DType::F32, &[2, 2], b.address().0)),
            ];
            let outputs = [("y", DeviceTarget::from_raw(y.address().0, 16))];
            context.run_device(&inputs, &outputs, stream).unwrap();
        }
        if let Some(stream) = stream {
            fake.synchronize(stream);
        }
        let mut bytes = vec![0; 16];
        // SAFETY: as above.
        unsafe { queue.download(&mut bytes, y.address()).unwrap() };
        let got = Tensor::from_bytes(DType::F32, &[2, 2], Bytes::from_vec(bytes)).unwrap();
        assert_near(&[Value::Tensor(got)], &interpret(&graph, given).unwrap());
    }
    // A run from host memory waits for what is left on the caller's stream.
    let given = inputs(2, 77);
    assert_near(&context.run_values(&given).unwrap(), &interpret(&graph, given).unwrap());
    let no_stream = 0x1;
    // SAFETY: the backend refuses the stream before anything runs.
    let refused = unsafe {
        let inputs = [("x", DeviceView::from_raw(DType::F32, &[2, 3], x.address().0))];
        context.run_device(&inputs, &[], Some(no_stream))
    };
    assert!(refused.is_err());
}

#[test]
fn times_are_the_devices_own() {
    let fake = Fake::default();
    let (engine, _) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given = inputs(2, 1);
    let views: Vec<View<'_>> = given.iter().map(|value| View::from(value.as_tensor().unwrap())).collect();
    let profiled = context.profile(&[("x", views[0]), ("b", views[1])]).unwrap();
    assert_eq!(profiled.steps.len(), engine.plan().program.steps.len());
    // Each piece of work on the device begins 0.3 ms late, and that is part of its time there.
    assert!(profiled.steps.iter().all(|step| step.ns >= 200_000), "{profiled:?}");
    let sum: u64 = profiled.steps.iter().map(|step| step.ns).sum();
    assert!(sum <= profiled.total_ns, "{profiled:?}");
    for _ in 0..3 {
        let phases = context.run_phased(&views).unwrap();
        for ns in [phases.upload_ns, phases.compute_ns, phases.download_ns] {
            assert!(ns >= 200_000.0, "{phases:?}");
        }
    }
}

/// What tools that watch the process are told: the model, in it every step by its name, or a whole replay.
#[test]
fn ranges_are_named_after_steps() {
    let fake = Fake::default();
    let (engine, _) = engine(&fake);
    let mut context = engine.context().unwrap();
    let steps: Vec<String> = engine.plan().program.steps.iter().map(|step| step.name.clone()).collect();
    assert_eq!(steps.len(), 5, "{steps:?}");
    let at = |depth: usize, name: &str| (depth, name.to_string());
    let whole = format!("2 steps from {} to {}", steps[2], steps[3]);
    let model = engine.plan().header.name.clone();
    let [x, b, product, sum, y] = &steps[..] else { panic!("{steps:?}") };
    let one_by_one =
        vec![at(0, &model), at(1, x), at(1, b), at(1, &whole), at(2, product), at(2, sum), at(1, y)];
    let replayed = vec![at(0, &model), at(1, x), at(1, b), at(1, &whole), at(1, y)];
    fake.ranges();
    // Launched, captured, replayed.
    for expected in [&one_by_one, &one_by_one, &replayed] {
        context.run_values(&inputs(2, 1)).unwrap();
        assert_eq!(fake.ranges(), *expected);
    }
    let given = inputs(2, 1);
    let views: Vec<View<'_>> = given.iter().map(|value| View::from(value.as_tensor().unwrap())).collect();
    context.profile(&[("x", views[0]), ("b", views[1])]).unwrap();
    let profiled: Vec<_> = steps.iter().map(|name| at(1, name)).collect();
    assert_eq!(fake.ranges(), [vec![at(0, &model)], profiled].concat());
    // An error leaves none open.
    assert!(context.run_values(&[random(&[2, 4], 1), random(&[2, 2], 2)]).is_err());
    assert_eq!(fake.ranges(), [at(0, &model)]);
}

#[test]
fn code_travels_with_the_plan() {
    let fake = Fake::default();
    let (plan, graph) = plan(&fake, MODEL, quick());
    let keys: Vec<&str> = plan.code.iter().map(|code| code.key.as_str()).collect();
    assert_eq!(keys, ["fake_Add@1 f32", "fake_MatMul+Relu@1 f32"]);
    assert_eq!(plan.header.targets[1].needs, ["threads", "fake_multiplier"]);
    let bytes = plan.to_bytes().unwrap();
    let opened = Plan::from_bytes(Bytes::from_vec(bytes)).unwrap();
    assert_eq!(opened.code, plan.code);
    let on = |plan: Plan| {
        let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Fake::bare())];
        Engine::new(plan, backends).unwrap().context().unwrap()
    };
    let given = inputs(2, 5);
    let outputs = on(opened.clone()).run_values(&given).unwrap();
    assert_near(&outputs, &interpret(&graph, given.clone()).unwrap());
    let mut stripped = opened;
    stripped.code.clear();
    let error = on(stripped).run_values(&given).unwrap_err();
    assert!(error.to_string().contains("there is no code"), "{error}");
}

#[test]
fn a_need_that_is_not_met_asks_for_a_rebuild() {
    let fake = Fake::default();
    let (mut plan, _) = plan(&fake, MODEL, quick());
    plan.header.targets[1].needs.push("fake_library9".into());
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
    let error = Engine::new(plan, backends).unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::NeedsRebuild { .. }), "{error}");
    assert!(error.to_string().contains("fake_library9"), "{error}");
}

#[test]
fn devices_are_measured_by_replays() {
    let fake = Fake::far();
    let (plan, _) = plan(&fake, MODEL, BuildOptions { tune_level: 1, ..quick() });
    let (_, n_recorded, n_replayed) = fake.launches();
    assert!(n_recorded > 0 && n_replayed > 0);
    let is_transfer = |evidence: &&planish_plan::Evidence| {
        matches!(plan.program.steps[evidence.step as usize].kind, StepKind::Transfer)
    };
    let (transfers, kernels): (Vec<_>, Vec<_>) = plan.evidence.iter().partition(is_transfer);
    assert!(kernels.iter().all(|evidence| evidence.why == "the fastest measured"), "{kernels:?}");
    let winner =
        |evidence: &&planish_plan::Evidence| evidence.timings[0].tactic.name.starts_with("fake_quick_");
    assert!(!kernels.is_empty() && kernels.iter().all(winner), "{kernels:?}");
    let priced = |evidence: &&planish_plan::Evidence| {
        let timing = &evidence.timings[0];
        !timing.measured && timing.ns >= crate::device::PRICES.transfer_ns as u64
    };
    assert!(!transfers.is_empty() && transfers.iter().all(priced), "{transfers:?}");
}

#[test]
fn what_a_library_refuses_is_left_out_with_a_note() {
    let graph: Graph = MODEL.parse().unwrap();
    for tune_level in [0, 1] {
        let fake = Fake::with_refusing_library();
        let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
        let options = BuildOptions { tune_level, ..quick() };
        let built = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap();
        let named: Vec<&str> = built.plan.program.steps.iter().filter_map(tactic_of).collect();
        assert!(!named.is_empty() && named.iter().all(|name| name.starts_with("fake_")), "{named:?}");
        for engine in ["cudnn_e1_Add@1", "cudnn_e2_Add@1"] {
            let note = format!("{engine} is left out, it cannot run: the fake backend has no tactic");
            assert!(
                built.notes.iter().any(|said| said.starts_with(&note)),
                "{tune_level}: {:?}",
                built.notes
            );
        }
    }
}

fn tactic_of(step: &planish_plan::Step) -> Option<&str> {
    match &step.kind {
        StepKind::Kernel { variants, .. } => Some(variants[0].tactic.name.as_str()),
        _ => None,
    }
}

#[test]
fn strict_builds_leave_nothing_to_the_host() {
    let text = r#"graph "g" {
        input %x: f32[2, 4]
        %r: f32[2, 4] = Relu(%x)
        %y: f32[2, 4] = Softmax(%r)
        output %y
    }"#;
    let options = BuildOptions { strict: true, tune_level: 0, threads: 1, ..BuildOptions::default() };
    let error = try_build(Fake::default(), text, options.clone()).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::Refused);
    assert!(error.to_string().contains("--strict: 1 of 2 steps run on cpu"), "{error}");
    let built = try_build(Fake::default(), MODEL, options).unwrap();
    assert!(built.plan.program.steps.iter().all(|step| step.target == 1));
    assert!(built.plan.program.steps.iter().any(|step| matches!(step.kind, StepKind::Transfer)));
}

#[test]
fn small_steps_between_host_steps_stay_at_home() {
    // The device has no Softmax; a Relu of eight elements between two of them is not worth the way there and back.
    let text = r#"graph "g" {
        input %x: f32[2, 4]
        %a: f32[2, 4] = Softmax(%x)
        %b: f32[2, 4] = Relu(%a)
        %y: f32[2, 4] = Softmax(%b)
        output %y
    }"#;
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let built = try_build(Fake::far(), text, options.clone()).unwrap();
    assert!(built.plan.program.steps.iter().all(|step| step.target == 0), "{}", built.plan.describe());
    let note = built.notes.iter().find(|note| note.contains("steps run on cpu")).unwrap();
    assert!(note.contains("0 transfers between the two"), "{note}");
    // Where the same plan may run at large sizes, the device keeps its step, small as it is when it is tuned.
    let open = text.replace("[2, 4]", "[n, 4]");
    let range = planish_plan::SymbolRange { symbol: "n".to_string(), min: 1, opt: 2, max: 1 << 20 };
    let profiles = vec![planish_plan::Profile { ranges: vec![range] }];
    let built = try_build(Fake::far(), &open, BuildOptions { profiles, ..options }).unwrap();
    let on_device = |step: &planish_plan::Step| step.target == 1 && step.region.ops() == "Relu";
    assert!(built.plan.program.steps.iter().any(on_device), "{}", built.plan.describe());
}

#[test]
fn a_whole_run_from_pinned_buffers_is_one_replay() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let bound = |context: &planish_runtime::Context| {
        let x = context.input_buffer("x", &[2, 3]).unwrap();
        let b = context.input_buffer("b", &[2, 2]).unwrap();
        let y = context.output_buffer("y", &[2, 2]).unwrap();
        Bindings::new().input("x", x).input("b", b).output("y", y)
    };
    let mut sets = [bound(&context), bound(&context)];
    let mut run = |set: &mut Bindings, seed: u64| {
        let given = inputs(2, seed);
        for (name, value) in ["x", "b"].into_iter().zip(&given) {
            let buffer = set.input_mut(name).unwrap();
            buffer.as_mut_slice::<f32>().unwrap().copy_from_slice(&floats(value));
        }
        let (copies, before) = (fake.n_copies(), fake.launches());
        context.run_bound(set).unwrap();
        let got = set.get_output("y").unwrap().as_slice::<f32>().unwrap().to_vec();
        assert_near(&[Value::Tensor(Tensor::new(&[2, 2], got).unwrap())], &interpret(&graph, given).unwrap());
        let after = fake.launches();
        (fake.n_copies() - copies, after.0 - before.0, after.2 - before.2)
    };
    // Launched, then captured, with two sets of buffers; from then on one call each, and nothing else.
    for round in 0..4 {
        for (at, set) in sets.iter_mut().enumerate() {
            let counted = run(set, 10 * round + at as u64);
            if round > 1 {
                assert_eq!(counted, (0, 0, 1), "round {round}, buffers {at}");
            }
        }
    }
    // Pageable inputs of the same context go another way.
    let given = inputs(2, 99);
    for _ in 0..4 {
        assert_near(&context.run_values(&given).unwrap(), &interpret(&graph, given.clone()).unwrap());
    }
}
