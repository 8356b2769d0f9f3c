//! States: inputs that are what an output was in the run before.
//!
//! A plan names its states in its options, a line `state=IN=OUT[:SIZES]` each; they are compared with the program when an
//! engine is opened. A [`Sequence`] holds what the states of one sequence are: two buffers each, in the memory of the plan's
//! device where a kernel can write there. A run reads one and writes the other, then they change places, so nothing is
//! copied. Where only a run can tell an output's sizes, or it has no memory of its own, it is copied once.

use std::sync::Arc;

use planish_kernel::Address;
use planish_plan::Plan;
use planish_tensor::{Dim, Shape, Tensor};

use crate::bind::Symbols;
use crate::buffer::Buffer;
use crate::context::Context;
use crate::device::DeviceBuffer;
use crate::engine::{Core, PortInfo};
use crate::error::{RunError, RunErrorKind};
use crate::feed::{Bound, Feed, Site};
use crate::memory::FrameMemory;
use crate::ports::device_of;
use crate::results::output_dims;
use crate::run::Watch;
use crate::state::State;
use crate::view::View;

/// An input that is what an output was in the run before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatePair {
    /// The input's place among the inputs.
    pub input: usize,
    /// The output's place among the outputs.
    pub output: usize,
    /// The sizes that a sequence begins at, where they were given.
    pub sizes: Option<Vec<usize>>,
}

impl StatePair {
    /// Reads `IN=OUT[:SIZES]` for a model with these inputs and outputs; both must be tensors of one type, rank and fixed
    /// sizes.
    pub fn parse(text: &str, inputs: &[PortInfo], outputs: &[PortInfo]) -> Result<StatePair, String> {
        let names = |ports: &[PortInfo]| {
            ports.iter().map(|port| format!("`{}`", port.name)).collect::<Vec<_>>().join(", ")
        };
        let starts =
            |port: &PortInfo| text.strip_prefix(&port.name).is_some_and(|rest| rest.starts_with('='));
        let Some(input) = inputs.iter().position(starts) else {
            return Err(format!("`{text}` names no input; give IN=OUT with one of {}", names(inputs)));
        };
        let rest = &text[inputs[input].name.len() + 1..];
        let by_name = |name: &str| outputs.iter().position(|port| port.name == name);
        let (output, sizes) = match (by_name(rest), rest.rsplit_once(':')) {
            (Some(output), _) => (output, None),
            (None, Some((name, sizes))) if by_name(name).is_some() => {
                let size = |text: &str| text.parse::<usize>().ok();
                let list = match sizes {
                    "" => Some(Vec::new()),
                    sizes => sizes.split('x').map(size).collect::<Option<Vec<_>>>(),
                };
                let list =
                    list.ok_or_else(|| format!("`{text}`: {sizes} are no sizes; give them as in 2x1x128"))?;
                (by_name(name).unwrap_or_default(), Some(list))
            }
            _ => return Err(format!("`{text}`: there is no output `{rest}`; there are {}", names(outputs))),
        };
        let (from, to) = (&outputs[output].ty, &inputs[input].ty);
        let differ = || {
            let (input, output) = (&inputs[input].name, &outputs[output].name);
            format!(
                "`{text}`: input `{input}` is {to}, output `{output}` is {from}; a state is of one type and shape"
            )
        };
        let (Some(from), Some(to)) = (from.as_tensor(), to.as_tensor()) else { return Err(differ()) };
        let (Some(before), Some(after)) = (&to.shape, &from.shape) else { return Err(differ()) };
        let may_be = |(one, other): (&Dim, &Dim)| match (one.as_const(), other.as_const()) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let fits = before.rank() == after.rank() && before.dims().iter().zip(after.dims()).all(may_be);
        if from.dtype != to.dtype || !fits {
            return Err(differ());
        }
        if let Some(sizes) = &sizes {
            let is_size = |(dim, &size): (&Dim, &usize)| dim.as_usize().is_none_or(|fixed| fixed == size);
            if sizes.len() != before.rank() || !before.dims().iter().zip(sizes).all(is_size) {
                let input = &inputs[input].name;
                return Err(format!("`{text}`: input `{input}` is {to}, and takes no sizes {sizes:?}"));
            }
        }
        Ok(StatePair { input, output, sizes })
    }

