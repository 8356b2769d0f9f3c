//! `planish debug accuracy`: where a plan departs from its model, and the pins that keep it from that.

use std::io::Write;

use anyhow::{Context, Result, bail};
use planish::io::{Samples, Sources};
use planish::{Accuracy, Cause, Departure, Diagnosis, Error, Model, Plan, Sample, StepError};
use serde_json::{Value, json};

use crate::args::DebugAccuracy;
use crate::ending::Answer;
use crate::{calibrate, files, load, pins, print, progress, say_note};

pub(super) fn command(args: &DebugAccuracy, out: &mut dyn Write) -> Result<Answer> {
    let path = args.output.clone().unwrap_or_else(|| args.plan.with_extension("pins"));
    let given: Vec<_> = [Some(&args.plan), args.against.as_ref()].into_iter().flatten().collect();
    files::check_target(
        &path,
        files::Kind::Pins,
        &given.iter().map(|path| path.as_path()).collect::<Vec<_>>(),
    )?;
    std::fs::metadata(&args.plan).with_context(|| format!("cannot read {}", args.plan.display()))?;
    if !load::is_plan(&args.plan) {
        bail!("{} is not a plan; build one with `planish build`", args.plan.display());
    }
    load::check_device(args.device)?;
    let mut accuracy = Accuracy::of(Plan::open(&args.plan)?).device(args.device);
    if let Some(model) = &args.against {
        accuracy = accuracy.against(Model::open(model)?);
    }
    let samples = samples(args, &accuracy)?;
    if let Some(bar) = progress::bar() {
        accuracy = accuracy.progress(bar);
    }
    let found = accuracy.run(samples)?;
    progress::clear();
    let all_pins = found.pins();
    if !all_pins.is_empty() {
        pins::save(&path, &all_pins)?;
    }
    if !args.json.replaces_tables() {
        show(&found, args.top, out)?;
        if !all_pins.is_empty() {
            let n = all_pins.len();
            writeln!(out, "pins     {} ({n} names), for planish build --pins", path.display())?;
        }
    }
    print::json(out, &args.json, &report(&found, &path))?;
    Ok(if found.departures.is_empty() { Answer::Yes } else { Answer::No })
}

/// The samples that the arguments name, or random ones.
fn samples(args: &DebugAccuracy, accuracy: &Accuracy) -> Result<Vec<Result<Sample, Error>>> {
    let graph = accuracy.graph()?;
    if let Some(data) = &args.data {
        let samples = Samples::open(data, &graph, args.samples, &calibrate::preprocess(&args.pixels));
        let samples = samples.context("--data")?;
        samples.notes().iter().for_each(|note| say_note(note));
        return Ok(samples.collect());
    }
    say_note(
        "no --data: the inputs are random numbers, which may lie beyond what the model was calibrated for",
    );
    let defaults = accuracy.tuned_at();
    let one = |number: usize| -> Result<Result<Sample, Error>> {
        let seed = args.random.wrapping_add(number as u64);
        let sources = Sources { random: Some(seed), defaults, ..Sources::default() };
        Ok(Ok(Sample::new(sources.gather(&graph)?.tensors, 1)))
    };
    (0..args.samples.max(1)).map(one).collect()
}

fn show(found: &Diagnosis, top: usize, out: &mut dyn Write) -> Result<()> {
    let mut worst: Vec<&StepError> = found.steps.iter().collect();
    worst.sort_by(|a, b| b.own.total_cmp(&a.own));
    worst.truncate(top);
    worst.sort_by_key(|error| error.step);
    let mut rows = vec![
        ["", "layer", "in", "own error", "accumulated", "kernel", "operators"].map(String::from).to_vec(),
    ];
    for error in worst {
        rows.push(vec![
            error.step.to_string(),
            error.layer.clone(),
            error.precision.to_string(),
            relative(error.own),
            relative(error.accumulated),
            error.tactic.clone(),
            error.ops.clone(),
        ]);
    }
    print::table(out, &rows, &[0, 3, 4])?;
    if found.n_not_compared > 0 {
        writeln!(out, "  {} more steps make values that the float model has not", found.n_not_compared)?;
    }
    for (name, error) in &found.outputs {
        writeln!(out, "output   {name}: relative L2 error {}", relative(*error))?;
    }
    if found.departures.is_empty() {
        writeln!(out, "no layer stands out: none errs by more than {} of its own", relative(found.limit))?;
    }
    for departure in &found.departures {
        let step = &found.steps[departure.at];
        writeln!(
            out,
            "departs  at step {}, `{}` ({}, {}): {}",
            step.step,
            step.layer,
            step.precision,
            step.tactic,
            why(departure)
        )?;
        for pin in &departure.pins {
            writeln!(out, "           --layer-precision '{pin}:fp32'")?;
        }
    }
    Ok(())
}

/// An error as people read it.
fn relative(error: f64) -> String {
    match error {
        _ if !error.is_finite() => "not finite".to_string(),
        0.0 => "0".to_string(),
        _ => format!("{error:.2e}"),
    }
}

/// Whether values reach beyond the ends by more than a tenth of what lies between these.
fn is_far_beyond([least, most]: [f64; 2], [low, high]: [f64; 2]) -> bool {
    let tenth = (high - low) / 10.0;
    least < low - tenth || most > high + tenth
}

/// What a departure comes from, in words.
fn why(departure: &Departure) -> String {
    let error = relative(departure.error);
    match &departure.cause {
        Cause::Storage { value, ends: Some([low, high]), values: [least, most], clipped }
            if is_far_beyond([*least, *most], [*low, *high]) =>
        {
            format!(
                "`{value}` reaches from {least:.3} to {most:.3}, and is stored from {low:.3} to {high:.3}: {:.1} % of it is \
                 clipped ({error})",
                100.0 * clipped
            )
        }
        Cause::Storage { value, ends: Some([low, high]), values: [least, most], .. } => format!(
            "`{value}` reaches from {least:.3} to {most:.3}, and is stored from {low:.3} to {high:.3}: the steps are too \
             coarse ({error})"
        ),
        Cause::Storage { value, .. } => format!("`{value}` is stored too coarsely ({error})"),
        Cause::Weights => format!("its weights or its arithmetic are off ({error})"),
        Cause::Sensitive => format!("it makes much of the usual rounding of what it reads ({error})"),
        _ => format!("it is off ({error})"),
    }
}

fn report(found: &Diagnosis, pins: &std::path::Path) -> Value {
    let finite = |error: f64| if error.is_finite() { json!(error) } else { json!("not finite") };
    let step = |error: &StepError| {
        json!({
            "step": error.step, "layer": error.layer, "nodes": error.nodes, "operators": error.ops,
            "tactic": error.tactic, "precision": error.precision, "value": error.value,
            "own_error": finite(error.own), "accumulated_error": finite(error.accumulated),
        })
    };
    let departure = |departure: &Departure| {
        let at = &found.steps[departure.at];
        json!({
            "step": at.step, "layer": at.layer, "why": why(departure), "error": finite(departure.error),
            "pins": departure.pins,
        })
    };
    let outputs = found.outputs.iter().map(|(name, error)| json!({ "name": name, "error": finite(*error) }));
    json!({
        "samples": found.n_samples,
        "limit": found.limit,
        "outputs": outputs.collect::<Vec<_>>(),
        "departures": found.departures.iter().map(departure).collect::<Vec<_>>(),
        "pins": if found.departures.is_empty() { Value::Null } else { json!(pins) },
        "steps": found.steps.iter().map(step).collect::<Vec<_>>(),
        "steps_not_compared": found.n_not_compared,
    })
}
