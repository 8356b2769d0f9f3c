//! One candidate with memory of its own, run and timed as the network would run it.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::Instant;

use planish_kernel::{
    Address, Backend, Call, CapturedGraph, Event, Kernel, KernelError, KernelErrorKind, Layout, Memory,
    MemoryKind, Operand, Problem, Queue, QueueOptions, Tactic, WeightUse,
};
use planish_tensor::memory::{self, OutOfMemory};
use planish_tensor::{DType, Tensor};

use crate::price::cache::TimingEntry;
use crate::price::policy::{
    CAPTURED_LAUNCHES, DEVICE_SAMPLE_NS, MADE_UP_BYTES, MAX_COPIES, MAX_HOST_ROTATION_BYTES, MAX_REPLAYS,
    SAMPLE_NS,
};

/// One candidate with memory to run on.
pub(crate) struct Trial {
    kernel: Box<dyn Kernel>,
    memory: Vec<Box<dyn Memory>>,
    /// Inputs that are no weights, in common with the step's other trials.
    made_up: Vec<Rc<dyn Memory>>,
    /// Addresses of the inputs; those of weights change with every run.
    inputs: Vec<Address>,
    /// Which inputs are weights.
    weights: Vec<(usize, Rc<Rotation>)>,
    outputs: Vec<Address>,
    workspace: Address,
    samples: Vec<u64>,
    n_runs: usize,
    /// Made at the first sample, where the device captures graphs.
    replay: Option<Replay>,
}

/// Copies of a weight in one form, read in turn by all trials of a step that read this form. The turn is theirs in
/// common: a trial must not find in the cache what the one before it has just read.
struct Rotation {
    copies: Vec<Box<dyn Memory>>,
    next: Cell<usize>,
}

impl Rotation {
    fn next(&self) -> Address {
        let at = self.next.get();
        self.next.set((at + 1) % self.copies.len());
        self.copies[at].address()
    }
}

/// The inputs of a step for its trials: each form of a weight is packed once, and is there as long as a trial reads it;
/// other inputs are made up once, since trials only read them.
pub(crate) struct TrialInputs<'a> {
    backend: &'a dyn Backend,
    /// The tensor of an input that is a weight.
    tensor: &'a dyn Fn(usize) -> Option<&'a Tensor>,
    /// Bytes that the copies of a weight come to.
    rotation: usize,
    /// By the number of the input and the form.
    known: HashMap<(usize, Option<String>), Weak<Rotation>>,
    /// By the number of the input, its type and its bytes.
    made_up: HashMap<(usize, DType, usize), Rc<dyn Memory>>,
}

impl<'a> TrialInputs<'a> {
    pub(crate) fn new(
        backend: &'a dyn Backend,
        tensor: &'a dyn Fn(usize) -> Option<&'a Tensor>,
        rotation: usize,
    ) -> TrialInputs<'a> {
        TrialInputs { backend, tensor, rotation, known: HashMap::new(), made_up: HashMap::new() }
    }

    /// The copies of an input in the form that a tactic reads it in, if it is a weight.
    fn weight(
        &mut self,
        problem: &Problem,
        tactic: &Tactic,
        place: usize,
        queue: &mut dyn Queue,
    ) -> Result<Option<Rc<Rotation>>, KernelError> {
        let operand = &problem.inputs[place];
        let Some(tensor) = (self.tensor)(place) else { return Ok(None) };
        if operand.packed.is_none() && !operand.is_dense(Layout::Plain) {
            return Ok(None);
        }
        let key = (place, operand.packed.clone());
        if let Some(known) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok(Some(known));
        }
        let packed;
        let bytes: &[u8] = match operand.packed {
            Some(_) => {
                packed = self.backend.pack(WeightUse::new(problem, tactic, place), tensor)?.bytes;
                &packed
            }
            None => tensor.bytes(),
        };
        let n_copies = match self.backend.memory_kind() {
            MemoryKind::Host => host_copies(self.rotation, bytes.len()),
            MemoryKind::Device => (self.rotation / bytes.len().max(1)).clamp(1, CAPTURED_LAUNCHES),
        };
        let mut copies = vec![uploaded(self.backend, queue, bytes)?];
        for _ in 1..n_copies {
            let memory = self.backend.allocate(bytes.len())?;
            if !bytes.is_empty() {
                // SAFETY: both were just allocated with this length.
                unsafe { queue.copy(memory.address(), copies[0].address(), bytes.len())? };
            }
            copies.push(memory);
        }
        // The bytes that are copied from must be there until then.
        queue.synchronize()?;
        let rotation = Rc::new(Rotation { copies, next: Cell::new(0) });
        self.known.insert(key, Rc::downgrade(&rotation));
        Ok(Some(rotation))
    }

    /// Memory with made-up contents for an input that is no weight, once the queue has got there.
    fn made_up(
        &mut self,
        place: usize,
        operand: &Operand,
        queue: &mut dyn Queue,
    ) -> Result<Rc<dyn Memory>, KernelError> {
        let n_bytes = operand.span_bytes();
        let key = (place, operand.dtype, n_bytes);
        if let Some(known) = self.made_up.get(&key) {
            return Ok(Rc::clone(known));
        }
        let block = filled(operand.dtype, n_bytes.min(MADE_UP_BYTES), place as u64 + 1)?;
        let memory = self.backend.allocate(n_bytes)?;
        for at in (0..n_bytes).step_by(MADE_UP_BYTES) {
            let len = block.len().min(n_bytes - at);
            // SAFETY: the memory was just allocated with more bytes than these reach.
            unsafe { queue.upload(memory.address().offset(at), &block[..len])? };
        }
        let memory: Rc<dyn Memory> = Rc::from(memory);
        self.made_up.insert(key, Rc::clone(&memory));
        Ok(memory)
    }
}

