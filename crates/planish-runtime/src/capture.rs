//! Launches of a device captured once and replayed: a run then costs the host one call for a whole span of
//! steps, and the device the least time between them.
//!
//! A captured graph holds addresses. It is replayed only where every address is the same again, so it follows the
//! context's memory, the caller's buffers and the sizes without being told; and it lives with the resolved sizes
//! that it was made at, so that the two are dropped together. What is met once is launched step by step: a
//! captured graph costs more than it saves before the third time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use planish_kernel::{Address, CapturedGraph, Queue};
use planish_plan::Step;

use crate::engine::Core;
use crate::error::RunError;
use crate::resolve::{Action, ResolvedStep, Way};

/// Shorter spans gain nothing.
const MIN_STEPS: usize = 2;
/// Captured graphs of one span at different addresses: buffers that a caller uses in turn.
const MAX_GRAPHS: usize = 4;
/// Addresses that were met and not captured yet, by their hashes.
const MAX_SEEN: usize = 16;

/// Steps one after another on one queue of a device, by their places in the segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GraphSpan {
    pub(crate) first: usize,
    /// After the last step.
    pub(crate) end: usize,
    /// What tools that watch the process show of it.
    pub(crate) name: String,
}

/// The spans of a segment: kernels alone, on one queue, nothing waited for but before the first.
pub(crate) fn spans(core: &Core, steps: &[Step], resolved: &[ResolvedStep]) -> Vec<GraphSpan> {
    let queue = |idx: usize| steps[idx].target;
    let is_launch = |idx: usize| {
        matches!(resolved[idx].action, Action::Kernel { .. }) && core.is_device(steps[idx].target)
    };
    let mut spans = Vec::new();
    let mut first = 0;
    while first < steps.len() {
        let mut end = first;
        while end < steps.len()
            && is_launch(end)
            && queue(end) == queue(first)
            && (end == first || resolved[end].waits.is_empty())
        {
            end += 1;
        }
        if end - first >= MIN_STEPS {
            let (from, to) = (&steps[first].name, &steps[end - 1].name);
            let name = format!("{} steps from {from} to {to}", end - first);
            spans.push(GraphSpan { first, end, name });
        }
        first = end.max(first + 1);
    }
    spans
}

/// Spans with the transfers between the host and their device that stand next to them on the same queue: one
/// captured graph then holds a whole run, where the host's memory is pinned.
pub(crate) fn with_transfers(
    steps: &[Step],
    resolved: &[ResolvedStep],
    spans: &[GraphSpan],
) -> Vec<Option<GraphSpan>> {
    let is_transfer =
        |idx: usize| matches!(resolved[idx].action, Action::Transfer { way: Way::Up | Way::Down, .. });
    let follows = |idx: usize| steps[idx].target == steps[idx - 1].target && resolved[idx].waits.is_empty();
    let mut list: Vec<Option<GraphSpan>> = Vec::with_capacity(spans.len());
    for (number, span) in spans.iter().enumerate() {
        // Transfers between two spans go with the first of them.
        let before = list.last().map_or(0, |last: &Option<GraphSpan>| match last {
            Some(wide) => wide.end,
            None => spans[number - 1].end,
        });
        let (mut first, mut end) = (span.first, span.end);
        while first > before && is_transfer(first - 1) && follows(first) {
            first -= 1;
        }
        while end < steps.len() && is_transfer(end) && follows(end) {
            end += 1;
        }
        let is_wider = (first, end) != (span.first, span.end);
        let name = format!("{}, with {} transfers", span.name, end - first - (span.end - span.first));
        list.push(is_wider.then_some(GraphSpan { first, end, name }));
    }
    list
}

#[derive(Debug)]
struct Captured {
    span: usize,
    key: Vec<Address>,
    graph: Box<dyn CapturedGraph>,
}

/// The captured graphs of a segment at given sizes.
#[derive(Debug, Default)]
pub(crate) struct CapturedGraphs {
    /// Most recently used first.
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    captured: Vec<Captured>,
    seen: Vec<u64>,
    /// Spans that the backend cannot capture.
    refused: Vec<usize>,
}

/// How a span is to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// It was replayed.
    Done,
    /// Step by step.
    Plain,
    /// Between `begin` and `end`, then replayed.
    Capture,
}

impl CapturedGraphs {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Whoever panicked left whole entries.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replays the span if it was captured at these addresses, or says what to do.
    pub(crate) fn replay(
        &self,
        span: usize,
        key: &[Address],
        queue: &mut dyn Queue,
    ) -> Result<How, RunError> {
        let mut list = self.lock();
        let found = list.captured.iter().position(|known| known.span == span && known.key == key);
        if let Some(at) = found {
            list.captured[..=at].rotate_right(1);
            // SAFETY: every address is what it was when the launches were captured, and so is the age of pinned memory
            // where there are copies, so what was promised for them then holds now; the captured graph belongs to one context, which runs one run at a time.
            unsafe { queue.replay(&*list.captured[0].graph)? };
            return Ok(How::Done);
        }
        if list.refused.contains(&span) {
            return Ok(How::Plain);
        }
        let mut hasher = DefaultHasher::new();
        (span, key).hash(&mut hasher);
        let hash = hasher.finish();
        if list.seen.contains(&hash) {
            return Ok(How::Capture);
        }
        if list.seen.len() == MAX_SEEN {
            list.seen.remove(0);
        }
        list.seen.push(hash);
        Ok(How::Plain)
    }

    /// Keeps what was captured, or notes that it could not be.
    pub(crate) fn keep(&self, span: usize, key: &[Address], graph: Option<Box<dyn CapturedGraph>>) {
        let mut list = self.lock();
        let Some(graph) = graph else {
            list.refused.push(span);
            return;
        };
        list.captured.insert(0, Captured { span, key: key.to_vec(), graph });
        let mut n_kept = 0;
        list.captured.retain(|known| {
            n_kept += usize::from(known.span == span);
            known.span != span || n_kept <= MAX_GRAPHS
        });
    }

    /// How many there are, and the bytes that they hold.
    pub(crate) fn size(&self) -> (usize, usize) {
        let list = self.lock();
        (list.captured.len(), list.captured.iter().map(|known| known.graph.bytes()).sum())
    }
}
