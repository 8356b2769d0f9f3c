//! `Context`: one caller's memory and queues over a shared engine.

use std::sync::Arc;

use planish_kernel::{Address, Backend, MemoryKind, Queue, QueueOptions, Wait};
use planish_op::Value;
use planish_tensor::DType;

use crate::buffer::{Bindings, Buffer, HostBuffer};
use crate::clock::Phases;
use crate::device::{DeviceBuffer, DeviceTarget, DeviceView};
use crate::engine::{Core, Engine};
use crate::error::{RunError, RunErrorKind};
use crate::frame::{Bound, Feed, Frame, Mode, Observed, Queues, Site, Watch};
use crate::runner::{Pending, Runner};
use crate::view::{Outputs, View};

/// Inputs up to which a run keeps its list of them on the stack.
const MAX_STACK_INPUTS: usize = 16;
/// Of memory that kernels write in place.
const ALIGNMENT: usize = 64;

/// How a context runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextOptions {
    /// CPU threads that a run may use, the caller included. Results do not depend on it.
    pub threads: usize,
    /// How a run waits for a device.
    pub wait: Wait,
    /// Whether launches on a device are recorded at the second run of a size and replayed from then on.
    pub recorded: bool,
}

impl ContextOptions {
    /// With this many threads, waiting blocked, launches recorded.
    pub fn new(threads: usize) -> ContextOptions {
        ContextOptions { threads, wait: Wait::default(), recorded: true }
    }
}

/// What a run needs beside the shared engine: memory and queues. Serves one caller at a time.
#[derive(Debug)]
pub struct Context {
    engine: Engine,
    /// Absent only while the runner has it.
    pub(crate) state: Option<Box<State>>,
    /// Started by the first `run_async`.
    pub(crate) runner: Option<Runner>,
}

/// What moves to the runner for a run.
#[derive(Debug)]
pub(crate) struct State {
    engine: Engine,
    frame: Frame,
    queues: Queues,
    mode: Mode,
    /// The caller's stream that the last run was queued on, and the queue over it.
    foreign: Option<(u64, Box<dyn Queue>)>,
    options: ContextOptions,
    /// For each bound output its number and whether it is written in place; kept so that runs need no memory.
    places: Vec<(usize, bool)>,
}

impl Drop for State {
    fn drop(&mut self) {
        // What was queued on the caller's stream may still use our memory.
        self.settle();
    }
}

/// The time of one step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepTime {
    /// Index of the step in the plan's program.
    pub step: usize,
    pub ns: u64,
}

/// The times of a profiled run; steps sum to the total but for the time between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Profiled {
    pub steps: Vec<StepTime>,
    pub total_ns: u64,
}

