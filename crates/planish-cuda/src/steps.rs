//! Plans of launches as plain data: what most families make of a problem, without a GPU.
//!
//! A [`Plan`] names the sources and, launch by launch, grid, block and arguments. Families implement [`Planner`]
//! and are [`Family`]s by it; tests run plans without a device.

use std::sync::Arc;

use planish_kernel::{Budget, Candidate, KernelError, PackedWeight, Problem, Tactic};
use planish_tensor::Tensor;

use crate::backend::Cuda;
use crate::driver::Module;
use crate::family::{Family, Work};
use crate::gpu::Gpu;
pub(crate) use crate::launch::Slot;
use crate::launch::{Launch, Launches, Params};
use crate::source::Source;

/// One argument of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arg {
    /// The address of an operand or of the workspace, so many bytes on.
    Address(Slot, usize),
    /// Null, for an operand that is left out.
    Nothing,
    /// Sizes, strides and whatever else is a number: the `Ints` of a kernel, filled up to [`ints_len`].
    Ints(Vec<i32>),
}

/// One launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Which of the plan's sources; its first entry is launched.
    pub(crate) source: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    /// Dynamic shared memory.
    pub(crate) shared: usize,
    /// Blocks along the grid's first axis that see each other's shared memory (sm_90 on).
    pub(crate) cluster: u32,
    pub(crate) args: Vec<Arg>,
}

/// What a problem becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) sources: Vec<Source>,
    pub(crate) steps: Vec<Step>,
    pub(crate) workspace: usize,
}

/// How many integers a kernel declares that is given `n`: few sizes, so that most kernels of a kind share code.
pub(crate) fn ints_len(n: usize) -> usize {
    n.next_power_of_two().max(16)
}

/// The most integers that a kernel takes: half of what the driver allows.
pub(crate) const MAX_INTS: usize = 512;

impl Plan {
    /// A plan of one launch.
    pub(crate) fn one(source: Source, grid: [u32; 3], threads: u32, args: Vec<Arg>) -> Plan {
        let step = Step { source: 0, grid, threads, shared: 0, cluster: 1, args };
        Plan { sources: vec![source], steps: vec![step], workspace: 0 }
    }

    /// Another plan after this one. Sources that are the same are kept once; workspaces are shared, since
    /// neither outlives its plan.
    pub(crate) fn then(mut self, next: Plan) -> Plan {
        for mut step in next.steps {
            let source = &next.sources[step.source];
            step.source = self.sources.iter().position(|known| known == source).unwrap_or_else(|| {
                self.sources.push(source.clone());
                self.sources.len() - 1
            });
            self.steps.push(step);
        }
        self.workspace = self.workspace.max(next.workspace);
        self
    }
}

/// The text of a kernel after the helpers that kernels here share.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    file: &'static str,
    defines: String,
    before: String,
    text: String,
    entry: &'static str,
    n_ints: usize,
}

impl Code {
    pub(crate) fn new(file: &'static str, text: &str, entry: &'static str, n_ints: usize) -> Code {
        Code { file, defines: String::new(), before: String::new(), text: text.to_string(), entry, n_ints }
    }

    /// With a macro. It stands after the helpers, whose own names may be the same.
    pub(crate) fn define(mut self, name: &str, value: impl std::fmt::Display) -> Code {
        use std::fmt::Write;
        let _ = writeln!(self.defines, "#define {name} {value}");
        self
    }

    /// With further text before the kernel's own, in front of the macros.
    pub(crate) fn before(mut self, text: &str) -> Code {
        self.before.push_str(text);
        self
    }

    pub(crate) fn source(self) -> Source {
        let helpers = include_str!("../kernels/ops.cuh");
        let Code { file, defines, before, text, entry, n_ints } = self;
        let text = format!("{helpers}\n{before}{defines}#line 1 \"{file}\"\n{text}");
        Source::new(file, text, entry).define("N_INTS", ints_len(n_ints))
    }
}

/// A family whose work is a plan.
pub(crate) trait Planner: Sync {
    fn name(&self) -> &'static str;

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// The tactic for exactly these operands, strides included.
    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError>;

    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        let _ = (problem, input, weight);
        Err(KernelError::unsupported(format!("{tactic} packs no weights")))
    }

    /// As [`Family::packs`].
    fn packs(&self) -> bool {
        false
    }

    /// As [`Family::in_place`].
    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        let _ = (problem, tactic);
        Vec::new()
    }

    /// Problems that between them ask for each of the family's kernels.
    fn samples(&self) -> Vec<Problem>;
}

impl<T: Planner> Family for T {
    fn name(&self) -> &'static str {
        Planner::name(self)
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        Planner::candidates(self, gpu, problem, budget)
    }

    fn pack(
        &self,
        _gpu: &Gpu,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        Planner::pack(self, problem, tactic, input, weight)
    }

    fn packs(&self) -> bool {
        Planner::packs(self)
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        Planner::in_place(self, problem, tactic)
    }

    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        Ok(self.plan(gpu, problem, tactic)?.sources)
    }

    fn prepare(
        &self,
        cuda: &Cuda,
        problem: &Problem,
        tactic: &Tactic,
        code: &[Arc<Module>],
    ) -> Result<Box<dyn Work>, KernelError> {
        let plan = self.plan(cuda.gpu(), problem, tactic)?;
        let mut launches = Vec::with_capacity(plan.steps.len());
        for step in &plan.steps {
            let module = code.get(step.source).ok_or_else(|| {
                KernelError::unsupported(format!("{tactic}: code for {} is missing", step.source))
            })?;
            let function = module.function(&plan.sources[step.source].entries[0])?;
            let mut params = Params::new();
            for arg in &step.args {
                params = match arg {
                    Arg::Address(slot, offset) => params.address(*slot, *offset),
                    Arg::Nothing => params.value(0u64),
                    Arg::Ints(ints) => with_ints(params, ints)?,
                };
            }
            let launch = Launch::new(function, step.grid, [step.threads, 1, 1], params);
            let launch = launch.with_shared(step.shared)?.with_cluster([step.cluster, 1, 1]);
            // Every kernel of a plan waits for its inputs before anything else.
            launches.push(launch.programmatic());
        }
        Ok(Box::new(Launches { launches, workspace: plan.workspace }))
    }

    fn samples(&self) -> Vec<Problem> {
        Planner::samples(self)
    }
}

fn with_ints(params: Params, ints: &[i32]) -> Result<Params, KernelError> {
    fn array<const N: usize>(ints: &[i32]) -> [i32; N] {
        std::array::from_fn(|idx| ints.get(idx).copied().unwrap_or(0))
    }
    Ok(match ints_len(ints.len()) {
        16 => params.value(array::<16>(ints)),
        32 => params.value(array::<32>(ints)),
        64 => params.value(array::<64>(ints)),
        128 => params.value(array::<128>(ints)),
        256 => params.value(array::<256>(ints)),
        MAX_INTS => params.value(array::<MAX_INTS>(ints)),
        n => return Err(KernelError::unsupported(format!("a kernel with {n} integers"))),
    })
}
