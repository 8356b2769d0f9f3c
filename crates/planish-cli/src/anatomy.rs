//! A plan taken apart for people and scripts: its layers with kernel, precision, operands, work, time, roofline and rivals,
//! what lies in memory while it runs, what is worth a look, and which node of the model went where. `planish explore` shows
//! it, `planish inspect --json` and `planish profile` print of it.

mod hazards;
mod mapping;
mod memory;
mod tensor_cores;

use planish::op::Op;
use planish::record::{Plan, Step, StepKind};
use planish::tactic::Arithmetic;
use planish::{Engine, Model, Roof, StepWork};
use serde_json::{Value, json};

pub(crate) use hazards::Hazard;
pub(crate) use mapping::Mapping;

use crate::inspect_plan::{is_slow, tactic};

/// Operators that multiply.
pub(crate) fn is_product(op: &Op) -> bool {
    matches!(
        op,
        Op::Conv(_) | Op::ConvTranspose(_) | Op::Gemm(_) | Op::MatMul(_) | Op::Einsum(_) | Op::Attention(_)
    )
}

/// What was measured or counted of a plan's steps, by their numbers.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) us: Vec<f64>,
    /// The whole run.
    pub(crate) total_us: f64,
    pub(crate) work: Vec<StepWork>,
    pub(crate) roof: Option<Roof>,
}

/// One step.
pub(crate) struct Layer<'a> {
    pub(crate) idx: usize,
    pub(crate) step: &'a Step,
    pub(crate) kernel: String,
    pub(crate) is_slow: bool,
    /// The backend that runs it.
    pub(crate) backend: &'a str,
    pub(crate) precision: &'static str,
    /// Microseconds: measured now, or what tuning found.
    pub(crate) us: Option<f64>,
    pub(crate) share: Option<f64>,
    pub(crate) work: Option<StepWork>,
    /// Microseconds of its arithmetic and of its operands at the machine's peaks.
    pub(crate) roof_us: Option<[f64; 2]>,
}

/// A plan taken apart.
pub(crate) struct Anatomy<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) layers: Vec<Layer<'a>>,
    /// Whether the times are of now.
    pub(crate) is_profiled: bool,
    total_us: Option<f64>,
}

impl<'a> Anatomy<'a> {
    pub(crate) fn new(plan: &'a Plan, measured: &Measured) -> Anatomy<'a> {
        let steps = &plan.program.steps;
        let is_profiled = measured.us.len() == steps.len() && !steps.is_empty();
        let device = plan.device().unwrap_or(plan.host());
        let time = |idx: usize| match is_profiled {
            true => Some(measured.us[idx]),
            false => tuned_us(plan, idx),
        };
        let sum: f64 = (0..steps.len()).filter_map(time).sum();
        let layer = |(idx, step): (usize, &'a Step)| {
            let work = measured.work.get(idx).copied();
            let roof = measured.roof.as_ref().filter(|_| step.target == device);
            let is_counted = work.is_some_and(|work| work.flops.is_some() && work.bytes.is_some());
            let roof_us = roof.zip(work).filter(|_| is_counted).map(|(roof, work)| {
                [roof.compute_seconds(&[work]), roof.memory_seconds(&[work])].map(|seconds| seconds * 1e6)
            });
            let us = time(idx);
            Layer {
                idx,
                step,
                kernel: tactic(step),
                is_slow: is_slow(step),
                backend: plan.header.targets.get(step.target as usize).map_or("", |target| &target.backend),
                precision: precision(plan, step),
                us,
                share: us.map(|us| us / sum.max(1e-9)),
                work,
                roof_us,
            }
        };
        let layers = steps.iter().enumerate().map(layer).collect();
        let total_us = is_profiled.then_some(measured.total_us);
        Anatomy { plan, layers, is_profiled, total_us }
    }

    /// Microseconds of a run that are no layer's: inputs and outputs, and what lies between the steps. `None` where nothing
    /// was timed.
    pub(crate) fn outside_us(&self) -> Option<f64> {
        let sum: f64 = self.layers.iter().filter_map(|layer| layer.us).sum();
        self.total_us.map(|total| (total - sum).max(0.0))
    }

    /// All of it; with the model that the plan was built from, which node of it went where.
    pub(crate) fn json(&self, model: Option<&Model>) -> Value {
        let hazards = hazards::of(self);
        let mapping = model.and_then(|model| Mapping::new(self.plan, model.graph()));
        json!({
            "name": self.plan.header.name,
            "producer": self.plan.header.producer,
            "threads": self.plan.header.threads,
            "options": self.plan.header.options,
            "targets": self.plan.header.targets.iter().map(|target| json!({
                "backend": target.backend, "device": target.device, "needs": target.needs,
            })).collect::<Vec<_>>(),
            "tuned_at": self.plan.header.tuned_at.iter().map(|(name, size)| json!([name, size])).collect::<Vec<_>>(),
            "profiled": self.is_profiled,
            "total_us": self.total_us,
            "outside_us": self.outside_us(),
            "layers": self.layers.iter().map(|layer| layer.json(self.plan)).collect::<Vec<_>>(),
            "memory": memory::Timeline::of(self.plan).json(),
            "hazards": hazards.iter().map(Hazard::json).collect::<Vec<_>>(),
            "nodes": mapping.map(|mapping| mapping.json()),
        })
    }
}

impl Layer<'_> {
    /// What bounds it at the machine's peaks, and the part of its time that this needs.
    pub(crate) fn roof_share(&self) -> Option<(&'static str, f64)> {
        let ([compute, memory], us) = (self.roof_us?, self.us.filter(|us| *us > 0.0)?);
        Some(if compute >= memory { ("arithmetic", compute / us) } else { ("memory", memory / us) })
    }

