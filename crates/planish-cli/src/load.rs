//! A model or a plan on the command line, ready to run: plans are opened, models are built in memory.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use planish::shapes::{self, Asked, Sizes};
use planish::{
    BuildOptions, Builder, Built, Cached, CertificateState, Device, Engine, EngineOptions, Model, Opened,
    Plan, PlanCache, Precision, Stage, TacticLock, WeightRange,
};

use crate::args::{AskedCalibrator, AskedPrecision, Building, LayerPrecision, Opening, StopAfter};
use crate::files::{self, Kind};
use crate::interrupt::Stoppable;
use crate::{border, pins, progress, say_note, sign, verbose};

/// Reads `200ms`, `3s`, `2m` or a number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "ms" => 1e-3,
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(format!("`{unit}` is not a unit of time; give 200ms, 3s or 2m")),
    };
    let seconds: f64 =
        number.parse().map_err(|_| format!("`{number}` is not a number; give 200ms, 3s or 2m"))?;
    Duration::try_from_secs_f64(seconds * scale).map_err(|_| format!("`{text}` is not a duration"))
}

/// Reads `224` or `256x192`: height and width.
pub(crate) fn crop(text: &str) -> Result<(u32, u32), String> {
    let (height, width) = text.split_once('x').unwrap_or((text, text));
    let side = |text: &str| text.parse::<u32>().ok().filter(|&side| side > 0);
    side(height).zip(side(width)).ok_or_else(|| format!("`{text}` is not a size; give 224 or 256x192"))
}

/// Reads `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("`{text}` is no pair; give KEY=VALUE"))?;
    Ok((key.to_string(), value.to_string()))
}

/// Reads a precision.
pub(crate) fn precision(text: &str) -> Result<Precision, String> {
    Precision::named(text).ok_or_else(|| match text {
        "auto" => "auto is for `planish build`; give fp32, tf32, fp16, bf16, int8 or fp8".to_string(),
        _ => format!("`{text}` is not a precision; give fp32, tf32, fp16, bf16, int8 or fp8"),
    })
}

/// Reads a precision, or that it is to be found.
pub(crate) fn asked_precision(text: &str) -> Result<AskedPrecision, String> {
    match text {
        "auto" => Ok(AskedPrecision::Auto),
        _ => precision(text)
            .map(AskedPrecision::Named)
            .map_err(|why| format!("{why}, or auto with a contract")),
    }
}

/// Reads a calibrator, or that it is to be found.
pub(crate) fn asked_calibrator(text: &str) -> Result<AskedCalibrator, String> {
    match text {
        "auto" => Ok(AskedCalibrator::Auto),
        _ => text
            .parse()
            .map(AskedCalibrator::Named)
            .map_err(|error: planish::CalibrationError| format!("{error}, and auto")),
    }
}

/// Reads `GLOB:fp32`, `GLOB:int8` or `GLOB:fp8`.
pub(crate) fn layer_precision(text: &str) -> Result<LayerPrecision, String> {
    let parts = text.rsplit_once(':').filter(|(pattern, _)| !pattern.is_empty());
    let precision = parts.and_then(|(_, name)| Precision::named(name));
    match (parts, precision) {
        (Some((pattern, _)), Some(precision @ (Precision::Fp32 | Precision::Int8 | Precision::Fp8))) => {
            Ok(LayerPrecision { pattern: pattern.to_string(), precision })
        }
        _ => Err(format!(
            "`{text}` does not say which layers are computed in what; give NAMES:fp32, NAMES:int8 or NAMES:fp8, as in \
             'encoder/*:fp32'"
        )),
    }
}

/// Takes over which layers are computed in what.
pub(crate) fn set_layer_precisions(options: &mut BuildOptions, layers: &[LayerPrecision]) {
    let of = |is_wanted: fn(Precision) -> bool| {
        let chosen = layers.iter().filter(|layer| is_wanted(layer.precision));
        chosen.map(|layer| layer.pattern.clone()).collect()
    };
    options.fp32_layers = of(|precision| precision == Precision::Fp32);
    options.int8_layers = of(Precision::quantizes);
}

