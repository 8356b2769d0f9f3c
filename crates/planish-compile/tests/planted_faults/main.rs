//! Planted faults: wrong kernels that the self-check must see.
//!
//! A backend that is the CPU's but for one spoiled tactic builds a small model with that tactic. The check must
//! refuse the plan or leave the tactic out and say so.

#![allow(unsafe_code)]

mod faulty;
mod kinds;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use planish_compile::{BuildErrorKind, BuildOptions, TimingCache, build};
use planish_ir::Graph;
use planish_kernel::Backend;
use planish_op::{Class, Form, Op};
use planish_plan::{Outcome, Profile, Program, StepKind, SymbolRange};
use planish_tensor::DType;

use faulty::{Faulty, Spoil};
use kinds::{all, some};
use table::{FAMILIES, Fault};

/// Of a hundred faults so many may pass unseen.
const MAX_MISSED_PERCENT: usize = 1;
const MIN_PLANTED: usize = 200;
const MIN_KINDS: usize = 20;

/// How a build with a fault ended.
enum Verdict {
    /// The build failed its check, or the tactic was left out: what was said.
    Caught(String),
    Missed,
}

/// Two threads, so that one and three are tried against them; no clock, so that the tactic is the one asked for.
fn options(graph: &Graph, tactic: &'static str) -> BuildOptions {
    let has = |symbol: &str| {
        let starts = |ty: String| ty.contains(&format!("[{symbol},"));
        graph.inputs().iter().any(|&input| starts(graph.value(input).ty.to_string()))
    };
    let profile = |symbol: &str, min, opt, max| Profile {
        ranges: vec![SymbolRange { symbol: symbol.into(), min, opt, max }],
    };
    let profiles = match (has("n"), has("m")) {
        (true, _) => vec![profile("n", 1, 4, 9)],
        (_, true) => vec![profile("m", 1, 2, 4), profile("m", 8, 11, 13)],
        (false, false) => Vec::new(),
    };
    BuildOptions {
        profiles,
        tune_level: 0,
        threads: 2,
        selector: Some(Arc::new(move |_, candidate| {
            let family = tactic.split('_').next().unwrap_or(tactic);
            let name = &candidate.tactic.name;
            // A fused step must win against its parts: those are left to the reference.
            let is_part =
                family == "bottleneck" && (name.starts_with("conv") || name.starts_with("depthwise"));
            !is_part && !name.starts_with(family) || name.contains(tactic) || candidate.slow
        })),
        ..BuildOptions::default()
    }
}

fn plant(model: &Graph, tactic: &'static str, spoil: Spoil) -> (Verdict, usize) {
    let faulty = Arc::new(Faulty::cpu(tactic, spoil));
    let backend: Arc<dyn Backend> = faulty.clone();
    let verdict = match build(model, &[backend], &options(model, tactic), &mut TimingCache::default()) {
        Ok(built) => match built.notes.iter().find(|note| note.contains("gave a wrong answer")) {
            Some(note) => Verdict::Caught(note.clone()),
            None => Verdict::Missed,
        },
        Err(error) if *error.kind() == BuildErrorKind::CheckFailed => Verdict::Caught(error.to_string()),
        Err(error) => panic!("the build with `{tactic}` ended otherwise: {error}"),
    };
    (verdict, faulty.change.n_changed())
}

/// Whether a step of the program or of a body takes the tactic.
fn uses(program: &Program, tactic: &str) -> bool {
    program.steps.iter().any(|step| match &step.kind {
        StepKind::Kernel { variants, .. } => variants[0].tactic.name.contains(tactic),
        StepKind::Control(control) => control.bodies.iter().any(|body| uses(body, tactic)),
        StepKind::Transfer | StepKind::Evaluate => false,
    })
}

#[test]
fn without_a_fault_every_family_passes_and_is_used() {
    for &(model, tactic) in FAMILIES {
        let graph: Graph = model().parse().unwrap();
        let backend: Arc<dyn Backend> = Arc::new(Faulty::cpu(tactic, Spoil::Nothing));
        let built = build(&graph, &[backend], &options(&graph, tactic), &mut TimingCache::default())
            .unwrap_or_else(|error| panic!("{tactic}: {error}"));
        let failed = built.plan.certificate.checks.iter().find(|c| matches!(c.outcome, Outcome::Failed(_)));
        assert!(failed.is_none() && built.notes.is_empty(), "{tactic}: {failed:?} {:?}", built.notes);
        assert!(uses(&built.plan.program, tactic), "{tactic} is not used for\n{}", built.graph.print().text);
    }
}

/// Set by `cargo xtask planted-faults`, which takes some minutes: every fault is planted, not only the spread of them.
const PLANT_ALL: &str = "PLANISH_PLANT_ALL";

#[test]
fn planted_faults_are_caught() {
    let plants_all = std::env::var_os(PLANT_ALL).is_some();
    let faults = if plants_all { all() } else { some() };
    let n_kinds = count(&faults);
    assert!(n_kinds >= MIN_KINDS, "{n_kinds} kinds");
    assert!(!plants_all || faults.len() >= MIN_PLANTED, "{} faults", faults.len());
}

/// Plants faults one by one, prints what became of them by kind, and gives the number of kinds.
fn count(all: &[Fault]) -> usize {
    let mut missed = Vec::new();
    // By kind: planted, caught.
    let mut kinds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for fault in all {
        let graph: Graph = (fault.model)().parse().unwrap();
        let (verdict, n_changed) = plant(&graph, fault.tactic, fault.spoil);
        let count = kinds.entry(fault.kind).or_default();
        count.0 += 1;
        match verdict {
            Verdict::Caught(how) => {
                assert!(
                    n_changed > 0,
                    "{}: {} was caught, and nothing was changed",
                    fault.tactic,
                    fault.name
                );
                count.1 += 1;
                println!("caught  {:14} {}: {how}", fault.tactic, fault.name);
            }
            Verdict::Missed => {
                println!("MISSED  {:14} {} (changed {n_changed} launches)", fault.tactic, fault.name);
                missed
                    .push(format!("{}: {}: {} ({n_changed} launches)", fault.kind, fault.tactic, fault.name));
            }
        }
    }
    for (kind, (n_planted, n_caught)) in &kinds {
        println!("| {kind} | {n_planted} | {n_caught} |");
    }
    println!("{} of {} planted faults of {} kinds caught", all.len() - missed.len(), all.len(), kinds.len());
    assert!(missed.len() * 100 <= all.len() * MAX_MISSED_PERCENT, "missed: {missed:#?}");
    kinds.len()
}

/// Operators over more than one operand or a whole row, besides those of one number.
const OTHERS: &[&str] = &[
    "Add(%x, %z)",
    "Clip(%x, %lo, %hi)",
    "Div(%x, %z)",
    "Max(%x, %z)",
    "Min(%x, %z)",
    "Mul(%x, %z)",
    "PRelu(%x, %z)",
    "Pow(%x, %z)",
    "Sub(%x, %z)",
    "Softmax(%x)",
    "LogSoftmax(%x)",
];

#[test]
fn hard_values_accuse_no_kernel_of_the_cpu() {
    let mut accused = Vec::new();
    let of_numbers = Op::unary_of(DType::F32).filter(|op| op.class() == Class::Pointwise(Form::Unary));
    let unary = of_numbers.map(|op| format!("{}(%x)", op.name()));
    for op in unary.chain(OTHERS.iter().map(|op| op.to_string())) {
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
