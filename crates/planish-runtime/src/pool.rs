//! `ContextPool`: a few contexts, lent to any number of threads in turn.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::context::{Context, ContextOptions};
use crate::engine::Engine;
use crate::error::RunError;
use crate::lending::Shelf;

/// Contexts of one engine that threads lease.
#[derive(Clone, Debug)]
pub struct ContextPool {
    free: Arc<Shelf<Context>>,
}

impl fmt::Debug for Shelf<Context> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

/// A context on loan; it goes back when dropped.
#[derive(Debug)]
pub struct Lease {
    context: Option<Context>,
    free: Arc<Shelf<Context>>,
}

impl ContextPool {
    pub(crate) fn new(
        engine: &Engine,
        n_contexts: usize,
        options: ContextOptions,
    ) -> Result<ContextPool, RunError> {
        let contexts = (0..n_contexts.max(1)).map(|_| engine.context_with(options));
        Ok(ContextPool { free: Arc::new(Shelf::new(contexts.collect::<Result<Vec<_>, _>>()?)) })
    }

    /// A free context; waits until there is one.
    pub fn lease(&self) -> Lease {
        Lease { context: Some(self.free.take()), free: self.free.clone() }
    }

    /// A free context if there is one now.
    pub fn try_lease(&self) -> Option<Lease> {
        Some(Lease { context: Some(self.free.try_take()?), free: self.free.clone() })
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
            self.free.put_back(context);
        }
    }
}
