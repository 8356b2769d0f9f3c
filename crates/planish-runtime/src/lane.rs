//! `Lane`: contexts of several engines that run one after the other in one piece of memory.
//!
//! What one stage writes the next one reads where it lies. A lane has one arena in each memory (the host's, a device's) for
//! what stages hand on and for what lies between the steps of each of them; two of these share bytes only where no stage
//! needs both ([`Proof`]). Stages on a device are queued, not waited for: each waits on its own stream for the event behind
//! the stage before. So stages of one lane never run at the same time, whatever they read, and nobody waits for the device
//! as a whole. Lanes beside each other share nothing but the engines.

use std::fmt;
use std::sync::Arc;

use planish_kernel::{Address, Backend, Event, Memory, MemoryKind};
use planish_tensor::{DType, Tensor};

use crate::arena::{Piece, place};
use crate::buffer::{Bindings, Buffer, HostBuffer};
use crate::context::{Context, ContextOptions};
use crate::device::{DeviceBuffer, is_one_memory};
use crate::engine::Engine;
use crate::error::{RunError, RunErrorKind};
use crate::feed::Site;
use crate::memory::FrameMemory;
use crate::results::output_dims;
use crate::run::Watch;
use crate::view::View;

/// One run of an engine in a lane: which value each of its inputs and outputs is.
#[derive(Clone, Debug)]
pub struct LaneStage {
    pub engine: Engine,
    /// In the engine's order.
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
    /// From when to when, in the lane's time, it runs; a stage of a loop runs again and again from its first to its last.
    pub time: (usize, usize),
}

/// A value that stages hand on.
#[derive(Clone, Debug)]
pub struct LaneValue {
    pub name: String,
    pub dtype: DType,
    pub dims: Vec<usize>,
    /// From when to when it must be kept.
    pub time: (usize, usize),
    /// Read or written by the caller: it lies in host memory where it can.
    pub is_port: bool,
}

/// What lies where in the memory of a lane, and that nothing overlaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The memory, in words.
    pub memory: String,
    /// Name, first and last time, first byte, bytes.
    pub pieces: Vec<(String, usize, usize, usize, usize)>,
    /// Bytes in all.
    pub bytes: usize,
    /// Pairs that are needed at the same time, each of which was compared.
    pub n_pairs: usize,
}

