//! Graphs built into plans and run: the outputs must be the reference's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use planish_compile::{BuildOptions, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::{Graph, interpret};
use planish_kernel::{Backend, Problem};
use planish_op::Value;
use planish_plan::{CertificateState, Profile, StepKind, SymbolRange, Variant};
use planish_runtime::Engine;
use planish_tensor::Tensor;
use planish_testing::{Random, models};

/// Relative to the largest output: kernels sum in f32 where the reference sums in f64.
const TOLERANCE: f64 = 1e-5;

fn random(shape: &[usize], seed: u64) -> Value {
    Value::Tensor(Random::new(seed).floats(shape))
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

/// The cell of an LSTM for any batch, tuned at one row: there the gates are parts of a product without gaps, elsewhere with. New
/// states written over gates could not be viewed as `[1, batch, 8]` with more rows than one.
#[test]
fn what_is_written_over_a_part_is_not_viewed() {
    let weights: Vec<String> = (0..8 * 32).map(|i| format!("{}", (i * 7 % 11) as f32 / 8.0 - 0.6)).collect();
    let text = format!(
        "graph \"cell\" {{ input %x: f32[batch,8] input %c: f32[batch,8] const %w: f32[8,32] = [{}] const %first: i64[1] = 0 \
         %g: f32[batch,32] = MatMul(%x, %w) \
         %i: f32[batch,8], %f: f32[batch,8], %n: f32[batch,8], %o: f32[batch,8] = Split(%g) {{axis=1, num_outputs=4}} \
         %si: f32[batch,8] = Sigmoid(%i) %sf: f32[batch,8] = Sigmoid(%f) %tn: f32[batch,8] = Tanh(%n) \
         %so: f32[batch,8] = Sigmoid(%o) %kept: f32[batch,8] = Mul(%sf, %c) %new: f32[batch,8] = Mul(%si, %tn) \
         %cell: f32[batch,8] = Add(%kept, %new) %tc: f32[batch,8] = Tanh(%cell) %hidden: f32[batch,8] = Mul(%so, %tc) \
         %a: f32[1,batch,8] = Unsqueeze(%hidden, %first) %b: f32[1,batch,8] = Unsqueeze(%cell, %first) \
         %states: f32[2,batch,8] = Concat(%a, %b) {{axis=0}} output %states }}",
        weights.join(", ")
    );
    for n_rows in [1, 3] {
        check(&text, &[random(&[n_rows, 8], 5), random(&[n_rows, 8], 6)]);
    }
}

/// One channel has a filter, a matrix or a scale of one element: a weight as any other, which kernels read.
#[test]
fn weights_of_one_element_have_kernels() {
    for (name, nodes) in [
        ("filter", "const %w: f32[1,1,1] = 1.5 %y: f32[2,1,30] = Conv(%x, %w)"),
        (
            "filter and bias",
            "const %w: f32[1,1,1] = 1.5 const %b: f32[1] = 2 %y: f32[2,1,30] = Conv(%x, %w, %b)",
        ),
        ("transposed", "const %w: f32[1,1,1] = 1.5 %y: f32[2,1,30] = ConvTranspose(%x, %w)"),
        (
            "norm",
            "const %s: f32[1] = 1.5 const %b: f32[1] = 2 %y: f32[2,1,30] = InstanceNormalization(%x, %s, %b)",
        ),
        (
            "group",
            "const %s: f32[1] = 1.5 const %b: f32[1] = 2 \
                   %y: f32[2,1,30] = GroupNormalization(%x, %s, %b) {num_groups=1}",
        ),
        (
            "product",
            "const %s: i64[2] = [60,1] const %w: f32[1,1] = 1.5 \
                     %r: f32[60,1] = Reshape(%x, %s) %y: f32[60,1] = MatMul(%r, %w)",
        ),
    ] {
        let text = format!("graph \"g\" {{ input %x: f32[2,1,30] {nodes} output %y }}");
        check(&text, &[random(&[2, 1, 30], 3)]);
        let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
        let built = build(
            &text.parse().unwrap(),
            std::slice::from_ref(&backend),
            &BuildOptions { tune_level: 0, ..BuildOptions::default() },
            &mut TimingCache::default(),
        );
        for step in &built.unwrap().plan.program.steps {
            let is_slow = matches!(&step.kind, StepKind::Kernel { slow: true, .. });
            assert!(!is_slow, "{name}: {} runs on the reference", step.name);
        }
    }
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
    check(&models::positive_elements(), &[random(&[4, 5], 3)]);
}

/// Of what a mask keeps, every pair: nothing at all is kept the second time, and there is nothing to search in, nor
/// anything to find.
#[test]
fn sizes_that_a_run_finds_to_be_zero() {
    let text = r#"graph "g" {
        input %x: f32[6]
        const %zero: f32[] = 0
        const %first: i64[1] = [0]
        const %second: i64[1] = [1]
        %m: bool[6] = Greater(%x, %zero)
        %k: f32["n'0"] = Compress(%x, %m) { axis = 0 }
        %c: f32["n'0", 1] = Unsqueeze(%k, %second)
        %r: f32[1, "n'0"] = Unsqueeze(%k, %first)
        %d: f32["n'0", "n'0"] = Sub(%c, %r)
        %a: i64["n'0"] = ArgMax(%d) { axis = 1, keepdims = false }
        output %a, %d
    }"#;
    let values = |list: &[f32]| Value::Tensor(Tensor::new(&[6], list.to_vec()).unwrap());
    check(text, &[values(&[0.5, -1.0, 2.0, 0.25, -3.0, 1.0])]);
    check(text, &[values(&[-1.0; 6])]);
}

