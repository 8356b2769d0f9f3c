//! The self-check: does the plan compute the model?
//!
//! (a) Every step, on tensors that the plan itself produced, against the reference at sampled output points,
//! with a bound from its own terms; (b) the whole model against the reference, where that is cheap enough;
//! (c) kernels alone on NaN and very large values; (d) what needs no reference: repeats, another context in between, poisoned memory, one thread against many,
//! and other values in the neighbouring rows of the batch.
//!
//! What is checked depends on the plan alone, never on the clock, so that equal plans have equal certificates.

#![allow(unsafe_code)]

mod hard;
mod inputs;
mod points;
mod steps;
mod whole;

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Backend, Tactic};
use planish_plan::{Certificate, Check, Outcome, Plan};
use planish_runtime::Engine;
use planish_tensor::Tensor;

use crate::error::BuildError;
use crate::options::BuildOptions;

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
    let Some(inputs) = inputs::random(plan, 0) else {
        let why = "inputs that are no tensors, or of unknown rank, are not made up".to_string();
        checks.push(skipped("all", why));
        return Ok(Findings { certificate: Certificate { checks }, guilty: None });
    };
    let mut guilty = steps::check(&engine, plan, weights, &inputs, &mut checks)?;
    if guilty.is_none() {
        guilty = hard::check(plan, backends, &mut checks);
    }
    if guilty.is_none() {
        whole::against_reference(graph, &engine, &inputs, &mut checks);
        whole::against_itself(&engine, &inputs, options.threads, &mut checks);
    }
    Ok(Findings { certificate: Certificate { checks }, guilty })
}

fn skipped(subject: &str, why: String) -> Check {
    Check { subject: subject.to_string(), n_points: 0, worst: 0.0, outcome: Outcome::Skipped(why) }
}
