//! The same bits: from one timing cache, on any number of threads, whatever the neighbours in a batch.

use planish::{Builder, ContextOptions, TimingCache, View};

use crate::common::{ROW, engine, numbers, small_model};
use crate::profile;

#[test]
fn builds_from_one_timing_cache_are_the_same_bytes() {
    let build = |timings: TimingCache| {
        let builder = Builder::from_graph(small_model("batch")).profile(profile(1, 2, 4)).threads(2);
        builder.tune_level(1).timings(timings).build_with_report().unwrap()
    };
    let (_, timings) = build(TimingCache::default());
    let first = build(timings.clone()).0.plan.to_bytes().unwrap();
    for idx in 1..20 {
        let again = build(timings.clone()).0.plan.to_bytes().unwrap();
        assert!(again == first, "build {idx} differs");
    }
}

#[test]
fn threads_do_not_change_bits() {
    let engine = engine(small_model("4"), &[]);
    let x = numbers(4 * ROW, 21);
    let run = |threads| {
        let mut context = engine.context_with(ContextOptions::new(threads)).unwrap();
        let outputs = context.run(&[("x", View::new(&[4, 3, 12, 12], &x).unwrap())]).unwrap();
        [0, 1].map(|idx| outputs.at(idx).unwrap().bytes().to_vec())
    };
    let one = run(1);
    assert_eq!(one, run(2));
    assert_eq!(one, run(8));
}

#[test]
fn neighbours_do_not_change_a_rows_bits() {
    let engine = engine(small_model("3"), &[]);
    let mut context = engine.context().unwrap();
    let mut row_1 = |neighbours: u64| {
        let mut x = numbers(3 * ROW, neighbours);
        x[ROW..2 * ROW].copy_from_slice(&numbers(ROW, 31));
        let outputs = context.run(&[("x", View::new(&[3, 3, 12, 12], &x).unwrap())]).unwrap();
        [0, 1].map(|idx| outputs.at(idx).unwrap().as_slice::<f32>().unwrap()[10..20].to_vec())
    };
    let first = row_1(1);
    for neighbours in 2..12 {
        assert_eq!(row_1(neighbours), first);
    }
}
