//! One program with its memory: resolved at the sizes of its inputs, then run segment by segment.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use planish_kernel::{Address, Call, Event, Memory, MemoryKind, Queue};
use planish_op::Value;
use planish_plan::{Home, Program, Step};
use planish_tensor::Tensor;

use crate::bind::{Symbols, bind_inputs, choose_profile, tensor_type};
use crate::clock::{Clock, Mark, Phase, Phases, Span};
use crate::control::run_control;
use crate::device::DeviceView;
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::record::{How, Stretch};
use crate::resolve::{Action, Resolved, ResolvedStep, resolve};
use crate::view::View;

/// Segments at distinct sizes that a frame keeps prepared. A thousand distinct shapes in a row then cost a
/// resolve each, and memory stays bounded.
const MAX_RESOLVED: usize = 32;

/// What is fed to one input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feed<'a> {
    /// Not given yet; no run begins with one.
    Absent,
    View(View<'a>),
    /// In pinned memory that stays as it is until the run is over.
    Pinned(View<'a>),
    Value(&'a Value),
    /// In the memory of the plan's device.
    Device(DeviceView<'a>),
}

impl Feed<'_> {
    fn dims(&self) -> Option<&[usize]> {
        match self {
            Feed::Absent => None,
            Feed::View(view) | Feed::Pinned(view) => Some(view.dims()),
            Feed::Device(view) => Some(view.dims()),
            Feed::Value(value) => value.as_tensor().map(Tensor::shape),
        }
    }
}

/// The queues of a context: for each target, one per stream.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) list: Vec<Vec<Box<dyn Queue>>>,
}

impl Queues {
    pub(crate) fn get(&mut self, target: u32, stream: u32) -> &mut dyn Queue {
        let streams = &mut self.list[target as usize];
        let at = (stream as usize).min(streams.len() - 1);
        &mut *streams[at]
    }

    /// Waits for all of them.
    fn synchronize(&mut self) -> Result<(), RunError> {
        self.list.iter_mut().flatten().try_for_each(|queue| Ok(queue.synchronize()?))
    }
}

/// What a value of its own holds at the moment.
#[derive(Debug, Default)]
pub(crate) enum Own {
    #[default]
    Nothing,
    Host(Value),
    Memory(Box<dyn Memory>),
}

/// What a kernel step read and wrote, as plain tensors; weights are left out.
#[derive(Debug)]
pub struct Observed {
    /// Index of the step in the plan's program.
    pub step: usize,
    pub inputs: Vec<Option<Tensor>>,
    pub outputs: Vec<Option<Tensor>>,
}

/// The caller's memory for one output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) to: Address,
    pub(crate) bytes: usize,
    pub(crate) site: Site,
}

/// Where a caller's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Site {
    Host,
    /// In host memory that a device's queue may write.
    Pinned,
    Device,
}

/// Who looks on while a program runs.
#[derive(Default)]
pub(crate) struct Watch<'a> {
    /// Gets the nanoseconds of every step.
    pub(crate) times: Option<&'a mut Vec<u64>>,
    /// Gets what the device was busy with.
    pub(crate) phases: Option<&'a mut Phases>,
    pub(crate) observer: Option<&'a mut dyn FnMut(Observed)>,
}

/// How a frame runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) threads: usize,
    /// Fill arenas and outputs with NaN before each run, so that whoever reads what nobody wrote is seen.
    pub(crate) poison: bool,
    /// Whether launches on devices are recorded and replayed.
    pub(crate) recorded: bool,
    /// Whether a run waits until everything is done, and not only queued.
    pub(crate) waits: bool,
}

