//! The fake device's memory, streams, events, captured graphs and pinned memory.
//!
//! A stream is a thread; work on it begins late, so that whoever forgets to wait reads what is not there yet. Copies
//! from and to pinned memory touch that memory when the stream gets there, and refuse memory that is not pinned.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use planish_kernel::{Address, CapturedGraph, Event, KernelError, KernelErrorKind, Memory, Queue};

/// How late a queue begins each piece of work.
const DELAY: Duration = Duration::from_micros(300);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn failed(message: impl Into<String>) -> KernelError {
    KernelError::new(KernelErrorKind::Failed, message)
}

/// The device's memory: allocations by their first address.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    pub(crate) next: AtomicU64,
    /// Pinned host memory: first addresses and lengths.
    pub(crate) pinned: Mutex<BTreeSet<(usize, usize)>>,
    /// Work done on each queue, counted over all queues.
    pub(crate) n_done: AtomicUsize,
    /// Kernels launched outside captured graphs, captured graphs made and replayed, copies from and to the host.
    pub(crate) n_launches: AtomicUsize,
    pub(crate) n_recorded: AtomicUsize,
    pub(crate) n_replayed: AtomicUsize,
    pub(crate) n_copies: AtomicUsize,
    /// Bytes of each piece of managed memory that was asked for; `None` where there is no such memory.
    pub(crate) managed: Mutex<Option<Vec<usize>>>,
    /// Named ranges as they were begun, each with how many were open already.
    pub(crate) ranges: Mutex<(usize, Vec<(usize, String)>)>,
    /// Whoever holds it keeps queues from beginning their next piece of work.
    pub(crate) gate: Mutex<()>,
    /// Captured graphs that were begun and not ended.
    pub(crate) n_capturing: AtomicUsize,
    /// Launches left until one panics; none does while it is zero.
    pub(crate) until_panic: AtomicUsize,
    /// Whether waiting for a queue panics.
    pub(crate) panics_in_waits: AtomicBool,
    /// Whether the device is gone.
    pub(crate) is_lost: AtomicBool,
    /// Whether branches of a captured graph forget what they were to wait for: a race.
    pub(crate) forgets_waits: AtomicBool,
    /// The device's own clock: what its work takes by design, however busy the machine is.
    clock_ns: AtomicU64,
}

