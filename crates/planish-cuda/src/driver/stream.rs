//! Streams: work put one after the other.

use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::CUstream;
use planish_kernel::Wait;

use super::context::Context;
use super::event::{Event, Timing};
use crate::error::{CudaError, CudaErrorKind};

/// The code of a stream that is not done yet.
const NOT_READY: u32 = 600;

/// A stream that does not wait for the default one. Destroyed when dropped, unless it is a caller's.
#[derive(Debug)]
pub struct Stream {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: CUstream,
    owned: bool,
    /// What a thread that sleeps waits for.
    end: OnceLock<Event>,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        let raw = context.make_stream()?;
        context.enter_stream(raw);
        Ok(Stream { context: Arc::clone(context), raw, owned: true, end: OnceLock::new() })
    }

    /// A stream that someone else made and destroys.
    ///
    /// # Safety
    /// `raw` must be a stream of the context's device, and live as long as anything is done with this value but dropping
    /// it; memory that work on it uses must not be dropped before that work is done.
    pub unsafe fn foreign(context: &Arc<Context>, raw: CUstream) -> Stream {
        Stream { context: Arc::clone(context), raw, owned: false, end: OnceLock::new() }
    }

    /// Whether it is ours to wait for at any time: one that someone else made may be gone.
    pub fn is_owned(&self) -> bool {
        self.owned
    }

    /// Whether it is the default stream, NULL or CU_STREAM_LEGACY (1): the driver captures nothing on that one.
    pub fn is_default(&self) -> bool {
        self.handle() <= 1
    }

    /// As the driver names it.
    pub fn handle(&self) -> u64 {
        self.raw.expose_provenance() as u64
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits until everything on it is done; what kernels did wrong is said here at the latest.
    pub fn synchronize(&self, wait: Wait) -> Result<(), CudaError> {
        self.context.bind()?;
        let api = self.context.api;
        match wait {
            Wait::Spin => loop {
                // SAFETY: the stream lives.
                match unsafe { (api.cuStreamQuery)(self.raw) } {
                    NOT_READY => std::hint::spin_loop(),
                    code => return api.check(code, "running on the GPU"),
                }
            },
            Wait::Block => {
                let event = match self.end.get() {
                    Some(event) => event,
                    None => {
                        let event = Event::new(&self.context, Timing::None)?;
                        self.end.get_or_init(|| event)
                    }
                };
                event.record(self)?;
                event.wait(Wait::Block)
            }
        }
    }

    /// Whether everything on it is done.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        let api = self.context.api;
        // SAFETY: the stream lives.
        match unsafe { (api.cuStreamQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => api.check(code, "running on the GPU").map(|()| true),
        }
    }

    /// Holds what comes after back until the event was reached.
    pub fn wait_for(&self, event: &Event) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: stream and event live.
        let code = unsafe { (self.context.api.cuStreamWaitEvent)(self.raw, event.raw, 0) };
        self.context.api.check(code, "waiting for an event")
    }

    /// Copies host memory to the device.
    ///
    /// # Safety
    /// `from` must stay as it is until the copy is done (pageable memory is read before this returns), `to`
    /// must be writable for its bytes.
    pub unsafe fn upload(&self, to: u64, from: *const u8, len: usize) -> Result<(), CudaError> {
        // SAFETY: the caller grants both.
        let code = unsafe { (self.context.api.cuMemcpyHtoDAsync_v2)(to, from.cast(), len, self.raw) };
        self.context.api.check(code, "copying to the GPU")
    }

    /// Copies device memory to the host.
    ///
    /// # Safety
    /// `to` must not be touched until the copy is done, `from` must be readable for as many bytes.
    pub unsafe fn download(&self, to: *mut u8, from: u64, len: usize) -> Result<(), CudaError> {
        // SAFETY: the caller grants both.
        let code = unsafe { (self.context.api.cuMemcpyDtoHAsync_v2)(to.cast(), from, len, self.raw) };
        self.context.api.check(code, "copying from the GPU")
    }

    /// Copies within the device.
    ///
    /// # Safety
    /// Both must be memory of the device for `len` bytes, and stay so until the copy is done.
    pub unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), CudaError> {
        // SAFETY: the caller grants both.
        let code = unsafe { (self.context.api.cuMemcpyDtoDAsync_v2)(to, from, len, self.raw) };
        self.context.api.check(code, "copying on the GPU")
    }

    /// Sets every byte.
    ///
    /// # Safety
    /// `to` must be memory of the device for `len` bytes, and stay so until it is done.
    pub unsafe fn fill(&self, to: u64, byte: u8, len: usize) -> Result<(), CudaError> {
        // SAFETY: the caller grants it.
        let code = unsafe { (self.context.api.cuMemsetD8Async)(to, byte, len, self.raw) };
        self.context.api.check(code, "filling memory")
    }

    /// Refuses a stream of another device.
    pub(crate) fn must_be_of(&self, context: &Context) -> Result<(), CudaError> {
        if self.context.raw == context.raw {
            return Ok(());
        }
        let message =
            format!("work for cuda:{} was put on a stream of cuda:{}", context.index(), self.context.index());
        Err(CudaError::new(CudaErrorKind::Failed, message))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        self.context.leave_stream(self.raw);
        if self.context.bind().is_ok() {
            // SAFETY: made in `new`; what is still on it goes on to its end.
            let _ = unsafe { (self.context.api.cuStreamDestroy_v2)(self.raw) };
        }
    }
}
