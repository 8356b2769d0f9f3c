//! Runs one after another on one context that overlap: while one computes, the inputs of the next are on their way to
//! the device and the outputs of the one before on their way back.
//!
//! A context's arena serves one run at a time, so kernels of two runs do not overlap here; what does are the copies,
//! which need only a second set of buffers on the device for inputs and outputs. Buffers belong to the pipeline from
//! [`Pipeline::push`] until their run is done, so nobody can change or free them under it.

use std::sync::Arc;

use planish_kernel::{Backend, Event, Queue, QueueOptions};
use planish_plan::StepKind;

use crate::buffer::{Bindings, Buffer};
use crate::context::Context;
use crate::device::DeviceBuffer;
use crate::engine::Core;
use crate::error::{RunError, RunErrorKind};
use crate::ports::device_of;
use crate::run::Watch;
use crate::state::State;

/// Runs of one context that overlap with each other's copies. Dropping it waits for them.
#[derive(Debug)]
pub struct Pipeline<'a> {
    state: &'a mut State,
    /// Absent where nothing can overlap: each run then ends before `push` returns.
    link: Option<Link>,
    slots: Vec<Slot>,
    /// Runs that were pushed, and those that were given back.
    n_pushed: usize,
    n_given_back: usize,
}

/// The two ways over the link.
#[derive(Debug)]
struct Link {
    up: Box<dyn Queue>,
    down: Box<dyn Queue>,
    /// The inputs of the run that was pushed last are on the device; all its outputs are made.
    arrived: Box<dyn Event>,
    computed: Box<dyn Event>,
}

#[derive(Debug, Default)]
struct Slot {
    /// The caller's buffers, while a run uses them.
    bindings: Option<Bindings>,
    /// What the run reads and writes on the device instead.
    there: Bindings,
    /// Reached when the last copy of the slot's run is done; absent where that was waited for.
    done: Option<Box<dyn Event>>,
    is_under_way: bool,
}

impl Context {
    /// Runs one after another that overlap with each other's copies, as [`Pipeline`] says.
    pub fn pipeline(&mut self) -> Result<Pipeline<'_>, RunError> {
        let state = self.state()?;
        state.leave_foreign();
        state.forget_faults();
        let link = match overlaps(&state.engine.core) && state.can_bind_on_device() {
            true => Some(Link::new(state)?),
            false => None,
        };
        let slots = (0..Pipeline::DEPTH).map(|_| Slot::default()).collect();
        Ok(Pipeline { state, link, slots, n_pushed: 0, n_given_back: 0 })
    }
}

/// Whether a plan is kernels on one stream of a device between copies of its inputs and outputs: then a run touches
/// host memory by these copies alone.
pub(crate) fn overlaps(core: &Core) -> bool {
    let program = &core.plan.program;
    let is_input = |value: &u32| program.inputs.contains(value);
    let is_output = |value: &u32| program.outputs.contains(value);
    let on_device = program.steps.iter().all(|step| match step.kind {
        StepKind::Kernel { .. } => core.is_device(step.target),
        StepKind::Transfer => {
            step.inputs.iter().flatten().all(is_input) || step.outputs.iter().flatten().all(is_output)
        }
        StepKind::Evaluate | StepKind::Control(_) => false,
    });
    on_device
        && core.unit.outline.segments.len() == 1
        && core.pinning.is_some()
        && core.plan.device().is_some()
}

impl Link {
    fn new(state: &State) -> Result<Link, RunError> {
        let device = device_of(&state.engine.core)?;
        let options = QueueOptions { threads: 1, wait: state.options.wait };
        Ok(Link {
            up: device.queue(options)?,
            down: device.queue(options)?,
            arrived: device.event(false)?,
            computed: device.event(false)?,
        })
    }

    /// Waits until nothing is on it.
    fn settle(&mut self) -> Result<(), RunError> {
        // Both, whatever the first says: nobody may free what the other copies.
        let (up, down) = (self.up.synchronize(), self.down.synchronize());
        Ok(up.and(down)?)
    }
}

