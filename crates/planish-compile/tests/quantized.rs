//! Graphs with explicit quantization: products of bytes run as one integer kernel, and the plan passes its self-check.

use std::fmt::Write;
use std::sync::Arc;

use planish_compile::{BuildOptions, Precision, TimingCache, build, optimized};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Arithmetic, Backend};
use planish_op::Value;
use planish_plan::{CertificateState, Plan, StepKind};
use planish_runtime::Engine;
use planish_tensor::{DType, Tensor};
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
        // Whichever is faster at these sizes: what runs as integers is what is tested.
        let options =
            BuildOptions { tune_level, threads: 2, obey_precision: true, ..BuildOptions::default() };
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

/// A convolution and a product of matrices as ONNX Runtime's dynamic quantization leaves them.
fn quantized_as_it_runs() -> Graph {
    let mut random = Random::new(5);
    let mut weights = |n: usize, low: i64| {
        let list: Vec<String> = (0..n).map(|_| (random.below(255) as i64 + low).to_string()).collect();
        list.join(", ")
    };
    let text = format!(
        "graph \"dynamic\" {{
         input %x: f32[n,8,6,5]
         const %w1: u8[12,8,3,3] = [{w1}] const %z1: u8[] = 121 const %s1: f32[] = 0.01
         const %b1: f32[12] = [{b1}] const %bias_shape: i64[4] = [1, -1, 1, 1]
         const %w2: i8[12,7] = [{w2}] const %z2: i8[] = 0 const %s2: f32[] = 0.02
         const %b2: f32[7] = [1, 2, 3, 4, 5, 6, 7] const %shape: i64[2] = [-1, 12]
         %q1: u8[n,8,6,5], %qs1: f32[], %qz1: u8[] = DynamicQuantizeLinear(%x) \"q1\"
         %c1: i32[n,12,6,5] = ConvInteger(%q1, %w1, %qz1, %z1) {{pads=[1,1,1,1]}} \"c1\"
         %t1: f32[] = Mul(%qs1, %s1) \"t1\"
         %d1: f32[12] = Div(%b1, %t1) \"d1\" %e1: f32[12] = Floor(%d1) \"e1\" %f1: i32[12] = Cast(%e1) {{to=i32}} \"f1\"
         %g1: i32[1,12,1,1] = Reshape(%f1, %bias_shape) \"g1\" %h1: i32[n,12,6,5] = Add(%c1, %g1) \"h1\"
         %i1: f32[n,12,6,5] = Cast(%h1) {{to=f32}} \"i1\" %j1: f32[n,12,6,5] = Mul(%i1, %t1) \"j1\"
         %r1: f32[n,12,6,5] = Relu(%j1) \"r1\"
         %p: f32[n,12,1,1] = GlobalAveragePool(%r1) \"p\" %f: f32[n,12] = Reshape(%p, %shape) \"f\"
         %q2: u8[n,12], %qs2: f32[], %qz2: u8[] = DynamicQuantizeLinear(%f) \"q2\"
         %c2: i32[n,7] = MatMulInteger(%q2, %w2, %qz2, %z2) \"c2\" %i2: f32[n,7] = Cast(%c2) {{to=f32}} \"i2\"
         %t2: f32[] = Mul(%qs2, %s2) \"t2\" %j2: f32[n,7] = Mul(%i2, %t2) \"j2\"
         %y: f32[n,7] = Add(%j2, %b2) \"y\"
         output %y
         }}",
        w1 = weights(12 * 8 * 9, 0),
        w2 = weights(12 * 7, -127),
        b1 = (0..12).map(|c| format!("{}", f64::from(c) * 0.1 - 0.4)).collect::<Vec<_>>().join(", "),
    );
    text.parse().unwrap()
}

/// The families of a plan's kernels, none of which is the reference.
fn families(plan: &Plan) -> Vec<String> {
    let mut families = Vec::new();
    for step in &plan.program.steps {
        if let StepKind::Kernel { variants, slow, .. } = &step.kind {
            assert!(!slow, "{} runs on the reference", step.name);
            families.extend(variants[0].tactic.name.split('_').next().map(str::to_string));
        }
    }
    families
}

/// The second product reads integers that are found while it runs: one of them may differ by a step, 0.4 % of its range.
const AFTER_A_STEP: f64 = 0.1;

#[test]
fn dynamically_quantized_products_run_as_integer_kernels() {
    let graph = quantized_as_it_runs();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let built = build(&graph, std::slice::from_ref(&backend), &options, &mut TimingCache::default()).unwrap();
    assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
    let families = families(&built.plan);
    let has = |family: &str| families.iter().filter(|name| *name == family).count();
    assert_eq!((has("dynquant"), has("qconv"), has("qgemm")), (2, 1, 1), "{families:?}");
    let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
    for n in [1, 3] {
        let dims = [n as usize, 8, 6, 5];
        let x = Value::Tensor(Random::new(n).tensor(planish_tensor::DType::F32, &dims, 2.0));
        let want = interpret(&graph, vec![x.clone()]).unwrap();
        let got = engine.context().unwrap().run_values(&[x]).unwrap();
        let floats = |value: &Value| value.as_tensor().map(Tensor::to_f64s).unwrap();
        for (got, want) in floats(&got[0]).iter().zip(floats(&want[0])) {
            assert!((got - want).abs() <= AFTER_A_STEP, "{got} against {want}");
        }
    }
}

