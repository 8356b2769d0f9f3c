//! What `planish compare` found, as tables and as JSON.

use std::io::Write;

use anyhow::Result;
use planish::{Contract, LabelCount, Metrics, StepError};
use serde_json::{Value, json};

use super::Compared;
use super::layers::Layers;
use crate::print;

/// All that was found.
pub(super) struct Found<'a> {
    pub(super) first: &'a str,
    pub(super) n_samples: usize,
    pub(super) compared: &'a [Compared],
    pub(super) counts: Option<&'a [(String, LabelCount)]>,
    pub(super) layers: &'a [Layers],
    pub(super) limit: Option<Contract>,
}

const HEADINGS: [&str; 13] = [
    "", "against", "output", "max abs", "MAE", "rel L2", "PSNR dB", "SNR dB", "cosine", "top-1", "top-5",
    "NaN", "Inf",
];

impl Found<'_> {
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<()> {
        let mut rows = vec![HEADINGS.map(String::from).to_vec()];
        for one in self.compared {
            rows.extend(one.outputs.iter().map(|(output, metrics)| row(one, output, metrics)));
        }
        print::table(out, &rows, &[3, 4, 5, 6, 7, 8, 9, 10, 11, 12])?;
        for one in self.compared {
            for (output, metrics) in &one.outputs {
                if metrics.has_other_shape() {
                    writeln!(
                        out,
                        "shape    {}, `{output}`: another shape than {} gives",
                        one.name, one.against
                    )?;
                }
                if let Some(worst) = metrics.worst() {
                    writeln!(
                        out,
                        "worst    {}, `{output}` of sample {} at {:?}: {} where {} has {}",
                        one.name,
                        worst.sample,
                        worst.index,
                        exact(worst.got),
                        one.against,
                        exact(worst.want)
                    )?;
                }
            }
        }
        for (name, count) in self.counts.unwrap_or_default() {
            let percent = |n: usize| 100.0 * n as f64 / count.n_rows.max(1) as f64;
            writeln!(
                out,
                "accuracy {name}: top-1 {:.2} %, top-5 {:.2} % of {} labels",
                percent(count.top1),
                percent(count.top5),
                print::count(count.n_rows as u64)
            )?;
        }
        for layers in self.layers {
            print_layers(layers, out)?;
        }
        for one in self.compared {
            let (Some(contract), Some((value, holds))) = (self.limit, one.limit) else { continue };
            let verdict = if holds { "keeps to" } else { "is BEYOND" };
            let (measure, value) = (contract.measure.name(), number(value));
            writeln!(
                out,
                "limit    {} {verdict} {contract} against {} ({measure} {value})",
                one.name, one.against
            )?;
        }
        let s = if self.n_samples == 1 { "" } else { "s" };
        writeln!(out, "compared on {} sample{s}", print::count(self.n_samples as u64))?;
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let compared = self.compared.iter().map(|one| {
            json!({
                "name": one.name, "against": one.against,
                "outputs": one.outputs.iter().map(|(name, metrics)| metrics_json(name, metrics)).collect::<Vec<_>>(),
                "limit_value": one.limit.map(|(value, _)| finite(value)),
                "within_limit": one.limit.map(|(_, holds)| holds),
            })
        });
        let counts = self.counts.map(|counts| {
            let one = |(name, count): &(String, LabelCount)| {
                json!({ "name": name, "labels": count.n_rows, "top1": count.top1, "top5": count.top5 })
            };
            counts.iter().map(one).collect::<Vec<_>>()
        });
        let layers = self.layers.iter().map(|layers| {
            json!({ "name": layers.name, "steps": layers.found.steps.iter().map(step_json).collect::<Vec<_>>() })
        });
        json!({
            "first": self.first,
            "samples": self.n_samples,
            "limit": self.limit.map(|limit| limit.to_string()),
            "compared": compared.collect::<Vec<_>>(),
            "accuracy": counts,
            "layers": layers.collect::<Vec<_>>(),
        })
    }
}

fn row(one: &Compared, output: &str, metrics: &Metrics) -> Vec<String> {
    let share = |share: Option<f64>| share.map_or("-".to_string(), |share| format!("{:.2} %", 100.0 * share));
    let decibels = |value: f64| match value {
        f64::INFINITY => "equal".to_string(),
        _ => format!("{value:.1}"),
    };
    vec![
        one.name.clone(),
        one.against.clone(),
        output.to_string(),
        number(metrics.max_abs()),
        number(metrics.mean_abs()),
        number(metrics.relative_l2()),
        decibels(metrics.psnr()),
        decibels(metrics.snr()),
        format!("{:.7}", metrics.cosine()),
        share(metrics.top1()),
        share(metrics.top5()),
        print::count(metrics.n_nan()),
        print::count(metrics.n_infinite()),
    ]
}

fn metrics_json(name: &str, metrics: &Metrics) -> Value {
    let worst = metrics.worst().map(|worst| {
        json!({ "sample": worst.sample, "index": worst.index, "got": finite(worst.got), "want": finite(worst.want) })
    });
    json!({
        "name": name,
        "elements": metrics.n_elements(),
        "other_shape": metrics.has_other_shape(),
        "max_abs": finite(metrics.max_abs()),
        "mae": finite(metrics.mean_abs()),
        "relative_l2": finite(metrics.relative_l2()),
        "psnr_db": finite(metrics.psnr()),
        "snr_db": finite(metrics.snr()),
        "cosine": finite(metrics.cosine()),
        "top1_agreement": metrics.top1(),
        "top5_agreement": metrics.top5(),
        "nan": metrics.n_nan(),
        "inf": metrics.n_infinite(),
        "not_finite_on_one_side": metrics.n_not_finite(),
        "worst": worst,
    })
}

fn print_layers(layers: &Layers, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "layers   of {}", layers.name)?;
    let headings = ["", "layer", "in", "own error", "accumulated", "kernel", "operators"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    for step in &layers.found.steps {
        rows.push(vec![
            step.step.to_string(),
            step.layer.clone(),
            step.precision.to_string(),
            number(step.own),
            number(step.accumulated),
            step.tactic.clone(),
            step.ops.clone(),
        ]);
    }
    print::table(out, &rows, &[0, 3, 4])?;
    if layers.found.n_not_compared > 0 {
        writeln!(
            out,
            "  {} more steps make values that the float model has not",
            layers.found.n_not_compared
        )?;
    }
    Ok(())
}

fn step_json(step: &StepError) -> Value {
    json!({
        "step": step.step, "layer": step.layer, "nodes": step.nodes, "operators": step.ops, "tactic": step.tactic,
        "precision": step.precision, "value": step.value, "own_error": finite(step.own),
        "accumulated_error": finite(step.accumulated),
    })
}

/// A number for JSON, which has no infinities: these are words there.
fn finite(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!(value.to_string()) }
}

/// An error as people read it.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        _ if value.is_finite() => format!("{value:.2e}"),
        _ => value.to_string(),
    }
}

/// A value with as many digits as f32 has.
fn exact(value: f64) -> String {
    match value.abs() {
        0.0 | 1e-4..1e7 => format!("{value}"),
        _ => format!("{value:e}"),
    }
}
