//! Indices out of range: an error on a GPU as on the CPU, with the same words, however the run is asked for; and code that
//! serves the engine of its own plan alone.
//!
//! What holds on both runs on the CPU and on the first GPU; without one the latter is ignored, and says why. The binary
//! runs alone: carry it to a machine with a GPU and start it there.

mod harness;

use std::process::ExitCode;

use libtest_mimic::Arguments;
use planish::{
    Bindings, Builder, CodeFrom, Context, Device, Engine, EngineOptions, ErrorKind, Plan, PrivateKey,
};
use planish_ir::Graph;
use planish_op::Value;
use planish_plan::StepKind;
use planish_tensor::{Bytes, Tensor};

use harness::{on_cpu, on_gpu};

/// At the first run steps are launched, at the second captured, from then on replayed.
const N_RUNS: usize = 4;

/// A name, and a test that is handed the device.
type Test = (&'static str, fn(Device));

const ON_BOTH: [Test; 2] = [
    (
        "every_lookup_and_write_tells_of_an_index_out_of_range",
        every_lookup_and_write_tells_of_an_index_out_of_range,
    ),
    (
        "runs_beside_the_caller_and_overlapping_runs_tell_too",
        runs_beside_the_caller_and_overlapping_runs_tell_too,
    ),
];

const ON_GPU: [Test; 4] = [
    ("runs_in_device_memory_tell_with_the_next_call", runs_in_device_memory_tell_with_the_next_call),
    ("code_serves_its_own_engine_alone", code_serves_its_own_engine_alone),
    ("code_whose_headers_lead_outside_is_refused", code_whose_headers_lead_outside_is_refused),
    ("memory_comes_back_when_engines_are_closed", memory_comes_back_when_engines_are_closed),
];

fn main() -> ExitCode {
    let both = ON_BOTH.into_iter().flat_map(|(name, test)| [on_cpu(name, test), on_gpu(name, test)]);
    let trials = both.chain(ON_GPU.map(|(name, test)| on_gpu(name, test))).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn plan(text: &str, device: Device) -> Plan {
    let graph: Graph = text.parse().unwrap();
    let mut builder = Builder::from_graph(graph).device(device).tune_level(0).threads(2);
    // The sizes are those of tests: it would be cheaper on the host.
    builder.options_mut().price_transfers = false;
    let plan = builder.build().unwrap();
    if device != Device::Cpu {
        let is_there = |step: &planish_plan::Step| {
            let op = step.region.ops();
            let looks_up = op.contains("Gather") || op.contains("Scatter");
            step.target == 1 && looks_up && matches!(step.kind, StepKind::Kernel { .. })
        };
        assert!(plan.record().program.steps.iter().any(is_there), "nothing is looked up on {device}");
    }
    plan
}

fn index(dims: &[usize], values: &[i64]) -> Value {
    Value::Tensor(Tensor::new(dims, values.to_vec()).unwrap())
}

const GATHER: (&[usize], &str) = (&[2], "Gather(%t, %i) {axis=0}");

/// Sizes of an index, and what looks something up or writes by it; each has one index of an axis of five at each place.
const CALLS: [(&[usize], &str); 6] = [
    GATHER,
    (&[2, 2], "GatherElements(%t, %i) {axis=0}"),
    (&[2, 1], "GatherND(%t, %i)"),
    (&[2, 2], "ScatterElements(%t, %i, %u) {axis=0}"),
    (&[2, 1], "ScatterND(%t, %i, %u)"),
    (&[2, 1], "ScatterND(%t, %i, %u) {reduction=\"max\"}"),
];

/// A model of one such call.
fn model((index, call): (&[usize], &str)) -> String {
    let (updates, rows) = match call.starts_with("Scatter") {
        true => ("const %u: f32[2, 2] = [10, 20, 30, 40]", 5),
        false => ("", 2),
    };
    format!(
        r#"graph "model" {{
            input %i: i64{index:?}
            const %t: f32[5, 2] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
            {updates}
            %e: f32[{rows}, 2] = {call}
            %y: f32[{rows}, 2] = Add(%e, %e)
            output %y
        }}"#
    )
}

