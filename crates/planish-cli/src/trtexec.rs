//! `planish trtexec`: builds and measures by the flags that scripts for TensorRT's trtexec have.

mod asked;
mod export;
mod flags;
mod log;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use planish::io::Sources;
use planish::{Bytes, ContextOptions, Engine, Phases, Tensor, View, shapes};

use crate::args::{Opening, Trtexec};
use crate::bench::measure::{Timed, Timing, run_all};
use crate::ending::Answer;
use crate::files::{self, Kind};
use crate::{load, print, profile};
use asked::{Asked, Origin};
use export::LayerTime;
use log::Log;

pub(crate) fn command(args: &Trtexec, out: &mut dyn Write) -> Result<Answer> {
    let mut log = Log::new(out, &args.arguments);
    log.mark("RUNNING")?;
    let answer = run(&args.arguments, &mut log);
    log.mark(if matches!(answer, Ok(Answer::Yes)) { "PASSED" } else { "FAILED" })?;
    answer
}

fn run(arguments: &[String], log: &mut Log<'_>) -> Result<Answer> {
    let given = flags::parse(arguments)?;
    if given.is_empty() || given.iter().any(|one| one.flag.name == "help") {
        return help(log);
    }
    for line in flags::without_effect(&given) {
        log.warn(&line)?;
    }
    let asked = Asked::new(&given)?;
    for note in &asked.notes {
        log.info(note)?;
    }
    let Some(engine) = open(&asked, log)? else { return Ok(Answer::Yes) };
    if asked.dump_shapes {
        dump_profiles(&engine, log)?;
    }
    show_layers(&asked, &engine, log)?;
    if asked.skip_inference {
        log.info("Skipped inference phase since --skipInference is added.")?;
        return Ok(Answer::Yes);
    }
    infer(&asked, &engine, log)
}

fn help(log: &mut Log<'_>) -> Result<Answer> {
    log.info(
        "planish trtexec: TensorRT's trtexec with Planish below; each flag as --flag=value or --flag value",
    )?;
    log.info("  planish trtexec --onnx=model.onnx --saveEngine=model.plan --fp16 --shapes=x:8x3x224x224")?;
    log.info("  planish trtexec --loadEngine=model.plan --duration=10 --exportTimes=times.json")?;
    let name = |flag: &flags::Flag| match flag.value {
        "" => format!("--{}", flag.name),
        value => format!("--{}={value}", flag.name),
    };
    log.info("Flags that act:")?;
    for flag in flags::FLAGS.iter().filter(|flag| flag.effect == flags::Effect::Acts) {
        log.info(&format!("  {}", name(flag)))?;
    }
    log.info("Flags that are accepted, or refused, with a word on why:")?;
    for flag in flags::FLAGS {
        if let flags::Effect::Nothing(why) | flags::Effect::Refused(why) = flag.effect {
            log.info(&format!("  {}: {why}", name(flag)))?;
        }
    }
    Ok(Answer::Yes)
}