impl Table {
    fn with<T>(
        &self,
        address: Address,
        n_bytes: usize,
        act: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, KernelError> {
        let mut blocks = lock(&self.blocks);
        let outside = || failed(format!("{n_bytes} bytes at {:x} are no memory of this device", address.0));
        let (start, block) = blocks.range_mut(..=address.0).next_back().ok_or_else(outside)?;
        let offset = (address.0 - start) as usize;
        let range = offset..offset.checked_add(n_bytes).ok_or_else(outside)?;
        block.get_mut(range).map(act).ok_or_else(outside)
    }

    /// Takes its time, on the device's clock and ours.
    pub(crate) fn spend(&self, time: Duration) {
        std::thread::sleep(time);
        self.clock_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn check_pinned(&self, start: usize, n_bytes: usize) -> Result<(), KernelError> {
        let inside = |&(first, len): &(usize, usize)| first <= start && start + n_bytes <= first + len;
        match n_bytes == 0 || lock(&self.pinned).iter().any(inside) {
            true => Ok(()),
            false => Err(failed(format!("{n_bytes} bytes at {start:x} are not pinned"))),
        }
    }

    pub(crate) fn read(&self, address: Address, n_bytes: usize) -> Result<Vec<u8>, KernelError> {
        if n_bytes == 0 { Ok(Vec::new()) } else { self.with(address, n_bytes, |bytes| bytes.to_vec()) }
    }

    pub(crate) fn write(&self, address: Address, from: &[u8]) -> Result<(), KernelError> {
        if from.is_empty() {
            Ok(())
        } else {
            self.with(address, from.len(), |bytes| bytes.copy_from_slice(from))
        }
    }
}

#[derive(Debug)]
pub(crate) struct FakeMemory {
    pub(crate) table: Arc<Table>,
    pub(crate) start: u64,
    pub(crate) len: usize,
}

impl Memory for FakeMemory {
    fn address(&self) -> Address {
        Address(self.start)
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        lock(&self.table.blocks).remove(&self.start);
    }
}

/// Pinned host memory: ordinary memory that the device knows of.
#[derive(Debug)]
pub(crate) struct FakePinned {
    table: Arc<Table>,
    lines: Vec<[u64; 8]>,
    start: usize,
    len: usize,
}

impl FakePinned {
    pub(crate) fn new(table: Arc<Table>, len: usize) -> FakePinned {
        // One line more, so that it can begin at a multiple of 64.
        let mut lines = vec![[0u64; 8]; len.div_ceil(64) + 1];
        let start = lines.as_mut_ptr().expose_provenance().next_multiple_of(64);
        lock(&table.pinned).insert((start, len));
        FakePinned { table, lines, start, len }
    }
}

impl Memory for FakePinned {
    fn address(&self) -> Address {
        Address(self.start as u64)
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for FakePinned {
    fn drop(&mut self) {
        debug_assert!(self.lines.len() > self.len / 64);
        lock(&self.table.pinned).remove(&(self.start, self.len));
    }
}

type Work = Arc<dyn Fn(&Table) -> Result<(), KernelError> + Send + Sync>;

/// A stream's end to put work in; several queues may share one stream.
#[derive(Debug)]
pub(crate) struct FakeQueue {
    table: Arc<Table>,
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
    error: Arc<Mutex<Option<KernelError>>>,
    captured: Option<Captured>,
}

/// A captured graph in the making: pieces of work, each with those that it comes after.
#[derive(Clone, Default)]
struct Captured {
    work: Arc<Mutex<Graph>>,
    /// What the next piece of this queue comes after.
    tail: Vec<usize>,
    /// Whether another queue began it.
    is_branch: bool,
}

#[derive(Default)]
struct Graph {
    pieces: Vec<(Work, Vec<usize>)>,
    is_ended: bool,
}

impl std::fmt::Debug for Captured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pieces of work", lock(&self.work).pieces.len())
    }
}

impl Captured {
    /// Whether everything that was captured comes before what this queue is at.
    fn is_joined(&self) -> bool {
        let graph = lock(&self.work);
        let mut seen = vec![false; graph.pieces.len()];
        let mut open = self.tail.clone();
        while let Some(piece) = open.pop() {
            if !std::mem::replace(&mut seen[piece], true) {
                open.extend(&graph.pieces[piece].1);
            }
        }
        seen.into_iter().all(|seen| seen)
    }
}

/// Pieces in the order in which they are done: of all that could be next always the last, so that an order that was
/// not asked for is seldom kept.
struct FakeGraph(Vec<Work>);

impl std::fmt::Debug for FakeGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pieces of work", self.0.len())
    }
}

impl FakeGraph {
    fn new(pieces: &[(Work, Vec<usize>)]) -> FakeGraph {
        let mut done = vec![false; pieces.len()];
        let mut order = Vec::new();
        let is_next =
            |at: &usize, done: &[bool]| !done[*at] && pieces[*at].1.iter().all(|&before| done[before]);
        while let Some(at) = (0..pieces.len()).rev().find(|at| is_next(at, &done)) {
            done[at] = true;
            order.push(pieces[at].0.clone());
        }
        FakeGraph(order)
    }
}

