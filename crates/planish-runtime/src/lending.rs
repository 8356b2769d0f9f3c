//! Things that any number of threads take in turn, each one thread's at a time.

use std::sync::PoisonError;

use crate::sync::{Condvar, Mutex, MutexGuard};

/// The things that are free.
pub(crate) struct Shelf<T> {
    free: Mutex<Vec<T>>,
    returned: Condvar,
}

impl<T> Shelf<T> {
    pub(crate) fn new(things: Vec<T>) -> Shelf<T> {
        Shelf { free: Mutex::new(things), returned: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // A poisoned lock only means that another thread panicked while it held it; the list is whole.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of them; waits until there is one.
    pub(crate) fn take(&self) -> T {
        let mut free = self.lock();
        loop {
            if let Some(thing) = free.pop() {
                return thing;
            }
            free = self.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One of them if there is one now.
    pub(crate) fn try_take(&self) -> Option<T> {
        self.lock().pop()
    }

    pub(crate) fn put_back(&self, thing: T) {
        self.lock().push(thing);
        self.returned.notify_one();
    }
}
