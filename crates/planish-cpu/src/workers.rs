//! The process's one thread pool, for forks that last microseconds.
//!
//! A fork lives on its caller's stack. The caller claims workers that are idle, works itself, takes back the
//! workers that have not begun when the tasks run out, and waits only for those inside a task. So a worker that
//! the system does not schedule, or that does not exist any more after `fork(2)`, delays nobody.
//!
//! A worker spins for the next fork for at most 50 µs and then parks. Nothing is allocated per fork.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{OnceLock, PoisonError};

use crate::sync::{
    AtomicPtr, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Patience, Thread, park, spawn_for_good,
};
use crate::team::Task;

/// More workers than this are never started.
pub(crate) const MAX_WORKERS: usize = 127;

/// A worker's word: how many forks it has finished, and one of the states below in the low bits.
///
/// One word, so that finishing and being free again are one step: the caller that sees the end can claim the
/// worker for its next fork at once.
const STATES: u64 = 7;
const ONE_MORE: u64 = 8;
/// Spinning, free to be claimed.
const IDLE: u64 = 0;
/// Asleep, free to be claimed.
const PARKED: u64 = 1;
/// Belongs to a caller who is writing down the fork.
const CLAIMED: u64 = 2;
/// The fork is there; the worker may begin, the caller may take it back.
const ASSIGNED: u64 = 3;
/// Inside a fork; the caller waits.
const RUNNING: u64 = 4;

/// What a worker and its callers share. Alone on its cache lines: others spin on theirs.
#[repr(align(128))]
#[derive(Debug)]
struct Worker {
    word: AtomicU64,
    fork: AtomicPtr<Fork<'static>>,
    slot: AtomicUsize,
    /// Callers that sleep, or are about to, until the worker has finished. A count and no flag: a caller that is slow
    /// to wake is still in here when the next one has claimed the worker and waits for it too.
    n_waiting: AtomicUsize,
    sleep: Mutex<()>,
    finished: Condvar,
    thread: OnceLock<Thread>,
}

/// Ranges of tasks that a fork is cut into at most; with more threads several begin in one range.
const MAX_RANGES: usize = 16;

/// Alone on its cache line: its owner counts it up.
#[repr(align(64))]
struct Counter(AtomicUsize);

/// One fork: its tasks in as many ranges of neighbours as threads may come. A thread takes the tasks of its own
/// range one by one, then those that are left in others. So a thread works on the same part of the images in
/// step after step, and finds in its own cache what it wrote there, and whoever comes late costs nothing.
struct Fork<'a> {
    /// The next task of each range.
    next: [Counter; MAX_RANGES],
    n_ranges: usize,
    n_tasks: usize,
    work: &'a (dyn Fn(Task) + Sync),
    /// Of the first task that panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<'a> Fork<'a> {
    fn new(n_threads: usize, n_tasks: usize, work: &'a (dyn Fn(Task) + Sync)) -> Fork<'a> {
        let n_ranges = n_threads.min(n_tasks).clamp(1, MAX_RANGES);
        let first = |range: usize| Counter(AtomicUsize::new(n_tasks * range / n_ranges));
        Fork { next: std::array::from_fn(first), n_ranges, n_tasks, work, panic: Mutex::new(None) }
    }

    /// Takes tasks until none is left. A panic is kept for the caller and ends the fork early.
    fn take_part(&self, slot: usize) {
        let tasks = || {
            for offset in 0..self.n_ranges {
                let range = (slot + offset) % self.n_ranges;
                let end = self.n_tasks * (range + 1) / self.n_ranges;
                loop {
                    let idx = self.next[range].0.fetch_add(1, SeqCst);
                    if idx >= end {
                        break;
                    }
                    (self.work)(Task { idx, slot });
                }
            }
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(tasks)) {
            self.next.iter().for_each(|next| next.0.store(self.n_tasks, SeqCst));
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

/// The guard, whatever happened to others: the data is valid after any panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Workers that any thread of the process may fork onto.
#[derive(Debug)]
pub(crate) struct Pool {
    workers: Vec<Worker>,
}

impl Pool {
    /// The process's pool: with the caller, as many threads as affinity and cgroup quota allow. Its workers are
    /// started on first use.
    pub(crate) fn of_process() -> &'static Pool {
        static POOL: OnceLock<&'static Pool> = OnceLock::new();
        POOL.get_or_init(|| {
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
            Pool::start(threads - 1)
        })
    }

    /// A pool that lives as long as the process. Has fewer workers where the system gives no more threads.
    pub(crate) fn start(n_workers: usize) -> &'static Pool {
        let workers = (0..n_workers.min(MAX_WORKERS)).map(|_| Worker {
            // Claimed by nobody: not to be had until its thread runs.
            word: AtomicU64::new(CLAIMED),
            fork: AtomicPtr::new(std::ptr::null_mut()),
            slot: AtomicUsize::new(0),
            n_waiting: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            finished: Condvar::new(),
            thread: OnceLock::new(),
        });
        let pool: &'static Pool = Box::leak(Box::new(Pool { workers: workers.collect() }));
        for (idx, worker) in pool.workers.iter().enumerate() {
            // Without a thread the worker stays claimed, so nobody ever counts on it.
            if let Some(thread) = spawn_for_good(format!("planish-{idx}"), || worker.serve()) {
                let _ = worker.thread.set(thread);
                worker.word.store(IDLE, SeqCst);
            }
        }
        pool
    }

    pub(crate) fn n_workers(&self) -> usize {
        self.workers.len()
    }

    /// Runs `work` for every task below `n_tasks`, on the caller and on up to `n_helpers` idle workers. Looks for
    /// them from worker `first` on, so that a caller meets the same ones again.
    ///
    /// A panic of a task is raised again here once every thread has left the fork.
    pub(crate) fn fork(&self, n_helpers: usize, first: usize, n_tasks: usize, work: &(dyn Fn(Task) + Sync)) {
        let n_helpers = n_helpers.min(n_tasks - 1);
        let fork = Fork::new(n_helpers + 1, n_tasks, work);
        let mut helpers = Helpers { pool: self, claimed: [(0, 0); MAX_WORKERS], n: 0 };
        helpers.claim(&fork, n_helpers, first);
        fork.take_part(0);
        drop(helpers);
        if let Some(payload) = fork.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }
}

/// The workers that a fork has claimed; dropping it takes them back or waits for them.
struct Helpers<'a> {
    pool: &'a Pool,
    /// Index of the worker, and its word while assigned.
    claimed: [(u8, u64); MAX_WORKERS],
    n: usize,
}

