//! A segment at given sizes: where each operand is, and its kernels, prepared.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use planish_kernel::{Backend, Kernel, MemoryKind, Operand, Within};
use planish_plan::{Step, StepKind, Storage};

use crate::arena::{Piece, place};
use crate::bind::Symbols;
use crate::branches::kept_until;
use crate::capture::{CapturedGraphs, GraphSpan, spans, with_transfers};
use crate::distrust::{Touched, check_apart, check_operands, check_problem};
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::pose::{Poses, absent, pose, same_operands, tactic, unknown_size};
use crate::streaming::{Load, Streaming};

/// Memory that an operand lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// The offset is an address: a weight.
    Absolute,
    /// The ring of device memory that streamed weights come to.
    Ring,
    /// The arena of a target.
    Arena(u32),
    /// What the caller gave for an input.
    Input(u32),
    /// Memory of an output, the context's or the caller's.
    Output(u32),
    /// Memory of a value's own.
    Own(u32),
    /// A device's copy of an input, or the caller's own device memory in its place.
    Entry(u32),
    /// What becomes an output by a transfer, or the caller's own device memory in its place.
    Exit(u32),
}

/// Where an operand begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) base: Base,
    pub(crate) offset: u64,
}

impl Location {
    pub(crate) fn is_in_arena_of(self, target: usize) -> bool {
        self.base == Base::Arena(target as u32)
    }
}

/// One step, ready to be launched.
#[derive(Debug)]
pub(crate) struct ResolvedStep {
    pub(crate) action: Action,
    pub(crate) inputs: Vec<Location>,
    pub(crate) outputs: Vec<Location>,
    /// Targets whose queues must be through before it: of earlier steps there that touch the same memory.
    pub(crate) waits: Vec<u32>,
    /// Its place in the program, where its kernel may tell of a fault.
    pub(crate) fault: Option<usize>,
    /// The weights that are brought for it.
    pub(crate) load: Option<Load>,
}

/// From where to where a transfer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From the host to the device whose queue has the step.
    Up,
    /// From that device to the host.
    Down,
    /// Between devices, or within the host.
    Other,
}

#[derive(Debug)]
pub(crate) enum Action {
    Kernel { kernel: Arc<dyn Kernel>, workspace: Location },
    Transfer { bytes: usize, way: Way },
    Evaluate,
    Control,
}

/// A segment at given sizes.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) symbols: Symbols,
    pub(crate) steps: Vec<ResolvedStep>,
    /// Operands of every value that the segment touches, and of all outputs whose sizes are known.
    pub(crate) operands: Vec<Option<Operand>>,
    /// Bytes of each target's arena.
    pub(crate) arena_bytes: Vec<usize>,
    /// Bytes of values with memory of their own that kernels of this segment write.
    pub(crate) own_bytes: Vec<(u32, usize)>,
    pub(crate) output_bytes: Vec<(u32, usize)>,
    /// For each input its copy on a device, as a target and an offset in its arena.
    pub(crate) entries: Vec<Option<(u32, usize)>>,
    /// For each output the value on a device that it is a copy of.
    pub(crate) exits: Vec<Option<(u32, usize)>>,
    pub(crate) spans: Vec<GraphSpan>,
    /// The same with the transfers before and after, where there are some.
    pub(crate) with_transfers: Vec<Option<GraphSpan>>,
    pub(crate) graphs: CapturedGraphs,
}

