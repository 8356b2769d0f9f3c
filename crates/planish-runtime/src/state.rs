//! The state of a context: its memory and queues, and the ways in which a run is asked for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use planish_kernel::{Address, Event, Queue, QueueOptions};
use planish_tensor::DefaultFloatMode;

use crate::buffer::{Bindings, Buffer};
use crate::context::ContextOptions;
use crate::device::{DeviceTarget, DeviceView};
use crate::engine::Engine;
use crate::error::{RunError, RunErrorKind};
use crate::feed::{Bound, Feed, Site};
use crate::frame::{Frame, panicked};
use crate::memory::FrameMemory;
use crate::ports::check_site;
use crate::run::{Mode, Queues, Run, Watch};
use crate::states::Sequence;
use crate::view::View;

/// Inputs up to which a run keeps its list of them on the stack.
pub(crate) const MAX_STACK_INPUTS: usize = 16;

/// What moves to the runner for a run.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) frame: Frame,
    pub(crate) queues: Queues,
    pub(crate) mode: Mode,
    /// The caller's stream that the last run was queued on, and the queue over it.
    pub(crate) foreign: Option<(u64, Box<dyn Queue>)>,
    /// Behind the last run on that stream: what is waited for, since the caller may have destroyed the stream.
    pub(crate) passed: Option<Box<dyn Event>>,
    /// Whether runs that were not waited for may be under way on the context's own queues.
    pub(crate) is_ahead: bool,
    pub(crate) options: ContextOptions,
    /// For each bound output its number and whether it is written in place; kept so that runs need no memory.
    pub(crate) places: Vec<(usize, bool)>,
    /// What the plan's states are.
    pub(crate) sequence: Sequence,
    /// Bytes of shared arenas at the last run, by target.
    pub(crate) lent: Vec<usize>,
}

impl Drop for State {
    fn drop(&mut self) {
        // What was queued on the caller's stream may still use our memory.
        self.settle();
    }
}

