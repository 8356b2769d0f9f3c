//! `Context`: one caller's memory and queues over a shared engine.

use std::sync::Arc;

use planish_kernel::{Address, Backend, QueueOptions, Wait};
use planish_op::{Meter, Value};
use planish_tensor::Tensor;

use crate::branches::DEFAULT_STREAMS;
use crate::buffer::{Bindings, HostBuffer};
use crate::clock::Phases;
use crate::device::{DeviceBuffer, DeviceTarget, DeviceView};
use crate::engine::Engine;
use crate::error::{RunError, RunErrorKind};
use crate::feed::{Bound, Feed, Site};
use crate::frame::Frame;
use crate::pending::{ContextRunner, Job, Pending, lost, start_runner};
use crate::ports::{buffer, checked, device_of};
use crate::results::output_dims;
use crate::run::{Mode, Observed, Queues, Watch};
use crate::state::{MAX_STACK_INPUTS, State};
use crate::states::Sequence;
use crate::streaming::Feeder;
use crate::view::{Outputs, View};

/// Of memory that kernels write in place.
const ALIGNMENT: usize = 64;

/// More streams than any model has branches that are worth one.
const MAX_STREAMS: usize = 8;

/// How a context runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContextOptions {
    /// CPU threads that a run may use, the caller included. Results do not depend on it.
    pub threads: usize,
    /// How a run waits for a device.
    pub wait: Wait,
    /// Whether launches on a device are captured at the second run of a size and replayed from then on.
    pub captured: bool,
    /// Streams over which a captured graph's branches are spread; 1 keeps them one after another.
    pub streams: usize,
}

impl ContextOptions {
    /// With this many threads, waiting blocked, launches captured, their branches on [`DEFAULT_STREAMS`].
    pub fn new(threads: usize) -> ContextOptions {
        ContextOptions { threads, wait: Wait::default(), captured: true, streams: DEFAULT_STREAMS }
    }
}

/// What a run needs beside the shared engine: memory and queues. Serves one caller at a time.
#[derive(Debug)]
pub struct Context {
    engine: Engine,
    /// Absent only while the runner has it.
    pub(crate) state: Option<Box<State>>,
    /// Started by the first `run_async`.
    pub(crate) runner: Option<ContextRunner>,
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
        let plan = &engine.core.plan;
        let queue = |backend: &Arc<dyn Backend>| backend.queue(QueueOptions { threads, wait: options.wait });
        let list = engine.core.backends.iter().map(queue).collect::<Result<_, _>>()?;
        let watched = plan.device().unwrap_or(plan.host());
        let streams = options.streams.clamp(1, MAX_STREAMS);
        let mode = Mode { threads, poison: false, captured: options.captured, waits: true, streams };
        let mut frame = Frame::default();
        frame.memory.allocator.clone_from(&engine.allocator);
        let mut queues = Queues::new(list, watched, Meter::new(engine.limits.clone()));
        if let Some(streaming) = &engine.core.weights.streaming {
            let backend = &*engine.core.backends[streaming.target as usize];
            queues.feeder = Some(Feeder::new(backend, streaming, options.wait)?);
        }
        let state = State {
            engine: engine.clone(),
            frame,
            queues,
            mode,
            foreign: None,
            passed: None,
            is_ahead: false,
            options,
            places: Vec::new(),
            sequence: Sequence::default(),
            lent: Vec::new(),
        };
        Ok(Context { engine, state: Some(Box::new(state)), runner: None })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The state, back from a run whose handle was forgotten if need be.
    pub(crate) fn state(&mut self) -> Result<&mut State, RunError> {
        if self.state.is_none() {
            drop(self.finish());
        }
        let state = self.state.as_deref_mut().ok_or_else(lost)?;
        if !Arc::ptr_eq(&self.engine.core, &state.engine.core) {
            // Weights that no run takes any more are not held.
            self.engine = state.engine.clone();
        }
        Ok(state)
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

    /// Output number `idx` of the last run, if that succeeded, was waited for, and left a tensor in the context. What a
    /// run wrote to a buffer ([`Context::run_bound`], [`Context::run_async`], a pipeline) is in that buffer alone.
    pub fn output(&self, idx: usize) -> Option<View<'_>> {
        let state = self.state.as_ref().filter(|state| state.is_settled())?;
        state.frame.output(&self.engine.core.unit, idx).0
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

    /// The same without the zeros: whatever was there before, until a run writes it.
    pub fn device_output_room(&self, name: &str, dims: &[usize]) -> Result<DeviceBuffer, RunError> {
        let core = &self.engine.core;
        let dtype = checked(core, "output", name, core.plan.program.outputs[core.output_idx(name)?], dims)?;
        DeviceBuffer::room(device_of(core)?, dtype, dims)
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
            self.runner = Some(start_runner()?);
        }
        if let (Some(runner), Some(state)) = (&self.runner, self.state.take()) {
            runner.begin(Job { state, bindings });
        }
        Ok(Pending { context: self })
    }

