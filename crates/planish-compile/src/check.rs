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
mod compare;
mod exact;
mod hard;
mod inputs;
mod itself;
mod neighbours;
mod origins;
mod points;
#[cfg(test)]
mod proof_tests;
mod replay;
mod rounded;
mod rows;
mod rows_of_region;
#[cfg(test)]
mod rows_tests;
mod sizes;
mod steps;
#[cfg(test)]
mod tests;
mod tolerance;
mod whole;
mod wires;
mod witness;
mod work;
mod written;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use planish_ir::Graph;
use planish_kernel::{Backend, Tactic};
use planish_op::Value;
use planish_plan::{Certificate, Check, Outcome, Plan};
use planish_runtime::Engine;
use planish_tensor::Tensor;

pub(crate) use self::alone::launch as launch_alone;
pub(crate) use self::inputs::Numbers;

use self::inputs::Integers;
use self::steps::{Ran, Steps};
use crate::budget;
use crate::error::{BuildError, BuildErrorKind};
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

/// Made-up inputs of a plan at the sizes that it is tuned at; `None` where nobody can say what they are.
pub(crate) fn random_inputs(plan: &Plan) -> Option<Vec<Value>> {
    inputs::random(plan, &plan.header.tuned_at, 0, Integers::Wide)
}

/// Checks a plan of `graph`, which was optimized to `optimized`. `weights` are the plan's weights as they were before
/// packing.
///
/// What needs no run of the plan goes on beside its runs, on threads of its own.
pub(crate) fn check(
    graph: &Graph,
    optimized: &Graph,
    plan: &Plan,
    weights: &[Tensor],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
) -> Result<Findings, BuildError> {
    let engine = Engine::new(plan.clone(), backends.to_vec()).map_err(|error| {
        let kind = match error.kind() {
            kind @ (BuildErrorKind::OutOfMemory | BuildErrorKind::DeviceLost) => kind.clone(),
            _ => BuildErrorKind::Failed,
        };
        BuildError::new(kind, format!("the plan does not open: {error}"))
    })?;
    let sizes::Sizes { all: all_sizes, n_ends } = sizes::to_check(plan, graph);
    let limits = budget::of_plan(&engine, optimized, &all_sizes, options);
    let engine = engine.limited(limits);
    let (mut findings, large) = thread::scope(|scope| {
        let proof = scope.spawn(|| prove(optimized, &engine, weights, &all_sizes, options.threads));
        let proven = || proof.join().unwrap_or_else(|panic| resume_unwind(panic));
        let seed = steps::seed_of(plan);
        let too_much =
            budget::too_much(&engine, flops_at(graph, &plan.header.tuned_at), &plan.header.tuned_at);
        let stops = match too_much {
            Some(why) => Some(why),
            None => match inputs::random(plan, &plan.header.tuned_at, seed, Integers::Wide) {
                Some(inputs) => budget::exceeds(&engine, &inputs)?,
                None => Some("inputs that are not tensors, or of unknown rank, are not made up".to_string()),
            },
        };
        let without_steps = |checks: Vec<Check>, left_out: Option<String>| {
            let certificate = Certificate::new(checks);
            Ok((Findings { certificate, guilty: None, not_compared: Vec::new(), left_out }, None))
        };
        if let Some(why) = stops {
            let mut checks = proven();
            checks.push(skipped("all that needs a run", why.clone()));
            let left_out = format!("steps and results were not checked, wires and memory were: {why}");
            return without_steps(checks, Some(left_out));
        }
        let hard = scope.spawn(move || hard::check(plan, backends, seed));
        let runs = Runs { graph, optimized, engine: &engine, weights, backends, options };
        let found = runs.check(&all_sizes, n_ends)?;
        let hard = hard.join().unwrap_or_else(|panic| resume_unwind(panic));
        let mut checks = proven();
        if checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))) {
            return without_steps(checks, None);
        }
        let mut guilty = found.guilty;
        checks.extend(found.checks);
        if let (None, Some((check, wrong))) = (&guilty, hard) {
            checks.push(check);
            guilty = wrong;
        }
        // A run that was stopped looks like one that failed.
        options.go_on()?;
        let certificate = Certificate::new(checks);
        let findings = Findings { certificate, guilty, not_compared: found.not_compared, left_out: None };
        Ok::<_, BuildError>((findings, found.large))
    })?;
    // Two sets of packed weights need not be in memory together.
    drop(engine);
    if let (None, Some(large)) = (findings.failure(), large) {
        findings.certificate.checks.push(large.against_nodes(graph, backends, options));
        options.go_on()?;
    }
    Ok(findings)
}

/// What the runs of a plan are held against.
struct Runs<'a> {
    graph: &'a Graph,
    optimized: &'a Graph,
    engine: &'a Engine,
    weights: &'a [Tensor],
    backends: &'a [Arc<dyn Backend>],
    options: &'a BuildOptions,
}