/// Resolves the steps of a segment, the branches of whose captured graphs are to be spread over so many streams.
pub(crate) fn resolve(
    core: &Core,
    unit: &Unit,
    segment_idx: usize,
    symbols: &Symbols,
    threads: usize,
    streams: usize,
) -> Result<Resolved, RunError> {
    let program = &unit.program;
    let outline = &unit.outline;
    let segment = &outline.segments[segment_idx];
    let steps = &program.steps[segment.first..segment.end];
    let touched = steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs)).flatten();
    let mut poses = Poses::new(program);
    for &value in touched.chain(&program.outputs) {
        poses.find(program, value, symbols);
        poses.find(program, outline.root[value as usize], symbols);
    }
    let (operands, offsets): (Vec<Option<Operand>>, Vec<usize>) = poses
        .list
        .into_iter()
        .map(|posed| posed.map_or((None, 0), |(operand, offset)| (Some(operand), offset)))
        .unzip();

    check_operands(program, &operands, &outline.root, &offsets)?;

    // Kernels first: their workspaces take part in the arena.
    let mut kernels: Vec<Option<Arc<dyn Kernel>>> = Vec::with_capacity(steps.len());
    let operand = |step: &Step, value: Option<u32>| match value {
        Some(value) => operands[value as usize].clone().ok_or_else(|| unknown_size(step)),
        None => Ok(absent()),
    };
    for (idx, step) in steps.iter().enumerate() {
        let StepKind::Kernel { packed, .. } = &step.kind else {
            kernels.push(None);
            continue;
        };
        let backend: &dyn Backend = &*core.backends[step.target as usize];
        // A twin in an earlier segment was prepared at sizes that are not at hand here.
        let twin = outline.twin[segment.first + idx].checked_sub(segment.first).filter(|&twin| twin < idx);
        if let Some(twin) = twin
            && same_operands(&steps[twin], step, &operands)
        {
            let shared = kernels[twin].clone();
            kernels.push(shared);
            continue;
        }
        let problem = pose(step, packed, threads, |value| operand(step, value))?;
        let tactic = tactic(step, symbols)?;
        check_problem(step, &problem, tactic, backend)?;
        let kernel = backend.prepare(&problem, tactic);
        kernels.push(Some(Arc::from(kernel.map_err(|error| RunError::at(&step.name, error))?)));
    }

    let mut in_place: HashMap<usize, Vec<(usize, usize)>> = HashMap::new();
    for (idx, step) in steps.iter().enumerate() {
        let (StepKind::Kernel { .. } | StepKind::Transfer) = &step.kind else { continue };
        let touched = |value: &Option<u32>| {
            let value = (*value)? as usize;
            let within = Within { operand: operands[value].as_ref()?, offset: offsets[value] };
            Some(Touched { root: outline.root[value], within })
        };
        check_apart(step, touched, || match &step.kind {
            StepKind::Kernel { packed, .. } => {
                // Steps that do the same at equal operands may do it in the same places.
                let first = outline.twin[segment.first + idx].checked_sub(segment.first);
                let first = first.filter(|&first| same_operands(&steps[first], step, &operands));
                let first = first.unwrap_or(idx);
                if let Some(known) = in_place.get(&first) {
                    return Ok(known.clone());
                }
                let problem = pose(step, packed, threads, |value| operand(step, value))?;
                let backend: &dyn Backend = &*core.backends[step.target as usize];
                let allowed = backend.in_place(&problem, tactic(step, symbols)?);
                in_place.insert(first, allowed.clone());
                Ok(allowed)
            }
            _ => Ok(Vec::new()),
        })?;
    }

    let layout = lay_out(core, unit, segment_idx, &operands, &kernels, streams)?;
    let ends = Ends::new(core, unit);
    let locate = |step: &Step, value: u32, input: Option<usize>| -> Result<Location, RunError> {
        let root = outline.root[value as usize];
        let within = offsets[value as usize] as u64;
        let end = ends.bases.get(&root).copied();
        Ok(match (&program.values[root as usize].storage, outline.output[root as usize]) {
            (Storage::Weight(weight), _) => {
                let format = match (&step.kind, input) {
                    (StepKind::Kernel { packed, .. }, Some(idx)) => packed.get(idx).cloned().flatten(),
                    _ => None,
                };
                let place = core.weight(step.target, *weight, format.as_deref())?;
                // The length of a packed one was compared with its format, and its strides mean nothing.
                let end = match (&format, &operands[value as usize]) {
                    (Some(_), _) => Some(place.bytes),
                    (None, Some(operand)) => offsets[value as usize].checked_add(operand.span_bytes()),
                    (None, None) => None,
                };
                if end.is_none_or(|end| end > place.bytes) {
                    let name = &program.values[value as usize].name;
                    let why = format!("`{name}` is longer than its weight, the plan is damaged");
                    return Err(RunError::needs_rebuild(why));
                }
                Location { base: place.base, offset: place.offset + within }
            }
            (Storage::Input, _) => {
                let idx = outline.input[root as usize].ok_or_else(|| unknown_size(step))?;
                Location { base: Base::Input(idx), offset: within }
            }
            (_, Some(output)) if !outline.own[root as usize] => {
                Location { base: Base::Output(output as u32), offset: within }
            }
            _ if outline.own[root as usize] => Location { base: Base::Own(root), offset: within },
            _ => match end {
                Some(base) => Location { base, offset: within },
                None => Location {
                    base: Base::Arena(program.values[root as usize].target),
                    offset: layout.offset[root as usize] as u64 + within,
                },
            },
        })
    };
    let nowhere = Location { base: Base::Absolute, offset: 0 };
    let mut resolved = Vec::with_capacity(steps.len());
    for (idx, (step, kernel)) in steps.iter().zip(kernels).enumerate() {
        let mut inputs = Vec::with_capacity(step.inputs.len());
        for (at, value) in step.inputs.iter().enumerate() {
            inputs.push(value.map_or(Ok(nowhere), |value| locate(step, value, Some(at)))?);
        }
        let mut outputs = Vec::with_capacity(step.outputs.len());
        for value in &step.outputs {
            outputs.push(value.map_or(Ok(nowhere), |value| locate(step, value, None))?);
        }
        let action = match (&step.kind, kernel) {
            (StepKind::Kernel { .. }, Some(kernel)) => {
                let offset = layout.workspace[idx] as u64;
                Action::Kernel { kernel, workspace: Location { base: Base::Arena(step.target), offset } }
            }
            (StepKind::Transfer, _) => {
                let source = step.inputs.first().copied().flatten().ok_or_else(|| unknown_size(step))?;
                let operand = operands[source as usize].as_ref().ok_or_else(|| unknown_size(step))?;
                let sink = step.outputs.first().copied().flatten().ok_or_else(|| unknown_size(step))?;
                let to = operands[sink as usize].as_ref().ok_or_else(|| unknown_size(step))?;
                if to.span_bytes() != operand.span_bytes() {
                    let why = format!("step `{}` brings a value to memory of another size", step.name);
                    return Err(RunError::needs_rebuild(why));
                }
                let kind = |value: u32| {
                    let target = program.values[value as usize].target;
                    (core.backends[target as usize].memory_kind(), target == step.target)
                };
                let way = match (kind(source), kind(sink)) {
                    ((MemoryKind::Host, _), (MemoryKind::Device, true)) => Way::Up,
                    ((MemoryKind::Device, true), (MemoryKind::Host, _)) => Way::Down,
                    _ => Way::Other,
                };
                Action::Transfer { bytes: operand.span_bytes(), way }
            }
            (StepKind::Control(_), _) => Action::Control,
            (StepKind::Evaluate | StepKind::Kernel { .. }, _) => Action::Evaluate,
        };
        let may_fault = matches!(&action, Action::Kernel { kernel, .. } if kernel.may_fault());
        let fault = may_fault.then_some(segment.first + idx);
        resolved.push(ResolvedStep { action, inputs, outputs, waits: Vec::new(), fault, load: None });
    }
    order_queues(steps, outline, &mut resolved);
    let spans = spans(core, steps, &resolved);
    if let Some(streaming) = core.weights.streaming.as_ref().filter(|_| std::ptr::eq(unit, &core.unit)) {
        find_loads(streaming, segment.first, &spans, &mut resolved);
    }
    let place = |list: &[Option<u32>]| -> Vec<Option<(u32, usize)>> {
        let at = |root: u32| (program.values[root as usize].target, layout.offset[root as usize]);
        list.iter().map(|root| root.map(at)).collect()
    };
    Ok(Resolved {
        entries: place(&ends.entries),
        exits: place(&ends.exits),
        with_transfers: with_transfers(steps, &resolved, &spans),
        spans,
        graphs: CapturedGraphs::default(),
        symbols: symbols.clone(),
        steps: resolved,
        operands,
        arena_bytes: layout.arena_bytes,
        own_bytes: layout.own_bytes,
        output_bytes: layout.output_bytes,
    })
}

