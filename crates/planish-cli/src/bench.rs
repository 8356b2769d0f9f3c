//! `planish bench`: how long a model takes.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use planish::{Bindings, Context as Lane, ContextOptions, Engine, Phases, View, Wait};
use planish_tensor::Tensor;
use serde_json::{Value, json};

use crate::args::Bench;
use crate::feed::{self, Sources};
use crate::watch::Watch;
use crate::{Answer, load, print, say_note};

pub(crate) fn command(args: &Bench, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    let made = load::plan(&args.model, &args.building, args.no_cache)?;
    let record = made.plan.record();
    let threads = args.building.threads.unwrap_or(record.threads as usize).max(1);
    let plan_bytes: u64 = record.weights.iter().map(|weight| weight.bytes.len() as u64).sum();
    let engine = load::engine(made.plan, args.building.device, &args.opening)?;
    let (device, precision) = load::device_and_precision(&engine);
    let sources = Sources {
        archive: args.inputs.as_ref(),
        files: &[],
        random: None,
        shapes: &args.building.shapes,
        defaults: &engine.record().tuned_at,
    };
    let fed = feed::gather(&load::inputs_of(&engine)?, &sources)?;
    fed.notes.iter().for_each(|note| say_note(note));

    let tensors: Vec<Tensor> = fed.tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
    let names: Vec<&str> = fed.tensors.iter().map(|(name, _)| name.as_str()).collect();
    let on_device = engine.record().targets.len() > 1;
    if args.no_transfers && !on_device {
        bail!("--no-transfers is for a plan on a GPU; this one runs on the CPU");
    }
    let watch = if on_device { Watch::start(args.building.device) } else { None };
    let timed = run_all(&engine, &names, &tensors, threads, args)?;
    let seen = watch.and_then(Watch::finish);
    let batch = tensors.first().and_then(|tensor| tensor.shape().first().copied()).unwrap_or(1);
    let stats = Stats::new(&timed.times, args.trim);
    let qps = timed.times.len() as f64 / timed.wall.as_secs_f64();
    let mut report = stats.json();
    let more = json!({
        "throughput_qps": qps,
        "samples_per_second": qps * batch as f64,
        "batch": batch,
        "threads": threads,
        "contexts": args.contexts,
        "device": device,
        "precision": precision,
        "build_ms": made.time.as_secs_f64() * 1e3,
        "plan_bytes": plan_bytes,
        "weight_bytes": engine.weight_bytes(),
        "arena_bytes": timed.arena_bytes,
        "runs": timed.times.len(),
        "transfers": !args.no_transfers,
        "cpu_ms": timed.cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / timed.times.len().max(1) as f64),
    });
    if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
        report.extend(more);
    }
    if let (Value::Object(report), Some(device)) = (&mut report, &timed.device) {
        report.extend([
            ("compute_ms".to_string(), json!(device.phases.compute_ns / 1e6)),
            ("host_to_device_ms".to_string(), json!(device.phases.upload_ns / 1e6)),
            ("device_to_host_ms".to_string(), json!(device.phases.download_ns / 1e6)),
            (
                "device_bytes".to_string(),
                json!(engine.weight_bytes() + device.arena_bytes + device.recording_bytes),
            ),
            ("device_arena_bytes".to_string(), json!(device.arena_bytes)),
            ("recordings".to_string(), json!(device.n_recordings)),
        ]);
    }
    if let (Value::Object(report), Some(seen)) = (&mut report, &seen) {
        report.insert("gpu".to_string(), seen.json());
    }
    if !args.json.replaces_tables() {
        if let Some(seen) = &seen {
            writeln!(out, "gpu      {}", seen.line())?;
        }
        print_table(out, &args.model, &stats, &timed, qps, batch, threads, &engine)?;
    }
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// What all contexts measured together.
struct Timed {
    times: Vec<Duration>,
    wall: Duration,
    arena_bytes: usize,
    /// What all threads together worked, from the first warm-up's end on.
    cpu: Option<Duration>,
    device: Option<OnDevice>,
}

/// What one context measured.
struct Lap {
    times: Vec<Duration>,
    wall: Duration,
    arena_bytes: usize,
    cpu: Option<Duration>,
    device: Option<OnDevice>,
}

/// What one context did on a GPU.
struct OnDevice {
    /// Medians, each of its own.
    phases: Phases,
    arena_bytes: usize,
    n_recordings: usize,
    recording_bytes: usize,
}

/// Runs whose transfers and kernels are timed apart.
const PHASED_RUNS: usize = 101;

/// How runs get their inputs.
enum Source<'a> {
    Views(Vec<View<'a>>),
    Bound(Bindings),
}

