//! `planish build --precision auto`: the fastest precision that keeps to a contract.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use planish::files::text;
use planish::io::{Samples, npy};
use planish::{Choice, Contract, ContractData, Labels, Measure, Model, PrecisionCandidate, Sample};
use serde_json::{Value, json};

use crate::args::{AskedPrecision, Build, Contracting};
use crate::interrupt::Stoppable;
use crate::load::{self, Made};
use crate::{calibrate, files, print, progress, say_note};

/// Reads a bound on an error.
pub(crate) fn contract(text: &str) -> Result<Contract, String> {
    text.parse().map_err(|error: planish::Error| error.to_string())
}

/// The contract that the arguments name; none where a precision is.
pub(crate) fn asked(args: &Build) -> Result<Option<Contract>> {
    let Contracting { max_error, metric, max_drop, max_latency, data, pareto, plot, .. } = &args.contracting;
    let bound = match (max_error, metric) {
        (Some(contract), _) => Some(*contract),
        (None, Some(_)) => {
            ensure!(max_drop.is_finite() && *max_drop >= 0.0, "--max-drop {max_drop} is no number of points");
            Some(Contract::new(Measure::Top1Drop, *max_drop))
        }
        (None, None) => None,
    };
    let is_auto = args.building.precision == AskedPrecision::Auto;
    let is_given =
        bound.is_some() || max_latency.is_some() || data.is_some() || pareto.is_some() || plot.is_some();
    match (is_auto, bound) {
        (true, None) => bail!(
            "--precision auto needs a contract: --max-error 0.01, or --metric top1 --labels FILE --max-drop 0.5"
        ),
        (false, _) if is_given => bail!("contracts and their data are for --precision auto"),
        (false, _) => Ok(None),
        (true, Some(mut contract)) => {
            contract.max_latency = *max_latency;
            Ok(Some(contract))
        }
    }
}

/// Searches, shows and writes what was found; the plan is there where the contract is kept.
pub(crate) fn build(args: &Build, contract: Contract, out: &mut dyn Write) -> Result<(Option<Made>, Value)> {
    let asked = &args.contracting;
    for (path, kind) in [(&asked.pareto, files::Kind::Csv), (&asked.plot, files::Kind::Svg)] {
        if let Some(path) = path {
            files::check_target(path, kind, &[&args.model])?;
        }
    }
    let start = Instant::now();
    let model = Model::open(&args.model)?;
    let data = data(args, &model)?;
    if args.building.calibrating.calib.is_none() {
        say_note("integers are not tried: they need --calib");
    }
    let mut builder = load::prepare(&args.model, model, &args.building)?;
    let work = Stoppable::begin();
    builder.options_mut().cancel = work.flag();
    let found = builder.build_by_contract(contract, &data);
    progress::clear();
    work.end().context("the search was stopped, and nothing is kept")?;
    let (choice, built) = found?;
    if !args.json.replaces_tables() {
        show(&choice, out)?;
    }
    if let Some(path) = &asked.pareto {
        files::write(path, |file| file.write_all(choice.csv().as_bytes()))?;
    }
    if let Some(path) = &asked.plot {
        files::write(path, |file| file.write_all(choice.svg().as_bytes()))?;
    }
    let time = start.elapsed();
    let made = built.map(|(built, _)| {
        built.notes.iter().for_each(|note| say_note(note));
        let stages = Some(built.stages);
        Made { plan: built.plan.into(), time, built: Some(time), report: Some(built.passes), stages }
    });
    Ok((made, report(&choice)))
}

/// The samples that the contract is measured on, with their labels.
fn data(args: &Build, model: &Model) -> Result<ContractData> {
    let calibrating = &args.building.calibrating;
    let from_calib = calibrate::samples_of(calibrating);
    let Some(path) = args.contracting.data.as_deref().or(from_calib) else {
        bail!("--precision auto needs samples to measure the contract on; give them with --data");
    };
    let labels = args.contracting.labels.as_deref().map(labels).transpose().context("--labels")?;
    // With labels all of them: which label belongs to which sample is told by their order alone.
    let limit = if labels.is_some() { u32::MAX as usize } else { args.contracting.data_samples };
    let samples = Samples::open(path, model.graph(), limit, &calibrate::preprocess(&calibrating.pixels));
    let samples = samples.context("--data")?;
    samples.notes().iter().for_each(|note| say_note(note));
    let samples: Vec<Sample> = samples.collect::<Result<_, _>>().context("--data")?;
    Ok(ContractData::new(samples, labels)?)
}

