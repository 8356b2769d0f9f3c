//! Recorded launches timed by the device's own clock.

use std::sync::Arc;

use planish_cuda::driver::{Capturing, Context, Event, ExecutableGraph, Stream, Timing};
use planish_cuda::{CudaError, Source, driver::Module, nvrtc};
use planish_kernel::Wait;

use crate::Failure;

/// Replays before the first that counts, and those that count.
const WARM: usize = 20;
const COUNTED: usize = 101;

/// How often [`time`] replays a captured graph.
pub(crate) const REPLAYS: u32 = (WARM + COUNTED) as u32;

/// A device with a stream.
pub(crate) struct Bench {
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Arc<Stream>,
    start: Event,
    end: Event,
}

impl Bench {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Bench, CudaError> {
        Ok(Bench {
            context: Arc::clone(context),
            stream: Arc::new(Stream::new(context)?),
            start: Event::new(context, Timing::Timed)?,
            end: Event::new(context, Timing::Timed)?,
        })
    }

    pub(crate) fn module(&self, source: &Source) -> Result<Arc<Module>, CudaError> {
        Ok(Arc::new(Module::new(&self.context, &nvrtc::compile_cached(source, self.context.gpu())?)?))
    }

    /// Records what `put` puts on the stream.
    pub(crate) fn record(
        &self,
        put: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<ExecutableGraph, Failure> {
        let capturing = Capturing::begin(&self.stream)?;
        put()?;
        Ok(capturing.end()?)
    }

    /// The median time of a replay in microseconds, from the event before it to the one after it.
    pub(crate) fn time(&self, graph: &ExecutableGraph) -> Result<f64, CudaError> {
        let mut times = Vec::with_capacity(COUNTED);
        for round in 0..WARM + COUNTED {
            self.start.record(&self.stream)?;
            // SAFETY: the caller's buffers live as long as the bench is used, and this thread alone starts graphs.
            unsafe { graph.launch(&self.stream)? };
            self.end.record(&self.stream)?;
            self.stream.synchronize(Wait::Spin)?;
            if round >= WARM {
                times.push(self.end.ns_since(&self.start)? * 1e-3);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times[COUNTED / 2])
    }
}