/// Notes which steps have weights brought, each with those of its stretch: the span that it is in, or itself alone.
fn find_loads(streaming: &Streaming, first: usize, spans: &[GraphSpan], resolved: &mut [ResolvedStep]) {
    for (at, step) in resolved.iter_mut().enumerate() {
        let Some(group) = streaming.group_of(first + at) else { continue };
        let span = spans.iter().find(|span| (span.first..span.end).contains(&at));
        let (from, to) = span.map_or((at, at + 1), |span| (span.first, span.end));
        let (first_group, end) = (streaming.n_before(first + from), streaming.n_before(first + to));
        step.load = Some(Load { group, first: first_group, end });
    }
}

/// Values at the ends of a program that a caller's device memory can stand for: copies of inputs that nobody writes
/// but the transfer that makes them, and what nobody needs but the transfer that makes an output of it.
struct Ends {
    /// Roots, by input.
    entries: Vec<Option<u32>>,
    /// Roots, by output.
    exits: Vec<Option<u32>>,
    bases: HashMap<u32, Base>,
}

impl Ends {
    fn new(core: &Core, unit: &Unit) -> Ends {
        let (program, outline) = (&unit.program, &unit.outline);
        let mut ends = Ends {
            entries: vec![None; program.inputs.len()],
            exits: vec![None; program.outputs.len()],
            bases: HashMap::new(),
        };
        if core.plan.device().is_none() {
            return ends;
        }
        let on_device = |value: u32| {
            let record = &program.values[value as usize];
            record.storage == Storage::Arena
                && !outline.own[value as usize]
                && outline.output[value as usize].is_none()
                && core.is_device(record.target)
        };
        for step in program.steps.iter().filter(|step| matches!(step.kind, StepKind::Transfer)) {
            let (Some(&Some(from)), Some(&Some(to))) = (step.inputs.first(), step.outputs.first()) else {
                continue;
            };
            if let Some(input) = outline.input[from as usize].map(|input| input as usize)
                && ends.entries[input].is_none()
                && on_device(to)
                && outline.n_writers[to as usize] == 1
            {
                ends.entries[input] = Some(to);
                ends.bases.insert(to, Base::Entry(input as u32));
            }
            let output = outline.output[to as usize];
            if let Some(output) = output
                && ends.exits[output].is_none()
                && on_device(from)
                && !ends.bases.contains_key(&from)
            {
                ends.exits[output] = Some(from);
                ends.bases.insert(from, Base::Exit(output as u32));
            }
        }
        ends
    }
}

