//! The backends of a build: the host's first, which takes what no other can, then devices with their own memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use planish_kernel::{Backend, MemoryKind};

use crate::error::{BuildError, BuildErrorKind};

/// The index of the backend in whose memory inputs and outputs are.
pub(crate) const HOST: u32 = 0;

/// The backends of a build, by the index that steps and values of the plan name them by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backends<'a> {
    list: &'a [Arc<dyn Backend>],
    /// When the build began.
    since: Instant,
}

impl<'a> Backends<'a> {
    pub(crate) fn new(list: &'a [Arc<dyn Backend>]) -> Result<Backends<'a>, BuildError> {
        match list.first() {
            Some(host) if host.memory_kind() == MemoryKind::Host => {
                Ok(Backends { list, since: Instant::now() })
            }
            _ => {
                let message = "the first backend of a build must be one in host memory, as the CPU's is: \
                               inputs and outputs are there, and what no device can compute";
                Err(BuildError::new(BuildErrorKind::Unsupported, message))
            }
        }
    }

    /// Whether the time that a build may search for is over.
    pub(crate) fn is_late(&self, limit: Option<Duration>) -> bool {
        limit.is_some_and(|limit| self.since.elapsed() >= limit)
    }

    pub(crate) fn get(&self, target: u32) -> &'a dyn Backend {
        &*self.list[target as usize]
    }

    pub(crate) fn all(&self) -> &'a [Arc<dyn Backend>] {
        self.list
    }

    /// Devices in their order, then the host.
    pub(crate) fn by_preference(&self) -> impl Iterator<Item = u32> + use<> {
        (1..self.list.len() as u32).chain([HOST])
    }
}