impl<'a> Source<'a> {
    /// Views of ordinary memory on the CPU; on a GPU the engine's own buffers, unless the arguments say otherwise.
    fn new(
        context: &Lane,
        names: &[&str],
        tensors: &'a [Tensor],
        args: &Bench,
        on_device: bool,
    ) -> Result<Source<'a>> {
        if !on_device || args.pageable {
            return Ok(Source::Views(tensors.iter().map(View::from).collect()));
        }
        let mut bindings = Bindings::new();
        let mut dims = Vec::new();
        for (name, tensor) in names.iter().zip(tensors) {
            dims.push((*name, tensor.shape()));
            if args.no_transfers {
                let mut buffer = context.device_input_buffer(name, tensor.shape())?;
                buffer.upload(View::from(tensor))?;
                bindings = bindings.input(name, buffer);
            } else {
                let mut buffer = context.input_buffer(name, tensor.shape())?;
                buffer.bytes_mut().copy_from_slice(tensor.bytes());
                bindings = bindings.input(name, buffer);
            }
        }
        for (port, dims) in context.engine().outputs().iter().zip(context.output_dims(&dims)?) {
            // Outputs whose sizes only a run can tell stay with the context.
            let Some(dims) = dims else { continue };
            bindings = match args.no_transfers {
                true => bindings.output(&port.name, context.device_output_buffer(&port.name, &dims)?),
                false => bindings.output(&port.name, context.output_buffer(&port.name, &dims)?),
            };
        }
        Ok(Source::Bound(bindings))
    }

    fn run(&mut self, context: &mut Lane) -> Result<()> {
        match self {
            Source::Views(views) => context.run_in_order(views)?,
            Source::Bound(bindings) => context.run_bound(bindings)?,
        }
        Ok(())
    }

    fn run_phased(&mut self, context: &mut Lane) -> Result<Phases> {
        Ok(match self {
            Source::Views(views) => context.run_phased(views)?,
            Source::Bound(bindings) => context.run_bound_phased(bindings)?,
        })
    }

    /// Medians of transfers and kernels.
    fn phases(&mut self, context: &mut Lane) -> Result<OnDevice> {
        let mut all = Vec::new();
        for _ in 0..PHASED_RUNS {
            all.push(self.run_phased(context)?);
        }
        let median = |of: fn(&Phases) -> f64| {
            let mut list: Vec<f64> = all.iter().map(of).collect();
            list.sort_by(f64::total_cmp);
            list[list.len() / 2]
        };
        let phases = Phases {
            upload_ns: median(|phases| phases.upload_ns),
            compute_ns: median(|phases| phases.compute_ns),
            download_ns: median(|phases| phases.download_ns),
        };
        let (n_recordings, recording_bytes) = context.recordings();
        Ok(OnDevice { phases, arena_bytes: context.device_arena_bytes(), n_recordings, recording_bytes })
    }
}

/// The time that this process's threads have run on a processor: beside other work on the machine it says more
/// than the clock. `None` where the system does not tell.
fn cpu_time() -> Option<Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let nanoseconds = tasks.flatten().filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(Duration::from_nanos(nanoseconds.sum())).filter(|time| !time.is_zero())
}

fn run_all(
    engine: &Engine,
    names: &[&str],
    tensors: &[Tensor],
    threads: usize,
    args: &Bench,
) -> Result<Timed> {
    let on_device = engine.record().targets.len() > 1;
    let wait = if args.spin { Wait::Spin } else { Wait::Block };
    let one = || -> Result<Lap> {
        let mut context = engine.context_with(ContextOptions { wait, ..ContextOptions::new(threads) })?;
        let mut source = Source::new(&context, names, tensors, args, on_device)?;
        let start = Instant::now();
        // The first run resolves shapes and touches memory: it is warm-up however short that is.
        source.run(&mut context)?;
        while start.elapsed() < args.warmup {
            source.run(&mut context)?;
        }
        let mut times = Vec::with_capacity(1 << 16);
        let cpu = cpu_time();
        let start = Instant::now();
        while start.elapsed() < args.duration || times.len() < args.iterations {
            let run = Instant::now();
            source.run(&mut context)?;
            times.push(run.elapsed());
        }
        let wall = start.elapsed();
        let cpu = cpu_time().zip(cpu).map(|(end, start)| end.saturating_sub(start));
        let device = on_device.then(|| source.phases(&mut context)).transpose()?;
        Ok(Lap { times, wall, arena_bytes: context.arena_bytes(), cpu, device })
    };
    let results: Vec<Result<_>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..args.contexts.max(1)).map(|_| scope.spawn(one)).collect();
        let mut results = vec![one()];
        for other in others {
            results.push(other.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))));
        }
        results
    });
    let mut timed =
        Timed { times: Vec::new(), wall: Duration::ZERO, arena_bytes: 0, cpu: None, device: None };
    for result in results {
        let Lap { times, wall, arena_bytes, cpu, device } = result.context("the run failed")?;
        timed.times.extend(times);
        // Each counts the whole process, over nearly the same time.
        timed.cpu = timed.cpu.max(cpu);
        timed.wall = timed.wall.max(wall);
        timed.arena_bytes += arena_bytes;
        timed.device = timed.device.or(device);
    }
    Ok(timed)
}

