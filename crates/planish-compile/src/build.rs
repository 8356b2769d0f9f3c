//! The driver of a build: passes, lowering, prices, selection, schedule.

use std::collections::BTreeSet;
use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::{Backend, Region, Target};
use planish_passes::Report;
use planish_plan::{Certificate, Evidence, Header, Plan, Profile, Step, StepKind};
use planish_tensor::{DefaultFloatMode, Tensor};

use crate::backends::{Backends, HOST};
use crate::check::check;
use crate::choose::select::select;
use crate::choose::tactic_lock::TacticLock;
use crate::choose::variants::variants;
use crate::choose::vet::vet;
use crate::code::needs_and_code;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::lower::candidates::alternatives;
use crate::lower::{Draft, DraftKind, lower};
use crate::options::BuildOptions;
use crate::precision::{lower_precision, raise_precision};
use crate::price::cache::TimingCache;
use crate::price::measure::measure;
use crate::schedule::weights::Weights;
use crate::schedule::{Decided, schedule};
use crate::sizes::Sizes;
use crate::stages::Stages;

/// A built plan and how it came about.
#[derive(Debug)]
pub struct Built {
    pub plan: Plan,
    /// What the passes did and refused.
    pub passes: Report,
    /// The graph that was lowered.
    pub graph: Graph,
    /// The tactics that it was built with, for a later build to be held to.
    pub tactics: TacticLock,
    /// What whoever asked for the build should know.
    pub notes: Vec<String>,
    /// What the time was spent on.
    pub stages: Stages,
}

/// Builds a plan of `graph` for backends: the first is the host's, where inputs and outputs are; the others are
/// devices, the preferred first, and compute all that they have kernels for. New times go into `timings`.
pub fn build(
    graph: &Graph,
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    timings: &mut TimingCache,
) -> Result<Built, BuildError> {
    // What is folded, measured and checked is what any caller gets.
    let _mode = DefaultFloatMode::enter();
    let backends = Backends::new(backends)?;
    let mut stages = Stages::start();
    let fixed = fixed_sizes(&options.profiles);
    let specialized = match &fixed {
        Some(sizes) => {
            let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
            graph.specialize(&lookup).map_err(|error| {
                let message = format!("the model does not accept these shapes: {error}");
                BuildError::new(BuildErrorKind::WrongShape, message)
            })?
        }
        None => graph.clone(),
    };
    let pass_options = planish_passes::Options {
        disabled: options.disabled_passes.clone(),
        stop_after: options.stop_after,
        explain: options.explain,
        cancel: options.cancel.clone(),
        ..planish_passes::Options::default()
    };
    options.tell("optimize", 0, 0);
    let mut notes = Vec::new();
    let original = raise_precision(specialized, backends, options, &mut notes)?;
    let (graph, mut passes) =
        planish_passes::standard().run(original.clone(), &pass_options).map_err(|error| of_passes(&error))?;
    let graph = lower_precision(graph, backends, options, &mut passes, &mut notes)?;
    stages.end("passes");

    if let Some(path) = &options.timing_cache {
        timings.merge(&TimingCache::load_if_any(path)?.unwrap_or_default());
        let targets: Vec<Target> = backends.all().iter().map(|backend| backend.target()).collect();
        let devices: Vec<&str> = targets.iter().map(|target| target.device.as_str()).collect();
        notes.extend(timings.note_for(&devices));
    }
    let mut options = options.clone();
    for _ in 0..MAX_REPAIRS {
        let Assembled { mut plan, tactics, tensors, refused } =
            assemble(&graph, fixed.is_some(), backends, &options, timings, &mut stages)?;
        let n_more = refused.len().saturating_sub(MAX_REFUSALS);
        notes.extend(refused.into_iter().take(MAX_REFUSALS));
        notes.extend((n_more > 0).then(|| format!("so are {n_more} more")));
        let spread = spread(&plan);
        if backends.is_late(options.build_time) {
            notes.push(unmeasured(&plan));
        }
        if let (true, Some(spread)) = (options.strict, &spread) {
            let message = format!("--strict: {spread}; leave --strict out to accept it");
            return Err(BuildError::new(BuildErrorKind::Refused, message));
        }
        options.go_on()?;
        if !options.verify {
            notes.extend(spread);
            return Ok(Built { plan, passes, graph, tactics, notes, stages });
        }
        options.tell("check", 0, plan.program.steps.len());
        let findings = check(&original, &graph, &plan, &tensors, backends.all(), &options)?;
        stages.end("check");
        let Some(failure) = findings.failure() else {
            let open = findings.left_out.clone().or_else(|| not_compared(&findings.not_compared));
            if let (true, Some(open)) = (options.strict, &open) {
                let message = format!("--strict: {open}; leave --strict out to accept it");
                return Err(BuildError::new(BuildErrorKind::Refused, message));
            }
            plan.certify(findings.certificate.checks)
                .map_err(|error| BuildError::internal(format!("the plan cannot be written: {error}")))?;
            notes.extend(open);
            notes.extend(spread);
            return Ok(Built { plan, passes, graph, tactics, notes, stages });
        };
        let Some(guilty) = findings.guilty else {
            let message = format!("the plan does not compute the model: {failure}; please report it");
            return Err(BuildError::new(BuildErrorKind::CheckFailed, message));
        };
        notes.push(format!("{} gave a wrong answer and is left out: {}", guilty.tactic.name, guilty.what));
        options.banned_tactics.push(guilty.tactic.name);
    }
    let message = format!("no plan passed its check: {}; please report it", notes.join("; "));
    Err(BuildError::new(BuildErrorKind::CheckFailed, message))
}

