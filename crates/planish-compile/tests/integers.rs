//! Builds with `--precision int8`, and of models that bring their own quantization.

use std::collections::HashMap;
use std::sync::Arc;

use planish_compile::{
    ActivationRange, BuildErrorKind, BuildOptions, Built, Precision, TimingCache, TimingEntry, TimingKey,
    build, low_layers, quantized,
};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::{CertificateState, Outcome, Step, StepKind};
use planish_runtime::Engine;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

/// A sum that lies in the middle between two integers may fall to either: one step of 255 in one of many values.
const ONE_STEP: f64 = 5e-3;
/// Two layers that round to 8 bits, each by less than a hundredth.
const QUANTIZED: f64 = 3e-2;

fn model() -> Graph {
    let mut random = Random::new(3);
    let mut numbers = |count: usize| -> String {
        let numbers: Vec<String> = (0..count).map(|_| format!("{:.3}", random.unit() - 0.5)).collect();
        numbers.join(", ")
    };
    let text = format!(
        r#"graph "g" {{
        input %x: f32[n,8]
        const %w: f32[8,16] = [{}]
        const %b: f32[16] = [{}]
        const %v: f32[16,8] = [{}]
        const %u: f32[8,4] = [{}]
        %p: f32[n,16] = Gemm(%x, %w, %b) "one"
        %r: f32[n,16] = Relu(%p) "relu"
        %q: f32[n,8] = MatMul(%r, %v) "two"
        %y: f32[n,4] = MatMul(%q, %u) "three"
        output %y
    }}"#,
        numbers(128),
        numbers(16),
        numbers(128),
        numbers(32)
    );
    text.parse().unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn options() -> BuildOptions {
    let range = |min: f32, max: f32| ActivationRange { min, max, threshold: max.max(-min) };
    let ranges = [("x", range(-1.0, 1.0)), ("r", range(0.0, 2.5)), ("q", range(-3.0, 3.0))];
    BuildOptions {
        precision: Precision::Int8,
        ranges: ranges.into_iter().map(|(name, range)| (name.to_string(), range)).collect(),
        tune_level: 0,
        threads: 1,
        ..BuildOptions::default()
    }
}

fn built(graph: &Graph, options: &BuildOptions) -> Result<Built, planish_compile::BuildError> {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    build(graph, &backends, options, &mut TimingCache::default())
}

fn input() -> Vec<Value> {
    let mut random = Random::new(7);
    let numbers: Vec<f32> = (0..40).map(|_| 2.0 * random.unit() as f32 - 1.0).collect();
    vec![Tensor::new(&[5, 8], numbers).unwrap().into()]
}

fn distance(built: Built, graph: &Graph) -> f64 {
    let want = interpret(graph, input()).unwrap()[0].as_tensor().unwrap().to_f64s();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let got = Engine::new(built.plan, backends).unwrap().context().unwrap().run_values(&input()).unwrap();
    let error: f64 =
        got[0].as_tensor().unwrap().to_f64s().iter().zip(&want).map(|(a, b)| (a - b).powi(2)).sum();
    (error / want.iter().map(|value| value * value).sum::<f64>()).sqrt()
}

#[test]
fn a_calibrated_model_is_built_in_integers() {
    let graph = model();
    let built = built(&graph, &options()).unwrap();
    assert!(!built.plan.certificate.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))));
    let notes = built.notes.join("\n");
    assert!(
        notes.contains("--precision int8: 2 of 3 layers are of integers, 89.2 % of the multiplications")
            && notes.contains("1 of 3 layers stay in fp32: `three`: no layer comes after it"),
        "{notes}"
    );
    let distance = distance(built, &graph);
    assert!(distance > 1e-6 && distance < QUANTIZED, "{distance}");
}

#[test]
fn quantized_graphs_build_without_a_calibration() {
    let graph = model();
    let first = built(&graph, &options()).unwrap();
    // As when a plan is built anew from the graph that it carries.
    let again = built(&first.graph, &BuildOptions { ranges: HashMap::new(), ..options() });
    let far = built(&first.graph, &BuildOptions { precision: Precision::Fp32, ..options() }).unwrap();
    assert!(distance(far, &first.graph) < 1e-6);
    match again {
        Ok(again) => assert!(distance(again, &first.graph) < 1e-6),
        // Without kernels for integers the carried weights are floats.
        Err(error) => {
            assert!(error.to_string().contains("no layer of the model can be quantized"), "{error}")
        }
    }
}