impl State {
    pub(crate) fn run(&mut self, feeds: &[Feed<'_>], watch: Watch<'_>) -> Result<(), RunError> {
        if self.engine.core.states.is_empty() {
            return self.run_fed(feeds, watch);
        }
        let mut sequence = std::mem::take(&mut self.sequence);
        let result = sequence.run(self, feeds, watch);
        self.sequence = sequence;
        result
    }

    /// Runs on a feed for each input.
    pub(crate) fn run_fed(&mut self, feeds: &[Feed<'_>], watch: Watch<'_>) -> Result<(), RunError> {
        match self.engine.scratch.clone() {
            Some(scratch) => scratch.lend(self, |state| state.run_here(feeds, watch)),
            None => self.run_here(feeds, watch),
        }
    }

    /// Runs in the memory that the frame has.
    fn run_here(&mut self, feeds: &[Feed<'_>], watch: Watch<'_>) -> Result<(), RunError> {
        self.settle();
        self.catch_up();
        let _mode = DefaultFloatMode::enter();
        let core = &self.engine.core;
        // Of a run on a stream of the caller, which nobody here waited for.
        self.frame.faults.take(0, &core.unit.program)?;
        let run = Run { core, unit: &core.unit, feeds, queues: &mut self.queues, mode: self.mode, watch };
        self.frame.run(run)
    }

    pub(crate) fn run_named(
        &mut self,
        inputs: &[(&str, View<'_>)],
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let named = inputs.iter().map(|(name, view)| (*name, Feed::View(*view)));
        self.run_feeds(named, inputs.len(), watch)
    }

    /// Puts inputs in the model's order and runs.
    fn run_feeds<'a>(
        &mut self,
        inputs: impl Iterator<Item = (&'a str, Feed<'a>)>,
        n_given: usize,
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let names = &self.engine.core.input_names;
        let refuse = |message: String| Err(RunError::new(RunErrorKind::WrongInputs, message));
        // On the stack where they fit, so that a run allocates nothing.
        let nothing = Feed::Absent;
        let mut few = [nothing; MAX_STACK_INPUTS];
        let mut many = Vec::new();
        let feeds = match few.get_mut(..names.len()) {
            Some(few) => few,
            None => {
                many.resize(names.len(), nothing);
                &mut many[..]
            }
        };
        for (name, given) in inputs {
            let feed = &mut feeds[self.engine.core.input_idx(name)?];
            if !matches!(feed, Feed::Absent) {
                return refuse(format!("input `{name}` was given twice"));
            }
            *feed = given;
        }
        if n_given < names.len()
            && let Some(idx) = (0..feeds.len()).find(|&idx| {
                let is_state = || self.engine.core.states.iter().any(|pair| pair.input == idx);
                matches!(feeds[idx], Feed::Absent) && !is_state()
            })
        {
            return refuse(format!("input `{}` is missing", names[idx]));
        }
        self.run(feeds, watch)
    }

    /// Waits for runs that were not waited for: on a stream of the caller, or of a pipeline.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.is_ahead) {
            // An error of these is told to whoever waits for their results.
            let _ = self.queues.synchronize();
        }
        if self.foreign.is_some() && !self.mode.waits {
            // An error of that run is the caller's to find on its own stream.
            let _ = self.passed.as_ref().map(|passed| passed.wait());
            self.mode.waits = true;
        }
    }

    /// Takes the weights that the engine was given last. A run has those that it begins with.
    pub(crate) fn catch_up(&mut self) {
        if self.engine.catch_up() {
            // Runs that were not waited for read the old weights, which may go now.
            let _ = self.queues.synchronize();
            let _ = self.passed.as_ref().map(|passed| passed.wait());
            self.frame.unprepare();
        }
    }

    /// Notes where a stream of the caller is, on which a run was just queued.
    fn note_passed(&mut self) {
        let Some((_, queue)) = &mut self.foreign else { return };
        let noted = match &self.passed {
            Some(passed) => queue.record_at(&**passed),
            None => queue.record().map(|passed| self.passed = Some(passed)),
        };
        if noted.is_err() {
            // Whoever cannot wait later waits now.
            let _ = queue.synchronize();
            self.mode.waits = true;
        }
    }

    /// What the kernels of a run ahead found wrong; whoever asks has waited for it.
    pub(crate) fn faults_ahead(&self, slot: usize) -> Result<(), RunError> {
        self.frame.faults.take(1 + slot, &self.engine.core.unit.program)
    }

    /// Forgets what kernels of earlier runs found wrong.
    pub(crate) fn forget_faults(&self) {
        self.frame.faults.forget(&self.engine.core.unit.program);
    }

    /// Waits for what the last run left on a stream of the caller, and has nothing more to do with that.
    pub(crate) fn leave_foreign(&mut self) {
        self.settle();
        self.foreign = None;
    }

    /// Whether every output can be written to a buffer on the device.
    pub(crate) fn can_bind_on_device(&self) -> bool {
        let core = &self.engine.core;
        (0..core.output_names.len()).all(|idx| FrameMemory::can_bind(core, &core.unit, idx, Site::Device))
    }

    /// Queues a run after those that are under way on the context's own queues, and returns. `slot` tells it from the
    /// others; [`State::faults_ahead`] tells what its kernels found wrong.
    pub(crate) fn run_ahead(&mut self, bindings: &mut Bindings, slot: usize) -> Result<(), RunError> {
        self.is_ahead = false;
        self.mode.waits = false;
        self.frame.faults.select(1 + slot);
        let result = self.run_bound(bindings, Watch::default());
        self.frame.faults.select(0);
        self.mode.waits = true;
        self.is_ahead = true;
        result
    }

    /// # Safety
    /// As for [`Context::run_device`].
    pub(crate) unsafe fn run_device(
        &mut self,
        inputs: &[(&str, DeviceView<'_>)],
        outputs: &[(&str, DeviceTarget)],
        stream: Option<u64>,
    ) -> Result<(), RunError> {
        let engine = self.engine.clone();
        let core = &engine.core;
        let target = core.device()?;
        let refuse = |message: String| Err(RunError::new(RunErrorKind::WrongInputs, message));
        for (name, target) in outputs {
            let idx = core.output_idx(name)?;
            let bound = Bound { to: target.address, bytes: target.bytes, site: Site::Device };
            if !self.frame.memory.bind(core, &core.unit, idx, Some(bound)) {
                return refuse(format!("output `{name}` is not made on the device; take it from the host"));
            }
        }
        let Some(stream) = stream else {
            let named = inputs.iter().map(|(name, view)| (*name, Feed::Device(*view)));
            return self.run_feeds(named, inputs.len(), Watch::default());
        };
        if core.unit.outline.segments.len() > 1 {
            return refuse("the plan has sizes that only a run can tell; run it without a stream".into());
        }
        if self.foreign.as_ref().is_none_or(|(known, _)| *known != stream) {
            self.settle();
            let options = QueueOptions { threads: self.mode.threads, wait: self.options.wait };
            // SAFETY: the caller vouches for the stream.
            self.foreign =
                Some((stream, unsafe { core.backends[target as usize].queue_over(stream, options)? }));
        }
        // Runs that follow each other on one stream are in order already.
        self.mode.waits = true;
        let Some((_, queue)) = self.foreign.take() else { return Ok(()) };
        let own = self.queues.replace(target, queue);
        self.mode.waits = false;
        let named = inputs.iter().map(|(name, view)| (*name, Feed::Device(*view)));
        let run = || self.run_feeds(named, inputs.len(), Watch::default());
        // The context's own queue goes back to its place whatever happens.
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(&*payload)));
        self.foreign = Some((stream, self.queues.replace(target, own)));
        self.note_passed();
        result
    }

    pub(crate) fn unbind(&mut self) {
        let core = &self.engine.core;
        for idx in 0..core.output_names.len() {
            self.frame.memory.bind(core, &core.unit, idx, None);
        }
    }

    /// Runs on buffers, outputs in place where that can be and copied where not.
    pub(crate) fn run_bound(&mut self, bindings: &mut Bindings, watch: Watch<'_>) -> Result<(), RunError> {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let run = || self.try_run_bound(bindings, &mut places, watch);
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(&*payload)));
        self.places = places;
        if result.is_err() {
            // No run, no outputs: those of an earlier one are not this one's.
            self.frame.prepared.forget();
        }
        // Also when it failed: nothing may point at the buffers when they go back.
        self.unbind();
        result
    }

