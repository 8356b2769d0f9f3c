//! Launches: one kernel at a time, or a span of them captured and replayed.

use planish_kernel::{Address, Call, CapturedGraph, Event, KernelError, Queue, QueueOptions};
use planish_plan::Step;

use crate::branches::{Branches, assign, touches};
use crate::capture::{GraphSpan, How};
use crate::engine::Core;
use crate::error::RunError;
use crate::faults;
use crate::feed::Feed;
use crate::frame::Frame;
use crate::host::{copies, put_stand_ins};
use crate::memory::{FrameMemory, address_of, pointer};
use crate::resolve::{Action, Resolved, ResolvedStep, Way};
use crate::run::{Observed, Run};
use crate::streaming::{Feeder, Streaming};

impl Frame {
    /// Launches one kernel, step number `idx` of the program.
    pub(crate) fn launch(
        &mut self,
        run: &mut Run<'_, '_>,
        idx: usize,
        resolved: &Resolved,
        (record, step): (&Step, &ResolvedStep),
    ) -> Result<(), RunError> {
        let Run { core, unit, feeds, ref mut queues, ref mut watch, .. } = *run;
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let workspace = self.operands(step, resolved, feeds, &mut addresses);
        if let Some(stand_ins) = &mut watch.stand_ins {
            put_stand_ins(stand_ins, resolved, (record, step), &addresses, queues)?;
        }
        let read = match watch.observer {
            Some(_) => copies(unit, resolved, &record.inputs, &addresses, record.target, queues)?,
            None => Vec::new(),
        };
        let n_inputs = step.inputs.len();
        let faults = self.faults.start();
        let (queue, _, feeder) = queues.with_branches(record.target);
        let mut fed = self.memory.feeding(core, feeder);
        fed.before(step, queue)?;
        run_kernel(step, record, &addresses, workspace, faults, queue)?;
        fed.after(step, queue)?;
        if let Some(observer) = &mut watch.observer {
            let written = &addresses[n_inputs..];
            let outputs = copies(unit, resolved, &record.outputs, written, record.target, queues)?;
            let (path, sizes) = (Vec::new(), resolved.symbols.pairs());
            observer(Observed { path, step: idx, sizes, inputs: read, outputs });
        }
        self.addresses = addresses;
        Ok(())
    }

    /// Adds the addresses of a step's inputs and outputs; gives that of its workspace.
    fn operands(
        &self,
        step: &ResolvedStep,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        addresses: &mut Vec<Address>,
    ) -> Address {
        for location in step.inputs.iter().chain(&step.outputs) {
            addresses.push(self.memory.address(*location, resolved, feeds));
        }
        match &step.action {
            Action::Kernel { workspace, .. } => self.memory.address(*workspace, resolved, feeds),
            Action::Transfer { .. } | Action::Evaluate | Action::Control => Address::NULL,
        }
    }

    /// Runs a span: replayed where it was captured at these addresses.
    pub(crate) fn span(
        &mut self,
        run: &mut Run<'_, '_>,
        number: usize,
        span: &GraphSpan,
        resolved: &Resolved,
        steps: &[Step],
    ) -> Result<(), RunError> {
        let Run { core, feeds, mode, ref mut queues, .. } = *run;
        // Operands and workspace of every step, one after the other, and where faults are told.
        let mut key = std::mem::take(&mut self.addresses);
        key.clear();
        for at in span.first..span.end {
            let workspace = self.operands(&resolved.steps[at], resolved, feeds, &mut key);
            key.push(workspace);
        }
        let target = steps[span.first].target;
        let (queue, _, feeder) = queues.with_branches(target);
        let is_transfer = |step: &ResolvedStep| matches!(step.action, Action::Transfer { .. });
        if resolved.steps[span.first..span.end].iter().any(is_transfer) {
            key.push(Address(queue.pinned_memory_age()));
        }
        key.push(self.faults.start());
        let own = Operands { resolved, steps, span, key: &key };
        match resolved.graphs.replay(number, &key, queue)? {
            How::Done => {}
            How::Plain => own.launch_all(queue, &mut self.memory.feeding(core, feeder))?,
            How::Capture => {
                // An older graph may have to go, and the run before may be replaying it.
                queue.synchronize()?;
                let branches = own.branches(mode.streams);
                if let Some(branches) = &branches {
                    let n_streams = branches.lanes.iter().map(|lane| lane.stream + 1).max().unwrap_or(1);
                    while queues.branches.len() + 1 < n_streams {
                        let options = QueueOptions::new(mode.threads);
                        queues.branches.push(core.backends[target as usize].queue(options)?);
                    }
                }
                let (queue, others, feeder) = queues.with_branches(target);
                let mut fed = self.memory.feeding(core, feeder);
                let capture = Capture::begin(queue)?;
                let launched = match &branches {
                    Some(branches) => own.launch_branches(branches, capture.queue, others, &mut fed),
                    None => own.launch_all(capture.queue, &mut fed),
                };
                let graph = capture.end();
                match (launched, graph) {
                    (Ok(()), Ok(graph)) => {
                        resolved.graphs.keep(number, &key, Some(graph));
                        resolved.graphs.replay(number, &key, queue)?;
                    }
                    // Something in it cannot be captured: launched as it is, now and from here on.
                    _ => {
                        resolved.graphs.keep(number, &key, None);
                        own.launch_all(queue, &mut fed)?;
                    }
                }
            }
        }
        self.addresses = key;
        Ok(())
    }
}