/// The engine; none where only the plan's version was asked for.
fn open(asked: &Asked, log: &mut Log<'_>) -> Result<Option<Engine>> {
    let (Origin::Onnx(path) | Origin::Engine(path)) = &asked.origin;
    let targets = [&asked.export_times, &asked.export_output, &asked.export_profile, &asked.export_layers];
    for target in targets.into_iter().flatten() {
        export::check(target, &[path])?;
    }
    if let Some(target) = &asked.save {
        files::check_target(target, Kind::Plan, &[path])?;
    }
    let opening = Opening::default();
    let begun = Instant::now();
    let made = match &asked.origin {
        Origin::Engine(_) => {
            load::readable(path)?;
            ensure!(
                load::is_plan(path),
                "--loadEngine={}: this is no plan; --onnx takes models, and engines of TensorRT have to be built again",
                path.display()
            );
            load::plan(path, &asked.building, &opening, false)?
        }
        Origin::Onnx(_) if load::is_plan(path) => {
            bail!("--onnx={}: this is a plan; --loadEngine takes it", path.display())
        }
        Origin::Onnx(_) => load::build(path, &asked.building)?,
    };
    if asked.version_only {
        log.info(&format!("Plan was created with Planish version: {}", made.plan.record().header.producer))?;
        return Ok(None);
    }
    match made.built {
        Some(time) => log.info(&format!("Engine built in {:.4} sec.", time.as_secs_f64()))?,
        None => log.info(&format!("Engine loaded in {:.6} sec.", made.time.as_secs_f64()))?,
    }
    if let (true, Some(report)) = (asked.verbose, &made.report) {
        for line in report.to_string().lines() {
            log.info(line)?;
        }
    }
    if let Some(target) = &asked.save {
        let n_bytes = made.plan.save(target)?;
        log.info(&format!("Created engine with size: {:.4} MiB", n_bytes as f64 / f64::from(1 << 20)))?;
        log.info(&format!("Saved engine to {}", target.display()))?;
    }
    let engine = load::engine(path, made.plan, asked.building.device, &opening)?;
    if asked.time_opening {
        log.info(&format!("Engine deserialized in {:.6} sec.", begun.elapsed().as_secs_f64()))?;
    }
    Ok(Some(engine))
}

fn dump_profiles(engine: &Engine, log: &mut Log<'_>) -> Result<()> {
    let profiles = &engine.record().header.profiles;
    if profiles.is_empty() {
        return log.info("Optimization profile: none, the plan runs at every shape that the model accepts");
    }
    for (number, profile) in profiles.iter().enumerate() {
        for range in &profile.ranges {
            log.info(&format!(
                "Optimization Profile {number}: {} MIN {} OPT {} MAX {}",
                range.symbol, range.min, range.opt, range.max
            ))?;
        }
    }
    Ok(())
}

fn show_layers(asked: &Asked, engine: &Engine, log: &mut Log<'_>) -> Result<()> {
    if asked.dump_layers {
        log.info("Layer Information:")?;
        for step in &engine.record().program.steps {
            log.info(&format!(
                "{}: {}, {}",
                step.name,
                step.region.ops(),
                crate::inspect_plan::tactic(step)
            ))?;
        }
    }
    if let Some(target) = &asked.export_layers {
        export::write(target, &export::layers(engine.record(), asked.names_only))?;
    }
    Ok(())
}

/// Runs, measures and reports; no if outputs are not what they should be.
fn infer(asked: &Asked, engine: &Engine, log: &mut Log<'_>) -> Result<Answer> {
    let tensors = inputs(asked, engine, log)?;
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let values: Vec<Tensor> = tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
    let threads = engine.record().header.threads.max(1) as usize;
    let on_device = engine.record().device().is_some();
    if asked.no_transfers && !on_device {
        log.warn("--noDataTransfers has no effect here: the plan runs on the CPU, nothing is transferred")?;
    }
    let timing = Timing {
        iterations: asked.iterations.max(1),
        contexts: asked.contexts,
        no_transfers: asked.no_transfers && on_device,
        spin: asked.spin,
        ..Timing::plain(threads, asked.warm_up, asked.duration)
    };
    log.info("Starting inference")?;
    let timed = run_all(engine, &names, &values, &timing)?;
    let phases = if on_device { phases(engine, &values, threads)? } else { Vec::new() };
    summary(asked, &timed, &phases, log)?;
    if let Some(target) = &asked.export_times {
        let medians = timed.device.as_ref().map(|device| &device.phases);
        export::write(target, &export::times(&timed.times, medians))?;
    }
    if asked.dump_profile || asked.export_profile.is_some() {
        profile_layers(asked, engine, &tensors, threads, log)?;
    }
    let outputs = outputs(engine, &values, threads)?;
    if asked.dump_output {
        log.info("Output Tensors:")?;
        for (name, tensor) in &outputs {
            log.info(&format!("{name}: ({})", shapes::sizes_text(tensor.shape())))?;
            let numbers: Vec<String> = tensor.to_f64s().into_iter().map(print::number).collect();
            log.info(&numbers.join(" "))?;
        }
    }
    if let Some(target) = &asked.export_output {
        export::write(target, &export::outputs(&outputs))?;
    }
    compare(asked, &outputs, log)
}

