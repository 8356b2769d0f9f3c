//! Plans in f16 on a device, f32 outside.

use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, Precision, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Arithmetic, Backend};
use planish_plan::Outcome;
use planish_runtime::Engine;
use planish_tensor::DType;

use crate::device::Fake;
use crate::random;

/// Values of some units rounded to f16 a few times.
const TOLERANCE: f64 = 2e-2;

const MODEL: &str = r#"graph "g" {
    input %x: f32[4, 3]
    const %w: f32[3, 2] = [1, -2, 3, 4, -5, 6]
    const %e: f32[] = [1e-9]
    %p: f32[4, 2] = MatMul(%x, %w) "product"
    %r: f32[4, 2] = Relu(%p) "relu"
    %s: f32[4, 2] = Add(%r, %e) "epsilon"
    %y: f32[4, 2] = Mul(%s, %r) "y"
    output %y
}"#;

fn options(precision: Precision) -> BuildOptions {
    BuildOptions { tune_level: 0, threads: 1, precision, ..BuildOptions::default() }
}

#[test]
fn a_plan_in_f16_keeps_its_interface() {
    let graph: Graph = MODEL.parse().unwrap();
    let fake = Fake::default();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(fake)];
    let built = build(&graph, &backends, &options(Precision::Fp16), &mut TimingCache::default()).unwrap();
    let plan = built.plan;
    assert!(!plan.certificate.checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))));
    let low = plan.program.steps.iter().filter(|step| step.numeric.element == Arithmetic::F16);
    assert!(low.count() >= 1, "{}", plan.describe());
    assert!(plan.weights.iter().any(|weight| weight.dtype == DType::F16));
    let dtype = |value: u32| plan.program.values[value as usize].ty.as_tensor().unwrap().dtype;
    assert!(plan.program.inputs.iter().chain(&plan.program.outputs).all(|&value| dtype(value) == DType::F32));
    assert!(
        built.notes.iter().any(|note| note.contains("--precision fp16: 2 of 4 nodes stay in fp32")
            && note.contains("`epsilon`: its constant `e` loses its small values in f16")),
        "{:?}",
        built.notes
    );
    let given = vec![random(&[4, 3], 3)];
    let expected = interpret(&graph, given.clone()).unwrap();
    let got = Engine::new(plan, backends).unwrap().context().unwrap().run_values(&given).unwrap();
    for (x, y) in
        got[0].as_tensor().unwrap().to_f64s().into_iter().zip(expected[0].as_tensor().unwrap().to_f64s())
    {
        assert!((x - y).abs() <= TOLERANCE * y.abs().max(1.0), "{x} against {y}");
    }
}

#[test]
fn products_in_tf32_are_said_so() {
    let graph: Graph = MODEL.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Fake::default())];
    let built = build(&graph, &backends, &options(Precision::Tf32), &mut TimingCache::default()).unwrap();
    for step in &built.plan.program.steps {
        let expected = if step.region.ops().contains("MatMul") { Arithmetic::Tf32 } else { Arithmetic::F32 };
        assert_eq!(step.numeric.element, expected, "{}", step.name);
    }
    assert!(built.plan.header.options.contains("precision=tf32"));
}

#[test]
fn layers_can_be_kept_in_f32() {
    let graph: Graph = MODEL.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Fake::default())];
    let options = BuildOptions { fp32_layers: vec!["pro*".into()], ..options(Precision::Fp16) };
    let built = build(&graph, &backends, &options, &mut TimingCache::default()).unwrap();
    assert!(
        built.notes.iter().any(|note| note.contains("--layer-precision keeps it in f32")),
        "{:?}",
        built.notes
    );
    assert!(built.plan.weights.iter().all(|weight| weight.dtype == DType::F32));
}

#[test]
fn a_host_without_tensor_cores_refuses_tf32() {
    let graph: Graph = MODEL.parse().unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new())];
    let error = build(&graph, &backends, &options(Precision::Tf32), &mut TimingCache::default()).unwrap_err();
    assert_eq!(*error.kind(), BuildErrorKind::Refused);
    assert!(error.to_string().starts_with("--precision tf32: cpu has"), "{error}");
}
