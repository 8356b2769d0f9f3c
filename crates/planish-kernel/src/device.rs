//! The side of a backend that the runtime asks: memory, queues, and kernels prepared for exact operands.
//!
//! Built for host memory with a thread team as well as for device memory with streams: a kernel is prepared
//! once for a problem, then launched on a queue with addresses, and nothing here says when a launch is done
//! but [`Queue::synchronize`] and events.

#![allow(unsafe_code)]

use std::fmt;

use crate::{Event, KernelError, Problem, Queue, QueueOptions, Tactic};

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
    /// What the backend has taken for memory of [`Device::allocate`], in use or kept for the next to ask.
    pub pooled: usize,
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
    /// [`crate::Compiler::in_place`] allows.
    unsafe fn launch(&self, call: &Call<'_>, queue: &mut dyn Queue) -> Result<(), KernelError>;
}

/// What a backend has when a plan runs.
pub trait Device: Send + Sync + fmt::Debug {
    fn memory_kind(&self) -> MemoryKind;

    /// Which memory its addresses are in: two backends of one name that say the same can use each other's memory. By
    /// default each has its own.
    fn memory_space(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Makes a kernel for exactly these operands, strides included. Refuses operands that are packed where the
    /// tactic does not pack them ([`Problem::check_packed`]).
    fn prepare(&self, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Kernel>, KernelError>;

    /// Whether a tactic computes on copies and compares what it made with its operands before it writes: then the
    /// runtime need not infer what it makes.
    fn checks_results(&self, tactic: &Tactic) -> bool {
        let _ = tactic;
        false
    }

    /// Memory aligned to at least 64 bytes, contents undefined.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError>;

    /// As `allocate`, in managed memory: on the device from the start, and the driver's to move to the host and back
    /// where the device runs short of memory. Never more than what is free there.
    fn allocate_managed(&self, bytes: usize) -> Result<Box<dyn Memory>, KernelError> {
        let _ = bytes;
        Err(KernelError::unsupported("this backend has no managed memory"))
    }

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

    fn queue(&self, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError>;

    /// A queue over a stream of the caller, as the backend's own interface names it (a `CUstream` for CUDA).
    ///
    /// # Safety
    /// The handle must be a stream of this device and outlive the queue.
    unsafe fn queue_over(&self, stream: u64, options: QueueOptions) -> Result<Box<dyn Queue>, KernelError> {
        let _ = (stream, options);
        Err(KernelError::unsupported("this backend takes no streams of the caller"))
    }

    /// An event to be captured again and again by [`Queue::record_at`]; `timed` if times between are asked for.
    fn event(&self, timed: bool) -> Result<Box<dyn Event>, KernelError> {
        let _ = timed;
        Err(KernelError::unsupported("this backend makes no events ahead"))
    }
}
