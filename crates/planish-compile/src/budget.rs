//! How far runs on made-up inputs may go, and what is too large to be tried at all.
//!
//! A model may ask for any amount of work and memory in a few bytes: a Loop of 2^62 trips, an Expand to terabytes. What
//! exceeds these counts is left unchecked with the reason, and untimed. They are counts and not times, so that equal
//! plans have equal certificates.

use planish_ir::Graph;
use planish_kernel::Problem;
use planish_op::{Limits, Value};
use planish_plan::{Step, StepKind};
use planish_runtime::{Engine, RunErrorKind};

use crate::error::BuildError;
use crate::options::BuildOptions;
use crate::price::policy::MAX_TRIAL_NS;

/// Trips of all loops of a run: some 0.1 s at the least that a trip takes, and a check has some twenty runs.
const MAX_TRIPS: u64 = 10_000;
/// Operations of a run: less than a minute of one core, and of a GPU.
const MAX_HOST_FLOPS: u64 = 4_000_000_000_000;
const MAX_DEVICE_FLOPS: u64 = 400_000_000_000_000;
/// Elements that steps by the reference make in a run, at some 100 ns each.
const MAX_SLOW_ELEMENTS: u64 = 1 << 27;
/// Memory of a run that is known before it begins: arena, outputs and inputs.
const MAX_KNOWN_BYTES: u64 = 8 << 30;
/// Memory that a run takes beside that, in loops and where only a run can tell sizes.
const MAX_GROWN_BYTES: u64 = 512 << 20;
/// Made-up inputs are made in eight bytes an element, beside the tensors themselves.
const BYTES_PER_INPUT_ELEMENT: u64 = 16;

/// Limits of an interpretation by the reference.
pub(crate) fn of_reference(options: &BuildOptions) -> Limits {
    Limits { trips: MAX_TRIPS, bytes: MAX_GROWN_BYTES, cancel: Some(options.cancel.clone()) }
}

/// Limits of a plan's runs on made-up inputs at these sizes.
pub(crate) fn of_plan(
    engine: &Engine,
    graph: &Graph,
    all_sizes: &[Vec<(String, i64)>],
    options: &BuildOptions,
) -> Limits {
    // What a trip costs is known of most bodies, how many there will be of few.
    let trip_flops = loop_flops(graph).max(1);
    let known = all_sizes.iter().map(|sizes| known_bytes(engine, sizes)).filter(|&n| n <= MAX_KNOWN_BYTES);
    Limits {
        trips: MAX_TRIPS.min(MAX_HOST_FLOPS / trip_flops).max(1),
        bytes: known.max().unwrap_or(0) + MAX_GROWN_BYTES,
        cancel: Some(options.cancel.clone()),
    }
}

/// Memory of a run at these sizes that is known before it begins; sizes that do not resolve are told by the run itself.
fn known_bytes(engine: &Engine, sizes: &[(String, i64)]) -> u64 {
    let targets = engine.memory_at(sizes).into_iter().flat_map(|needs| needs.targets);
    targets
        .fold(0, |sum: u64, needs| sum.saturating_add(needs.arena as u64).saturating_add(needs.values as u64))
}

/// Operations of the most expensive body in the graph, as far as they can be counted.
fn loop_flops(graph: &Graph) -> u64 {
    let bodies = graph.nodes().flat_map(|(_, node)| &node.bodies);
    bodies.map(|body| body.work(&|_| Some(1)).flops.max(loop_flops(body))).max().unwrap_or(0)
}

/// Why a run at these sizes would be too much; `flops` are those of the model there.
pub(crate) fn too_much(engine: &Engine, flops: u64, sizes: &[(String, i64)]) -> Option<String> {
    let plan = engine.plan();
    let has_device = plan.device().is_some();
    let max_flops = if has_device { MAX_DEVICE_FLOPS } else { MAX_HOST_FLOPS };
    if flops > max_flops {
        return Some(format!("{:.0} GFLOP are too many for a run on made-up inputs", flops as f64 / 1e9));
    }
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let elements = |value: &u32| -> Option<u64> {
        let shape = plan.program.values[*value as usize].ty.as_tensor()?.shape.as_ref()?.eval(&lookup)?;
        Some(planish_tensor::element_count(&shape).map_or(u64::MAX, |n| n as u64))
    };
    let is_slow =
        |step: &&Step| matches!(step.kind, StepKind::Kernel { slow: true, .. } | StepKind::Evaluate);
    let slow = plan.program.steps.iter().filter(is_slow).flat_map(|step| step.outputs.iter().flatten());
    let n_slow = slow.filter_map(elements).fold(0, u64::saturating_add);
    if n_slow > MAX_SLOW_ELEMENTS {
        return Some(format!("{n_slow} elements by the reference are too many for a run on made-up inputs"));
    }
    let of_inputs = plan.program.inputs.iter().filter_map(elements).fold(0, u64::saturating_add);
    let bytes = of_inputs.saturating_mul(BYTES_PER_INPUT_ELEMENT).saturating_add(known_bytes(engine, sizes));
    (bytes > MAX_KNOWN_BYTES)
        .then(|| format!("{} MiB of memory are too many for a run on made-up inputs", bytes >> 20))
}

/// Why a plan whose loops and sizes only a run can tell cannot be run on made-up inputs: it exceeds the engine's
/// limits.
pub(crate) fn exceeds(engine: &Engine, inputs: &[Value]) -> Result<Option<String>, BuildError> {
    let is_open = |step: &Step| matches!(step.kind, StepKind::Control(_) | StepKind::Evaluate);
    if !engine.plan().program.steps.iter().any(is_open) {
        return Ok(None);
    }
    match engine.context().and_then(|mut context| context.run_values(inputs)) {
        Err(error) => match error.kind() {
            RunErrorKind::Limit => Ok(Some(format!("a run on made-up inputs is too long: {error}"))),
            RunErrorKind::Cancelled => Err(BuildError::cancelled()),
            // What else goes wrong, the check itself meets and judges.
            _ => Ok(None),
        },
        Ok(_) => Ok(None),
    }
}

/// Why nothing is timed for this problem, if its cheapest tactic is expected to take `ns`.
pub(crate) fn too_long_to_time(problem: &Problem, ns: f64) -> Option<String> {
    let operands = problem.inputs.iter().chain(&problem.outputs);
    let bytes = operands.map(|operand| operand.span_bytes() as u64).fold(0, u64::saturating_add);
    let title = problem.region.title();
    if ns > MAX_TRIAL_NS {
        let s = ns / 1e9;
        return Some(format!("`{title}` is not timed, since a run of it would take some {s:.0} s"));
    }
    (bytes > MAX_KNOWN_BYTES)
        .then(|| format!("`{title}` is not timed, since it would take {} MiB of memory", bytes >> 20))
}