/// Which steps the self-check compared with nothing.
fn not_compared(steps: &[String]) -> Option<String> {
    let n = steps.len();
    let are = if n == 1 { "step was" } else { "steps were" };
    (n > 0).then(|| format!("{n} {are} not compared by the self-check: {}", named(steps)))
}

/// What the end of the build's time left to the cost model.
fn unmeasured(plan: &Plan) -> String {
    let is_open =
        |evidence: &&Evidence| evidence.timings.len() > 1 && evidence.timings.iter().all(|t| !t.measured);
    let (n_open, n_all) = (plan.evidence.iter().filter(is_open).count(), plan.evidence.len());
    format!(
        "--build-time is over: nothing was measured for {n_open} of {n_all} steps, they go by the cost model"
    )
}

/// Tactics that could not be measured are named up to this many.
const MAX_REFUSALS: usize = 8;

/// Tactics that may turn out wrong before a build gives up.
const MAX_REPAIRS: usize = 4;

/// A plan of an optimized graph, unchecked.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) plan: Plan,
    /// The tactics that it uses.
    pub(crate) tactics: TacticLock,
    /// Its weights as the graph has them.
    pub(crate) tensors: Vec<Tensor>,
    /// Tactics that could not be measured, and why, each once.
    refused: BTreeSet<String>,
}