/// A built plan.
pub(crate) struct Made {
    pub(crate) plan: Plan,
    pub(crate) time: Duration,
    /// How long it took to build it; nothing for one that was opened.
    pub(crate) built: Option<Duration>,
    pub(crate) report: Option<planish::PassesReport>,
    /// What the build spent its time on.
    pub(crate) stages: Option<planish::Stages>,
}

/// Says why a file cannot be read, before anybody says what it is not.
pub(crate) fn readable(path: &Path) -> Result<()> {
    planish::files::open(path).map(drop).with_context(|| format!("cannot read {}", path.display()))
}

/// Whether the file is a plan, by its first bytes. What cannot be read is none; who reads it as a model says why.
pub(crate) fn is_plan(path: &Path) -> bool {
    let mut first = [0u8; 16];
    let read = planish::files::open(path).and_then(|mut file| file.read(&mut first));
    read.is_ok_and(|n| planish::record::is_plan(&first[..n])) || planish::Bundle::is_one(path)
}

/// Opens the plan, or builds the model. What is built in memory is kept in the user's cache folder, and taken from
/// there the next time.
pub(crate) fn plan(path: &Path, building: &Building, opening: &Opening, no_cache: bool) -> Result<Made> {
    match is_plan(path) {
        true => open(path, building, opening, no_cache),
        false => {
            check_device(building.device)?;
            build_in_memory(path, Model::open(path)?, building, no_cache)
        }
    }
}

/// A GPU that is asked for and not there: without it nothing is going to happen, so nothing else is said.
pub(crate) fn check_device(device: Device) -> Result<()> {
    if matches!(device, Device::Cuda(_)) {
        device.describe()?;
    }
    Ok(())
}

/// Opens a plan file; a plan of another machine is built again, with a note.
fn open(path: &Path, building: &Building, opening: &Opening, no_cache: bool) -> Result<Made> {
    let start = Instant::now();
    check_device(building.device)?;
    let cache = if no_cache { None } else { PlanCache::user() };
    let mut build_time = None;
    let opened = match opening.copy {
        true => Plan::open_copied_for(path, building.device),
        false => Plan::open_for(path, building.device),
    };
    let plan = match opened? {
        Opened::Fits(plan) => plan,
        Opened::NeedsRebuild(rebuild) => {
            say_note(&format!("{}; it is built again for this machine", rebuild.why()));
            let key = rebuild.cache_key()?;
            let build = || {
                let begun = Instant::now();
                let work = Stoppable::begin();
                let built = rebuild.progress(progress::bar()).cancel(work.flag()).build_with_report();
                progress::clear();
                work.end()?;
                let built = built?;
                built.notes.iter().for_each(|note| say_note(note));
                build_time = Some(begun.elapsed());
                Ok(built.plan.into())
            };
            cached(cache.as_ref(), key, building.device, build)?
        }
    };
    say_if_unchecked(plan.record());
    Ok(Made { plan, time: start.elapsed(), built: build_time, report: None, stages: None })
}

/// Builds a model that was read from this file, or takes the plan from the cache.
pub(crate) fn build_in_memory(
    path: &Path,
    model: Model,
    building: &Building,
    no_cache: bool,
) -> Result<Made> {
    let start = Instant::now();
    let cache = if no_cache { None } else { PlanCache::user() };
    let mut build_time = None;
    if let Some(StopAfter::Stage(stage)) = building.stop_after {
        bail!("--stop-after {}: stages of a build are shown by `planish build`", stage.name());
    }
    if building.precision == AskedPrecision::Auto {
        bail!(
            "--precision auto is a search under a contract; `planish build` makes it, and takes its plan here"
        );
    }
    let builder = prepare(path, model, building)?;
    say_note(&format!("building a plan of {} in memory", path.display()));
    // What the build itself is to say or write, only a build can.
    let asked = building.explain || building.save_tactics.is_some() || verbose::level() > 0;
    let key = if asked { None } else { builder.cache_key()? };
    let mut report = None;
    let build = || {
        let begun = Instant::now();
        let built = run(builder, building)?;
        build_time = Some(begun.elapsed());
        report = Some(built.passes);
        Ok(built.plan.into())
    };
    let plan = cached(cache.as_ref(), key, building.device, build)?;
    say_if_unchecked(plan.record());
    Ok(Made { plan, time: start.elapsed(), built: build_time, report, stages: None })
}

