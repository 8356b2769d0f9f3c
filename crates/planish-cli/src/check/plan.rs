//! `planish check MODEL.plan`: the deployment checklist, twelve points, each with its number; the self-check is run again
//! and the plan gets its certificate.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use planish::io::{Samples, Sources};
use planish::record::StepKind;
use planish::{
    Accuracy, ContextOptions, DType, Device, Engine, Model, Opened, Outcome, Plan, Tensor, Value, shapes,
};
use serde_json::json;

use crate::args::{Check, Opening};
use crate::bench::measure::{Timed, Timing, run_all};
use crate::ending::Answer;
use crate::memory::Needs;
use crate::stats::Stats;
use crate::watch::Watch;
use crate::{bundle, calibrate, inspect_plan, load, print, say_note};

/// How a point ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    /// Nothing was given to measure it against.
    Open,
}

impl Verdict {
    fn of(passes: bool) -> Verdict {
        if passes { Verdict::Pass } else { Verdict::Fail }
    }

    fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Open => "open",
        }
    }
}

/// One point of the list.
struct Point {
    title: &'static str,
    verdict: Verdict,
    /// What was found, with its number.
    text: String,
    number: Option<f64>,
}

impl Point {
    fn new(
        title: &'static str,
        verdict: Verdict,
        text: impl Into<String>,
        number: impl Into<Option<f64>>,
    ) -> Point {
        Point { title, verdict, text: text.into(), number: number.into() }
    }
}

pub(super) fn command(args: &Check, out: &mut dyn Write) -> Result<Answer> {
    // It is replaced by what comes of it, so it must not be read from its file any more.
    let plan = Plan::open_copied(&args.model)?;
    let before = load::state_text(&plan);
    let checked = match plan.recheck() {
        Ok(checked) => Ok(checked),
        Err(error) if *error.kind() == planish::ErrorKind::CheckFailed => Err(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    if let Ok(checked) = &checked {
        bundle::save_over(checked, &args.model)?;
    }
    let engine = load::engine(&args.model, plan.clone(), Device::Auto, &Opening::default())?;
    let measured = Measured::new(args, &engine)?;
    let points = [
        precision(&plan),
        calibration(args, &plan)?,
        profiles(args, &engine)?,
        timings(&plan),
        hardware(&plan)?,
        load_point(args, &measured),
        accuracy(&checked),
        measured.utilisation(args),
        measured.latency(args),
        memory(args, &engine)?,
        edges(&engine)?,
        fallback(&plan),
    ];
    let is_bad =
        |point: &&Point| point.verdict == Verdict::Fail || (args.strict && point.verdict == Verdict::Open);
    let n_bad = points.iter().filter(is_bad).count();
    let (n_passed, n_skipped) = checked.as_ref().map_or((0, 0), counted);
    if !args.json.replaces_tables() {
        writeln!(out, "before      {before}")?;
        match &checked {
            Ok(_) => writeln!(
                out,
                "certificate {n_passed} checks passed, {n_skipped} skipped, written to {}",
                args.model.display()
            )?,
            Err(why) => writeln!(out, "failed  {why}")?,
        }
        for (number, point) in points.iter().enumerate() {
            writeln!(out, "{:>2}  {}  {:22} {}", number + 1, point.verdict.word(), point.title, point.text)?;
        }
        let n = |verdict: Verdict| points.iter().filter(|point| point.verdict == verdict).count();
        let (pass, fail, open) = (n(Verdict::Pass), n(Verdict::Fail), n(Verdict::Open));
        writeln!(out, "checklist   {pass} pass, {fail} fail, {open} open")?;
    }
    let entry = |(idx, point): (usize, &Point)| {
        json!({
            "point": idx + 1, "title": point.title, "verdict": point.verdict.word().to_lowercase(), "text": point.text,
            "number": point.number,
        })
    };
    let report = json!({
        "plan": args.model, "passed": n_bad == 0, "before": before, "checks": n_passed, "skipped": n_skipped,
        "why": checked.as_ref().err(),
        "points": points.iter().enumerate().map(entry).collect::<Vec<_>>(),
    });
    print::json(out, &args.json, &report)?;
    Ok(if n_bad == 0 { Answer::Yes } else { Answer::No })
}

fn counted(plan: &Plan) -> (usize, usize) {
    let checks = &plan.certificate().checks;
    let n_passed = checks.iter().filter(|check| check.outcome == Outcome::Passed).count();
    (n_passed, checks.len() - n_passed)
}

/// The value of an option that the plan was built with.
fn option<'p>(plan: &'p Plan, name: &str) -> Option<&'p str> {
    let mut lines = plan.record().header.options.lines();
    lines.find_map(|line| line.split_once('=').filter(|(known, _)| *known == name).map(|(_, value)| value))
}