/// At images of one pixel the pool would leave nothing for the average, and 0 by 0 is no number: the self-check takes images
/// at which something is left.
#[test]
fn open_sizes_are_checked_where_nothing_becomes_empty() {
    let text = r#"graph "g" {
        input %x: f32[n,3,h,w]
        %a: f32[n,3,"h'","w'"] = MaxPool(%x) { kernel_shape = [5, 5], strides = [3, 3] }
        %y: f32[n,3,1,1] = GlobalAveragePool(%a)
        output %y
    }"#;
    let graph: Graph = text.parse().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let built = build(&graph, &[backend], &options, &mut TimingCache::default()).unwrap();
    assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
    let is_checked =
        |sizes: &str| built.plan.certificate.checks.iter().any(|check| check.subject.contains(sizes));
    assert!(is_checked(" at h=8 n=1 w=8"), "{:?}", built.plan.certificate.checks);
    assert!(!is_checked("h=1 "));
}

/// Below the smallest normal number kernels round to multiples of 2^-149, which is no mistake of theirs.
#[test]
fn numbers_too_small_to_be_normal_pass_the_check() {
    let weight: Vec<String> =
        (0..108).map(|at| format!("{:.3}", (at * 37 % 101) as f64 / 64.0 - 0.75)).collect();
    let text = format!(
        r#"graph "g" {{
        input %x: f32[2,3,8,8]
        const %s: f32[] = 1e-45
        const %z: u8[] = 0
        const %w: f32[4,3,3,3] = [{}]
        %q: u8[2,3,8,8] = QuantizeLinear(%x, %s, %z)
        %d: f32[2,3,8,8] = DequantizeLinear(%q, %s, %z)
        %y: f32[2,4,6,6] = Conv(%d, %w)
        output %y
    }}"#,
        weight.join(", ")
    );
    let graph: Graph = text.parse().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let options = BuildOptions { tune_level: 0, threads: 1, ..BuildOptions::default() };
    let built = build(&graph, &[backend], &options, &mut TimingCache::default()).unwrap();
    assert_eq!(built.plan.certificate.state(), CertificateState::Checked);
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

/// Tactics that were offered for a step, with what they want of memory.
type Offers = Arc<Mutex<BTreeMap<String, String>>>;

