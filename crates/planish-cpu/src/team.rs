//! Fork and join: a kernel cuts its work into tasks, a team of threads takes them in turn.
//!
//! The number of tasks and what each computes belongs to the kernel, never to the number of threads, so
//! results are the same bits on any team.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::workers::Pool;

/// The threads that take part in a run: the caller, and workers of the process's pool that happen to be idle.
///
/// A team serves one thread at a time: a task that wants to fork makes a team of its own, since slots of one
/// team must not be shared by two forks at once.
#[derive(Debug)]
pub struct Team {
    n_slots: usize,
    /// Where to look for idle workers, and from which one on.
    helpers: Option<(&'static Pool, usize)>,
    not_sync: PhantomData<Cell<()>>,
}

/// One task of a fork, and the slot of the thread that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub idx: usize,
    /// Below [`Team::n_slots`]; no two threads that run at once share a slot. Workspace is per slot.
    pub slot: usize,
}

impl Team {
    /// The calling thread alone.
    pub fn alone() -> Team {
        Team { n_slots: 1, helpers: None, not_sync: PhantomData }
    }

    /// The calling thread and up to `n_threads - 1` workers, no more than the machine has for this process. A
    /// fork takes those that are idle then and never waits for one that is busy.
    pub fn new(n_threads: usize) -> Team {
        if n_threads <= 1 { Team::alone() } else { Team::on(Pool::of_process(), n_threads) }
    }

    /// A team on a pool of its own, for tests of more threads than the machine has. The pool is never freed.
    #[cfg(test)]
    pub(crate) fn of_its_own(n_threads: usize) -> Team {
        Team::on(Pool::start(n_threads - 1), n_threads)
    }

    fn on(pool: &'static Pool, n_threads: usize) -> Team {
        /// Teams begin at different workers, so that several at once seldom meet.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n_slots = n_threads.min(pool.n_workers() + 1);
        if n_slots == 1 {
            return Team::alone();
        }
        let first = NEXT.fetch_add(n_slots - 1, Relaxed) % pool.n_workers();
        Team { n_slots, helpers: Some((pool, first)), not_sync: PhantomData }
    }

    /// The most threads that can take part; workspace is needed this many times.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// Runs `work` once for every task below `n_tasks`, in any order, and returns when all are done.
    ///
    /// # Panics
    /// When a task panics on any thread: the panic goes on here, after every thread has left. Tasks that had not
    /// begun are not run; the team can be used again.
    pub fn for_each(&self, n_tasks: usize, work: &(dyn Fn(Task) + Sync)) {
        match self.helpers {
            Some((pool, first)) if n_tasks > 1 => pool.fork(self.n_slots - 1, first, n_tasks, work),
            _ => {
                for idx in 0..n_tasks {
                    work(Task { idx, slot: 0 });
                }
            }
        }
    }
}