    /// Symbols of the state's sizes that other sizes share by name though they change from run to run: they are to be
    /// untied.
    pub fn loose_symbols(&self, inputs: &[PortInfo], outputs: &[PortInfo]) -> Vec<String> {
        let shape = |port: &PortInfo| port.ty.as_tensor().and_then(|ty| ty.shape.clone());
        let (Some(before), Some(after)) = (shape(&inputs[self.input]), shape(&outputs[self.output])) else {
            return Vec::new();
        };
        let pairs = before.dims().iter().zip(after.dims());
        let loose = pairs.filter(|(before, after)| before != after && !grows(before, after));
        let symbols = loose.filter_map(|(before, _)| before.as_symbol().map(|name| name.to_string()));
        let n_uses = |name: &String| {
            let dims = inputs.iter().filter_map(shape).flat_map(|shape| shape.dims().to_vec());
            dims.filter(|dim| dim.symbols().iter().any(|symbol| **symbol == **name)).count()
        };
        symbols.filter(|name| n_uses(name) > 1).collect()
    }

    /// All of several texts; none of an input or output twice.
    pub fn parse_all(
        texts: &[&str],
        inputs: &[PortInfo],
        outputs: &[PortInfo],
    ) -> Result<Vec<StatePair>, String> {
        let mut pairs: Vec<StatePair> = Vec::new();
        for text in texts {
            let pair = StatePair::parse(text, inputs, outputs)?;
            if pairs.iter().any(|known| known.input == pair.input || known.output == pair.output) {
                return Err(format!("`{text}`: its input or output is a state already"));
            }
            pairs.push(pair);
        }
        Ok(pairs)
    }
}

/// The states that a plan says it has, compared with its program.
pub(crate) fn of_plan(plan: &Plan) -> Result<Vec<StatePair>, RunError> {
    let texts: Vec<&str> =
        plan.header.options.lines().filter_map(|line| line.strip_prefix("state=")).collect();
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let ports = |list: &[u32]| -> Vec<PortInfo> {
        let values = list.iter().map(|&value| &plan.program.values[value as usize]);
        values.map(|value| PortInfo { name: value.name.clone(), ty: value.ty.clone() }).collect()
    };
    let (inputs, outputs) = (ports(&plan.program.inputs), ports(&plan.program.outputs));
    StatePair::parse_all(&texts, &inputs, &outputs)
        .map_err(|why| RunError::needs_rebuild(format!("the plan's states do not fit its program: {why}")))
}

/// What the states of one sequence are; nothing was run yet where it is empty. A context has one; others are swapped in by
/// [`Context::swap_sequence`], so that one context serves several sequences.
#[derive(Debug, Default)]
pub struct Sequence {
    /// Of which engine it is, once it was used.
    origin: Option<Arc<()>>,
    held: Vec<Held>,
}

/// One state.
#[derive(Debug, Default)]
struct Held {
    /// What it is, and what the next run writes to.
    now: Option<Buffer>,
    next: Option<Buffer>,
    has_begun: bool,
}

/// The states of a context's sequence, to look at and to change between runs.
#[derive(Debug)]
pub struct States<'a> {
    state: &'a mut State,
}

impl Context {
    /// The states of the context's sequence. Waits for runs that are under way.
    pub fn states(&mut self) -> Result<States<'_>, RunError> {
        let state = self.state()?;
        state.settle();
        Ok(States { state })
    }

    /// Has the next runs go on with this sequence, and gives the one that it went on with so far in its place. An empty
    /// one begins anew.
    pub fn swap_sequence(&mut self, sequence: &mut Sequence) -> Result<(), RunError> {
        let state = self.state()?;
        state.settle();
        if sequence.origin.as_ref().is_some_and(|origin| !Arc::ptr_eq(origin, &state.engine.core.origin)) {
            let message = "this sequence is of another engine; begin an empty one";
            return Err(RunError::new(RunErrorKind::WrongInputs, message));
        }
        // What outputs were written to goes with the sequence.
        state.unbind();
        std::mem::swap(&mut state.sequence, sequence);
        Ok(())
    }
}