/// 1: what was asked for is what steps compute in.
fn precision(plan: &Plan) -> Point {
    let asked = option(plan, "precision").unwrap_or("fp32");
    let wanted: &[DType] = match asked {
        "fp16" => &[DType::F16],
        "bf16" => &[DType::BF16],
        "int8" => &[DType::I8, DType::U8],
        "fp8" => &[DType::F8E4M3FN],
        _ => &[DType::F32],
    };
    let program = &plan.record().program;
    let has = |value: &Option<u32>| {
        let ty = value.and_then(|id| program.values[id as usize].ty.as_tensor());
        ty.is_some_and(|ty| wanted.contains(&ty.dtype))
    };
    let kernels = program.steps.iter().filter(|step| matches!(step.kind, StepKind::Kernel { .. }));
    let (mut n, mut n_so) = (0, 0);
    for step in kernels {
        n += 1;
        n_so += usize::from(step.inputs.iter().chain(&step.outputs).any(has));
    }
    let text = format!("{asked}: {n_so} of {n} steps read or write it");
    Point::new("precision set", Verdict::of(n_so > 0 || n == 0 || asked == "tf32"), text, n_so as f64)
}

/// 2: integers by a calibration keep to the model on data.
fn calibration(args: &Check, plan: &Plan) -> Result<Point> {
    let title = "calibration";
    let is_calibrated = option(plan, "ranges").is_some();
    if !is_calibrated {
        return Ok(Point::new(title, Verdict::Pass, "no layer goes by a calibration", None));
    }
    let stated =
        plan.certificate().checks.iter().filter(|check| check.subject.starts_with("cost of the precision"));
    let worst = stated
        .map(|check| check.worst)
        .fold(None, |worst: Option<f64>, own| Some(worst.map_or(own, |w| w.max(own))));
    let (Some(data), Some(model)) = (&args.data, &args.against) else {
        let text = match worst {
            Some(worst) => {
                format!("the certificate states a cost of {worst:.2}; --data and --against measure it anew")
            }
            None => "give --data and --against MODEL.onnx to measure what it costs".to_string(),
        };
        return Ok(Point::new(title, Verdict::Open, text, worst));
    };
    let accuracy = Accuracy::of(plan.clone()).against(Model::open(model)?);
    let graph = accuracy.graph()?;
    let samples =
        Samples::open(data, &graph, args.samples, &calibrate::preprocess(&args.pixels)).context("--data")?;
    let found = accuracy.run(samples.collect::<Vec<_>>())?;
    let worst = found.outputs.iter().map(|(_, error)| *error).fold(0.0, f64::max);
    let n = found.departures.len();
    let text = format!("relative L2 error {worst:.1e} on {} samples, {n} steps depart", found.n_samples);
    Ok(Point::new(title, Verdict::of(n == 0), text, worst))
}

