//! `--layers`: how far every layer of the plans is from the float model, in the order of the network.

use anyhow::{Context, Result, ensure};
use planish::{Accuracy, Diagnosis, Sample};

use super::subject::Ready;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::progress;

/// The layers of one plan.
pub(super) struct Layers {
    pub(super) name: String,
    pub(super) found: Diagnosis,
}

/// Looks into every plan among the subjects. The float model is that of the first subject with a model file of the same
/// source, or the plan's own graph.
pub(super) fn of(ready: &[Ready], samples: &[Sample]) -> Result<Vec<Layers>> {
    let mut all = Vec::new();
    for subject in ready {
        let Some(plan) = subject.plan() else { continue };
        let source = plan.record().header.source;
        let model =
            ready.iter().filter_map(|other| other.model.as_ref()).find(|model| model.hash() == source);
        let mut accuracy = Accuracy::of(plan);
        if let Some(model) = model {
            accuracy = accuracy.against(model.clone());
        }
        if let Some(bar) = progress::bar() {
            accuracy = accuracy.progress(bar);
        }
        let found = accuracy.run(samples.iter().cloned().map(Ok));
        progress::clear();
        let found = found.with_context(|| format!("{}: its layers cannot be compared", subject.name))?;
        all.push(Layers { name: subject.name.clone(), found });
    }
    ensure!(!all.is_empty(), "--layers looks into plans, and none of these is one; add @cpu or a .plan file");
    Ok(all)
}

/// Errors over the steps, each plan with what it is off by itself and what has come together.
pub(super) fn chart(layers: &[Layers]) -> Chart {
    let mut series = Vec::new();
    for layers in layers {
        for (what, is_own) in [("accumulated", false), ("own", true)] {
            let points = layers.found.steps.iter().map(|step| {
                let y = if is_own { step.own } else { step.accumulated };
                let about = format!(
                    "{}: {} ({}, {}), {what} error {y:.2e}",
                    step.step, step.layer, step.precision, step.tactic
                );
                Point { x: step.step as f64, y, about }
            });
            let name = format!("{}, {what}", layers.name);
            series.push(Series { name, points: points.collect(), is_scattered: is_own });
        }
    }
    Chart {
        title: "Error of every layer".to_string(),
        x_label: "step, in the order of the network".to_string(),
        y_label: "relative L2 error against the float model".to_string(),
        x: Spread::Close,
        y: Spread::Log,
        series,
        ..Chart::default()
    }
}
