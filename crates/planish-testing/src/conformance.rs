//! The conformance suite of backends: the same problems for each of them, run by every candidate that it offers and
//! compared with the reference.
//!
//! A backend's own test calls [`run`] with its gaps: patterns of the cases that it has no kernel for, each with a reason.
//! They hold both ways. A case without a kernel that no pattern names fails, and so does a pattern that names a case
//! with one. What was left out is counted and printed.

mod cases;
mod launch;

use std::fmt;

use planish_kernel::{Backend, Budget, Candidate, Tactic};

pub use cases::{Case, cases, rounded_cases};
pub use launch::{How, Outcome, launch};

/// Cases that a backend has no kernel for.
#[derive(Clone, Copy, Debug)]
pub struct Gap {
    /// A case's name, `*` standing for any text.
    pub cases: &'static str,
    pub reason: &'static str,
}

impl Gap {
    fn names(&self, case: &str) -> bool {
        matches(self.cases, case)
    }
}

/// Whether a text is as a pattern says, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            let mut tails = text.char_indices().map(|(at, _)| &text[at..]).chain([""]);
            tails.any(|tail| matches(rest, tail))
        }),
    }
}

/// What a backend says of itself to the suite.
#[derive(Clone, Copy, Debug)]
pub struct Conduct<'a> {
    pub gaps: &'a [Gap],
    /// How much farther than its number types explain the result of a tactic may be off: 1, or more for a reason that is
    /// written where this is.
    pub slack: fn(&Tactic) -> f64,
}

impl<'a> Conduct<'a> {
    /// With these gaps, and results as near as number types allow.
    pub fn with_gaps(gaps: &'a [Gap]) -> Conduct<'a> {
        Conduct { gaps, slack: |_| 1.0 }
    }
}

/// How a backend did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Cases that it has kernels for, and candidates that ran on them.
    pub n_cases: usize,
    pub n_candidates: usize,
    /// Runs, each candidate's on dense operands and inside larger ones.
    pub n_runs: usize,
    /// Operands inside larger ones that a candidate refused for their strides.
    pub n_refused: usize,
    /// Cases that it has no kernels for.
    pub skipped: Vec<String>,
    /// The largest error as a share of what is granted.
    pub worst: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { n_cases, n_candidates, n_runs, n_refused, skipped, worst } = self;
        write!(
            f,
            "{n_cases} cases by {n_candidates} candidates in {n_runs} runs, {n_refused} placements refused, {} cases \
             skipped; largest error {worst:.3} of what is granted",
            skipped.len()
        )
    }
}

/// Candidates that are kernels: what the reference computes has nothing to be compared with.
fn kernels(backend: &dyn Backend, case: &Case) -> Vec<Candidate> {
    let mut candidates = backend.candidates(&case.problem, &Budget::USUAL);
    candidates.retain(|candidate| !candidate.slow);
    candidates
}

