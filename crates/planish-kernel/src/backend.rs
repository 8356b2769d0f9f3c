//! The `Backend` trait: who proposes regions and tactics, packs weights, prepares kernels and owns memory.
//!
//! Built for host memory with a thread team as well as for device memory with streams: a kernel is prepared
//! once for a problem, then launched on a queue with addresses, and nothing here says when a launch is done
//! but [`Queue::synchronize`] and events.

#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use planish_op::Value;
use planish_tensor::{DType, Tensor};

use crate::{
    Arithmetic, Budget, Candidate, Code, Event, KernelError, PackedWeight, Problem, Proposal, Queue,
    QueueOptions, Region, Tactic, Whole,
};

/// An address in a backend's memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Address(pub u64);

impl Address {
    pub const NULL: Address = Address(0);

    pub fn offset(self, bytes: usize) -> Address {
        Address(self.0 + bytes as u64)
    }
}

/// Where a backend's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// The process's own memory: addresses are pointers, nothing needs to be copied.
    Host,
    /// Apart from the process's memory: what comes in and goes out is copied.
    Device,
}

/// What a plan's kernels were chosen for; a plan whose target differs is rebuilt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The backend, as in `cpu`.
    pub backend: String,
    /// What must be there, as in `avx512`, or a compute capability: a plan runs where all of it is.
    pub needs: Vec<String>,
    /// What timings depend on besides: the CPU's or GPU's model, library versions.
    pub device: String,
}

/// Memory that a backend allocated; freed when dropped.
pub trait Memory: Send + Sync + fmt::Debug {
    fn address(&self) -> Address;
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How much memory a device has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    pub free: usize,
    pub total: usize,
    /// What the backend has taken for memory of [`Backend::allocate`], in use or kept for the next to ask.
    pub pooled: usize,
}

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
    /// A host: a step costs what cold descriptions and a fork and join cost, a reorder reads and writes at some
    /// 8 bytes a nanosecond, and nothing is transferred.
    pub const HOST: Prices = Prices {
        step_ns: 1_500.0,
        reorder_ns: 1_500.0,
        reorder_ns_per_byte: 0.25,
        transfer_ns_per_byte: 0.0,
        transfer_ns: 0.0,
    };

    /// A device whose launches are replayed: what lies between two of them is part of their measured times, so a
    /// step costs little besides. Memory moves some 2,000 bytes a nanosecond, read and written; a bus 25 bytes a
    /// nanosecond, after some microseconds.
    pub const DEVICE: Prices = Prices {
        step_ns: 300.0,
        reorder_ns: 2_500.0,
        reorder_ns_per_byte: 0.001,
        transfer_ns_per_byte: 0.04,
        transfer_ns: 8_000.0,
    };

    /// Bringing `bytes` from one layout to another.
    pub fn reorder(&self, bytes: usize) -> f64 {
        self.reorder_ns + bytes as f64 * self.reorder_ns_per_byte
    }

    /// Bringing `bytes` into this memory or out of it.
    pub fn transfer(&self, bytes: usize) -> f64 {
        self.transfer_ns + bytes as f64 * self.transfer_ns_per_byte
    }
}

/// The arguments of one launch.
#[derive(Debug)]
pub struct Call<'a> {
    pub inputs: &'a [Address],
    pub outputs: &'a [Address],
    /// At least [`Kernel::workspace_bytes`], aligned to 64 bytes; its contents are anything.
    pub workspace: Address,
    /// The word of a [`crate::Fault`], where a kernel that [`Kernel::may_fault`] writes what it found wrong; null where
    /// nobody looks. A kernel never clears it.
    pub fault: Address,
}

/// A tactic prepared for one problem. Preparing may take time, launching must not allocate.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Workspace that a launch needs, for the problem's number of threads.
    fn workspace_bytes(&self) -> usize;

    /// Whether it looks at values that may be out of range and tells of them by [`Call::fault`] instead of failing:
    /// what a kernel on a device has to do, since nobody waits for it.
    fn may_fault(&self) -> bool {
        false
    }

    /// Queues one run.
    ///
    /// # Safety
    /// The addresses must be memory of the backend that made the kernel: inputs readable and outputs writable
    /// for what the problem's operands span, the workspace and the fault's word writable, none of them written by
    /// anyone else until the launch is done, and outputs apart from each other, and from inputs except as
    /// [`Backend::in_place`] allows.
    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError>;
}

