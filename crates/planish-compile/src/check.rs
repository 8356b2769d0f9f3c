//! The self-check: does the plan compute the model?
//!
//! First without running: every step computes the node that the graph has on the values that the graph says, and
//! finds them in memory, whatever shares it (`wires`, `replay`).
//!
//! (a) Every step, those in bodies of control flow too, on tensors that the plan itself produced (`steps`): at every
//! element against the reference or against other kernels, and against the reference at points, with a bound from its
//! own terms. At the tuned sizes, and at those of `sizes`. Values must be read as they were written. (b) Kernels alone
//! on NaN, infinities, denormals and very large values (`hard`). (c) The whole model against the reference, where that
//! is cheap enough. (d) What needs no reference: repeats, another context in between, poisoned memory, one thread
//! against many, and other values in the rows around one. Steps that nothing was compared with are named.
//!
//! What is checked depends on the plan alone, never on the clock, so that equal plans have equal certificates.

#![allow(unsafe_code)]

mod alone;
mod apart;
mod bodies;
mod exact;
mod hard;
mod inputs;
mod neighbours;
mod origins;
mod points;
#[cfg(test)]
mod proof_tests;
mod replay;
mod rows;
mod rows_of_region;
#[cfg(test)]
mod rows_tests;
mod sizes;
mod steps;
#[cfg(test)]
mod tests;
mod whole;
mod wires;
mod witness;
mod work;

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Backend, Tactic};
use planish_plan::{Certificate, Check, Outcome, Plan};
use planish_runtime::Engine;
use planish_tensor::Tensor;

use self::inputs::Integers;
use self::steps::{Ran, Steps};
use crate::budget;
use crate::error::BuildError;
use crate::options::BuildOptions;

/// Sets of sizes that memory is replayed at: each takes some hundredths of a second, whatever the model costs.
const MAX_REPLAYED: usize = 8;

/// What a check found: all that was done, and the tactic of the first step that failed.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) certificate: Certificate,
    pub(crate) guilty: Option<Guilty>,
    /// Steps by kernels that were not compared with anything, each with the reason.
    pub(crate) not_compared: Vec<String>,
    /// Why nothing was run, where that is so.
    pub(crate) left_out: Option<String>,
}

/// A step that computed something wrong.
#[derive(Clone, Debug)]
pub(crate) struct Guilty {
    pub(crate) tactic: Tactic,
    pub(crate) what: String,
}

impl Findings {
    /// Why the first failed check failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.certificate.checks.iter().find_map(|check| match &check.outcome {
            Outcome::Failed(why) => Some(format!("{}: {why}", check.subject)),
            Outcome::Passed | Outcome::Skipped(_) => None,
        })
    }
}