/// Builds a model that others are held against: nothing is said of it, nothing is kept.
pub(crate) fn build_quietly(path: &Path, model: Model, building: &Building) -> Result<Plan> {
    let mut builder = prepare(path, model, building)?;
    let work = Stoppable::begin();
    builder.options_mut().cancel = work.flag();
    builder.options_mut().progress = None;
    let built = builder.build_with_report();
    work.end()?;
    Ok(built?.0.plan.into())
}

/// Says of a plan that was never checked, or not since it was refitted, that it was not.
pub(crate) fn say_if_unchecked(plan: &planish::record::Plan) {
    match plan.certificate.state() {
        CertificateState::NotChecked => {
            say_note("this plan was not checked; build it without --no-verify to have it checked");
        }
        CertificateState::KernelsNotRun => {
            say_note("this plan was built without its GPU, and nobody ran its kernels; `planish check` does");
        }
        CertificateState::UncheckedSinceRefit => {
            say_note("this plan is unchecked since its refit; `planish check` runs its self-check again");
        }
        _ => {}
    }
}

/// Whether a plan was checked, in words.
pub(crate) fn state_text(plan: &Plan) -> &'static str {
    state_name(plan.certificate().state())
}

/// The same of what a certificate says.
pub(crate) fn state_name(state: CertificateState) -> &'static str {
    match state {
        CertificateState::NotChecked => "not checked",
        CertificateState::UncheckedSinceRefit => "unchecked since refit",
        CertificateState::KernelsNotRun => "kernels not run",
        _ => "checked",
    }
}

/// The plan from the cache, or built and kept there; says which, and why.
fn cached(
    cache: Option<&PlanCache>,
    key: Option<String>,
    device: Device,
    build: impl FnOnce() -> Result<Plan>,
) -> Result<Plan> {
    let (Some(cache), Some(key)) = (cache, key) else { return build() };
    match cache.find(&key) {
        Cached::Hit(plan) => match plan.fit(device)? {
            Opened::Fits(plan) => {
                say_note("built before: the plan is taken from the cache (--no-cache builds it again)");
                return Ok(plan);
            }
            // It would be built again after the cache, at every run.
            Opened::NeedsRebuild(rebuild) => {
                say_note(&format!("a cached plan does not fit this machine any more: {}", rebuild.why()));
            }
        },
        Cached::Absent => {}
        Cached::Unusable(why) => say_note(&format!("a cached plan cannot be used and is removed: {why}")),
        Cached::Untrusted(why) => {
            say_note(&format!("the cache of plans is not used: {why}"));
            return build();
        }
    }
    let plan = build()?;
    match cache.keep(&key, &plan) {
        Ok(true) => say_note(&format!("the plan is kept for the next time in {}", cache.folder().display())),
        Ok(false) => say_note("the plan is too large for the cache of plans"),
        // A cache that cannot be written costs time, nothing else.
        Err(error) => say_note(&format!("the plan is not cached: {error}")),
    }
    Ok(plan)
}

/// More threads than plans take.
const MAX_THREADS: usize = 4096;

/// Reads `--threads`.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    let number = text.parse().map_err(|_| format!("`{text}` is not a number of threads"))?;
    if number <= MAX_THREADS { Ok(number) } else { Err(format!("at most {MAX_THREADS} threads can be")) }
}

