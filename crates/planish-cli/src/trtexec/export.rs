//! The JSON files that trtexec writes: times, layers' times, outputs, layers.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use planish::record::{Plan, Program, StepKind};
use planish::{Phases, Tensor, shapes};
use serde_json::{Value, json};

use crate::files::{self, Kind};
use crate::inspect_plan;

/// Refuses what could not be written before anything is built.
pub(super) fn check(path: &Path, given: &[&Path]) -> Result<()> {
    files::check_target(path, Kind::Json, given)
}

pub(super) fn write(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    files::write(path, |file| writeln!(file, "{text}"))
}

/// `--exportTimes`: an object a run. Runs follow each other; what is no transfer is computation, and transfers are their
/// medians (`phases`, of runs that were timed apart on a GPU).
pub(super) fn times(times: &[Duration], phases: Option<&Phases>) -> Value {
    let (upload, download) =
        phases.map_or((0.0, 0.0), |phases| (phases.upload_ns / 1e6, phases.download_ns / 1e6));
    let mut start = 0.0;
    let mut one = |time: &Duration| {
        let latency = time.as_secs_f64() * 1e3;
        let compute = (latency - upload - download).max(0.0);
        let (computes, downloads) = (start + upload, start + upload + compute);
        let entry = json!({
            "startEnqMs": start, "endEnqMs": start,
            "startH2dMs": start, "endH2dMs": computes,
            "startComputeMs": computes, "endComputeMs": downloads,
            "startD2hMs": downloads, "endD2hMs": downloads + download,
            "h2dMs": upload, "computeMs": compute, "d2hMs": download, "latencyMs": latency,
        });
        start += latency;
        entry
    };
    times.iter().map(&mut one).collect()
}

/// The times of one layer, in milliseconds.
pub(super) struct LayerTime {
    pub(super) name: String,
    pub(super) total: f64,
    pub(super) average: f64,
    pub(super) median: f64,
    pub(super) percentage: f64,
}

/// `--exportProfile`: how many runs, then an object a layer.
pub(super) fn profile(n_runs: usize, layers: &[LayerTime]) -> Value {
    let layer = |layer: &LayerTime| {
        json!({
            "name": layer.name, "timeMs": layer.total, "averageMs": layer.average, "medianMs": layer.median,
            "percentage": layer.percentage,
        })
    };
    std::iter::once(json!({ "count": n_runs })).chain(layers.iter().map(layer)).collect()
}

/// `--exportOutput`: an object an output.
pub(super) fn outputs(outputs: &[(String, Tensor)]) -> Value {
    let one = |(name, tensor): &(String, Tensor)| json!({ "name": name, "dimensions": shapes::sizes_text(tensor.shape()), "values": tensor.to_f64s() });
    outputs.iter().map(one).collect()
}

/// `--exportLayerInfo`: what TensorRT's engine inspector gives, as far as there is such a thing here.
pub(super) fn layers(plan: &Plan, names_only: bool) -> Value {
    let program = &plan.program;
    let bindings: Vec<&str> = program
        .inputs
        .iter()
        .chain(&program.outputs)
        .map(|&value| program.values[value as usize].name.as_str())
        .collect();
    let layers: Vec<Value> = program
        .steps
        .iter()
        .map(|step| match names_only {
            true => json!(step.name),
            false => json!({
                "Name": step.name,
                "LayerType": layer_type(&step.kind),
                "Operators": step.region.ops(),
                "Inputs": values(plan, program, &step.inputs),
                "Outputs": values(plan, program, &step.outputs),
                "TacticName": inspect_plan::tactic(step),
                "Target": plan.header.targets[step.target as usize].backend,
                "Metadata": format!("[ONNX Layer: {}]", step.name),
            }),
        })
        .collect();
    json!({ "Layers": layers, "Bindings": bindings })
}

fn layer_type(kind: &StepKind) -> &'static str {
    match kind {
        StepKind::Kernel { .. } => "Kernel",
        StepKind::Transfer => "Transfer",
        StepKind::Evaluate => "Reference",
        StepKind::Control(_) => "ControlFlow",
    }
}

/// The tensors that a step reads or writes, at the sizes that the plan was tuned at; -1 where only a run can tell.
fn values(plan: &Plan, program: &Program, list: &[Option<u32>]) -> Value {
    let size =
        |symbol: &str| plan.header.tuned_at.iter().find(|(known, _)| known == symbol).map(|(_, size)| *size);
    let one = |id: &u32| {
        let value = &program.values[*id as usize];
        let tensor = value.ty.as_tensor();
        let dims = tensor
            .and_then(|ty| ty.shape.as_ref())
            .map(|shape| shape.iter().map(|dim| dim.eval(&size).unwrap_or(-1)).collect::<Vec<i64>>());
        let dtype = tensor.map_or("none".to_string(), |ty| ty.dtype.to_string());
        json!({
            "Name": value.name,
            "Location": if plan.roles[value.target as usize].name() == "device" { "Device" } else { "Host" },
            "Dimensions": dims,
            "Format/Datatype": format!("{} {dtype}", value.layout.name()),
        })
    };
    list.iter().flatten().map(one).collect()
}
