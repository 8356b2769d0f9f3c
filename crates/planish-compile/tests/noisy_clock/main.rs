//! What a build chooses follows from the timing cache alone: a GPU whose clock tells a different time at every
//! question must give the same plan, byte by byte, once its times are in the cache.

#![allow(unsafe_code)]

mod device;

use std::sync::Arc;

use planish_compile::{BuildOptions, Built, Precision, TimingCache, build};
use planish_cpu::Cpu;
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::{Profile, SymbolRange};
use planish_runtime::tactic_at;

use device::Noisy;

/// Two convolutions, the second with a residual, and a classifier: small, so that packing weights costs nothing.
fn model() -> Graph {
    let numbers = |n: usize| (0..n).map(|at| format!("0.{:02}", at * 37 % 100)).collect::<Vec<_>>().join(",");
    let text = format!(
        r#"graph "g" {{
            input %x: f32[batch, 16, 28, 28]
            const %v: f32[32, 16, 3, 3] = [{}]
            const %w: f32[32, 32, 3, 3] = [{}]
            const %m: f32[32, 10] = [{}]
            %a: f32[batch, 32, 28, 28] = Conv(%x, %v) {{ kernel_shape = [3, 3], pads = [1, 1, 1, 1] }}
            %b: f32[batch, 32, 28, 28] = Relu(%a)
            %c: f32[batch, 32, 28, 28] = Conv(%b, %w) {{ kernel_shape = [3, 3], pads = [1, 1, 1, 1] }}
            %d: f32[batch, 32, 28, 28] = Add(%c, %b)
            %e: f32[batch, 32, 28, 28] = Relu(%d)
            %f: f32[batch, 32, 1, 1] = GlobalAveragePool(%e)
            %g: f32[batch, 32] = Flatten(%f)
            %h: f32[batch, 10] = MatMul(%g, %m)
            %y: f32[batch, 10] = Softmax(%h)
            output %y
        }}"#,
        numbers(32 * 16 * 9),
        numbers(32 * 32 * 9),
        numbers(320)
    );
    text.parse().unwrap()
}

fn built(options: &BuildOptions, timings: &mut TimingCache, seed: u64) -> Built {
    let graph = model();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Noisy::gpu(seed))];
    build(&graph, &backends, options, timings).unwrap()
}

/// For a batch of so many, or for all between.
fn options(smallest: i64, tuned: i64, largest: i64) -> BuildOptions {
    let range = SymbolRange { symbol: "batch".to_string(), min: smallest, opt: tuned, max: largest };
    BuildOptions {
        precision: Precision::Fp16,
        profiles: vec![Profile { ranges: vec![range] }],
        tune_level: 1,
        threads: 1,
        // The kernels of this device compute nothing.
        verify: false,
        ..BuildOptions::default()
    }
}

/// Builds from nothing, then twice more from the times of the first build, at other noise.
#[track_caller]
fn assert_settled(options: &BuildOptions) {
    let mut timings = TimingCache::default();
    let first = built(options, &mut timings, 1);
    let measured = timings.clone();
    assert!(first.plan.evidence.iter().any(|evidence| evidence.timings.iter().any(|one| one.measured)));
    for seed in [2, 3] {
        let again = built(options, &mut timings, seed);
        let added = timings.diff(&measured).only_left;
        assert!(added.is_empty(), "measured only the second time: {added:?}");
        for (one, other) in first.plan.evidence.iter().zip(&again.plan.evidence) {
            let step = &first.plan.program.steps[one.step as usize];
            assert_eq!(one, other, "{}", step.name);
        }
        assert_eq!(first.plan.to_bytes().unwrap(), again.plan.to_bytes().unwrap());
    }
}

/// Every candidate is listed twice: a list that holds one again must not give it two times where the cache has one.
#[test]
fn a_build_from_the_first_one_s_times_gives_the_same_bytes() {
    assert_settled(&options(1, 1, 1));
}

/// Where the sizes tuned at are an end of the profile, the search for other tactics there measures them once more.
#[test]
fn a_build_over_a_range_of_sizes_gives_the_same_bytes() {
    assert_settled(&options(1, 1, 16));
    assert_settled(&options(1, 8, 8));
}

/// Noise is the truth once it is in the cache: a plan for a range must not be slower at its ends than a plan for an end
/// alone, whatever it chose at the size it is tuned at, but for what is within the noise that it allows.
#[test]
fn a_plan_over_a_range_of_sizes_takes_what_plans_for_its_ends_take() {
    const WITHIN: f64 = 1.06;
    // What noise makes of the regions may differ between the two plans, and only steps that both have are compared.
    let mut n_compared = 0;
    for seed in 1..9 {
        let mut timings = TimingCache::default();
        let range = built(&options(1, 8, 32), &mut timings, seed);
        for batch in [1, 32] {
            let end = built(&options(batch, batch, batch), &mut timings, seed + 100);
            for evidence in &end.plan.evidence {
                let step = &end.plan.program.steps[evidence.step as usize];
                let same = range.plan.program.steps.iter().find(|other| other.name == step.name);
                let there = same.and_then(|other| tactic_at(other, &[("batch".to_string(), batch)]));
                let own = tactic_at(step, &[]);
                let ns =
                    |tactic| evidence.timings.iter().find(|one| Some(&one.tactic) == tactic && one.measured);
                if let (Some(there), Some(own)) = (ns(there), ns(own)) {
                    n_compared += 1;
                    let ratio = there.ns as f64 / own.ns as f64;
                    assert!(
                        ratio <= WITHIN,
                        "seed {seed}, batch {batch}, `{}`: {ratio:.2} by {} against {}",
                        step.name,
                        there.tactic,
                        own.tactic
                    );
                }
            }
        }
    }
    assert!(n_compared >= 20, "only {n_compared} steps could be compared");
}