/// Reads `4G`, `512M`, `64K` or a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a number of bytes; give 4G, 512M, 64K or bytes");
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes.is_finite() && (0.0..2f64.powi(53)).contains(&bytes) { Ok(bytes as usize) } else { Err(wrong()) }
}

/// Builds the model.
pub(crate) fn build(path: &Path, building: &Building) -> Result<Made> {
    let start = Instant::now();
    let built = run(prepare(path, Model::open(path)?, building)?, building)?;
    let stages = Some(built.stages);
    let time = start.elapsed();
    Ok(Made { plan: built.plan.into(), time, built: Some(time), report: Some(built.passes), stages })
}

/// The text of a stage of the build.
pub(crate) fn stage(path: &Path, building: &Building, stage: Stage) -> Result<String> {
    let mut builder = prepare(path, Model::open(path)?, building)?;
    let work = Stoppable::begin();
    builder.options_mut().cancel = work.flag();
    let reached = builder.build_until(stage);
    progress::clear();
    work.end().with_context(|| stopped(building.timing_cache.as_deref()))?;
    Ok(reached?.to_string())
}

/// A number of passes, or a stage by its name.
pub(crate) fn stop_after(text: &str) -> Result<StopAfter, String> {
    if let Some(stage) = Stage::named(text) {
        return Ok(StopAfter::Stage(stage));
    }
    let names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
    let wrong = |_| format!("give a number of passes, or one of {}", names.join(", "));
    text.parse().map(StopAfter::Passes).map_err(wrong)
}

