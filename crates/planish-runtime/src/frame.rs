//! One program with its memory: resolved at the sizes of its inputs, then run segment by segment.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use planish_kernel::{Address, Call, Event, Layout, Memory, Operand, Queue};
use planish_op::Value;
use planish_plan::{Home, Program};
use planish_tensor::{Bytes, Tensor};

use crate::bind::{Symbols, bind_inputs, choose_profile, tensor_type};
use crate::control::run_control;
use crate::engine::{Core, Unit, tensor_of};
use crate::error::{RunError, RunErrorKind};
use crate::gather::plain;
use crate::resolve::{Action, Base, Location, Resolved, resolve};
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
    Value(&'a Value),
}

impl Feed<'_> {
    fn dims(&self) -> Option<&[usize]> {
        match self {
            Feed::Absent => None,
            Feed::View(view) => Some(view.dims()),
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
}

/// Who looks on while a program runs.
#[derive(Default)]
pub(crate) struct Watch<'a> {
    /// Gets the nanoseconds of every step.
    pub(crate) times: Option<&'a mut Vec<u64>>,
    pub(crate) observer: Option<&'a mut dyn FnMut(Observed)>,
}

/// How a frame runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) threads: usize,
    /// Fill arenas and outputs with NaN before each run, so that whoever reads what nobody wrote is seen.
    pub(crate) poison: bool,
}

/// A program's memory and its prepared segments.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    arenas: Vec<Option<Box<dyn Memory>>>,
    outputs: Vec<Option<Box<dyn Memory>>>,
    /// Where the caller wants an output written.
    bound: Vec<Option<Bound>>,
    own: Vec<Own>,
    /// Most recently used first.
    cache: Vec<(usize, Arc<Resolved>)>,
    /// The segments of the last run, and the input sizes it had.
    current: Vec<Arc<Resolved>>,
    last_dims: Vec<Vec<usize>>,
    bodies: Vec<Vec<Frame>>,
    /// Copies of inputs that the caller's memory has at addresses that their type does not allow.
    staging: Vec<Vec<u64>>,
    addresses: Vec<Address>,
    events: Vec<Option<Box<dyn Event>>>,
    n_resolved: usize,
}

