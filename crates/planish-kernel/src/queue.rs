//! Queues: where launches are put, one after the other, and what marks, holds back, captures and replays them.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;

use crate::{Address, KernelError};

/// How the host waits for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Looking all the time: a core for the least latency.
    Spin,
    /// Asleep until the device calls.
    #[default]
    Block,
}

/// How a queue is to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// CPU threads that a launch may use, the caller included.
    pub threads: usize,
    /// How `synchronize` and `Event::wait` wait; backends that run at once ignore it.
    pub wait: Wait,
}

impl QueueOptions {
    /// With this many threads, waiting blocked.
    pub fn new(threads: usize) -> QueueOptions {
        QueueOptions { threads, wait: Wait::default() }
    }
}

/// A point in a queue that other queues can wait for.
pub trait Event: Send + Sync + fmt::Debug {
    /// Whether the queue has got there.
    fn is_reached(&self) -> Result<bool, KernelError>;

    /// Waits on the host until the queue has got there, and for nothing after it.
    fn wait(&self) -> Result<(), KernelError>;

    /// Nanoseconds on the device since `earlier`, both reached and made with timing.
    fn ns_since(&self, earlier: &dyn Event) -> Result<f64, KernelError> {
        let _ = earlier;
        Err(KernelError::unsupported("this backend's events have no times"))
    }

    /// The backend's own view of it.
    fn as_any(&self) -> &dyn Any;
}

/// Launches and copies that were captured, to be replayed as one.
pub trait CapturedGraph: Send + fmt::Debug {
    /// Device memory that it holds, as far as that is known.
    fn bytes(&self) -> usize {
        0
    }

    /// How many launches and copies it holds.
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The backend's own view of it.
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

    /// As `upload`, but the source is read when the queue gets there, so that this returns at once. Part of a
    /// captured graph while one is made, which reads the same place at every replay.
    ///
    /// # Safety
    /// As for `upload`; `from` must be memory of `allocate_pinned` (or registered with the device) that nobody
    /// writes or frees until the queue has passed.
    unsafe fn upload_pinned(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        // SAFETY: the caller promises more than `upload` asks for.
        unsafe { self.upload(to, from) }
    }

    /// As `download`, but done when the queue gets there, so that this returns at once. Part of a captured graph
    /// while one is made.
    ///
    /// # Safety
    /// As for `download`; `to` must be memory of `allocate_pinned` (or registered with the device) that nobody
    /// reads, writes or frees until the queue has passed.
    unsafe fn download_pinned(&mut self, to: *mut [u8], from: Address) -> Result<(), KernelError> {
        // SAFETY: the caller promises that the memory is there and its own.
        unsafe { self.download(&mut *to, from) }
    }

    /// Copies inside the backend's memory; done when the queue gets there. Part of a captured graph while one is made.
    ///
    /// # Safety
    /// Both must be the backend's memory, apart from each other, readable and writable for `bytes` when the
    /// queue gets there.
    unsafe fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Result<(), KernelError>;

    /// Waits until everything queued is done; errors of launches surface here at the latest.
    fn synchronize(&mut self) -> Result<(), KernelError>;

    /// Marks the current end of the queue.
    fn record(&mut self) -> Result<Box<dyn Event>, KernelError>;

    /// Marks the current end of the queue by an event of [`crate::Device::event`], which then means this place
    /// and no earlier one. Allocates nothing.
    fn record_at(&mut self, event: &dyn Event) -> Result<(), KernelError> {
        let _ = event;
        Err(KernelError::unsupported("this backend makes no events ahead"))
    }

    /// Holds what is queued from here on back until `event` is reached.
    fn wait_for(&mut self, event: &dyn Event) -> Result<(), KernelError>;

    /// Whether `begin_capture` works here.
    fn can_capture(&self) -> bool {
        false
    }

    /// From here on launches, `copy` and the pinned copies are captured instead of done. Nothing else may be
    /// asked of the queue until `end_capture`.
    fn begin_capture(&mut self) -> Result<(), KernelError> {
        Err(KernelError::unsupported("this backend captures no launches"))
    }

    /// Ends what `begin_capture` began, also after an error in between, and gives the graph, ready to be
    /// replayed.
    fn end_capture(&mut self) -> Result<Box<dyn CapturedGraph>, KernelError> {
        Err(KernelError::unsupported("this backend captures no launches"))
    }

    /// Queues all that was captured, as it was. Allocates nothing.
    ///
    /// # Safety
    /// What was promised for each launch and copy of the captured graph must hold again: all memory that they name
    /// is still there. The graph must not be dropped before the queue has passed, nor be under way on
    /// another queue.
    unsafe fn replay(&mut self, graph: &dyn CapturedGraph) -> Result<(), KernelError> {
        let _ = graph;
        Err(KernelError::unsupported("this backend captures no launches"))
    }

    /// Changes whenever pinned memory was given back: a captured graph's copies may mean the memory that was there when it
    /// was captured and not what has the same address since, so that one made before is not replayed.
    fn pinned_memory_age(&self) -> u64 {
        0
    }

    /// Bytes of pinned host memory that copies from and to ordinary memory pass through.
    fn staging_bytes(&self) -> usize {
        0
    }

    /// Names what this thread does from here until [`Queue::range_end`], for tools that watch the process. Ranges
    /// may lie inside of each other, and end on the thread that began them.
    fn range_begin(&mut self, name: &str) {
        let _ = name;
    }

    /// Ends the innermost range.
    fn range_end(&mut self) {}

    /// The backend's own view of it.
    fn as_any(&mut self) -> &mut dyn Any;
}