/// Decides and schedules an optimized graph.
pub(crate) fn assemble(
    graph: &Graph,
    is_fixed: bool,
    backends: Backends<'_>,
    options: &BuildOptions,
    timings: &mut TimingCache,
    stages: &mut Stages,
) -> Result<Assembled, BuildError> {
    let sizes = Sizes::of(graph, options);
    sizes.check(graph)?;
    let n_known = timings.len();
    let decided = cover(graph, backends, &sizes, options, timings).and_then(|mut decided| {
        vet(&mut decided, backends, &sizes, options)?;
        let Decided { draft, choices, chosen, .. } = &decided;
        decided.variants = variants(draft, choices, chosen, backends, &sizes, options, timings)?;
        Ok(decided)
    });
    if let Some(path) = &options.timing_cache
        && timings.len() > n_known
    {
        // What was measured is kept even if the build failed or was stopped.
        timings.save(path)?;
    }
    let decided = decided?;
    stages.end("tactics");
    options.go_on()?;
    let mut weights = Weights::default();
    let (program, evidence) = schedule(&decided, backends, &sizes, options, &mut weights)?;
    let printed = graph.print();
    let constants = weights.holders(&printed.constants)?;
    let mut tactics = TacticLock::default();
    lock(&decided, &mut tactics);
    stages.end("weights");
    options.go_on()?;
    let needed = needs_and_code(&program, backends, &sizes, options)?;
    stages.end("code");
    let target = |(at, backend): (usize, &Arc<dyn Backend>)| {
        let Target { backend, mut needs, device } = backend.target();
        needs.extend(
            needed.needs.iter().filter(|(target, _)| *target == at as u32).map(|(_, need)| need.clone()),
        );
        Target { backend, needs, device }
    };
    let header = Header {
        name: graph.name.clone(),
        producer: planish_runtime::VERSION.to_string(),
        source: options.source,
        options: options.text(),
        targets: backends.all().iter().enumerate().map(target).collect(),
        profiles: if is_fixed { Vec::new() } else { options.profiles.clone() },
        tuned_at: sizes.pairs(),
        threads: options.threads as u32,
    };
    let plan = Plan {
        header,
        roles: backends.all().iter().map(|backend| backend.memory_kind().into()).collect(),
        program,
        weights: weights.list,
        graph: printed.text,
        constants,
        evidence,
        certificate: Certificate::default(),
        code: needed.code,
    };
    let mut refused = BTreeSet::new();
    refusals(&decided, &mut refused);
    Ok(Assembled { plan, tactics, tensors: weights.tensors, refused })
}

/// Which steps of a plan for a device run on the host all the same, and what the transfers between them cost.
fn spread(plan: &Plan) -> Option<String> {
    let program = &plan.program;
    let device = &plan.header.targets[plan.device()? as usize];
    let steps = || plan.program.steps.iter().filter(|step| !matches!(step.kind, StepKind::Transfer));
    let on_host: Vec<String> = steps()
        .filter(|step| step.target == HOST && step.region.ops() != "Identity")
        .map(|step| format!("`{}` ({})", step.name, step.region.ops()))
        .collect();
    let host = &plan.header.targets[plan.host() as usize].backend;
    (!on_host.is_empty()).then(|| {
        let (n, all, device) = (on_host.len(), steps().count(), &device.backend);
        let is_inner = |step: &Step| {
            let of_graph = |value: &u32| program.inputs.contains(value) || program.outputs.contains(value);
            !step.inputs.iter().chain(&step.outputs).flatten().any(of_graph)
        };
        let inner: Vec<u64> = plan
            .evidence
            .iter()
            .filter(|evidence| {
                let step = &program.steps[evidence.step as usize];
                matches!(step.kind, StepKind::Transfer) && is_inner(step)
            })
            .filter_map(|evidence| evidence.timings.first().map(|timing| timing.ns))
            .collect();
        let us = inner.iter().sum::<u64>() as f64 / 1e3;
        format!(
            "{n} of {all} steps run on {host}, where {device} has no kernel or transfers would cost more than it \
             saves: {}; {} transfers between the two take about {us:.0} us a run",
            named(&on_host),
            inner.len()
        )
    })
}

/// The sizes of a single profile that allows one size for each symbol.
fn fixed_sizes(profiles: &[Profile]) -> Option<Vec<(String, i64)>> {
    let [profile] = profiles else { return None };
    let fixed = profile.ranges.iter().all(|range| range.min == range.max);
    fixed.then(|| profile.ranges.iter().map(|range| (range.symbol.clone(), range.opt)).collect())
}

