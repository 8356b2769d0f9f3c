//! A thread that does one job at a time for its owner: the job moves there and comes back when it is done.
//!
//! Nothing is lent: an owner that forgets a job leaves it with the runner, so nothing that a job holds can be freed or
//! written while it is still used. A job that panics comes back like any other, with what it panicked with.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;

use crate::sync::{Arc, Condvar, JoinHandle, Mutex, MutexGuard, spawn};

/// A job that is done: itself, and what came of it or what it panicked with.
pub(crate) struct Done<J, R> {
    pub(crate) job: J,
    pub(crate) result: std::thread::Result<R>,
}

enum Slot<J, R> {
    Empty,
    Job(J),
    Running,
    Done(Done<J, R>),
    Quit,
}

struct Desk<J, R> {
    slot: Mutex<Slot<J, R>>,
    changed: Condvar,
}

impl<J, R> Desk<J, R> {
    fn lock(&self) -> MutexGuard<'_, Slot<J, R>> {
        // Whoever panicked with the lock left a whole slot: it is only ever replaced.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the slot is one that `wanted` takes.
    fn wait(&self, wanted: impl Fn(&Slot<J, R>) -> bool) -> MutexGuard<'_, Slot<J, R>> {
        let slot = self.lock();
        self.changed.wait_while(slot, |slot| !wanted(slot)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something else into the slot; what was there is dropped without the lock.
    fn put(&self, new: Slot<J, R>) {
        let old = std::mem::replace(&mut *self.lock(), new);
        self.changed.notify_all();
        drop(old);
    }

    fn serve(&self, work: fn(&mut J) -> R) {
        loop {
            let mut slot = self.wait(|slot| matches!(slot, Slot::Job(_) | Slot::Quit));
            let Slot::Job(mut job) = std::mem::replace(&mut *slot, Slot::Running) else {
                return;
            };
            drop(slot);
            // Whatever happens the job goes back: its owner waits for it.
            let result = catch_unwind(AssertUnwindSafe(|| work(&mut job)));
            self.put(Slot::Done(Done { job, result }));
        }
    }
}

/// The thread, asleep while there is nothing to do. Dropping it waits for what is under way.
pub(crate) struct Runner<J, R> {
    desk: Arc<Desk<J, R>>,
    thread: Option<JoinHandle<()>>,
}

impl<J, R> fmt::Debug for Runner<J, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl<J: Send + 'static, R: Send + 'static> Runner<J, R> {
    /// A runner that does this with every job.
    pub(crate) fn start(name: &str, work: fn(&mut J) -> R) -> std::io::Result<Runner<J, R>> {
        let desk = Arc::new(Desk { slot: Mutex::new(Slot::Empty), changed: Condvar::new() });
        let its = desk.clone();
        let thread = spawn(name, move || its.serve(work))?;
        Ok(Runner { desk, thread: Some(thread) })
    }
}

impl<J, R> Runner<J, R> {
    /// Starts a job; the one before must have been taken back.
    pub(crate) fn begin(&self, job: J) {
        self.desk.put(Slot::Job(job));
    }

    /// Waits for the job that is under way; `None` when there is none.
    pub(crate) fn take_back(&self) -> Option<Done<J, R>> {
        let mut slot = self.desk.wait(|slot| !matches!(slot, Slot::Job(_) | Slot::Running));
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Done(done) => Some(done),
            Slot::Empty | Slot::Job(_) | Slot::Running | Slot::Quit => None,
        }
    }

    /// Whether `take_back` would return at once.
    pub(crate) fn is_done(&self) -> bool {
        !matches!(*self.desk.lock(), Slot::Job(_) | Slot::Running)
    }
}

impl<J, R> Drop for Runner<J, R> {
    fn drop(&mut self) {
        drop(self.take_back());
        self.desk.put(Slot::Quit);
        if let Some(thread) = self.thread.take() {
            // It ends by returning; were it to panic, there is nothing to add here.
            let _ = thread.join();
        }
    }
}
