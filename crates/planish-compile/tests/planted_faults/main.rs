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
use planish_plan::{Outcome, Profile, StepKind, SymbolRange};

use faulty::{Faulty, Spoil};
use table::{FAMILIES, FAULTS};

/// Faults that may pass unseen, of all that are planted.
const MAX_MISSED: usize = 1;
const MIN_PLANTED: usize = 40;

/// How a build with a fault ended.
enum Verdict {
    /// The build failed its check, or the tactic was left out: what was said.
    Caught(String),
    Missed,
}

/// Two threads, so that one and three are tried against them; no clock, so that the tactic is the one asked for.
fn options(graph: &Graph, tactic: &'static str) -> BuildOptions {
    let is_symbolic = graph.inputs().iter().any(|&input| graph.value(input).ty.to_string().contains("n,"));
    let range = SymbolRange { symbol: "n".into(), min: 1, opt: 4, max: 9 };
    BuildOptions {
        profiles: if is_symbolic { vec![Profile { ranges: vec![range] }] } else { Vec::new() },
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
    let verdict = match build(model, &[backend], &options(model, tactic), &mut TimingCache::default()) {
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
        let built = build(&graph, &[backend], &options(&graph, tactic), &mut TimingCache::default())
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

/// Every operator that works element by element on one or two numbers.
const ELEMENTWISE: &[&str] = &[
    "Abs(%x)",
    "Acos(%x)",
    "Acosh(%x)",
    "Add(%x, %z)",
    "Asin(%x)",
    "Asinh(%x)",
    "Atan(%x)",
    "Atanh(%x)",
    "Ceil(%x)",
    "Celu(%x)",
    "Clip(%x, %lo, %hi)",
    "Cos(%x)",
    "Cosh(%x)",
    "Div(%x, %z)",
    "Elu(%x)",
    "Erf(%x)",
    "Exp(%x)",
    "Floor(%x)",
    "Gelu(%x)",
    "HardSigmoid(%x)",
    "HardSwish(%x)",
    "LeakyRelu(%x)",
    "Log(%x)",
    "Max(%x, %z)",
    "Min(%x, %z)",
    "Mish(%x)",
    "Mul(%x, %z)",
    "Neg(%x)",
    "PRelu(%x, %z)",
    "Pow(%x, %z)",
    "Reciprocal(%x)",
    "Relu(%x)",
    "Round(%x)",
    "Selu(%x)",
    "Sigmoid(%x)",
    "Sign(%x)",
    "Sin(%x)",
    "Sinh(%x)",
    "Softplus(%x)",
    "Softsign(%x)",
    "Sqrt(%x)",
    "Sub(%x, %z)",
    "Swish(%x)",
    "Tan(%x)",
    "Tanh(%x)",
    "ThresholdedRelu(%x)",
    "Softmax(%x)",
    "LogSoftmax(%x)",
];

#[test]
fn hard_values_accuse_no_kernel_of_the_cpu() {
    let mut accused = Vec::new();
    for op in ELEMENTWISE {
        let text = format!(
            "graph \"g\" {{ input %x: f32[5, 131] input %z: f32[5, 131] const %lo: f32[] = -1 const %hi: f32[] = 2
             %y: f32[5, 131] = {op} %w: f32[5, 131] = Add(%y, %z) output %y, %w }}"
        );
        let graph: Graph = text.parse().unwrap();
        let backend: Arc<dyn Backend> = Arc::new(planish_cpu::Cpu::new());
        let options = BuildOptions { tune_level: 0, threads: 2, ..BuildOptions::default() };
        match build(&graph, &[backend], &options, &mut TimingCache::default()) {
            Ok(built) => accused.extend(built.notes.into_iter().map(|note| format!("{op}: {note}"))),
            Err(error) => accused.push(format!("{op}: {error}")),
        }
    }
    assert!(accused.is_empty(), "{accused:#?}");
}