impl Pipeline<'_> {
    /// The most runs under way: one that computes, and one whose inputs or outputs are on the link.
    pub const DEPTH: usize = 2;

    /// Starts a run on these buffers after those that were pushed before. Where two are under way already, waits for
    /// the older one and gives its buffers back. An error is that of the new run, or of the one that was waited for,
    /// whose buffers are lost then.
    ///
    /// Copies overlap where all buffers are the context's own ([`Context::input_buffer`], [`Context::output_buffer`])
    /// and the plan is on a device but for its ends; elsewhere a run is over when this returns.
    pub fn push(&mut self, bindings: Bindings) -> Result<Option<Bindings>, RunError> {
        let given_back = if self.len() == Self::DEPTH { self.pop()? } else { None };
        let at = self.n_pushed % Self::DEPTH;
        let slot = &mut self.slots[at];
        let bindings = slot.bindings.insert(bindings);
        let started = match &mut self.link {
            Some(link) if is_all_pinned(&self.state.engine.core, bindings) => {
                slot.start(at, self.state, link)
            }
            _ => {
                slot.is_under_way = false;
                self.state.run_bound(bindings, Watch::default())
            }
        };
        match started {
            Ok(()) => {
                self.n_pushed += 1;
                Ok(given_back)
            }
            Err(error) => {
                // The first error is the one to tell. Part of the run may be under way, and use what goes next.
                self.settle();
                self.slots[at].bindings = None;
                Err(error)
            }
        }
    }

    /// Waits for the oldest run and gives its buffers back; `None` where nothing is under way.
    pub fn pop(&mut self) -> Result<Option<Bindings>, RunError> {
        if self.is_empty() {
            return Ok(None);
        }
        let at = self.n_given_back % Self::DEPTH;
        let slot = &mut self.slots[at];
        self.n_given_back += 1;
        let waited = match &slot.done {
            Some(done) if std::mem::take(&mut slot.is_under_way) => {
                done.wait().map_err(RunError::from).and_then(|()| self.state.faults_ahead(at))
            }
            _ => Ok(()),
        };
        let bindings = slot.bindings.take();
        match waited {
            Ok(()) => Ok(bindings),
            Err(error) => {
                self.settle();
                Err(error)
            }
        }
    }

    /// Runs that were pushed and not given back.
    pub fn len(&self) -> usize {
        self.n_pushed - self.n_given_back
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its buffers on the device, beside the context's own memory.
    pub fn device_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.there.device_bytes()).sum()
    }

    /// Waits for everything; errors of runs are told by `pop`.
    fn settle(&mut self) {
        self.state.settle();
        if let Some(link) = &mut self.link {
            let _ = link.settle();
        }
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

fn is_all_pinned(core: &Core, bindings: &Bindings) -> bool {
    let is_pinned = |(_, buffer): &(String, Buffer)| match buffer {
        Buffer::Host(host) => host.is_pinned_by(core.pinning.as_ref()),
        Buffer::Device(_) => false,
    };
    bindings.inputs.iter().chain(&bindings.outputs).all(is_pinned)
}

impl Slot {
    /// Queues a run: copies up, kernels, copies down, each after the one before on a queue of its own.
    fn start(&mut self, at: usize, state: &mut State, link: &mut Link) -> Result<(), RunError> {
        let Slot { bindings: Some(bindings), there, done, is_under_way } = self else { return Ok(()) };
        let engine = state.engine.clone();
        let device = device_of(&engine.core)?;
        let target = engine.core.device()?;
        renew(&device, &bindings.inputs, &mut there.inputs)?;
        renew(&device, &bindings.outputs, &mut there.outputs)?;
        for ((_, from), (_, to)) in bindings.inputs.iter().zip(&mut there.inputs) {
            let (Buffer::Host(from), Buffer::Device(to)) = (from, to) else { continue };
            to.set_dims(from.dims());
            // SAFETY: the buffer on the device is the slot's own and has room; the slot's last run is over. The host's
            // is pinned, and the slot keeps it until `done` is reached or the queue is waited for.
            unsafe { link.up.upload_pinned(to.target().address, from.bytes())? };
        }
        link.up.record_at(&*link.arrived)?;
        state.queues.get(target).wait_for(&*link.arrived)?;
        state.run_ahead(there, at)?;
        state.queues.get(target).record_at(&*link.computed)?;
        link.down.wait_for(&*link.computed)?;
        for ((name, to), (_, from)) in bindings.outputs.iter_mut().zip(&there.outputs) {
            let (Buffer::Host(to), Buffer::Device(from)) = (to, from) else { continue };
            if !to.set_dims(from.dims()) {
                let (dims, has) = (from.dims(), to.capacity());
                let message = format!("output `{name}` of sizes {dims:?} has no room in {has} bytes");
                return Err(RunError::new(RunErrorKind::WrongShape, message));
            }
            let host = std::ptr::slice_from_raw_parts_mut(to.pointer(), to.bytes().len());
            // SAFETY: as above, with the directions changed; `to` has room for the sizes that it was given.
            unsafe { link.down.download_pinned(host, from.target().address)? };
        }
        if done.is_none() {
            *done = Some(device.event(false)?);
        }
        if let Some(done) = done {
            link.down.record_at(&**done)?;
        }
        *is_under_way = true;
        Ok(())
    }
}

/// Makes buffers on the device for those of the caller where there are none, or too small ones.
fn renew(
    device: &Arc<dyn Backend>,
    given: &[(String, Buffer)],
    there: &mut Vec<(String, Buffer)>,
) -> Result<(), RunError> {
    let fits = |((name, buffer), (known, there)): (&(String, Buffer), &(String, Buffer))| {
        name == known && buffer.dtype() == there.dtype() && buffer.capacity() <= there.capacity()
    };
    if given.len() != there.len() || !given.iter().zip(&*there).all(fits) {
        there.clear();
        for (name, buffer) in given {
            let copy = DeviceBuffer::with_capacity(device.clone(), buffer.dtype(), buffer.capacity())?;
            there.push((name.clone(), Buffer::Device(copy)));
        }
    }
    Ok(())
}