/// Memory that holds these bytes once the queue has got there.
fn uploaded(
    backend: &dyn Backend,
    queue: &mut dyn Queue,
    bytes: &[u8],
) -> Result<Box<dyn Memory>, KernelError> {
    let memory = backend.allocate(bytes.len())?;
    // SAFETY: the memory was just allocated with this length.
    unsafe { queue.upload(memory.address(), bytes)? };
    Ok(memory)
}

/// Launches that are timed together.
struct Replay {
    graph: Box<dyn CapturedGraph>,
    begin: Box<dyn Event>,
    end: Box<dyn Event>,
    n_replays: usize,
}

impl Trial {
    pub(crate) fn new(
        problem: &Problem,
        tactic: &Tactic,
        inputs: &mut TrialInputs<'_>,
    ) -> Result<Trial, KernelError> {
        let backend = inputs.backend;
        let kernel = backend.prepare(problem, tactic)?;
        let mut trial = Trial {
            memory: Vec::new(),
            made_up: Vec::new(),
            inputs: Vec::new(),
            weights: Vec::new(),
            outputs: Vec::new(),
            workspace: Address::NULL,
            samples: Vec::new(),
            n_runs: 0,
            replay: None,
            kernel,
        };
        let mut queue = backend.queue(QueueOptions::new(1))?;
        for (place, operand) in problem.inputs.iter().enumerate() {
            if let Some(rotation) = inputs.weight(problem, tactic, place, &mut *queue)? {
                trial.inputs.push(Address::NULL);
                trial.weights.push((place, rotation));
                continue;
            }
            let memory = inputs.made_up(place, operand, &mut *queue)?;
            trial.inputs.push(memory.address());
            trial.made_up.push(memory);
        }
        for operand in &problem.outputs {
            let memory = backend.allocate(operand.span_bytes())?;
            trial.outputs.push(memory.address());
            trial.memory.push(memory);
        }
        let memory = backend.allocate(trial.kernel.workspace_bytes())?;
        trial.workspace = memory.address();
        trial.memory.push(memory);
        queue.synchronize()?;
        if queue.can_capture() {
            trial.record(backend, &mut *queue)?;
        }
        Ok(trial)
    }

    /// Launches once, so that nothing is left to be done at the first launch, then captures.
    fn record(&mut self, backend: &dyn Backend, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let (Ok(begin), Ok(end)) = (backend.event(true), backend.event(true)) else { return Ok(()) };
        self.run(queue)?;
        queue.synchronize()?;
        queue.begin_capture()?;
        let launched = (0..CAPTURED_LAUNCHES).try_for_each(|_| self.run(queue));
        let graph = queue.end_capture();
        launched?;
        let mut replay = Replay { graph: graph?, begin, end, n_replays: 1 };
        // The first replay pays for what the driver puts off until then, the second tells how long one takes.
        replay.sample_ns(queue)?;
        let ns = replay.sample_ns(queue)? * CAPTURED_LAUNCHES as f64;
        replay.n_replays = ((DEVICE_SAMPLE_NS / ns.max(1.0)).ceil() as usize).clamp(1, MAX_REPLAYS);
        self.replay = Some(replay);
        Ok(())
    }

    fn run(&mut self, queue: &mut dyn Queue) -> Result<(), KernelError> {
        for (place, rotation) in &self.weights {
            self.inputs[*place] = rotation.next();
        }
        self.n_runs += 1;
        let call = Call {
            inputs: &self.inputs,
            outputs: &self.outputs,
            workspace: self.workspace,
            fault: Address::NULL,
        };
        // SAFETY: every operand has memory of its own that spans it, and nobody else touches it.
        unsafe { self.kernel.launch(&call, queue) }
    }