/// What runs showed.
struct Found {
    checks: Vec<Check>,
    guilty: Option<Guilty>,
    not_compared: Vec<String>,
    /// What is left to be compared as a whole.
    large: Option<whole::Large>,
}

/// A run at the tuned sizes that went to its end.
struct Tuned {
    integers: Integers,
    outputs: Vec<Value>,
}

impl Runs<'_> {
    fn check(&self, all_sizes: &[Vec<(String, i64)>], n_ends: usize) -> Result<Found, BuildError> {
        let Runs { graph, optimized, engine, weights, backends, options } = *self;
        let mut large = None;
        let plan = engine.plan();
        let seed = steps::seed_of(plan);
        let host = &backends[0];
        let others = host.host().and_then(|host| host.other_kernels());
        let witness = others.as_deref().unwrap_or(&**host);
        let mut steps = Steps::new(engine, weights, witness, options.threads, options.progress.clone());
        let mut checks: Vec<Check> = Vec::new();
        let mut guilty = None;
        // What the tuned sizes cost is paid anyway.
        let most_flops = whole::MAX_REFERENCE_FLOPS.max(flops_at(graph, &plan.header.tuned_at));
        let mut tuned = None;
        // A plan without a profile may refuse sizes that nobody asked for, in which case it computes nothing wrong.
        let mut taken: Vec<Vec<(String, i64)>> = Vec::new();
        for (number, sizes) in all_sizes.iter().enumerate() {
            options.go_on()?;
            let at = if number == 0 { String::new() } else { at(sizes) };
            let flops = flops_at(graph, sizes);
            let why = match flops > most_flops {
                true => {
                    let gflops = flops as f64 / 1e9;
                    Some(format!("{gflops:.1} GFLOP are too many; it was checked at smaller sizes"))
                }
                false => budget::too_much(engine, flops, sizes),
            };
            if let Some(why) = why {
                checks.push(skipped(&format!("steps{at}"), why));
                continue;
            }
            let mut ran = run_at(&mut steps, engine, &[], sizes, &at, seed);
            let is_whole = ran.as_ref().is_some_and(|(ran, _)| ran.ended.is_none());
            if let (0, true, Some((ran, integers))) = (number, is_whole, &mut ran) {
                tuned = Some(Tuned { integers: *integers, outputs: std::mem::take(&mut ran.outputs) });
            }
            if !plan.header.profiles.is_empty() || is_whole {
                taken.push(sizes.clone());
            }
            guilty = take(ran.map(|(ran, _)| ran), &at, &mut checks);
            if guilty.is_some() {
                break;
            }
        }
        if guilty.is_none() {
            guilty = bodies::check(&mut steps, engine, optimized, weights, backends, options, &mut checks);
        }
        options.go_on()?;
        if let (None, Some(Tuned { integers, outputs })) = (&guilty, tuned) {
            let inputs = inputs::random(plan, &plan.header.tuned_at, seed, integers).unwrap_or_default();
            let made_up = whole::MadeUp { seed, integers };
            large = whole::against_reference(graph, engine, &taken, options, made_up, &mut checks);
            let tolerance = whole::deciding(graph).is_none().then(|| whole::tolerance(graph, options));
            let threads = options.threads;
            let mut alone =
                neighbours::Alone { inputs: &inputs, outputs: &outputs, tolerance, threads, used: None };
            let (graphs, ends) = ([graph, optimized], &all_sizes[..=n_ends]);
            guilty = neighbours::check(engine, graphs, ends, made_up, &mut alone, &mut checks);
            if guilty.is_none() {
                let cost = (flops_at(graph, &plan.header.tuned_at), alone.used);
                itself::check(engine, (&inputs, &outputs), threads, made_up, cost, &mut checks);
            }
        }
        let name = |(_, name, why): (_, String, Option<String>)| match why {
            Some(why) => format!("`{name}` ({why})"),
            None => format!("`{name}` (no made-up inputs led to it)"),
        };
        let not_compared = steps.not_compared().into_iter().map(name).collect();
        Ok(Found { checks, guilty, not_compared, large })
    }
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
        let mut ran = steps.run(engine, within, &inputs, (&at, sizes == plan.header.tuned_at));
        let is_settled = ran.guilty.is_some() || ran.is_finite();
        found = Some(match found {
            // What did not run to its end counts where nothing does.
            Some((before, kind)) if before.ended.is_none() => {
                let (kind, outputs) =
                    if is_settled { (integers, ran.outputs) } else { (kind, before.outputs) };
                ran.checks.splice(0..0, before.checks);
                (Ran { ended: None, outputs, ..ran }, kind)
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
        let why = "inputs that are not tensors, or of unknown rank, are not made up".to_string();
        checks.push(skipped(&format!("all steps{at}"), why));
        return None;
    };
    checks.extend(ran.checks);
    if let Some(why) = ran.ended {
        // Made-up inputs may be outside what the model defines; that says nothing against the plan.
        checks.push(skipped(
            &format!("steps after this{at}"),
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
) -> Vec<Check> {
    let mut checks = Vec::new();
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
    checks
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
