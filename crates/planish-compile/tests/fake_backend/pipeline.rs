//! Runs of one context that overlap with each other's copies.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::Backend;
use planish_op::Value;
use planish_runtime::{Bindings, Context, Engine, RunErrorKind};
use planish_tensor::Tensor;

use crate::device::Fake;
use crate::running::{engine, floats, inputs};
use crate::{assert_near, random};

/// Buffers of the context's own, filled.
pub(crate) fn bindings(context: &Context, given: &[Value]) -> Bindings {
    let mut bindings = Bindings::new();
    for (name, value) in ["x", "b"].into_iter().zip(given) {
        let mut buffer = context.input_buffer(name, value.as_tensor().unwrap().shape()).unwrap();
        buffer.as_mut_slice::<f32>().unwrap().copy_from_slice(&floats(value));
        bindings = bindings.input(name, buffer);
    }
    let rows = given[0].as_tensor().unwrap().shape()[0];
    bindings.output("y", context.output_buffer("y", &[rows, 2]).unwrap())
}

pub(crate) fn assert_computed(done: &Bindings, graph: &Graph, given: &[Value]) {
    let y = done.get_output("y").unwrap();
    let got = Tensor::new(y.dims(), y.as_slice::<f32>().unwrap().to_vec()).unwrap();
    assert_near(&[Value::Tensor(got)], &interpret(graph, given.to_vec()).unwrap());
}

#[test]
fn runs_come_back_in_their_order_with_their_own_results() {
    let fake = Fake::default();
    {
        let (engine, graph) = engine(&fake);
        let mut context = engine.context().unwrap();
        // Sizes change on the way, to larger and to smaller ones.
        let batches = [2, 2, 2, 2, 2, 2, 2, 2, 5, 5, 1, 64, 2, 2, 2];
        let given: Vec<Vec<Value>> =
            batches.iter().enumerate().map(|(at, &batch)| inputs(batch, at as u64 * 7)).collect();
        let ready: Vec<Bindings> = given.iter().map(|given| bindings(&context, given)).collect();
        let mut pipeline = context.pipeline().unwrap();
        let mut done = Vec::new();
        for bindings in ready {
            done.extend(pipeline.push(bindings).unwrap());
        }
        assert_eq!((pipeline.len(), done.len()), (2, batches.len() - 2));
        while let Some(last) = pipeline.pop().unwrap() {
            done.push(last);
        }
        assert!(pipeline.is_empty() && pipeline.pop().unwrap().is_none());
        drop(pipeline);
        for (done, given) in done.iter().zip(&given) {
            assert_computed(done, &graph, given);
        }
        assert!(fake.launches().2 > 0, "nothing was replayed");
        let given = inputs(2, 99);
        assert_near(&context.run_values(&given).unwrap(), &interpret(&graph, given).unwrap());
    }
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

#[test]
fn a_run_is_pushed_while_the_one_before_computes() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given: Vec<Vec<Value>> = (0..8).map(|seed| inputs(2, seed)).collect();
    let mut ready: Vec<Bindings> = given.iter().map(|given| bindings(&context, given)).collect();
    let held = ready.split_off(6);
    let mut pipeline = context.pipeline().unwrap();
    // Launches of both sets of buffers are met, then captured, then replayed.
    for bindings in ready {
        pipeline.push(bindings).unwrap();
    }
    while pipeline.pop().unwrap().is_some() {}
    let n_done = fake.n_done();
    let gate = fake.hold();
    for bindings in held {
        assert!(pipeline.push(bindings).unwrap().is_none());
    }
    assert_eq!((pipeline.len(), fake.n_done()), (2, n_done), "the device was to stand still");
    drop(gate);
    for given in &given[6..] {
        assert_computed(&pipeline.pop().unwrap().unwrap(), &graph, given);
    }
}

#[test]
fn what_cannot_overlap_runs_at_once() {
    let fake = Fake::default();
    // A step on the CPU between two of the device.
    let text = r#"graph "g" {
        input %x: f32[2, 3]
        input %b: f32[2, 2]
        const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
        %p: f32[2, 2] = MatMul(%x, %w)
        %s: f32[2, 2] = Softmax(%p)
        %y: f32[2, 2] = Add(%s, %b)
        output %y
    }"#;
    let graph: Graph = text.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake.clone())];
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let plan = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap().plan;
    let mixed = Engine::new(plan, backends).unwrap();
    let plan = build(&graph, &[Arc::new(Cpu::new())], &options, &mut TimingCache::default()).unwrap().plan;
    let on_host = Engine::new(plan, vec![Arc::new(Cpu::new())]).unwrap();
    for engine in [mixed, on_host] {
        let mut context = engine.context().unwrap();
        let given: Vec<Vec<Value>> = (0..4).map(|seed| inputs(2, seed)).collect();
        let ready: Vec<Bindings> = given.iter().map(|given| bindings(&context, given)).collect();
        let mut pipeline = context.pipeline().unwrap();
        let mut done = Vec::new();
        for bindings in ready {
            done.extend(pipeline.push(bindings).unwrap());
        }
        done.extend(pipeline.pop().unwrap());
        done.extend(pipeline.pop().unwrap());
        for (done, given) in done.iter().zip(&given) {
            assert_computed(done, &graph, given);
        }
        assert_eq!(done.len(), 4);
    }
}