impl States<'_> {
    /// The names of the inputs that are states.
    pub fn names(&self) -> Vec<&str> {
        let core = &self.state.engine.core;
        core.states.iter().map(|pair| core.input_names[pair.input].as_str()).collect()
    }

    /// Begins a new sequence, from zeros.
    pub fn reset(&mut self) {
        self.state.unbind();
        // Buffers stay: what captured graphs know by their addresses can be replayed.
        self.state.sequence.held.iter_mut().for_each(|held| held.has_begun = false);
    }

    /// Begins anew for one row of a batch of sequences: row `row` of every state, along its first axis, becomes zeros.
    pub fn reset_row(&mut self, row: usize) -> Result<(), RunError> {
        let names: Vec<String> = self.names().into_iter().map(String::from).collect();
        for name in names {
            let Some(tensor) = self.get(&name)? else { continue };
            let n_rows = tensor.shape().first().copied().unwrap_or(0);
            if row >= n_rows {
                let message = format!("state `{name}` has {n_rows} rows, there is no row {row}");
                return Err(RunError::new(RunErrorKind::WrongInputs, message));
            }
            let mut bytes = tensor.bytes().to_vec();
            let len = bytes.len() / n_rows;
            bytes[row * len..(row + 1) * len].fill(0);
            let view = View::from_bytes(tensor.dtype(), tensor.shape(), &bytes);
            let view = view.map_err(|error| RunError::new(RunErrorKind::Failed, error.to_string()))?;
            self.set(&name, view)?;
        }
        Ok(())
    }

    /// What a state is, by the name of its input; `None` where its sequence has not begun.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>, RunError> {
        let at = self.find(name)?;
        let Some(held) = self.state.sequence.held.get(at).filter(|held| held.has_begun) else {
            return Ok(None);
        };
        Ok(match &held.now {
            None => None,
            Some(Buffer::Host(buffer)) => Some(buffer.view().to_tensor()),
            Some(Buffer::Device(buffer)) => {
                let bytes = buffer.download()?;
                let view = View::from_bytes(buffer.dtype(), buffer.dims(), &bytes);
                let view = view.map_err(|error| RunError::new(RunErrorKind::Failed, error.to_string()))?;
                Some(view.to_tensor())
            }
        })
    }

    /// Makes a state what a tensor is.
    pub fn set(&mut self, name: &str, to: View<'_>) -> Result<(), RunError> {
        let at = self.find(name)?;
        self.state.unbind();
        let core = self.state.engine.core.clone();
        let pair = &core.states[at];
        let value = &core.plan.program.values[core.plan.program.inputs[pair.input] as usize];
        if value.ty.as_tensor().is_none_or(|ty| ty.dtype != to.dtype()) {
            let message = format!("state `{name}` is {}, it was given {}", value.ty, to.dtype().name());
            return Err(RunError::new(RunErrorKind::WrongType, message));
        }
        let shape = value.ty.as_tensor().and_then(|ty| ty.shape.as_ref());
        if let Some(shape) = shape {
            Symbols::default().bind(&format!("state `{name}`"), shape, to.dims())?;
        }
        let sequence = &mut self.state.sequence;
        sequence.begin(&core);
        let held = &mut sequence.held[at];
        room(&core, pair, &mut held.now, to.dims())?;
        match &mut held.now {
            Some(Buffer::Host(buffer)) => buffer.bytes_mut().copy_from_slice(to.bytes()),
            Some(Buffer::Device(buffer)) => buffer.upload(to)?,
            None => {}
        }
        held.has_begun = true;
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, RunError> {
        let names = self.names();
        names.iter().position(|known| *known == name).ok_or_else(|| {
            let message = match names.is_empty() {
                true => format!("the plan has no states, `{name}` is none; build it with --state IN=OUT"),
                false => format!("`{name}` is not a state; there are {}", names.join(", ")),
            };
            RunError::new(RunErrorKind::WrongInputs, message)
        })
    }
}

/// Whether a state lies in the memory of the plan's device.
fn is_on_device(core: &Core, pair: &StatePair) -> bool {
    core.plan.device().is_some() && FrameMemory::can_bind(core, &core.unit, pair.output, Site::Device)
}

/// Makes sure that a buffer has room for these sizes, and takes them over.
fn room(core: &Core, pair: &StatePair, buffer: &mut Option<Buffer>, dims: &[usize]) -> Result<(), RunError> {
    if buffer.as_mut().is_some_and(|buffer| buffer.set_dims(dims)) {
        return Ok(());
    }
    let value = core.plan.program.inputs[pair.input];
    let name = &core.input_names[pair.input];
    // The old one goes first.
    *buffer = None;
    *buffer = Some(match is_on_device(core, pair) {
        true => {
            let dtype = crate::ports::checked(core, "state", name, value, dims)?;
            Buffer::Device(DeviceBuffer::zeros(device_of(core)?, dtype, dims)?)
        }
        false => Buffer::Host(crate::ports::buffer(core, "state", name, value, dims)?),
    });
    Ok(())
}