impl Frame {
    pub(crate) fn arena_bytes(&self) -> usize {
        let bytes = |list: &[Option<Box<dyn Memory>>]| -> usize {
            list.iter().flatten().map(|memory| memory.len()).sum()
        };
        bytes(&self.arenas) + bytes(&self.outputs)
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
            && core.backends[record.target as usize].memory_kind() == planish_kernel::MemoryKind::Host;
        self.bound[idx] = bound.filter(|_| direct);
        direct
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
            self.take_inputs(unit, feeds);
            return self.segment(core, unit, 0, &resolved, feeds, queues, mode, &mut watch).map(|_| ());
        }
        let dims: Vec<Option<&[usize]>> = feeds.iter().map(Feed::dims).collect();
        let mut symbols = bind_inputs(&unit.program, &dims)?;
        if std::ptr::eq(unit, &core.unit) {
            choose_profile(&core.plan.profiles, &symbols)?;
        }
        self.current.clear();
        self.last_dims.clear();
        self.take_inputs(unit, feeds);
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
    /// are not aligned.
    fn take_inputs(&mut self, unit: &Unit, feeds: &[Feed<'_>]) {
        for (idx, (&value, feed)) in unit.program.inputs.iter().zip(feeds).enumerate() {
            self.staging[idx].clear();
            let bytes: &[u8] = match feed {
                Feed::Absent => continue,
                Feed::View(view) => view.bytes(),
                Feed::Value(Value::Tensor(tensor)) => tensor.bytes(),
                Feed::Value(other) => {
                    self.own[value as usize] = Own::Host((*other).clone());
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
        if mode.poison {
            self.poison(unit, idx == 0, queues)?;
        }
        let first = unit.outline.segments[idx].first;
        let mut learned: Option<Symbols> = None;
        if resolved.steps.iter().any(|step| step.awaited) {
            self.events.clear();
            self.events.resize_with(resolved.steps.len(), || None);
        }
        for (at, step) in resolved.steps.iter().enumerate() {
            let record = &unit.program.steps[first + at];
            let started = watch.times.is_some().then(Instant::now);
            for &earlier in &step.waits {
                let other = &unit.program.steps[first + earlier];
                if other.target != record.target {
                    // An event means something to its own backend alone.
                    queues.get(other.target, other.stream).synchronize()?;
                } else if let Some(Some(event)) = self.events.get(earlier) {
                    queues.get(record.target, record.stream).wait_for(&**event)?;
                }
            }
            match &step.action {
                Action::Kernel { kernel, workspace } => {
                    let mut addresses = std::mem::take(&mut self.addresses);
                    addresses.clear();
                    for location in step.inputs.iter().chain(&step.outputs) {
                        addresses.push(self.address(*location, feeds));
                    }
                    let workspace = self.address(*workspace, feeds);
                    let read = match watch.observer {
                        Some(_) => self.copies(unit, resolved, &record.inputs, &addresses, record, queues)?,
                        None => Vec::new(),
                    };
                    let (inputs, outputs) = addresses.split_at(step.inputs.len());
                    let call = Call { inputs, outputs, workspace };
                    // SAFETY: the arena was laid out for these operands: what is alive together does not
                    // overlap; weights and inputs are only read; `&mut self` keeps other callers away.
                    let done = unsafe { kernel.launch(&call, queues.get(record.target, record.stream)) };
                    done.map_err(|error| RunError::at(&record.name, error))?;
                    if let Some(observer) = &mut watch.observer {
                        let outputs =
                            self.copies(unit, resolved, &record.outputs, outputs, record, queues)?;
                        observer(Observed { step: first + at, inputs: read, outputs });
                    }
                    self.addresses = addresses;
                }
                Action::Transfer { bytes } => {
                    self.transfer(
                        core,
                        unit,
                        feeds,
                        record,
                        step.inputs[0],
                        step.outputs[0],
                        *bytes,
                        queues,
                    )?;
                }
                Action::Evaluate | Action::Control => {
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
            if step.awaited {
                self.events[at] = Some(queues.get(record.target, record.stream).record()?);
            }
            if let (Some(times), Some(started)) = (watch.times.as_deref_mut(), started) {
                queues.get(record.target, record.stream).synchronize()?;
                times.push(started.elapsed().as_nanos() as u64);
            }
        }
        for streams in &mut queues.list {
            for queue in streams {
                queue.synchronize()?;
            }
        }
        Ok(learned)
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

    /// Plain copies of a kernel step's operands, weights left out.
    fn copies(
        &self,
        unit: &Unit,
        resolved: &Resolved,
        values: &[Option<u32>],
        addresses: &[Address],
        record: &planish_plan::Step,
        queues: &mut Queues,
    ) -> Result<Vec<Option<Tensor>>, RunError> {
        let mut copies = Vec::with_capacity(values.len());
        for (value, &address) in values.iter().zip(addresses) {
            let operand = value.and_then(|value| {
                let root = unit.outline.root[value as usize];
                let is_weight = matches!(unit.program.values[root as usize].home, Home::Weight(_));
                resolved.operands[value as usize].as_ref().filter(|_| !is_weight)
            });
            let Some(operand) = operand else {
                copies.push(None);
                continue;
            };
            let mut bytes = vec![0u8; operand.span_bytes()];
            let queue = queues.get(record.target, record.stream);
            queue.synchronize()?;
            // SAFETY: the operand spans these bytes of the backend's memory.
            unsafe { queue.download(&mut bytes, address)? };
            copies.push(Some(plain(operand, &bytes)?));
        }
        Ok(copies)
    }

    fn address(&self, location: Location, feeds: &[Feed<'_>]) -> Address {
        let base = match location.base {
            Base::Absolute => Address(0),
            Base::Arena(target) => address_of(&self.arenas[target as usize]),
            Base::Output(output) => {
                let own = || address_of(&self.outputs[output as usize]);
                self.bound[output as usize].map_or_else(own, |bound| bound.to)
            }
            Base::Input(input) => match &feeds[input as usize] {
                _ if !self.staging[input as usize].is_empty() => {
                    Address(self.staging[input as usize].as_ptr().expose_provenance() as u64)
                }
                Feed::Absent => Address::NULL,
                Feed::View(view) => address_in(view.bytes()),
                Feed::Value(value) => value.as_tensor().map_or(Address::NULL, |t| address_in(t.bytes())),
            },
            Base::Own(value) => match &self.own[value as usize] {
                Own::Memory(memory) => memory.address(),
                Own::Host(value) => value.as_tensor().map_or(Address::NULL, |t| address_in(t.bytes())),
                Own::Nothing => Address::NULL,
            },
        };
        Address(base.0 + location.offset)
    }

    #[allow(clippy::too_many_arguments)]
    fn transfer(
        &mut self,
        core: &Core,
        unit: &Unit,
        feeds: &[Feed<'_>],
        record: &planish_plan::Step,
        from: Location,
        to: Location,
        bytes: usize,
        queues: &mut Queues,
    ) -> Result<(), RunError> {
        use planish_kernel::MemoryKind::{Device, Host};
        let value = |list: &[Option<u32>]| list.first().copied().flatten().unwrap_or(0) as usize;
        let source = unit.program.values[value(&record.inputs)].target;
        let sink = unit.program.values[value(&record.outputs)].target;
        let kind = |target: u32| core.backends[target as usize].memory_kind();
        let (from, to) = (self.address(from, feeds), self.address(to, feeds));
        // Copies are queued on the step's own stream, so that they come behind what it waited for.
        let stream = |target: u32| if target == record.target { record.stream } else { 0 };
        // SAFETY: the locations of both operands span `bytes`; host addresses are this process's memory, and
        // the two are different values, so they do not overlap.
        unsafe {
            match (kind(source), kind(sink)) {
                (Host, _) => {
                    let bytes = std::slice::from_raw_parts(pointer(from).cast_const(), bytes);
                    queues.get(sink, stream(sink)).upload(to, bytes)?;
                }
                (Device, Host) => {
                    let bytes = std::slice::from_raw_parts_mut(pointer(to), bytes);
                    queues.get(source, stream(source)).download(bytes, from)?;
                }
                (Device, Device) => {
                    let mut staging = vec![0u8; bytes];
                    queues.get(source, stream(source)).download(&mut staging, from)?;
                    queues.get(sink, stream(sink)).upload(to, &staging)?;
                }
            }
            if sink != record.target {
                // Whoever waits for this step waits for its own queue.
                queues.get(sink, 0).synchronize()?;
            }
        }
        Ok(())
    }

    /// Inputs of a step as values on the host.
    fn host_inputs(
        &self,
        core: &Core,
        unit: &Unit,
        resolved: &Resolved,
        feeds: &[Feed<'_>],
        record: &planish_plan::Step,
        locations: &[Location],
    ) -> Result<Vec<Option<Value>>, RunError> {
        let mut inputs = Vec::with_capacity(record.inputs.len());
        for (&value, &location) in record.inputs.iter().zip(locations) {
            let Some(value) = value else {
                inputs.push(None);
                continue;
            };
            let root = unit.outline.root[value as usize];
            let held = match (&self.own[root as usize], &unit.program.values[root as usize].home) {
                (Own::Host(held), _) if root == value => Some(held.clone()),
                (_, Home::Weight(weight)) => {
                    Some(Value::Tensor(tensor_of(&core.plan.weights[*weight as usize])?))
                }
                (_, Home::Input) if root == value => {
                    let idx = unit.program.inputs.iter().position(|&input| input == root).unwrap_or(0);
                    match &feeds[idx] {
                        Feed::Absent => None,
                        Feed::Value(value) => Some((*value).clone()),
                        Feed::View(view) => Some(Value::Tensor(view.to_tensor())),
                    }
                }
                _ => None,
            };
            inputs.push(Some(match held {
                Some(held) => held,
                None => {
                    let operand = resolved.operands[value as usize].as_ref().ok_or_else(|| {
                        let message = format!("step `{}`: an input's size is not known", record.name);
                        RunError::new(RunErrorKind::Failed, message)
                    })?;
                    Value::Tensor(self.copy_out(operand, self.address(location, feeds))?)
                }
            }));
        }
        Ok(inputs)
    }

    fn copy_out(&self, operand: &Operand, from: Address) -> Result<Tensor, RunError> {
        if !operand.is_dense(Layout::Plain) {
            let message = "a value for the reference is not plain; the plan is damaged, rebuild it";
            return Err(RunError::new(RunErrorKind::Failed, message));
        }
        let mut bytes = vec![0u8; operand.span_bytes()];
        // SAFETY: the operand spans these bytes in host memory.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from).cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes))
            .map_err(|error| RunError::new(RunErrorKind::Failed, error.to_string()))
    }

    /// Puts the results of a step on the host where later steps find them, and takes over new sizes.
    fn keep_results(
        &mut self,
        unit: &Unit,
        resolved: &Resolved,
        record: &planish_plan::Step,
        step: &crate::resolve::ResolvedStep,
        results: Vec<Value>,
        symbols: &mut Symbols,
    ) -> Result<(), RunError> {
        let wrong = |detail: &str| {
            RunError::new(RunErrorKind::BadValues, format!("step `{}`: {detail}", record.name))
        };
        if results.len() < record.outputs.len() {
            return Err(wrong("fewer outputs were made than the model names"));
        }
        for ((&value, location), result) in record.outputs.iter().zip(&step.outputs).zip(results) {
            let Some(value) = value else { continue };
            let ty = &unit.program.values[value as usize].ty;
            let mut result = result;
            if let (Some(tensor), Some(shape)) =
                (result.as_tensor(), ty.as_tensor().and_then(|ty| ty.shape.as_ref()))
            {
                let what = format!("step `{}`: its output", record.name);
                match (symbols.bind(&what, shape, tensor.shape()), symbols.eval_shape(shape)) {
                    (Ok(()), _) => {}
                    // One element is one element: models declare [] where they make [1], and the other way.
                    (Err(_), Some(dims)) if tensor.len() == 1 && dims.iter().all(|&dim| dim == 1) => {
                        let seen = tensor.reshaped(&dims).map_err(|error| wrong(&error.to_string()))?;
                        result = Value::Tensor(seen);
                    }
                    (Err(error), _) => return Err(error),
                }
            }
            if let Base::Own(_) = location.base {
                self.own[value as usize] = Own::Host(result);
                continue;
            }
            let tensor = result.as_tensor().ok_or_else(|| wrong("a tensor was expected"))?;
            let fits = resolved.operands[value as usize]
                .as_ref()
                .is_some_and(|operand| operand.dims == tensor.shape() && operand.dtype == tensor.dtype());
            if !fits {
                return Err(wrong("an output has another type or shape than was inferred"));
            }
            let to = self.address(*location, &[]);
            // SAFETY: the operand has the tensor's type and shape, and lies plain in this frame's memory.
            unsafe {
                std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), pointer(to), tensor.bytes().len())
            };
        }
        Ok(())
    }

    /// Fills the arenas with NaN; before the first segment also what lives longer than one.
    fn poison(&mut self, unit: &Unit, is_first: bool, queues: &mut Queues) -> Result<(), RunError> {
        let target_of = |value: u32| unit.program.values[value as usize].target;
        let arenas = self.arenas.iter().enumerate().map(|(target, arena)| (target as u32, arena.as_ref()));
        let outputs = unit.program.outputs.iter().zip(&self.outputs);
        let outputs = outputs.map(|(&value, memory)| (target_of(value), memory.as_ref()));
        let own = self.own.iter().enumerate().map(|(value, own)| match own {
            Own::Memory(memory) => (target_of(value as u32), Some(memory)),
            Own::Nothing | Own::Host(_) => (0, None),
        });
        let lasting = outputs.chain(own).filter(|_| is_first);
        for (target, memory) in arenas.chain(lasting) {
            let Some(memory) = memory else { continue };
            // 0xFF bytes are NaN in every float type.
            let bytes = vec![0xFFu8; memory.len()];
            let queue = queues.get(target, 0);
            // SAFETY: the memory is this long, and nothing runs.
            unsafe { queue.upload(memory.address(), &bytes)? };
            // Other streams of the target may be the first to write there.
            queue.synchronize()?;
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
        let address = match &self.own[value as usize] {
            Own::Memory(memory) => memory.address(),
            Own::Nothing | Own::Host(_) => {
                self.bound[first].map_or_else(|| address_of(&self.outputs[first]), |bound| bound.to)
            }
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
            Feed::View(view) => Some(view.dtype()),
            Feed::Value(value) => value.as_tensor().map(Tensor::dtype),
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
        *memory = Some(core.backends[target].allocate(bytes)?);
    }
    Ok(())
}

fn address_of(memory: &Option<Box<dyn Memory>>) -> Address {
    memory.as_ref().map_or(Address::NULL, |memory| memory.address())
}

fn address_in(bytes: &[u8]) -> Address {
    Address(bytes.as_ptr().expose_provenance() as u64)
}

fn pointer(address: Address) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}