/// The class of every sample.
pub(crate) fn labels(path: &Path) -> Result<Labels> {
    let name = path.display();
    let integers = |tensor: &planish::Tensor| -> Result<Labels> {
        ensure!(!tensor.dtype().is_float(), "{name} holds {} where classes are integers", tensor.dtype());
        Ok(tensor.to_f64s().into_iter().map(|class| class as i64).collect())
    };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => integers(&npy::read(path, &npy::accept_all)?),
        Some("npz") => {
            let arrays = npy::read_archive(path, &npy::accept_all)?;
            let found = arrays.iter().find(|(name, _)| name == "labels");
            let (_, labels) = found.with_context(|| format!("{name} has no array `labels`"))?;
            integers(labels)
        }
        _ => {
            let text = text::read(path).with_context(|| format!("cannot read {name}"))?;
            let text = text.with_context(|| format!("cannot read {name}: there is no such file"))?;
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            let one = |(at, line): (usize, &str)| {
                line.trim()
                    .parse()
                    .with_context(|| format!("{name}, line {}: `{line}` is not a class", at + 1))
            };
            lines.map(one).collect()
        }
    }
}

fn show(choice: &Choice, out: &mut dyn Write) -> Result<()> {
    let measure = choice.contract.measure.name();
    let headings = ["", "candidate", "low layers", measure, "held out", "ms", "front"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    for (at, candidate) in choice.candidates.iter().enumerate() {
        let mark = if choice.chosen == Some(at) { "*" } else { "" };
        rows.push(vec![
            mark.to_string(),
            candidate.name(),
            candidate.n_low.to_string(),
            number(candidate.value),
            candidate.held_out.map_or_else(String::new, number),
            format!("{:.3}", candidate.latency.as_secs_f64() * 1e3),
            if candidate.is_on_front { "front" } else { "" }.to_string(),
        ]);
    }
    print::table(out, &rows, &[2, 3, 4, 5])?;
    let Choice { contract, n_search, n_held_out, .. } = choice;
    let late = contract
        .max_latency
        .map_or_else(String::new, |most| format!(", at most {} ms", most.as_secs_f64() * 1e3));
    let on = format!("{contract}{late}, on {n_held_out} samples held out from the {n_search} of the search");
    match choice.chosen {
        Some(at) => {
            writeln!(out, "contract {on}: kept by {}", choice.candidates[at].name())?;
            for layer in &choice.candidates[at].fp32_layers {
                writeln!(out, "           --layer-precision '{layer}:fp32'")?;
            }
        }
        None => {
            let closest = &choice.candidates[choice.closest];
            writeln!(out, "contract {on}: nothing keeps to it, and nothing is written")?;
            let value = number(closest.held_out.unwrap_or(closest.value));
            let ms = closest.latency.as_secs_f64() * 1e3;
            writeln!(out, "closest  {}: {measure} {value}, {ms:.3} ms", closest.name())?;
        }
    }
    Ok(())
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        _ if !value.is_finite() => value.to_string(),
        _ if value.abs() < 0.01 => format!("{value:.2e}"),
        _ => format!("{value:.4}"),
    }
}

fn report(choice: &Choice) -> Value {
    let finite = |value: f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
    let one = |candidate: &PrecisionCandidate| {
        json!({
            "name": candidate.name(), "precision": candidate.precision.name(), "fp32_layers": candidate.fp32_layers,
            "low_layers": candidate.n_low, "search": finite(candidate.value),
            "held_out": candidate.held_out.map(finite), "latency_ms": candidate.latency.as_secs_f64() * 1e3,
            "front": candidate.is_on_front,
        })
    };
    json!({
        "contract": choice.contract.to_string(), "chosen": choice.chosen, "closest": choice.closest,
        "samples_search": choice.n_search, "samples_held_out": choice.n_held_out,
        "candidates": choice.candidates.iter().map(one).collect::<Vec<_>>(),
    })
}
