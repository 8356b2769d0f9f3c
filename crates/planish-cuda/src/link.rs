//! How fast the link between host and device is: what transfers of models are held against.

use planish_kernel::{Memory, Wait};

use crate::backend::Cuda;
use crate::driver::{DeviceMemory, Event, Pinned, Stream, Timing};
use crate::error::CudaError;

/// Bytes per second between pinned memory and the device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRate {
    /// To the device, nothing coming back.
    pub up_alone: f64,
    /// To the device and back at the same time.
    pub up: f64,
    pub down: f64,
}

impl LinkRate {
    /// Measures `n_copies` copies of `bytes` each way.
    pub fn measure(cuda: &Cuda, bytes: usize, n_copies: usize) -> Result<LinkRate, CudaError> {
        let mut ways = [Way::new(cuda, bytes)?, Way::new(cuda, bytes)?];
        // The first copies map memory.
        for (idx, way) in ways.iter().enumerate() {
            way.queue(1, idx == 0)?;
        }
        ways.iter_mut().try_for_each(|way| way.rate(1).map(drop))?;
        ways[0].queue(n_copies, true)?;
        let up_alone = ways[0].rate(n_copies)?;
        // Both are queued before either is waited for, in pieces, so that they begin together.
        ways[0].queue(n_copies, true)?;
        ways[1].queue(n_copies, false)?;
        let (up, down) = (ways[0].rate(n_copies)?, ways[1].rate(n_copies)?);
        Ok(LinkRate { up_alone, up, down })
    }
}

/// One direction: a stream, its ends, and the timed points around its copies.
struct Way {
    stream: Stream,
    here: Pinned,
    there: DeviceMemory,
    begin: Event,
    end: Event,
}

impl Way {
    fn new(cuda: &Cuda, bytes: usize) -> Result<Way, CudaError> {
        let context = cuda.context()?;
        Ok(Way {
            stream: Stream::new(context)?,
            here: Pinned::new(context, bytes)?,
            there: DeviceMemory::new(context, bytes)?,
            begin: Event::new(context, Timing::Timed)?,
            end: Event::new(context, Timing::Timed)?,
        })
    }

    fn queue(&self, n_copies: usize, up: bool) -> Result<(), CudaError> {
        let (there, bytes) = (self.there.address().0, self.here.len());
        self.begin.record(&self.stream)?;
        for _ in 0..n_copies {
            // SAFETY: both are this way's own and `bytes` long; nobody touches them but this stream, in order, and
            // `rate` waits before anything is freed.
            unsafe {
                match up {
                    true => self.stream.upload(there, self.here.as_ptr(), bytes)?,
                    false => self.stream.download(self.here.as_ptr(), there, bytes)?,
                }
            }
        }
        self.end.record(&self.stream)
    }

    /// Bytes per second of what was queued.
    fn rate(&mut self, n_copies: usize) -> Result<f64, CudaError> {
        self.stream.synchronize(Wait::Spin)?;
        Ok((n_copies * self.here.len()) as f64 / self.end.ns_since(&self.begin)? * 1e9)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // Copies may be on their way if something failed in between; then the memory must outlive them.
        let _ = self.stream.synchronize(Wait::Spin);
    }
}
