//! Models made from random bytes: the fuzz target's own checks, on a fixed set that every build can run.

#[path = "../../../fuzz/fuzz_targets/built_model.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz target")]
mod built_model;
#[path = "../../../fuzz/fuzz_targets/check_model.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz target")]
mod check_model;

use check_model::Outcome;

/// Models that are tried; the fuzz target goes on from here.
const N_MODELS: u64 = 4000;

/// The bytes that describe model `seed`: a linear congruential generator, its high bits.
fn description(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let len = 20 + usize::from(next());
    (0..len).map(|_| next()).collect()
}

#[test]
fn random_models_end_well() {
    let mut counts = [0; 3];
    for seed in 0..N_MODELS {
        built_model::model(&description(seed), &mut |file| {
            let outcome = check_model::check(file, false);
            counts[outcome as usize] += 1;
            outcome != Outcome::Refused
        });
    }
    // Most are nonsense; that some are not makes the others worth trying.
    let [_, imported, run] = counts;
    assert!(imported > N_MODELS / 10 && run > N_MODELS / 10, "{counts:?}");
}