/// A program's memory and its prepared segments.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) arenas: Vec<Option<Box<dyn Memory>>>,
    pub(crate) outputs: Vec<Option<Box<dyn Memory>>>,
    /// Where the caller wants an output written.
    pub(crate) bound: Vec<Option<Bound>>,
    pub(crate) own: Vec<Own>,
    /// Most recently used first.
    cache: Vec<(usize, Arc<Resolved>)>,
    /// The segments of the last run, and the input sizes it had.
    current: Vec<Arc<Resolved>>,
    last_dims: Vec<Vec<usize>>,
    bodies: Vec<Vec<Frame>>,
    /// Copies of inputs that the caller's memory has at addresses that their type does not allow.
    pub(crate) staging: Vec<Vec<u64>>,
    /// Pinned memory that inputs from pageable memory pass through on their way to a device.
    pub(crate) staged: Vec<Option<Box<dyn Memory>>>,
    addresses: Vec<Address>,
    events: Vec<Option<Box<dyn Event>>>,
    pub(crate) clock: Clock,
    /// What a timed run did on a device and from when on, and when each of its steps ran.
    pub(crate) marks: Vec<(Phase, Mark)>,
    pub(crate) spans: Vec<Span>,
    n_resolved: usize,
}

impl Frame {
    pub(crate) fn arena_bytes(&self) -> usize {
        let bytes = |list: &[Option<Box<dyn Memory>>]| -> usize {
            list.iter().flatten().map(|memory| memory.len()).sum()
        };
        bytes(&self.arenas) + bytes(&self.outputs)
    }

    /// Bytes of the arena in the memory of a target.
    pub(crate) fn arena_bytes_of(&self, target: usize) -> usize {
        let bodies: usize = self.bodies.iter().flatten().map(|body| body.arena_bytes_of(target)).sum();
        self.arenas.get(target).and_then(Option::as_ref).map_or(0, |memory| memory.len()) + bodies
    }

    /// How many recordings there are, and the bytes that they hold.
    pub(crate) fn recordings(&self) -> (usize, usize) {
        let own = self.cache.iter().map(|(_, resolved)| resolved.recordings.size());
        let bodies = self.bodies.iter().flatten().map(Frame::recordings);
        own.chain(bodies).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    pub(crate) fn n_resolved(&self) -> usize {
        self.n_resolved
    }

    /// Makes room for what is known per value, step, input and output.
    fn prepare(&mut self, core: &Core, unit: &Unit) {
        let n_values = unit.program.values.len();
        if self.own.len() < n_values {
            self.own.resize_with(n_values, Own::default);
            self.arenas.resize_with(core.backends.len(), || None);
            self.outputs.resize_with(unit.program.outputs.len(), || None);
            self.bound.resize(unit.program.outputs.len(), None);
            self.bodies.resize_with(unit.program.steps.len(), Vec::new);
            self.staging.resize_with(unit.program.inputs.len(), Vec::new);
            self.staged.resize_with(unit.program.inputs.len(), || None);
        }
    }

    /// Has output `idx` written to the caller's memory from now on, or not. Gives whether that can be: outputs
    /// whose size only a run can tell, that are another output too, or on a device have memory of their own.
    pub(crate) fn bind(&mut self, core: &Core, unit: &Unit, idx: usize, bound: Option<Bound>) -> bool {
        self.prepare(core, unit);
        let value = unit.program.outputs[idx] as usize;
        let record = &unit.program.values[value];
        let direct = matches!(record.home, Home::Arena)
            && !unit.outline.own[value]
            && unit.outline.output[value] == Some(idx)
            && core.backends[record.target as usize].memory_kind() == MemoryKind::Host;
        // Device memory is bound where a transfer to the host would write: nothing else can write there.
        let fits = match bound {
            Some(Bound { site: Site::Device, .. }) => direct && unit.outline.transferred[value],
            _ => direct,
        };
        self.bound[idx] = bound.filter(|_| fits);
        fits
    }

    /// Runs the program on these inputs. Whatever goes wrong, nothing is under way when this returns, and the
    /// next run starts anew.
    pub(crate) fn run(
        &mut self,
        core: &Core,
        unit: &Unit,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let run = || self.try_run(core, unit, feeds, queues, mode, watch);
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| Err(panicked(&*payload)));
        if result.is_err() {
            self.last_dims.clear();
            self.current.clear();
            for queue in queues.list.iter_mut().flatten() {
                // The first error is the one to tell; what matters here is that nothing writes any more.
                let _ = queue.synchronize();
            }
        }
        result
    }