#[test]
fn buffers_on_the_device_and_plain_ones_take_their_turn() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given: Vec<Vec<Value>> = (0..3).map(|seed| inputs(2, seed)).collect();
    let first = bindings(&context, &given[0]);
    let y = context.device_output_buffer("y", &[2, 2]).unwrap();
    let mut x = context.device_input_buffer("x", &[2, 3]).unwrap();
    x.upload(given[1][0].as_tensor().unwrap().into()).unwrap();
    let mut b = context.device_input_buffer("b", &[2, 2]).unwrap();
    b.upload(given[1][1].as_tensor().unwrap().into()).unwrap();
    let on_device = Bindings::new().input("x", x).input("b", b).output("y", y);
    let last = bindings(&context, &given[2]);
    let mut pipeline = context.pipeline().unwrap();
    pipeline.push(first).unwrap();
    pipeline.push(on_device).unwrap();
    let first = pipeline.push(last).unwrap().unwrap();
    assert_computed(&first, &graph, &given[0]);
    let second = pipeline.pop().unwrap().unwrap();
    let y: Vec<f32> = second
        .device_output("y")
        .unwrap()
        .download()
        .unwrap()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    let want = interpret(&graph, given[1].clone()).unwrap();
    assert_near(&[Value::Tensor(Tensor::new(&[2, 2], y).unwrap())], &want);
    assert_computed(&pipeline.pop().unwrap().unwrap(), &graph, &given[2]);
}

#[test]
fn errors_leave_the_others_as_they_are() {
    let fake = Fake::default();
    {
        let (engine, graph) = engine(&fake);
        let mut context = engine.context().unwrap();
        let given = inputs(2, 1);
        let good = || bindings(&context, &given);
        let (first, second, third) = (good(), good(), good());
        let too_many = bindings(&context, &inputs(65, 2));
        let without = Bindings::new().input("x", context.input_buffer("x", &[2, 3]).unwrap());
        let unknown = good().input("z", context.input_buffer("x", &[2, 3]).unwrap());
        let small = {
            let mut bindings = good();
            bindings.take_output("y");
            bindings.output("y", context.output_buffer("y", &[1, 2]).unwrap())
        };
        let mut pipeline = context.pipeline().unwrap();
        pipeline.push(first).unwrap();
        let kinds = [too_many, without, unknown, small].map(|bad| {
            let error = pipeline.push(bad).unwrap_err();
            error.kind().clone()
        });
        assert_eq!(kinds[0], RunErrorKind::WrongShape);
        assert_eq!(kinds[1..3], [RunErrorKind::WrongInputs, RunErrorKind::WrongInputs]);
        assert_eq!(kinds[3], RunErrorKind::WrongShape);
        assert_eq!(pipeline.len(), 1);
        pipeline.push(second).unwrap();
        assert_computed(&pipeline.push(third).unwrap().unwrap(), &graph, &given);
        // Two are under way when it is dropped.
        drop(pipeline);
        assert_near(&context.run_values(&given).unwrap(), &interpret(&graph, given.clone()).unwrap());
    }
    assert_eq!(fake.n_blocks(), 0, "memory was not given back");
}

#[test]
fn nothing_is_under_way_after_an_error() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given = inputs(5, 1);
    let (first, second) = (bindings(&context, &given), bindings(&context, &given));
    let mut small = bindings(&context, &inputs(2, 2));
    small.take_output("y");
    let small = small.output("y", context.output_buffer("y", &[1, 2]).unwrap());
    let many = inputs(64, 3);
    let large = bindings(&context, &many);
    let mut pipeline = context.pipeline().unwrap();
    pipeline.push(first).unwrap();
    pipeline.push(second).unwrap();
    while pipeline.pop().unwrap().is_some() {}
    // The slot has room on the device for what is too large for the caller's buffer, so the kernels are launched.
    let n_done = fake.n_done();
    assert_eq!(*pipeline.push(small).unwrap_err().kind(), RunErrorKind::WrongShape);
    let n_behind = fake.n_done();
    assert!(n_behind > n_done, "nothing ran");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(fake.n_done(), n_behind, "something was under way still");
    // Larger buffers take the place of those that it used.
    pipeline.push(large).unwrap();
    assert_computed(&pipeline.pop().unwrap().unwrap(), &graph, &many);
}

#[test]
fn a_forgotten_pipeline_harms_nobody() {
    let fake = Fake::default();
    let (engine, graph) = engine(&fake);
    let mut context = engine.context().unwrap();
    let given: Vec<Vec<Value>> = (0..8).map(|seed| inputs(2, seed)).collect();
    let ready: Vec<Bindings> = given.iter().map(|given| bindings(&context, given)).collect();
    let mut pipeline = context.pipeline().unwrap();
    for bindings in ready {
        pipeline.push(bindings).unwrap();
    }
    std::mem::forget(pipeline);
    let given = vec![random(&[2, 3], 5), random(&[2, 2], 6)];
    assert_near(&context.run_values(&given).unwrap(), &interpret(&graph, given.clone()).unwrap());
}
