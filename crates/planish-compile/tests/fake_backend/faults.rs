//! Indices out of range on a device: an error of the run that they were met in, however it was asked for.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::{Backend, Device};
use planish_op::Value;
use planish_plan::StepKind;
use planish_runtime::{Bindings, Context, DeviceTarget, DeviceView, Engine, RunError, RunErrorKind};
use planish_tensor::{DType, Tensor};

use crate::device::Fake;

/// A lookup and something after it, so that the lookup is not an output itself.
const MODEL: &str = r#"graph "lookup" {
    input %rows: i64[n]
    const %table: f32[3, 2] = [1, 2, 3, 4, 5, 6]
    %e: f32[n, 2] = Gather(%table, %rows) {axis=0} "embedding"
    %y: f32[n, 2] = Add(%e, %e)
    output %y
}"#;

fn engine(fake: &Fake) -> Engine {
    let graph: Graph = MODEL.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let plan = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap().plan;
    let on_device =
        |step: &planish_plan::Step| step.target == 1 && matches!(step.kind, StepKind::Kernel { .. });
    assert!(plan.program.steps.iter().any(|step| on_device(step) && step.region.ops() == "Gather"));
    Engine::new(plan, backends).unwrap()
}

fn rows(rows: &[i64]) -> Value {
    Value::Tensor(Tensor::new(&[rows.len()], rows.to_vec()).unwrap())
}

#[track_caller]
fn assert_told(result: Result<(), RunError>, what: &str) {
    let error = result.unwrap_err();
    assert_eq!(*error.kind(), RunErrorKind::BadValues, "{error}");
    let expected = format!("step `embedding`: {what}");
    assert_eq!(error.to_string(), expected);
}

fn twice(value: &Value) -> Vec<f64> {
    value.as_tensor().unwrap().to_f64s()
}

#[test]
fn runs_tell_of_them_launched_recorded_and_replayed() {
    let fake = Fake::default();
    let mut context = engine(&fake).context().unwrap();
    let right = vec![6.0, 8.0, 10.0, 12.0];
    for round in 0..4 {
        assert_eq!(twice(&context.run_values(&[rows(&[1, -1])]).unwrap()[0]), right, "round {round}");
        let outside = context.run_values(&[rows(&[1, 3])]).map(|_| ());
        assert_told(outside, "index 3 is outside an axis of size 3");
        let outside = context.run_values(&[rows(&[-4, 0])]).map(|_| ());
        assert_told(outside, "index -4 is outside an axis of size 3");
    }
    assert!(fake.launches().2 > 0, "nothing was replayed");
    // Nothing is left over for the next.
    assert_eq!(twice(&context.run_values(&[rows(&[1, -1])]).unwrap()[0]), right);
    // Another context of the engine has words of its own.
    let mut other = context.engine().context().unwrap();
    assert!(context.run_values(&[rows(&[9, 9])]).is_err());
    assert!(other.run_values(&[rows(&[1, 2])]).is_ok());
}

fn bindings(context: &Context, given: &[i64]) -> Bindings {
    let mut buffer = context.input_buffer("rows", &[given.len()]).unwrap();
    buffer.as_mut_slice::<i64>().unwrap().copy_from_slice(given);
    let output = context.output_buffer("y", &[given.len(), 2]).unwrap();
    Bindings::new().input("rows", buffer).output("y", output)
}

#[test]
fn runs_beside_the_caller_tell_of_them() {
    let mut context = engine(&Fake::default()).context().unwrap();
    for _ in 0..3 {
        let wrong = bindings(&context, &[0, 7]);
        assert_told(
            context.run_async(wrong).unwrap().wait().map(|_| ()),
            "index 7 is outside an axis of size 3",
        );
        let right = bindings(&context, &[0, 2]);
        context.run_async(right).unwrap().wait().unwrap();
    }
}

#[test]
fn a_pipeline_tells_of_the_run_that_it_was() {
    let fake = Fake::default();
    let mut context = engine(&fake).context().unwrap();
    // Every pattern of right and wrong among six runs; two are under way at a time.
    for pattern in 0u32..64 {
        let is_wrong = |at: usize| pattern >> at & 1 == 1;
        let ready: Vec<Bindings> =
            (0..6).map(|at| bindings(&context, &[0, if is_wrong(at) { 5 + at as i64 } else { 2 }])).collect();
        let mut pipeline = context.pipeline().unwrap();
        let mut seen = Vec::new();
        for bindings in ready {
            // An error of the run that was waited for keeps the new one out, so it is waited for apart.
            if pipeline.len() == 2 {
                seen.push(pipeline.pop().map(|_| ()));
            }
            assert!(pipeline.push(bindings).unwrap().is_none());
        }
        while !pipeline.is_empty() {
            seen.push(pipeline.pop().map(|_| ()));
        }
        assert_eq!(seen.len(), 6);
        for (at, seen) in seen.into_iter().enumerate() {
            match is_wrong(at) {
                true => assert_told(seen, &format!("index {} is outside an axis of size 3", 5 + at)),
                false => assert!(seen.is_ok(), "{pattern:b} at {at}: {seen:?}"),
            }
        }
    }
    // What nobody waited for is forgotten with its pipeline.
    let wrong = bindings(&context, &[8, 8]);
    context.pipeline().unwrap().push(wrong).unwrap();
    let right = bindings(&context, &[1, 1]);
    let mut pipeline = context.pipeline().unwrap();
    pipeline.push(right).unwrap();
    pipeline.pop().unwrap();
}

#[test]
fn runs_on_a_stream_of_the_caller_tell_with_the_next_call() {
    let fake = Fake::default();
    let mut context = engine(&fake).context().unwrap();
    let (index, y) = (fake.allocate(16).unwrap(), fake.allocate(16).unwrap());
    let stream = fake.stream();
    let mut queue = fake.queue(planish_kernel::QueueOptions::new(1)).unwrap();
    let mut run = |context: &mut Context, given: [i64; 2]| {
        let bytes: Vec<u8> = given.iter().flat_map(|index| index.to_le_bytes()).collect();
        fake.synchronize(stream);
        // SAFETY: the memory is there, of these sizes, until the end of the test, and the stream too.
        unsafe {
            queue.upload(index.address(), &bytes).unwrap();
            queue.synchronize().unwrap();
            let inputs = [("rows", DeviceView::from_raw(DType::I64, &[2], index.address().0))];
            let outputs = [("y", DeviceTarget::from_raw(y.address().0, 16))];
            context.run_device(&inputs, &outputs, Some(stream))
        }
    };
    for _ in 0..3 {
        run(&mut context, [0, 3]).unwrap();
        fake.synchronize(stream);
        // By the next run on the stream, which is not begun.
        assert_told(run(&mut context, [0, 1]), "index 3 is outside an axis of size 3");
        run(&mut context, [0, 1]).unwrap();
        context.synchronize().unwrap();
        // By whoever asks, or by the next run of another kind.
        run(&mut context, [-9, 1]).unwrap();
        assert_told(context.synchronize(), "index -9 is outside an axis of size 3");
        run(&mut context, [4, 1]).unwrap();
        let next = context.run_values(&[rows(&[0, 1])]).map(|_| ());
        assert_told(next, "index 4 is outside an axis of size 3");
        context.run_values(&[rows(&[0, 1])]).unwrap();
    }
}