impl Proof {
    /// Looks at every two pieces: those that are needed at one time must share no byte, and each must lie inside.
    fn check(&mut self) -> Result<(), RunError> {
        let wrong = |what: String| {
            Err(RunError::new(RunErrorKind::Failed, format!("{what}; this is a mistake of Planish")))
        };
        self.n_pairs = 0;
        for (at, (name, first, last, from, bytes)) in self.pieces.iter().enumerate() {
            if from + bytes > self.bytes {
                return wrong(format!("`{name}` leaves its arena"));
            }
            for (other, other_first, other_last, other_from, other_bytes) in &self.pieces[at + 1..] {
                if last < other_first || other_last < first {
                    continue;
                }
                self.n_pairs += 1;
                if from + bytes > *other_from
                    && other_from + other_bytes > *from
                    && *bytes > 0
                    && *other_bytes > 0
                {
                    return wrong(format!("`{name}` and `{other}` share memory at one time"));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum: usize = self.pieces.iter().map(|piece| piece.4).sum();
        writeln!(
            f,
            "{}: {} bytes for {} pieces of {sum} bytes together",
            self.memory,
            self.bytes,
            self.pieces.len()
        )?;
        for (name, first, last, from, bytes) in &self.pieces {
            writeln!(f, "  [{from:>12}, {:>12})  stages {first} to {last}  {name}", from + bytes)?;
        }
        write!(f, "  {} pairs are needed at one time, none of them overlaps", self.n_pairs)
    }
}

/// A part of a piece of memory, which lives as long as its parts do.
#[derive(Debug)]
struct Part {
    of: Arc<dyn Memory>,
    from: usize,
    bytes: usize,
}

impl Memory for Part {
    fn address(&self) -> Address {
        Address(self.of.address().0 + self.from as u64)
    }

    fn len(&self) -> usize {
        self.bytes
    }
}

/// A stage's context, and the buffers of its run while it is queued.
#[derive(Debug)]
struct Slot {
    context: Context,
    bindings: Bindings,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// Reached when its run is done; absent for a stage that is waited for.
    done: Option<Box<dyn Event>>,
    /// Which set of words its kernels tell faults in.
    is_ahead: bool,
}

/// Contexts of several engines in one piece of memory. Dropping it waits for them.
#[derive(Debug)]
pub struct Lane {
    slots: Vec<Slot>,
    values: Vec<Option<Buffer>>,
    names: Vec<String>,
    proofs: Vec<Proof>,
    /// The stage that was queued last and not waited for.
    last: Option<usize>,
}

/// One memory of a lane.
struct Space {
    backend: Arc<dyn Backend>,
    pieces: Vec<(String, Piece)>,
    /// What each piece is: an arena of a stage's target, or a value.
    owners: Vec<Owner>,
}

enum Owner {
    Arena(usize, usize),
    Value(usize),
}

fn space_of<'a>(spaces: &'a mut Vec<Space>, backend: &Arc<dyn Backend>) -> &'a mut Space {
    let is_one = |space: &Space| {
        let both_host =
            space.backend.memory_kind() == MemoryKind::Host && backend.memory_kind() == MemoryKind::Host;
        both_host || is_one_memory(&*space.backend, &**backend)
    };
    let at = spaces.iter().position(is_one).unwrap_or_else(|| {
        spaces.push(Space { backend: backend.clone(), pieces: Vec::new(), owners: Vec::new() });
        spaces.len() - 1
    });
    &mut spaces[at]
}

impl Lane {
    /// Contexts and memory for stages at the sizes of these values.
    pub fn new(
        stages: &[LaneStage],
        values: &[LaneValue],
        options: &dyn Fn(&Engine) -> ContextOptions,
    ) -> Result<Lane, RunError> {
        check(stages, values)?;
        let mut spaces: Vec<Space> = Vec::new();
        for (at, stage) in stages.iter().enumerate() {
            let core = &stage.engine.core;
            let dims: Vec<Option<&[usize]>> =
                stage.inputs.iter().map(|&value| Some(&values[value].dims[..])).collect();
            let symbols = crate::bind::bind_inputs(&core.unit.program, &dims)?.pairs();
            let needs = stage.engine.memory_at(&symbols)?;
            for (target, needs) in needs.targets.iter().enumerate() {
                let piece = Piece { bytes: needs.arena, first: stage.time.0, last: stage.time.1 };
                let space = space_of(&mut spaces, &core.backends[target]);
                space.pieces.push((format!("between the steps of stage {at}"), piece));
                space.owners.push(Owner::Arena(at, target));
            }
        }
        for (at, value) in values.iter().enumerate() {
            let bytes = value.dtype.bytes_of(&value.dims).ok_or_else(|| {
                let message = format!("there is no memory for `{}` of sizes {:?}", value.name, value.dims);
                RunError::new(RunErrorKind::OutOfMemory, message)
            })?;
            let backend = home(stages, at, value.is_port);
            let piece = Piece { bytes: bytes.max(1), first: value.time.0, last: value.time.1 };
            let space = space_of(&mut spaces, &backend);
            space.pieces.push((value.name.clone(), piece));
            space.owners.push(Owner::Value(at));
        }
        let mut slots = Vec::new();
        for stage in stages {
            slots.push(Slot::new(stage, options(&stage.engine))?);
        }
        let mut buffers: Vec<Option<Buffer>> = values.iter().map(|_| None).collect();
        let mut proofs = Vec::new();
        for space in spaces {
            let pieces: Vec<Piece> = space.pieces.iter().map(|(_, piece)| *piece).collect();
            let (offsets, bytes) = place(&pieces);
            let kind = space.backend.memory_kind();
            let listed = space.pieces.iter().zip(&offsets);
            let mut proof = Proof {
                memory: match kind {
                    MemoryKind::Host => "host memory".to_string(),
                    MemoryKind::Device => format!("memory of {}", space.backend.name()),
                },
                pieces: listed
                    .map(|((name, piece), &from)| (name.clone(), piece.first, piece.last, from, piece.bytes))
                    .collect(),
                bytes,
                n_pairs: 0,
            };
            proof.check()?;
            proofs.push(proof);
            // Host memory that a device of the lane copies from by itself, where there is one.
            let pinning = stages.iter().find_map(|stage| stage.engine.core.pinning.clone());
            let pinned = match (kind, &pinning) {
                (MemoryKind::Host, Some(device)) => device.allocate_pinned(bytes.max(1))?,
                _ => None,
            };
            let by = if pinned.is_some() {
                pinning.unwrap_or(space.backend.clone())
            } else {
                space.backend.clone()
            };
            let memory: Arc<dyn Memory> = match pinned {
                Some(memory) => Arc::from(memory),
                None => Arc::from(space.backend.allocate(bytes.max(1))?),
            };
            for ((owner, from), piece) in space.owners.iter().zip(offsets).zip(&pieces) {
                let part: Box<dyn Memory> = Box::new(Part { of: memory.clone(), from, bytes: piece.bytes });
                match owner {
                    Owner::Arena(stage, target) => slots[*stage].take_arena(*target, part)?,
                    Owner::Value(value) => {
                        let LaneValue { dtype, dims, .. } = &values[*value];
                        buffers[*value] = Some(match kind {
                            MemoryKind::Host => {
                                Buffer::Host(HostBuffer::pinned(*dtype, dims, part, by.clone()))
                            }
                            MemoryKind::Device => {
                                Buffer::Device(DeviceBuffer::over(space.backend.clone(), *dtype, dims, part))
                            }
                        });
                    }
                }
            }
        }
        let names = values.iter().map(|value| value.name.clone()).collect();
        Ok(Lane { slots, values: buffers, names, proofs, last: None })
    }