/// 3: the shapes that are met in use are allowed.
fn profiles(args: &Check, engine: &Engine) -> Result<Point> {
    let title = "profiles match shapes";
    if args.shapes.is_empty() {
        let n = engine.record().header.profiles.len();
        let what = if n == 0 { "any shape".to_string() } else { format!("{n} profiles") };
        return Ok(Point::new(
            title,
            Verdict::Open,
            format!("{what}; give the shapes that are met with --shapes"),
            None,
        ));
    }
    let mut context = engine.context()?;
    let mut refused = Vec::new();
    for text in &args.shapes {
        let parts: Vec<String> = text.split(',').map(str::to_string).collect();
        let given = shapes::parse("--shapes", &parts)?;
        let dims: Vec<(&str, &[usize])> =
            given.iter().map(|(name, dims)| (name.as_str(), dims.as_slice())).collect();
        if let Err(error) = context.resolve(&dims) {
            refused.push(format!("{text}: {error}"));
        }
    }
    let n = args.shapes.len();
    let text = match refused.first() {
        None => format!("{n} of {n} shapes that are met are allowed"),
        Some(first) => format!("{} of {n} are not: {first}", refused.len()),
    };
    Ok(Point::new(title, Verdict::of(refused.is_empty()), text, (n - refused.len()) as f64))
}

/// 4: tactics were chosen by measured times.
fn timings(plan: &Plan) -> Point {
    let contested: Vec<_> =
        plan.record().evidence.iter().filter(|evidence| evidence.timings.len() > 1).collect();
    let n_measured =
        contested.iter().filter(|evidence| evidence.timings.iter().any(|time| time.measured)).count();
    let n = contested.len();
    let text = match n {
        0 => "no step has two tactics to choose from".to_string(),
        _ => format!("{n_measured} of {n} choices by measured times, {} by the cost model", n - n_measured),
    };
    Point::new("timing cache used", Verdict::of(n_measured == n), text, n_measured as f64)
}

/// 5: this machine is what the plan was tuned on.
fn hardware(plan: &Plan) -> Result<Point> {
    let own = Device::Auto.describe()?;
    let built = &plan.record().runs_on().device;
    let title = "built on this hardware";
    Ok(match plan.clone().fit(Device::Auto)? {
        Opened::NeedsRebuild(rebuild) => Point::new(title, Verdict::Fail, rebuild.why(), None),
        Opened::Fits(_) if *built != own && plan.record().device().is_some() => {
            Point::new(title, Verdict::Fail, format!("tuned on {built}, this is {own}"), None)
        }
        Opened::Fits(_) => Point::new(title, Verdict::Pass, built.clone(), None),
    })
}

/// What runs alone and under load came to.
struct Measured {
    alone: Stats,
    loaded: Stats,
    qps_alone: f64,
    qps_loaded: f64,
    /// Of the device, in percent.
    utilisation: Option<f64>,
    device: String,
}

impl Measured {
    fn new(args: &Check, engine: &Engine) -> Result<Measured> {
        let sources = Sources { defaults: &engine.record().header.tuned_at, ..Sources::default() };
        let fed = sources.gather_for(engine)?;
        let names: Vec<&str> = fed.tensors.iter().map(|(name, _)| name.as_str()).collect();
        let tensors: Vec<Tensor> = fed.tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
        let threads = engine.record().header.threads.max(1) as usize;
        let plain = Timing::plain(threads, Duration::from_millis(100), args.duration);
        let watch = Watch::start(Device::Auto).filter(|_| engine.record().device().is_some());
        let alone = run_all(engine, &names, &tensors, &plain)?;
        let seen = watch.and_then(Watch::finish).and_then(|seen| seen.utilisation());
        let loaded = run_all(engine, &names, &tensors, &Timing { contexts: args.contexts, ..plain })?;
        let of_cpu =
            alone.cpu.map(|cpu| 100.0 * cpu.as_secs_f64() / (alone.wall.as_secs_f64() * threads as f64));
        let qps = |timed: &Timed| timed.times.len() as f64 / timed.wall.as_secs_f64();
        let (device, _) = load::device_and_precision(engine);
        Ok(Measured {
            qps_alone: qps(&alone),
            qps_loaded: qps(&loaded),
            alone: Stats::new(&alone.times, 10),
            loaded: Stats::new(&loaded.times, 10),
            utilisation: if engine.record().device().is_some() { seen } else { of_cpu },
            device,
        })
    }