/// A captured graph in the making. Ended whatever happens, by a panic of a kernel too, so that the queue can be used again.
struct Capture<'a> {
    queue: &'a mut dyn Queue,
    is_open: bool,
}

impl<'a> Capture<'a> {
    fn begin(queue: &'a mut dyn Queue) -> Result<Capture<'a>, RunError> {
        queue.begin_capture()?;
        Ok(Capture { queue, is_open: true })
    }

    fn end(mut self) -> Result<Box<dyn CapturedGraph>, KernelError> {
        self.is_open = false;
        self.queue.end_capture()
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // What was captured is not wanted; an error here leaves nothing to do.
            drop(self.queue.end_capture());
        }
    }
}

/// A range by name on one queue, ended when dropped.
struct Named<'a> {
    queue: &'a mut dyn Queue,
}

impl<'a> Named<'a> {
    fn begin(queue: &'a mut dyn Queue, name: &str) -> Named<'a> {
        queue.range_begin(name);
        Named { queue }
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.queue.range_end();
    }
}

/// A span with the addresses of its operands.
struct Operands<'a> {
    resolved: &'a Resolved,
    steps: &'a [Step],
    span: &'a GraphSpan,
    key: &'a [Address],
}

impl<'a> Operands<'a> {
    /// The places of its steps, each with its addresses: inputs, outputs, workspace.
    fn each(&self) -> impl Iterator<Item = (usize, &'a [Address])> {
        let (resolved, mut rest) = (self.resolved, self.key);
        (self.span.first..self.span.end).map(move |at| {
            let step = &resolved.steps[at];
            let (own, after) = rest.split_at(step.inputs.len() + step.outputs.len() + 1);
            rest = after;
            (at, own)
        })
    }

    fn launch(
        &self,
        at: usize,
        own: &[Address],
        queue: &mut dyn Queue,
        fed: &mut Feeding<'_>,
    ) -> Result<(), RunError> {
        let record = &self.steps[at];
        let (addresses, workspace) = own.split_at(own.len() - 1);
        let named = Named::begin(queue, &record.name);
        let step = &self.resolved.steps[at];
        match step.action {
            Action::Transfer { bytes, way } => copy_pinned(addresses, bytes, way, named.queue),
            _ => {
                fed.before(step, named.queue)?;
                run_kernel(step, record, addresses, workspace[0], self.faults(), named.queue)?;
                fed.after(step, named.queue)
            }
        }
    }

    /// Where the words of faults begin.
    fn faults(&self) -> Address {
        self.key.last().copied().unwrap_or(Address::NULL)
    }

    fn launch_all(&self, queue: &mut dyn Queue, fed: &mut Feeding<'_>) -> Result<(), RunError> {
        self.each().try_for_each(|(at, own)| self.launch(at, own, queue, fed))
    }

    /// How its steps are spread over streams; nothing where all are one after another.
    fn branches(&self, n_streams: usize) -> Option<Branches> {
        if n_streams < 2 {
            return None;
        }
        let touched: Vec<_> =
            self.each().map(|(at, own)| touches(self.resolved, at, &self.steps[at], own)).collect();
        let branches = assign(&touched, n_streams);
        branches.lanes.iter().any(|lane| lane.stream > 0).then_some(branches)
    }