impl CapturedGraph for FakeGraph {
    fn bytes(&self) -> usize {
        64 * self.0.len()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// How often an event was captured and reached, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached {
    state: Arc<(Mutex<Moments>, Condvar)>,
    /// The place in a captured graph, where it was captured in one.
    captured: Arc<Mutex<Option<Captured>>>,
}

#[derive(Debug, Default)]
struct Moments {
    n_recorded: u64,
    n_reached: u64,
    at_ns: Option<u64>,
}

impl Reached {
    /// Waits until it is reached as often as it was captured by now.
    fn wait_for(&self, n: u64) {
        let mut moments = lock(&self.state.0);
        while moments.n_reached < n {
            moments = self.state.1.wait(moments).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn n_recorded(&self) -> u64 {
        lock(&self.state.0).n_recorded
    }
}

impl Event for Reached {
    fn is_reached(&self) -> Result<bool, KernelError> {
        let moments = lock(&self.state.0);
        Ok(moments.n_reached >= moments.n_recorded)
    }

    fn wait(&self) -> Result<(), KernelError> {
        self.wait_for(self.n_recorded());
        Ok(())
    }

    fn ns_since(&self, earlier: &dyn Event) -> Result<f64, KernelError> {
        let earlier = earlier.as_any().downcast_ref::<Reached>().ok_or_else(|| failed("a foreign event"))?;
        if !self.is_reached()? || !earlier.is_reached()? {
            return Err(failed("a time was asked for before the queue got there"));
        }
        let at = |event: &Reached| {
            lock(&event.state.0).at_ns.ok_or_else(|| failed("an event that was not recorded"))
        };
        Ok(at(self)?.saturating_sub(at(earlier)?) as f64)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FakeQueue {
    pub(crate) fn new(table: Arc<Table>) -> FakeQueue {
        let (work, orders) = channel::<Work>();
        let error = Arc::new(Mutex::new(None));
        let (shared, seen) = (table.clone(), error.clone());
        let thread = std::thread::spawn(move || {
            for work in orders {
                shared.spend(DELAY);
                drop(lock(&shared.gate));
                // Before the work, which may be to wake whoever waits for it and counts.
                shared.n_done.fetch_add(1, Ordering::Relaxed);
                if let Err(error) = work(&shared) {
                    lock(&seen).get_or_insert(error);
                }
            }
        });
        FakeQueue { table, work: Some(work), thread: Some(thread), error, captured: None }
    }

    /// Another queue over the same stream.
    pub(crate) fn sharing(&self) -> FakeQueue {
        FakeQueue {
            table: self.table.clone(),
            work: self.work.clone(),
            thread: None,
            error: self.error.clone(),
            captured: None,
        }
    }

    /// Puts work at the end, or into the captured graph that is being made.
    pub(crate) fn push(
        &mut self,
        work: impl Fn(&Table) -> Result<(), KernelError> + Send + Sync + 'static,
    ) -> Result<(), KernelError> {
        let work: Work = Arc::new(work);
        match self.capturing() {
            Some(captured) => {
                let mut graph = lock(&captured.work);
                let after = std::mem::replace(&mut captured.tail, vec![graph.pieces.len()]);
                graph.pieces.push((work, after));
                Ok(())
            }
            None => self.send(work),
        }
    }

    /// The graph that this queue is a part of: until it ends, also where another queue began it.
    fn capturing(&mut self) -> Option<&mut Captured> {
        if self.captured.as_ref().is_some_and(|captured| lock(&captured.work).is_ended) {
            self.captured = None;
        }
        self.captured.as_mut()
    }

    fn send(&self, work: Work) -> Result<(), KernelError> {
        if self.table.is_lost.load(Ordering::Relaxed) {
            return Err(KernelError::new(KernelErrorKind::DeviceLost, "the fake device is lost"));
        }
        let queue = self.work.as_ref().ok_or_else(|| failed("the queue is closed"))?;
        queue.send(work).map_err(|_| failed("the queue's thread is gone"))
    }

    pub(crate) fn count_launch(&mut self) {
        let left = self.table.until_panic.load(Ordering::Relaxed);
        self.table.until_panic.store(left.saturating_sub(1), Ordering::Relaxed);
        assert!(left != 1, "a launch that breaks");
        if self.capturing().is_none() {
            self.table.n_launches.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn not_while_capturing(&mut self) -> Result<(), KernelError> {
        match self.capturing() {
            Some(_) => Err(failed("not while a captured graph is made")),
            None => Ok(()),
        }
    }
}

impl Drop for FakeQueue {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Queue for FakeQueue {
    unsafe fn upload(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        self.not_while_capturing()?;
        self.table.n_copies.fetch_add(1, Ordering::Relaxed);
        let bytes = from.to_vec();
        self.push(move |table| table.write(to, &bytes))
    }

    unsafe fn download(&mut self, to: &mut [u8], from: Address) -> Result<(), KernelError> {
        self.synchronize()?;
        self.table.n_copies.fetch_add(1, Ordering::Relaxed);
        to.copy_from_slice(&self.table.read(from, to.len())?);
        Ok(())
    }

    unsafe fn upload_pinned(&mut self, to: Address, from: &[u8]) -> Result<(), KernelError> {
        self.table.n_copies.fetch_add(1, Ordering::Relaxed);
        let (start, n_bytes) = (from.as_ptr().expose_provenance(), from.len());
        self.table.check_pinned(start, n_bytes)?;
        self.push(move |table| {
            table.check_pinned(start, n_bytes)?;
            // SAFETY: pinned memory of this length is there, and the caller leaves it alone until now.
            let bytes =
                unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(start), n_bytes) };
            table.write(to, bytes)
        })
    }

    unsafe fn download_pinned(&mut self, to: *mut [u8], from: Address) -> Result<(), KernelError> {
        self.table.n_copies.fetch_add(1, Ordering::Relaxed);
        let (start, bytes) = (to.cast::<u8>().expose_provenance(), to.len());
        self.table.check_pinned(start, bytes)?;
        self.push(move |table| {
            table.check_pinned(start, bytes)?;
            let read = table.read(from, bytes)?;
            // SAFETY: as above.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    read.as_ptr(),
                    std::ptr::with_exposed_provenance_mut(start),
                    bytes,
                );
            }
            Ok(())
        })
    }

    unsafe fn copy(&mut self, to: Address, from: Address, bytes: usize) -> Result<(), KernelError> {
        self.push(move |table| table.write(to, &table.read(from, bytes)?))
    }

    fn synchronize(&mut self) -> Result<(), KernelError> {
        self.not_while_capturing()?;
        assert!(!self.table.panics_in_waits.load(Ordering::Relaxed), "a driver that breaks");
        let here = self.record()?;
        here.wait()?;
        lock(&self.error).take().map_or(Ok(()), Err)
    }

    fn record(&mut self) -> Result<Box<dyn Event>, KernelError> {
        let here = Reached::default();
        self.record_at(&here)?;
        Ok(Box::new(here))
    }

    fn record_at(&mut self, event: &dyn Event) -> Result<(), KernelError> {
        let event = event.as_any().downcast_ref::<Reached>();
        let event = event.ok_or_else(|| failed("an event of another backend"))?.clone();
        *lock(&event.captured) = self.capturing().cloned();
        if lock(&event.captured).is_some() {
            return Ok(());
        }
        let n = {
            let mut moments = lock(&event.state.0);
            moments.n_recorded += 1;
            moments.n_recorded
        };
        self.push(move |table| {
            let mut moments = lock(&event.state.0);
            moments.n_reached = moments.n_reached.max(n);
            moments.at_ns = Some(table.clock_ns.load(Ordering::Relaxed));
            event.state.1.notify_all();
            Ok(())
        })
    }

    fn wait_for(&mut self, event: &dyn Event) -> Result<(), KernelError> {
        let event = event.as_any().downcast_ref::<Reached>();
        let event = event.ok_or_else(|| failed("an event of another backend"))?.clone();
        // One that has ended since is none.
        self.capturing();
        if let Some(there) = &*lock(&event.captured) {
            let captured = self.captured.get_or_insert_with(|| Captured {
                tail: Vec::new(),
                is_branch: true,
                ..there.clone()
            });
            if !(captured.is_branch && self.table.forgets_waits.load(Ordering::Relaxed)) {
                captured.tail.extend(&there.tail);
            }
            return Ok(());
        }
        let n = event.n_recorded();
        self.push(move |_| {
            event.wait_for(n);
            Ok(())
        })
    }

    fn can_capture(&self) -> bool {
        true
    }

    fn begin_capture(&mut self) -> Result<(), KernelError> {
        self.not_while_capturing()?;
        self.captured = Some(Captured::default());
        self.table.n_capturing.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Box<dyn CapturedGraph>, KernelError> {
        let captured = self.captured.take().ok_or_else(|| failed("no captured graph is being made"))?;
        self.table.n_capturing.fetch_sub(1, Ordering::Relaxed);
        let is_joined = captured.is_joined();
        let mut graph = lock(&captured.work);
        graph.is_ended = true;
        if !is_joined {
            return Err(failed("a branch was not joined"));
        }
        self.table.n_recorded.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(FakeGraph::new(&graph.pieces)))
    }

    unsafe fn replay(&mut self, graph: &dyn CapturedGraph) -> Result<(), KernelError> {
        let graph = graph.as_any().downcast_ref::<FakeGraph>();
        let graph = graph.ok_or_else(|| failed("a captured graph of another backend"))?;
        self.table.n_replayed.fetch_add(1, Ordering::Relaxed);
        graph.0.iter().try_for_each(|work| self.send(work.clone()))
    }

    fn range_begin(&mut self, name: &str) {
        let (n_open, begun) = &mut *lock(&self.table.ranges);
        begun.push((*n_open, name.to_string()));
        *n_open += 1;
    }

    fn range_end(&mut self) {
        lock(&self.table.ranges).0 -= 1;
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