/// The build that the arguments ask for.
pub(crate) fn prepare(path: &Path, model: Model, building: &Building) -> Result<Builder> {
    if let Some(target) = &building.save_tactics {
        files::check_target(target, Kind::Tactics, &[path])?;
    }
    if let Some(target) = &building.timing_cache {
        if !building.timing_cache_only {
            files::check_target(target, Kind::Timings, &[path])?;
        }
        if let Some(why) = planish::files::distrust(target) {
            say_note(&format!("{why}: its times decide which kernels are taken, never what these compute"));
        }
    }
    // Settled before anything takes time: a GPU that is not there is said at once.
    let device = match building.target {
        Some(_) => Device::Cpu,
        None => building.device.settled(),
    };
    let describe = device.describe()?;
    // Calibrations and samples are of the model as it is.
    let (plain, model) = (model.clone(), border::around(model, &building.border)?);
    let asked = asked_shapes(building);
    let mut untied = building.untied.clone();
    if untied.is_empty() {
        untied = asked.untied(model.graph())?;
        if !untied.is_empty() {
            say_note(&shapes::untied_note(&untied));
        }
    }
    let for_weights = building.weights.is_some();
    let calibration = match building.precision {
        AskedPrecision::Named(Precision::Int8 | Precision::Fp8 | Precision::Fp16) | AskedPrecision::Auto => {
            true
        }
        AskedPrecision::Named(_) if for_weights => true,
        AskedPrecision::Named(precision) if building.calibrating.calib.is_some() => bail!(
            "--calib is for layers of 8 bits and for what leaves the range of fp16; {} has the range of fp32 and needs none",
            precision.name()
        ),
        AskedPrecision::Named(_) => false,
    };
    let (calibrating, threads) = (&building.calibrating, building.threads);
    let calibration = match calibration {
        true => crate::calibrate::for_model(calibrating, &plain, device, threads, for_weights)?,
        false => None,
    };
    if building.weights.is_some() && building.precision == AskedPrecision::Auto {
        bail!("--precision auto chooses how weights are stored; leave --weights out");
    }
    let samples = match building.precision {
        AskedPrecision::Named(_) if !building.no_verify => {
            crate::calibrate::for_certificate(&building.calibrating, &plain)?
        }
        _ => Vec::new(),
    };
    let model = model.untie(&untied)?;
    let profiles = asked.resolve(model.graph())?;
    let sizes = match profiles.is_empty() {
        true => shapes::tuned_sizes(model.graph(), &Sizes::new())?,
        false => Sizes::new(),
    };
    if building.device == Device::Auto && device != Device::Cpu {
        say_note(&format!("building for {device}, {describe}; --device cpu takes the CPU"));
    }
    let mut builder = Builder::from_model(model)
        .device(device)
        .precision(match building.precision {
            AskedPrecision::Named(precision) => precision,
            AskedPrecision::Auto => Precision::Fp32,
        })
        .tune_level(building.tune_level)
        .winograd(!building.no_winograd)
        .strict(building.strict);
    if let Some(threads) = building.threads {
        builder = builder.threads(threads);
    }
    if let Some(calibration) = &calibration {
        builder = builder.ranges(calibration);
    }
    builder = builder.precision_samples(samples);
    if let Some(target) = &building.target {
        builder = builder.target(target).context("--target")?;
    }
    let options = builder.options_mut();
    options.disabled_passes = building.disabled_passes.clone();
    options.verify = !building.no_verify;
    options.stop_after = match building.stop_after {
        Some(StopAfter::Passes(n)) => Some(n),
        Some(StopAfter::Stage(_)) | None => None,
    };
    options.explain = building.explain || verbose::level() > 1;
    let mut layers = building.layer_precision.clone();
    layers
        .extend(building.pins.as_deref().map(pins::open).transpose().context("--pins")?.unwrap_or_default());
    set_layer_precisions(options, &layers);
    options.weight_range = match (building.full_range, building.reduced_range) {
        (true, _) => Some(WeightRange::Full),
        (_, true) => Some(WeightRange::Reduced),
        _ => None,
    };
    options.obey_precision = building.obey_precision;
    options.dynamic = building.dynamic;
    building.evening.set(options);
    options.weights = building.weights;
    options.sparsity = building.sparsity;
    options.strongly_typed = building.strongly_typed;
    if profiles.is_empty() {
        if !sizes.is_empty() {
            let at: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
            say_note(&format!("no shapes given: tuned at {}, runs at any", at.join(" ")));
        }
        options.tune_at = sizes.into_iter().collect();
    }
    options.metadata.extend(building.metadata.iter().cloned());
    options.profiles = profiles;
    options.progress = progress::bar();
    options.timing_cache = building.timing_cache.clone();
    options.timing_cache_only = building.timing_cache_only;
    let lock = building.load_tactics.as_deref().map(TacticLock::load).transpose();
    options.tactics = lock?;
    options.build_time = building.build_time;
    options.workspace = building.workspace;
    if let Some(sources) = &building.tactic_sources {
        options.set_tactic_sources(sources, &planish::tactic_sources()).context("--tactic-sources")?;
    }
    Ok(builder)
}

/// Runs a build, and says and writes what it has to.
fn run(builder: Builder, building: &Building) -> Result<Built> {
    let work = Stoppable::begin();
    let mut builder = builder;
    builder.options_mut().cancel = work.flag();
    let built = builder.build_with_report();
    progress::clear();
    work.end().with_context(|| stopped(building.timing_cache.as_deref()))?;
    let (built, _) = built?;
    verbose::built(&built);
    built.notes.iter().for_each(|note| say_note(note));
    if let Some(path) = &building.save_tactics {
        built.tactics.save(path)?;
    }
    Ok(built)
}

/// What is left of a build that was stopped.
fn stopped(timing_cache: Option<&Path>) -> String {
    match timing_cache {
        Some(path) if path.is_file() => {
            format!("the build was stopped; the times measured so far are kept in {}", path.display())
        }
        Some(_) => "the build was stopped before anything was measured".to_string(),
        None => "the build was stopped, and nothing is kept (--timing-cache FILE keeps times)".to_string(),
    }
}

/// Refuses what only a GPU can do before a model is built for the CPU.
pub(crate) fn check_opening(path: &Path, device: Device, opening: &Opening) -> Result<()> {
    if !is_plan(path) && device.settled() == Device::Cpu {
        check_memory_options(opening)?;
    }
    // What is wrong with keys and signatures is said before anything is built.
    sign::code_from(path, opening)?;
    Ok(())
}