/// Lowers and decides. Regions that hold several steps' main work are taken only where they are cheaper than the
/// steps that they replace.
fn cover(
    graph: &Graph,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
    timings: &mut TimingCache,
) -> Result<Decided, BuildError> {
    if let Some(lock) = &options.tactics {
        // The regions were chosen when the lock was made.
        let draft = lower(graph, backends, sizes, options, &|region, _| lock.has(region))?;
        return decide(draft, backends, sizes, options, timings, false);
    }
    let is_wide = |region: &Region| region.nodes.iter().filter(|node| !node.op.is_pointwise()).count() > 1;
    let with = lower(graph, backends, sizes, options, &|_, _| true)?;
    if !with.steps.iter().any(|step| is_wide(&step.region)) {
        return decide(with, backends, sizes, options, timings, false);
    }
    let without = lower(graph, backends, sizes, options, &|region, _| !is_wide(region))?;
    let with = decide(with, backends, sizes, options, timings, true)?;
    let without = decide(without, backends, sizes, options, timings, true)?;
    let price = |decided: &Decided, nodes: &[u32]| -> f64 {
        let inside = |idx: &usize| {
            let own = &decided.draft.steps[*idx].nodes;
            !own.is_empty() && own.iter().all(|node| nodes.contains(node))
        };
        (0..decided.draft.steps.len()).filter(inside).map(|idx| step_ns(decided, backends, idx)).sum()
    };
    let mut kept: Vec<Vec<u32>> = Vec::new();
    for step in with.draft.steps.iter().filter(|step| is_wide(&step.region)) {
        if price(&with, &step.nodes) < price(&without, &step.nodes) {
            kept.push(step.nodes.clone());
        }
    }
    let allows = |region: &Region, nodes: &[u32]| !is_wide(region) || kept.iter().any(|known| known == nodes);
    let draft = lower(graph, backends, sizes, options, &allows)?;
    decide(draft, backends, sizes, options, timings, true)
}

/// What a decided step costs.
fn step_ns(decided: &Decided, backends: Backends<'_>, idx: usize) -> f64 {
    let target = decided.draft.steps[idx].target;
    match decided.choices[idx].list.get(decided.chosen[idx]) {
        Some(alternative) if !alternative.view => alternative.ns + backends.get(target).prices().step_ns,
        _ => 0.0,
    }
}

/// Prices and chooses for a draft and its bodies; `alone` prices steps without a choice too.
fn decide(
    draft: Draft,
    backends: Backends<'_>,
    sizes: &Sizes,
    options: &BuildOptions,
    timings: &mut TimingCache,
    alone: bool,
) -> Result<Decided, BuildError> {
    let mut choices = alternatives(&draft, backends, sizes, options)?;
    measure(&draft, &mut choices, backends, options, timings, alone)?;
    let chosen = select(&draft, &choices, backends, sizes);
    let mut bodies = Vec::with_capacity(draft.steps.len());
    for step in &draft.steps {
        let mut decided = Vec::new();
        if let DraftKind::Control { bodies, .. } = &step.kind {
            for body in bodies {
                decided.push(decide(body.clone(), backends, sizes, options, timings, false)?);
            }
        }
        bodies.push(decided);
    }
    let variants = vec![Vec::new(); draft.steps.len()];
    Ok(Decided { draft, choices, chosen, variants, bodies })
}

/// Notes what was chosen, in bodies too.
fn lock(decided: &Decided, tactics: &mut TacticLock) {
    for (idx, step) in decided.draft.steps.iter().enumerate() {
        if let Some(alternative) = decided.choices[idx].list.get(decided.chosen[idx]) {
            tactics.add(&step.region, &alternative.candidate, &decided.variants[idx]);
        }
    }
    decided.bodies.iter().flatten().for_each(|body| lock(body, tactics));
}

/// The first of a list, and how many more there are: `planish inspect --layers` has them all.
fn named(list: &[String]) -> String {
    let shown = &list[..list.len().min(MAX_NAMED)];
    match list.len() - shown.len() {
        0 => shown.join(", "),
        n_more => format!("{} and {n_more} more", shown.join(", ")),
    }
}

/// Steps that a note names.
const MAX_NAMED: usize = 8;

/// Collects what could not be measured, in bodies too.
fn refusals(decided: &Decided, refused: &mut BTreeSet<String>) {
    refused.extend(decided.choices.iter().flat_map(|choices| choices.refused.iter().cloned()));
    decided.bodies.iter().flatten().for_each(|body| refusals(body, refused));
}