/// A state as a run reads it.
fn feed<'a>(core: &Core, buffer: &'a Buffer) -> Feed<'a> {
    match buffer {
        Buffer::Host(buffer) if buffer.is_pinned_by(core.pinning.as_ref()) => Feed::Pinned(buffer.view()),
        Buffer::Host(buffer) => Feed::View(buffer.view()),
        Buffer::Device(buffer) => Feed::Device(buffer.view()),
    }
}

/// Where a run writes a state.
fn target(core: &Core, buffer: &mut Buffer) -> Bound {
    match buffer {
        Buffer::Host(buffer) => {
            let is_pinned = buffer.is_pinned_by(core.pinning.as_ref());
            let site = if is_pinned { Site::Pinned } else { Site::Host };
            let to = Address(buffer.pointer().expose_provenance() as u64);
            Bound { to, bytes: buffer.capacity(), site }
        }
        Buffer::Device(buffer) => {
            let target = buffer.target();
            Bound { to: target.address, bytes: target.bytes, site: Site::Device }
        }
    }
}

/// The sizes that a state begins at: those that were asked for, of the other inputs, or of the plan's first profile; 0 along
/// an axis that grows from run to run (a cache of keys and values), 1 along any other.
fn first_sizes(core: &Core, pair: &StatePair, symbols: &Symbols) -> Option<Vec<usize>> {
    if let Some(sizes) = &pair.sizes {
        return Some(sizes.clone());
    }
    let program = &core.plan.program;
    let shape =
        |value: u32| -> Option<&Shape> { program.values[value as usize].ty.as_tensor()?.shape.as_ref() };
    let (before, after) = (shape(program.inputs[pair.input])?, shape(program.outputs[pair.output])?);
    let size = |(before, after): (&Dim, &Dim)| {
        if let Some(size) = symbols.eval(before) {
            return usize::try_from(size).ok();
        }
        let grows = grows(before, after);
        let ranges = core.plan.header.profiles.first().map_or(&[][..], |profile| &profile.ranges[..]);
        let least = before.as_symbol().and_then(|name| ranges.iter().find(|range| range.symbol == *name));
        Some(match (grows, least) {
            (_, Some(range)) => usize::try_from(range.min).ok()?,
            (true, None) => 0,
            (false, None) => 1,
        })
    };
    before.dims().iter().zip(after.dims()).map(size).collect()
}

/// Whether a size is what it was and something more: `past` and `past + n`.
fn grows(before: &Dim, after: &Dim) -> bool {
    let more = after.clone() - before.clone();
    before != after
        && !before.symbols().is_disjoint(&after.symbols())
        && before.symbols().is_disjoint(&more.symbols())
}

impl Sequence {
    fn begin(&mut self, core: &Arc<Core>) {
        if self.origin.is_none() {
            self.origin = Some(core.origin.clone());
            self.held.resize_with(core.states.len(), Held::default);
        }
    }

