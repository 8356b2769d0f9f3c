//! `ContextPool`: a few contexts, lent to any number of threads in turn.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::context::{Context, ContextOptions};
use crate::engine::Engine;
use crate::error::RunError;

/// Contexts of one engine that threads lease.
#[derive(Clone, Debug)]
pub struct ContextPool {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<Vec<Context>>,
    returned: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A context on loan; it goes back when dropped.
#[derive(Debug)]
pub struct Lease {
    context: Option<Context>,
    shared: Arc<Shared>,
}

impl ContextPool {
    pub(crate) fn new(
        engine: &Engine,
        n_contexts: usize,
        options: ContextOptions,
    ) -> Result<ContextPool, RunError> {
        let contexts = (0..n_contexts.max(1)).map(|_| engine.context_with(options));
        let free = contexts.collect::<Result<Vec<_>, _>>()?;
        Ok(ContextPool { shared: Arc::new(Shared { free: Mutex::new(free), returned: Condvar::new() }) })
    }

    /// A free context; waits until there is one.
    pub fn lease(&self) -> Lease {
        // A poisoned lock only means that another thread panicked while it held it; the list is whole.
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(context) = free.pop() {
                return Lease { context: Some(context), shared: self.shared.clone() };
            }
            free = self.shared.returned.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A free context if there is one now.
    pub fn try_lease(&self) -> Option<Lease> {
        let context = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Lease { context: Some(context), shared: self.shared.clone() })
    }
}

impl Deref for Lease {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.context.as_ref().expect("a lease holds its context until it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Context {
        self.context.as_mut().expect("a lease holds its context until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut context) = self.context.take() {
            // The next one to lease it knows nothing of this one's memory.
            context.unbind_outputs();
            self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).push(context);
            self.shared.returned.notify_one();
        }
    }
}
