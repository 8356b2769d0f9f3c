//! A backend that is another one but for what a test changes.

use std::fmt::Debug;

use planish_kernel::{
    Approximation, Arithmetic, Backend, Budget, Candidate, Code, Compiler, Device, Event, Host, Kernel,
    KernelError, Memory, MemoryKind, PackedForm, PackedWeight, Prices, Problem, Proposal, Queue,
    QueueOptions, Tactic, Target, WeightUse, Whole,
};
use planish_tensor::{DType, Tensor};

/// What a test changes; everything that it says nothing of stays as it is.
pub trait Change: Send + Sync + Debug {
    /// What becomes of the candidates of a problem.
    fn candidates(&self, offered: Vec<Candidate>) -> Vec<Candidate> {
        offered
    }

    /// A weight to pack instead of this one.
    fn weight(&self, used: WeightUse<'_>, weight: &Tensor) -> Option<Tensor> {
        let _ = (used, weight);
        None
    }

    /// Told what the weight to pack instead of `weight` became.
    fn packed(&self, packed: &PackedWeight, weight: &Tensor) {
        let _ = (packed, weight);
    }

    /// The weight behind packed bytes, where the change knows better.
    fn unpacked(&self, bytes: &[u8]) -> Option<Tensor> {
        let _ = bytes;
        None
    }

    /// Which outputs may lie upon which inputs.
    fn in_place(&self, tactic: &Tactic, allowed: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        let _ = tactic;
        allowed
    }

    /// Code of its own for a step.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Option<Result<Vec<Code>, KernelError>> {
        let _ = (problem, tactic);
        None
    }

    /// What becomes of a kernel that was prepared.
    fn kernel(&self, problem: &Problem, tactic: &Tactic, kernel: Box<dyn Kernel>) -> Box<dyn Kernel> {
        let _ = (problem, tactic);
        kernel
    }

    /// A device of its own, instead of the backend's.
    fn device(&self) -> Option<&dyn Device> {
        None
    }
}

/// A backend with a change.
#[derive(Debug)]
pub struct Altered<B, C> {
    backend: B,
    pub change: C,
}

impl<B: Backend, C: Change> Altered<B, C> {
    pub fn new(backend: B, change: C) -> Altered<B, C> {
        Altered { backend, change }
    }

    fn device(&self) -> &dyn Device {
        self.change.device().unwrap_or(&self.backend)
    }
}

impl<B: Backend, C: Change> Backend for Altered<B, C> {
    fn name(&self) -> &str {
        self.backend.name()
    }

    fn target(&self) -> Target {
        self.backend.target()
    }

    fn host(&self) -> Option<&dyn Host> {
        self.backend.host()
    }
}

impl<B: Backend, C: Change> Compiler for Altered<B, C> {
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        self.backend.regions(whole)
    }

    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        self.change.candidates(self.backend.candidates(problem, budget))
    }

    fn sources(&self) -> &'static [&'static str] {
        self.backend.sources()
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        self.backend.source(tactic)
    }

    fn prices(&self) -> Prices {
        self.backend.prices()
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        self.backend.arithmetics()
    }

    fn rounded_arithmetics(&self) -> &[Arithmetic] {
        self.backend.rounded_arithmetics()
    }

    fn rounds_factors_to(&self, tactic: &Tactic) -> Option<DType> {
        self.backend.rounds_factors_to(tactic)
    }

    fn counts_on_sparsity(&self, tactic: &Tactic) -> bool {
        self.backend.counts_on_sparsity(tactic)
    }

    fn error_growth(&self, tactic: &Tactic) -> f64 {
        self.backend.error_growth(tactic)
    }

    fn approximation(&self, problem: &Problem, tactic: &Tactic) -> Approximation {
        self.backend.approximation(problem, tactic)
    }

    fn pack(&self, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let Some(instead) = self.change.weight(used, weight) else {
            return self.backend.pack(used, weight);
        };
        let packed = self.backend.pack(used, &instead)?;
        self.change.packed(&packed, weight);
        Ok(packed)
    }

    fn packed_bytes(&self, form: PackedForm<'_>) -> Option<usize> {
        self.backend.packed_bytes(form)
    }

    fn unpack(&self, form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
        match self.change.unpacked(bytes) {
            Some(weight) => Ok(weight),
            None => self.backend.unpack(form, bytes),
        }
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        self.change.in_place(tactic, self.backend.in_place(problem, tactic))
    }

    fn code(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Code>, KernelError> {
        self.change.code(problem, tactic).unwrap_or_else(|| self.backend.code(problem, tactic))
    }
}

impl<B: Backend, C: Change> Device for Altered<B, C> {
    fn memory_kind(&self) -> MemoryKind {
        self.device().memory_kind()
    }

    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(self.change.kernel(problem, tactic, self.device().prepare(problem, tactic)?))
    }

    fn checks_results(&self, tactic: &Tactic) -> bool {
        self.device().checks_results(tactic)
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        self.device().allocate(bytes)
    }

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        self.device().queue(options)
    }

    fn event(&self, timed: bool) -> Result<Box<dyn Event>, KernelError> {
        self.device().event(timed)
    }
}