    fn try_run(
        &mut self,
        core: &Core,
        unit: &Unit,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        mut watch: Watch<'_>,
    ) -> Result<(), RunError> {
        check_types(&unit.program, feeds)?;
        self.prepare(core, unit);
        let same = self.last_dims.len() == feeds.len()
            && !self.current.is_empty()
            && feeds.iter().zip(&self.last_dims).all(|(feed, last)| feed.dims().unwrap_or(&[]) == *last);
        if same && unit.outline.segments.len() == 1 {
            let resolved = self.current[0].clone();
            self.take_inputs(unit, feeds, queues)?;
            return self.segment(core, unit, 0, &resolved, feeds, queues, mode, &mut watch).map(|_| ());
        }
        if !mode.waits {
            // The run before may be under way still, and new sizes may move its memory.
            queues.synchronize()?;
        }
        let dims: Vec<Option<&[usize]>> = feeds.iter().map(Feed::dims).collect();
        let mut symbols = bind_inputs(&unit.program, &dims)?;
        if std::ptr::eq(unit, &core.unit) {
            choose_profile(&core.plan.profiles, &symbols)?;
        }
        self.current.clear();
        self.last_dims.clear();
        self.take_inputs(unit, feeds, queues)?;
        for idx in 0..unit.outline.segments.len() {
            let resolved = self.resolved(core, unit, idx, &symbols, mode)?;
            self.current.push(resolved.clone());
            if let Some(learned) =
                self.segment(core, unit, idx, &resolved, feeds, queues, mode, &mut watch)?
            {
                symbols = learned;
            }
        }
        self.last_dims = dims.iter().map(|dims| dims.unwrap_or(&[]).to_vec()).collect();
        Ok(())
    }

    /// Prepares the first segment for inputs of these sizes. Outputs of an earlier run are gone: their memory may
    /// have moved.
    pub(crate) fn resolve_ahead(
        &mut self,
        core: &Core,
        unit: &Unit,
        dims: &[Option<&[usize]>],
        mode: Mode,
    ) -> Result<(), RunError> {
        self.prepare(core, unit);
        let symbols = bind_inputs(&unit.program, dims)?;
        choose_profile(&core.plan.profiles, &symbols)?;
        self.current.clear();
        self.last_dims.clear();
        self.resolved(core, unit, 0, &symbols, mode)?;
        Ok(())
    }

    /// Sizes of the outputs for inputs of these sizes, without running; `None` where only a run can tell.
    pub(crate) fn output_dims(
        unit: &Unit,
        core: &Core,
        dims: &[Option<&[usize]>],
    ) -> Result<Vec<Option<Vec<usize>>>, RunError> {
        let symbols = bind_inputs(&unit.program, dims)?;
        choose_profile(&core.plan.profiles, &symbols)?;
        let sizes = |&value: &u32| {
            let ty = unit.program.values[value as usize].ty.as_tensor()?;
            symbols.eval_shape(ty.shape.as_ref()?)
        };
        Ok(unit.program.outputs.iter().map(sizes).collect())
    }

    fn resolved(
        &mut self,
        core: &Core,
        unit: &Unit,
        idx: usize,
        symbols: &Symbols,
        mode: Mode,
    ) -> Result<Arc<Resolved>, RunError> {
        let found = self.cache.iter().position(|(at, known)| *at == idx && known.symbols == *symbols);
        let resolved = match found {
            Some(at) => self.cache.remove(at).1,
            None => {
                self.n_resolved += 1;
                Arc::new(resolve(core, unit, idx, symbols, mode.threads)?)
            }
        };
        self.cache.insert(0, (idx, resolved.clone()));
        self.cache.truncate(MAX_RESOLVED);
        for (target, &bytes) in resolved.arena_bytes.iter().enumerate() {
            grow(&mut self.arenas[target], bytes, core, target)?;
        }
        for &(output, bytes) in &resolved.output_bytes {
            let value = unit.program.outputs[output as usize];
            let target = unit.program.values[value as usize].target as usize;
            grow(&mut self.outputs[output as usize], bytes, core, target)?;
        }
        for &(value, bytes) in &resolved.own_bytes {
            let target = unit.program.values[value as usize].target as usize;
            let mut memory = match std::mem::take(&mut self.own[value as usize]) {
                Own::Memory(memory) => Some(memory),
                Own::Nothing | Own::Host(_) => None,
            };
            grow(&mut memory, bytes, core, target)?;
            self.own[value as usize] = memory.map_or(Own::Nothing, Own::Memory);
        }
        Ok(resolved)
    }