/// Checks a plan of `graph`, which was optimized to `optimized`. `weights` are the plan's weights as they were before
/// packing.
pub(crate) fn check(
    graph: &Graph,
    optimized: &Graph,
    plan: &Plan,
    weights: &[Tensor],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
) -> Result<Findings, BuildError> {
    let engine = Engine::new(plan.clone(), backends.to_vec())
        .map_err(|error| BuildError::internal(format!("the plan does not open: {error}")))?;
    let mut checks: Vec<Check> = Vec::new();
    let sizes::Sizes { all: all_sizes, n_ends } = sizes::to_check(plan, graph);
    let limits = budget::of_plan(&engine, optimized, &all_sizes, options);
    let engine = engine.limited(limits);
    prove(optimized, &engine, weights, &all_sizes, options.threads, &mut checks);
    let without_steps = |checks: Vec<Check>, left_out: Option<String>| {
        let certificate = Certificate::new(checks);
        Ok(Findings { certificate, guilty: None, not_compared: Vec::new(), left_out })
    };
    if checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))) {
        return without_steps(checks, None);
    }
    let too_much = |sizes: &[(String, i64)]| budget::too_much(&engine, flops_at(graph, sizes), sizes);
    let seed = steps::seed_of(plan);
    let stops = match too_much(&plan.tuned_at) {
        Some(why) => Some(why),
        None => match inputs::random(plan, &plan.tuned_at, seed, Integers::Wide) {
            Some(inputs) => budget::exceeds(&engine, &inputs)?,
            None => Some("inputs that are no tensors, or of unknown rank, are not made up".to_string()),
        },
    };
    if let Some(why) = stops {
        checks.push(skipped("all that needs a run", why.clone()));
        let left_out = format!("steps and results were not checked, wires and memory were: {why}");
        return without_steps(checks, Some(left_out));
    }
    let host = &backends[0];
    let others = host.other_kernels();
    let witness = others.as_deref().unwrap_or(&**host);
    let mut steps = Steps::new(&engine, weights, witness, options.threads);
    let mut guilty = None;
    // What the tuned sizes cost is paid anyway.
    let most_flops = whole::MAX_REFERENCE_FLOPS.max(flops_at(graph, &plan.tuned_at));
    let mut integers = None;
    // A plan without a profile may refuse sizes that nobody asked for, in which case it computes nothing wrong.
    let mut taken: Vec<Vec<(String, i64)>> = Vec::new();
    for (number, sizes) in all_sizes.iter().enumerate() {
        options.go_on()?;
        let at = if number == 0 { String::new() } else { at(sizes) };
        let flops = flops_at(graph, sizes);
        if flops > most_flops {
            let why =
                format!("{:.1} GFLOP are too many; it was checked at smaller sizes", flops as f64 / 1e9);
            checks.push(skipped(&format!("steps{at}"), why));
            continue;
        }
        if let Some(why) = too_much(sizes) {
            checks.push(skipped(&format!("steps{at}"), why));
            continue;
        }
        let ran = run_at(&mut steps, &engine, &[], sizes, &at, seed);
        if number == 0 {
            integers = ran.as_ref().and_then(|(ran, style)| ran.ended.is_none().then_some(*style));
        }
        if !plan.profiles.is_empty() || ran.as_ref().is_some_and(|(ran, _)| ran.ended.is_none()) {
            taken.push(sizes.clone());
        }
        guilty = take(ran.map(|(ran, _)| ran), &at, &mut checks);
        if guilty.is_some() {
            break;
        }
    }
    if guilty.is_none() {
        guilty = bodies::check(&mut steps, &engine, optimized, weights, backends, options, &mut checks);
    }
    if guilty.is_none() {
        guilty = hard::check(plan, backends, seed, &mut checks);
    }
    options.go_on()?;
    if let (None, Some(integers)) = (&guilty, integers) {
        let inputs = inputs::random(plan, &plan.tuned_at, seed, integers).unwrap_or_default();
        let made_up = whole::MadeUp { seed, integers };
        whole::against_reference(graph, &engine, &taken, backends, options, made_up, &mut checks);
        whole::against_itself(&engine, &inputs, options.threads, made_up, &mut checks);
        guilty = neighbours::check(&engine, [graph, optimized], &all_sizes[..=n_ends], made_up, &mut checks);
    }
    let name = |(_, name, why): (_, String, Option<String>)| match why {
        Some(why) => format!("`{name}` ({why})"),
        None => format!("`{name}` (no made-up inputs led to it)"),
    };
    let not_compared = steps.not_compared().into_iter().map(name).collect();
    // A run that was stopped looks like one that failed.
    options.go_on()?;
    Ok(Findings { certificate: Certificate::new(checks), guilty, not_compared, left_out: None })
}

