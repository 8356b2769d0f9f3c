//! Launches of a device recorded once and replayed: a run then costs the host one call for a whole stretch of
//! steps, and the device the least time between them.
//!
//! A recording holds addresses. It is replayed only where every address is the same again, so it follows the
//! context's memory, the caller's buffers and the sizes without being told; and it lives with the resolved sizes
//! that it was made at, so that the two are dropped together. What is met once is launched step by step: a
//! recording costs more than it saves before the third time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use planish_kernel::{Address, MemoryKind, Queue, Recording};
use planish_plan::Step;

use crate::engine::Core;
use crate::error::RunError;
use crate::resolve::{Action, ResolvedStep, Way};

/// Shorter stretches gain nothing.
const MIN_STEPS: usize = 2;
/// Recordings of one stretch at different addresses: buffers that a caller uses in turn.
const MAX_RECORDINGS: usize = 4;
/// Addresses that were met and not recorded yet, by their hashes.
const MAX_SEEN: usize = 16;

/// Steps behind each other on one queue of a device, by their places in the segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: usize,
    /// Behind the last step.
    pub(crate) end: usize,
    /// What tools that watch the process show of it.
    pub(crate) name: String,
}

/// The stretches of a segment: kernels alone, on one queue, nothing waited for but before the first and nothing
/// waited on but behind the last.
pub(crate) fn stretches(core: &Core, steps: &[Step], resolved: &[ResolvedStep]) -> Vec<Stretch> {
    let queue = |idx: usize| (steps[idx].target, steps[idx].stream);
    let is_launch = |idx: usize| {
        matches!(resolved[idx].action, Action::Kernel { .. })
            && core.backends[steps[idx].target as usize].memory_kind() == MemoryKind::Device
    };
    let mut stretches = Vec::new();
    let mut first = 0;
    while first < steps.len() {
        let mut end = first;
        while end < steps.len()
            && is_launch(end)
            && queue(end) == queue(first)
            && (end == first || (resolved[end].waits.is_empty() && !resolved[end - 1].awaited))
        {
            end += 1;
        }
        if end - first >= MIN_STEPS {
            let (from, to) = (&steps[first].name, &steps[end - 1].name);
            let name = format!("{} steps from {from} to {to}", end - first);
            stretches.push(Stretch { first, end, name });
        }
        first = end.max(first + 1);
    }
    stretches
}

/// Stretches with the transfers between the host and their device that stand next to them on the same queue: one
/// recording then holds a whole run, where the host's memory is pinned.
pub(crate) fn with_transfers(
    steps: &[Step],
    resolved: &[ResolvedStep],
    stretches: &[Stretch],
) -> Vec<Option<Stretch>> {
    let is_transfer =
        |idx: usize| matches!(resolved[idx].action, Action::Transfer { way: Way::Up | Way::Down, .. });
    let follows = |idx: usize| {
        let queue = |idx: usize| (steps[idx].target, steps[idx].stream);
        queue(idx) == queue(idx - 1) && resolved[idx].waits.is_empty() && !resolved[idx - 1].awaited
    };
    let mut list: Vec<Option<Stretch>> = Vec::with_capacity(stretches.len());
    for (number, stretch) in stretches.iter().enumerate() {
        // Transfers between two stretches go with the first of them.
        let before = list.last().map_or(0, |last: &Option<Stretch>| match last {
            Some(wide) => wide.end,
            None => stretches[number - 1].end,
        });
        let (mut first, mut end) = (stretch.first, stretch.end);
        while first > before && is_transfer(first - 1) && follows(first) {
            first -= 1;
        }
        while end < steps.len() && is_transfer(end) && follows(end) {
            end += 1;
        }
        let is_wider = (first, end) != (stretch.first, stretch.end);
        let name =
            format!("{}, with {} transfers", stretch.name, end - first - (stretch.end - stretch.first));
        list.push(is_wider.then_some(Stretch { first, end, name }));
    }
    list
}

#[derive(Debug)]
struct Recorded {
    stretch: usize,
    key: Vec<Address>,
    recording: Box<dyn Recording>,
}

/// The recordings of a segment at given sizes.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    /// Most recently used first.
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    recorded: Vec<Recorded>,
    seen: Vec<u64>,
    /// Stretches that the backend cannot record.
    refused: Vec<usize>,
}

/// How a stretch is to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// It was replayed.
    Done,
    /// Step by step.
    Plain,
    /// Between `begin` and `end`, then replayed.
    Record,
}

impl Recordings {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Whoever panicked left whole entries.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replays the stretch if it was recorded at these addresses, or says what to do.
    pub(crate) fn replay(
        &self,
        stretch: usize,
        key: &[Address],
        queue: &mut dyn Queue,
    ) -> Result<How, RunError> {
        let mut list = self.lock();
        let found = list.recorded.iter().position(|known| known.stretch == stretch && known.key == key);
        if let Some(at) = found {
            list.recorded[..=at].rotate_right(1);
            // SAFETY: every address is what it was when the launches were recorded, and so is the age of pinned memory
            // where there are copies, so what was promised for them then holds now; the recording belongs to one context, which runs one run at a time.
            unsafe { queue.replay(&*list.recorded[0].recording)? };
            return Ok(How::Done);
        }
        if list.refused.contains(&stretch) {
            return Ok(How::Plain);
        }
        let mut hasher = DefaultHasher::new();
        (stretch, key).hash(&mut hasher);
        let hash = hasher.finish();
        if list.seen.contains(&hash) {
            return Ok(How::Record);
        }
        if list.seen.len() == MAX_SEEN {
            list.seen.remove(0);
        }
        list.seen.push(hash);
        Ok(How::Plain)
    }

    /// Keeps what was recorded, or notes that it could not be.
    pub(crate) fn keep(&self, stretch: usize, key: &[Address], recording: Option<Box<dyn Recording>>) {
        let mut list = self.lock();
        let Some(recording) = recording else {
            list.refused.push(stretch);
            return;
        };
        list.recorded.insert(0, Recorded { stretch, key: key.to_vec(), recording });
        let mut n_kept = 0;
        list.recorded.retain(|known| {
            n_kept += usize::from(known.stretch == stretch);
            known.stretch != stretch || n_kept <= MAX_RECORDINGS
        });
    }

    /// How many there are, and the bytes that they hold.
    pub(crate) fn size(&self) -> (usize, usize) {
        let list = self.lock();
        (list.recorded.len(), list.recorded.iter().map(|known| known.recording.bytes()).sum())
    }
}