#[test]
fn a_step_takes_the_tactic_that_is_faster_at_its_size() {
    let weight: Vec<String> = (0..64 * 64 * 9).map(|at| format!("0.{:02}", at * 37 % 100)).collect();
    let text = format!(
        "graph \"g\" {{ input %x: f32[n, 64, 14, 14] const %w: f32[64, 64, 3, 3] = [{}]
         %y: f32[n, 64, 12, 12] = Conv(%x, %w) {{ kernel_shape = [3, 3] }} output %y }}",
        weight.join(",")
    );
    let graph: Graph = text.parse().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(Cpu::new());
    let range = SymbolRange { symbol: "n".into(), min: 1, opt: 8, max: 8 };
    let build = |options: &BuildOptions, timings: &mut TimingCache| {
        build(&graph, std::slice::from_ref(&backend), options, timings).unwrap()
    };
    let is_conv = |problem: &Problem| problem.region.ops() == "Conv";
    // Two tactics that read the same memory and the same packing.
    let offers: Offers = Arc::default();
    let seen = offers.clone();
    let mut options = BuildOptions {
        tune_level: 0,
        threads: 1,
        profiles: vec![Profile { ranges: vec![range] }],
        selector: Some(Arc::new(move |problem, candidate| {
            if is_conv(problem) && !candidate.slow {
                let wants = format!("{:?} {:?} {:?}", candidate.packed, candidate.inputs, candidate.outputs);
                seen.lock().unwrap().insert(candidate.tactic.name.clone(), wants);
            }
            true
        })),
        ..BuildOptions::default()
    };
    build(&options, &mut TimingCache::default());
    let offers = offers.lock().unwrap().clone();
    let pair = offers.iter().find_map(|(name, wants)| {
        let twin = offers.iter().find(|(other, same)| *other != name && *same == wants)?;
        Some([name.clone(), twin.0.clone()])
    });
    let pair = pair.unwrap_or_else(|| panic!("no two tactics read one packing: {offers:?}"));
    let only = pair.clone();
    options.tune_level = 1;
    options.selector =
        Some(Arc::new(move |problem, candidate| !is_conv(problem) || only.contains(&candidate.tactic.name)));
    let mut timings = TimingCache::default();
    build(&options, &mut timings);
    // The same problems with times made up: the first for one image, the second for more.
    let known: Vec<_> = timings.iter().map(|(key, entry)| (key.clone(), *entry)).collect();
    for (key, mut entry) in known {
        let Some(place) = pair.iter().position(|name| key.tactic.starts_with(name.as_str())) else {
            continue;
        };
        let is_one = key.problem.contains("[1x64x14x14]");
        entry.median_ns = if (place == 0) == is_one { 1_000 } else { 1_000_000 };
        timings.insert(key, entry);
    }
    options.timing_cache_only = true;
    let built = build(&options, &mut timings);
    let kernels = built.plan.program.steps.iter().filter_map(|step| match &step.kind {
        StepKind::Kernel { variants, .. } if step.region.ops() == "Conv" => Some(variants.clone()),
        _ => None,
    });
    let variants: Vec<Variant> = kernels.flatten().collect();
    let named: Vec<&str> = variants.iter().map(|variant| variant.tactic.name.as_str()).collect();
    assert_eq!(named, pair, "{variants:?}");
    assert_eq!(variants[0].up_to, [("n".to_string(), 1)]);
    assert!(variants[1].up_to.is_empty());
    let checked = built.plan.certificate.checks.iter().any(|check| check.subject.contains("at n=1"));
    assert!(checked, "the tactic of the smallest size is checked there");
    let engine = Engine::new(built.plan, vec![backend.clone()]).unwrap();
    let mut context = engine.context().unwrap();
    for n in [1, 2, 8] {
        let x = random(&[n, 64, 14, 14], n as u64);
        let expected = interpret(&graph, vec![x.clone()]).unwrap();
        same(&context.run_values(&[x]).unwrap()[0], &expected[0]);
    }

    // Two profiles, the second for small sizes: each has its own tactics.
    let range = |min, opt, max| SymbolRange { symbol: "n".into(), min, opt, max };
    options.profiles = [range(8, 8, 8), range(1, 1, 2)].map(|range| Profile { ranges: vec![range] }).into();
    let built = build(&options, &mut timings);
    let of_conv = |plan: &planish_plan::Plan| -> Vec<Variant> {
        let convs = plan.program.steps.iter().filter(|step| step.region.ops() == "Conv");
        let kernels = convs.map(|step| match &step.kind {
            StepKind::Kernel { variants, .. } => variants.clone(),
            _ => Vec::new(),
        });
        kernels.flatten().collect()
    };
    let variants = of_conv(&built.plan);
    let seen: Vec<(&str, Option<i64>, Option<i64>)> = variants
        .iter()
        .map(|one| {
            let size = |list: &[(String, i64)]| list.first().map(|(_, size)| *size);
            (one.tactic.name.as_str(), size(&one.from), size(&one.up_to))
        })
        .collect();
    let (small, large) = (pair[0].as_str(), pair[1].as_str());
    let want = [
        (large, Some(8), Some(8)),
        (small, Some(1), Some(1)),
        (large, Some(1), Some(2)),
        (large, None, None),
    ];
    assert_eq!(seen, want);
    let checked =
        |size: &str| built.plan.certificate.checks.iter().any(|check| check.subject.ends_with(size));
    assert!(checked(" at n=1") && checked(" at n=2"), "the second profile is checked at its own sizes");
    let step = built.plan.program.steps.iter().find(|step| step.region.ops() == "Conv").unwrap();
    for (n, name) in [(1, small), (2, large), (8, large)] {
        let tactic = planish_runtime::tactic_at(step, &[("n".to_string(), n)]).unwrap();
        assert_eq!(tactic.name, name, "at {n}");
    }
    // A tactic lock has them all, without a time.
    let lock = planish_compile::TacticLock::from_text(&built.tactics.to_text()).unwrap();
    options = BuildOptions { tactics: Some(lock), tune_level: 0, selector: None, ..options };
    let held = build(&options, &mut TimingCache::default());
    assert_eq!(of_conv(&held.plan), variants);
}