    /// Why the step is not on tensor cores; `None` where it is, or has nothing for them.
    pub(crate) fn not_on_tensor_cores(&self) -> Option<String> {
        tensor_cores::why_not(self)
    }

    /// The part of the JSON that `inspect`, `profile` and `explore` share.
    pub(crate) fn json(&self, plan: &Plan) -> Value {
        let evidence = plan.evidence.iter().find(|evidence| evidence.step as usize == self.idx);
        let port = |value: &Option<u32>| {
            value.and_then(|value| plan.program.values.get(value as usize)).map(|value| {
                json!({
                    "name": value.name, "type": value.ty.to_string(), "layout": value.layout.name(),
                    "storage": memory::storage_name(&value.storage),
                })
            })
        };
        let tried = evidence.map(|evidence| {
            let one = |timing: &planish::record::Timing| {
                json!([timing.tactic.to_string(), timing.ns as f64 / 1e3, timing.measured])
            };
            evidence.timings.iter().map(one).collect::<Vec<_>>()
        });
        let rate = |amount: Option<u64>| {
            amount.zip(self.us.filter(|us| *us > 0.0)).map(|(amount, us)| amount as f64 / us / 1e3)
        };
        let (flops, bytes) = (self.work.and_then(|work| work.flops), self.work.and_then(|work| work.bytes));
        json!({
            "name": self.step.name,
            "nodes": self.step.region.nodes.iter().map(|node| json!([node.name, node.op.name()])).collect::<Vec<_>>(),
            "ops": self.step.region.ops(),
            "kernel": self.kernel,
            "slow": self.is_slow,
            "backend": self.backend,
            "precision": self.precision,
            "inputs": self.step.inputs.iter().map(port).collect::<Vec<_>>(),
            "outputs": self.step.outputs.iter().map(port).collect::<Vec<_>>(),
            "us": self.us,
            "share": self.share,
            "flops": flops,
            "bytes": bytes,
            "gflop_per_second": rate(flops),
            "gb_per_second": rate(bytes),
            "roof_compute_us": self.roof_us.map(|[compute, _]| compute),
            "roof_memory_us": self.roof_us.map(|[_, memory]| memory),
            "roof_share": self.roof_share().map(|(_, share)| share),
            "bound_by": self.roof_share().map(|(bound, _)| bound),
            "not_on_tensor_cores": self.not_on_tensor_cores(),
            "why": evidence.map(|evidence| evidence.why.as_str()),
            "tried": tried,
        })
    }
}

/// The time that tuning has for the step's tactic.
fn tuned_us(plan: &Plan, idx: usize) -> Option<f64> {
    let evidence = plan.evidence.iter().find(|evidence| evidence.step as usize == idx)?;
    let StepKind::Kernel { variants, .. } = &plan.program.steps[idx].kind else { return None };
    let chosen = &variants.first()?.tactic;
    let timing = evidence.timings.iter().find(|timing| timing.tactic == *chosen)?;
    Some(timing.ns as f64 / 1e3)
}

/// What a step computes in, or where it computes nothing stores its result in.
fn precision(plan: &Plan, step: &Step) -> &'static str {
    let has_product = step.region.nodes.iter().any(|node| is_product(&node.op));
    if has_product || step.numeric.element != Arithmetic::F32 {
        return step.numeric.element.name();
    }
    let first = step.outputs.iter().flatten().next();
    let value = first.and_then(|value| plan.program.values.get(*value as usize));
    value.and_then(|value| value.ty.as_tensor()).map_or("f32", |ty| ty.dtype.name())
}

/// The work of an engine's steps at the sizes of its symbols, and its device's roof on so many threads.
pub(crate) fn counted(engine: &Engine, sizes: &[(String, i64)], threads: usize) -> Measured {
    let device = &engine.record().runs_on().device;
    let roof = planish::machine::Peaks::kept().and_then(|peaks| Roof::new(&peaks, device, threads));
    Measured { work: engine.work_at(sizes), roof, ..Measured::default() }
}