    /// Whether the last run is over and its outputs can be looked at.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_ahead && self.mode.waits
    }

    fn try_run_bound(
        &mut self,
        bindings: &mut Bindings,
        places: &mut Vec<(usize, bool)>,
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let engine = self.engine.clone();
        let core = &engine.core;
        let refuse = |kind, message: String| Err(RunError::new(kind, message));
        for (name, buffer) in &mut bindings.outputs {
            let idx = core.output_idx(name)?;
            if places.iter().any(|&(known, _)| known == idx) {
                return refuse(RunErrorKind::WrongInputs, format!("output `{name}` was given twice"));
            }
            let ty = &core.plan.program.values[core.plan.program.outputs[idx] as usize].ty;
            let (wanted, given) = (ty.as_tensor().map(|ty| ty.dtype), buffer.dtype());
            if wanted != Some(given) {
                let is = wanted.map_or("no tensor", |dtype| dtype.name());
                let message = format!("output `{name}` is {is}, its buffer is for {}", given.name());
                return refuse(RunErrorKind::WrongType, message);
            }
            check_site(core, "output", name, buffer)?;
            let bound = match buffer {
                Buffer::Host(buffer) => {
                    let to = Address(buffer.pointer().expose_provenance() as u64);
                    let is_pinned = buffer.is_pinned_by(core.pinning.as_ref());
                    let site = if is_pinned { Site::Pinned } else { Site::Host };
                    Bound { to, bytes: buffer.capacity(), site }
                }
                Buffer::Device(buffer) => {
                    let DeviceTarget { address, bytes } = buffer.target();
                    Bound { to: address, bytes, site: Site::Device }
                }
            };
            let direct = self.frame.memory.bind(core, &core.unit, idx, Some(bound));
            if !direct && bound.site == Site::Device {
                let message = format!("output `{name}` is not made on the device; give it a host buffer");
                return refuse(RunErrorKind::WrongInputs, message);
            }
            places.push((idx, direct));
        }
        for (name, buffer) in &bindings.inputs {
            check_site(core, "input", name, buffer)?;
        }
        let inputs = bindings.inputs.iter().map(|(name, buffer)| {
            let feed = match buffer {
                Buffer::Host(buffer) if buffer.is_pinned_by(core.pinning.as_ref()) => {
                    Feed::Pinned(buffer.view())
                }
                Buffer::Host(buffer) => Feed::View(buffer.view()),
                Buffer::Device(buffer) => Feed::Device(buffer.view()),
            };
            (name.as_str(), feed)
        });
        self.run_feeds(inputs, bindings.inputs.len(), watch)?;
        // Copies first: one may be of an output that lies in another buffer.
        for pass in [false, true] {
            for ((name, buffer), &(idx, direct)) in bindings.outputs.iter_mut().zip(&*places) {
                if direct != pass {
                    continue;
                }
                let missing = || RunError::new(RunErrorKind::Failed, format!("output `{name}` was not made"));
                let dims = self.frame.last_output_dims(&core.unit, idx).ok_or_else(missing)?;
                if !buffer.set_dims(dims) {
                    let has = buffer.capacity();
                    let message = format!("output `{name}` of sizes {dims:?} has no room in {has} bytes");
                    return refuse(RunErrorKind::WrongShape, message);
                }
                if let (false, Buffer::Host(buffer)) = (direct, buffer) {
                    let view = self.frame.output(&core.unit, idx).0.ok_or_else(missing)?;
                    buffer.bytes_mut().copy_from_slice(view.bytes());
                }
            }
        }
        Ok(())
    }
}