/// Which of [`crate::TACTIC_SOURCES`] a family of tactics comes from, by its name.
pub fn source_of_family(name: &str) -> &'static str {
    crate::TACTIC_SOURCES.into_iter().find(|source| *source == name).unwrap_or("own")
}

/// A device that can compute: a CPU, a GPU.
pub trait Backend: Send + Sync + fmt::Debug {
    /// As users name it: `cpu`, `cuda`.
    fn name(&self) -> &str;

    fn target(&self) -> Target;

    fn memory_kind(&self) -> MemoryKind;

    /// Which memory its addresses are in: two backends of one name that say the same can use each other's memory. By
    /// default each has its own.
    fn memory_space(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Regions of several nodes that this backend may compute at once, best first where they overlap.
    fn regions(&self, whole: &Whole) -> Vec<Proposal>;

    /// Ways to compute the problem, the likely fastest first. Operands have dense strides of any layout here:
    /// the candidates say which layouts they want. Empty when the backend cannot. No family offers more than `budget`.
    fn candidates(&self, problem: &Problem, budget: &Budget) -> Vec<Candidate>;

    /// As [`Backend::candidates`], but of the sources that `takes` names alone. A library that is left out is not
    /// asked, so that it need not be there, nor is loaded if it is.
    fn candidates_from(
        &self,
        problem: &Problem,
        budget: &Budget,
        takes: &dyn Fn(&str) -> bool,
    ) -> Vec<Candidate> {
        let mut candidates = self.candidates(problem, budget);
        candidates.retain(|candidate| takes(self.source(&candidate.tactic)));
        candidates
    }

    /// Brings the weight that is input `input` of the problem into the form that the tactic reads.
    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError>;

    /// Bytes of a weight of this type and sizes in a format that `pack` names; `None` for a format that this
    /// backend does not have or that such a weight cannot have: then plans do not hold it. Needs no device: what
    /// a plan holds is compared with it before a kernel reads it.
    fn packed_bytes(&self, format: &str, dtype: DType, dims: &[usize]) -> Option<usize> {
        let _ = (format, dtype, dims);
        None
    }

    /// The weight behind its packed bytes: what `pack` was given. The name of a format says how, so that a
    /// weight comes back where the tactic that it was packed for cannot run. A packing without a way back (one
    /// that transforms) is not stored in plans but made when they are opened.
    fn unpack(
        &self,
        format: &str,
        dtype: DType,
        dims: &[usize],
        bytes: &[u8],
    ) -> Result<Tensor, KernelError> {
        let _ = bytes;
        Err(KernelError::unsupported(format!(
            "there is no way back from {dtype}{dims:?} packed as `{format}`"
        )))
    }

    /// Which outputs may lie upon which inputs, as `(output, input)`: at the same place, of the same type and strides,
    /// since the tactic reads each element before it writes there. What a candidate offers as
    /// [`Candidate::in_place`] is among these; a plan in which anything else overlaps is refused.
    fn in_place(&self, problem: &Problem, tactic: &Tactic) -> Vec<(usize, usize)> {
        let _ = (problem, tactic);
        Vec::new()
    }

    /// Makes a kernel for exactly these operands, strides included. Refuses operands that are packed where the
    /// tactic does not pack them ([`Problem::check_packed`]).
    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError>;

    /// Compiled code that `prepare` needs for this problem and tactic, to be kept in the plan. Empty where
    /// kernels are part of the program or of a library.
    fn code(&self, problem: &Problem, tactic: &Tactic) -> Result<Vec<Code>, KernelError> {
        let _ = (problem, tactic);
        Ok(Vec::new())
    }

    /// This device with code of its own, for one engine or one build: kernels that are prepared by what this gives
    /// are made from `code` where it has what they need, and compiled here where not. Nobody else gets any of it,
    /// and all of it is given back with the last kernel. `None` where kernels are part of the program.
    fn with_code(&self, code: &[Code]) -> Result<Option<Arc<dyn Backend>>, KernelError> {
        let _ = code;
        Ok(None)
    }

    /// The versions of what decides which tactics there are and what they do beside the target's own words: a compiler,
    /// and libraries of the sources that `takes` names. Cached plans are found by it too. A library that is left out is
    /// not asked, one that is taken may be loaded.
    fn versions(&self, takes: &dyn Fn(&str) -> bool) -> Vec<String> {
        let _ = takes;
        Vec::new()
    }

    /// What a tactic needs beyond the target's own needs, as in `cudnn9`: written into plans that use it.
    fn tactic_needs(&self, tactic: &Tactic) -> Vec<String> {
        let _ = tactic;
        Vec::new()
    }

    /// Whether something that a plan needs is here.
    fn provides(&self, need: &str) -> bool {
        self.target().needs.iter().any(|own| own == need)
    }

    /// Which of [`crate::TACTIC_SOURCES`] a tactic comes from.
    fn source(&self, tactic: &Tactic) -> &'static str {
        source_of_family(tactic.name.split('_').next().unwrap_or_default())
    }

