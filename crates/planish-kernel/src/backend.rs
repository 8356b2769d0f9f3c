//! The `Backend` trait: who proposes regions and tactics, packs weights, prepares kernels and owns memory.
//!
//! Built for host memory with a thread team as well as for device memory with streams: a kernel is prepared
//! once for a problem, then launched on a queue with addresses, and nothing here says when a launch is done
//! but [`Queue::synchronize`] and events.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;

use planish_op::Value;
use planish_tensor::Tensor;

use crate::{Candidate, KernelError, PackedWeight, Problem, Proposal, Region, Tactic, Whole};

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

/// How a queue is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// CPU threads that a launch may use, the caller included.
    pub threads: usize,
}

/// A point in a queue that other queues can wait for.
pub trait Event: Send + Sync + fmt::Debug {
    fn as_any(&self) -> &dyn Any;
}

/// Where launches are put, one after the other: a thread team that runs them at once, or a stream.
pub trait Queue: Send + fmt::Debug {
    /// Copies from host memory; done when the queue gets there. The source is read before this returns.
    ///
    /// # Safety
    /// `to` must be the backend's memory, writable for the bytes of `from`.
    unsafe fn upload(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError>;

    /// Waits for what is queued, then copies to host memory.
    ///
    /// # Safety
    /// `from` must be the backend's memory, readable for the bytes of `to`.
    unsafe fn download(&mut self, to: &mut [u8], from: Address) -> Result<(), KernelError>;

    /// Waits until everything queued is done; errors of launches surface here at the latest.
    fn synchronize(&mut self) -> Result<(), KernelError>;

    /// Marks the current end of the queue.
    fn record(&mut self) -> Result<Box<dyn Event>, KernelError>;

    /// Holds what is queued from here on back until `event` is reached.
    fn wait_for(&mut self, event: &dyn Event) -> Result<(), KernelError>;

    /// The backend's own view of it.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// The arguments of one launch.
#[derive(Debug)]
pub struct Call<'a> {
    pub inputs: &'a [Address],
    pub outputs: &'a [Address],
    /// At least [`Kernel::workspace_bytes`], aligned to 64 bytes; its contents are anything.
    pub workspace: Address,
}

/// A tactic prepared for one problem. Preparing may take time, launching must not allocate.
pub trait Kernel: Send + Sync + fmt::Debug {
    /// Scratch memory that a launch needs, for the problem's number of threads.
    fn workspace_bytes(&self) -> usize;

    /// Queues one run.
    ///
    /// # Safety
    /// The addresses must be memory of the backend that made the kernel: inputs readable and outputs writable
    /// for what the problem's operands span, the workspace writable, none of them written by anyone else until
    /// the launch is done, and outputs apart from inputs except as the candidate's `in_place` allows.
    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError>;
}

/// A device that can compute: a CPU, a GPU.
pub trait Backend: Send + Sync + fmt::Debug {
    /// As users name it: `cpu`, `cuda`.
    fn name(&self) -> &str;

    fn target(&self) -> Target;

    fn memory_kind(&self) -> MemoryKind;

    /// Regions of several nodes that this backend may compute at once, best first where they overlap.
    fn regions(&self, whole: &Whole) -> Vec<Proposal>;

    /// Ways to compute the problem, the likely fastest first. Operands have dense strides of any layout here:
    /// the candidates say which layouts they want. Empty when the backend cannot.
    fn candidates(&self, problem: &Problem) -> Vec<Candidate>;

    /// Brings the weight that is input `input` of the problem into the form that the tactic reads.
    fn pack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        weight: &Tensor,
    ) -> Result<PackedWeight, KernelError>;

    /// The weight that was packed: `pack` and back. A packing without a way back (one that transforms) is not
    /// stored in plans but made when they are opened.
    fn unpack(
        &self,
        problem: &Problem,
        tactic: &Tactic,
        input: usize,
        packed: &PackedWeight,
    ) -> Result<Tensor, KernelError> {
        let _ = (problem, input);
        let message = format!("{tactic} has no way back from `{}`", packed.format);
        Err(KernelError::unsupported(message))
    }

    /// Makes a kernel for exactly these operands, strides included.
    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError>;

    /// Computes a region on values in host memory by the reference: for operators whose output sizes only a
    /// run can tell, for sequences and optionals, and where no kernel exists.
    fn evaluate(&self, region: &Region, inputs: &[Option<Value>]) -> Result<Vec<Value>, KernelError>;

    /// Memory aligned to at least 64 bytes, contents undefined.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError>;

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError>;
}
