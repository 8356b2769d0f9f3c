//! Streams: frames from a source on a thread of its own, through a bounded queue, to a sink in order.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Item, NamedTensors, Session};
use crate::{Error, ErrorKind};

/// What happens to a frame that finds the queue full.
/// [`Session::stream`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// The source waits: nothing is dropped. For files.
    #[default]
    Wait,
    /// The frame that has waited longest makes room: the newest are run. For cameras.
    DropOldest,
    /// The new frame is dropped.
    DropNewest,
}

/// How a stream runs.
/// [`Session::stream`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamOptions {
    /// Frames that may wait between the source and the model, at least 1.
    pub queue: usize,
    /// What happens to more.
    pub when_full: WhenFull,
    /// How long after the source gave it a frame is worth something. One that is still waiting then is not run; one whose
    /// run ends later is delivered as late.
    pub deadline: Option<Duration>,
}

impl Default for StreamOptions {
    fn default() -> StreamOptions {
        StreamOptions { queue: 4, when_full: WhenFull::Wait, deadline: None }
    }
}

/// A frame that was run.
/// Given by [`Session::stream`], which has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Frame {
    /// Its number at the source, from 0: numbers of dropped frames are missing.
    pub number: u64,
    /// What the model made of it.
    pub outputs: NamedTensors,
    /// From the source to the end of its run.
    pub latency: Duration,
    /// Whether that is more than the deadline.
    pub is_late: bool,
}

/// What became of a stream's frames: `frames` is the sum of `delivered`, `dropped`, `expired` and what a sink that ended
/// the stream left in the queue.
/// Given by [`Session::stream`], which has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StreamReport {
    /// That the source gave.
    pub frames: u64,
    /// That were run and given to the sink.
    pub delivered: u64,
    /// That found the queue full, or made room in it.
    pub dropped: u64,
    /// Whose deadline was over before their turn came; they were not run.
    pub expired: u64,
    /// Of those delivered, how many were late.
    pub late: u64,
    /// The longest and the sum of all latencies of frames that were delivered.
    pub max_latency: Duration,
    /// Divided by `delivered`, the mean.
    pub total_latency: Duration,
}

impl Session {
    /// Runs the model on frames from a source until it ends or the sink breaks off, and gives each result to the sink in
    /// the order of the source. The source is read by a thread of its own: one that blocks (a camera) is waited for once
    /// more when the sink breaks off. The first error of a run ends the stream.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use std::ops::ControlFlow;
    /// use std::time::Duration;
    ///
    /// use planish::{Builder, Device, Engine, Session, StreamOptions, Tensor, WhenFull};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[2] %y: f32[2] = Neg(%x) output %y }"#;
    /// # let plan = Builder::from_graph(graph.parse()?).tune_level(0).threads(1).build()?;
    /// let mut session = Session::new(&Engine::new(plan, Device::Auto)?)?;
    /// let camera = (0..50).map(|idx| Tensor::vector(vec![idx as f32; 2]));
    /// let options = StreamOptions { deadline: Some(Duration::from_secs(60)), ..StreamOptions::default() };
    /// assert_eq!(options.when_full, WhenFull::Wait);                       // a camera would take DropOldest
    /// let mut numbers = Vec::new();
    /// let report = session.stream(camera, options, |frame| {
    ///     assert_eq!(frame.outputs.tensors()[0], Tensor::vector(vec![-(frame.number as f32); 2]));
    ///     numbers.push(frame.number);
    ///     ControlFlow::Continue(())                                        // Break(()) ends the stream
    /// })?;
    /// assert_eq!(numbers, Vec::from_iter(0..50));
    /// assert_eq!((report.frames, report.delivered, report.dropped, report.expired), (50, 50, 0, 0));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stream<S>(
        &mut self,
        source: S,
        options: StreamOptions,
        mut sink: impl FnMut(Frame) -> ControlFlow<()>,
    ) -> Result<StreamReport, Error>
    where
        S: IntoIterator,
        S::IntoIter: Send,
        S::Item: Item + Send,
    {
        if options.queue == 0 {
            let message = "a queue of 0 frames passes none on; give 1 or more";
            return Err(Error::new(ErrorKind::BadOption, message));
        }
        let mut source = source.into_iter();
        let queue = Queue::new(options);
        std::thread::scope(|scope| {
            let queue = &queue;
            // Whatever ends either side, a panic too, the other one must not wait for it.
            let _closes = Closes(queue);
            let reader = move || {
                let _closes = Closes(queue);
                while let Some(frame) = source.next()
                    && queue.push(frame)
                {}
            };
            let reader =
                std::thread::Builder::new().name("planish-frames".into()).spawn_scoped(scope, reader);
            reader.map_err(|error| {
                Error::new(ErrorKind::Failed, format!("the system gives no thread to read frames: {error}"))
            })?;
            let mut report = StreamReport::default();
            while let Some(waiting) = queue.take() {
                if options.deadline.is_some_and(|deadline| waiting.since.elapsed() > deadline) {
                    report.expired += 1;
                    continue;
                }
                let outputs = self
                    .infer(&waiting.frame)
                    .map_err(|error| error.within(format!("frame {}", waiting.number)))?;
                let latency = waiting.since.elapsed();
                let is_late = options.deadline.is_some_and(|deadline| latency > deadline);
                report.delivered += 1;
                report.late += u64::from(is_late);
                report.max_latency = report.max_latency.max(latency);
                report.total_latency += latency;
                if sink(Frame { number: waiting.number, outputs, latency, is_late }).is_break() {
                    break;
                }
            }
            queue.close();
            let state = queue.state();
            (report.frames, report.dropped) = (state.n_given, state.n_dropped);
            Ok(report)
        })
    }
}

