//! The model as it was given, by kernels: what large models are compared with as a whole.
//!
//! The reference would take minutes over them. So the model that no pass has touched is made a plan of its own,
//! without Winograd, and run. It shares kernels with the plan that is checked, which are compared with the
//! reference step by step; it shares no fusion, folding, recognition or layout that a pass decided.

use std::sync::Arc;

use planish_ir::Graph;
use planish_kernel::Backend;
use planish_op::Value;
use planish_plan::StepKind;
use planish_runtime::Engine;

use crate::backends::Backends;
use crate::budget;
use crate::build::assemble;
use crate::options::BuildOptions;
use crate::price::cache::TimingCache;
use crate::stages::Stages;

/// A run of this much takes a fraction of a second.
pub(super) const MAX_FLOPS: u64 = 40_000_000_000;
/// Weights beyond this many bytes take longer to pack than the check may.
const MAX_WEIGHT_BYTES: usize = 256 << 20;
/// Elements that steps by the slow reference may make, all together.
const MAX_SLOW_ELEMENTS: u64 = 32 << 20;

/// The outputs of the model at these sizes; an error says why it was not run.
pub(super) fn run(
    graph: &Graph,
    sizes: &[(String, i64)],
    backends: &[Arc<dyn Backend>],
    options: &BuildOptions,
    inputs: &[Value],
) -> Result<Vec<Value>, String> {
    let bytes = graph.values().filter_map(|(_, value)| value.constant()).map(|tensor| tensor.bytes().len());
    let bytes: usize = bytes.sum();
    if bytes > MAX_WEIGHT_BYTES {
        return Err(format!("{} MB of weights are too many to pack twice", bytes >> 20));
    }
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let fixed = graph.specialize(&lookup).map_err(|error| error.to_string())?;
    let options = BuildOptions {
        threads: options.threads,
        banned_tactics: options.banned_tactics.clone(),
        tune_level: 0,
        winograd: false,
        cancel: options.cancel.clone(),
        ..BuildOptions::default()
    };
    // The host computes everything; devices are what may be wrong.
    let host = &backends[..1];
    let list = Backends::new(host).map_err(|error| error.to_string())?;
    let made = assemble(&fixed, true, list, &options, &mut TimingCache::default(), &mut Stages::start());
    let plan = made.map_err(|error| error.to_string())?.plan;
    let is_slow = |kind: &StepKind| !matches!(kind, StepKind::Kernel { slow: false, .. });
    let slow = plan.program.steps.iter().filter(|step| is_slow(&step.kind)).flat_map(|step| &step.outputs);
    let elements = |value: &u32| {
        let ty = plan.program.values[*value as usize].ty.as_tensor()?;
        ty.shape.as_ref()?.element_count().as_const().and_then(|n| u64::try_from(n).ok())
    };
    let n_slow: u64 = slow.flatten().filter_map(elements).sum();
    if n_slow > MAX_SLOW_ELEMENTS {
        return Err(format!("{n_slow} elements would be made by the reference"));
    }
    let engine = Engine::new(plan, host.to_vec()).map_err(|error| error.to_string())?;
    let limits = budget::of_plan(&engine, graph, &[sizes.to_vec()], &options);
    let engine = engine.limited(limits);
    let outputs = engine.context().and_then(|mut context| context.run_values(inputs));
    outputs.map_err(|error| error.to_string())
}
