//! `Planner`: the backend of a GPU that is not here. It proposes, prices and packs as the real one would, so that
//! plans can be looked at on any machine; it has no memory and runs nothing.

use planish_kernel::{
    Arithmetic, Backend, Budget, Candidate, Compiler, Device, Kernel, KernelError, Memory, MemoryKind,
    OWN_SOURCE, PackedWeight, Prices, Problem, Proposal, Queue, QueueOptions, Tactic, Target, Whole,
};
use planish_tensor::{DType, Tensor};

use crate::backend::{ARITHMETICS, FAMILIES, PRICES, SOURCES, family_of};
use crate::family;
use crate::formats;
use crate::gpu::Gpu;
use crate::regions;

/// A GPU by its data alone. Tactics of libraries are not among its candidates: only a device can list them.
#[derive(Clone, Debug)]
pub struct Planner {
    gpu: Gpu,
    /// The name under which times are kept.
    device: String,
}

impl Planner {
    pub fn new(gpu: Gpu) -> Planner {
        let device = format!("{}, planned", gpu.name);
        Planner { gpu, device }
    }

    /// The planner of a device that was measured elsewhere: times kept under its name hold here.
    pub fn measured_as(gpu: Gpu, device: &str) -> Planner {
        Planner { gpu, device: device.to_string() }
    }

    fn absent(&self) -> KernelError {
        KernelError::unsupported(format!("{} is not here: nothing runs on a planned GPU", self.gpu.name))
    }
}

impl Backend for Planner {
    fn name(&self) -> &str {
        "cuda"
    }

    fn target(&self) -> Target {
        Target {
            backend: "cuda".to_string(),
            needs: vec![format!("sm_{}", self.gpu.sm)],
            device: self.device.clone(),
        }
    }
}

impl Compiler for Planner {
    fn regions(&self, whole: &Whole) -> Vec<Proposal> {
        regions::propose(whole)
    }

    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate> {
        FAMILIES.iter().flat_map(|family| family.candidates(&self.gpu, problem, budget)).collect()
    }

    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError> {
        family::pack(family_of(tactic)?, problem, tactic, input, weight)
    }

    fn packed_bytes(&self, format: &str, dtype: DType, dims: &[usize]) -> Option<usize> {
        formats::packed_bytes(format, dtype, dims)
    }

    fn unpack(
        &self,
        format: &str,
        dtype: DType,
        dims: &[usize],
        bytes: &[u8],
    ) -> Result<Tensor, KernelError> {
        formats::unpack(format, dtype, dims, bytes)
    }

    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        family_of(tactic).map_or(Vec::new(), |family| family.in_place(problem, tactic))
    }

    fn sources(&self) -> &'static [&'static str] {
        SOURCES
    }

    fn source(&self, tactic: &Tactic) -> &'static str {
        family_of(tactic).map_or(OWN_SOURCE, |family| family.source())
    }

    fn prices(&self) -> Prices {
        PRICES
    }

    fn arithmetics(&self) -> &[Arithmetic] {
        ARITHMETICS
    }
}

impl Device for Planner {
    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device
    }

    fn prepare(&self, _problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError> {
        Err(self.absent())
    }

    fn allocate(&self, _bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        Err(self.absent())
    }

    fn queue(&self, _options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        Err(self.absent())
    }
}