#[test]
fn what_cannot_be_quantized_is_said_with_what_to_try() {
    let refusal = |options: &BuildOptions| {
        let error = built(&model(), options).unwrap_err();
        assert_eq!(*error.kind(), BuildErrorKind::Refused);
        error.to_string()
    };
    let none = refusal(&BuildOptions { ranges: HashMap::new(), ..options() });
    assert!(none.starts_with("--precision int8 needs the ranges of the model's values: give"), "{none}");
    let kept = refusal(&BuildOptions { fp32_layers: vec!["*".to_string()], ..options() });
    assert_eq!(
        kept,
        "--precision int8: no layer of the model can be quantized: `one` and 2 more: --layer-precision keeps it in fp32; \
         --layer-precision 'NAMES:int8' takes first and last layers in"
    );
}

/// Builds with the times of `known`, each changed by `time`: the key of the tactic and its median.
fn with_times(
    graph: &Graph,
    known: &TimingCache,
    options: &BuildOptions,
    time: impl Fn(&TimingKey, u64) -> u64,
) -> Built {
    let mut timings = TimingCache::default();
    for (key, entry) in known.iter() {
        // More samples than any build takes, so that nothing replaces it.
        let median_ns = time(key, entry.median_ns);
        timings.insert(key.clone(), TimingEntry { median_ns, spread_ns: 0, n_samples: 1000 });
    }
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    build(graph, &backends, options, &mut timings).unwrap()
}

/// Times of steps that multiply integers, and of all others.
fn price(integers: u64, others: u64) -> impl Fn(&TimingKey, u64) -> u64 {
    move |key, _| if key.tactic.starts_with("qgemm") { integers } else { others }
}

/// Steps whose tactics begin so.
fn n_steps(built: &Built, family: &str) -> usize {
    let is_family = |step: &&Step| match &step.kind {
        StepKind::Kernel { variants, .. } => variants.iter().any(|v| v.tactic.name.starts_with(family)),
        _ => false,
    };
    built.plan.program.steps.iter().filter(is_family).count()
}

/// The layers of a built graph that read integers.
fn integer_layers(built: &Built) -> Vec<String> {
    low_layers(&built.graph, Precision::Int8)
}

#[test]
fn integers_stay_only_where_they_are_measured_to_be_faster() {
    let options = BuildOptions { tune_level: 1, verify: false, ..options() };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let mut known = TimingCache::default();
    build(&model(), &backends, &options, &mut known).unwrap();
    // Three times ahead by the prices of steps: the plans themselves are not run against each other.
    let ahead = |key: &TimingKey, _| if key.tactic.starts_with("gemm") { 500_000 } else { 10 };
    let fast = with_times(&model(), &known, &options, ahead);
    assert_eq!(integer_layers(&fast), ["one", "two"]);
    assert!(!fast.notes.iter().any(|note| note.contains("faster")), "{:?}", fast.notes);

    let slow = with_times(&model(), &known, &options, price(9_000_000, 1_000));
    assert!(integer_layers(&slow).is_empty());
    let note = slow.notes.iter().find(|note| note.contains("which is faster here")).expect("a note says so");
    assert!(note.contains("in fp32") && note.contains("--obey-precision"), "{note}");
    assert!(slow.plan.header.options.contains("precision=fp32"), "{}", slow.plan.header.options);
    assert!(distance(slow, &model()) < 1e-6, "a plan in floats is exact");

    let obeyed = BuildOptions { obey_precision: true, ..options.clone() };
    assert_eq!(
        integer_layers(&with_times(&model(), &known, &obeyed, price(9_000_000, 1_000))),
        ["one", "two"]
    );
    // What is asked for by name stays, and nothing else.
    let pinned = BuildOptions { int8_layers: vec!["two".into()], ..options.clone() };
    assert_eq!(integer_layers(&with_times(&model(), &known, &pinned, price(9_000_000, 1_000))), ["two"]);
    // Nothing is measured, so nothing is known to be slower.
    let unmeasured = BuildOptions { tune_level: 0, ..options };
    assert_eq!(
        integer_layers(&with_times(&model(), &known, &unmeasured, price(9_000_000, 1_000))),
        ["one", "two"]
    );
}

