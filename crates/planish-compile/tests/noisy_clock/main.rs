//! What a build chooses follows from the timing cache alone: a GPU whose clock tells a different time at every
//! question must give the same plan, byte by byte, once its times are in the cache.

#![allow(unsafe_code)]

mod device;

use std::sync::Arc;

use planish_compile::{BuildOptions, Built, Precision, TimingCache, build};
use planish_cpu::Cpu;
use planish_kernel::Backend;
use planish_plan::{Profile, SymbolRange};

use device::Noisy;

fn built(model: &str, options: &BuildOptions, timings: &mut TimingCache, seed: u64) -> Built {
    let graph = planish_zoo::graph(model, 0).unwrap();
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(Cpu::new()), Arc::new(Noisy::new(seed))];
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

/// Builds from nothing, then once more from the times of the first build, at other noise.
#[track_caller]
fn assert_settled(model: &str, options: &BuildOptions) {
    let mut timings = TimingCache::default();
    let first = built(model, options, &mut timings, 1);
    let measured = timings.clone();
    assert!(first.plan.evidence.iter().any(|evidence| evidence.timings.iter().any(|one| one.measured)));
    let again = built(model, options, &mut timings, 2);
    let added = timings.diff(&measured).only_left;
    assert!(added.is_empty(), "{model}: measured only the second time: {added:?}");
    for (one, other) in first.plan.evidence.iter().zip(&again.plan.evidence) {
        let step = &first.plan.program.steps[one.step as usize];
        assert_eq!(one, other, "{model}: {}", step.name);
    }
    assert_eq!(first.plan.to_bytes().unwrap(), again.plan.to_bytes().unwrap(), "{model}");
}

#[test]
fn a_build_from_the_first_one_s_times_gives_the_same_bytes() {
    assert_settled("cifar_cnn", &options(1, 1, 1));
}

/// Where the sizes tuned at are an end of the profile, the search for other tactics there measures them once more.
#[test]
fn a_build_over_a_range_of_sizes_gives_the_same_bytes() {
    assert_settled("cifar_cnn", &options(1, 1, 4));
    assert_settled("cifar_cnn", &options(1, 8, 8));
}