struct Laid {
    offset: Vec<usize>,
    workspace: Vec<usize>,
    arena_bytes: Vec<usize>,
    own_bytes: Vec<(u32, usize)>,
    output_bytes: Vec<(u32, usize)>,
}

/// Places what the segment writes. Memory is shared over time only between values that one queue touches:
/// order between queues is known for dependencies alone.
fn lay_out(
    core: &Core,
    unit: &Unit,
    segment_idx: usize,
    operands: &[Option<Operand>],
    kernels: &[Option<Arc<dyn Kernel>>],
    streams: usize,
) -> Result<Laid, RunError> {
    let (program, outline) = (&unit.program, &unit.outline);
    let segment = &outline.segments[segment_idx];
    let steps = &program.steps[segment.first..segment.end];
    let n_values = program.values.len();
    // By target: a copy that a device's queue makes of host memory is under way while the host goes on.
    let mut queue_of: Vec<Option<Option<u32>>> = vec![None; n_values];
    for step in steps {
        for &value in step.inputs.iter().chain(&step.outputs).flatten() {
            let queue = &mut queue_of[outline.root[value as usize] as usize];
            *queue = match queue {
                None => Some(Some(step.target)),
                Some(Some(known)) if *known == step.target => Some(Some(*known)),
                Some(_) => Some(None),
            };
        }
    }
    let mut laid = Laid {
        offset: vec![0; n_values],
        workspace: vec![0; steps.len()],
        arena_bytes: vec![0; core.backends.len()],
        own_bytes: Vec::new(),
        output_bytes: Vec::new(),
    };
    let kept = |target: u32, last: usize| match core.backends[target as usize].memory_kind() {
        MemoryKind::Device => kept_until(&program.steps, &outline.root, last, streams),
        MemoryKind::Host => last,
    };
    enum Holder {
        Value(usize),
        Workspace(usize),
    }
    /// A target, and the one queue that touches the pieces, or none for several.
    type Group = (u32, Option<u32>);
    let mut groups: BTreeMap<Group, Vec<(Holder, Piece)>> = BTreeMap::new();
    for (value, queue) in queue_of.iter().enumerate() {
        let Some(queue) = queue else { continue };
        if outline.root[value] as usize != value {
            continue;
        }
        let Some(operand) = &operands[value] else { continue };
        let bytes = operand.span_bytes();
        let written_here = outline.life[value].0 >= segment.first;
        match (&program.values[value].storage, outline.output[value]) {
            (Storage::Input | Storage::Weight(_), _) => {}
            _ if outline.own[value] => {
                if written_here {
                    laid.own_bytes.push((value as u32, bytes));
                }
            }
            (_, Some(output)) => laid.output_bytes.push((output as u32, bytes)),
            _ => {
                let (first, last) =
                    if queue.is_none() { (segment.first, segment.end) } else { outline.life[value] };
                let group = groups.entry((program.values[value].target, *queue)).or_default();
                group.push((
                    Holder::Value(value),
                    Piece { bytes, first, last: kept(program.values[value].target, last) },
                ));
            }
        }
    }
    for (idx, (step, kernel)) in steps.iter().zip(kernels).enumerate() {
        let bytes = kernel.as_ref().map_or(0, |kernel| kernel.workspace_bytes());
        if bytes > 0 {
            let at = segment.first + idx;
            let group = groups.entry((step.target, Some(step.target))).or_default();
            group.push((Holder::Workspace(idx), Piece { bytes, first: at, last: kept(step.target, at) }));
        }
    }
    for ((target, _), group) in groups {
        let pieces: Vec<Piece> = group.iter().map(|(_, piece)| *piece).collect();
        let (offsets, bytes) = place(&pieces);
        let base = laid.arena_bytes[target as usize];
        for ((holder, _), offset) in group.iter().zip(offsets) {
            match holder {
                Holder::Value(value) => laid.offset[*value] = base + offset,
                Holder::Workspace(idx) => laid.workspace[*idx] = base + offset,
            }
        }
        laid.arena_bytes[target as usize] = base.checked_add(bytes).ok_or_else(|| {
            RunError::new(RunErrorKind::OutOfMemory, "the arena would be larger than the address space")
        })?;
    }
    Ok(laid)
}

/// Which queues a step waits for: those of other targets that wrote or read before what it touches.
fn order_queues(steps: &[Step], outline: &crate::outline::Outline, resolved: &mut [ResolvedStep]) {
    let queue = |idx: usize| steps[idx].target;
    if (1..steps.len()).all(|idx| queue(idx) == queue(0)) {
        return;
    }
    let mut writer: HashMap<u32, usize> = Default::default();
    let mut readers: HashMap<u32, Vec<usize>> = Default::default();
    for idx in 0..steps.len() {
        let mut waits = Vec::new();
        for &value in steps[idx].inputs.iter().flatten() {
            let root = outline.root[value as usize];
            waits.extend(writer.get(&root).copied());
            readers.entry(root).or_default().push(idx);
        }
        for &value in steps[idx].outputs.iter().flatten() {
            let root = outline.root[value as usize];
            waits.extend(writer.insert(root, idx));
            waits.extend(readers.remove(&root).unwrap_or_default());
        }
        let mut waits: Vec<u32> = waits.into_iter().map(queue).filter(|&other| other != queue(idx)).collect();
        waits.sort_unstable();
        waits.dedup();
        resolved[idx].waits = waits;
    }
}
