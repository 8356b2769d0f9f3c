//! Candidates are a set: a tactic that is listed twice for the same operands is measured twice, and gets two times where
//! the timing cache has one.

use std::collections::BTreeSet;

use planish_cuda::{Gpu, offline};
use planish_kernel::{Budget, Layout};
use planish_testing::conformance::{self, Case};

#[test]
fn no_family_lists_a_tactic_twice() {
    let mut twice = BTreeSet::new();
    let cases = conformance::cases();
    for family in offline::families() {
        let mut n_offered = 0;
        for gpu in Gpu::every_architecture() {
            for Case { problem, .. } in &cases {
                // A reorder is asked for by its layouts, also where these sizes do not tell them apart.
                let same = Layout::Plain.same_for(Layout::ChannelsLast, &problem.inputs[0].dims);
                if problem.region.ops() == "Identity" && same {
                    continue;
                }
                let mut seen = BTreeSet::new();
                for candidate in offline::candidates(family, &gpu, problem, &Budget::USUAL) {
                    n_offered += 1;
                    let key = problem.for_candidate(&candidate).key();
                    if !seen.insert((candidate.tactic.name.clone(), key.clone())) {
                        twice.insert(format!("{} on sm_{}: {key}", candidate.tactic.name, gpu.sm));
                    }
                }
            }
        }
        // Only a device lists what its libraries have, and only plugins that are loaded what they bring.
        let is_elsewhere = ["cublaslt", "cudnn", "plugin"].contains(&family);
        assert!(n_offered > 0 || is_elsewhere, "{family} has nothing to be tried on");
    }
    let listed: Vec<&String> = twice.iter().take(5).collect();
    assert!(twice.is_empty(), "{} times, such as {listed:#?}", twice.len());
}
