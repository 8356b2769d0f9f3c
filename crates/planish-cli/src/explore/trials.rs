//! `explore --try`: what would help, tried: the plan is built again with one thing changed, and both are run in turn.

use std::time::Duration;

use anyhow::{Context, Result};
use planish::io::{Inputs, Sources};
use planish::{Accuracy, Builder, Device, Engine, Metrics, Model, Plan, Precision, Tensor};
use serde_json::{Value, json};

use crate::bench::paired::{self, Side};
use crate::interrupt::Stoppable;
use crate::{progress, say_note};

/// How long each is run, at the least.
const DURATION: Duration = Duration::from_secs(2);
/// Changes of less are none.
const TOLERANCE: f64 = 0.01;
/// Samples at once instead of one, where kernels are tiny.
const MORE: usize = 4;

/// Something to try.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trial {
    /// Search for kernels as hard as there is.
    TuneLevel,
    /// Another precision.
    Precision(Precision),
    /// One thread instead of all.
    OneThread,
    /// A larger batch.
    Batch(usize),
}

impl Trial {
    /// As one types it.
    fn flag(self) -> String {
        match self {
            Trial::TuneLevel => "--tune-level 5".to_string(),
            Trial::Precision(precision) => format!("--precision {}", precision.name()),
            Trial::OneThread => "--threads 1".to_string(),
            Trial::Batch(batch) => format!("batch {batch}, for each sample"),
        }
    }

    /// The hazard that it answers.
    fn answers(self) -> &'static str {
        match self {
            Trial::TuneLevel => "slow",
            Trial::Precision(_) => "precision",
            Trial::OneThread | Trial::Batch(_) => "tiny",
        }
    }
}

/// What is worth trying of a plan with these hazards, as its anatomy lists them.
fn worth_trying(plan: &Plan, hazards: &Value) -> Vec<Trial> {
    let has = |kind: &str| hazards.as_array().into_iter().flatten().any(|hazard| hazard["kind"] == kind);
    let record = plan.record();
    let options = &record.header.options;
    let asked = |name: &str| options.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut trials = Vec::new();
    if asked("tune_level=") != "5" {
        trials.push(Trial::TuneLevel);
    }
    if matches!(asked("precision="), "fp32" | "") {
        let sixteen = if record.device().is_some() { Precision::Fp16 } else { Precision::Bf16 };
        trials.push(Trial::Precision(sixteen));
    }
    if has("tiny") {
        if record.header.threads > 1 && record.device().is_none() {
            trials.push(Trial::OneThread);
        }
        trials.push(Trial::Batch(MORE));
    }
    trials
}

/// Tries all that is worth it; gives a list for the page.
pub(super) fn all(
    plan: &Plan,
    model: Option<&Model>,
    device: Device,
    fed: &Inputs,
    hazards: &Value,
) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for trial in worth_trying(plan, hazards) {
        let flag = trial.flag();
        match one(trial, plan, model, device, fed) {
            Ok(result) => found.push(json!({ "what": flag, "answers": trial.answers(), "result": result })),
            Err(error) if error.downcast_ref::<crate::ending::Ending>().is_some() => return Err(error),
            // What a plan cannot be built with is an answer, too.
            Err(error) => {
                say_note(&format!("{flag}: {error:#}"));
                found.push(
                    json!({ "what": flag, "answers": trial.answers(), "failed": format!("{error:#}") }),
                );
            }
        }
    }
    Ok(found)
}

fn one(trial: Trial, plan: &Plan, model: Option<&Model>, device: Device, fed: &Inputs) -> Result<Value> {
    let header = &plan.record().header;
    let graph = match model {
        Some(model) => model.graph().clone(),
        None => Accuracy::of(plan.clone()).graph()?,
    };
    let mut threads = header.threads.max(1) as usize;
    let mut inputs: Vec<(String, Tensor)> = fed.tensors.clone();
    let mut weight = 1.0;
    let mut builder = Builder::from_graph(graph.clone()).device(device);
    let options = builder.options_mut();
    options.tune_at.clone_from(&header.tuned_at);
    match trial {
        Trial::TuneLevel => builder = builder.tune_level(5),
        Trial::Precision(precision) => builder = builder.precision(precision),
        Trial::OneThread => threads = 1,
        Trial::Batch(batch) => {
            let shapes: Vec<String> = fed
                .tensors
                .iter()
                .map(|(name, tensor)| {
                    let mut dims = tensor.shape().to_vec();
                    if let Some(first) = dims.first_mut() {
                        weight = batch as f64 / *first as f64;
                        *first = batch;
                    }
                    format!("{name}:{}", planish::shapes::sizes_text(&dims))
                })
                .collect();
            let more = Sources { random: Some(1), shapes: &shapes, ..Sources::default() }.gather(&graph);
            inputs = more.context("the batch is fixed")?.tensors;
            let asked = planish::shapes::Asked { shapes, ..Default::default() };
            for profile in asked.resolve(&graph)? {
                builder = builder.profile(profile);
            }
        }
    }
    let mut builder = builder.threads(threads);
    let work = Stoppable::begin();
    builder.options_mut().cancel = work.flag();
    builder.options_mut().progress = progress::bar();
    let built = builder.build();
    progress::clear();
    work.end()?;
    let changed = built?;
    let (open_old, open_new) =
        (|| Ok(Engine::new(plan.clone(), device)?), || Ok(Engine::new(changed.clone(), device)?));
    let before =
        Side { open: &open_old, inputs: &fed.tensors, threads: header.threads.max(1) as usize, weight: 1.0 };
    let after = Side { open: &open_new, inputs: &inputs, threads, weight };
    let paired = paired::compare([&before, &after], DURATION, TOLERANCE)?;
    let error = match trial {
        Trial::Batch(_) => None,
        _ => Some(apart(&open_old()?, &open_new()?, fed)?),
    };
    Ok(json!({
        "ms_before": paired.ms[0], "ms": paired.ms[1], "pairs": paired.pairs, "error": error,
        "gain": -paired.verdict.change(), "line": paired.verdict.line(), "is_faster": paired.verdict.is_faster(),
        "is_slower": paired.verdict.is_slower(), "verdict": paired.verdict.json(),
    }))
}

/// How far the outputs of both are apart, the worst output's.
fn apart(old: &Engine, new: &Engine, fed: &Inputs) -> Result<f64> {
    let values = fed.values();
    let (want, got) = (old.context()?.run_values(&values)?, new.context()?.run_values(&values)?);
    let errors = got.iter().zip(&want).filter_map(|(got, want)| {
        let mut metrics = Metrics::default();
        metrics.add(got.as_tensor()?, want.as_tensor()?);
        Some(metrics.relative_l2())
    });
    Ok(errors.fold(0.0, f64::max))
}
