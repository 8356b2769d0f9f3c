//! The weights of a plan in the memory of its backends, each in every form that a kernel reads.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use planish_kernel::{
    Address, Backend, KernelErrorKind, Layout, Memory, MemoryKind, Queue, QueueOptions, WeightUse,
};
use planish_plan::{Plan, Program, Step, StepKind, Storage, Weight};
use planish_tensor::Tensor;

use crate::bind::Symbols;
use crate::error::{RunError, RunErrorKind};
use crate::pose::{Poses, problem, tactic};
use crate::resolve::Base;
use crate::streaming::{Home, Streaming};

/// Weights are used where they lie in the file only if they are aligned like everything else.
const ALIGNMENT: u64 = planish_tensor::Bytes::ALIGNMENT as u64;
/// Weights in one piece of memory begin at multiples of this, as allocations of a device do.
pub(crate) const SPACING: usize = 256;

/// Where a weight is, and how many bytes of it there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightPlace {
    /// The weights' own memory, or the ring that streamed ones come to.
    pub(crate) base: Base,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// Weights in place.
#[derive(Debug)]
pub(crate) struct Weights {
    /// By target, weight and format.
    places: HashMap<(u32, u32, Option<String>), WeightPlace>,
    /// Memory of the weights that do not lie in the plan's file.
    _memory: Vec<Box<dyn Memory>>,
    /// What is not kept in the device's memory.
    pub(crate) streaming: Option<Streaming>,
    /// For each target the bytes of the weights in its memory.
    pub(crate) bytes: Vec<usize>,
    /// Those of them that were made when the plan was opened, for each target: widened or packed from what its file
    /// has. Copies for the memory of a device do not count.
    pub(crate) expanded: Vec<usize>,
}

impl Weights {
    pub(crate) fn place(
        plan: &Plan,
        backends: &[Arc<dyn Backend>],
        managed: bool,
        budget: Option<usize>,
    ) -> Result<Weights, RunError> {
        let streaming = match (plan.device(), budget) {
            (Some(device), Some(budget)) => {
                Streaming::plan(plan, &*backends[device as usize], device, budget)?
            }
            _ => None,
        };
        let mut placing = Placing {
            plan,
            backends,
            weights: HashMap::new(),
            memory: Vec::new(),
            queues: BTreeMap::new(),
            bytes: vec![0; backends.len()],
            expanded: vec![0; backends.len()],
            managed,
            slab: None,
            streaming,
            home: None,
        };
        placing.program(&plan.program)?;
        placing.finish()?;
        let Placing { weights, memory, bytes, expanded, streaming, .. } = placing;
        Ok(Weights { places: weights, _memory: memory, streaming, bytes, expanded })
    }

    pub(crate) fn find(&self, target: u32, weight: u32, format: Option<&str>) -> Option<WeightPlace> {
        self.places.get(&(target, weight, format.map(str::to_string))).copied()
    }
}

/// Weights being put in place.
struct Placing<'a> {
    plan: &'a Plan,
    backends: &'a [Arc<dyn Backend>],
    weights: HashMap<(u32, u32, Option<String>), WeightPlace>,
    memory: Vec<Box<dyn Memory>>,
    /// One for each target, so that copies are waited for once.
    queues: BTreeMap<u32, Box<dyn Queue>>,
    /// By target.
    bytes: Vec<usize>,
    expanded: Vec<usize>,
    /// Whether devices' weights go into managed memory.
    managed: bool,
    slab: Option<Slab>,
    streaming: Option<Streaming>,
    /// Where the weight goes that is being placed, if it is streamed.
    home: Option<Home>,
}

/// Managed memory that weights are put into one after the other. It is asked for at once, so that weights that do
/// not fit are refused before any is copied, and small ones do not take a page each.
#[derive(Debug)]
struct Slab {
    target: u32,
    start: Address,
    used: usize,
    len: usize,
}

