//! `CudaQueue`: a stream with pinned staging memory, through which ordinary host memory goes in pieces: while one
//! piece is on the link, the CPU copies the next.

use std::any::Any;
use std::sync::Arc;

use planish_kernel::{Address, KernelError, KernelErrorKind, Queue};

use crate::driver::{Context, Event, Pinned, Stream, Timing, Wait};
use crate::error::CudaError;

/// Bytes of one piece. At 50 GB/s on the link 1 MiB takes 20 µs, ten times what putting a copy on a stream costs.
const PIECE: usize = 1 << 20;
/// The least that is pinned, so that small transfers do not pin again and again as they grow.
const LEAST: usize = 64 << 10;

/// A stream and the staging memory of its transfers.
#[derive(Debug)]
pub struct CudaQueue {
    stream: Arc<Stream>,
    wait: Wait,
    staging: [Option<Stage>; 2],
    /// Which of the two was not used last.
    turn: usize,
}

/// One piece of pinned memory, and the point at which its last copy is done.
#[derive(Debug)]
struct Stage {
    memory: Pinned,
    done: Event,
}

/// A point in a queue.
#[derive(Debug)]
pub(crate) struct Reached(pub(crate) Event);

impl planish_kernel::Event for Reached {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CudaQueue {
    pub(crate) fn new(context: &Arc<Context>, wait: Wait) -> Result<CudaQueue, CudaError> {
        Ok(CudaQueue::on(Arc::new(Stream::new(context)?), wait))
    }

    /// A queue over a stream that exists.
    pub fn on(stream: Arc<Stream>, wait: Wait) -> CudaQueue {
        CudaQueue { stream, wait, staging: [None, None], turn: 0 }
    }

    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The next piece, free to be written: the copy that last used it is done.
    fn stage(&mut self, bytes: usize) -> Result<&mut Stage, CudaError> {
        self.turn ^= 1;
        let slot = &mut self.staging[self.turn];
        let context = self.stream.context();
        if let Some(stage) = slot {
            stage.done.synchronize()?;
        }
        if slot.as_ref().is_none_or(|stage| stage.memory.len() < bytes) {
            let memory = Pinned::new(context, bytes.max(LEAST).next_power_of_two())?;
            *slot = Some(Stage { memory, done: Event::new(context, Timing::None)? });
        }
        slot.as_mut().ok_or_else(|| CudaError::new(crate::CudaErrorKind::Failed, "no staging memory"))
    }
}

impl Queue for CudaQueue {
    unsafe fn upload(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        self.stream.context().bind()?;
        let stream = Arc::clone(&self.stream);
        for (idx, piece) in from.chunks(PIECE).enumerate() {
            let stage = self.stage(piece.len())?;
            // SAFETY: `stage` waited until nothing uses the memory.
            unsafe { stage.memory.bytes_mut()[..piece.len()].copy_from_slice(piece) };
            // SAFETY: the caller grants `to`; the staging memory is not touched before its event is reached.
            unsafe { stream.upload(to.offset(idx * PIECE).0, stage.memory.as_ptr(), piece.len())? };
            stage.done.record(&stream)?;
        }
        Ok(())
    }

    unsafe fn download(&mut self, to: &mut [u8], from: Address) -> Result<(), KernelError> {
        self.stream.context().bind()?;
        let stream = Arc::clone(&self.stream);
        // One piece is copied out of its staging memory while the next is on the link.
        let mut earlier: Option<(usize, &mut [u8])> = None;
        for (idx, piece) in to.chunks_mut(PIECE).enumerate() {
            let stage = self.stage(piece.len())?;
            // SAFETY: the caller grants `from`; the staging memory is read only behind its event.
            unsafe { stream.download(stage.memory.as_ptr(), from.offset(idx * PIECE).0, piece.len())? };
            stage.done.record(&stream)?;
            let turn = self.turn;
            if let Some((turn, piece)) = earlier.replace((turn, piece)) {
                self.take_out(turn, piece)?;
            }
        }
        match earlier {
            Some((turn, piece)) => Ok(self.take_out(turn, piece)?),
            None => self.synchronize(),
        }
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        Ok(self.stream.synchronize(self.wait)?)
    }

    fn record(&mut self) -> Result<Box<dyn planish_kernel::Event>, KernelError> {
        let event = Event::new(self.stream.context(), Timing::None)?;
        event.record(&self.stream)?;
        Ok(Box::new(Reached(event)))
    }

    fn wait_for(&mut self, event: &dyn planish_kernel::Event) -> Result<(), KernelError> {
        let event = event.as_any().downcast_ref::<Reached>().ok_or_else(|| {
            KernelError::new(KernelErrorKind::Failed, "a CUDA queue cannot wait for another backend's event")
        })?;
        Ok(self.stream.wait_for(&event.0)?)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl CudaQueue {
    /// Waits for the piece in a stage and copies it out.
    fn take_out(&mut self, turn: usize, piece: &mut [u8]) -> Result<(), CudaError> {
        let wait = self.wait;
        let Some(stage) = &self.staging[turn] else {
            return Ok(());
        };
        match wait {
            Wait::Spin => {
                while !stage.done.is_reached()? {
                    std::hint::spin_loop();
                }
            }
            Wait::Block => stage.done.synchronize()?,
        }
        // SAFETY: the copy into it is done.
        piece.copy_from_slice(unsafe { &stage.memory.bytes()[..piece.len()] });
        Ok(())
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        // The staging memory must outlive the copies; an error here was or will be met elsewhere.
        let _ = self.stream.synchronize(Wait::Block);
    }
}
