//! Fork and join: a kernel cuts its work into tasks, a team of threads takes them in turn.
//!
//! The number of tasks and what each computes belongs to the kernel, never to the number of threads, so
//! results are the same bits on any team.

/// The threads that take part in a run: the caller, and idle workers of the process's pool.
#[derive(Debug)]
pub struct Team {
    n_slots: usize,
}

/// One task of a fork, and the slot of the thread that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub idx: usize,
    /// Below [`Team::n_slots`]; no two threads that run at once share a slot. Scratch memory is per slot.
    pub slot: usize,
}

impl Team {
    /// The calling thread alone.
    pub fn alone() -> Team {
        Team { n_slots: 1 }
    }

    /// The calling thread and up to `n_threads - 1` idle workers.
    pub fn new(n_threads: usize) -> Team {
        Team { n_slots: n_threads.max(1) }
    }

    /// The most threads that can take part; scratch is needed this many times.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// Runs `work` once for every task below `n_tasks`, in any order, and returns when all are done.
    pub fn for_each(&self, n_tasks: usize, work: &(dyn Fn(Task) + Sync)) {
        for idx in 0..n_tasks {
            work(Task { idx, slot: 0 });
        }
    }
}