    /// What steps and copies cost here.
    fn prices(&self) -> Prices {
        match self.memory_kind() {
            MemoryKind::Host => Prices::HOST,
            MemoryKind::Device => Prices::DEVICE,
        }
    }

    /// What products can be taken in.
    fn arithmetics(&self) -> &[Arithmetic] {
        match self.memory_kind() {
            MemoryKind::Host => &[Arithmetic::F32],
            MemoryKind::Device => &[Arithmetic::F32, Arithmetic::Tf32, Arithmetic::F16, Arithmetic::Bf16],
        }
    }

    /// Computes a region on values in host memory by the reference: for operators whose output sizes only a
    /// run can tell, for sequences and optionals, and where no kernel exists. A value of more than `max_bytes` is
    /// refused before it is made.
    fn evaluate(
        &self,
        region: &Region,
        inputs: &[Option<Value>],
        max_bytes: usize,
    ) -> Result<Vec<Value>, KernelError>;

    /// The same machine by other kernels, where it has them: those of a narrower instruction set. The self-check of a
    /// build compares steps element by element with what they make of them. Only a host's are asked for.
    fn other_kernels(&self) -> Option<Box<dyn Backend>> {
        None
    }

    /// Memory aligned to at least 64 bytes, contents undefined.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError>;

    /// As `allocate`, in managed memory: on the device from the start, and the driver's to move to the host and back
    /// where the device runs short of memory. Never more than what is free there.
    fn allocate_managed(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        let _ = bytes;
        Err(KernelError::unsupported(format!("{} has no managed memory", self.name())))
    }

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError>;

    /// Host memory, aligned to at least 64 bytes, that this backend's queues copy from and to without a copy in
    /// between, and its kernels can write ([`Call::fault`]): pinned for a device. Zeroed. `None` where ordinary memory
    /// is as good.
    fn allocate_pinned(&self, bytes: usize) -> Result<Option<Box<dyn Memory>>, KernelError> {
        let _ = bytes;
        Ok(None)
    }

    /// Memory of the device; `None` for the host's.
    fn memory_info(&self) -> Option<MemoryInfo> {
        None
    }

    /// An event to be captured again and again by [`Queue::record_at`]; `timed` if times between are asked for.
    fn event(&self, timed: bool) -> Result<Box<dyn Event>, KernelError> {
        let _ = timed;
        Err(KernelError::unsupported(format!("{} makes no events ahead", self.name())))
    }

    /// A queue over a stream of the caller, as the backend's own interface names it (a `CUstream` for CUDA).
    ///
    /// # Safety
    /// The handle must be a stream of this device and outlive the queue.
    unsafe fn queue_over(&self, stream: u64, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        let _ = (stream, options);
        Err(KernelError::unsupported(format!("{} takes no streams of the caller", self.name())))
    }
}