/// A model that brings its integers multiplies floats where that is measured to be faster, and rounds as it says all the same.
#[test]
fn a_model_that_brings_integers_keeps_them_only_where_they_are_faster() {
    let graph = quantized(&model(), &options()).unwrap().graph;
    let options = BuildOptions { tune_level: 1, threads: 1, ..BuildOptions::default() };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let mut known = TimingCache::default();
    build(&graph, &backends, &options, &mut known).unwrap();

    let fast = with_times(&graph, &known, &options, price(10, 500_000));
    assert_eq!(n_steps(&fast, "qgemm"), 2);
    let slow = with_times(&graph, &known, &options, price(9_000_000, 1_000));
    assert_eq!(n_steps(&slow, "qgemm"), 0, "{:?}", slow.notes);
    assert!(
        slow.notes.iter().any(|note| note.starts_with("the model's integers: the plan is in fp32")),
        "{:?}",
        slow.notes
    );
    assert_eq!(slow.plan.certificate.state(), CertificateState::Checked);
    assert!(distance(slow, &graph) < ONE_STEP, "values are rounded as the model says");

    for kept in [
        BuildOptions { obey_precision: true, ..options.clone() },
        BuildOptions { strongly_typed: true, ..options.clone() },
    ] {
        assert_eq!(n_steps(&with_times(&graph, &known, &kept, price(9_000_000, 1_000)), "qgemm"), 2);
    }
}

/// A bidirectional LSTM of 64 units over 32 channels.
fn recurrent() -> Graph {
    let mut random = Random::new(5);
    let mut numbers = |count: usize| -> String {
        let numbers: Vec<String> =
            (0..count).map(|_| format!("{:.3}", 0.4 * (random.unit() - 0.5))).collect();
        numbers.join(", ")
    };
    let text = format!(
        r#"graph "r" {{
        input %x: f32[t,n,32]
        const %w: f32[2,256,32] = [{}]
        const %r: f32[2,256,64] = [{}]
        const %b: f32[2,512] = [{}]
        %y: f32[t,2,n,64] = LSTM(%x, %w, %r, %b) {{hidden_size=64, direction="bidirectional"}} "layer"
        output %y
    }}"#,
        numbers(2 * 256 * 32),
        numbers(2 * 256 * 64),
        numbers(2 * 512)
    );
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Weights of bytes are off by some hundredths of a per cent of a row's largest each, in sums of some hundred.
const BYTES: f64 = 1e-2;

#[test]
fn recurrent_layers_read_weights_of_bytes() {
    let graph = recurrent();
    let plain = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let stored = BuildOptions { weights: Some("int8".parse().unwrap()), ..plain.clone() };
    let lowered = BuildOptions {
        precision: Precision::Int8,
        dynamic: Some(planish_compile::DynamicRange::Row),
        ..plain.clone()
    };
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    for options in [stored, lowered] {
        let built = built(&graph, &options).unwrap();
        // With VNNI bytes meet bytes.
        let n = n_steps(&built, "recurrent_i8") + n_steps(&built, "recurrent_digits");
        assert_eq!(n, 1, "{:?}", built.notes);
        let note = "1 of 1 recurrent layers have weights of bytes";
        assert!(built.notes.iter().any(|known| known.contains(note)), "{:?}", built.notes);
        assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
        let engine = Engine::new(built.plan, backends.clone()).unwrap();
        for (steps, rows) in [(9, 1), (4, 21)] {
            let x = Value::Tensor(Random::new(2).tensor(DType::F32, &[steps, rows, 32], 1.0));
            let want = interpret(&graph, vec![x.clone()]).unwrap()[0].as_tensor().unwrap().to_f64s();
            let got = engine.context().unwrap().run_values(&[x]).unwrap()[0].as_tensor().unwrap().to_f64s();
            let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
            let wrong = square(&mut got.iter().zip(&want).map(|(a, b)| a - b));
            let distance = (wrong / square(&mut want.iter().copied())).sqrt();
            assert!(distance > 0.0 && distance < BYTES, "{distance}");
        }
    }
    assert_eq!(n_steps(&built(&graph, &plain).unwrap(), "recurrent_f32"), 1);
}
