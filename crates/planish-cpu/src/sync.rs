//! What the thread pool takes from the system: atomics, locks, threads, and how long a thread spins.
//!
//! `planish-runtime/tests/model` compiles `workers.rs` and `team.rs` against a module of the same names in which every
//! operation is a place where another thread may go on, and tries the orders in which threads can meet.

use std::time::{Duration, Instant};

pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, park};

use planish_tensor::DefaultFloatMode;

/// How long an idle worker, and a caller whose workers are still inside a task, spin before they sleep.
const SPIN: Duration = Duration::from_micros(50);
/// Pauses between two looks at the clock, about a microsecond.
const PAUSES: usize = 32;

/// Starts a thread that lives as long as the process; `None` where the system gives no more threads.
pub(crate) fn spawn_for_good(name: String, life: impl FnOnce() + Send + 'static) -> Option<Thread> {
    let life = || {
        // A thread starts in the floating-point mode of the one that starts it, whatever that is.
        let _mode = DefaultFloatMode::enter();
        life();
    };
    let handle = std::thread::Builder::new().name(name).spawn(life).ok()?;
    Some(handle.thread().clone())
}

/// What a thread that spins has left of its time.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    n_pauses: usize,
    since: Option<Instant>,
}

impl Patience {
    /// Pauses between two looks; false when it is time to sleep.
    pub(crate) fn lasts(&mut self) -> bool {
        self.n_pauses += 1;
        if !self.n_pauses.is_multiple_of(PAUSES) {
            std::hint::spin_loop();
            return true;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() < SPIN
    }
}