    /// Runs on tensors in the memory of the plan's device, without a copy where that can be. With a stream of the
    /// caller (as the device's own interface names it, a `CUstream`) the run is queued there after what is queued
    /// already, and this returns at once; without one, on the context's own stream, and this waits.
    ///
    /// # Safety
    /// What [`DeviceView::from_raw`] and [`DeviceTarget::from_raw`] ask for must hold until the run is done. A stream
    /// must be one of the plan's device; it may be destroyed as soon as this returned.
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

    /// Waits for what earlier runs left on a stream of the caller, and tells what their kernels found wrong with the
    /// inputs' values (an index out of range), as the next run of the context would.
    pub fn synchronize(&mut self) -> Result<(), RunError> {
        let state = self.state()?;
        state.settle();
        state.frame.faults.take(0, &state.engine.core.unit.program)
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
        if !state.frame.memory.bind(core, &core.unit, idx, Some(bound)) {
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

    /// The same, with every kernel step reading `stand_ins` of its inputs, by the numbers of the values in the plan's
    /// program, instead of what earlier steps made: what a step gets wrong by itself shows. Weights, the model's inputs and
    /// values on the host, and steps in bodies of control flow, read what there is.
    pub fn observe_alone(
        &mut self,
        inputs: &[Value],
        stand_ins: &mut dyn FnMut(u32) -> Option<Tensor>,
        observer: &mut dyn FnMut(Observed),
    ) -> Result<(), RunError> {
        let feeds: Vec<Feed<'_>> = inputs.iter().map(Feed::Value).collect();
        let watch = Watch { observer: Some(observer), stand_ins: Some(stand_ins), ..Watch::default() };
        self.state()?.run(&feeds, watch)
    }

    /// Sizes of the outputs for inputs of these sizes, in the model's order, without running; `None` where
    /// only a run can tell.
    pub fn output_dims(&self, inputs: &[(&str, &[usize])]) -> Result<Vec<Option<Vec<usize>>>, RunError> {
        let mut dims = vec![None; self.engine.core.input_names.len()];
        for (name, given) in inputs {
            dims[self.engine.core.input_idx(name)?] = Some(*given);
        }
        output_dims(&self.engine.core, &dims)
    }

    /// Prepares kernels and memory for inputs of these sizes, so that their first run need not. Parts after
    /// sizes that only a run can tell are prepared by that run.
    pub fn resolve(&mut self, inputs: &[(&str, &[usize])]) -> Result<(), RunError> {
        let state = self.state()?;
        let core = &state.engine.core;
        let mut dims = vec![None; core.input_names.len()];
        for (name, given) in inputs {
            dims[core.input_idx(name)?] = Some(*given);
        }
        state.frame.resolve_ahead(core, &dims, state.mode, &mut state.queues.meter)
    }

    /// Bytes of the arena and the outputs, as large as runs have needed so far.
    pub fn arena_bytes(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame.memory.bytes())
    }

    /// How many spans of launches are captured, and the bytes that the captured graphs hold as far as is known.
    pub fn graphs(&self) -> (usize, usize) {
        self.state.as_ref().map_or((0, 0), |state| state.frame.graphs())
    }

    /// How often sizes were met that had to be resolved.
    pub fn n_resolved(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.frame.prepared.n_resolved())
    }
}
