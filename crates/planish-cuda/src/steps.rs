//! Plans of launches as plain data: what most families make of a problem, without a GPU.
//!
//! A [`Plan`] names the sources and, launch by launch, grid, block and arguments. Families implement [`Planner`]
//! and are [`Family`]s by it; tests run plans without a device.

use std::sync::Arc;

use planish_kernel::{Budget, Candidate, KernelError, PackedWeight, Problem, Tactic};
use planish_tensor::Tensor;

use crate::args::{ArgBytes, Field, Structures};
use crate::backend::Cuda;
use crate::driver::Module;
use crate::family::{Family, Work};
use crate::gpu::Gpu;
pub(crate) use crate::launch::Slot;
use crate::launch::{Launch, Launches, Params};
use crate::source::Source;
use crate::space::Divisor;

/// One argument of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arg {
    /// The address of an operand or of the workspace, so many bytes on.
    Address(Slot, usize),
    /// Null, for an operand that is left out.
    Nothing,
    /// Sizes, strides and whatever else is a number: the kernel's structure.
    Structure(ArgBytes),
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

/// The most bytes of a kernel's structure: half of what the driver allows.
pub(crate) const MAX_STRUCTURE: usize = 2048;

impl Arg {
    /// The structure that a kernel is given.
    pub(crate) fn of(args: &impl Field) -> Arg {
        Arg::Structure(ArgBytes::of(args))
    }
}

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
    structures: Structures,
}

impl Code {
    /// A kernel that takes this structure.
    pub(crate) fn new(file: &'static str, text: &str, entry: &'static str, args: &impl Field) -> Code {
        // The helpers divide.
        let structures = Structures::default().with(&Divisor::default()).with(args);
        Code {
            file,
            defines: String::new(),
            before: String::new(),
            text: text.to_string(),
            entry,
            structures,
        }
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
        let Code { file, defines, before, text, entry, structures } = self;
        let structures = structures.text();
        let text = format!(
            "{structures}#line 1 \"ops.cuh\"\n{helpers}\n{before}{defines}#line 1 \"{file}\"\n{text}"
        );
        Source::new(file, text, entry)
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
