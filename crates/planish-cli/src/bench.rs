//! `planish bench`: how long a model takes.

mod against;
mod blocks;
pub(crate) mod measure;
pub(crate) mod paired;
mod rounds;
mod table;
mod told;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use planish::io::Sources;
use planish::{Engine, Tensor};
use serde_json::{Map, Value, json};

use crate::args::Bench;
use crate::ending::Answer;
use crate::memory::Held;
use crate::roof::Rates;
use crate::start::Start;
use crate::stats::Stats;
use crate::watch::Watch;
use crate::{files, load, print, say_note};
use against::Base;
use measure::Timing;
use table::Table;
use told::Told;

/// Weights beyond this are not put in place anew for every round.
const MOST_REOPENED: usize = 256 << 20;

pub(crate) fn command(args: &Bench, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    if let Some(path) = &args.csv {
        files::check_target(path, files::Kind::Results, &[&args.model])?;
    }
    let (base, other) = match args.against.as_deref() {
        Some(path) if load::is_plan(path) => (None, Some(path.to_path_buf())),
        Some(path) => {
            let base = Base::open(path)?;
            let at_hand = base.plan_at_hand().filter(|_| load::is_plan(&args.model));
            (Some(base), at_hand)
        }
        None => (None, None),
    };
    let mut start = Start::at(args.building.device)?;
    let mut opening = Instant::now();
    let made = load::plan(&args.model, &args.building, &args.opening, args.no_cache)?;
    let record = made.plan.record();
    let threads = args.building.threads.unwrap_or(record.header.threads as usize).max(1);
    let counting = Instant::now();
    let plan_bytes = made.plan.file_bytes()?;
    opening += counting.elapsed();
    let plan = made.plan;
    let engine = load::engine(&args.model, plan.clone(), args.building.device, &args.opening)?;
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
    let batch = tensors.first().and_then(|tensor| tensor.shape().first().copied()).unwrap_or(1);
    let setting = json!({ "batch": batch, "threads": threads, "contexts": args.contexts, "device": device });
    if let Some(base) = &base {
        base.check(&setting)?;
    }
    let watch = if on_device { Watch::start(args.building.device) } else { None };
    let timing = timing(args, threads);
    let in_turn = other.is_some() && !on_device && args.contexts <= 1;
    let timed = match base.is_some() && !in_turn || args.json.target.is_some() {
        true => {
            let is_light = !on_device && engine.weight_bytes() <= MOST_REOPENED;
            let reopen = || -> Result<Option<Engine>> {
                let open = || load::engine(&args.model, plan.clone(), args.building.device, &args.opening);
                is_light.then(open).transpose()
            };
            measure::run_rounds(&engine, &reopen, &names, &tensors, &timing)?
        }
        false => measure::run_all(&engine, &names, &tensors, &timing)?,
    };
    let seen = watch.and_then(Watch::finish);
    start.first = timed.first;
    let stats = Stats::new(&timed.times, args.trim);
    let told = Told::of(&timed.blocks);
    let qps = timed.times.len() as f64 / timed.wall.as_secs_f64();
    let rates = Rates::new(&engine, &fed.tensors, threads * args.contexts.max(1))?;
    let more = json!({
        "throughput_qps": qps,
        "samples_per_second": qps * batch as f64,
        "ms_per_sample": stats.median / batch.max(1) as f64,
        "precision": precision,
        "build_ms": made.built.map(|time| time.as_secs_f64() * 1e3),
        "plan_bytes": plan_bytes,
        "weight_bytes": engine.weight_bytes(),
        "arena_bytes": timed.arena_bytes,
        "peak_host_bytes": planish::machine::peak_memory(),
        "runs": timed.times.len(),
        "transfers": !args.no_transfers,
        "overlap": args.overlap,
        "cpu_ms": timed.cpu.map(|cpu| cpu.as_secs_f64() * 1e3 / timed.times.len().max(1) as f64),
        "rounds": timed.rounds.iter().map(rounds::Round::json).collect::<Vec<_>>(),
        "blocks": timed.blocks.iter().map(blocks::Block::json).collect::<Vec<_>>(),
        "plan_file": load::is_plan(&args.model).then(|| against::stamp(&args.model)).flatten(),
        "program": std::env::current_exe().ok().and_then(|path| against::stamp(&path)),
    });
    let mut report = Map::new();
    for part in [stats.json(), setting, more, start.json()] {
        if let Value::Object(part) = part {
            report.extend(part);
        }
    }
    report.extend(rates.json(1.0 / qps));
    report.extend(told.json().map(|(name, value)| (name.to_string(), value)));
    if let Some(device) = &timed.device {
        let resident = engine.weight_bytes() - engine.streamed_bytes() + device.memory.device_ring;
        let there = resident + device.memory.device_arena + device.memory.graphs;
        let fields = json!({
            "compute_ms": device.phases.compute_ns / 1e6,
            "host_to_device_ms": device.phases.upload_ns / 1e6,
            "device_to_host_ms": device.phases.download_ns / 1e6,
            "device_bytes": there,
            "streamed_bytes": engine.streamed_bytes(),
            "device_arena_bytes": device.memory.device_arena,
            "graphs": device.memory.n_graphs,
            "context_memory": timed.held.iter().map(Held::json).collect::<Vec<_>>(),
        });
        if let Value::Object(fields) = fields {
            report.extend(fields);
        }
    }
    if let Some(seen) = &seen {
        report.insert("gpu".to_string(), seen.json(qps));
    }
    let tolerance = args.tolerance / 100.0;
    let verdict = match (&base, &other) {
        (_, Some(other)) if in_turn => Some(in_turn_with(args, other, &plan, &fed.tensors, threads)?),
        (None, Some(other)) => {
            bail!(
                "--against {}: plans are run in turn on the CPU with one context; give a result of --json=FILE",
                other.display()
            )
        }
        (base, _) => base.as_ref().map(|base| base.compare(&timed.rounds, tolerance)),
    };
    if let Some(verdict) = &verdict {
        report.insert("against".to_string(), verdict.json());
    }
    if let Some(path) = &args.csv {
        files::write(path, |file| {
            file.write_all(csv(&args.model.display().to_string(), &report).as_bytes())
        })?;
    }
    if !args.json.replaces_tables() {
        if let Some(seen) = &seen {
            writeln!(out, "gpu      {}", seen.line(qps))?;
        }
        writeln!(out, "start    {}", start.line())?;
        rates.print(out, 1.0 / qps)?;
        let table =
            Table { model: &args.model, stats: &stats, told: &told, timed: &timed, qps, batch, threads };
        table.print(&engine, out)?;
        if let Some(verdict) = &verdict {
            writeln!(out, "against  {}", verdict.line())?;
        }
    }
    if let Some(alarm) = told.alarm() {
        say_note(&alarm);
    }
    print::json(out, &args.json, &Value::Object(report))?;
    match verdict {
        Some(verdict) => verdict.answer(),
        None => Ok(Answer::Yes),
    }
}

