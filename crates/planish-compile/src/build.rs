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
use crate::choose::choose;
use crate::choose::tactic_lock::TacticLock;
use crate::code::needs_and_code;
use crate::error::{BuildError, BuildErrorKind, of_passes};
use crate::integers::{
    FOLD_WEIGHTS, activations, arrange_integers, fold_loose_weights, has_quantization, keeps_integers,
    kernels, move_integers, quantize, quantize_weights, weight_range, wide_layers, widen_layers,
    without_kernels,
};
use crate::lower::candidates::Catalog;
use crate::lower::lower;
use crate::options::{BuildOptions, Precision};
use crate::plugins;
use crate::precision::by_price::{Settled, settle};
use crate::precision::{keep_weights, lower_precision, raise_precision};
use crate::price::cache::TimingCache;
use crate::price::{Wanted, price};
use crate::schedule::weights::{Weights, narrow};
use crate::schedule::{Scheduled, schedule};
use crate::sizes::Sizes;
use crate::sparsity::{self, Sparsity};
use crate::stages::Stages;
use crate::stopped::{Stage, Stopped};

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
    let plugins = if options.verify { plugins::check_used(graph, backends.all())? } else { Vec::new() };
    let asked = optimize(graph, backends, options)?;
    stages.end("passes");
    let told = load_times(backends, options, timings)?;
    let settled = settle(graph, &asked, backends, options, timings)?;
    stages.end("precision");
    let (mut options, optimized, note) = match settled {
        Some(Settled { options, optimized, note }) => (options, optimized, Some(note)),
        None => (options.clone(), asked, None),
    };
    // A plan says what it was built with.
    options.weight_range = Some(weight_range(backends, &options));
    let Optimized { original, graph, is_fixed, rounded, passes, mut notes, .. } = optimized;
    notes.splice(0..0, note);
    notes.extend(told);
    for _ in 0..MAX_REPAIRS {
        let Assembled { mut plan, tactics, tensors, refused, reasons } =
            assemble(&graph, is_fixed, backends, &options, timings, &mut stages)?;
        notes.extend(options.explain.then_some(reasons).into_iter().flatten());
        let n_more = refused.len().saturating_sub(MAX_REFUSALS);
        notes.extend(refused.into_iter().take(MAX_REFUSALS));
        notes.extend((n_more > 0).then(|| format!("so are {n_more} more")));
        let spread = spread(&plan);
        let sparse = (options.sparsity != Sparsity::Disable)
            .then(|| sparsity::note(&graph, &plan, backends))
            .flatten();
        if backends.is_late(options.build_time) {
            notes.extend(unmeasured(&plan));
        }
        if let (true, Some(spread)) = (options.strict, &spread) {
            let message = format!("--strict: {spread}; leave --strict out to accept it");
            return Err(BuildError::new(BuildErrorKind::Refused, message));
        }
        options.go_on()?;
        if !options.verify {
            notes.extend(spread);
            notes.extend(sparse);
            return Ok(Built { plan, passes, graph, tactics, notes, stages });
        }
        options.tell("check", 0, plan.program.steps.len());
        let as_asked = BuildOptions { precision: rounded.unwrap_or(options.precision), ..options.clone() };
        let findings = check(&original, &graph, &plan, &tensors, backends.all(), &as_asked)?;
        stages.end("check");
        let Some(failure) = findings.failure() else {
            let open = findings.left_out.clone().or_else(|| not_compared(&findings.not_compared));
            if let (true, Some(open)) = (options.strict, &open) {
                let message = format!("--strict: {open}; leave --strict out to accept it");
                return Err(BuildError::new(BuildErrorKind::Refused, message));
            }
            plan.certify(plugins.into_iter().chain(findings.certificate.checks).collect())
                .map_err(|error| BuildError::internal(format!("the plan cannot be written: {error}")))?;
            notes.extend(open);
            notes.extend(spread);
            notes.extend(sparse);
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

/// The graph that a build would lower: after its passes, at its fixed sizes and in its precision.
pub fn optimized(
    graph: &Graph,
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
) -> Result<Graph, BuildError> {
    let _mode = DefaultFloatMode::enter();
    Ok(optimize(graph, Backends::new(backends)?, options)?.graph)
}

/// A graph after its passes.
pub(crate) struct Optimized {
    /// As it was given, at its fixed sizes and in types that backends compute in.
    original: Graph,
    pub(crate) graph: Graph,
    /// Whether all sizes are given.
    pub(crate) is_fixed: bool,
    /// Whether the model says itself what is of integers.
    pub(crate) brings_integers: bool,
    /// What the weights were rounded to though nobody asked for it: a model of 16 bits keeps them.
    rounded: Option<Precision>,
    passes: Report,
    notes: Vec<String>,
}

pub(crate) fn optimize(
    graph: &Graph,
    backends: Backends<'_>,
    options: &BuildOptions,
) -> Result<Optimized, BuildError> {
    options.check()?;
    let (specialized, is_fixed) = at_fixed_sizes(graph, options)?;
    let pass_options = planish_passes::Options {
        disabled: options.disabled_passes.clone(),
        stop_after: options.stop_after,
        explain: options.explain,
        cancel: options.cancel.clone(),
        ..planish_passes::Options::default()
    };
    options.tell("optimize", 0, 0);
    let mut notes = Vec::new();
    let (mut original, raised) = raise_precision(specialized, backends, options, &mut notes)?;
    let brings_integers = has_quantization(&original);
    let keeps_integers = keeps_integers(&original, backends, options);
    let mut standard_options = pass_options.clone();
    standard_options.disabled.extend(keeps_integers.then(|| FOLD_WEIGHTS.to_string()));
    let (mut graph, mut passes) = planish_passes::standard()
        .run(original.clone(), &standard_options)
        .map_err(|error| of_passes(&error))?;
    if options.sparsity == Sparsity::Force {
        graph = sparsity::prune(graph, options, &mut passes, &mut notes)?;
        notes.push("--sparsity force: the self-check compares with the pruned model".to_string());
        original = graph.clone();
    }
    if options.precision.quantizes() {
        let wide = wide_layers(backends);
        let without = without_kernels(backends, options.precision)?;
        let integers =
            (activations(backends, options.precision), kernels(backends), weight_range(backends, options));
        graph = quantize(graph, integers, wide, options, &mut passes, &mut notes)?;
        notes.extend(without);
        // What the plan is compared with has its integers: they are what was asked for.
        original = graph.clone();
    }
    if let Some(storage) = options.weights {
        graph = quantize_weights(graph, storage, options, &mut passes, &mut notes)?;
        original = graph.clone();
    }
    if keeps_integers {
        graph = move_integers(graph, backends, options.precision, &pass_options, &mut passes)?;
    }
    graph = lower_precision(graph, backends, options, &mut passes, &mut notes)?;
    let mut rounded = None;
    if let (Some(precision), Precision::Fp32) = (raised, options.precision) {
        (graph, rounded) = keep_weights(graph, precision, options, &mut passes)?;
    }
    if keeps_integers {
        // Last: nothing that joins equal nodes may come after it.
        graph = arrange_integers(graph, backends, options.precision, &pass_options, &mut passes)?;
        if brings_integers && !options.wide_layers.is_empty() {
            graph = widen_layers(graph, &options.wide_layers, &pass_options, &mut passes)?;
        }
        let sizes = Sizes::of(&graph, options);
        let catalog = Catalog::new(backends, &sizes, options);
        graph = fold_loose_weights(graph, &catalog, &mut passes, &mut notes)?;
    }
    if options.sparsity != Sparsity::Disable {
        graph = sparsity::plain_zeros(graph, options, &mut passes)?;
    }
    Ok(Optimized { original, graph, is_fixed, brings_integers, rounded, passes, notes })
}

/// The graph at the sizes of the only profile, where that leaves no choice; and whether it does.
pub(crate) fn at_fixed_sizes(graph: &Graph, options: &BuildOptions) -> Result<(Graph, bool), BuildError> {
    let Some(sizes) = fixed_sizes(&options.profiles) else { return Ok((graph.clone(), false)) };
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let specialized = graph.specialize(&lookup).map_err(|error| {
        let message = format!("the model does not accept these shapes: {error}");
        BuildError::new(BuildErrorKind::WrongShape, message)
    })?;
    Ok((specialized, true))
}

/// Takes over the times of the cache's file, if one is given; says where they are of no use.
fn load_times(
    backends: Backends<'_>,
    options: &BuildOptions,
    timings: &mut TimingCache,
) -> Result<Vec<String>, BuildError> {
    let Some(path) = &options.timing_cache else { return Ok(Vec::new()) };
    timings.merge(&TimingCache::load_if_any(path)?.unwrap_or_default());
    let targets: Vec<Target> = backends.all().iter().map(|backend| backend.target()).collect();
    let devices: Vec<&str> = targets.iter().map(|target| target.device.as_str()).collect();
    Ok(timings.note_for(&devices).into_iter().collect())
}

/// Builds up to a stage, to look at it. New times go into `timings`.
pub fn build_until(
    stage: Stage,
    graph: &Graph,
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    timings: &mut TimingCache,
) -> Result<Stopped, BuildError> {
    let _mode = DefaultFloatMode::enter();
    let backends = Backends::new(backends)?;
    let asked = optimize(graph, backends, options)?;
    load_times(backends, options, timings)?;
    let settled = match stage {
        Stage::Lowered => None,
        Stage::Priced | Stage::Chosen => settle(graph, &asked, backends, options, timings)?,
    };
    let (options, graph) = match &settled {
        Some(Settled { options, optimized, .. }) => (options, &optimized.graph),
        None => (options, &asked.graph),
    };
    let sizes = Sizes::of(graph, options);
    sizes.check(graph)?;
    stop_at(stage, graph, &Catalog::new(backends, &sizes, options), timings)
}

/// Lowers, prices and chooses as far as a stage. What was measured is kept even if that fails or is stopped.
fn stop_at(
    stage: Stage,
    graph: &Graph,
    catalog: &Catalog<'_>,
    timings: &mut TimingCache,
) -> Result<Stopped, BuildError> {
    let options = catalog.options;
    // The regions were chosen when a lock was made.
    let allows = |region: &Region| options.tactics.as_ref().is_none_or(|lock| lock.has(region));
    let lowered = lower(graph, catalog, &allows)?;
    if stage == Stage::Lowered {
        return Ok(Stopped::Lowered(lowered));
    }
    let n_known = timings.len();
    let stopped = price(lowered, Wanted::Contested, catalog, timings).and_then(|priced| match stage {
        Stage::Lowered | Stage::Priced => Ok(Stopped::Priced(priced)),
        Stage::Chosen => choose(priced, catalog, timings).map(Stopped::Chosen),
    });
    save_new_times(n_known, timings, options)?;
    stopped
}

/// Writes the cache's file, if one is given, where more times are known than before.
pub(crate) fn save_new_times(
    n_known: usize,
    timings: &mut TimingCache,
    options: &BuildOptions,
) -> Result<(), BuildError> {
    match &options.timing_cache {
        Some(path) if timings.len() > n_known => timings.save(path),
        _ => Ok(()),
    }
}

/// Which steps the self-check compared with nothing.
fn not_compared(steps: &[String]) -> Option<String> {
    let n = steps.len();
    let are = if n == 1 { "step was" } else { "steps were" };
    (n > 0).then(|| format!("{n} {are} not compared by the self-check: {}", named(steps)))
}

/// What the end of the build's time left to the cost model.
fn unmeasured(plan: &Plan) -> Option<String> {
    let is_open =
        |evidence: &&Evidence| evidence.timings.len() > 1 && evidence.timings.iter().all(|t| !t.measured);
    let (n_open, n_all) = (plan.evidence.iter().filter(is_open).count(), plan.evidence.len());
    let say = || {
        format!(
            "--build-time is over: nothing was measured for {n_open} of {n_all} steps, they go by the cost model"
        )
    };
    (n_open > 0).then(say)
}

/// Tactics that could not be measured are named up to this many.
const MAX_REFUSALS: usize = 8;

/// Tactics that may turn out wrong before a build gives up: as many as the widest family has for one product, so that
/// what all of them get wrong is left to another family.
const MAX_REPAIRS: usize = 12;

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
    /// Why steps cover the nodes that they cover, where prices decided.
    reasons: Vec<String>,
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
    let catalog = Catalog::new(backends, &sizes, options);
    let Stopped::Chosen(chosen) = stop_at(Stage::Chosen, graph, &catalog, timings)? else {
        return Err(BuildError::internal("the build stopped before its tactics were chosen"));
    };
    stages.end("tactics");
    options.go_on()?;
    let mut weights = Weights::default();
    let Scheduled { program, evidence } = schedule(&chosen, backends, &sizes, options, &mut weights)?;
    let printed = graph.print();
    let constants = weights.holders(&printed.constants)?;
    narrow(&mut weights.list, &program);
    let mut tactics = TacticLock::default();
    chosen.lock(&mut tactics);
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
        metadata: options.metadata.clone().into_iter().collect(),
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
        stripped: None,
    };
    let refused = chosen.refusals().into_iter().collect();
    let reasons = chosen.reasons();
    Ok(Assembled { plan, tactics, tensors: weights.tensors, refused, reasons })
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
