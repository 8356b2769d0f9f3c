//! Planted faults: wrong kernels that the self-check must see.
//!
//! A backend that is the CPU's but for one spoiled tactic builds a small model with that tactic. The check must
//! refuse the plan or leave the tactic out and say so.

#![allow(unsafe_code)]

mod faulty;
mod models;
mod table;

use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, TimingCache, build};
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_plan::{Outcome, StepKind};

use faulty::{Faulty, Spoil};
use table::{FAMILIES, FAULTS};

/// Faults that may pass unseen, of all that are planted: inputs that are NaN or very large are not tried.
const MAX_MISSED: usize = 2;
const MIN_PLANTED: usize = 40;

/// How a build with a fault ended.
enum Verdict {
    /// The build failed its check, or the tactic was left out: what was said.
    Caught(String),
    Missed,
}

/// Two threads, so that one and three are tried against them; no clock, so that the tactic is the one asked for.
fn options(tactic: &'static str) -> BuildOptions {
    BuildOptions {
        tune_level: 0,
        threads: 2,
        selector: Some(Arc::new(move |_, candidate| {
            let family = tactic.split('_').next().unwrap_or(tactic);
            let name = &candidate.tactic.name;
            !name.starts_with(family) || name.contains(tactic) || candidate.slow
        })),
        ..BuildOptions::default()
    }
}

fn plant(model: &Graph, tactic: &'static str, spoil: Spoil) -> (Verdict, usize) {
    let faulty = Arc::new(Faulty::new(tactic, spoil));
    let backend: Arc<dyn Backend> = faulty.clone();
    let verdict = match build(model, &[backend], &options(tactic), &mut TimingCache::default()) {
        Ok(built) => match built.notes.iter().find(|note| note.contains("gave a wrong answer")) {
            Some(note) => Verdict::Caught(note.clone()),
            None => Verdict::Missed,
        },
        Err(error) if *error.kind() == BuildErrorKind::CheckFailed => Verdict::Caught(error.to_string()),
        Err(error) => panic!("the build with `{tactic}` ended otherwise: {error}"),
    };
    (verdict, faulty.n_changed())
}

#[test]
fn without_a_fault_every_family_passes_and_is_used() {
    for &(model, tactic) in FAMILIES {
        let graph: Graph = model().parse().unwrap();
        let backend: Arc<dyn Backend> = Arc::new(Faulty::new(tactic, Spoil::Nothing));
        let built = build(&graph, &[backend], &options(tactic), &mut TimingCache::default())
            .unwrap_or_else(|error| panic!("{tactic}: {error}"));
        let failed = built.plan.certificate.checks.iter().find(|c| matches!(c.outcome, Outcome::Failed(_)));
        assert!(failed.is_none() && built.notes.is_empty(), "{tactic}: {failed:?} {:?}", built.notes);
        let used = built.plan.program.steps.iter().any(|step| match &step.kind {
            StepKind::Kernel { variants, .. } => variants[0].tactic.name.contains(tactic),
            StepKind::Transfer | StepKind::Evaluate | StepKind::Control(_) => false,
        });
        assert!(used, "{tactic} is not used for\n{}", built.graph.print().text);
    }
}

#[test]
fn planted_faults_are_caught() {
    let mut missed = Vec::new();
    for fault in FAULTS {
        let graph: Graph = (fault.model)().parse().unwrap();
        let (verdict, n_changed) = plant(&graph, fault.tactic, fault.spoil);
        match verdict {
            Verdict::Caught(how) => {
                assert!(
                    n_changed > 0,
                    "{}: {} was caught, and nothing was changed",
                    fault.tactic,
                    fault.name
                );
                println!("caught  {:14} {}: {how}", fault.tactic, fault.name);
            }
            Verdict::Missed => {
                println!("MISSED  {:14} {} (changed {n_changed} launches)", fault.tactic, fault.name);
                missed.push(format!("{}: {}", fault.tactic, fault.name));
            }
        }
    }
    println!("{} of {} planted faults caught", FAULTS.len() - missed.len(), FAULTS.len());
    assert!(FAULTS.len() >= MIN_PLANTED);
    assert!(missed.len() <= MAX_MISSED, "missed: {missed:#?}");
}
