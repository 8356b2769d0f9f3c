//! Host memory and the queue over it: a launch runs at once, on the caller and the pool's idle workers.

use std::alloc::{Layout as Allocation, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;

use planish_kernel::{Address, Event, KernelError, KernelErrorKind, Memory, Queue};
use planish_tensor::Pages;
use planish_tensor::memory::{self, OutOfMemory};

use crate::team::Team;

/// A cache line, and an AVX-512 vector.
const ALIGNMENT: usize = 64;

/// Memory of this process, aligned to a cache line.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: NonNull<u8>,
    owner: Owner,
    len: usize,
}

/// What gives the memory back.
#[derive(Debug)]
enum Owner {
    Nobody,
    Allocator(Allocation),
    Pages { _pages: Pages },
}

// SAFETY: it owns its memory; who reads and writes it is settled by the contract of `Kernel::launch`.
unsafe impl Send for HostMemory {}
// SAFETY: as above; shared access only hands out the address.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    pub(crate) fn new(len: usize) -> Result<HostMemory, KernelError> {
        if len == 0 {
            let start = NonNull::new(std::ptr::without_provenance_mut(ALIGNMENT)).expect("not zero");
            return Ok(HostMemory { start, owner: Owner::Nobody, len });
        }
        let refused = || {
            let error = OutOfMemory { bytes: len };
            let message = format!("{error}; lower the batch size or the profile's maximum");
            KernelError::new(KernelErrorKind::OutOfMemory, message)
        };
        let allocation = Allocation::from_size_align(len, ALIGNMENT).map_err(|_| refused())?;
        memory::fits(len).map_err(|_| refused())?;
        if len >= Pages::WORTHWHILE {
            let mut pages = Pages::zeroed(len).map_err(|_| refused())?;
            let start = NonNull::new(pages.bytes_mut().as_mut_ptr()).ok_or_else(refused)?;
            return Ok(HostMemory { start, owner: Owner::Pages { _pages: pages }, len });
        }
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(allocation) }).ok_or_else(refused)?;
        Ok(HostMemory { start, owner: Owner::Allocator(allocation), len })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Owner::Allocator(allocation) = self.owner {
            // SAFETY: it was allocated in `new` with this layout.
            unsafe { dealloc(self.start.as_ptr(), allocation) }
        }
    }
}

impl Memory for HostMemory {
    fn address(&self) -> Address {
        Address(self.start.as_ptr().expose_provenance() as u64)
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Launches run when they are queued, so there is never anything to wait for.
#[derive(Debug)]
pub(crate) struct HostQueue {
    team: Team,
}

#[derive(Debug)]
struct Done;

impl Event for Done {
    fn is_reached(&self) -> Result<bool, KernelError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), KernelError> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl HostQueue {
    pub(crate) fn new(threads: usize) -> HostQueue {
        HostQueue { team: Team::new(threads) }
    }

    pub(crate) fn team(&self) -> &Team {
        &self.team
    }
}

impl Queue for HostQueue {
    unsafe fn upload(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to.0 as usize);
        // SAFETY: the caller grants the memory; host values are never parts of an arena.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    unsafe fn download(&mut self, to: &mut [u8], from: Address) -> Result<(), KernelError> {
        let from = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Result<(), KernelError> {
        let from = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to.0 as usize);
        // SAFETY: the caller grants both, apart from each other.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        Ok(())
    }

    fn record_at(&mut self, _event: &dyn Event) -> Result<(), KernelError> {
        Ok(())
    }

    fn record(&mut self) -> Result<Box<dyn Event>, KernelError> {
        Ok(Box::new(Done))
    }

    fn wait_for(&mut self, _event: &dyn Event) -> Result<(), KernelError> {
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The CPU's own name for itself, on which timings depend.
pub(crate) fn cpu_model() -> String {
    let named = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let field = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split(':').nth(1).map(|value| value.trim().to_string())
        };
        Some(format!("{} family {} model {}", field("model name")?, field("cpu family")?, field("model")?))
    });
    named.unwrap_or_else(|| std::env::consts::ARCH.to_string())
}
