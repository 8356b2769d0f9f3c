//! The self-check: does the plan compute the model?
//!
//! First without running: every step computes the node that the graph has on the values that the graph says, and
//! finds them in memory, whatever shares it (`wires`, `replay`), at the tuned sizes and the ends of the profiles.
//!
//! (a) Every step, on tensors that the plan itself produced, against the reference at sampled output points,
//! with a bound from its own terms: at the tuned sizes, and at the smallest and largest of the profiles. Values
//! must be read as they were written. (b) Kernels alone on NaN and very large values. (c) The whole model against
//! the reference, where that is cheap enough. (d) What needs no reference: repeats, another context in between,
//! poisoned memory, one thread against many, and other values in the rows around one.
//!
//! What is checked depends on the plan alone, never on the clock, so that equal plans have equal certificates.

#![allow(unsafe_code)]

mod apart;
mod hard;
mod inputs;
mod neighbours;
mod origins;
mod points;
#[cfg(test)]
mod proof_tests;
mod replay;
mod rows;
#[cfg(test)]
mod rows_tests;
mod steps;
#[cfg(test)]
mod tests;
mod whole;
mod wires;

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Backend, Tactic};
use planish_plan::{Certificate, Check, Outcome, Plan, StepKind, Variant};
use planish_runtime::Engine;
use planish_tensor::Tensor;

use crate::budget;
use crate::error::BuildError;
use crate::options::BuildOptions;

/// Profiles whose smallest and largest sizes are checked.
const MAX_PROFILES: usize = 2;
/// Sizes between at which tactics change that are checked too: a profile is looked at in eight steps at most.
const MAX_BORDERS: usize = 7;

/// What a check found: all that was done, and the tactic of the first step that failed.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) certificate: Certificate,
    pub(crate) guilty: Option<Guilty>,
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
    let ends = ends(plan);
    let n_ends = ends.len();
    let corners: Vec<_> = ends.iter().cloned().chain(borders(plan)).collect();
    let all_sizes: Vec<Vec<(String, i64)>> =
        std::iter::once(&plan.tuned_at).chain(&corners).cloned().collect();
    let limits = budget::of_plan(&engine, optimized, &all_sizes, options);
    let engine = engine.limited(limits);
    prove(optimized, &engine, weights, &all_sizes, options.threads, &mut checks);
    if checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))) {
        return Ok(Findings { certificate: Certificate::new(checks), guilty: None, left_out: None });
    }
    let too_much = |sizes: &[(String, i64)]| budget::too_much(&engine, flops_at(graph, sizes), sizes);
    let without_runs = |mut checks: Vec<Check>, why: String| {
        checks.push(skipped("all that needs a run", why.clone()));
        let left_out = Some(format!("steps and results were not checked, wires and memory were: {why}"));
        Ok(Findings { certificate: Certificate::new(checks), guilty: None, left_out })
    };
    if let Some(why) = too_much(&plan.tuned_at) {
        return without_runs(checks, why);
    }
    let Some(inputs) = inputs::random(plan, &plan.tuned_at, 0) else {
        let why = "inputs that are no tensors, or of unknown rank, are not made up".to_string();
        return without_runs(checks, why);
    };
    if let Some(why) = budget::exceeds(&engine, &inputs)? {
        return without_runs(checks, why);
    }
    let mut guilty = steps::check(&engine, plan, weights, &inputs, (&plan.tuned_at, ""), &mut checks)?;
    // What the tuned sizes cost is paid anyway.
    let most_flops = whole::MAX_REFERENCE_FLOPS.max(flops_at(graph, &plan.tuned_at));
    for sizes in corners {
        options.go_on()?;
        if guilty.is_some() {
            break;
        }
        let at = at(&sizes);
        let flops = flops_at(graph, &sizes);
        if flops > most_flops {
            let why =
                format!("{:.1} GFLOP are too many; it was checked at smaller sizes", flops as f64 / 1e9);
            checks.push(skipped(&format!("steps{at}"), why));
        } else if let Some(why) = too_much(&sizes) {
            checks.push(skipped(&format!("steps{at}"), why));
        } else if let Some(inputs) = inputs::random(plan, &sizes, 0) {
            guilty = steps::check(&engine, plan, weights, &inputs, (&sizes, &at), &mut checks)?;
        }
    }
    if guilty.is_none() {
        guilty = hard::check(plan, backends, &mut checks);
    }
    options.go_on()?;
    if guilty.is_none() {
        whole::against_reference(graph, &engine, &all_sizes, backends, options, &mut checks);
        whole::against_itself(&engine, &inputs, options.threads, &mut checks);
        guilty = neighbours::check(&engine, [graph, optimized], &all_sizes[..=n_ends], &mut checks);
    }
    // A run that was stopped looks like one that failed.
    options.go_on()?;
    Ok(Findings { certificate: Certificate::new(checks), guilty, left_out: None })
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
    for (idx, sizes) in all_sizes.iter().enumerate() {
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

/// The smallest and the largest sizes of the plan's first profiles, but for those that it was tuned at.
fn ends(plan: &Plan) -> Vec<Vec<(String, i64)>> {
    let mut ends: Vec<Vec<(String, i64)>> = Vec::new();
    for profile in plan.profiles.iter().take(MAX_PROFILES) {
        for largest in [false, true] {
            let size = |symbol: &str| {
                let range = profile.ranges.iter().find(|range| range.symbol == symbol)?;
                Some(if largest { range.max } else { range.min })
            };
            let sizes = resized(plan, &size);
            if sizes != plan.tuned_at && !ends.contains(&sizes) {
                ends.push(sizes);
            }
        }
    }
    ends
}

/// The sizes up to which steps take other tactics, but for those that are checked anyway.
fn borders(plan: &Plan) -> Vec<Vec<(String, i64)>> {
    let known = ends(plan);
    let mut borders: Vec<Vec<(String, i64)>> = Vec::new();
    for step in &plan.program.steps {
        let StepKind::Kernel { variants, .. } = &step.kind else { continue };
        for Variant { up_to, .. } in variants {
            let size = |symbol: &str| up_to.iter().find(|(known, _)| known == symbol).map(|(_, size)| *size);
            let sizes = resized(plan, &size);
            if sizes != plan.tuned_at && !known.contains(&sizes) && !borders.contains(&sizes) {
                borders.push(sizes);
            }
        }
    }
    borders.sort();
    borders.truncate(MAX_BORDERS);
    borders
}

/// The tuned sizes with some symbols' changed.
fn resized(plan: &Plan, size: &dyn Fn(&str) -> Option<i64>) -> Vec<(String, i64)> {
    let one = |(symbol, tuned): &(String, i64)| (symbol.clone(), size(symbol).unwrap_or(*tuned));
    plan.tuned_at.iter().map(one).collect()
}

fn skipped(subject: &str, why: String) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst: 0.0, outcome: Outcome::Skipped(why) }
}