/// Three layers with weights of 4 and 8 bits in blocks; the blocks of the last are none that a kernel takes.
fn with_weights_in_blocks() -> Graph {
    let mut random = Random::new(6);
    let mut weights = |n: usize, from: i64, to: usize| {
        let list: Vec<String> = (0..n).map(|_| (random.below(to) as i64 + from).to_string()).collect();
        list.join(", ")
    };
    let scales = |n: usize| (0..n).map(|i| format!("{}", 0.01 + 0.001 * (i % 7) as f64)).collect::<Vec<_>>();
    let text = format!(
        "graph \"blocks\" {{
         input %x: f32[n,48]
         const %w1: u4[48,40] = [{w1}] const %s1: f32[3,40] = [{s1}] const %z1: u4[3,40] = [{z1}]
         const %w2: i8[36,40] = [{w2}] const %s2: f32[36,2] = [{s2}] const %b2: f32[36] = [{b2}]
         const %w3: i4[36,10] = [{w3}] const %s3: f32[3,10] = [{s3}]
         %v1: f32[48,40] = DequantizeLinear(%w1, %s1, %z1) {{axis=0, block_size=16}} \"v1\"
         %p1: f32[n,40] = MatMul(%x, %v1) \"p1\" %r1: f32[n,40] = Relu(%p1) \"r1\"
         %v2: f32[36,40] = DequantizeLinear(%w2, %s2) {{axis=1, block_size=32}} \"v2\"
         %p2: f32[n,36] = Gemm(%r1, %v2, %b2) {{trans_b=true}} \"p2\"
         %v3: f32[36,10] = DequantizeLinear(%w3, %s3) {{axis=0, block_size=12}} \"v3\"
         %y: f32[n,10] = MatMul(%p2, %v3) \"y\"
         output %y
         }}",
        w1 = weights(48 * 40, 0, 16),
        z1 = weights(3 * 40, 0, 16),
        w2 = weights(36 * 40, -127, 255),
        w3 = weights(36 * 10, -8, 16),
        s1 = scales(3 * 40).join(", "),
        s2 = scales(36 * 2).join(", "),
        s3 = scales(3 * 10).join(", "),
        b2 = scales(36).join(", "),
    );
    text.parse().unwrap()
}

/// Sums of f32 over 48 products, twice, of results around 10.
const OF_SUMS: f64 = 1e-4;

#[test]
fn weights_in_blocks_are_read_as_they_are_stored() {
    let graph = with_weights_in_blocks();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
    let built = build(&graph, std::slice::from_ref(&backend), &options, &mut TimingCache::default()).unwrap();
    assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
    assert_eq!(families(&built.plan), ["nbits", "nbits", "gemm"]);
    let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
    for n in [1, 20] {
        let x = Value::Tensor(Random::new(n).tensor(planish_tensor::DType::F32, &[n as usize, 48], 2.0));
        let want = interpret(&graph, vec![x.clone()]).unwrap();
        let got = engine.context().unwrap().run_values(&[x]).unwrap();
        let floats = |value: &Value| value.as_tensor().map(Tensor::to_f64s).unwrap();
        for (got, want) in floats(&got[0]).iter().zip(floats(&want[0])) {
            assert!((got - want).abs() <= OF_SUMS * want.abs().max(1.0), "{got} against {want}");
        }
    }
}

/// On a GPU too, whatever rows are stored in: what no kernel reads (blocks of 12) becomes floats.
#[test]
fn weights_in_blocks_stay_integers_for_a_gpu() {
    let graph = with_weights_in_blocks();
    let gpu = planish_cuda::Gpu::known("h200").unwrap();
    let backends: Vec<Arc<dyn Backend>> =
        vec![Arc::new(Cpu::new()), Arc::new(planish_cuda::Cuda::planned(gpu))];
    for (precision, made) in
        [(Precision::Fp32, DType::F32), (Precision::Fp16, DType::F16), (Precision::Bf16, DType::BF16)]
    {
        let options = BuildOptions { precision, tune_level: 0, ..BuildOptions::default() };
        let graph = optimized(&graph, &backends, &options).unwrap();
        let dequantized: Vec<&str> = graph
            .nodes()
            .filter(|(_, node)| matches!(node.op, planish_op::Op::DequantizeLinear(_)))
            .map(|(_, node)| {
                let output = node.outputs[0].unwrap();
                assert_eq!(graph.value(output).ty.as_tensor().unwrap().dtype, made, "{precision:?}");
                &*node.name
            })
            .collect();
        assert_eq!(dequantized, ["v1", "v2"], "{precision:?}");
    }
}
