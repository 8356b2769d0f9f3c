//! `planish sweep`: models over sizes, batches, precisions, devices and threads, as a table, plots and one page.

mod cases;
mod findings;
mod report;
mod row;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish::io::Sources;
use planish::{ContextOptions, Device, Engine, Metrics, Tensor};
use serde_json::{Value, json};

use crate::args::{AskedPrecision, Building, Opening, Sweep};
use crate::bench::measure::{self, Timing};
use crate::ending::{Answer, Ending};
use crate::roof::Rates;
use crate::stats::Stats;
use crate::{files, load, print, progress, say_note};
use cases::{Case, Subject};
use row::{Row, Store};

/// Percent of runs that trimmed means leave out at each end, as in `planish bench`.
const TRIM: u32 = 10;
/// The seed of the inputs that errors are measured on.
const SEED: u64 = 1;

/// Outputs in FP32 of a model at a size and a batch.
type Exact = (usize, usize, usize, Vec<Tensor>);

pub(crate) fn command(args: &Sweep, out: &mut dyn Write) -> Result<Answer> {
    if args.output.is_file() {
        bail!("cannot write into {}: it is a file, not a folder", args.output.display());
    }
    for device in &args.devices {
        load::check_device(*device)?;
    }
    let quantized = args.precisions.iter().find(|precision| precision.quantizes());
    if let (Some(precision), None) = (quantized, &args.calibrating.calib) {
        let name = precision.name();
        bail!("{name} needs --calib, samples or a calibration; or leave it out of --precisions");
    }
    let subjects = args.models.iter().map(|path| Subject::open(path, args)).collect::<Result<Vec<_>>>()?;
    let cases = cases::all(&subjects, args);
    let mut store = Store::open(&args.output, args.again)?;
    let n_kept =
        cases.iter().filter(|case| store.find(&case.key(&subjects[case.subject], args)).is_some()).count();
    if n_kept > 0 {
        say_note(&format!("{n_kept} of {} are there already; --again measures them anew", cases.len()));
    }
    let start = Instant::now();
    let mut exact: Option<Exact> = None;
    let bar = progress::bar();
    for (number, case) in cases.iter().enumerate() {
        let subject = &subjects[case.subject];
        let key = case.key(subject, args);
        if store.find(&key).is_some() {
            continue;
        }
        if let Some(bar) = &bar {
            bar(&case.title(subject), number, cases.len());
        }
        let row = match measured(case, subject, args, &mut exact) {
            Ok(row) => row,
            // Interruptions and mistakes of ours end the sweep; what a model or a device cannot do is a row.
            Err(error) if error.downcast_ref::<Ending>().is_some() => {
                progress::clear();
                let kept =
                    format!("{} of {} are kept in {}", store.rows.len(), cases.len(), args.output.display());
                return Err(error.context(format!("{kept}; the same command goes on from there")));
            }
            Err(error) => {
                say_note(&format!("{}: {error:#}", case.title(subject)));
                Row { failed: Some(format!("{error:#}")), ..named(case, subject) }
            }
        };
        store.add(Row { key, ..row })?;
    }
    progress::clear();
    let keys: Vec<String> = cases.iter().map(|case| case.key(&subjects[case.subject], args)).collect();
    let rows: Vec<&Row> = keys.iter().filter_map(|key| store.find(key)).collect();
    let files = write(&args.output, &rows)?;
    let findings = findings::of(&rows);
    if !args.json.replaces_tables() {
        show(&rows, out)?;
        for finding in &findings {
            writeln!(out, "found    {finding}")?;
        }
        writeln!(out, "written  {} in {}", files.join(", "), args.output.display())?;
        writeln!(
            out,
            "time     {} for {} measurements",
            print::seconds(start.elapsed().as_secs_f64()),
            rows.len() - n_kept.min(rows.len())
        )?;
    }
    let row_json = |row: &&Row| {
        json!({
            "model": row.family, "size": row.size, "batch": row.batch, "precision": row.precision, "device": row.device,
            "threads": row.threads, "failed": row.failed, "numbers": row.numbers,
        })
    };
    let report = json!({ "rows": rows.iter().map(row_json).collect::<Vec<_>>(), "findings": findings, "files": files });
    print::json(out, &args.json, &report)?;
    let all_failed = rows.iter().all(|row| row.failed.is_some());
    Ok(if all_failed { Answer::No } else { Answer::Yes })
}

/// A row without numbers.
fn named(case: &Case, subject: &Subject) -> Row {
    Row {
        family: subject.family.clone(),
        device: case.device.settled().to_string(),
        precision: case.precision.name().to_string(),
        size: case.size,
        batch: case.batch,
        threads: case.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        ..Row::default()
    }
}

