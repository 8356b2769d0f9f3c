//! Launch plans: how a family's plan is compiled and launched.

use planish_gpu::plan::{Arg, KernelCode, MAX_STRUCTURE, Plan};
use planish_kernel::KernelError;

use crate::family::{Ready, Work};
use crate::launch::{Launch, Launches, Params};
use crate::source::Source;

/// The code of a plan's kernels.
pub(crate) fn sources(plan: &Plan) -> Vec<Source> {
    plan.sources.iter().map(source_of).collect()
}

/// The launches of a plan, one for each step.
pub(crate) fn prepare(plan: &Plan, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
    let Ready { tactic, code, .. } = *ready;
    let mut launches = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let module = code.get(step.source).ok_or_else(|| {
            KernelError::unsupported(format!("{tactic}: code for {} is missing", step.source))
        })?;
        let function = module.function(plan.sources[step.source].entry)?;
        let mut params = Params::new();
        for arg in &step.args {
            params = match arg {
                Arg::Address(slot, offset) => params.address(*slot, *offset),
                Arg::Nothing => params.value(0u64),
                Arg::Structure(args) if args.bytes.len() > MAX_STRUCTURE => {
                    let message = format!("a kernel with {} bytes of numbers", args.bytes.len());
                    return Err(KernelError::unsupported(message));
                }
                Arg::Structure(args) => params.structure(args),
            };
        }
        let launch = Launch::new(function, step.grid, [step.threads, 1, 1], params);
        let launch = launch.with_shared(step.shared)?.with_cluster([step.cluster, 1, 1]);
        // Every kernel of a plan waits for its inputs before anything else.
        launches.push(launch.programmatic());
    }
    Ok(Box::new(Launches { launches, workspace: plan.workspace }))
}

/// A kernel of a plan as NVRTC takes it, after the helpers that kernels here share.
pub(crate) fn source_of(code: &KernelCode) -> Source {
    let text = code.text("ops.cuh", include_str!("../kernels/ops.cuh"));
    Source::new(code.file, text, code.entry)
}
