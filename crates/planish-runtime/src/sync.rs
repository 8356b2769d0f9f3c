//! What the runner and the lent contexts take from the system: locks and threads.
//!
//! `tests/model` compiles `runner.rs` and `lending.rs` against a module of the same names in which every operation is
//! a place where another thread may go on, and tries the orders in which threads can meet.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::JoinHandle;

/// Starts a thread of this name.
pub(crate) fn spawn(name: &str, life: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_string()).spawn(life)
}
