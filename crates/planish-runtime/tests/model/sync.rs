//! The names of `planish-cpu/src/sync.rs` and `planish-runtime/src/sync.rs` over shuttle: every operation is a place
//! where another thread may go on.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::thread::Builder;

pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use shuttle::thread::{JoinHandle, Thread};

/// The threads of this execution that would live as long as the process, and whether they are to end now.
#[derive(Default)]
struct ForGood {
    threads: Vec<Thread>,
    is_over: bool,
}

thread_local! {
    // All threads of an execution are coroutines of one thread of the system.
    static FOR_GOOD: RefCell<ForGood> = RefCell::default();
}

/// What unwinds such a thread at the end of an execution.
struct Over;

pub(crate) fn spawn_for_good(name: String, life: impl FnOnce() + Send + 'static) -> Option<Thread> {
    let until_over = move || {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(life))
            && !payload.is::<Over>()
        {
            resume_unwind(payload);
        }
    };
    let thread = Builder::new().name(name).spawn(until_over).ok()?.thread().clone();
    FOR_GOOD.with_borrow_mut(|all| all.threads.push(thread.clone()));
    Some(thread)
}

/// Sleeps until unparked; does not come back once the execution is over.
pub(crate) fn park() {
    let is_over = || FOR_GOOD.with_borrow(|all| all.is_over);
    if !is_over() {
        shuttle::thread::park();
    }
    if is_over() {
        resume_unwind(Box::new(Over));
    }
}

/// One execution: `test`, then the end of all threads that live for good. They must be idle by then.
pub(crate) fn execute(test: impl FnOnce()) {
    FOR_GOOD.with_borrow_mut(|all| *all = ForGood::default());
    test();
    FOR_GOOD.with_borrow_mut(|all| all.is_over = true);
    for thread in FOR_GOOD.with_borrow(|all| all.threads.clone()) {
        thread.unpark();
    }
}

pub(crate) fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_string()).spawn(life)
}

/// One look, then sleep: what happens while a thread spins is what happens when it looks late.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Of no meaning: a unit structure has no default to be made from.
    _private: (),
}

impl Patience {
    pub(crate) fn lasts(&mut self) -> bool {
        shuttle::thread::yield_now();
        false
    }
}