impl Placing<'_> {
    fn program(&mut self, program: &Program) -> Result<(), RunError> {
        let sizes = Symbols::from_pairs(&self.plan.header.tuned_at).with_guesses(program);
        let mut poses = Poses::new(program);
        for step in &program.steps {
            if let StepKind::Control(control) = &step.kind {
                for body in &control.bodies {
                    self.program(body)?;
                }
            }
            for (idx, weight_idx, format) in weights_read(program, step) {
                let key = (step.target, weight_idx, format.clone());
                if self.weights.contains_key(&key) {
                    continue;
                }
                let weight = self.plan.weights.get(weight_idx as usize);
                let weight = weight.ok_or_else(|| RunError::needs_rebuild("a weight is missing"))?;
                let streamed = (weight_idx, format.clone());
                self.home = self.streaming.as_ref().and_then(|list| list.home(step.target, &streamed));
                let place = match &format {
                    _ if weight.format == format && weight.packed_by.is_none_or(|by| by == step.target) => {
                        self.check_packed(step.target, weight, format.as_deref(), weight.widened_len())?;
                        match weight.narrowed {
                            Some(_) => self.expand(step.target, &weight.widened())?,
                            None => self.put(step.target, &weight.bytes)?,
                        }
                    }
                    // Steps read it in different forms; the one that is stored leads to the others.
                    Some(format) => {
                        let threads = self.plan.header.threads.max(1) as usize;
                        let posed = problem(program, step, &sizes, threads, &mut poses)?;
                        let chosen = tactic(step, &sizes)?;
                        let tensor = self.tensor_of(weight)?;
                        let packed = self.backends[step.target as usize]
                            .pack(WeightUse::new(&posed, chosen, idx), &tensor)
                            .map_err(|error| RunError::at(&step.name, error))?;
                        if packed.format != *format {
                            let (name, other) = (&step.name, &packed.format);
                            return Err(RunError::needs_rebuild(format!(
                                "step `{name}` reads a weight as {format}, its kernel packs it as {other}"
                            )));
                        }
                        self.check_packed(step.target, weight, Some(format), packed.bytes.len())?;
                        self.expand(step.target, &packed.bytes)?
                    }
                    None => self.expand(step.target, self.tensor_of(weight)?.bytes())?,
                };
                self.weights.insert(key, place);
            }
        }
        Ok(())
    }

    /// Whether a packed weight is as long as its kernel will read; a plan may say anything.
    fn check_packed(
        &self,
        target: u32,
        weight: &Weight,
        format: Option<&str>,
        len: usize,
    ) -> Result<(), RunError> {
        let Some(format) = format else { return Ok(()) };
        let backend = &self.backends[target as usize];
        let expected = backend.packed_bytes(weight.packed_form(format));
        // A format that is never stored was packed here, so its length is right.
        let fits = expected == Some(len) || (expected.is_none() && weight.format.is_none());
        if fits {
            return Ok(());
        }
        let reads = match expected {
            Some(expected) => format!("has {len} bytes, {} reads {expected}", backend.name()),
            None => format!("has sizes that {} does not pack so", backend.name()),
        };
        let (name, dtype, dims) = (&weight.name, weight.dtype, &weight.dims);
        Err(RunError::needs_rebuild(format!("weight `{name}`, {dtype}{dims:?} as `{format}`, {reads}")))
    }

    /// A weight as the graph has it.
    fn tensor_of(&self, weight: &Weight) -> Result<Tensor, RunError> {
        let (Some(format), Some(target)) = (&weight.format, weight.packed_by) else {
            return tensor_of(weight);
        };
        let backend = &self.backends[target as usize];
        backend.unpack(weight.packed_form(format), &weight.widened()).map_err(|error| {
            RunError::needs_rebuild(format!("weight `{}` cannot be unpacked: {error}", weight.name))
        })
    }

    /// The bytes where they lie if the backend can read them there, else a copy.
    fn put(&mut self, target: u32, bytes: &[u8]) -> Result<WeightPlace, RunError> {
        let here = bytes.as_ptr().expose_provenance() as u64;
        let host = self.backends[target as usize].memory_kind() == MemoryKind::Host;
        if host && here.is_multiple_of(ALIGNMENT) {
            self.bytes[target as usize] += bytes.len();
            return Ok(WeightPlace { base: Base::Absolute, offset: here, bytes: bytes.len() });
        }
        self.copy(target, bytes)
    }

    /// What the file has in another form.
    fn expand(&mut self, target: u32, bytes: &[u8]) -> Result<WeightPlace, RunError> {
        self.expanded[target as usize] += bytes.len();
        self.copy(target, bytes)
    }

    fn copy(&mut self, target: u32, bytes: &[u8]) -> Result<WeightPlace, RunError> {
        if let (Some(home), Some(streaming)) = (self.home.take(), &mut self.streaming) {
            streaming.store(home, bytes)?;
            return Ok(WeightPlace { base: Base::Ring, offset: home.in_ring as u64, bytes: bytes.len() });
        }
        let address = self.room(target, bytes.len())?;
        let backend = &self.backends[target as usize];
        let queue = match self.queues.entry(target) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(backend.queue(QueueOptions::new(1))?),
        };
        // SAFETY: the memory was just taken with this length.
        unsafe { queue.upload(address, bytes)? };
        self.bytes[target as usize] += bytes.len();
        Ok(WeightPlace { base: Base::Absolute, offset: address.0, bytes: bytes.len() })
    }

    /// Memory for a weight.
    fn room(&mut self, target: u32, bytes: usize) -> Result<Address, RunError> {
        let backend = &self.backends[target as usize];
        if !self.managed || backend.memory_kind() == MemoryKind::Host {
            let memory = backend.allocate(bytes)?;
            let address = memory.address();
            self.memory.push(memory);
            return Ok(address);
        }
        let bytes = bytes.next_multiple_of(SPACING);
        let fits = |slab: &Slab| slab.target == target && slab.len - slab.used >= bytes;
        if !self.slab.as_ref().is_some_and(fits) {
            // All at first; after that only what was not foreseen.
            let len = match self.slab {
                None => bytes.max(self.needed(&self.plan.program, target, &mut HashSet::new())),
                Some(_) => bytes,
            };
            let memory = backend.allocate_managed(len).map_err(|error| match error.kind() {
                KernelErrorKind::Unsupported => RunError::new(RunErrorKind::Lacking, error.to_string()),
                _ => error.into(),
            })?;
            self.slab = Some(Slab { target, start: memory.address(), used: 0, len });
            self.memory.push(memory);
        }
        let slab = self.slab.as_mut().ok_or_else(|| RunError::needs_rebuild("a weight has no memory"))?;
        let address = slab.start.offset(slab.used);
        slab.used += bytes;
        Ok(address)
    }

    /// What the weights of a target will take, each in every form that is read.
    fn needed(&self, program: &Program, target: u32, seen: &mut HashSet<(u32, Option<String>)>) -> usize {
        let mut bytes = 0;
        for step in &program.steps {
            if let StepKind::Control(control) = &step.kind {
                bytes += control.bodies.iter().map(|body| self.needed(body, target, seen)).sum::<usize>();
            }
            if step.target != target {
                continue;
            }
            for (_, weight, format) in weights_read(program, step) {
                let Some(record) = self.plan.weights.get(weight as usize) else { continue };
                let packed = format.as_deref().and_then(|format| {
                    self.backends[target as usize].packed_bytes(record.packed_form(format))
                });
                if seen.insert((weight, format)) {
                    bytes += packed.unwrap_or(record.widened_len()).next_multiple_of(SPACING);
                }
            }
        }
        bytes
    }

    /// Waits for all copies.
    fn finish(&mut self) -> Result<(), RunError> {
        self.queues.values_mut().try_for_each(|queue| Ok(queue.synchronize()?))
    }
}

