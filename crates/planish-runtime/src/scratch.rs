//! Where the memory between steps comes from when it is not each context's own: a caller's allocator, or one piece that
//! engines share which do not run at the same time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use planish_kernel::{Backend, Memory, MemoryKind};

use crate::device::is_one_memory;
use crate::error::{RunError, RunErrorKind};
use crate::state::State;

/// A caller's allocator for what lies between the steps of runs, [`crate::Engine::allocating`].
///
/// # Safety
/// What it gives must be at least as long as was asked for, aligned to 64 bytes, in the memory that was asked for, valid for
/// reads and writes of kernels until it is dropped, and used by nobody else until then.
pub unsafe trait Allocator: Send + Sync + fmt::Debug {
    /// Memory for kernels of this backend (`cpu`, `cuda`), on the host or in the device's own; `None` leaves it to the backend.
    fn allocate(
        &self,
        backend: &str,
        kind: MemoryKind,
        bytes: usize,
    ) -> Result<Option<Box<dyn Memory>>, RunError>;
}

/// Memory between steps that several engines share, [`crate::Engine::sharing`]: as large as the largest of them needs. Their
/// runs wait for each other. Clones are the same memory.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    arenas: Arc<Mutex<Vec<Shared>>>,
}

/// One memory's.
#[derive(Debug)]
struct Shared {
    backend: Arc<dyn Backend>,
    is_pinned: bool,
    memory: Option<Box<dyn Memory>>,
}

impl Scratch {
    /// None yet.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Bytes that it has at the moment, in all memories.
    pub fn bytes(&self) -> usize {
        self.lock().iter().filter_map(|shared| shared.memory.as_ref()).map(|memory| memory.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shared>> {
        // Whoever panicked had its memory given back on the way.
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `run` use this memory; others wait until it returns.
    pub(crate) fn lend<R>(
        &self,
        state: &mut State,
        run: impl FnOnce(&mut State) -> Result<R, RunError>,
    ) -> Result<R, RunError> {
        if !state.mode.waits {
            let message =
                "engines that share scratch memory run one after the other; this run would not be waited for";
            return Err(RunError::new(RunErrorKind::WrongInputs, message));
        }
        let mut arenas = self.lock();
        let engine = state.engine.clone();
        let core = &engine.core;
        state.frame.memory.prepare(core, &core.unit);
        let places: Vec<usize> =
            core.backends.iter().map(|backend| place(&mut arenas, backend, core.pinning.is_some())).collect();
        for (target, &at) in places.iter().enumerate() {
            std::mem::swap(&mut arenas[at].memory, &mut state.frame.memory.arenas[target]);
        }
        let lengths = state.frame.memory.arena_lengths();
        if state.lent.iter().zip(&lengths).any(|(before, now)| now < before)
            || state.lent.len() > lengths.len()
        {
            // An allocation failed meanwhile: what is known of the memory does not hold.
            state.frame.prepared.forget();
        }
        let result = run(state);
        state.lent = state.frame.memory.arena_lengths();
        for (target, &at) in places.iter().enumerate() {
            std::mem::swap(&mut arenas[at].memory, &mut state.frame.memory.arenas[target]);
        }
        result
    }
}

/// Where the memory for a backend stands in the list.
fn place(arenas: &mut Vec<Shared>, backend: &Arc<dyn Backend>, pins: bool) -> usize {
    let is_pinned = pins && backend.memory_kind() == MemoryKind::Host;
    let fits = |shared: &Shared| shared.is_pinned == is_pinned && is_one_memory(&*shared.backend, &**backend);
    arenas.iter().position(fits).unwrap_or_else(|| {
        arenas.push(Shared { backend: backend.clone(), is_pinned, memory: None });
        arenas.len() - 1
    })
}