impl Helpers<'_> {
    fn claim(&mut self, fork: &Fork<'_>, most: usize, first: usize) {
        let n_workers = self.pool.workers.len();
        // Those that spin answer within a fraction of a microsecond; waking one costs several.
        for free in [IDLE, PARKED] {
            for offset in 0..n_workers {
                if self.n >= most {
                    return;
                }
                let idx = (first + offset) % n_workers;
                let worker = &self.pool.workers[idx];
                let word = worker.word.load(SeqCst);
                let claimed = word & !STATES | CLAIMED;
                if word & STATES != free
                    || worker.word.compare_exchange(word, claimed, SeqCst, SeqCst).is_err()
                {
                    continue;
                }
                worker.fork.store(std::ptr::from_ref(fork).cast_mut().cast(), SeqCst);
                worker.slot.store(self.n + 1, SeqCst);
                let assigned = word & !STATES | ASSIGNED;
                worker.word.store(assigned, SeqCst);
                if let (PARKED, Some(thread)) = (free, worker.thread.get()) {
                    thread.unpark();
                }
                self.claimed[self.n] = (idx as u8, assigned);
                self.n += 1;
            }
        }
    }
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        for &(idx, assigned) in &self.claimed[..self.n] {
            let worker = &self.pool.workers[usize::from(idx)];
            let idle = assigned & !STATES | IDLE;
            if worker.word.compare_exchange(assigned, idle, SeqCst, SeqCst).is_err() {
                worker.wait_while(assigned & !STATES | RUNNING);
            }
        }
    }
}

impl Worker {
    /// A worker's life.
    fn serve(&self) {
        loop {
            let word = self.wait_for_fork();
            let running = word & !STATES | RUNNING;
            if self.word.compare_exchange(word, running, SeqCst, SeqCst).is_err() {
                continue;
            }
            // SAFETY: while the word says running, the caller keeps the fork alive and waits.
            let fork = unsafe { &*self.fork.load(SeqCst) };
            fork.take_part(self.slot.load(SeqCst));
            // From here the fork may be gone.
            self.word.store((word & !STATES).wrapping_add(ONE_MORE) | IDLE, SeqCst);
            if self.n_waiting.load(SeqCst) > 0 {
                let _guard = lock(&self.sleep);
                self.finished.notify_all();
            }
        }
    }

    /// The word once it says assigned: spins for a while, then parks.
    fn wait_for_fork(&self) -> u64 {
        let mut patience = Patience::default();
        loop {
            let word = self.word.load(SeqCst);
            if word & STATES == ASSIGNED {
                return word;
            }
            if patience.lasts() {
                continue;
            }
            let parked = word & !STATES | PARKED;
            if word & STATES == IDLE && self.word.compare_exchange(word, parked, SeqCst, SeqCst).is_ok() {
                while self.word.load(SeqCst) == parked {
                    park();
                }
                patience = Patience::default();
            }
        }
    }

    /// Returns once the word is another: spins for a while, then sleeps, so that a worker that lost its core
    /// inside a task can have this one.
    fn wait_while(&self, running: u64) {
        let mut patience = Patience::default();
        loop {
            if self.word.load(SeqCst) != running {
                return;
            }
            if !patience.lasts() {
                break;
            }
        }
        self.n_waiting.fetch_add(1, SeqCst);
        let mut guard = lock(&self.sleep);
        while self.word.load(SeqCst) == running {
            guard = self.finished.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.n_waiting.fetch_sub(1, SeqCst);
    }
}
