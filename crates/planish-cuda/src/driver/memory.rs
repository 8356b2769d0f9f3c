//! Memory on the device, and pinned memory of the host that the device reads and writes by itself.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use planish_kernel::{Address, Memory, Wait};

use super::context::Context;
use super::stream::Stream;
use crate::drill;
use crate::error::{CudaError, CudaErrorKind};

/// How memory was taken, which is how it is freed.
#[derive(Clone, Copy, Debug)]
enum Taken {
    Nothing,
    Pool,
    Plain,
}

/// Device memory; freed when dropped, after the work that is on this process's own streams by then.
#[derive(Debug)]
pub struct DeviceMemory {
    context: Arc<Context>,
    address: u64,
    len: usize,
    taken: Taken,
}

/// An address for what has no bytes: aligned, and never read.
const NOWHERE: u64 = 256;

impl DeviceMemory {
    /// From the pool: microseconds once the pool has it.
    pub fn new(context: &Arc<Context>, len: usize) -> Result<DeviceMemory, CudaError> {
        let made = |address, taken| DeviceMemory { context: Arc::clone(context), address, len, taken };
        if len == 0 {
            return Ok(made(NOWHERE, Taken::Nothing));
        }
        let Some(pool) = context.pool else {
            return DeviceMemory::plain(context, len);
        };
        context.bind()?;
        let mut address = 0;
        // SAFETY: the context is current.
        let take = || unsafe { (context.api.cuMemAllocAsync)(&raw mut address, len, pool.taking) };
        let code = drill::refusal().unwrap_or_else(take);
        refuse(context, code, len, "device")?;
        let memory = made(address, Taken::Pool);
        // SAFETY: the stream lives. Nothing else is on it, so that this returns at once, and from here on any
        // stream may use the memory.
        let code = unsafe { (context.api.cuStreamSynchronize)(pool.taking) };
        context.api.check(code, "taking device memory")?;
        Ok(memory)
    }

    /// Outside of the pool; slower to take, and freeing waits for the device.
    pub fn plain(context: &Arc<Context>, len: usize) -> Result<DeviceMemory, CudaError> {
        context.bind()?;
        let mut address = 0;
        // SAFETY: the context is current, the size is not 0.
        let take = || unsafe { (context.api.cuMemAlloc_v2)(&raw mut address, len.max(1)) };
        let code = drill::refusal().unwrap_or_else(take);
        refuse(context, code, len, "device")?;
        Ok(DeviceMemory { context: Arc::clone(context), address, len, taken: Taken::Plain })
    }

