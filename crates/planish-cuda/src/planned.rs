//! Families whose work is a launch plan: what such a family says, and how its plans are compiled and launched.

use planish_gpu::plan::{Arg, KernelCode, MAX_STRUCTURE, Plan};
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic};

use crate::family::{Family, Ready, Work};
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::launch::{Launch, Launches, Params};
use crate::source::Source;

/// A family whose work is a plan.
pub(crate) trait PlannedFamily: Sync {
    fn name(&self) -> &'static str;

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// The tactic for exactly these operands, strides included.
    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError>;

    /// As [`Family::packing`].
    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let _ = (problem, tactic);
        Ok(None)
    }

    /// As [`Family::in_place`].
    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        let _ = (problem, tactic);
        Vec::new()
    }
}

impl<T: PlannedFamily> Family for T {
    fn name(&self) -> &'static str {
        PlannedFamily::name(self)
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        PlannedFamily::candidates(self, gpu, problem, budget)
    }

    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        PlannedFamily::packing(self, problem, tactic)
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        PlannedFamily::in_place(self, problem, tactic)
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        Ok(self.plan(gpu, problem, tactic)?.sources.iter().map(source_of).collect())
    }

    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        let Ready { cuda, problem, tactic, code } = *ready;
        let plan = self.plan(cuda.gpu(), problem, tactic)?;
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
}

/// A kernel of a plan as NVRTC takes it, after the helpers that kernels here share.
pub(crate) fn source_of(code: &KernelCode) -> Source {
    let text = code.text("ops.cuh", include_str!("../kernels/ops.cuh"));
    Source::new(code.file, text, code.entry)
}
