//! A context's own thread for `run_async`: the run and its buffers move there and come back when it is done.
//!
//! Nothing is lent: a handle that is forgotten instead of dropped leaves the buffers with the runner, so no
//! memory can be freed or written while a run still uses it.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::buffer::Bindings;
use crate::context::Context;
use crate::error::{RunError, RunErrorKind};
use crate::frame::Watch;
use crate::state::State;

/// What comes back from a run.
pub(crate) struct Done {
    pub(crate) state: Box<State>,
    pub(crate) bindings: Bindings,
    pub(crate) result: Result<(), RunError>,
}

enum Slot {
    Empty,
    Job(Box<State>, Bindings),
    Running,
    Done(Done),
    Quit,
}

struct Desk {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Slot> {
        // Whoever panicked with the lock left a whole slot: it is only ever replaced.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the slot is one that `wanted` takes.
    fn wait(&self, wanted: impl Fn(&Slot) -> bool) -> MutexGuard<'_, Slot> {
        let slot = self.lock();
        self.changed.wait_while(slot, |slot| !wanted(slot)).unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        loop {
            let mut slot = self.wait(|slot| matches!(slot, Slot::Job(..) | Slot::Quit));
            let Slot::Job(mut state, mut bindings) = std::mem::replace(&mut *slot, Slot::Running) else {
                return;
            };
            drop(slot);
            // Panics of kernels are errors already.
            let result = state.run_bound(&mut bindings, Watch::default());
            *self.lock() = Slot::Done(Done { state, bindings, result });
            self.changed.notify_all();
        }
    }
}

/// The thread, asleep while there is nothing to run.
pub(crate) struct Runner {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl Runner {
    pub(crate) fn start() -> Result<Runner, RunError> {
        let desk = Arc::new(Desk { slot: Mutex::new(Slot::Empty), changed: Condvar::new() });
        let its = desk.clone();
        let thread = std::thread::Builder::new().name("planish-run".into()).spawn(move || its.serve());
        let thread = thread.map_err(|error| {
            RunError::new(RunErrorKind::Failed, format!("the system gives no thread to run on: {error}"))
        })?;
        Ok(Runner { desk, thread: Some(thread) })
    }

    /// Starts a run; the one before must have been taken back.
    pub(crate) fn start_run(&self, state: Box<State>, bindings: Bindings) {
        *self.desk.lock() = Slot::Job(state, bindings);
        self.desk.changed.notify_all();
    }

    /// Waits for the run that is under way; `None` when there is none.
    pub(crate) fn take_back(&self) -> Option<Done> {
        let mut slot = self.desk.wait(|slot| !matches!(slot, Slot::Job(..) | Slot::Running));
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Done(done) => Some(done),
            Slot::Empty | Slot::Job(..) | Slot::Running | Slot::Quit => None,
        }
    }

    fn is_done(&self) -> bool {
        !matches!(*self.desk.lock(), Slot::Job(..) | Slot::Running)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.take_back());
        *self.desk.lock() = Slot::Quit;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends by returning; were it to panic, there is nothing to add here.
            let _ = thread.join();
        }
    }
}

/// A run under way. Dropping it waits.
#[derive(Debug)]
#[must_use = "dropping it waits for the run and drops the buffers"]
pub struct Pending<'a> {
    pub(crate) context: &'a mut Context,
}

impl Pending<'_> {
    /// Waits for the run and gives the buffers back; errors of the run surface here.
    pub fn wait(self) -> Result<Bindings, RunError> {
        let (bindings, result) = self.wait_with_buffers();
        result.map(|()| bindings)
    }

    /// Waits for the run and gives the buffers back whether it succeeded or not.
    pub fn wait_with_buffers(self) -> (Bindings, Result<(), RunError>) {
        self.context.finish()
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.context.runner.as_ref().is_none_or(Runner::is_done)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.context.state.is_none() {
            drop(self.context.finish());
        }
    }
}