/// A frame with its number, and when the source gave it.
struct Waiting<F> {
    frame: F,
    number: u64,
    since: Instant,
}

/// Frames between the source's thread and the caller's.
struct Queue<F> {
    options: StreamOptions,
    state: Mutex<State<F>>,
    changed: Condvar,
}

struct State<F> {
    waiting: VecDeque<Waiting<F>>,
    is_closed: bool,
    n_given: u64,
    n_dropped: u64,
}

/// Closes the queue when its side ends.
struct Closes<'a, F>(&'a Queue<F>);

impl<F> Drop for Closes<'_, F> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<F> Queue<F> {
    fn new(options: StreamOptions) -> Queue<F> {
        let state = State { waiting: VecDeque::new(), is_closed: false, n_given: 0, n_dropped: 0 };
        Queue { options, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// What a panic of the source or the sink left is whole: nothing of theirs runs under the lock.
    fn state(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a frame over; false when nobody takes frames any more.
    fn push(&self, frame: F) -> bool {
        let since = Instant::now();
        let mut state = self.state();
        let is_full = |state: &State<F>| state.waiting.len() >= self.options.queue && !state.is_closed;
        if is_full(&state) && self.options.when_full == WhenFull::Wait {
            let waited = self.changed.wait_while(state, |state| is_full(state));
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_closed {
            return false;
        }
        let number = state.n_given;
        state.n_given += 1;
        if is_full(&state) {
            state.n_dropped += 1;
            match self.options.when_full {
                WhenFull::DropNewest | WhenFull::Wait => return true,
                WhenFull::DropOldest => drop(state.waiting.pop_front()),
            }
        }
        state.waiting.push_back(Waiting { frame, number, since });
        self.changed.notify_all();
        true
    }

    /// The oldest frame; `None` when the source has ended and all are taken.
    fn take(&self) -> Option<Waiting<F>> {
        let is_idle = |state: &mut State<F>| state.waiting.is_empty() && !state.is_closed;
        let waited = self.changed.wait_while(self.state(), is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = state.waiting.pop_front();
        self.changed.notify_all();
        taken
    }

    fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(queue: usize, when_full: WhenFull) -> Queue<u32> {
        Queue::new(StreamOptions { queue, when_full, deadline: None })
    }

    fn numbers(queue: &Queue<u32>) -> Vec<u32> {
        queue.close();
        std::iter::from_fn(|| queue.take()).map(|waiting| waiting.frame).collect()
    }

    #[test]
    fn a_full_queue_drops_what_it_was_told_to() {
        for (when_full, left) in [(WhenFull::DropOldest, [3, 4]), (WhenFull::DropNewest, [0, 1])] {
            let queue = queue(2, when_full);
            assert!((0..5).all(|frame| queue.push(frame)));
            assert_eq!(queue.state().n_given, 5);
            assert_eq!(queue.state().n_dropped, 3);
            assert_eq!(numbers(&queue), left);
        }
    }

    #[test]
    fn a_source_that_waits_loses_nothing_and_ends_with_its_sink() {
        let queue = queue(1, WhenFull::Wait);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!((0..100).all(|frame| queue.push(frame)));
                // Nobody takes this one; closing ends the wait.
                queue.push(100);
                assert!(!queue.push(101));
            });
            let taken: Vec<u32> =
                (0..100).filter_map(|_| queue.take()).map(|waiting| waiting.frame).collect();
            assert_eq!(taken, Vec::from_iter(0..100));
            queue.close();
        });
    }
}