#[allow(clippy::too_many_arguments)]
fn print_table(
    out: &mut dyn Write,
    model: &Path,
    stats: &Stats,
    timed: &Timed,
    qps: f64,
    batch: usize,
    threads: usize,
    engine: &Engine,
) -> Result<()> {
    writeln!(out, "model    {}", model.display())?;
    writeln!(
        out,
        "runs     {} at batch {batch} on {threads} threads",
        print::count(timed.times.len() as u64)
    )?;
    writeln!(
        out,
        "latency  mean {:.3} ms, median {:.3}, std {:.3}, trimmed mean {:.3} (std {:.3})",
        stats.mean, stats.median, stats.std, stats.trimmed_mean, stats.trimmed_std
    )?;
    writeln!(
        out,
        "memory   weights {}, arena {}",
        print::bytes(engine.weight_bytes() as u64),
        print::bytes(timed.arena_bytes as u64)
    )?;
    if let Some(device) = &timed.device {
        let phases = &device.phases;
        writeln!(
            out,
            "device   compute {:.4} ms, host to device {:.4}, device to host {:.4}",
            phases.compute_ns / 1e6,
            phases.upload_ns / 1e6,
            phases.download_ns / 1e6
        )?;
        writeln!(
            out,
            "         {} there: weights {}, arena and workspace {}, {} recordings {}",
            print::bytes((engine.weight_bytes() + device.arena_bytes + device.recording_bytes) as u64),
            print::bytes(engine.weight_bytes() as u64),
            print::bytes(device.arena_bytes as u64),
            device.n_recordings,
            print::bytes(device.recording_bytes as u64)
        )?;
    }
    writeln!(out, "samples  {:.2} per second", qps * batch as f64)?;
    writeln!(out, "Throughput: {qps:.4} qps")?;
    writeln!(
        out,
        "Latency: min = {:.5} ms, max = {:.5} ms, mean = {:.5} ms, median = {:.5} ms, percentile(90%) = {:.5} ms, \
         percentile(95%) = {:.5} ms, percentile(99%) = {:.5} ms",
        stats.min, stats.max, stats.mean, stats.median, stats.p90, stats.p95, stats.p99
    )?;
    Ok(())
}

/// Milliseconds.
struct Stats {
    mean: f64,
    median: f64,
    std: f64,
    min: f64,
    max: f64,
    p90: f64,
    p95: f64,
    p99: f64,
    trimmed_mean: f64,
    trimmed_std: f64,
}

impl Stats {
    fn new(times: &[Duration], trim_percent: u32) -> Stats {
        let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let moments = |list: &[f64]| {
            let mean = list.iter().sum::<f64>() / list.len().max(1) as f64;
            let variance = list.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / list.len().max(1) as f64;
            (mean, variance.sqrt())
        };
        // The nearest rank: the smallest time that this share of the runs did not exceed.
        let rank = |percent: f64| {
            let at = (percent / 100.0 * ms.len() as f64).ceil() as usize;
            ms.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let cut = (ms.len() * trim_percent.min(49) as usize) / 100;
        let (mean, std) = moments(&ms);
        let (trimmed_mean, trimmed_std) = moments(&ms[cut..ms.len() - cut]);
        Stats {
            mean,
            median: rank(50.0),
            std,
            min: ms.first().copied().unwrap_or(0.0),
            max: ms.last().copied().unwrap_or(0.0),
            p90: rank(90.0),
            p95: rank(95.0),
            p99: rank(99.0),
            trimmed_mean,
            trimmed_std,
        }
    }

    fn json(&self) -> Value {
        json!({
            "median_ms": self.median, "mean_ms": self.mean, "std_ms": self.std, "min_ms": self.min,
            "max_ms": self.max, "p90_ms": self.p90, "p95_ms": self.p95, "p99_ms": self.p99,
            "trimmed_mean_ms": self.trimmed_mean, "trimmed_std_ms": self.trimmed_std,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let stats = Stats::new(&times, 10);
        assert_eq!(
            (stats.min, stats.median, stats.p90, stats.p99, stats.max),
            (1.0, 50.0, 90.0, 99.0, 100.0)
        );
        assert!((stats.mean - 50.5).abs() < 1e-9 && (stats.trimmed_mean - 50.5).abs() < 1e-9);
        assert!(stats.trimmed_std < stats.std);
    }
}
