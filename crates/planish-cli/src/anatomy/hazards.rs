//! What in a plan is worth a look, and what would help.

use planish::op::Class;
use planish::record::StepKind;
use serde_json::{Value, json};

use super::{Anatomy, Layer};

/// Steps shorter than this are mostly overhead: of a launch on a GPU, of waking threads on a CPU.
const TINY_US: f64 = 5.0;
/// Tiny steps below this part of the run are not worth a word.
const TINY_SHARE: f64 = 0.02;
/// Steps that take this part of the run...
const LARGE_SHARE: f64 = 0.05;
/// ...and need less than this part of their time at the machine's peaks are far from these.
const FAR_BELOW: f64 = 0.25;

/// Something worth a look.
pub(crate) struct Hazard {
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    pub(crate) help: &'static str,
    pub(crate) layers: Vec<usize>,
    /// Of the run's time.
    pub(crate) share: Option<f64>,
}

impl Hazard {
    pub(crate) fn json(&self) -> Value {
        json!({ "kind": self.kind, "what": self.what, "help": self.help, "layers": self.layers, "share": self.share })
    }
}

/// All of a plan, those that cost most first.
pub(crate) fn of(anatomy: &Anatomy<'_>) -> Vec<Hazard> {
    let plan = anatomy.plan;
    let on_gpu = plan.device().is_some();
    let layers = &anatomy.layers;
    let mut hazards = Vec::new();
    let mut add =
        |kind: &'static str, found: Vec<&Layer<'_>>, what: &dyn Fn(usize) -> String, help: &'static str| {
            if !found.is_empty() {
                let share = found.iter().map(|layer| layer.share).sum::<Option<f64>>();
                let layers = found.iter().map(|layer| layer.idx).collect::<Vec<_>>();
                hazards.push(Hazard { kind, what: what(layers.len()), help, layers, share });
            }
        };
    let pick =
        |keep: &dyn Fn(&Layer<'_>) -> bool| layers.iter().filter(|layer| keep(layer)).collect::<Vec<_>>();
    add(
        "fallback",
        pick(&|layer| layer.is_slow && !is_control(layer)),
        &|n| count(n, "step runs on the slow reference", "steps run on the slow reference"),
        "no kernel takes them: `planish build --explain` says why; --strict refuses such plans",
    );
    add(
        "fallback",
        pick(&|layer| on_gpu && layer.backend != "cuda" && !layer.is_slow && is_kernel(layer)),
        &|n| count(n, "step of a GPU plan runs on the CPU", "steps of a GPU plan run on the CPU"),
        "the device has no kernel for them: replace the operators, or compute them before and after the model",
    );
    add(
        "transfer",
        pick(&|layer| matches!(layer.step.kind, StepKind::Transfer)),
        &|n| {
            let values = count(n, "value travels", "values travel");
            format!("{values} between host and device in the middle of the run")
        },
        "they go with the steps on the CPU: bring these onto the device first",
    );
    add(
        "reorder",
        pick(&is_reorder),
        &|n| count(n, "step only moves elements", "steps only move elements"),
        "transposes between layouts: export channels-last inputs, or remove Transpose nodes around the layers that they separate",
    );
    let tiny =
        pick(&|layer| anatomy.is_profiled && is_kernel(layer) && layer.us.is_some_and(|us| us < TINY_US));
    let tiny_share: f64 = tiny.iter().filter_map(|layer| layer.share).sum();
    if tiny_share >= TINY_SHARE {
        add(
            "tiny",
            tiny,
            &|n| format!("{} less than {TINY_US} us each", count(n, "kernel takes", "kernels take")),
            "mostly overhead: a larger batch, or several requests in one run, spreads it",
        );
    }
    let is_far = |layer: &Layer<'_>| {
        layer.share.is_some_and(|share| share > LARGE_SHARE)
            && layer.roof_share().is_some_and(|(_, share)| share < FAR_BELOW)
    };
    add(
        "slow",
        pick(&|layer| anatomy.is_profiled && is_far(layer)),
        &|n| {
            let steps = count(n, "large step is", "large steps are");
            format!("{steps} below {:.0} % of what the machine's peaks allow", 100.0 * FAR_BELOW)
        },
        "--tune-level 5 tries more kernels; another precision or sizes that are multiples of 8 may suit them better",
    );
    add(
        "tensor cores",
        pick(&|layer| layer.not_on_tensor_cores().is_some()),
        &|n| count(n, "product is not on tensor cores", "products are not on tensor cores"),
        "each layer says why",
    );
    let low = plan.header.options.lines().find_map(|line| line.strip_prefix("precision="));
    if low.is_some_and(|precision| matches!(precision, "fp16" | "bf16" | "int8")) {
        add(
            "precision",
            pick(&|layer| {
                layer.precision == "f32"
                    && layer.step.region.nodes.iter().any(|node| super::is_product(&node.op))
            }),
            &|n| count(n, "product stays in fp32", "products stay in fp32"),
            "pinned, or no kernel of the plan's precision takes them: `planish build --explain`",
        );
    }
    let is_predicted = |layer: &Layer<'_>| {
        let evidence = plan.evidence.iter().find(|evidence| evidence.step as usize == layer.idx);
        evidence.is_some_and(|evidence| {
            evidence.timings.len() > 1 && evidence.timings.iter().all(|timing| !timing.measured)
        })
    };
    add(
        "not measured",
        pick(&is_predicted),
        &|n| {
            let steps = count(n, "step", "steps");
            format!("the cost model chose the kernels of {steps}, nothing was measured")
        },
        "`planish build --tune-level 3` measures them",
    );
    hazards.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
    hazards
}

fn count(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn is_control(layer: &Layer<'_>) -> bool {
    matches!(layer.step.kind, StepKind::Control(_))
}

fn is_kernel(layer: &Layer<'_>) -> bool {
    matches!(layer.step.kind, StepKind::Kernel { .. })
}

/// Whether a step computes nothing.
fn is_reorder(layer: &Layer<'_>) -> bool {
    let nodes = &layer.step.region.nodes;
    is_kernel(layer) && !nodes.is_empty() && nodes.iter().all(|node| node.op.class() == Class::Movement)
}