    /// What lies where, for each memory of the lane.
    pub fn proofs(&self) -> &[Proof] {
        &self.proofs
    }

    /// Runs a stage after those that were run before; on a device it is queued, and this returns.
    pub fn run(&mut self, stage: usize) -> Result<(), RunError> {
        let slot = &mut self.slots[stage];
        let missing = || RunError::new(RunErrorKind::Failed, "a value of the lane is lost");
        // Two of its ports may be one value, which one buffer cannot be: looked at when the lane was wired.
        for (at, &value) in slot.inputs.iter().enumerate() {
            slot.bindings.inputs[at].1 = self.values[value].take().ok_or_else(missing)?;
        }
        for (at, &value) in slot.outputs.iter().enumerate() {
            slot.bindings.outputs[at].1 = self.values[value].take().ok_or_else(missing)?;
        }
        let before = self.last.take();
        let (head, tail) = self.slots.split_at_mut(stage);
        let Some((slot, rest)) = tail.split_first_mut() else { return Err(missing()) };
        let done = before.and_then(|before| match before.cmp(&stage) {
            std::cmp::Ordering::Less => head[before].done.as_deref(),
            std::cmp::Ordering::Greater => rest[before - stage - 1].done.as_deref(),
            // On its own queue what follows is behind what went before.
            std::cmp::Ordering::Equal => None,
        });
        let result = slot.run(done);
        if let Ok(true) = result {
            self.last = Some(stage);
        }
        for (at, &value) in slot.inputs.iter().enumerate() {
            self.values[value] = Some(std::mem::replace(&mut slot.bindings.inputs[at].1, nothing()?));
        }
        for (at, &value) in slot.outputs.iter().enumerate() {
            self.values[value] = Some(std::mem::replace(&mut slot.bindings.outputs[at].1, nothing()?));
        }
        if result.is_err() {
            self.settle();
        }
        result.map(drop)
    }

    /// Waits until nothing is under way.
    fn settle(&mut self) {
        for slot in &mut self.slots {
            if let Ok(state) = slot.context.state() {
                state.settle();
            }
        }
    }

    /// Waits for the stage that was queued last, and so for all before it; tells what their kernels found wrong, with the
    /// number of the stage.
    pub fn wait(&mut self) -> Result<(), (usize, RunError)> {
        let Some(last) = self.last.take() else { return Ok(()) };
        if let Some(done) = &self.slots[last].done {
            done.wait().map_err(|error| (last, RunError::from(error)))?;
        }
        for (at, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_ahead) {
            let state = slot.context.state().map_err(|error| (at, error))?;
            state.faults_ahead(0).map_err(|error| (at, error))?;
        }
        Ok(())
    }