/// Runs another plan and this one in turn, on the same inputs.
fn in_turn_with(
    args: &Bench,
    other: &Path,
    plan: &planish::Plan,
    inputs: &[(String, Tensor)],
    threads: usize,
) -> Result<against::Verdict> {
    let old = load::plan(other, &args.building, &args.opening, args.no_cache)?.plan;
    let open_old = || load::engine(other, old.clone(), args.building.device, &args.opening);
    let open_new = || load::engine(&args.model, plan.clone(), args.building.device, &args.opening);
    let names = |engine: &Engine| engine.inputs().into_iter().map(|port| port.name).collect::<Vec<_>>();
    let (old_names, new_names) = (names(&open_old()?), names(&open_new()?));
    ensure!(
        old_names == new_names,
        "{} has the inputs {}, and {} has {}; only plans of the same inputs can be run in turn",
        other.display(),
        old_names.join(", "),
        args.model.display(),
        new_names.join(", ")
    );
    let [before, after] = [&open_old as &dyn Fn() -> Result<Engine>, &open_new].map(|open| paired::Side {
        open,
        inputs,
        threads,
        weight: 1.0,
    });
    let found = paired::compare([&before, &after], args.duration, args.tolerance / 100.0)?;
    say_note(&format!(
        "{} and {} were run in turn: {} pairs in {} rounds",
        other.display(),
        args.model.display(),
        found.pairs,
        found.rounds
    ));
    Ok(found.verdict)
}

fn timing(args: &Bench, threads: usize) -> Timing {
    Timing {
        warmup: args.warmup,
        duration: args.duration,
        iterations: args.iterations,
        is_profiled: false,
        contexts: args.contexts.max(1),
        threads,
        streams: args.streams,
        spin: args.spin,
        overlap: args.overlap,
        pageable: args.pageable,
        no_transfers: args.no_transfers,
    }
}

/// The plain fields of a report as CSV: their names, and one row.
fn csv(model: &str, report: &Map<String, Value>) -> String {
    let (mut names, mut fields) = (vec!["model".to_string()], vec![print::csv_field(model)]);
    for (name, value) in report {
        match value {
            Value::Array(_) | Value::Object(_) => continue,
            Value::Null => fields.push(String::new()),
            Value::String(text) => fields.push(print::csv_field(text)),
            value => fields.push(value.to_string()),
        }
        names.push(name.clone());
    }
    format!("{}\n{}\n", names.join(","), fields.join(","))
}
