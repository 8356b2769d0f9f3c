//! Families of kernels as the backend sees them: what each offers for a problem, the code that it needs, and how
//! it is prepared.

use std::sync::Arc;

use planish_gpu::plan::Plan;
use planish_kernel::{
    Budget, Call, Candidate, KernelError, KernelErrorKind, OWN_SOURCE, PackedWeight, Problem, Tactic,
    WeightUse,
};
use planish_tensor::Tensor;

use crate::backend::Cuda;
use crate::driver::{Module, Stream};
use crate::find::Which;
use crate::formats::Packing;
use crate::gpu::Gpu;
use crate::planned;
use crate::source::Source;

/// A family of tactics. The names of its tactics begin with the family's name and `_`.
pub(crate) trait Family: Sync {
    fn name(&self) -> &'static str;

    /// Which of [`crate::SOURCES`] its tactics come from.
    fn source(&self) -> &'static str {
        OWN_SOURCE
    }

    /// Ways to compute the problem on this GPU, the likely fastest first. Operands come with dense strides;
    /// each candidate says which layouts it wants. Pure.
    fn candidates(&self, gpu: &Gpu, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// The same where the device is at hand; for library families, whose libraries know their algorithms.
    fn candidates_on(&self, cuda: &Cuda, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        self.candidates(cuda.gpu(), problem, budget)
    }

    /// The library that its tactics call.
    fn needs(&self) -> Option<Which> {
        None
    }

    /// The input that the tactic reads packed, if any.
    fn packing(&self, problem: &Problem, tactic: &Tactic) -> Result<Option<Packing>, KernelError> {
        let _ = (problem, tactic);
        Ok(None)
    }

    /// All inputs that the tactic reads packed, where they may be several.
    fn packings(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Packing>, KernelError> {
        Ok(self.packing(problem, tactic)?.into_iter().collect())
    }

    /// Which outputs may lie upon which inputs, as `(output, input)`.
    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        let _ = (problem, tactic);
        Vec::new()
    }

    /// The launches of the tactic for exactly these operands, strides included, where they are all of its work: then
    /// `sources` and `prepare` follow from them.
    fn plan(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        let _ = (gpu, problem);
        Err(KernelError::unsupported(format!("{tactic} is no plan of launches")))
    }

    /// The code that the tactic needs for the problem: pure, needs no GPU. Sizes are arguments of the kernels
    /// unless a specialisation is worth a compilation. Nothing for library families.
    fn sources(&self, gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Vec<Source>, KernelError> {
        Ok(planned::sources(&self.plan(gpu, problem, tactic)?))
    }

    /// The tactic for exactly these operands, strides included.
    fn prepare(&self, ready: &Ready<'_>) -> Result<Box<dyn Work>, KernelError> {
        planned::prepare(&self.plan(ready.cuda.gpu(), ready.problem, ready.tactic)?, ready)
    }
}

/// A tactic whose packed input is as it should be and whose code is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) cuda: &'a Cuda,
    pub(crate) problem: &'a Problem,
    pub(crate) tactic: &'a Tactic,
    /// A module for each source.
    pub(crate) code: &'a [Arc<Module>],
}

impl Ready<'_> {
    /// The module of a tactic that has one source.
    pub(crate) fn module(&self) -> Result<&Arc<Module>, KernelError> {
        match self.code {
            [module] => Ok(module),
            code => Err(KernelError::unsupported(format!("a kernel of one module was given {}", code.len()))),
        }
    }

    /// A reason not to run it.
    pub(crate) fn refuse<T>(&self, what: &str) -> Result<T, KernelError> {
        Err(KernelError::unsupported(format!("{}: {what}", self.tactic)))
    }
}

/// A weight in the form that the tactic reads.
pub(crate) fn pack(
    family: &dyn Family,
    used: WeightUse<'_>,
    weight: &Tensor,
) -> Result<PackedWeight, KernelError> {
    let WeightUse { problem, tactic, input } = used;
    match family.packings(problem, tactic)?.into_iter().find(|packing| packing.input == input) {
        Some(packing) => packing.pack(problem, tactic, weight),
        None => Err(KernelError::new(
            KernelErrorKind::NoSuchTactic,
            format!("{tactic} does not pack input {input}"),
        )),
    }
}

/// Work that is ready to be put on a stream.
pub(crate) trait Work: Send + Sync + std::fmt::Debug {
    /// Scratch bytes of one run.
    fn workspace_bytes(&self) -> usize;

    /// As [`planish_kernel::Kernel::may_fault`].
    fn may_fault(&self) -> bool {
        false
    }

    /// Has its first kernel begin when all kernels before it are done: what it takes for weights is written by one of them.
    fn waits_for_weights(&mut self) {}

    /// Puts one run on the stream; allocates nothing and waits for nothing, so that it can be captured.
    ///
    /// # Safety
    /// As [`planish_kernel::Kernel::launch`]; the stream's context must be current.
    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError>;
}