    /// 8: runs keep the device busy.
    fn utilisation(&self, args: &Check) -> Point {
        let title = "device utilisation";
        match (self.utilisation, args.min_utilisation) {
            (Some(percent), Some(least)) => {
                let text = format!("{percent:.0} % of the {} (at least {least:.0})", self.device);
                Point::new(title, Verdict::of(percent >= least), text, percent)
            }
            (Some(percent), None) => {
                let text = format!("{percent:.0} % of the {}; --min-utilisation gives a bound", self.device);
                Point::new(title, Verdict::Open, text, percent)
            }
            (None, _) => Point::new(title, Verdict::Open, format!("the {} does not say", self.device), None),
        }
    }

    /// 9: 99 of 100 runs are within the limit.
    fn latency(&self, args: &Check) -> Point {
        let (title, p99) = ("latency within limit", self.alone.p99);
        match args.max_latency {
            Some(limit) => {
                let limit = limit.as_secs_f64() * 1e3;
                let text = format!("p99 {p99:.3} ms of {limit:.3}");
                Point::new(title, Verdict::of(p99 <= limit), text, p99)
            }
            None => {
                Point::new(title, Verdict::Open, format!("p99 {p99:.3} ms; --max-latency gives a limit"), p99)
            }
        }
    }
}

/// A run under load may lose this much of the throughput of one context before something is wrong.
const LEAST_KEPT: f64 = 0.5;

/// 6: several contexts at once, as in use.
fn load_point(args: &Check, measured: &Measured) -> Point {
    let kept = measured.qps_loaded / measured.qps_alone.max(f64::MIN_POSITIVE);
    let text = format!(
        "{} contexts: {:.1} qps ({:.0} % of one), p99 {:.3} ms ({:.3} alone)",
        args.contexts,
        measured.qps_loaded,
        100.0 * kept,
        measured.loaded.p99,
        measured.alone.p99
    );
    Point::new("benchmarked under load", Verdict::of(kept >= LEAST_KEPT), text, measured.qps_loaded)
}

/// 7: the self-check passes.
fn accuracy(checked: &Result<Plan, String>) -> Point {
    let title = "accuracy validated";
    match checked {
        Ok(plan) => {
            let (n_passed, n_skipped) = counted(plan);
            let worst = plan.certificate().checks.iter().map(|check| check.worst).fold(0.0, f64::max);
            let text = format!(
                "{n_passed} checks passed, {n_skipped} skipped, the worst at {:.0} % of its bound",
                100.0 * worst
            );
            Point::new(title, Verdict::Pass, text, worst)
        }
        Err(why) => Point::new(title, Verdict::Fail, why.clone(), None),
    }
}

/// 10: weights once, and an arena for each context.
fn memory(args: &Check, engine: &Engine) -> Result<Point> {
    let title = "memory within bound";
    let header = &engine.record().header;
    let mut all_sizes = vec![header.tuned_at.clone()];
    for profile in &header.profiles {
        all_sizes.push(profile.ranges.iter().map(|range| (range.symbol.clone(), range.max)).collect());
    }
    let mut most = 0;
    for sizes in &all_sizes {
        match Needs::at(engine, sizes) {
            Ok(needs) => most = most.max(needs.total(args.contexts)),
            // Inputs of unknown rank have no memory that could be told.
            Err(error) => return Ok(Point::new(title, Verdict::Open, format!("not known: {error:#}"), None)),
        }
    }
    let size = print::bytes(most as u64);
    Ok(match args.max_memory {
        Some(bound) => {
            let text = format!("{size} of {} with {} contexts", print::bytes(bound as u64), args.contexts);
            Point::new(title, Verdict::of(most <= bound), text, most as f64)
        }
        None => {
            let text = format!("{size} with {} contexts; --max-memory gives a bound", args.contexts);
            Point::new(title, Verdict::Open, text, most as f64)
        }
    })
}

