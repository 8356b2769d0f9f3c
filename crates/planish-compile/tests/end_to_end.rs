//! Graphs built into plans and run: the outputs must be the reference's.

use std::sync::Arc;

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::{Profile, StepKind, SymbolRange};
use planish_runtime::Engine;
use planish_tensor::Tensor;

/// Relative to the largest output: kernels sum in f32 where the reference sums in f64.
const TOLERANCE: f64 = 1e-5;

fn random(shape: &[usize], seed: u64) -> Value {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let n: usize = shape.iter().product();
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    Value::Tensor(Tensor::new(shape, (0..n).map(|_| next()).collect()).unwrap())
}

#[track_caller]
fn check(text: &str, inputs: &[Value]) {
    let graph: Graph = text.parse().unwrap();
    let expected = interpret(&graph, inputs.to_vec()).unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    for tune_level in [0, 1] {
        let options = BuildOptions { tune_level, threads: 2, ..BuildOptions::default() };
        let built =
            build(&graph, std::slice::from_ref(&backend), &options, &mut TimingCache::default()).unwrap();
        let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
        let mut context = engine.context().unwrap();
        context.set_poison(true);
        for _ in 0..2 {
            let outputs = context.run_values(inputs).unwrap();
            assert_eq!(outputs.len(), expected.len());
            for (got, want) in outputs.iter().zip(&expected) {
                same(got, want);
            }
        }
    }
}

#[track_caller]
fn same(got: &Value, want: &Value) {
    match (got, want) {
        (Value::Tensor(got), Value::Tensor(want)) => {
            assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()));
            let (got, want) = (got.to_f64s(), want.to_f64s());
            let largest = want.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            for (x, y) in got.iter().zip(&want) {
                assert!((x - y).abs() <= TOLERANCE * largest, "{x} against {y}");
            }
        }
        (Value::Sequence(got), Value::Sequence(want)) => {
            assert_eq!(got.len(), want.len());
            got.iter().zip(want).for_each(|(got, want)| same(got, want));
        }
        _ => panic!("{got:?} is of another kind than {want:?}"),
    }
}

#[test]
fn a_chain_with_a_view_and_two_outputs() {
    check(
        r#"graph "g" {
            input %x: f32[2, 6]
            %a: f32[2, 6] = Relu(%x)
            const %s: i64[2] = [3, 4]
            %b: f32[3, 4] = Reshape(%a, %s)
            %c: f32[3, 4] = Exp(%b)
            output %c, %a
        }"#,
        &[random(&[2, 6], 1)],
    );
}

#[test]
fn an_output_that_is_an_input() {
    check(
        r#"graph "g" {
            input %x: f32[3]
            %y: f32[3] = Neg(%x)
            output %x, %y
        }"#,
        &[random(&[3], 1)],
    );
}

#[test]
fn sizes_that_only_a_run_can_tell() {
    check(
        r#"graph "g" {
            input %x: f32[4, 5]
            %r: f32[4, 5] = Relu(%x)
            %n: i64[2, "n'0"] = NonZero(%r)
            %t: i64["n'0", 2] = Transpose(%n) { perm = [1, 0] }
            %g: f32["n'0"] = GatherND(%r, %t)
            %e: f32["n'0"] = Exp(%g)
            output %e, %t
        }"#,
        &[random(&[4, 5], 3)],
    );
}

/// The transpose may be a view of its input in another layout, and with equal sizes nothing but the layout tells
/// the two apart.
#[test]
fn transposes_of_squares_and_cubes() {
    check(
        r#"graph "g" {
            input %x: f32[2, 16, 16]
            input %y: f32[2, 16, 16]
            %t: f32[2, 16, 16] = Transpose(%x) { perm = [0, 2, 1] }
            %m: f32[2, 16, 16] = MatMul(%t, %y)
            %r: f32[2, 16, 16] = Relu(%t)
            output %m, %r
        }"#,
        &[random(&[2, 16, 16], 1), random(&[2, 16, 16], 2)],
    );
    check(
        r#"graph "g" {
            input %x: f32[2, 8, 8, 8]
            %t: f32[2, 8, 8, 8] = Transpose(%x) { perm = [0, 2, 3, 1] }
            %r: f32[2, 8, 8, 8] = Exp(%t)
            output %r
        }"#,
        &[random(&[2, 8, 8, 8], 3)],
    );
}

#[test]
fn a_step_takes_the_tactic_that_is_faster_at_its_size() {
    let weight: Vec<String> = (0..32 * 32 * 9).map(|at| format!("0.{:02}", at * 37 % 100)).collect();
    let text = format!(
        "graph \"g\" {{ input %x: f32[n, 32, 12, 12] const %w: f32[32, 32, 3, 3] = [{}]
         %y: f32[n, 32, 10, 10] = Conv(%x, %w) {{ kernel_shape = [3, 3] }} output %y }}",
        weight.join(",")
    );
    let graph: Graph = text.parse().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let range = SymbolRange { symbol: "n".into(), min: 1, opt: 8, max: 8 };
    let mut options = BuildOptions {
        tune_level: 1,
        threads: 1,
        profiles: vec![Profile { ranges: vec![range] }],
        // Two tactics that read one packing.
        selector: Some(Arc::new(|_, candidate| {
            ["conv_igemm", "conv_band"].iter().any(|name| candidate.tactic.name.contains(name))
                || candidate.slow
        })),
        ..BuildOptions::default()
    };
    let mut timings = TimingCache::default();
    let build = |options: &BuildOptions, timings: &mut TimingCache| {
        build(&graph, std::slice::from_ref(&backend), options, timings).unwrap()
    };
    build(&options, &mut timings);
    // The same problems with times made up: one tactic for one image, the other for more.
    let known: Vec<_> = timings.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
    let mut names: Vec<String> = known.iter().map(|(key, _)| key.tactic.clone()).collect();
    names.sort();
    names.dedup();
    assert!(names.len() > 1, "there is one tactic only: {names:?}");
    let is_one = |problem: &str| problem.contains("[1,32,12,12]") || problem.contains("1x32x12x12");
    assert!(known.iter().any(|(key, _)| is_one(&key.problem)), "{:?}", known.first());
    for (mut key, mut entry) in known {
        // Every tactic gets a time for every problem, so that nothing is measured.
        for (place, name) in (1..).zip(&names) {
            key.tactic.clone_from(name);
            entry.median_ns = if is_one(&key.problem) { 1_000 * place } else { 1_000_000 / place };
            timings.insert(key.clone(), entry);
        }
    }
    options.timing_cache_only = true;
    let built = build(&options, &mut timings);
    let StepKind::Kernel { variants, .. } = &built.plan.program.steps[0].kind else { panic!("no kernel") };
    assert_eq!(variants.len(), 2, "{variants:?}");
    assert_eq!(variants[0].up_to, [("n".to_string(), 1)]);
    assert!(variants[1].up_to.is_empty() && variants[0].tactic != variants[1].tactic, "{variants:?}");
    let checked = built.plan.certificate.checks.iter().any(|check| check.subject.contains("at n=1"));
    assert!(checked, "the tactic of the smallest size is checked there");
    let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
    let mut context = engine.context().unwrap();
    for n in [1, 2, 8] {
        let x = random(&[n, 32, 12, 12], n as u64);
        let expected = interpret(&graph, vec![x.clone()]).unwrap();
        same(&context.run_values(&[x]).unwrap()[0], &expected[0]);
    }
}
