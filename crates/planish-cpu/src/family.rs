//! Families of kernels as the backend sees them: what each offers for a problem, and how it is prepared.
//!
//! A kernel itself is a pure function over pointers with a plan made before; a family turns a `Problem` into
//! candidates, packs weights for them, and wraps the plan as a [`Work`].

use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, PackedWeight, Problem, Tactic, WeightUse,
};
use planish_tensor::Tensor;

use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// A family of tactics. The names of its tactics begin with the family's name and `_`.
pub(crate) trait Family: Sync {
    fn name(&self) -> &'static str;

    /// Ways to compute the problem on this instruction set, the likely fastest first. Operands come with dense
    /// strides; each candidate says which layouts it wants.
    fn candidates(&self, isa: Isa, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// A weight in the form that the tactic reads; asked only for inputs whose candidate names a format.
    fn pack(&self, isa: Isa, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError> {
        let _ = (isa, weight);
        Err(KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("{} packs no weights ({})", self.name(), used.tactic),
        ))
    }

    /// The format in which the tactic reads an input packed, if it does; asked only where an input is packed.
    fn format(&self, isa: Isa, used: WeightUse<'_>) -> Result<Option<String>, KernelError> {
        let _ = (isa, used);
        Ok(None)
    }

    /// As [`planish_kernel::Compiler::error_growth`].
    fn error_growth(&self, isa: Isa, tactic: &Tactic) -> f64 {
        let _ = (isa, tactic);
        1.0
    }

    /// Which outputs may lie upon which inputs, as `(output, input)`; the same for all of a family's tactics.
    fn in_place(&self, isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        let _ = (isa, problem);
        Vec::new()
    }

    /// The tactic for exactly these operands, strides included.
    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError>;
}

/// Work that is ready to run: sizes, offsets and the kernel are settled.
pub(crate) trait Work: Send + Sync + std::fmt::Debug {
    /// Workspace bytes for a team of `n_slots`.
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        let _ = n_slots;
        0
    }

    /// Runs it.
    ///
    /// # Safety
    /// The pointers of `shared` must be valid for what the problem's operands span, its workspace for
    /// `workspace_bytes(team.n_slots())` and aligned to 64 bytes, and nobody else may write them meanwhile.
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError>;
}
