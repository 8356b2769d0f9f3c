//! `planish bench`: how long a model takes.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use planish::io::Sources;
use planish::{
    Bindings, Context as Lane, ContextMemory, ContextOptions, Engine, Phases, Pipeline, Tensor, View, Wait,
};
use serde_json::{Value, json};

use crate::args::Bench;
use crate::ending::Answer;
use crate::memory::{self, Held};
use crate::roof::Rates;
use crate::start::Start;
use crate::stats::Stats;
use crate::watch::Watch;
use crate::{load, print, say_note};

pub(crate) fn command(args: &Bench, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    let mut start = Start::at(args.building.device)?;
    let mut opening = Instant::now();
    let made = load::plan(&args.model, &args.building, &args.opening, args.no_cache)?;
    let record = made.plan.record();
    let threads = args.building.threads.unwrap_or(record.header.threads as usize).max(1);
    let counting = Instant::now();
    let plan_bytes = made.plan.file_bytes()?;
    opening += counting.elapsed();
    let engine = load::engine(&args.model, made.plan, args.building.device, &args.opening)?;
    start.open = opening.elapsed().saturating_sub(made.built.unwrap_or_default());
    let (device, precision) = load::device_and_precision(&engine);
    let sources = Sources {
        archive: args.inputs.as_ref(),
        files: &[],
        random: None,
        shapes: &args.building.shapes,
        defaults: &engine.record().header.tuned_at,
    };
    let fed = sources.gather_for(&engine)?;
    fed.notes.iter().for_each(|note| say_note(note));

    let tensors: Vec<Tensor> = fed.tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
    let names: Vec<&str> = fed.tensors.iter().map(|(name, _)| name.as_str()).collect();
    let on_device = engine.record().device().is_some();
    let gpu_only = [(args.no_transfers, "--no-transfers"), (args.overlap, "--overlap")];
    if let Some((_, flag)) = gpu_only.into_iter().find(|(is_given, _)| *is_given && !on_device) {
        bail!("{flag} is for a plan on a GPU; this one runs on the CPU");
    }
    let watch = if on_device { Watch::start(args.building.device) } else { None };
    let timed = run_all(&engine, &names, &tensors, threads, args)?;
    let seen = watch.and_then(Watch::finish);
    start.first = timed.first;
    let batch = tensors.first().and_then(|tensor| tensor.shape().first().copied()).unwrap_or(1);
    let stats = Stats::new(&timed.times, args.trim);
    let qps = timed.times.len() as f64 / timed.wall.as_secs_f64();
    let rates = Rates::new(&engine, &fed.tensors, threads * args.contexts.max(1))?;
    let mut report = stats.json();
    let more = json!({
        "throughput_qps": qps,
        "samples_per_second": qps * batch as f64,
        "batch": batch,
        "threads": threads,
        "contexts": args.contexts,
        "device": device,
        "precision": precision,
        "build_ms": made.built.map(|time| time.as_secs_f64() * 1e3),
        "plan_bytes": plan_bytes,
        "weight_bytes": engine.weight_bytes(),
        "arena_bytes": timed.arena_bytes,
        "runs": timed.times.len(),
        "transfers": !args.no_transfers,
        "overlap": args.overlap,
        "cpu_ms": timed.cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / timed.times.len().max(1) as f64),
    });
    if let (Value::Object(report), Value::Object(more)) = (&mut report, more) {
        report.extend(more);
        report.extend(rates.json(1.0 / qps));
    }
    if let (Value::Object(report), Some(device)) = (&mut report, &timed.device) {
        report.extend([
            ("compute_ms".to_string(), json!(device.phases.compute_ns / 1e6)),
            ("host_to_device_ms".to_string(), json!(device.phases.upload_ns / 1e6)),
            ("device_to_host_ms".to_string(), json!(device.phases.download_ns / 1e6)),
            (
                "device_bytes".to_string(),
                json!(engine.weight_bytes() + device.memory.device_arena + device.memory.graphs),
            ),
            ("device_arena_bytes".to_string(), json!(device.memory.device_arena)),
            ("graphs".to_string(), json!(device.memory.n_graphs)),
            ("context_memory".to_string(), timed.held.iter().map(Held::json).collect()),
        ]);
    }
    if let (Value::Object(report), Value::Object(start)) = (&mut report, start.json()) {
        report.extend(start);
    }
    if let (Value::Object(report), Some(seen)) = (&mut report, &seen) {
        report.insert("gpu".to_string(), seen.json());
    }
    if !args.json.replaces_tables() {
        if let Some(seen) = &seen {
            writeln!(out, "gpu      {}", seen.line())?;
        }
        writeln!(out, "start    {}", start.line())?;
        rates.print(out, 1.0 / qps)?;
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
    /// Of the first context: until its first result.
    first: Duration,
    /// By context, on a GPU.
    held: Vec<Held>,
}

/// What one context measured.
struct Lap {
    times: Vec<Duration>,
    wall: Duration,
    arena_bytes: usize,
    cpu: Option<Duration>,
    device: Option<OnDevice>,
    first: Duration,
    held: Option<Held>,
}

/// What one context did on a GPU.
struct OnDevice {
    /// Medians, each of its own.
    phases: Phases,
    memory: ContextMemory,
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

    /// Runs as long as `more` says by the number of runs so far; gives the time of each.
    fn run_while(
        &mut self,
        context: &mut Lane,
        mut further: Vec<Bindings>,
        more: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(1 << 16);
        match self {
            Source::Bound(first) if !further.is_empty() => {
                further.push(std::mem::take(first));
                *first = overlapped(context, further, more, &mut times)?;
            }
            _ => {
                while more(times.len()) {
                    let run = Instant::now();
                    self.run(context)?;
                    times.push(run.elapsed());
                }
            }
        }
        Ok(times)
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
        Ok(OnDevice { phases, memory: context.memory() })
    }