/// Random values, or those of raw files.
fn inputs(asked: &Asked, engine: &Engine, log: &mut Log<'_>) -> Result<Vec<(String, Tensor)>> {
    let record = engine.record();
    let sources = Sources { shapes: &asked.shapes, defaults: &record.header.tuned_at, ..Sources::default() };
    let fed = sources.gather_for(engine)?;
    if asked.inputs.is_empty() {
        for note in &fed.notes {
            log.info(note)?;
        }
    }
    let mut tensors = fed.tensors;
    for (name, file) in &asked.inputs {
        let Some((_, tensor)) = tensors.iter_mut().find(|(known, _)| known == name) else {
            bail!("--loadInputs names `{name}`, which is no input of the model");
        };
        *tensor = raw(file, name, tensor)?;
    }
    Ok(tensors)
}

/// A file of elements alone, in the type and shape of `like`.
fn raw(file: &Path, name: &str, like: &Tensor) -> Result<Tensor> {
    let bytes = Bytes::read_file(file).with_context(|| format!("cannot read {}", file.display()))?;
    ensure!(
        bytes.len() == like.bytes().len(),
        "{} has {} bytes; `{name}` is {} of {}, which takes {}; --shapes gives other sizes",
        file.display(),
        bytes.len(),
        like.dtype(),
        shapes::sizes_text(like.shape()),
        like.bytes().len()
    );
    Ok(Tensor::from_bytes(like.dtype(), like.shape(), bytes)?)
}

/// Runs whose transfers and kernels are timed apart.
const PHASED_RUNS: usize = 101;

fn phases(engine: &Engine, values: &[Tensor], threads: usize) -> Result<Vec<Phases>> {
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    let views: Vec<View<'_>> = values.iter().map(View::from).collect();
    (0..PHASED_RUNS).map(|_| Ok(context.run_phased(&views)?)).collect()
}

/// A part of a run on a GPU, in milliseconds.
type Part = fn(&Phases) -> f64;

fn summary(asked: &Asked, timed: &Timed, phases: &[Phases], log: &mut Log<'_>) -> Result<()> {
    let ms: Vec<f64> = timed.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let wall = timed.wall.as_secs_f64();
    if let Some(n) = asked.average_runs {
        log.info(&format!("Trace averages of {n} runs:"))?;
        for runs in ms.chunks(n) {
            let mean = runs.iter().sum::<f64>() / runs.len() as f64;
            log.info(&format!("Average on {} runs - Host latency: {mean:.6} ms", runs.len()))?;
        }
    }
    log.info("=== Performance summary ===")?;
    log.info(&format!("Throughput: {:.4} qps", ms.len() as f64 / wall))?;
    log.info(&format!("Latency: {}", spread(ms.clone(), &asked.percentiles)))?;
    let parts: [(&str, Part); 3] = [
        ("H2D Latency", |phases| phases.upload_ns / 1e6),
        ("GPU Compute Time", |phases| phases.compute_ns / 1e6),
        ("D2H Latency", |phases| phases.download_ns / 1e6),
    ];
    for (name, part) in parts.into_iter().filter(|_| !phases.is_empty()) {
        log.info(&format!("{name}: {}", spread(phases.iter().map(part).collect(), &asked.percentiles)))?;
    }
    if phases.is_empty() {
        log.info(&format!("CPU Compute Time: {}", spread(ms.clone(), &asked.percentiles)))?;
    }
    log.info(&format!("Total Host Walltime: {wall:.5} s"))?;
    let total: Duration = timed.times.iter().sum();
    log.info(&format!("Total Compute Time: {:.5} s", total.as_secs_f64()))
}