/// Runs a program on made-up inputs that it takes: the first kind of integers on which the run succeeds. Where they lead
/// to outputs that are no numbers (a mask that is multiplied by the largest number), the next kind is run as well, since
/// a NaN compares with little. `None` where inputs cannot be made up.
fn run_at(
    steps: &mut Steps<'_>,
    engine: &Engine,
    within: &[(usize, usize)],
    sizes: &[(String, i64)],
    at: &str,
    seed: u64,
) -> Option<(Ran, Integers)> {
    let plan = engine.plan();
    let n_tried = if inputs::has_integers(plan) { Integers::TRIED.len() } else { 1 };
    let mut found: Option<(Ran, Integers)> = None;
    for integers in Integers::TRIED.into_iter().take(n_tried) {
        let inputs = inputs::random(plan, sizes, seed, integers)?;
        let at = if integers == Integers::Wide {
            at.to_string()
        } else {
            format!(" on integers {integers:?}{at}")
        };
        let mut ran = steps.run(engine, within, &inputs, (&at, sizes == plan.tuned_at));
        let is_settled = ran.guilty.is_some() || ran.ended.is_none() && ran.is_finite;
        found = Some(match found {
            // What did not run to its end counts where nothing does.
            Some((before, kind)) if before.ended.is_none() => {
                let kind = if is_settled { integers } else { kind };
                ran.checks.splice(0..0, before.checks);
                (Ran { ended: None, ..ran }, kind)
            }
            Some(before) if ran.ended.is_some() && ran.guilty.is_none() => before,
            _ => (ran, integers),
        });
        if is_settled {
            break;
        }
    }
    found
}

/// Takes over what a run found.
fn take(ran: Option<Ran>, at: &str, checks: &mut Vec<Check>) -> Option<Guilty> {
    let Some(ran) = ran else {
        let why = "inputs that are no tensors, or of unknown rank, are not made up".to_string();
        checks.push(skipped(&format!("all steps{at}"), why));
        return None;
    };
    checks.extend(ran.checks);
    if let Some(why) = ran.ended {
        // Made-up inputs may be outside what the model defines; that says nothing against the plan.
        checks.push(skipped(
            &format!("steps behind this{at}"),
            format!("the run on made-up inputs ended: {why}"),
        ));
    }
    ran.guilty
}

/// What can be shown without running: wires, and what memory holds when it is read.
fn prove(
    graph: &Graph,
    engine: &Engine,
    weights: &[Tensor],
    all_sizes: &[Vec<(String, i64)>],
    threads: usize,
    checks: &mut Vec<Check>,
) {
    let program = &engine.plan().program;
    let mut wires = wires::Wires::new(graph);
    let compared = wires::compare(&mut wires, program, weights);
    checks.push(proven("wires of all steps", compared));
    for (idx, sizes) in all_sizes.iter().take(MAX_REPLAYED).enumerate() {
        let mut subject = "memory replayed".to_string();
        if idx > 0 {
            subject.push_str(&at(sizes));
        }
        match engine.placement(sizes, threads) {
            Ok(placement) => {
                if placement.steps.len() < placement.n_steps {
                    let n = placement.steps.len();
                    subject.push_str(&format!(", the first {n} of {} steps", placement.n_steps));
                }
                checks.push(proven(&subject, replay::replay(graph, &wires, program, &placement, sizes)));
            }
            Err(error) => checks.push(skipped(&subject, error.to_string())),
        }
    }
}

fn proven(subject: &str, shown: Result<u64, String>) -> Check {
    let (n_points, worst, outcome) = match shown {
        Ok(n) => (n, 0.0, Outcome::Passed),
        Err(why) => (0, f64::INFINITY, Outcome::Failed(why)),
    };
    Check { subject: subject.to_string(), n_points, worst, outcome }
}

/// Nodes that cannot be counted are small: their sizes come from values.
fn flops_at(graph: &Graph, sizes: &[(String, i64)]) -> u64 {
    graph.work(&|name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size)).flops
}

fn at(sizes: &[(String, i64)]) -> String {
    let listed: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
    format!(" at {}", listed.join(" "))
}

fn skipped(subject: &str, why: String) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst: 0.0, outcome: Outcome::Skipped(why) }
}