    /// Keeps inputs that are host values (sequences, optionals) where steps find them, and copies tensors that
    /// are not aligned, or on a device and read by the host.
    fn take_inputs(&mut self, unit: &Unit, feeds: &[Feed<'_>], queues: &mut Queues) -> Result<(), RunError> {
        for (idx, (&value, feed)) in unit.program.inputs.iter().zip(feeds).enumerate() {
            self.staging[idx].clear();
            let bytes: &[u8] = match feed {
                Feed::Absent => continue,
                Feed::View(view) | Feed::Pinned(view) => view.bytes(),
                Feed::Value(Value::Tensor(tensor)) => tensor.bytes(),
                Feed::Value(other) => {
                    self.own[value as usize] = Own::Host((*other).clone());
                    continue;
                }
                Feed::Device(_) if !unit.outline.host_read[idx] => continue,
                Feed::Device(view) => {
                    let n_bytes =
                        planish_tensor::element_count(view.dims).and_then(|n| view.dtype.bytes_for(n));
                    let n_bytes = n_bytes.unwrap_or(0);
                    self.staging[idx].resize(n_bytes.div_ceil(size_of::<u64>()), 0);
                    // SAFETY: the words were just made, as many as hold the bytes; any bits are words.
                    let bytes = unsafe {
                        std::slice::from_raw_parts_mut(self.staging[idx].as_mut_ptr().cast::<u8>(), n_bytes)
                    };
                    let device = queues.list.len() as u32 - 1;
                    // SAFETY: the caller vouches for the view.
                    unsafe { queues.get(device, 0).download(bytes, view.address)? };
                    continue;
                }
            };
            if !bytes.as_ptr().addr().is_multiple_of(size_of::<u64>()) {
                self.staging[idx].extend(bytes.chunks(size_of::<u64>()).map(|chunk| {
                    let mut word = [0; size_of::<u64>()];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_ne_bytes(word)
                }));
            }
        }
        Ok(())
    }

    /// Runs one segment; gives the symbols with what the segment's steps found out, if anything.
    #[allow(clippy::too_many_arguments)]
    fn segment(
        &mut self,
        core: &Core,
        unit: &Unit,
        idx: usize,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        mode: Mode,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Symbols>, RunError> {
        self.check_bound(unit, resolved)?;
        if unit.outline.segments.len() > 1 {
            self.check_held(unit, resolved)?;
        }
        if mode.poison {
            self.poison(unit, idx == 0, queues)?;
        }
        let first = unit.outline.segments[idx].first;
        let steps = &unit.program.steps[first..];
        let mut learned: Option<Symbols> = None;
        if resolved.steps.iter().any(|step| step.awaited) && self.events.len() < resolved.steps.len() {
            self.events.resize_with(resolved.steps.len(), || None);
        }
        let is_timed = watch.times.is_some() || watch.phases.is_some();
        if is_timed {
            self.clock.restart(core);
            self.marks.clear();
            self.spans.clear();
        }
        let may_replay = mode.recorded && watch.times.is_none() && watch.observer.is_none();
        let mut stretches = resolved.stretches.iter().enumerate().peekable();
        let mut at = 0;
        while at < resolved.steps.len() {
            let (step, record) = (&resolved.steps[at], &steps[at]);
            for &earlier in &step.waits {
                let other = &steps[earlier];
                if other.target != record.target {
                    // An event means something to its own backend alone.
                    queues.get(other.target, other.stream).synchronize()?;
                } else if let Some(Some(event)) = self.events.get(earlier) {
                    queues.get(record.target, record.stream).wait_for(&**event)?;
                }
            }
            if watch.phases.is_some() {
                self.enter(core, unit, record, queues)?;
            }
            let started = self.begin(core, record, queues, watch)?;
            let mut last = at;
            let stretch = stretches.next_if(|(_, stretch)| stretch.first == at);
            match (stretch, &step.action) {
                (Some((number, stretch)), _)
                    if may_replay && queues.get(record.target, record.stream).can_capture() =>
                {
                    self.stretch(number, stretch, resolved, steps, feeds, queues)?;
                    last = stretch.end - 1;
                }
                (_, Action::Kernel { .. }) => {
                    self.launch(unit, first + at, step, record, resolved, feeds, queues, watch)?;
                }
                (_, Action::Transfer { bytes }) => {
                    let places = (step.inputs[0], step.outputs[0]);
                    self.transfer(core, unit, resolved, feeds, record, places, *bytes, queues)?;
                }
                (_, Action::Evaluate | Action::Control) => {
                    let inputs = self.host_inputs(core, unit, resolved, feeds, record, &step.inputs)?;
                    let results = if matches!(step.action, Action::Evaluate) {
                        core.backends[record.target as usize]
                            .evaluate(&record.region, &inputs)
                            .map_err(|error| RunError::at(&record.name, error))?
                    } else {
                        let frames = &mut self.bodies[first + at];
                        run_control(core, record, &unit.bodies[first + at], frames, &inputs, queues, mode)?
                    };
                    let symbols = learned.get_or_insert_with(|| resolved.symbols.clone());
                    self.keep_results(unit, resolved, record, step, results, symbols)?;
                }
            }
            if resolved.steps[last].awaited {
                self.await_at(core, last, &steps[last], queues)?;
            }
            if let Some(started) = started {
                self.end(core, record, started, queues)?;
            }
            at = last + 1;
        }
        if watch.phases.is_some() {
            self.leave(core, queues)?;
        }
        // A run that does not wait is one segment, and whoever asked for it waits.
        if mode.waits || unit.outline.segments.len() > 1 {
            queues.synchronize()?;
        }
        self.report(watch)?;
        Ok(learned)
    }

    /// Launches one kernel.
    #[allow(clippy::too_many_arguments)]
    fn launch(
        &mut self,
        unit: &Unit,
        idx: usize,
        step: &ResolvedStep,
        record: &Step,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        queues: &mut Queues,
        watch: &mut Watch<'_>,
    ) -> Result<(), RunError> {
        let mut addresses = std::mem::take(&mut self.addresses);
        addresses.clear();
        let workspace = self.operands(step, resolved, feeds, &mut addresses);
        let read = match watch.observer {
            Some(_) => self.copies(unit, resolved, &record.inputs, &addresses, record, queues)?,
            None => Vec::new(),
        };
        let n_inputs = step.inputs.len();
        run_kernel(step, record, &addresses, workspace, queues.get(record.target, record.stream))?;
        if let Some(observer) = &mut watch.observer {
            let outputs =
                self.copies(unit, resolved, &record.outputs, &addresses[n_inputs..], record, queues)?;
            observer(Observed { step: idx, inputs: read, outputs });
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
            addresses.push(self.address(*location, resolved, feeds));
        }
        match &step.action {
            Action::Kernel { workspace, .. } => self.address(*workspace, resolved, feeds),
            Action::Transfer { .. } | Action::Evaluate | Action::Control => Address::NULL,
        }
    }

    /// Runs a stretch: replayed where it was recorded at these addresses.
    fn stretch(
        &mut self,
        number: usize,
        stretch: &Stretch,
        resolved: &Resolved,
        steps: &[Step],
        feeds: &[Feed<'_>],
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        // Operands and workspace of every step, one behind the other.
        let mut key = std::mem::take(&mut self.addresses);
        key.clear();
        for at in stretch.first..stretch.end {
            let workspace = self.operands(&resolved.steps[at], resolved, feeds, &mut key);
            key.push(workspace);
        }
        let queue = queues.get(steps[stretch.first].target, steps[stretch.first].stream);
        let launch_all = |queue: &mut dyn Queue| -> Result<(), RunError> {
            let mut rest = &key[..];
            let places = stretch.first..stretch.end;
            for (step, record) in resolved.steps[places.clone()].iter().zip(&steps[places]) {
                let (own, behind) = rest.split_at(step.inputs.len() + step.outputs.len() + 1);
                let (addresses, workspace) = own.split_at(own.len() - 1);
                run_kernel(step, record, addresses, workspace[0], queue)?;
                rest = behind;
            }
            Ok(())
        };
        match resolved.recordings.replay(number, &key, queue)? {
            How::Done => {}
            How::Plain => launch_all(queue)?,
            How::Record => {
                // An older recording may have to go, and the run before may be replaying it.
                queue.synchronize()?;
                queue.begin_capture()?;
                let launched = launch_all(queue);
                // Ended whatever happened, so that the queue can be used again.
                let recording = queue.end_capture();
                match (launched, recording) {
                    (Ok(()), Ok(recording)) => {
                        resolved.recordings.keep(number, &key, Some(recording));
                        resolved.recordings.replay(number, &key, queue)?;
                    }
                    // Something in it cannot be recorded: launched as it is, now and from here on.
                    _ => {
                        resolved.recordings.keep(number, &key, None);
                        launch_all(queue)?;
                    }
                }
            }
        }
        self.addresses = key;
        Ok(())
    }

    /// Lets steps on other queues wait for this one. The event is made once, where the backend can.
    fn await_at(
        &mut self,
        core: &Core,
        at: usize,
        record: &Step,
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        let queue = queues.get(record.target, record.stream);
        if self.events[at].is_none() {
            self.events[at] = core.backends[record.target as usize].event(false).ok();
        }
        if let Some(event) = &self.events[at]
            && queue.record_at(&**event).is_ok()
        {
            return Ok(());
        }
        self.events[at] = Some(queue.record()?);
        Ok(())
    }

    /// Whether the caller's memory for outputs is large enough.
    fn check_bound(&self, unit: &Unit, resolved: &Resolved) -> Result<(), RunError> {
        for &(output, bytes) in &resolved.output_bytes {
            if let Some(bound) = self.bound[output as usize]
                && bound.bytes < bytes
            {
                let name = &unit.program.values[unit.program.outputs[output as usize] as usize].name;
                let has = bound.bytes;
                let message = format!("output `{name}` needs {bytes} bytes here, its buffer has {has}");
                return Err(RunError::new(RunErrorKind::WrongShape, message));
            }
        }
        Ok(())
    }

    /// Whether values that steps on the host left are as long as kernels of this segment will read.
    fn check_held(&self, unit: &Unit, resolved: &Resolved) -> Result<(), RunError> {
        for ((own, operand), value) in self.own.iter().zip(&resolved.operands).zip(&unit.program.values) {
            if let (Own::Host(Value::Tensor(tensor)), Some(operand)) = (own, operand)
                && tensor.bytes().len() < operand.span_bytes()
            {
                let (name, ty, dims) = (&value.name, operand.dtype, &operand.dims);
                let why =
                    format!("`{name}` was made with other sizes than {ty}{dims:?}, the plan is damaged");
                return Err(RunError::needs_rebuild(why));
            }
        }
        Ok(())
    }

    /// Output number `idx` of the last run: a view of a tensor, or another value.
    pub(crate) fn output<'a>(&'a self, unit: &Unit, idx: usize) -> (Option<View<'a>>, Option<&'a Value>) {
        let Some(&value) = unit.program.outputs.get(idx) else { return (None, None) };
        if self.current.is_empty() {
            return (None, None);
        }
        if let Own::Host(held) = &self.own[value as usize] {
            return match held.as_tensor() {
                Some(tensor) => (Some(View::from(tensor)), None),
                None => (None, Some(held)),
            };
        }
        let operand =
            self.current.iter().rev().find_map(|resolved| resolved.operands[value as usize].as_ref());
        let Some(operand) = operand else { return (None, None) };
        let first = unit.outline.output[value as usize].unwrap_or(idx);
        let address = match (&self.own[value as usize], self.bound[first]) {
            (Own::Memory(memory), _) => memory.address(),
            // It lies in the caller's device memory, where no view of ours can reach.
            (_, Some(Bound { site: Site::Device, .. })) => return (None, None),
            (_, Some(bound)) => bound.to,
            (_, None) => address_of(&self.outputs[first]),
        };
        let n_bytes = operand.span_bytes();
        let bytes = if n_bytes == 0 {
            &[][..]
        } else {
            // SAFETY: the last run wrote the output there, and the frame is borrowed while the view lives.
            unsafe { std::slice::from_raw_parts(pointer(address).cast_const(), n_bytes) }
        };
        (View::from_bytes(operand.dtype, &operand.dims, bytes).ok(), None)
    }

    /// Sizes of output number `idx` of the last run, wherever it lies.
    pub(crate) fn last_output_dims(&self, unit: &Unit, idx: usize) -> Option<&[usize]> {
        let value = *unit.program.outputs.get(idx)? as usize;
        if let Own::Host(held) = &self.own[value] {
            return held.as_tensor().map(Tensor::shape);
        }
        let operand = self.current.iter().rev().find_map(|resolved| resolved.operands[value].as_ref());
        operand.map(|operand| &operand.dims[..])
    }

    /// Every output of the last run as a value of its own.
    pub(crate) fn output_values(&self, unit: &Unit) -> Result<Vec<Value>, RunError> {
        (0..unit.program.outputs.len())
            .map(|idx| match self.output(unit, idx) {
                (Some(view), _) => Ok(Value::Tensor(view.to_tensor())),
                (None, Some(value)) => Ok(value.clone()),
                (None, None) => Err(RunError::new(RunErrorKind::Failed, "an output was not made")),
            })
            .collect()
    }
}

/// Launches a kernel at these addresses, inputs first.
fn run_kernel(
    step: &ResolvedStep,
    record: &Step,
    addresses: &[Address],
    workspace: Address,
    queue: &mut dyn Queue,
) -> Result<(), RunError> {
    let Action::Kernel { kernel, .. } = &step.action else { return Ok(()) };
    let (inputs, outputs) = addresses.split_at(step.inputs.len());
    let call = Call { inputs, outputs, workspace };
    // SAFETY: the arena was laid out for these operands: what is alive together does not overlap; weights and
    // inputs are only read; whoever runs a frame has it for itself.
    let done = unsafe { kernel.launch(&call, queue) };
    done.map_err(|error| RunError::at(&record.name, error))
}

/// A panic of a kernel or of a thread, as an error.
fn panicked(payload: &(dyn Any + Send)) -> RunError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    RunError::new(RunErrorKind::Failed, format!("a kernel panicked: {text}; this is a mistake of Planish"))
}

fn check_types(program: &Program, feeds: &[Feed<'_>]) -> Result<(), RunError> {
    if program.inputs.len() != feeds.len() {
        let message = format!("the model takes {} inputs, {} were given", program.inputs.len(), feeds.len());
        return Err(RunError::new(RunErrorKind::WrongInputs, message));
    }
    for (&value, feed) in program.inputs.iter().zip(feeds) {
        let value = &program.values[value as usize];
        let given = match feed {
            Feed::Absent => None,
            Feed::View(view) | Feed::Pinned(view) => Some(view.dtype()),
            Feed::Value(value) => value.as_tensor().map(Tensor::dtype),
            Feed::Device(view) => Some(view.dtype),
        };
        let wanted = tensor_type(&value.ty).map(|(dtype, _)| dtype);
        if given != wanted {
            let name = |dtype: Option<planish_tensor::DType>| dtype.map_or("no tensor", |dtype| dtype.name());
            let message =
                format!("input `{}` is {}, the model takes {}", value.name, name(given), name(wanted));
            return Err(RunError::new(RunErrorKind::WrongType, message));
        }
    }
    Ok(())
}

/// Makes sure that `memory` has at least `bytes`.
fn grow(
    memory: &mut Option<Box<dyn Memory>>,
    bytes: usize,
    core: &Core,
    target: usize,
) -> Result<(), RunError> {
    if memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
        // The old memory goes first, so that the peak is the larger of the two.
        *memory = None;
        let pinned = match core.backends[target].memory_kind() {
            MemoryKind::Host => core.pinned(bytes)?,
            MemoryKind::Device => None,
        };
        *memory = Some(match pinned {
            Some(pinned) => pinned,
            None => core.backends[target].allocate(bytes)?,
        });
    }
    Ok(())
}

pub(crate) fn address_of(memory: &Option<Box<dyn Memory>>) -> Address {
    memory.as_ref().map_or(Address::NULL, |memory| memory.address())
}

pub(crate) fn address_in(bytes: &[u8]) -> Address {
    Address(bytes.as_ptr().expose_provenance() as u64)
}

pub(crate) fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}