/// What is wrong with a backend's gaps, where these cases have kernels or not.
fn wrong_gaps(gaps: &[Gap], offered: &[(&str, bool)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (case, has_kernel) in offered {
        let gap = gaps.iter().find(|gap| gap.names(case));
        match (gap, has_kernel) {
            (None, false) => wrong.push(format!("{case}: no kernel, and no gap says so")),
            (Some(gap), true) => {
                wrong.push(format!("{case}: has a kernel, and is in the gap `{}`", gap.cases))
            }
            _ => {}
        }
    }
    let unused = |gap: &&Gap| !offered.iter().any(|(case, _)| gap.names(case));
    wrong.extend(gaps.iter().filter(unused).map(|gap| format!("no case is in the gap `{}`", gap.cases)));
    wrong
}

/// Runs every candidate on every case; the error lists all that is wrong.
pub fn run(backend: &dyn Backend, cases: &[Case], conduct: Conduct<'_>) -> Result<Report, String> {
    visit(backend, cases, conduct.gaps, |report, case, candidate| {
        let how = How { slack: (conduct.slack)(&candidate.tactic), ..How::default() };
        let outcome = launch(backend, case, candidate, how)?;
        report.n_runs += outcome.n_runs;
        report.n_refused += outcome.n_refused;
        report.worst = report.worst.max(outcome.worst);
        Ok(())
    })
}

/// Asks for candidates alone, of a backend that runs nothing: the gaps must hold, and each candidate must speak of all
/// operands and cost something.
pub fn enumerate(backend: &dyn Backend, cases: &[Case], gaps: &[Gap]) -> Result<Report, String> {
    visit(backend, cases, gaps, |_, case, candidate| {
        let problem = &case.problem;
        let lengths = (candidate.inputs.len(), candidate.packed.len(), candidate.outputs.len());
        if lengths != (problem.inputs.len(), problem.inputs.len(), problem.outputs.len()) {
            return Err("it does not speak of every operand once".to_string());
        }
        match candidate.predicted_ns.is_finite() && candidate.predicted_ns > 0.0 {
            true => Ok(()),
            false => Err(format!("it is expected to take {} ns", candidate.predicted_ns)),
        }
    })
}

fn visit(
    backend: &dyn Backend,
    cases: &[Case],
    gaps: &[Gap],
    mut visit: impl FnMut(&mut Report, &Case, &Candidate) -> Result<(), String>,
) -> Result<Report, String> {
    let (mut report, mut offered, mut wrong) = (Report::default(), Vec::new(), Vec::new());
    for case in cases {
        let candidates = kernels(backend, case);
        offered.push((case.name.as_str(), !candidates.is_empty()));
        match candidates.is_empty() {
            true => report.skipped.push(case.name.clone()),
            false => report.n_cases += 1,
        }
        for candidate in &candidates {
            report.n_candidates += 1;
            if let Err(what) = visit(&mut report, case, candidate) {
                wrong.push(format!("{} on {}: {what}", candidate.tactic, case.name));
            }
        }
    }
    wrong.extend(wrong_gaps(gaps, &offered));
    match wrong.is_empty() {
        true => Ok(report),
        false => Err(format!("{} mistakes:\n{}", wrong.len(), wrong.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, text, is_one) in [
            ("conv/*", "conv/Conv f32[1]", true),
            ("conv/*f16*", "conv/Conv f32[1] f16[2]", true),
            ("conv/*f16", "conv/Conv f16[2]", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("pool/Max", "pool/Max", true),
            ("pool/Max", "pool/Max2", false),
        ] {
            assert_eq!(matches(pattern, text), is_one, "{pattern} {text}");
        }
    }

    #[test]
    fn gaps_hold_both_ways() {
        let gaps = [Gap { cases: "conv/*", reason: "" }, Gap { cases: "scan/*", reason: "" }];
        let wrong =
            wrong_gaps(&gaps, &[("conv/a", false), ("conv/b", true), ("pool/a", false), ("pool/b", true)]);
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].starts_with("conv/b: has a kernel") && wrong[1].starts_with("pool/a: no kernel"));
        assert_eq!(wrong[2], "no case is in the gap `scan/*`");
    }

    #[test]
    fn cases_have_names_of_their_own_and_answers() {
        let cases = cases();
        let names: std::collections::BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() > 200, "{}", cases.len());
        for kind in ["conv", "matmul", "pointwise", "movement", "gather", "attention"] {
            assert!(names.iter().any(|name| name.starts_with(&format!("{kind}/"))), "{kind}");
        }
        // Large ones are left to the backends' own tests, which run them anyway.
        for case in cases.iter().filter(|case| case.problem.traffic_bytes() < 20_000) {
            let shapes: Vec<&[usize]> = case.want().iter().map(|want| want.shape()).collect();
            let outputs: Vec<&[usize]> = case.problem.outputs.iter().map(|output| &*output.dims).collect();
            assert_eq!(shapes, outputs, "{}", case.name);
        }
    }
}