/// The weights that a step reads: number of the input, of the weight, and the form that it is read in.
pub(crate) fn weights_read(program: &Program, step: &Step) -> Vec<(usize, u32, Option<String>)> {
    let packed: &[Option<String>] = match &step.kind {
        StepKind::Kernel { packed, .. } => packed,
        StepKind::Control(_) | StepKind::Transfer | StepKind::Evaluate => &[],
    };
    let read = |(idx, value): (usize, &Option<u32>)| {
        let weight = weight_of(program, (*value)?)?;
        Some((idx, weight, packed.get(idx).cloned().flatten()))
    };
    step.inputs.iter().enumerate().filter_map(read).collect()
}

/// The weight that a value is or lies in.
fn weight_of(program: &Program, value: u32) -> Option<u32> {
    let mut at = value;
    for _ in 0..program.values.len() {
        match &program.values[at as usize].storage {
            Storage::Weight(weight) => return Some(*weight),
            Storage::Alias { of } | Storage::Inside { of, .. } => at = *of,
            Storage::Input | Storage::Arena | Storage::Own => return None,
        }
    }
    None
}

/// A weight that is stored plain, as the graph has it.
pub(crate) fn tensor_of(weight: &Weight) -> Result<Tensor, RunError> {
    if weight.format.is_some() || !weight.layout.same_for(Layout::Plain, &weight.dims) {
        let why = format!("weight `{}` is needed plain, but is stored in another form", weight.name);
        return Err(RunError::needs_rebuild(why));
    }
    Tensor::from_bytes(weight.dtype, &weight.dims, weight.widened())
        .map_err(|error| RunError::needs_rebuild(format!("weight `{}`: {error}", weight.name)))
}