    /// Runs with what the states are where nothing else is given for them, and takes over what they become. Where it fails,
    /// they stay what they were.
    pub(crate) fn run(
        &mut self,
        state: &mut State,
        feeds: &[Feed<'_>],
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        state.settle();
        state.catch_up();
        let core = state.engine.core.clone();
        self.begin(&core);
        let mut nexts: Vec<Option<Buffer>> = self.held.iter_mut().map(|held| held.next.take()).collect();
        let result = self.try_run(state, &core, feeds, &mut nexts, watch);
        if result.is_err() {
            // Nothing may point at buffers that a later run may free.
            state.unbind();
        }
        for (held, next) in self.held.iter_mut().zip(nexts) {
            match result {
                Ok(()) => {
                    held.next = std::mem::replace(&mut held.now, next);
                    held.has_begun = true;
                }
                Err(_) => held.next = next,
            }
        }
        result
    }

    fn try_run(
        &mut self,
        state: &mut State,
        core: &Arc<Core>,
        feeds: &[Feed<'_>],
        nexts: &mut [Option<Buffer>],
        watch: Watch<'_>,
    ) -> Result<(), RunError> {
        let n_inputs = core.input_names.len();
        let is_state = |at: usize| core.states.iter().any(|pair| pair.input == at);
        let mut given = vec![Feed::Absent; n_inputs];
        if feeds.len() == n_inputs {
            given.copy_from_slice(feeds);
        } else {
            // All but the states, in the model's order.
            let n_others = n_inputs - core.states.len();
            if feeds.len() != n_others {
                let message = format!(
                    "the model takes {n_others} inputs beside its states, {} were given",
                    feeds.len()
                );
                return Err(RunError::new(RunErrorKind::WrongInputs, message));
            }
            let others = (0..n_inputs).filter(|&at| !is_state(at));
            others.zip(feeds).for_each(|(at, feed)| given[at] = *feed);
        }
        self.start(core, &given)?;
        for (pair, held) in core.states.iter().zip(&self.held) {
            if let (Feed::Absent, Some(now)) = (given[pair.input], &held.now) {
                given[pair.input] = feed(core, now);
            }
        }
        let dims: Vec<Option<&[usize]>> = given.iter().map(Feed::dims).collect();
        let sizes = output_dims(core, &dims)?;
        drop(dims);
        let mut is_direct = vec![false; core.states.len()];
        for (at, pair) in core.states.iter().enumerate() {
            let name = &core.output_names[pair.output];
            let bound = state.frame.memory.bound.get(pair.output).copied().flatten();
            let own = self.held[at].now.as_ref().map(Buffer::address);
            if bound.is_some_and(|bound| Some(bound.to) != own) {
                let message =
                    format!("output `{name}` is a state and cannot be bound; Context::states reads it");
                return Err(RunError::new(RunErrorKind::WrongInputs, message));
            }
            if let Some(sizes) = &sizes[pair.output] {
                room(core, pair, &mut nexts[at], sizes)?;
            }
            is_direct[at] = match (&sizes[pair.output], &mut nexts[at]) {
                (Some(_), Some(next)) => {
                    let bound = target(core, next);
                    state.frame.memory.bind(core, &core.unit, pair.output, Some(bound))
                }
                _ => false,
            };
            if !is_direct[at] && !state.mode.waits {
                let message =
                    format!("state `{name}` passes through the host; run it without a stream of yours");
                return Err(RunError::new(RunErrorKind::WrongInputs, message));
            }
        }
        state.run_fed(&given, watch)?;
        for (at, pair) in core.states.iter().enumerate() {
            let name = &core.output_names[pair.output];
            let missing = || RunError::new(RunErrorKind::Failed, format!("output `{name}` was not made"));
            if is_direct[at] {
                let dims = state.frame.last_output_dims(&core.unit, pair.output).ok_or_else(missing)?;
                if !nexts[at].as_mut().is_some_and(|next| next.set_dims(dims)) {
                    return Err(missing());
                }
                continue;
            }
            let view = state.frame.output(&core.unit, pair.output).0.ok_or_else(missing)?;
            room(core, pair, &mut nexts[at], view.dims())?;
            match &mut nexts[at] {
                Some(Buffer::Host(buffer)) => buffer.bytes_mut().copy_from_slice(view.bytes()),
                Some(Buffer::Device(buffer)) => buffer.upload(view)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Zeros for states that have not begun and that nobody gives.
    fn start(&mut self, core: &Core, given: &[Feed<'_>]) -> Result<(), RunError> {
        let is_new = |(pair, held): &(&StatePair, &mut Held)| {
            !held.has_begun && matches!(given[pair.input], Feed::Absent)
        };
        if !core.states.iter().zip(&mut self.held).any(|pair| is_new(&pair)) {
            return Ok(());
        }
        let mut symbols = Symbols::default();
        for (&value, feed) in core.plan.program.inputs.iter().zip(given) {
            let shape =
                core.plan.program.values[value as usize].ty.as_tensor().and_then(|ty| ty.shape.as_ref());
            if let (Some(shape), Some(dims)) = (shape, feed.dims()) {
                symbols.bind(
                    &format!("input `{}`", core.plan.program.values[value as usize].name),
                    shape,
                    dims,
                )?;
            }
        }
        for (pair, held) in core.states.iter().zip(&mut self.held).filter(is_new) {
            let name = &core.input_names[pair.input];
            let sizes = first_sizes(core, pair, &symbols).ok_or_else(|| {
                let message =
                    format!("nothing says what sizes state `{name}` begins at; give IN=OUT:SIZES or set it");
                RunError::new(RunErrorKind::WrongShape, message)
            })?;
            room(core, pair, &mut held.now, &sizes)?;
            match &mut held.now {
                Some(Buffer::Host(buffer)) => buffer.bytes_mut().fill(0),
                Some(Buffer::Device(buffer)) => buffer.clear()?,
                None => {}
            }
        }
        Ok(())
    }
}