#[track_caller]
fn assert_told(error: &str, index: i64) {
    assert!(error.contains(&format!("index {index} is outside an axis of size 5")), "{error}");
    assert!(error.starts_with("step `"), "{error}");
}

fn every_lookup_and_write_tells_of_an_index_out_of_range(device: Device) {
    for (dims, call) in CALLS {
        let plan = plan(&model((dims, call)), device);
        let mut context = Engine::new(plan, device).unwrap().context().unwrap();
        let n: usize = dims.iter().product();
        let with = |last: i64| {
            let mut values: Vec<i64> = (0..n as i64).collect();
            values[n - 1] = last;
            [self::index(dims, &values)]
        };
        let right = context.run_values(&with(4)).unwrap();
        for _ in 0..N_RUNS {
            for wrong in [5, -6, 1_000_000] {
                let error = context.run_values(&with(wrong)).unwrap_err().to_string();
                assert_told(&error, wrong);
            }
            // The ends of the range are inside, and nothing is left of the error.
            context.run_values(&with(-5)).unwrap();
            assert_eq!(context.run_values(&with(4)).unwrap(), right, "{call}");
        }
    }
}

fn bindings(context: &Context, given: &[i64; 2]) -> Bindings {
    let mut buffer = context.input_buffer("i", &[2]).unwrap();
    buffer.as_mut_slice::<i64>().unwrap().copy_from_slice(given);
    Bindings::new().input("i", buffer).output("y", context.output_buffer("y", &[2, 2]).unwrap())
}

fn runs_beside_the_caller_and_overlapping_runs_tell_too(device: Device) {
    let mut context = Engine::new(plan(&model(GATHER), device), device).unwrap().context().unwrap();
    for _ in 0..N_RUNS {
        let wrong = bindings(&context, &[0, 9]);
        assert_told(&context.run_async(wrong).unwrap().wait().unwrap_err().to_string(), 9);
        let right = bindings(&context, &[0, 4]);
        context.run_async(right).unwrap().wait().unwrap();
    }
    if device == Device::Cpu {
        // There each run is over when it is pushed.
        return;
    }
    for pattern in 0u32..64 {
        let is_wrong = |at: usize| pattern >> at & 1 == 1;
        let ready: Vec<Bindings> =
            (0..6).map(|at| bindings(&context, &[1, if is_wrong(at) { 5 + at as i64 } else { 4 }])).collect();
        let mut pipeline = context.pipeline().unwrap();
        let mut seen = Vec::new();
        for bindings in ready {
            if pipeline.len() == 2 {
                seen.push(pipeline.pop().map(|_| ()));
            }
            pipeline.push(bindings).unwrap();
        }
        while !pipeline.is_empty() {
            seen.push(pipeline.pop().map(|_| ()));
        }
        for (at, seen) in seen.into_iter().enumerate() {
            match (is_wrong(at), seen) {
                (true, Err(error)) => assert_told(&error.to_string(), 5 + at as i64),
                (wrong, seen) => assert!(!wrong && seen.is_ok(), "{pattern:b} at {at}: {seen:?}"),
            }
        }
    }
}

fn runs_in_device_memory_tell_with_the_next_call(device: Device) {
    let engine = Engine::new(plan(&model(GATHER), device), device).unwrap();
    let mut context = engine.context().unwrap();
    // On the context's own stream a run is waited for.
    for wrong in [7, -8] {
        for _ in 0..N_RUNS {
            let outside = bindings(&context, &[wrong, 0]);
            let error = context.run_async(outside).unwrap().wait().unwrap_err().to_string();
            assert_told(&error, wrong);
            context.synchronize().unwrap();
        }
    }
}

/// The plan with the code of one kernel under the key of another.
fn swapped(plan: &Plan) -> Plan {
    let mut record = plan.record().clone();
    let first = record.code[0].bytes.clone();
    for code in &mut record.code {
        code.bytes = first.clone();
    }
    // It names the checksum of the code that was checked.
    record.certificate = planish_plan::Certificate::default();
    record.into()
}

