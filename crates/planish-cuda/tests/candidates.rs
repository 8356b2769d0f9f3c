//! Candidates are a set: a tactic that is listed twice for the same operands is measured twice, and gets two times where
//! the timing cache has one.

use std::collections::BTreeSet;

use planish_cuda::{Gpu, offline};
use planish_kernel::Budget;

#[test]
fn no_family_lists_a_tactic_twice() {
    let mut twice = BTreeSet::new();
    for family in offline::families() {
        let mut problems = offline::samples(family);
        problems.extend(offline::trials(family).into_iter().map(|trial| trial.problem));
        assert!(!problems.is_empty(), "{family} has nothing to be tried on");
        for gpu in Gpu::every_architecture() {
            for problem in &problems {
                let mut seen = BTreeSet::new();
                for candidate in offline::candidates(family, &gpu, problem, &Budget::USUAL) {
                    let key = problem.for_candidate(&candidate).key();
                    if !seen.insert((candidate.tactic.name.clone(), key.clone())) {
                        twice.insert(format!("{} on sm_{}: {key}", candidate.tactic.name, gpu.sm));
                    }
                }
            }
        }
    }
    let listed: Vec<&String> = twice.iter().take(5).collect();
    assert!(twice.is_empty(), "{} times, such as {listed:#?}", twice.len());
}