/// Builds and measures one case.
fn measured(case: &Case, subject: &Subject, args: &Sweep, exact: &mut Option<Exact>) -> Result<Row> {
    let building = Building {
        device: case.device,
        precision: AskedPrecision::Named(case.precision),
        shapes: case.shapes.clone(),
        threads: case.threads,
        tune_level: args.tune_level,
        build_time: args.build_time,
        no_verify: args.no_verify,
        calibrating: match case.precision {
            precision if precision.quantizes() => args.calibrating.clone(),
            _ => Default::default(),
        },
        ..Building::default()
    };
    let made = load::build_in_memory(&subject.path, subject.model.clone(), &building, args.no_cache)?;
    let plan_bytes = made.plan.file_bytes()?;
    let threads = case.threads.unwrap_or(made.plan.record().header.threads as usize).max(1);
    let engine = load::engine(&subject.path, made.plan, case.device, &Opening::default())?;
    let sources = Sources {
        random: Some(SEED),
        shapes: &case.shapes,
        defaults: &engine.record().header.tuned_at,
        ..Sources::default()
    };
    let fed = sources.gather_for(&engine)?;
    let tensors: Vec<Tensor> = fed.tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
    let names: Vec<&str> = fed.tensors.iter().map(|(name, _)| name.as_str()).collect();
    let timed =
        measure::run_all(&engine, &names, &tensors, &Timing::plain(threads, args.warmup, args.duration))?;
    let stats = Stats::new(&timed.times, TRIM);
    let qps = timed.times.len() as f64 / timed.wall.as_secs_f64();
    let mut numbers: BTreeMap<String, f64> = BTreeMap::new();
    let rates = Value::Object(Rates::new(&engine, &fed.tensors, threads)?.json(1.0 / qps));
    for report in [stats.json(), rates] {
        let fields = report.as_object().into_iter().flatten();
        numbers.extend(fields.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))));
    }
    if let Some([low, high]) = timed.interval_ms() {
        numbers.extend([("median_low_ms".to_string(), low), ("median_high_ms".to_string(), high)]);
    }
    numbers.extend(
        [
            ("restless", f64::from(u8::from(timed.is_restless()))),
            ("ms_per_sample", stats.median / case.batch as f64),
            ("samples_per_second", qps * case.batch as f64),
            ("weight_bytes", engine.weight_bytes() as f64),
            ("arena_bytes", timed.arena_bytes as f64),
            ("plan_bytes", plan_bytes as f64),
        ]
        .map(|(name, value)| (name.to_string(), value)),
    );
    numbers.extend(made.built.map(|time| ("build_ms".to_string(), time.as_secs_f64() * 1e3)));
    numbers.insert("relative_l2".to_string(), error_of(case, subject, &engine, &fed, exact)?);
    Ok(Row { threads, numbers, ..named(case, subject) })
}

/// How far the outputs are from those of a plan in FP32 on the CPU, the worst output's.
fn error_of(
    case: &Case,
    subject: &Subject,
    engine: &Engine,
    fed: &planish::io::Inputs,
    exact: &mut Option<Exact>,
) -> Result<f64> {
    let values = fed.values();
    let outputs = |engine: &Engine, threads: usize| -> Result<Vec<Tensor>> {
        let outputs = engine.context_with(ContextOptions::new(threads))?.run_values(&values)?;
        outputs
            .into_iter()
            .map(|value| value.as_tensor().cloned().context("an output is no tensor"))
            .collect()
    };
    let threads = engine.record().header.threads.max(1) as usize;
    let got = outputs(engine, threads)?;
    let place = (case.subject, case.size, case.batch);
    if exact.as_ref().is_none_or(|(subject, size, batch, _)| (*subject, *size, *batch) != place) {
        let building = Building {
            device: Device::Cpu,
            shapes: case.shapes.clone(),
            tune_level: 0,
            no_verify: true,
            no_winograd: true,
            ..Building::default()
        };
        let made = load::build_quietly(&subject.path, subject.model.clone(), &building)?;
        let exact_engine = load::engine(&subject.path, made, Device::Cpu, &Opening::default())?;
        *exact = Some((place.0, place.1, place.2, outputs(&exact_engine, threads)?));
    }
    let want = exact.as_ref().map(|(_, _, _, want)| want.as_slice()).unwrap_or_default();
    let errors = got.iter().zip(want).map(|(got, want)| {
        let mut metrics = Metrics::default();
        metrics.add(got, want);
        metrics.relative_l2()
    });
    Ok(errors.fold(0.0, f64::max))
}

/// Writes the table, the plots and the page; gives their names.
fn write(folder: &Path, rows: &[&Row]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut put = |name: String, bytes: &[u8], kind: files::Kind| -> Result<()> {
        let path = folder.join(&name);
        files::check_target(&path, kind, &[])?;
        files::write(&path, |file| file.write_all(bytes))?;
        names.push(name);
        Ok(())
    };
    put("sweep.csv".to_string(), row::csv(rows).as_bytes(), files::Kind::Results)?;
    let charts = report::charts(rows);
    for (name, chart) in &charts {
        put(format!("{name}.svg"), chart.svg().as_bytes(), files::Kind::Svg)?;
        let mut png = Vec::new();
        chart.write_png(&mut png)?;
        put(format!("{name}.png"), &png, files::Kind::Png)?;
    }
    put("report.html".to_string(), report::page(rows, &charts).html().as_bytes(), files::Kind::Html)?;
    Ok(names)
}

fn show(rows: &[&Row], out: &mut dyn Write) -> Result<()> {
    print::table(out, &report::table(rows), &report::RIGHT)?;
    Ok(())
}
