//! Events: points in a stream to wait for and to measure between.

use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUevent_flags};
use planish_kernel::Wait;

use super::context::Context;
use super::stream::Stream;
use crate::error::CudaError;

/// What an event is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Order alone: cheapest.
    None,
    /// Time between two of them can be told.
    Timed,
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    pub(crate) raw: CUevent,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub fn new(context: &Arc<Context>, timing: Timing) -> Result<Event, CudaError> {
        context.bind()?;
        // A thread may sleep until it is reached; one that spins asks instead.
        let sleeping = CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32;
        let flags = match timing {
            Timing::None => sleeping | CUevent_flags::CU_EVENT_DISABLE_TIMING as u32,
            Timing::Timed => sleeping,
        };
        let mut raw: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current.
        let code = unsafe { (context.api.cuEventCreate)(&raw mut raw, flags) };
        context.api.check(code, "making an event")?;
        Ok(Event { context: Arc::clone(context), raw })
    }

    /// Puts it at the stream's present end.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        stream.must_be_of(&self.context)?;
        self.context.bind()?;
        // SAFETY: event and stream live.
        let code = unsafe { (self.context.api.cuEventRecord)(self.raw, stream.raw) };
        self.context.api.check(code, "recording an event")
    }

    /// Waits until it was reached.
    pub fn wait(&self, wait: Wait) -> Result<(), CudaError> {
        match wait {
            Wait::Spin => {
                while !self.is_reached()? {
                    std::hint::spin_loop();
                }
                Ok(())
            }
            Wait::Block => {
                self.context.bind()?;
                // SAFETY: the event lives.
                let code = unsafe { (self.context.api.cuEventSynchronize)(self.raw) };
                self.context.api.check(code, "running on the GPU")
            }
        }
    }

    /// Whether it was reached.
    pub fn is_reached(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives.
        match unsafe { (self.context.api.cuEventQuery)(self.raw) } {
            600 => Ok(false),
            code => self.context.api.check(code, "running on the GPU").map(|()| true),
        }
    }

    /// Nanoseconds from `start` to this, both timed and reached.
    pub fn ns_since(&self, start: &Event) -> Result<f64, CudaError> {
        self.context.bind()?;
        let mut ms = 0.0f32;
        // SAFETY: both events live.
        let code = unsafe { self.context.api.elapsed_ms(&mut ms, start.raw, self.raw) };
        self.context.api.check(code, "asking for the time between events")?;
        Ok(f64::from(ms) * 1e6)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `new`; the driver keeps what is still waited for.
            let _ = unsafe { (self.context.api.cuEventDestroy_v2)(self.raw) };
        }
    }
}
