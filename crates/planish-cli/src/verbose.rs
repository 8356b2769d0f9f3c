//! `-v` and `-vv`: what a build decided, as TensorRT's users know it from their logs. Lines go to standard error.
//!
//! `-v` tells what was fused, in what it is computed and by which kernel; `-vv` also what rules refused and every candidate
//! with its time.

use std::sync::atomic::{AtomicU8, Ordering};

use planish::{Built, record::StepKind};

use crate::printable::printable;
use crate::progress;

static LEVEL: AtomicU8 = AtomicU8::new(0);

pub(crate) fn set(level: u8) {
    LEVEL.store(level, Ordering::Relaxed);
}

pub(crate) fn level() -> u8 {
    LEVEL.load(Ordering::Relaxed)
}

fn say(text: &str) {
    progress::line(&format!("[V] {}", printable(text)));
}

/// Tells what a build decided.
pub(crate) fn built(built: &Built) {
    if level() == 0 {
        return;
    }
    for line in built.passes.to_string().lines() {
        say(line);
    }
    let plan = &built.plan;
    for (idx, step) in plan.program.steps.iter().enumerate() {
        let n_nodes = step.region.nodes.len();
        let fused = if n_nodes > 1 { format!("fuses {n_nodes} nodes, ") } else { String::new() };
        let target = &plan.header.targets[step.target as usize].backend;
        let kernel = match &step.kind {
            StepKind::Kernel { variants, .. } => {
                let names: Vec<String> = variants.iter().map(|variant| variant.tactic.to_string()).collect();
                names.join(" | ")
            }
            StepKind::Transfer => "transfer".to_string(),
            StepKind::Evaluate => "reference on host values".to_string(),
            StepKind::Control(_) => "control flow".to_string(),
        };
        let evidence = plan.evidence.iter().find(|evidence| evidence.step as usize == idx);
        let why = evidence.map_or_else(String::new, |evidence| {
            format!(", {} of {} candidates", evidence.why, evidence.timings.len())
        });
        let precision = step.numeric.element.name();
        say(&format!(
            "layer {idx} {}: {} ({fused}{precision} on {target}) by {kernel}{why}",
            step.name,
            step.region.ops()
        ));
        if level() > 1 {
            for timing in evidence.into_iter().flat_map(|evidence| &evidence.timings) {
                let how = if timing.measured { "measured" } else { "by the cost model" };
                say(&format!("    {}: {:.3} us {how}", timing.tactic, timing.ns as f64 / 1e3));
            }
        }
    }
}
