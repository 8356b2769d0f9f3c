//! The side of a backend that the compiler asks: which regions it takes, by which tactics, at what price, and how
//! weights are packed for them. Needs no device but where a library must be asked.

use std::fmt;

use planish_tensor::{DType, Tensor};

use crate::{
    Arithmetic, Budget, Candidate, Code, KernelError, PackedForm, PackedWeight, Problem, Proposal, Tactic,
    WeightUse, Whole,
};

/// The source of a backend's own kernels.
pub const OWN_SOURCE: &str = "own";
/// The source of the slow reference, which computes what nothing else does.
pub const REFERENCE_SOURCE: &str = "reference";

/// Which sources of tactics are taken.
pub type TakenSources<'a> = &'a dyn Fn(&str) -> bool;

/// What a step costs beside its kernel, in nanoseconds: by this the compiler weighs alternatives that have more
/// or fewer steps, and copies that were not measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// One more step in a run: launching it and fetching its operands' descriptions.
    pub step_ns: f64,
    /// Bringing a value from one layout to another in this memory, as a step of its own.
    pub reorder_ns: f64,
    /// The part of it that grows with the value, read and written once each.
    pub reorder_ns_per_byte: f64,
    /// Bringing a value into this memory or out of it; not used for host memory.
    pub transfer_ns_per_byte: f64,
    /// The fixed part of such a transfer.
    pub transfer_ns: f64,
}

impl Prices {
    /// Bringing `bytes` from one layout to another.
    pub fn reorder(&self, bytes: usize) -> f64 {
        self.reorder_ns + bytes as f64 * self.reorder_ns_per_byte
    }

    /// Bringing `bytes` into this memory or out of it.
    pub fn transfer(&self, bytes: usize) -> f64 {
        self.transfer_ns + bytes as f64 * self.transfer_ns_per_byte
    }
}

/// How far a kernel's own form of a function may be off it.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Approximation {
    /// Whatever the function is taken of.
    pub absolute: f64,
    /// Of the magnitude of what the function is taken of.
    pub of_argument: f64,
}

impl Approximation {
    /// How far the function of `argument` may be off.
    pub fn at(&self, argument: f64) -> f64 {
        self.absolute + self.of_argument * argument.abs()
    }
}

/// What a backend knows when a plan is built.
pub trait Compiler: Send + Sync + fmt::Debug {
    /// Regions of several nodes that this backend may compute at once, best first where they overlap.
    fn regions(&self, whole: &Whole) -> Vec<Proposal>;

    /// Ways to compute the problem, the likely fastest first. Operands have dense strides of any layout here:
    /// the candidates say which layouts they want. Empty when the backend cannot. No family offers more than `budget`.
    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// As [`Compiler::candidates`], but of the sources that `takes` names alone. A library that is left out is not
    /// asked, so that it need not be there, nor is loaded if it is.
    fn candidates_from(&self, problem: &Problem, budget: &Budget, takes: TakenSources<'_>) -> Vec<Candidate> {
        let mut candidates = self.candidates(problem, budget);
        candidates.retain(|candidate| takes(self.source(&candidate.tactic)));
        candidates
    }

    /// Where its tactics may come from, as users name it: [`OWN_SOURCE`], libraries, [`REFERENCE_SOURCE`].
    fn sources(&self) -> &'static [&'static str];

    /// Which of its [`Compiler::sources`] a tactic comes from.
    fn source(&self, tactic: &Tactic) -> &'static str;

    /// What steps and copies cost here.
    fn prices(&self) -> Prices;

    /// What products can be taken in.
    fn arithmetics(&self) -> &[Arithmetic];

    /// What the factors of products may be rounded to by tactics for values of f32, sums and values staying in f32: offered
    /// where a problem's [`Numeric`](crate::Numeric) allows it.
    fn rounded_arithmetics(&self) -> &[Arithmetic] {
        &[]
    }

    /// The type that a tactic rounds factors of f32 to before it multiplies them.
    fn rounds_factors_to(&self, tactic: &Tactic) -> Option<DType> {
        let _ = tactic;
        None
    }

    /// Whether a tactic counts on a weight being 2:4 sparse ([`Operand::two_of_four`](crate::Operand::two_of_four)).
    fn counts_on_sparsity(&self, tactic: &Tactic) -> bool {
        let _ = tactic;
        false
    }

    /// By how much rounding errors of a tactic's sums exceed those of plain sums of products, at least 1: transforms
    /// such as Winograd's compute with values that are larger than their results. The self-check allows as much, and
    /// `--no-winograd` leaves out what is above 1.
    fn error_growth(&self, tactic: &Tactic) -> f64 {
        let _ = tactic;
        1.0
    }

    /// How far a tactic's own form of GELU may be off the function on this problem: kernels whose results are rounded to a
    /// few bits need not compute it to the last one. The self-check allows as much in front of that rounding.
    fn approximation(&self, problem: &Problem, tactic: &Tactic) -> Approximation {
        let _ = (problem, tactic);
        Approximation::default()
    }

    /// Brings a weight into the form in which it is read there.
    fn pack(&self, used: WeightUse<'_>, weight: &Tensor) -> Result<PackedWeight, KernelError>;

    /// Bytes of a weight in a format that `pack` names; `None` for a format that this backend does not have or that
    /// such a weight cannot have: then plans do not hold it. Needs no device: what a plan holds is compared with it
    /// before a kernel reads it.
    fn packed_bytes(&self, form: PackedForm<'_>) -> Option<usize> {
        let _ = form;
        None
    }

    /// The weight behind its packed bytes: what `pack` was given. The name of a format says how, so that a
    /// weight comes back where the tactic that it was packed for cannot run. A packing without a way back (one
    /// that transforms) is not stored in plans but made when they are opened.
    fn unpack(&self, form: PackedForm<'_>, bytes: &[u8]) -> Result<Tensor, KernelError> {
        let _ = bytes;
        Err(KernelError::unsupported(format!("there is no way back from {form}")))
    }

    /// Which outputs may lie upon which inputs, as `(output, input)`: at the same place, of the same type and strides,
    /// since the tactic reads each element before it writes there. What a candidate offers as
    /// [`Candidate::in_place`] is among these; a plan in which anything else overlaps is refused.
    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        let _ = (problem, tactic);
        Vec::new()
    }

    /// Compiled code that `prepare` needs for this problem and tactic, to be kept in the plan. Empty where
    /// kernels are part of the program or of a library.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Code>, KernelError> {
        let _ = (problem, tactic);
        Ok(Vec::new())
    }

    /// The versions of what decides which tactics there are and what they do beside the target's own words: a compiler,
    /// and libraries of the sources that `takes` names. Cached plans are found by it too. A library that is left out is
    /// not asked, one that is taken may be loaded.
    fn versions(&self, takes: TakenSources<'_>) -> Vec<String> {
        let _ = takes;
        Vec::new()
    }

    /// What a tactic needs beyond the target's own needs, as in `cudnn9`: written into plans that use it.
    fn tactic_needs(&self, tactic: &Tactic) -> Vec<String> {
        let _ = tactic;
        Vec::new()
    }
}