impl Context {
    pub(crate) fn new(engine: Engine, options: ContextOptions) -> Result<Context, RunError> {
        let threads = options.threads.max(1);
        let program = &engine.core.plan.program;
        let mut list = Vec::new();
        for (target, backend) in engine.core.backends.iter().enumerate() {
            let steps = program.steps.iter().filter(|step| step.target as usize == target);
            let n_streams = steps.map(|step| step.stream + 1).max().unwrap_or(1);
            let mut streams = Vec::new();
            for _ in 0..n_streams {
                streams.push(backend.queue(QueueOptions { threads, wait: options.wait })?);
            }
            list.push(streams);
        }
        let mode = Mode { threads, poison: false, recorded: options.recorded, waits: true };
        let state = State {
            engine: engine.clone(),
            frame: Frame::default(),
            queues: Queues { list },
            mode,
            foreign: None,
            options,
            places: Vec::new(),
        };
        Ok(Context { engine, state: Some(Box::new(state)), runner: None })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The state, back from a run whose handle was forgotten if need be.
    fn state(&mut self) -> Result<&mut State, RunError> {
        if self.state.is_none() {
            drop(self.finish());
        }
        self.state.as_deref_mut().ok_or_else(lost)
    }

    /// Fills memory with NaN before each run from now on: what reads what nobody wrote then shows.
    pub fn set_poison(&mut self, poison: bool) {
        if let Ok(state) = self.state() {
            state.mode.poison = poison;
        }
    }

    /// Runs the model on inputs by name and waits. The outputs lie in the context until its next run. Allocates
    /// nothing for sizes that the last run had, up to 16 inputs.
    pub fn run(&mut self, inputs: &[(&str, View<'_>)]) -> Result<Outputs<'_>, RunError> {
        let state = self.state()?;
        state.run_named(inputs, Watch::default())?;
        Ok(Outputs { core: &state.engine.core, frame: &state.frame })
    }

    /// Runs the model on inputs in its own order and waits, without allocating for sizes that the last run had.
    pub fn run_in_order(&mut self, inputs: &[View<'_>]) -> Result<(), RunError> {
        let state = self.state()?;
        match inputs {
            [first, ..] if inputs.len() <= MAX_STACK_INPUTS => {
                let mut feeds = [Feed::View(*first); MAX_STACK_INPUTS];
                for (feed, input) in feeds.iter_mut().zip(inputs) {
                    *feed = Feed::View(*input);
                }
                state.run(&feeds[..inputs.len()], Watch::default())
            }
            _ => {
                let feeds = inputs.iter().map(|input| Feed::View(*input)).collect::<Vec<_>>();
                state.run(&feeds, Watch::default())
            }
        }
    }

    /// Output number `idx` of the last run, if that succeeded and it is a tensor.
    pub fn output(&self, idx: usize) -> Option<View<'_>> {
        self.state.as_ref()?.frame.output(&self.engine.core.unit, idx).0
    }

    /// Runs the model on values of any kind, in the model's order of inputs.
    pub fn run_values(&mut self, inputs: &[Value]) -> Result<Vec<Value>, RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(Feed::Value).collect();
        let state = self.state()?;
        state.run(&feeds, Watch::default())?;
        state.frame.output_values(&state.engine.core.unit)
    }

    /// A zeroed buffer for input `name` at these sizes.
    pub fn input_buffer(&self, name: &str, dims: &[usize]) -> Result<HostBuffer, RunError> {
        let core = &self.engine.core;
        buffer(core, "input", name, core.plan.program.inputs[core.input_idx(name)?], dims)
    }

    /// A zeroed buffer on the plan's device for input `name` at these sizes.
    pub fn device_input_buffer(&self, name: &str, dims: &[usize]) -> Result<DeviceBuffer, RunError> {
        let core = &self.engine.core;
        let dtype = checked(core, "input", name, core.plan.program.inputs[core.input_idx(name)?], dims)?;
        DeviceBuffer::zeros(device_of(core)?, dtype, dims)
    }

    /// A zeroed buffer on the plan's device for output `name`, large enough for these sizes.
    pub fn device_output_buffer(&self, name: &str, dims: &[usize]) -> Result<DeviceBuffer, RunError> {
        let core = &self.engine.core;
        let dtype = checked(core, "output", name, core.plan.program.outputs[core.output_idx(name)?], dims)?;
        DeviceBuffer::zeros(device_of(core)?, dtype, dims)
    }

    /// A zeroed buffer for output `name`, large enough for these sizes.
    pub fn output_buffer(&self, name: &str, dims: &[usize]) -> Result<HostBuffer, RunError> {
        let core = &self.engine.core;
        buffer(core, "output", name, core.plan.program.outputs[core.output_idx(name)?], dims)
    }

    /// Runs on buffers and waits; outputs that have a buffer are written there in place.
    pub fn run_bound(&mut self, bindings: &mut Bindings) -> Result<(), RunError> {
        self.state()?.run_bound(bindings, Watch::default())
    }

    /// Starts a run on the context's own thread. The buffers are the run's until [`Pending::wait`] gives them
    /// back, so nobody can change or free them under it.
    pub fn run_async(&mut self, bindings: Bindings) -> Result<Pending<'_>, RunError> {
        self.state()?;
        if self.runner.is_none() {
            self.runner = Some(Runner::start()?);
        }
        if let (Some(runner), Some(state)) = (&self.runner, self.state.take()) {
            runner.start_run(state, bindings);
        }
        Ok(Pending { context: self })
    }

    /// Waits for the run that is under way and takes the state back.
    pub(crate) fn finish(&mut self) -> (Bindings, Result<(), RunError>) {
        match self.runner.as_ref().and_then(Runner::take_back) {
            Some(done) => {
                self.state = Some(done.state);
                (done.bindings, done.result)
            }
            None => (Bindings::new(), Err(lost())),
        }
    }

    /// Runs on tensors in the memory of the plan's device, without a copy where that can be. With a stream of the
    /// caller (as the device's own interface names it, a `CUstream`) the run is queued there behind what is queued
    /// already, and this returns at once; without one, on the context's own stream, and this waits.
    ///
    /// # Safety
    /// What [`DeviceView::from_raw`] and [`DeviceTarget::from_raw`] ask for must hold until the run is done. A stream
    /// must be one of the plan's device, and outlive the context or the next run on another one.
    pub unsafe fn run_device(
        &mut self,
        inputs: &[(&str, DeviceView<'_>)],
        outputs: &[(&str, DeviceTarget)],
        stream: Option<u64>,
    ) -> Result<(), RunError> {
        let state = self.state()?;
        // SAFETY: the caller's promise is passed on.
        let result = unsafe { state.run_device(inputs, outputs, stream) };
        state.unbind();
        result
    }

    /// Runs once and tells how long the device was busy with transfers and with kernels, by its own clock. Zeros
    /// for a plan without a device.
    pub fn run_phased(&mut self, inputs: &[View<'_>]) -> Result<Phases, RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(|input| Feed::View(*input)).collect();
        let mut phases = Phases::default();
        let watch = Watch { phases: Some(&mut phases), ..Watch::default() };
        self.state()?.run(&feeds, watch)?;
        Ok(phases)
    }

    /// As [`Context::run_phased`], on buffers.
    pub fn run_bound_phased(&mut self, bindings: &mut Bindings) -> Result<Phases, RunError> {
        let mut phases = Phases::default();
        let watch = Watch { phases: Some(&mut phases), ..Watch::default() };
        self.state()?.run_bound(bindings, watch)?;
        Ok(phases)
    }

    /// Has output `name` written to foreign memory by every run from now on, until [`Context::unbind_outputs`].
    /// [`Context::run_bound`] does the same on memory that it can vouch for.
    ///
    /// # Safety
    /// `to` must be aligned to 64 bytes, valid for reads and writes of `bytes` bytes until the output is unbound
    /// or the context dropped, and touched by nobody else while the context runs or a view of the output lives.
    pub unsafe fn bind_output(&mut self, name: &str, to: *mut u8, bytes: usize) -> Result<(), RunError> {
        let state = self.state()?;
        let core = &state.engine.core;
        let idx = core.output_idx(name)?;
        let refuse = |why: &str| {
            Err(RunError::new(RunErrorKind::WrongInputs, format!("output `{name}` cannot be bound: {why}")))
        };
        if !to.addr().is_multiple_of(ALIGNMENT) {
            return refuse("its memory must be aligned to 64 bytes");
        }
        let bound = Bound { to: Address(to.expose_provenance() as u64), bytes, site: Site::Host };
        if !state.frame.bind(core, &core.unit, idx, Some(bound)) {
            return refuse("only a run can tell its size, or its memory is another value's; copy it instead");
        }
        Ok(())
    }

    /// Has all outputs written to the context's memory again.
    pub fn unbind_outputs(&mut self) {
        if let Ok(state) = self.state() {
            state.unbind();
        }
    }

    /// Runs once and times every step.
    pub fn profile(&mut self, inputs: &[(&str, View<'_>)]) -> Result<Profiled, RunError> {
        let mut times = Vec::with_capacity(self.engine.core.plan.program.steps.len());
        let started = std::time::Instant::now();
        let watch = Watch { times: Some(&mut times), ..Watch::default() };
        self.state()?.run_named(inputs, watch)?;
        let total_ns = started.elapsed().as_nanos() as u64;
        let steps = times.into_iter().enumerate().map(|(step, ns)| StepTime { step, ns }).collect();
        Ok(Profiled { steps, total_ns })
    }

    /// Runs once, and shows what every kernel step read and wrote.
    pub fn observe(
        &mut self,
        inputs: &[Value],
        observer: &mut dyn FnMut(Observed),
    ) -> Result<Vec<Value>, RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(Feed::Value).collect();
        let state = self.state()?;
        state.run(&feeds, Watch { observer: Some(observer), ..Watch::default() })?;
        state.frame.output_values(&state.engine.core.unit)
    }

    /// Sizes of the outputs for inputs of these sizes, in the model's order, without running; `None` where
    /// only a run can tell.
    pub fn output_dims(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<Option<Vec<usize>>>, RunError> {
        let mut dims = vec![None; self.engine.core.input_names.len()];
        for (name, given) in inputs {
            dims[self.engine.core.input_idx(name)?] = Some(*given);
        }
        Frame::output_dims(&self.engine.core.unit, &self.engine.core, &dims)
    }

    /// Prepares kernels and memory for inputs of these sizes, so that their first run need not. Parts behind
    /// sizes that only a run can tell are prepared by that run.
    pub fn resolve(&mut self, inputs: &[(&str, &[usize])]) -> Result<(), RunError> {
        let state = self.state()?;
        let core = &state.engine.core;
        let mut dims = vec![None; core.input_names.len()];
        for (name, given) in inputs {
            dims[core.input_idx(name)?] = Some(*given);
        }
        state.frame.resolve_ahead(core, &core.unit, &dims, state.mode)
    }

    /// Bytes of the arena and the outputs, as large as runs have needed so far.
    pub fn arena_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame.arena_bytes())
    }

    /// Bytes of the arena in the memory of the plan's device; zero without one.
    pub fn device_arena_bytes(&self) -> usize {
        let device = self.engine.core.backends.len() - 1;
        match self.engine.core.backends[device].memory_kind() {
            MemoryKind::Device => self.state.as_ref().map_or(0, |state| state.frame.arena_bytes_of(device)),
            MemoryKind::Host => 0,
        }
    }

    /// How many stretches of launches are recorded, and the bytes that the recordings hold as far as is known.
    pub fn recordings(&self) -> (usize, usize) {
        self.state.as_ref().map_or((0, 0), |state| state.frame.recordings())
    }

    /// How often sizes were met that had to be resolved.
    pub fn n_resolved(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame.n_resolved())
    }
}

impl State {
    fn run(&mut self, feeds: &[Feed<'_>], watch: Watch<'_>) -> Result<(), RunError> {
        self.settle();
        let core = &self.engine.core;
        self.frame.run(core, &core.unit, feeds, &mut self.queues, self.mode, watch)
    }

    fn run_named(&mut self, inputs: &[(&str, View<'_>)], watch: Watch<'_>) -> Result<(), RunError> {
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
            && let Some(idx) = feeds.iter().position(|feed| matches!(feed, Feed::Absent))
        {
            return refuse(format!("input `{}` is missing", names[idx]));
        }
        self.run(feeds, watch)
    }

    /// Waits for what the last run left on a stream of the caller.
    fn settle(&mut self) {
        if let Some((_, queue)) = &mut self.foreign
            && !self.mode.waits
        {
            // An error of that run is the caller's to find on its own stream.
            let _ = queue.synchronize();
            self.mode.waits = true;
        }
    }

    /// # Safety
    /// As for [`Context::run_device`].
    unsafe fn run_device(
        &mut self,
        inputs: &[(&str, DeviceView<'_>)],
        outputs: &[(&str, DeviceTarget)],
        stream: Option<u64>,
    ) -> Result<(), RunError> {
        let engine = self.engine.clone();
        let core = &engine.core;
        let device = device_of(core)?;
        let refuse = |message: String| Err(RunError::new(RunErrorKind::WrongInputs, message));
        for (name, target) in outputs {
            let idx = core.output_idx(name)?;
            let bound = Bound { to: target.address, bytes: target.bytes, site: Site::Device };
            if !self.frame.bind(core, &core.unit, idx, Some(bound)) {
                return refuse(format!("output `{name}` is not made on the device; take it from the host"));
            }
        }
        let Some(stream) = stream else {
            let named = inputs.iter().map(|(name, view)| (*name, Feed::Device(*view)));
            return self.run_feeds(named, inputs.len(), Watch::default());
        };
        let target = core.backends.len() - 1;
        if self.queues.list[target].len() > 1 || core.unit.outline.segments.len() > 1 {
            return refuse(
                "the plan needs several streams or sizes that only a run can tell; run it without a stream"
                    .into(),
            );
        }
        if self.foreign.as_ref().is_none_or(|(known, _)| *known != stream) {
            self.settle();
            let options = QueueOptions { threads: self.mode.threads, wait: self.options.wait };
            // SAFETY: the caller vouches for the stream.
            self.foreign = Some((stream, unsafe { device.queue_over(stream, options)? }));
        }
        // Runs that follow each other on one stream are in order already.
        self.mode.waits = true;
        let Some((_, mut queue)) = self.foreign.take() else { return Ok(()) };
        std::mem::swap(&mut self.queues.list[target][0], &mut queue);
        self.mode.waits = false;
        let named = inputs.iter().map(|(name, view)| (*name, Feed::Device(*view)));
        let result = self.run_feeds(named, inputs.len(), Watch::default());
        std::mem::swap(&mut self.queues.list[target][0], &mut queue);
        self.foreign = Some((stream, queue));
        result
    }

    fn unbind(&mut self) {
        let core = &self.engine.core;
        for idx in 0..core.output_names.len() {
            self.frame.bind(core, &core.unit, idx, None);
        }
    }

    /// Runs on buffers, outputs in place where that can be and copied where not.
    pub(crate) fn run_bound(&mut self, bindings: &mut Bindings, watch: Watch<'_>) -> Result<(), RunError> {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let result = self.try_run_bound(bindings, &mut places, watch);
        self.places = places;
        // Also when it failed: nothing may point at the buffers when they go back.
        self.unbind();
        result
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
            let bound = match buffer {
                Buffer::Host(buffer) => {
                    let to = Address(buffer.pointer().expose_provenance() as u64);
                    let site = if buffer.is_pinned() { Site::Pinned } else { Site::Host };
                    Bound { to, bytes: buffer.capacity(), site }
                }
                Buffer::Device(buffer) => {
                    let DeviceTarget { address, bytes } = buffer.target();
                    Bound { to: address, bytes, site: Site::Device }
                }
            };
            let direct = self.frame.bind(core, &core.unit, idx, Some(bound));
            if !direct && bound.site == Site::Device {
                let message = format!("output `{name}` is not made on the device; give it a host buffer");
                return refuse(RunErrorKind::WrongInputs, message);
            }
            places.push((idx, direct));
        }
        let inputs = bindings.inputs.iter().map(|(name, buffer)| {
            let feed = match buffer {
                Buffer::Host(buffer) if buffer.is_pinned() => Feed::Pinned(buffer.view()),
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

/// The plan's device.
fn device_of(core: &Core) -> Result<Arc<dyn Backend>, RunError> {
    let device = core.backends.iter().rfind(|backend| backend.memory_kind() == MemoryKind::Device);
    device.cloned().ok_or_else(|| {
        RunError::new(RunErrorKind::WrongInputs, "the plan runs in host memory alone; give it host buffers")
    })
}

/// A buffer for an input or output, pinned where the plan has a device.
fn buffer(core: &Core, what: &str, name: &str, value: u32, dims: &[usize]) -> Result<HostBuffer, RunError> {
    let dtype = checked(core, what, name, value, dims)?;
    let bytes = planish_tensor::element_count(dims).and_then(|n| dtype.bytes_for(n));
    match bytes.map(|bytes| core.pinned(bytes.max(1))).transpose()?.flatten() {
        Some(memory) => Ok(HostBuffer::pinned(dtype, dims, memory)),
        None => HostBuffer::zeros(dtype, dims),
    }
}

/// The type of an input or output, its rank checked; sizes are when it is used.
fn checked(core: &Core, what: &str, name: &str, value: u32, dims: &[usize]) -> Result<DType, RunError> {
    let ty = &core.plan.program.values[value as usize].ty;
    let Some(tensor) = ty.as_tensor() else {
        let message = format!("{what} `{name}` is no tensor; use run_values");
        return Err(RunError::new(RunErrorKind::WrongType, message));
    };
    if let Some(shape) = &tensor.shape
        && shape.rank() != dims.len()
    {
        let message = format!("{what} `{name}` has shape {shape}, not {dims:?}");
        return Err(RunError::new(RunErrorKind::WrongShape, message));
    }
    Ok(tensor.dtype)
}

/// A runner that ended without giving the state back, which only a mistake of ours can bring about.
fn lost() -> RunError {
    RunError::new(RunErrorKind::Failed, "the context's run was lost; make a new context")
}
