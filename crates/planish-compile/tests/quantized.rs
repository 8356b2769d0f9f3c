//! Graphs with explicit quantization: products of bytes run as one integer kernel, and the plan passes its self-check.

use std::fmt::Write;
use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Arithmetic, Backend};
use planish_op::Value;
use planish_plan::{CertificateState, StepKind};
use planish_runtime::Engine;
use planish_tensor::Tensor;
use planish_testing::Random;

/// Two convolutions of bytes with a depthwise one between them and a residual, then a product of matrices.
fn network(channels: usize) -> Graph {
    let mut random = Random::new(3);
    let mut weights = |n: usize| {
        let list: Vec<String> = (0..n).map(|_| (random.below(255) as i64 - 127).to_string()).collect();
        list.join(", ")
    };
    let scales: Vec<String> = (0..channels).map(|c| format!("{}", 0.002 + 0.0001 * c as f64)).collect();
    let mut text = String::from("graph \"quantized\" {\n input %x: f32[n,C,6,5]\n");
    let _ = write!(
        text,
        "const %sx: f32[] = 0.02 const %zx: u8[] = 128 const %sa: f32[] = 0.01 const %za: u8[] = 0
         const %sw: f32[C] = [{scales}]
         const %w1: i8[C,C,3,3] = [{w1}] const %w2: i8[C,C,1,1] = [{w2}] const %w3: i8[C,8] = [{w3}]
         const %wd: i8[C,1,3,3] = [{wd}] const %sd: f32[] = 0.004
         const %s3: f32[] = 0.003 const %b: f32[C] = [{bias}]
         %q: u8[n,C,6,5] = QuantizeLinear(%x, %sx, %zx) \"q\"
         %d1: f32[n,C,6,5] = DequantizeLinear(%q, %sx, %zx) \"d1\"
         %v1: f32[C,C,3,3] = DequantizeLinear(%w1, %sw) {{axis=0}} \"v1\"
         %c1: f32[n,C,6,5] = Conv(%d1, %v1, %b) {{pads=[1,1,1,1]}} \"c1\"
         %r1: f32[n,C,6,5] = Relu(%c1) \"r1\"
         %q1: u8[n,C,6,5] = QuantizeLinear(%r1, %sa, %za) \"q1\"
         %dd: f32[n,C,6,5] = DequantizeLinear(%q1, %sa, %za) \"dd\"
         %vd: f32[C,1,3,3] = DequantizeLinear(%wd, %sw) {{axis=0}} \"vd\"
         %cd: f32[n,C,6,5] = Conv(%dd, %vd, %b) {{pads=[1,1,1,1], group={channels}}} \"cd\"
         %qd: u8[n,C,6,5] = QuantizeLinear(%cd, %sd, %zx) \"qd\"
         %d2: f32[n,C,6,5] = DequantizeLinear(%qd, %sd, %zx) \"d2\"
         %v2: f32[C,C,1,1] = DequantizeLinear(%w2, %sw) {{axis=0}} \"v2\"
         %c2: f32[n,C,6,5] = Conv(%d2, %v2) \"c2\"
         %dr: f32[n,C,6,5] = DequantizeLinear(%q, %sx, %zx) \"dr\"
         %a2: f32[n,C,6,5] = Add(%c2, %dr) \"a2\"
         %r2: f32[n,C,6,5] = Relu(%a2) \"r2\"
         %q2: u8[n,C,6,5] = QuantizeLinear(%r2, %sa, %za) \"q2\"
         %d3: f32[n,C,6,5] = DequantizeLinear(%q2, %sa, %za) \"d3\"
         %p: f32[n,C,1,1] = GlobalAveragePool(%d3) \"p\"
         const %shape: i64[2] = [-1, C]
         %f: f32[n,C] = Reshape(%p, %shape) \"f\"
         %qf: u8[n,C] = QuantizeLinear(%f, %sa, %za) \"qf\"
         %df: f32[n,C] = DequantizeLinear(%qf, %sa, %za) \"df\"
         %v3: f32[C,8] = DequantizeLinear(%w3, %s3) \"v3\"
         %y: f32[n,8] = MatMul(%df, %v3) \"y\"
         output %y, %q2\n}}",
        scales = scales.join(", "),
        w1 = weights(channels * channels * 9),
        w2 = weights(channels * channels),
        w3 = weights(channels * 8),
        wd = weights(channels * 9),
        bias = (0..channels).map(|c| format!("{}", c as f64 * 0.1 - 0.4)).collect::<Vec<_>>().join(", "),
    );
    text.replace("C,", &format!("{channels},"))
        .replace("[C]", &format!("[{channels}]"))
        .replace(", C]", &format!(", {channels}]"))
        .parse()
        .unwrap()
}

/// Bytes may differ by one where a sum is nearly between two of them; what is made of them by a few such steps.
const UNITS: f64 = 1.0;
const AFTER: f64 = 0.02;

#[test]
fn products_of_bytes_run_as_integer_kernels() {
    let graph = network(12);
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    for tune_level in [0, 2] {
        let options = BuildOptions { tune_level, threads: 2, ..BuildOptions::default() };
        let built =
            build(&graph, std::slice::from_ref(&backend), &options, &mut TimingCache::default()).unwrap();
        assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
        let mut tactics = Vec::new();
        for step in &built.plan.program.steps {
            if let StepKind::Kernel { variants, slow, .. } = &step.kind {
                assert!(!slow, "{} runs on the reference", step.name);
                let is_product =
                    step.region.nodes.iter().any(|node| ["Conv", "MatMul"].contains(&node.op.name()));
                if is_product {
                    assert_eq!(step.numeric.element, Arithmetic::I8, "{}", step.name);
                    tactics.push(variants[0].tactic.name.clone());
                }
            }
        }
        let families: Vec<&str> = tactics.iter().filter_map(|name| name.split('_').next()).collect();
        assert_eq!(families, ["qconv", "qdepthwise", "qconv", "qgemm"], "{tactics:?}");
        let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
        for n in [1, 3] {
            let x = Value::Tensor(Random::new(n).tensor(
                planish_tensor::DType::F32,
                &[n as usize, 12, 6, 5],
                2.0,
            ));
            let want = interpret(&graph, vec![x.clone()]).unwrap();
            let got = engine.context().unwrap().run_values(&[x]).unwrap();
            let floats = |value: &Value| value.as_tensor().map(Tensor::to_f64s).unwrap();
            for ((got, want), most) in got.iter().zip(&want).zip([AFTER, UNITS]) {
                for (got, want) in floats(got).iter().zip(floats(want)) {
                    assert!((got - want).abs() <= most, "{got} against {want}");
                }
            }
        }
    }
}