    /// Bytes of inputs and outputs that lie on the device.
    fn device_bytes(&self) -> usize {
        match self {
            Source::Views(_) => 0,
            Source::Bound(bindings) => bindings.device_bytes(),
        }
    }
}

/// Runs that overlap with each other's copies, one for each set of buffers; gives one of these back.
fn overlapped(
    context: &mut Lane,
    mut sets: Vec<Bindings>,
    more: &dyn Fn(usize) -> bool,
    times: &mut Vec<Duration>,
) -> Result<Bindings> {
    let mut pipeline = context.pipeline()?;
    let mut pushed = VecDeque::new();
    loop {
        let n_runs = times.len() + pushed.len();
        if let Some(next) = sets.pop_if(|_| more(n_runs)) {
            pushed.push_back(Instant::now());
            pipeline.push(next)?;
        } else if let (Some(done), Some(began)) = (pipeline.pop()?, pushed.pop_front()) {
            times.push(began.elapsed());
            sets.push(done);
        } else {
            return sets.pop().context("no buffers came back");
        }
    }
}

/// A context that is ready to be timed.
struct Ready<'a> {
    context: Lane,
    source: Source<'a>,
    /// Buffers of further runs, where they overlap.
    further: Vec<Bindings>,
    /// From the engine to the first result.
    first: Duration,
    held: Option<Held>,
}

/// Runs of a context before its memory is listed: the first launches, the second captures, the third replays.
const RUNS_TO_LIST: usize = 3;

impl<'a> Ready<'a> {
    /// Made one after the other, so that what the GPU has less of is this context's.
    fn new(
        engine: &Engine,
        names: &[&str],
        tensors: &'a [Tensor],
        options: ContextOptions,
        args: &Bench,
        on_device: bool,
    ) -> Result<Ready<'a>> {
        let before = engine.device_memory();
        let began = Instant::now();
        let mut context = engine.context_with(options)?;
        let mut source = Source::new(&context, names, tensors, args, on_device)?;
        source.run(&mut context)?;
        let first = began.elapsed();
        let mut further = Vec::new();
        for _ in 1..if args.overlap && on_device { Pipeline::DEPTH } else { 1 } {
            if let Source::Bound(bindings) = Source::new(&context, names, tensors, args, on_device)? {
                further.push(bindings);
            }
        }
        if !on_device {
            return Ok(Ready { context, source, further, first, held: None });
        }
        for _ in 1..RUNS_TO_LIST {
            source.run(&mut context)?;
        }
        let held = Held::new(context.memory(), source.device_bytes(), before, engine.device_memory());
        Ok(Ready { context, source, further, first, held: Some(held) })
    }

    /// Warms up, and runs for as long as the arguments say.
    fn time(self, args: &Bench, on_device: bool) -> Result<Lap> {
        let Ready { mut context, mut source, further, first, held } = self;
        let start = Instant::now();
        while start.elapsed() < args.warmup {
            source.run(&mut context)?;
        }
        let cpu = cpu_time();
        let start = Instant::now();
        let more = |n_runs: usize| start.elapsed() < args.duration || n_runs < args.iterations;
        let times = source.run_while(&mut context, further, &more)?;
        let wall = start.elapsed();
        let cpu = cpu_time().zip(cpu).map(|(end, start)| end.saturating_sub(start));
        let device = on_device.then(|| source.phases(&mut context)).transpose()?;
        Ok(Lap { times, wall, arena_bytes: context.arena_bytes(), cpu, device, first, held })
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
    let on_device = engine.record().device().is_some();
    let wait = if args.spin { Wait::Spin } else { Wait::Block };
    let options = ContextOptions { wait, streams: args.streams, ..ContextOptions::new(threads) };
    let mut ready = Vec::new();
    for _ in 0..args.contexts.max(1) {
        ready.push(Ready::new(engine, names, tensors, options, args, on_device).context("the run failed")?);
    }
    let results: Vec<Result<_>> = std::thread::scope(|scope| {
        let mut ready = ready.into_iter();
        let first = ready.next();
        let others: Vec<_> = ready.map(|ready| scope.spawn(move || ready.time(args, on_device))).collect();
        let mut results: Vec<_> = first.map(|ready| ready.time(args, on_device)).into_iter().collect();
        for other in others {
            results.push(other.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))));
        }
        results
    });
    let mut timed = Timed {
        times: Vec::new(),
        wall: Duration::ZERO,
        arena_bytes: 0,
        cpu: None,
        device: None,
        first: Duration::ZERO,
        held: Vec::new(),
    };
    for result in results {
        let Lap { times, wall, arena_bytes, cpu, device, first, held } = result.context("the run failed")?;
        timed.times.extend(times);
        // Each counts the whole process, over nearly the same time.
        timed.cpu = timed.cpu.max(cpu);
        timed.wall = timed.wall.max(wall);
        timed.arena_bytes += arena_bytes;
        if timed.first.is_zero() {
            timed.first = first;
        }
        timed.device = timed.device.or(device);
        timed.held.extend(held);
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
        let memory = &device.memory;
        let there = engine.weight_bytes() + memory.device_arena + memory.graphs;
        writeln!(
            out,
            "         {} there: weights {}, arena and workspace {}, {} captured graphs {}",
            print::bytes(there as u64),
            print::bytes(engine.weight_bytes() as u64),
            print::bytes(memory.device_arena as u64),
            memory.n_graphs,
            print::bytes(memory.graphs as u64)
        )?;
        memory::print_contexts(out, &timed.held)?;
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