    /// Managed memory, brought to the device at once and preferred there: the driver moves it to the host only where
    /// the device runs short of memory, and back when a kernel reads it. More than is free is refused here: a device
    /// whose pages do not fit moves them back and forth, and the machine may stand still.
    pub fn managed(context: &Arc<Context>, len: usize) -> Result<DeviceMemory, CudaError> {
        if !context.has_managed_memory()? {
            let (index, name) = (context.index(), &context.gpu().name);
            let message = format!(
                "cuda:{index} ({name}) has no managed memory that it uses beside the CPU (concurrent managed \
                 access); keep the weights in ordinary device memory"
            );
            return Err(CudaError::new(CudaErrorKind::Unsupported, message));
        }
        let (free, total) = context.memory_info()?;
        if len > free {
            let device = (context.index(), &*context.gpu().name);
            let message = shortage(len, "managed", device, Some((free, total)));
            return Err(CudaError::new(CudaErrorKind::OutOfMemory, message));
        }
        let mut address = 0;
        // SAFETY: the context is current; 1 is CU_MEM_ATTACH_GLOBAL: any stream may read it.
        let take = || unsafe { (context.api.cuMemAllocManaged)(&raw mut address, len.max(1), 1) };
        let code = drill::refusal().unwrap_or_else(take);
        refuse(context, code, len, "managed")?;
        let memory = DeviceMemory { context: Arc::clone(context), address, len, taken: Taken::Plain };
        let here = context.location();
        // SAFETY: the memory was taken just now, with this length.
        let code = unsafe { context.api.prefer(address, len.max(1), here) };
        context.api.check(code, "keeping managed memory on the device")?;
        let stream = Stream::new(context)?;
        // SAFETY: as above; the stream lives.
        let code = unsafe { context.api.bring(address, len.max(1), here, stream.raw) };
        context.api.check(code, "bringing managed memory to the device")?;
        stream.synchronize(Wait::Block)?;
        Ok(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.context.bind().is_err() {
            return;
        }
        match self.taken {
            Taken::Nothing => {}
            Taken::Pool => self.context.free_pooled(self.address),
            Taken::Plain => {
                // SAFETY: taken in `plain` or `managed`; the driver waits for work that uses it.
                let _ = unsafe { (self.context.api.cuMemFree_v2)(self.address) };
            }
        }
    }
}

impl Memory for DeviceMemory {
    fn address(&self) -> Address {
        Address(self.address)
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// How often pinned memory was given back to the driver by this process. The copies of a CUDA graph mean the
/// allocation that they were captured with: on an H200 (driver 580) a graph that was launched when another allocation
/// had the same address copied elsewhere or ended the process.
static N_PINNED_FREED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn pinned_memory_age() -> u64 {
    N_PINNED_FREED.load(Ordering::SeqCst)
}

/// Host memory that never leaves its place, so that copies run beside the CPU at the link's full rate.
#[derive(Debug)]
pub struct Pinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Pinned, CudaError> {
        context.bind()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; 1 is CU_MEMHOSTALLOC_PORTABLE: pinned for every device.
        let take = || unsafe { (context.api.cuMemHostAlloc)(&raw mut start, len.max(1), 1) };
        let code = drill::refusal().unwrap_or_else(take);
        refuse(context, code, len, "pinned host")?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| CudaError::new(CudaErrorKind::OutOfMemory, "pinned memory at no address"))?;
        // SAFETY: just taken, `len` bytes; zeroed so that no byte of it is uninitialized.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Ok(Pinned { context: Arc::clone(context), start, len })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes; the caller knows that no copy from the device is on its way into them.
    ///
    /// # Safety
    /// No copy into it may be under way.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: owned, initialized, and the caller says that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Its bytes, to write.
    ///
    /// # Safety
    /// No copy from or into it may be under way.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: owned, borrowed alone, and the caller says that the device does not use it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // First, so that whoever gets this address next sees another age.
            N_PINNED_FREED.fetch_add(1, Ordering::SeqCst);
            // SAFETY: taken in `new`.
            let _ = unsafe { (self.context.api.cuMemFreeHost)(self.start.as_ptr().cast()) };
        }
    }
}

/// Says what was asked for, what is free and what to lower.
fn refuse(context: &Context, code: u32, asked: usize, kind: &str) -> Result<(), CudaError> {
    match code {
        0 => Ok(()),
        2 => {
            let device = (context.index(), &*context.gpu().name);
            let message = shortage(asked, kind, device, context.memory_info().ok());
            Err(CudaError::new(CudaErrorKind::OutOfMemory, message))
        }
        code => Err(context.api.error(code, &format!("taking {} of {kind} memory", mebibytes(asked)))),
    }
}

/// Free and total bytes are those of the device, as far as they are known.
fn shortage(
    asked: usize,
    kind: &str,
    (index, name): (usize, &str),
    memory: Option<(usize, usize)>,
) -> String {
    let free = match memory {
        Some((free, total)) => format!("{} of {} are free", mebibytes(free), mebibytes(total)),
        None => "how much is free is not known".to_string(),
    };
    format!(
        "{} of {kind} memory could not be had on cuda:{index} ({name}): {free}; lower the batch size, the \
         profile's maximum or the number of contexts",
        mebibytes(asked)
    )
}

fn mebibytes(bytes: usize) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_says_what_was_asked_what_is_free_and_what_to_lower() {
        let text = shortage(3 << 30, "device", (1, "NVIDIA H200"), Some((1 << 30, 139 << 30)));
        assert_eq!(
            text,
            "3072.0 MiB of device memory could not be had on cuda:1 (NVIDIA H200): 1024.0 MiB of 142336.0 MiB are \
             free; lower the batch size, the profile's maximum or the number of contexts"
        );
        let text = shortage(1, "pinned host", (0, "g"), None);
        assert!(text.contains("how much is free is not known"), "{text}");
    }
}