    /// Launches what is being captured on `first`, with its branches on the others, joined at the end.
    fn launch_branches(
        &self,
        branches: &Branches,
        first: &mut dyn Queue,
        others: &mut [Box<dyn Queue>],
        fed: &mut Feeding<'_>,
    ) -> Result<(), RunError> {
        let n_streams = others.len() + 1;
        let mut streams: Vec<&mut dyn Queue> = Vec::with_capacity(n_streams);
        streams.push(first);
        streams.extend(others.iter_mut().map(|queue| &mut **queue as &mut dyn Queue));
        // By waiting for the first stream the others become a part of what is captured there.
        let begin = streams[0].record()?;
        let mut joined = vec![false; n_streams];
        joined[0] = true;
        let mut events: Vec<Option<Box<dyn Event>>> = Vec::with_capacity(branches.lanes.len());
        for ((at, own), lane) in self.each().zip(&branches.lanes) {
            let queue = &mut *streams[lane.stream];
            if !std::mem::replace(&mut joined[lane.stream], true) {
                queue.wait_for(&*begin)?;
            }
            for event in lane.waits.iter().filter_map(|&earlier| events.get(earlier)).flatten() {
                queue.wait_for(&**event)?;
            }
            self.launch(at, own, queue, fed)?;
            events.push(if lane.awaited { Some(queue.record()?) } else { None });
        }
        for event in branches.joins.iter().filter_map(|&last| events.get(last)).flatten() {
            streams[0].wait_for(&**event)?;
        }
        Ok(())
    }
}

/// What brings streamed weights, where there are some.
struct Feeding<'a> {
    parts: Option<(&'a mut Feeder, &'a Streaming, Address)>,
}

impl FrameMemory {
    fn feeding<'a>(&self, core: &'a Core, feeder: Option<&'a mut Feeder>) -> Feeding<'a> {
        let parts = feeder.zip(core.weights.streaming.as_ref());
        Feeding { parts: parts.map(|(feeder, streaming)| (feeder, streaming, address_of(&self.ring))) }
    }
}

impl Feeding<'_> {
    /// Before a step is launched: its weights are waited for.
    fn before(&mut self, step: &ResolvedStep, queue: &mut dyn Queue) -> Result<(), RunError> {
        match (&mut self.parts, step.load) {
            (Some((feeder, streaming, ring)), Some(load)) => feeder.before(streaming, load, *ring, queue),
            _ => Ok(()),
        }
    }

    /// After it was launched: their place is free.
    fn after(&mut self, step: &ResolvedStep, queue: &mut dyn Queue) -> Result<(), RunError> {
        match (&mut self.parts, step.load) {
            (Some((feeder, streaming, ring)), Some(load)) => feeder.after(streaming, load, *ring, queue),
            _ => Ok(()),
        }
    }
}

/// Queues the transfer of a value between pinned memory and a device's, from the first address to the second.
fn copy_pinned(addresses: &[Address], bytes: usize, way: Way, queue: &mut dyn Queue) -> Result<(), RunError> {
    let &[from, to] = addresses else { return Ok(()) };
    // SAFETY: the locations of both operands span `bytes`; the host's is pinned (whoever has transfers in a span
    // asked `is_all_pinned`), is the context's or lent to it until the run is over, and nothing writes it before
    // whoever waits for the queue.
    unsafe {
        match way {
            Way::Up => {
                let host = std::slice::from_raw_parts(pointer(from).cast_const(), bytes);
                queue.upload_pinned(to, host)?;
            }
            Way::Down => {
                let host = std::ptr::slice_from_raw_parts_mut(pointer(to), bytes);
                queue.download_pinned(host, from)?;
            }
            Way::Other => {}
        }
    }
    Ok(())
}

/// Launches a kernel at these addresses, inputs first.
fn run_kernel(
    step: &ResolvedStep,
    record: &Step,
    addresses: &[Address],
    workspace: Address,
    faults: Address,
    queue: &mut dyn Queue,
) -> Result<(), RunError> {
    let Action::Kernel { kernel, .. } = &step.action else { return Ok(()) };
    let (inputs, outputs) = addresses.split_at(step.inputs.len());
    let fault = step.fault.map_or(Address::NULL, |step| faults::word(faults, step));
    let call = Call { inputs, outputs, workspace, fault };
    // SAFETY: the arena was laid out for these operands: what is alive together does not overlap; weights and
    // inputs are only read; whoever runs a frame has it for itself.
    let done = unsafe { kernel.launch(&call, queue) };
    done.map_err(|error| RunError::at(&record.name, error))
}