/// Smallest, largest, mean and median, and percentiles by the nearest rank.
fn spread(mut ms: Vec<f64>, percentiles: &[f64]) -> String {
    ms.sort_by(f64::total_cmp);
    let rank = |percent: f64| {
        let at = (percent / 100.0 * ms.len() as f64).ceil() as usize;
        ms.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let mean = ms.iter().sum::<f64>() / ms.len().max(1) as f64;
    let mut text = format!(
        "min = {:.5} ms, max = {:.5} ms, mean = {mean:.5} ms, median = {:.5} ms",
        rank(0.0),
        rank(100.0),
        rank(50.0)
    );
    for percent in percentiles {
        text.push_str(&format!(", percentile({percent}%) = {:.5} ms", rank(*percent)));
    }
    text
}

/// Runs of which layers' times are taken.
const PROFILED_RUNS: usize = 30;

fn profile_layers(
    asked: &Asked,
    engine: &Engine,
    tensors: &[(String, Tensor)],
    threads: usize,
    log: &mut Log<'_>,
) -> Result<()> {
    let samples = profile::samples(engine, tensors, threads, PROFILED_RUNS)?.steps;
    let total_of = |times: &[u64]| times.iter().sum::<u64>() as f64 / 1e6;
    let all: f64 = samples.iter().map(|times| total_of(times)).sum();
    let layers: Vec<LayerTime> = engine
        .record()
        .program
        .steps
        .iter()
        .zip(samples)
        .map(|(step, mut times)| {
            times.sort_unstable();
            let total = total_of(&times);
            LayerTime {
                name: step.name.clone(),
                total,
                average: total / times.len().max(1) as f64,
                median: times.get(times.len() / 2).copied().unwrap_or(0) as f64 / 1e6,
                percentage: 100.0 * total / all.max(f64::MIN_POSITIVE),
            }
        })
        .collect();
    if asked.dump_profile {
        log.info(&format!("=== Profile ({PROFILED_RUNS} iterations ) ==="))?;
        log.info("   Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer")?;
        for layer in &layers {
            let LayerTime { name, total, average, median, percentage } = layer;
            log.info(&format!("{total:11.2} {average:12.4} {median:12.4} {percentage:9.1}   {name}"))?;
        }
    }
    if let Some(target) = &asked.export_profile {
        export::write(target, &export::profile(PROFILED_RUNS, &layers))?;
    }
    Ok(())
}

fn outputs(engine: &Engine, values: &[Tensor], threads: usize) -> Result<Vec<(String, Tensor)>> {
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    let values: Vec<planish::Value> = values.iter().cloned().map(Into::into).collect();
    let made = context.run_values(&values)?;
    let named = engine.outputs().into_iter().zip(made);
    Ok(named.filter_map(|(port, value)| Some((port.name, value.as_tensor()?.clone()))).collect())
}

/// `--loadRefOutputs`: every element within `atol + rtol * |expected|`.
fn compare(asked: &Asked, outputs: &[(String, Tensor)], log: &mut Log<'_>) -> Result<Answer> {
    let mut all_agree = true;
    for (name, file) in &asked.expected {
        let Some((_, own)) = outputs.iter().find(|(known, _)| known == name) else {
            bail!("--loadRefOutputs names `{name}`, which is no output of the model");
        };
        let expected = raw(file, name, own)?.to_f64s();
        let far = |(own, expected): &(f64, f64)| {
            !((own - expected).abs() <= asked.atol + asked.rtol * expected.abs() || own == expected)
        };
        let n_far = own.to_f64s().into_iter().zip(expected).filter(far).count();
        let (n, verdict) = (own.len(), if n_far == 0 { "PASSED" } else { "FAILED" });
        log.info(&format!(
            "Output `{name}`: {verdict}, {n_far} of {n} elements beyond atol {} + rtol {}",
            asked.atol, asked.rtol
        ))?;
        all_agree &= n_far == 0;
    }
    Ok(if all_agree { Answer::Yes } else { Answer::No })
}
