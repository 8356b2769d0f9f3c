//! The self-check: does the plan compute the model?
//!
//! (a) Every step, on tensors that the plan itself produced, against the reference at sampled output points,
//! with a bound from its own terms: at the tuned sizes, and at the smallest and largest of the profiles. Values
//! must be read as they were written. (b) Kernels alone on NaN and very large values. (c) The whole model against
//! the reference, where that is cheap enough. (d) What needs no reference: repeats, another context in between,
//! poisoned memory, one thread against many.
//!
//! What is checked depends on the plan alone, never on the clock, so that equal plans have equal certificates.

#![allow(unsafe_code)]

mod hard;
mod inputs;
mod points;
mod steps;
#[cfg(test)]
mod tests;
mod whole;

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Backend, Tactic};
use planish_plan::{Certificate, Check, Outcome, Plan};
use planish_runtime::Engine;
use planish_tensor::Tensor;

use crate::error::BuildError;
use crate::options::BuildOptions;

/// Profiles whose smallest and largest sizes are checked.
const MAX_PROFILES: usize = 2;

/// What a check found: all that was done, and the tactic of the first step that failed.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) certificate: Certificate,
    pub(crate) guilty: Option<Guilty>,
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

/// Checks a plan. `weights` are the plan's weights as they were before packing.
pub(crate) fn check(
    graph: &Graph,
    plan: &Plan,
    weights: &[Tensor],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
) -> Result<Findings, BuildError> {
    let engine = Engine::new(plan.clone(), backends.to_vec())
        .map_err(|error| BuildError::internal(format!("the plan does not open: {error}")))?;
    let mut checks: Vec<Check> = Vec::new();
    let Some(inputs) = inputs::random(plan, &plan.tuned_at, 0) else {
        let why = "inputs that are no tensors, or of unknown rank, are not made up".to_string();
        checks.push(skipped("all", why));
        return Ok(Findings { certificate: Certificate { checks }, guilty: None });
    };
    let mut guilty = steps::check(&engine, plan, weights, &inputs, "", &mut checks)?;
    for sizes in corners(plan) {
        if guilty.is_some() {
            break;
        }
        let listed: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
        let at = format!(" at {}", listed.join(" "));
        let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
        let flops = graph.work(&lookup).flops;
        if flops > whole::MAX_REFERENCE_FLOPS {
            let why =
                format!("{:.1} GFLOP are too many; it was checked at smaller sizes", flops as f64 / 1e9);
            checks.push(skipped(&format!("steps{at}"), why));
        } else if let Some(inputs) = inputs::random(plan, &sizes, 0) {
            guilty = steps::check(&engine, plan, weights, &inputs, &at, &mut checks)?;
        }
    }
    if guilty.is_none() {
        guilty = hard::check(plan, backends, &mut checks);
    }
    if guilty.is_none() {
        whole::against_reference(graph, &engine, &inputs, options.precision, &mut checks);
        whole::against_itself(&engine, &inputs, options.threads, &mut checks);
    }
    Ok(Findings { certificate: Certificate { checks }, guilty })
}

/// The smallest and the largest sizes of the plan's first profiles, but for those that it was tuned at.
fn corners(plan: &Plan) -> Vec<Vec<(String, i64)>> {
    let mut corners: Vec<Vec<(String, i64)>> = Vec::new();
    for profile in plan.profiles.iter().take(MAX_PROFILES) {
        for largest in [false, true] {
            let mut sizes = plan.tuned_at.clone();
            for (symbol, size) in &mut sizes {
                if let Some(range) = profile.ranges.iter().find(|range| range.symbol == *symbol) {
                    *size = if largest { range.max } else { range.min };
                }
            }
            if sizes != plan.tuned_at && !corners.contains(&sizes) {
                corners.push(sizes);
            }
        }
    }
    corners
}

fn skipped(subject: &str, why: String) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst: 0.0, outcome: Outcome::Skipped(why) }
}