/// Refuses what says where weights lie on a GPU, for a plan without one.
fn check_memory_options(opening: &Opening) -> Result<()> {
    let option = match (opening.managed_weights, opening.weight_budget) {
        (true, _) => "--managed-weights",
        (_, Some(_)) => "--weight-budget",
        _ => return Ok(()),
    };
    bail!("{option} is for a plan on a GPU; this one runs on the CPU")
}

/// An engine of the plan of this file, or of what was built from it, on the device asked for.
pub(crate) fn engine(path: &Path, plan: Plan, device: Device, opening: &Opening) -> Result<Engine> {
    let on_gpu = plan.record().header.targets.iter().any(|target| target.backend == "cuda");
    if !on_gpu {
        check_memory_options(opening)?;
    }
    let code = sign::code_from(path, opening)?;
    let Opening { managed_weights, weight_budget, .. } = *opening;
    let options = EngineOptions { managed_weights, weight_budget, code };
    Ok(Engine::with_options(plan, device, options)?.limited(limits(opening)))
}

/// A run's error, with how to raise a limit that it met.
pub(crate) fn say_how_to_go_on(error: planish::Error) -> anyhow::Error {
    match error.kind() {
        planish::ErrorKind::Limit => {
            anyhow::anyhow!("{error}; raise it with --max-trips or --max-memory if the model is meant so")
        }
        _ => error.into(),
    }
}

/// How far a run may go.
pub(crate) fn limits(opening: &Opening) -> planish::Limits {
    let all = planish::Limits::default();
    planish::Limits {
        trips: opening.max_trips.unwrap_or(all.trips),
        bytes: opening.max_memory.map_or(all.bytes, |bytes| bytes as u64),
        ..all
    }
}

/// The device that an engine's plan runs on, and what it computes in, as the plan has them.
pub(crate) fn device_and_precision(engine: &Engine) -> (String, String) {
    let record = engine.record();
    let device = record.runs_on().backend.as_str();
    let precision = record.header.options.lines().find_map(|line| line.strip_prefix("precision="));
    (device.to_string(), precision.unwrap_or("fp32").to_string())
}

/// The shapes that the arguments ask for.
fn asked_shapes(building: &Building) -> Asked {
    Asked {
        shapes: building.shapes.clone(),
        min_shapes: building.min_shapes.clone(),
        opt_shapes: building.opt_shapes.clone(),
        max_shapes: building.max_shapes.clone(),
        profiles: building.profiles.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_have_names() {
        assert_eq!(precision("bf16"), Ok(Precision::Bf16));
        assert_eq!(precision("int8"), Ok(Precision::Int8));
        assert_eq!(precision("fp8"), Ok(Precision::Fp8));
        assert!(precision("auto").unwrap_err().contains("auto is for `planish build`"));
        assert_eq!(asked_precision("auto"), Ok(AskedPrecision::Auto));
        assert_eq!(asked_precision("fp16"), Ok(AskedPrecision::Named(Precision::Fp16)));
        let named = |pattern: &str, precision| Ok(LayerPrecision { pattern: pattern.to_string(), precision });
        assert_eq!(layer_precision("a:b/*:fp32"), named("a:b/*", Precision::Fp32));
        assert_eq!(layer_precision("conv1:int8"), named("conv1", Precision::Int8));
        assert!(layer_precision("a:fp16").is_err() && layer_precision(":fp32").is_err());
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("4G"), Ok(4 << 30));
        assert_eq!(bytes("1.5M"), Ok(3 << 19));
        assert_eq!(bytes("64KiB"), Ok(64 << 10));
        assert_eq!(bytes("100"), Ok(100));
        assert!(bytes("4T").is_err() && bytes("-1K").is_err() && bytes("much").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("3h").is_err() && duration("fast").is_err() && duration("-1s").is_err());
    }
}