const PRODUCT: &str = r#"graph "product" {
    input %x: f32[4, 8]
    const %w: f32[8, 2] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    %p: f32[4, 2] = MatMul(%x, %w)
    %s: f32[4, 2] = Softmax(%p) {axis=1}
    output %s
}"#;

fn built(device: Device) -> Plan {
    let mut builder = Builder::from_graph(PRODUCT.parse().unwrap()).device(device).tune_level(0).threads(2);
    builder.options_mut().price_transfers = false;
    builder.options_mut().set_tactic_sources("own", &planish::tactic_sources()).unwrap();
    builder.build().unwrap()
}

fn code_serves_its_own_engine_alone(device: Device) {
    let honest = built(device);
    assert!(honest.record().code.len() > 1, "the plan has one kernel only");
    let x = Value::Tensor(Tensor::new(&[4, 8], (0..32).map(|at| at as f32 / 16.0).collect()).unwrap());
    let output = |engine: &Engine| engine.context().unwrap().run_values(std::slice::from_ref(&x));
    let right = output(&Engine::new(honest.clone(), device).unwrap()).unwrap();
    // A plan with other code is opened before and beside; its kernels are not found in it.
    let forged = Engine::new(swapped(&honest), device).unwrap();
    assert!(output(&forged).is_err(), "the test's own code was not used");
    assert_eq!(output(&Engine::new(honest.clone(), device).unwrap()).unwrap(), right);
    // Nor is a build served by it, nor whoever compiles here.
    assert_eq!(built(device).record().code, honest.record().code);
    let options = EngineOptions { code: CodeFrom::CompileHere, ..EngineOptions::default() };
    let compiled = Engine::with_options(swapped(&honest), device, options).unwrap();
    assert_eq!(output(&compiled).unwrap(), right);
    // Signed code is taken, anything else is refused.
    let key = PrivateKey::from_random(&[7; 32]);
    let signature = Box::new(key.sign(&honest.record().fingerprint().unwrap()));
    let code = CodeFrom::Signed { keys: vec![key.public()], signature };
    let options = EngineOptions { code, ..EngineOptions::default() };
    let signed = Engine::with_options(honest.clone(), device, options.clone()).unwrap();
    assert_eq!(output(&signed).unwrap(), right);
    let refused = Engine::with_options(swapped(&honest), device, options).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Untrusted);
    assert!(refused.to_string().contains("not trusted"), "{refused}");
}

fn code_whose_headers_lead_outside_is_refused(device: Device) {
    let honest = built(device);
    let x = Value::Tensor(Tensor::new(&[4, 8], vec![1f32; 32]).unwrap());
    for cut in [0, 16, 64, 1000] {
        let mut record = honest.record().clone();
        for code in &mut record.code {
            let len = code.bytes.len().min(cut);
            code.bytes = Bytes::from_vec(code.bytes[..len].to_vec());
        }
        record.certificate = planish_plan::Certificate::default();
        let mut context = Engine::new(record.into(), device).unwrap().context().unwrap();
        let error = context.run_values(std::slice::from_ref(&x)).unwrap_err().to_string();
        assert!(error.contains("compiled code cannot be loaded"), "{error}");
    }
}

fn memory_comes_back_when_engines_are_closed(device: Device) {
    let plan = built(device);
    let x = Value::Tensor(Tensor::new(&[4, 8], vec![1f32; 32]).unwrap());
    let mut free = Vec::new();
    for _ in 0..60 {
        let engine = Engine::new(plan.clone(), device).unwrap();
        engine.context().unwrap().run_values(std::slice::from_ref(&x)).unwrap();
        free.push(engine.device_memory().unwrap().free);
    }
    // The first few take what the process keeps; from then on nothing is lost.
    let (early, late) = (free[10], free[59]);
    assert!(late + (1 << 20) >= early, "{early} bytes were free, {late} are");
}