    /// One sample: as many runs as the clock needs.
    pub(crate) fn sample(&mut self, queue: &mut dyn Queue) -> Result<(), KernelError> {
        if let Some(replay) = &mut self.replay {
            self.samples.push(replay.sample_ns(queue)?.round() as u64);
            return Ok(());
        }
        if self.n_runs == 0 {
            self.run(queue)?;
            queue.synchronize()?;
        }
        let started = Instant::now();
        let mut n_runs = 0;
        loop {
            self.run(queue)?;
            queue.synchronize()?;
            n_runs += 1;
            let ns = started.elapsed().as_nanos() as u64;
            if ns >= SAMPLE_NS {
                self.samples.push(ns / n_runs);
                return Ok(());
            }
        }
    }

    fn sorted(&self) -> Vec<u64> {
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        sorted
    }

    /// What the samples say: the median of a device's. The host's are cut by whatever else runs there, which only ever adds
    /// to them, so that a quarter of them counts.
    pub(crate) fn typical(&self) -> u64 {
        let sorted = self.sorted();
        let share = if self.replay.is_some() { 2 } else { 4 };
        sorted.get(sorted.len() / share).copied().unwrap_or(u64::MAX)
    }

    pub(crate) fn entry(&self) -> TimingEntry {
        let sorted = self.sorted();
        let at = |share: usize| sorted.get(sorted.len() * share / 4).copied().unwrap_or(0);
        TimingEntry { median_ns: self.typical(), spread_ns: at(3) - at(1), n_samples: sorted.len() as u32 }
    }
}

impl Replay {
    /// The time of one launch.
    fn sample_ns(&mut self, queue: &mut dyn Queue) -> Result<f64, KernelError> {
        queue.record_at(&*self.begin)?;
        for _ in 0..self.n_replays {
            // SAFETY: the trial's memory is there as long as the trial, and nothing else runs on the queue.
            unsafe { queue.replay(&*self.graph)? };
        }
        queue.record_at(&*self.end)?;
        queue.synchronize()?;
        Ok(self.end.ns_since(&*self.begin)? / (self.n_replays * CAPTURED_LAUNCHES) as f64)
    }
}

/// Plausible contents of that many bytes of an operand: floats around zero, zeros for everything else (valid as any index).
fn filled(dtype: DType, n_bytes: usize, seed: u64) -> Result<Vec<u8>, KernelError> {
    let short = |error: OutOfMemory| KernelError::new(KernelErrorKind::OutOfMemory, error.to_string());
    if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
        return memory::zeroed(n_bytes).map_err(short);
    }
    let size = if dtype == DType::F32 { 4 } else { 2 };
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    memory::fits(n_bytes).map_err(short)?;
    let mut bytes = Vec::with_capacity(n_bytes);
    for _ in 0..n_bytes / size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match dtype {
            DType::F16 => bytes.extend_from_slice(&half_bits(value).to_le_bytes()),
            // The upper half of an f32 is a bf16.
            DType::BF16 => bytes.extend_from_slice(&value.to_le_bytes()[2..]),
            _ => bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }
    Ok(bytes)
}

/// An f16 near a number between -1 and 1; those below the smallest normal one become zero.
fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let sign = (bits >> 16) as u16 & 0x8000;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13) as u16 & 0x3ff }
}

/// Copies of a weight of `bytes` that trials on the host read in turn, in a model with `model` bytes of weights.
fn host_copies(model: usize, bytes: usize) -> usize {
    (model.min(MAX_HOST_ROTATION_BYTES) / bytes.max(1)).clamp(1, MAX_COPIES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::Bytes;

    #[test]
    fn copies_of_a_weight_come_to_the_model_or_more_than_caches_hold() {
        // MobileNet's classifier stays in the last-level cache from run to run, ResNet's weights at points do not.
        assert_eq!(host_copies(14 << 20, 5 << 20), 2);
        assert_eq!(host_copies(46 << 20, 17 << 20), 2);
        assert!(host_copies(400 << 20, 17 << 20) * 17 > 64);
        assert_eq!(
            (host_copies(1 << 20, 1 << 10), host_copies(1 << 20, 2 << 20), host_copies(0, 0)),
            (12, 1, 1)
        );
    }

    #[test]
    fn made_up_operands_are_numbers_around_zero_in_every_float_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let bytes = filled(dtype, dtype.bytes_of(&[1000]).unwrap(), 3).unwrap();
            let tensor = Tensor::from_bytes(dtype, &[1000], Bytes::from_vec(bytes)).unwrap();
            let values = tensor.to_f64s();
            let mean: f64 = values.iter().sum::<f64>() / 1000.0;
            assert!(values.iter().all(|value| value.abs() <= 1.0) && mean.abs() < 0.1, "{dtype}: {mean}");
            assert!(values.iter().filter(|value| value.abs() > 0.5).count() > 300, "{dtype}");
        }
    }
}
