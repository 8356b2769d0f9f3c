//! Models made from random bytes: the fuzz target's own checks, on a fixed set that every build can run.

#[path = "../../../fuzz/fuzz_targets/built_model.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz target")]
mod built_model;
#[path = "../../../fuzz/fuzz_targets/check_model.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz target")]
mod check_model;

use check_model::Outcome;
use planish_testing::Random;

/// Models that are tried; the fuzz target goes on from here.
const N_MODELS: u64 = 4000;

/// The bytes that describe model `seed`.
fn description(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let len = 20 + random.below(256);
    (0..len).map(|_| random.below(256) as u8).collect()
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