    /// Copies a tensor into a value; waits for stages that may read it.
    pub fn write(&mut self, value: usize, from: View<'_>) -> Result<(), RunError> {
        self.wait().map_err(|(_, error)| error)?;
        let name = &self.names[value];
        let wrong = |what: String| RunError::new(RunErrorKind::WrongInputs, what);
        let Some(buffer) = &mut self.values[value] else { return Err(wrong(format!("`{name}` is lost"))) };
        if buffer.dtype() != from.dtype() {
            let (is, given) = (buffer.dtype().name(), from.dtype().name());
            return Err(RunError::new(
                RunErrorKind::WrongType,
                format!("`{name}` is {is}, it was given {given}"),
            ));
        }
        if buffer.dims() != from.dims() {
            let message =
                format!("`{name}` has sizes {:?} here, it was given {:?}", buffer.dims(), from.dims());
            return Err(RunError::new(RunErrorKind::WrongShape, message));
        }
        match buffer {
            Buffer::Host(buffer) => {
                buffer.bytes_mut().copy_from_slice(from.bytes());
                Ok(())
            }
            Buffer::Device(buffer) => buffer.upload(from),
        }
    }

    /// A copy of a value; waits for the stages that were run.
    pub fn read(&mut self, value: usize) -> Result<Tensor, (Option<usize>, RunError)> {
        self.wait().map_err(|(stage, error)| (Some(stage), error))?;
        let lost = || (None, RunError::new(RunErrorKind::Failed, "a value of the lane is lost"));
        match self.values[value].as_ref().ok_or_else(lost)? {
            Buffer::Host(buffer) => Ok(buffer.view().to_tensor()),
            Buffer::Device(buffer) => {
                let bytes = buffer.download().map_err(|error| (None, error))?;
                let view = View::from_bytes(buffer.dtype(), buffer.dims(), &bytes);
                let failed = |error: RunError| (None, error);
                Ok(view.map_err(failed)?.to_tensor())
            }
        }
    }

    /// Lets two values of one type and sizes change places, without a copy.
    pub fn swap(&mut self, one: usize, other: usize) {
        self.values.swap(one, other);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Whether all that a stage touches is kept while it runs, each once: what the proof of the memory goes by.
fn check(stages: &[LaneStage], values: &[LaneValue]) -> Result<(), RunError> {
    let wrong = |what: String| Err(RunError::new(RunErrorKind::WrongInputs, what));
    for (at, stage) in stages.iter().enumerate() {
        let core = &stage.engine.core;
        if (stage.inputs.len(), stage.outputs.len()) != (core.input_names.len(), core.output_names.len()) {
            return wrong(format!("stage {at} is wired to other inputs or outputs than its engine has"));
        }
        let mut seen = Vec::new();
        for &value in stage.inputs.iter().chain(&stage.outputs) {
            let Some(LaneValue { name, time, .. }) = values.get(value) else {
                return wrong(format!("stage {at} is wired to a value that is not there"));
            };
            if seen.contains(&value) {
                return wrong(format!("stage {at} has `{name}` twice"));
            }
            if stage.time.0 > stage.time.1 || time.0 > stage.time.0 || time.1 < stage.time.1 {
                return wrong(format!("`{name}` is not kept while stage {at} runs"));
            }
            seen.push(value);
        }
    }
    Ok(())
}

/// The memory that a value lies in: a device's where all that touch it are on it, else the host's.
fn home(stages: &[LaneStage], value: usize, is_port: bool) -> Arc<dyn Backend> {
    let host = |stage: &LaneStage| stage.engine.core.backends[stage.engine.core.plan.host() as usize].clone();
    let mut device: Option<Arc<dyn Backend>> = None;
    let mut all = !is_port;
    let mut any = None;
    for stage in stages {
        let core = &stage.engine.core;
        let output = stage.outputs.iter().position(|&known| known == value);
        if output.is_none() && !stage.inputs.contains(&value) {
            continue;
        }
        any.get_or_insert_with(|| host(stage));
        let can = match (core.plan.device(), output) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(output)) => FrameMemory::can_bind(core, &core.unit, output, Site::Device),
        };
        let own = core.plan.device().map(|at| core.backends[at as usize].clone());
        let is_same = match (&device, &own) {
            (Some(known), Some(own)) => is_one_memory(&**known, &**own),
            _ => true,
        };
        all &= can && is_same;
        device = device.or(own);
    }
    match (all, device, any) {
        (true, Some(device), _) => device,
        (_, _, Some(host)) => host,
        // A value that only the caller touches.
        _ => host(&stages[0]),
    }
}

/// What stands in a binding between runs.
fn nothing() -> Result<Buffer, RunError> {
    Ok(Buffer::Host(HostBuffer::zeros(DType::U8, &[0])?))
}

impl Slot {
    fn new(stage: &LaneStage, options: ContextOptions) -> Result<Slot, RunError> {
        let core = &stage.engine.core;
        if !core.states.is_empty() {
            let message =
                "a plan with states keeps values between runs of its own; build it without --state here";
            return Err(RunError::new(RunErrorKind::WrongInputs, message));
        }
        let mut bindings = Bindings::new();
        for name in &core.input_names {
            bindings = bindings.input(name, nothing()?);
        }
        for name in &core.output_names {
            bindings = bindings.output(name, nothing()?);
        }
        let context = stage.engine.context_with(options)?;
        let is_ahead = core.unit.outline.segments.len() == 1 && crate::pipeline::overlaps(core);
        let done = match (is_ahead, core.plan.device()) {
            (true, Some(device)) => Some(core.backends[device as usize].event(false)?),
            _ => None,
        };
        let (inputs, outputs) = (stage.inputs.clone(), stage.outputs.clone());
        Ok(Slot { context, bindings, inputs, outputs, done, is_ahead })
    }