/// 11: the smallest and largest shapes run, twice with the same result.
fn edges(engine: &Engine) -> Result<Point> {
    let title = "edge shapes tested";
    let header = &engine.record().header;
    let corner = |of: fn(&planish::SymbolRange) -> i64| {
        let sizes = |profile: &planish::Profile| {
            profile.ranges.iter().map(|range| (range.symbol.clone(), of(range))).collect::<Vec<_>>()
        };
        header.profiles.iter().map(sizes).collect::<Vec<_>>()
    };
    let mut corners = corner(|range| range.min);
    corners.extend(corner(|range| range.max));
    if header.profiles.is_empty() {
        corners.push(header.tuned_at.clone());
        // The batch is what changes in use where nothing is said; its axis is the first.
        let inputs = engine.inputs();
        let batches: Vec<&str> = inputs
            .iter()
            .filter_map(|port| port.ty.as_tensor()?.shape.as_ref()?.iter().next()?.as_symbol())
            .collect();
        for batch in [1, 3] {
            let size = |(symbol, size): &(String, i64)| {
                (symbol.clone(), if batches.contains(&symbol.as_str()) { batch } else { *size })
            };
            corners.push(header.tuned_at.iter().map(size).collect());
        }
    }
    corners.sort();
    corners.dedup();
    let mut wrong = Vec::new();
    for sizes in &corners {
        if let Err(error) = repeats(engine, sizes) {
            let at: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol}={size}")).collect();
            wrong.push(format!("at {}: {error:#}", at.join(" ")));
        }
    }
    let n = corners.len();
    let text = match wrong.first() {
        None => format!("{n} of {n} shapes run, and repeat to the bit"),
        Some(first) => format!("{} of {n} do not: {first}", wrong.len()),
    };
    Ok(Point::new(title, Verdict::of(wrong.is_empty()), text, (n - wrong.len()) as f64))
}

/// Runs twice at these sizes.
fn repeats(engine: &Engine, sizes: &[(String, i64)]) -> Result<()> {
    let sources = Sources { random: Some(1), defaults: sizes, ..Sources::default() };
    let inputs = sources.gather_for(engine)?.values();
    let mut context = engine.context()?;
    let first = context.run_values(&inputs)?;
    let again = engine.context_with(ContextOptions::new(1))?.run_values(&inputs)?;
    anyhow::ensure!(same(&first, &again), "a second run gives another result");
    Ok(())
}

/// Whether values are equal to the last bit, NaN included.
fn same(left: &[Value], right: &[Value]) -> bool {
    left.iter().zip(right).all(|pair| match pair {
        (Value::Tensor(left), Value::Tensor(right)) => {
            left.shape() == right.shape() && left.bytes()[..] == right.bytes()[..]
        }
        (left, right) => format!("{left:?}") == format!("{right:?}"),
    })
}

/// 12: the plan carries what it can be built from elsewhere, and nothing in it is the slow reference already.
fn fallback(plan: &Plan) -> Point {
    let record = plan.record();
    let slow = inspect_plan::slow_steps(record);
    let has_graph =
        !record.graph.is_empty() && record.constants.iter().all(|&at| (at as usize) < record.weights.len());
    let text = match (has_graph, slow.first()) {
        (false, _) => "the plan carries no graph to build it from again".to_string(),
        (true, None) => {
            format!("carries its graph with {} constants, for any other machine", record.constants.len())
        }
        (true, Some(first)) => {
            format!("carries its graph; {} steps run on the slow reference, as `{first}`", slow.len())
        }
    };
    if !slow.is_empty() {
        say_note("steps on the reference are correct and slow; `planish inspect --layers` lists them");
    }
    Point::new("fallback in place", Verdict::of(has_graph), text, slow.len() as f64)
}
