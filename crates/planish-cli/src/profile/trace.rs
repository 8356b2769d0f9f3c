//! A profile as Chrome's trace viewer and Perfetto read it: a track for each backend, a slice for each step.

use serde_json::{Value, json};

use crate::anatomy::Anatomy;

/// Steps one after the other, each as long as its median.
pub(super) fn chrome(anatomy: &Anatomy<'_>) -> Value {
    let name = &anatomy.plan.header.name;
    let mut events = vec![json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": name } })];
    for (track, target) in anatomy.plan.header.targets.iter().enumerate() {
        let name = format!("{}: {}", target.backend, target.device);
        events.push(
            json!({ "ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": { "name": name } }),
        );
    }
    let mut at = 0.0;
    for layer in &anatomy.layers {
        let us = layer.us.unwrap_or(0.0);
        let work = layer.work;
        events.push(json!({
            "ph": "X", "pid": 1, "tid": layer.step.target, "ts": at, "dur": us,
            "name": layer.step.name, "cat": layer.step.region.ops(),
            "args": {
                "step": layer.idx, "kernel": layer.kernel, "precision": layer.precision,
                "flops": work.and_then(|work| work.flops), "bytes": work.and_then(|work| work.bytes),
                "roof_share": layer.roof_share().map(|(_, share)| share),
                "not_on_tensor_cores": layer.not_on_tensor_cores(),
            },
        }));
        at += us;
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}
