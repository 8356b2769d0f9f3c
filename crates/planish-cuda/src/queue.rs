//! `CudaQueue`: a stream with pinned staging memory, through which ordinary host memory goes in pieces: while one
//! piece is on the link, the CPU copies the next.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use planish_kernel::{Address, CapturedGraph, KernelError, KernelErrorKind, Queue, Wait};

use crate::driver::{Capturing, Context, Event, ExecutableGraph, Pinned, Stream, Timing, pinned_memory_age};
use crate::error::{CudaError, CudaErrorKind};
use crate::nvtx;

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
    /// Which of the two was used last.
    turn: usize,
    capturing: Option<Capturing>,
}

/// One piece of pinned memory, and the point at which its last copy is done.
#[derive(Debug)]
struct Stage {
    memory: Pinned,
    done: Event,
}

/// A point in a queue.
#[derive(Debug)]
pub(crate) struct Point {
    event: Event,
    /// Waited for without sleeping, as the queue that it was captured on is.
    spins: AtomicBool,
}

impl Point {
    pub(crate) fn new(context: &Arc<Context>, timing: Timing) -> Result<Point, CudaError> {
        Ok(Point { event: Event::new(context, timing)?, spins: AtomicBool::new(false) })
    }

    fn of(event: &dyn planish_kernel::Event) -> Result<&Point, KernelError> {
        event.as_any().downcast_ref::<Point>().ok_or_else(|| {
            KernelError::new(KernelErrorKind::Failed, "another backend's event was given to a CUDA queue")
        })
    }
}

impl planish_kernel::Event for Point {
    fn is_reached(&self) -> Result<bool, KernelError> {
        Ok(self.event.is_reached()?)
    }

    fn wait(&self) -> Result<(), KernelError> {
        let wait = if self.spins.load(Ordering::Relaxed) { Wait::Spin } else { Wait::Block };
        Ok(self.event.wait(wait)?)
    }

    fn ns_since(&self, earlier: &dyn planish_kernel::Event) -> Result<f64, KernelError> {
        Ok(self.event.ns_since(&Point::of(earlier)?.event)?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A captured graph as the runtime sees it.
#[derive(Debug)]
struct Captured(ExecutableGraph);

impl CapturedGraph for Captured {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn len(&self) -> usize {
        self.0.n_nodes()
    }

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
        CudaQueue { stream, wait, staging: [None, None], turn: 0, capturing: None }
    }

    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The next piece, free to be written: the copy that last used it is done.
    fn stage(&mut self, bytes: usize) -> Result<&mut Stage, CudaError> {
        if self.capturing.is_some() {
            let message = "ordinary memory cannot be copied while launches are captured";
            return Err(CudaError::new(CudaErrorKind::Failed, message));
        }
        self.turn ^= 1;
        let slot = &mut self.staging[self.turn];
        let context = self.stream.context();
        if let Some(stage) = slot {
            stage.done.wait(self.wait)?;
        }
        if slot.as_ref().is_none_or(|stage| stage.memory.len() < bytes) {
            let memory = Pinned::new(context, bytes.max(LEAST).next_power_of_two())?;
            *slot = Some(Stage { memory, done: Event::new(context, Timing::None)? });
        }
        slot.as_mut().ok_or_else(|| CudaError::new(CudaErrorKind::Failed, "no staging memory"))
    }

    /// Waits for the piece in a stage and copies it out.
    fn take_out(&mut self, turn: usize, piece: &mut [u8]) -> Result<(), CudaError> {
        if let Some(stage) = &self.staging[turn] {
            stage.done.wait(self.wait)?;
            // SAFETY: the copy into it is done.
            piece.copy_from_slice(unsafe { &stage.memory.bytes()[..piece.len()] });
        }
        Ok(())
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
            // SAFETY: the caller grants `from`; the staging memory is read only after its event.
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

    unsafe fn upload_pinned(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        self.stream.context().bind()?;
        // SAFETY: the caller grants `to`, and that `from` stays until the queue has passed.
        unsafe { self.stream.upload(to.0, from.as_ptr(), from.len()) }.map_err(KernelError::from)
    }

    unsafe fn download_pinned(&mut self, to: *mut [u8], from: Address) -> Result<(), KernelError> {
        self.stream.context().bind()?;
        // SAFETY: the caller grants `from`, and that nobody touches `to` until the queue has passed.
        unsafe { self.stream.download(to.cast(), from.0, to.len()) }.map_err(KernelError::from)
    }

    unsafe fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Result<(), KernelError> {
        self.stream.context().bind()?;
        // SAFETY: the caller grants both.
        unsafe { self.stream.copy(to.0, from.0, bytes) }.map_err(KernelError::from)
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        Ok(self.stream.synchronize(self.wait)?)
    }

    fn record(&mut self) -> Result<Box<dyn planish_kernel::Event>, KernelError> {
        let point = Point::new(self.stream.context(), Timing::None)?;
        self.record_at(&point)?;
        Ok(Box::new(point))
    }

    fn record_at(&mut self, event: &dyn planish_kernel::Event) -> Result<(), KernelError> {
        let point = Point::of(event)?;
        point.spins.store(self.wait == Wait::Spin, Ordering::Relaxed);
        Ok(point.event.record(&self.stream)?)
    }

    fn wait_for(&mut self, event: &dyn planish_kernel::Event) -> Result<(), KernelError> {
        Ok(self.stream.wait_for(&Point::of(event)?.event)?)
    }

    fn can_capture(&self) -> bool {
        !self.stream.is_default()
    }

    fn begin_capture(&mut self) -> Result<(), KernelError> {
        if self.capturing.is_some() {
            return Err(KernelError::new(KernelErrorKind::Failed, "launches are captured already"));
        }
        self.capturing = Some(Capturing::begin(&self.stream)?);
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Box<dyn CapturedGraph>, KernelError> {
        let capturing = self
            .capturing
            .take()
            .ok_or_else(|| KernelError::new(KernelErrorKind::Failed, "no launches are captured"))?;
        Ok(Box::new(Captured(capturing.end()?)))
    }

    fn pinned_memory_age(&self) -> u64 {
        pinned_memory_age()
    }

    unsafe fn replay(&mut self, graph: &dyn CapturedGraph) -> Result<(), KernelError> {
        let captured = graph.as_any().downcast_ref::<Captured>().ok_or_else(|| {
            KernelError::new(KernelErrorKind::Failed, "another backend's graph was given to a CUDA queue")
        })?;
        // SAFETY: the caller promises that memory is there, and that it is under way nowhere else.
        unsafe { captured.0.launch(&self.stream) }.map_err(KernelError::from)
    }

    fn staging_bytes(&self) -> usize {
        self.staging.iter().flatten().map(|stage| stage.memory.len()).sum()
    }

    fn range_begin(&mut self, name: &str) {
        nvtx::begin(name);
    }

    fn range_end(&mut self) {
        nvtx::end();
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        self.capturing = None;
        // The staging memory must outlive the copies; an error here was or will be met elsewhere.
        if self.stream.is_owned() {
            let _ = self.stream.synchronize(Wait::Block);
        } else {
            // The stream may have been destroyed; what was queued on it goes on to its end.
            self.staging.iter().flatten().for_each(|stage| _ = stage.done.wait(Wait::Block));
        }
    }
}