    /// Has what lies between the steps of the stage lie there.
    fn take_arena(&mut self, target: usize, part: Box<dyn Memory>) -> Result<(), RunError> {
        let state = self.context.state()?;
        let engine = state.engine.clone();
        state.frame.memory.prepare(&engine.core, &engine.core.unit);
        state.frame.memory.arenas[target] = Some(part);
        Ok(())
    }

    /// Runs behind an event, or, where the stage is one that is waited for, after it was reached. Gives whether it is under
    /// way still.
    fn run(&mut self, after: Option<&dyn Event>) -> Result<bool, RunError> {
        let state = self.context.state()?;
        let pinning = state.engine.core.pinning.clone();
        // What passes through a copy of the context's own is there for one run at a time.
        let is_direct = |(_, buffer): &(String, Buffer)| match buffer {
            Buffer::Host(buffer) => buffer.is_pinned_by(pinning.as_ref()),
            Buffer::Device(_) => true,
        };
        let is_ahead = self.bindings.inputs.iter().chain(&self.bindings.outputs).all(is_direct);
        let Some(done) = self.done.as_deref().filter(|_| self.is_ahead && is_ahead) else {
            if let Some(after) = after {
                after.wait()?;
            }
            return state.run_bound(&mut self.bindings, Watch::default()).map(|()| false);
        };
        let device = state.engine.core.device()?;
        if let Some(after) = after {
            state.queues.get(device).wait_for(after)?;
        }
        state.run_ahead(&mut self.bindings, 0)?;
        state.queues.get(device).record_at(done)?;
        Ok(true)
    }
}

/// The sizes of an engine's outputs at those of its inputs, all of them known before a run.
pub fn lane_sizes(engine: &Engine, inputs: &[&[usize]]) -> Result<Vec<Vec<usize>>, RunError> {
    let dims: Vec<Option<&[usize]>> = inputs.iter().map(|dims| Some(*dims)).collect();
    let sizes = output_dims(&engine.core, &dims)?;
    let named = sizes.into_iter().zip(&engine.core.output_names);
    named
        .map(|(sizes, name)| {
            sizes.ok_or_else(|| {
                let message =
                    format!("only a run can tell the sizes of output `{name}`; a pipeline needs them before");
                RunError::new(RunErrorKind::WrongShape, message)
            })
        })
        .collect()
}
