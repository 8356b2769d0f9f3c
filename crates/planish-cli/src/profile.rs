//! `planish profile`: the time of every layer.

mod trace;

use std::io::Write;

use anyhow::Result;
use planish::io::{Inputs, Sources};
use planish::{ContextOptions, Engine, Tensor, View};
use serde_json::json;

use crate::anatomy::{self, Anatomy, Layer, Measured};
use crate::args::Profile;
use crate::ending::Answer;
use crate::{files, load, print, roof, say_note};

pub(crate) fn command(args: &Profile, out: &mut dyn Write) -> Result<Answer> {
    load::check_opening(&args.model, args.building.device, &args.opening)?;
    if let Some(path) = &args.trace {
        files::check_target(path, files::Kind::Json, &[&args.model])?;
    }
    let made = load::plan(&args.model, &args.building, &args.opening, args.no_cache)?;
    let threads = args.building.threads.unwrap_or(made.plan.record().header.threads as usize).max(1);
    let engine = load::engine(&args.model, made.plan, args.building.device, &args.opening)?;
    let sources = Sources {
        shapes: &args.building.shapes,
        defaults: &engine.record().header.tuned_at,
        ..Sources::default()
    };
    let fed = sources.gather_for(&engine)?;
    fed.notes.iter().for_each(|note| say_note(note));
    let measured = measure(&engine, &fed, threads, args.iterations)?;
    let record = engine.record();
    let anatomy = Anatomy::new(record, &measured);
    let sum: f64 = measured.us.iter().sum();
    if let Some(path) = &args.trace {
        let text = trace::chrome(&anatomy).to_string();
        files::write(path, |file| writeln!(file, "{text}"))?;
    }
    if !args.json.replaces_tables() {
        show(&anatomy.layers, args.top, out)?;
        let total = measured.total_us;
        let n = anatomy.layers.len();
        writeln!(
            out,
            "layers  {sum:.1} us in {n} steps and {:.1} us outside of them, the whole run {total:.1} us on {threads} threads",
            anatomy.outside_us().unwrap_or(0.0)
        )?;
        let missing: Vec<String> = anatomy.layers.iter().filter_map(Layer::not_on_tensor_cores).collect();
        if let Some(why) = missing.first() {
            writeln!(out, "cores   {} products are not on tensor cores, as: {why}", missing.len())?;
        }
        if measured.roof.is_none() {
            roof::print_how(out)?;
        }
        if let Some(path) = &args.trace {
            writeln!(out, "trace   {}, for chrome://tracing or ui.perfetto.dev", path.display())?;
        }
    }
    let layers: Vec<_> = anatomy.layers.iter().map(|layer| layer.json(record)).collect();
    let report = json!({
        "layers": layers, "sum_us": sum, "outside_us": anatomy.outside_us(), "total_us": measured.total_us,
        "threads": threads,
    });
    print::json(out, &args.json, &report)?;
    Ok(Answer::Yes)
}

/// The times of runs, in nanoseconds.
pub(crate) struct Samples {
    /// Of each step, a run each.
    pub(crate) steps: Vec<Vec<u64>>,
    totals: Vec<u64>,
}

/// Times every step in this many runs, after some to warm up.
pub(crate) fn samples(
    engine: &Engine,
    tensors: &[(String, Tensor)],
    threads: usize,
    n_runs: usize,
) -> Result<Samples> {
    let inputs: Vec<(&str, View<'_>)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), View::from(tensor))).collect();
    let mut context = engine.context_with(ContextOptions::new(threads))?;
    for _ in 0..3 {
        context.run(&inputs)?;
    }
    let steps = vec![Vec::new(); engine.record().program.steps.len()];
    let mut samples = Samples { steps, totals: Vec::new() };
    for _ in 0..n_runs.max(1) {
        let profiled = context.profile(&inputs)?;
        samples.totals.push(profiled.total_ns);
        for time in profiled.steps {
            samples.steps[time.step].push(time.ns);
        }
    }
    Ok(samples)
}

/// The time of every step and of the whole run, with the work of the steps and the machine's roof: means over the quarter of
/// the runs that were shortest, so that other work on the machine counts least, and steps and whole are of the same runs.
pub(crate) fn measure(engine: &Engine, fed: &Inputs, threads: usize, iterations: usize) -> Result<Measured> {
    let dims: Vec<(&str, &[usize])> =
        fed.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
    let Samples { steps, totals } = samples(engine, &fed.tensors, threads, iterations)?;
    let mut order: Vec<usize> = (0..totals.len()).collect();
    order.sort_by_key(|&run| totals[run]);
    order.truncate(totals.len().div_ceil(4));
    let mean = |times: &[u64]| {
        // A step of a branch that some runs did not take has times of its own number.
        let kept: Vec<u64> = match times.len() == totals.len() {
            true => order.iter().map(|&run| times[run]).collect(),
            false => times.to_vec(),
        };
        kept.iter().sum::<u64>() as f64 / kept.len().max(1) as f64 / 1e3
    };
    let counted = anatomy::counted(engine, &engine.sizes_of(&dims)?, threads);
    Ok(Measured { us: steps.iter().map(|times| mean(times)).collect(), total_us: mean(&totals), ..counted })
}

/// The slowest layers, or all in order.
fn show(layers: &[Layer<'_>], top: usize, out: &mut dyn Write) -> Result<()> {
    let mut order: Vec<&Layer<'_>> = layers.iter().collect();
    if top > 0 {
        let time = |layer: &Layer<'_>| layer.us.unwrap_or(0.0);
        order.sort_by(|a, b| time(b).total_cmp(&time(a)));
        order.truncate(top);
    }
    let headings = ["us", "share", "in", "GFLOP/s", "GB/s", "of roof", "layer", "operators", "kernel"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    for layer in order {
        let us = layer.us.unwrap_or(0.0);
        let rate = |amount: Option<u64>| {
            or_dash(amount.filter(|_| us > 0.0).map(|amount| format!("{:.1}", amount as f64 / us / 1e3)))
        };
        rows.push(vec![
            format!("{us:.1}"),
            or_dash(layer.share.map(|share| format!("{:.1} %", 100.0 * share))),
            layer.precision.to_string(),
            rate(layer.work.and_then(|work| work.flops)),
            rate(layer.work.and_then(|work| work.bytes)),
            or_dash(layer.roof_share().map(|(_, share)| format!("{:.0} %", 100.0 * share))),
            shorten(&layer.step.name, 60),
            shorten(&layer.step.region.ops(), 40),
            layer.kernel.clone(),
        ]);
    }
    print::table(out, &rows, &[0, 1, 3, 4, 5])?;
    Ok(())
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let mut short: String = text.chars().take(most - 1).collect();
    short.push('…');
    short
}
