//! What each alternative costs, measured on the device as the network would run it.
//!
//! Activations stay where the step before would have left them, in cache; weights come from further away, so
//! several copies are read in turn. Candidates are run in turns, so that a slow moment of the machine meets all
//! of them, and the median counts.
//!
//! A device's launches are recorded as a run would record them, several with rotating weights in one recording, and
//! timed by the device's own events around a replay: gaps between launches count as they will in a run.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use planish_kernel::{
    Address, Backend, Call, Event, Kernel, KernelError, Layout, Memory, MemoryKind, Operand, Problem, Queue,
    QueueOptions, Recording, Wait,
};
use planish_tensor::{DType, Tensor};

use crate::alternatives::Choices;
use crate::backends::Backends;
use crate::code::compile_ahead;
use crate::error::{BuildError, BuildErrorKind};
use crate::lower::{Draft, Source};
use crate::options::BuildOptions;
use crate::timing_cache::{TimingCache, TimingEntry, TimingKey};

/// Candidates that the cost model puts this far behind the best are not measured.
const MAX_PREDICTED_RATIO: f64 = 4.0;
/// After the first round, candidates this far behind the fastest are dropped.
const DROP_RATIO: f64 = 1.6;
/// Rounds by tune level.
const ROUNDS: [usize; 6] = [0, 3, 5, 7, 11, 21];
/// A sample runs at least this long, so that the clock does not count.
const SAMPLE_NS: u64 = 100_000;
/// Weights are read from copies of at least this many bytes together, where a few copies reach it.
const WEIGHT_ROTATION_BYTES: usize = 32 << 20;
const MAX_COPIES: usize = 6;
/// A device's weights are read from copies of as many bytes as the model has, as a run passes over all of them
/// before it meets one again; more than this is beyond every cache.
const MAX_DEVICE_ROTATION_BYTES: usize = 192 << 20;
/// Launches in one recording: enough that its own start, some microseconds, counts little.
const RECORDED_RUNS: usize = 16;
/// Replays in one sample last at least this long on the device, at most so many.
const DEVICE_SAMPLE_NS: f64 = 150_000.0;
const MAX_REPLAYS: usize = 16;

/// While times are measured, the cache's file is written this often: whoever stops a build loses no more.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// What is to be measured, once for all places of the list that ask for the same: a time that each of them got for
/// itself would not be the one that the cache gives them later.
struct Open {
    places: Vec<usize>,
    posed: Problem,
    key: TimingKey,
}

impl Choices {
    /// Takes over a measured time.
    fn price(&mut self, places: &[usize], median_ns: u64) {
        for &at in places {
            self.list[at].ns = median_ns as f64;
            self.list[at].measured = true;
        }
    }

    /// A candidate that cannot be prepared or launched is no candidate.
    fn refuse(&mut self, places: &[usize], error: &KernelError) {
        for &at in places {
            self.list[at].ns = f64::INFINITY;
        }
        let tactic = &self.list[places[0]].candidate.tactic;
        self.refused.push(format!("{tactic} is left out, it cannot run: {error}"));
    }
}

/// Prices every alternative that has a rival, and with `alone` those without too; times come from the cache or go
/// into it.
pub(crate) fn measure(
    draft: &Draft,
    choices: &mut [Choices],
    backends: Backends<'_>,
    options: &BuildOptions,
    cache: &mut TimingCache,
    alone: bool,
) -> Result<(), BuildError> {
    let rounds = ROUNDS[(options.tune_level as usize).min(ROUNDS.len() - 1)];
    if rounds == 0 {
        return Ok(());
    }
    let rotation = rotation_bytes(draft);
    if !backends.is_late(options.build_time) {
        compile_open(draft, choices, backends, cache);
    }
    let mut saved = Instant::now();
    let n_steps = choices.len();
    for (idx, choices) in choices.iter_mut().enumerate() {
        if options.cancel.load(Ordering::Relaxed) {
            return Err(BuildError::new(BuildErrorKind::Cancelled, "the build was stopped"));
        }
        if let Some(progress) = &options.progress {
            progress("tune", idx, n_steps);
        }
        let Some(problem) = choices.problem.clone() else { continue };
        let backend = backends.get(draft.steps[idx].target);
        let device = backend.target().device;
        let rivals = choices.list.iter().filter(|alternative| !alternative.view).count();
        if rivals < 2 && !alone {
            continue;
        }
        let best = choices.list.iter().filter(|a| !a.view).map(|a| a.ns).fold(f64::INFINITY, f64::min);
        let mut open = Vec::new();
        for (at, alternative) in choices.list.iter_mut().enumerate() {
            if alternative.view {
                continue;
            }
            let posed = posed(&problem, &alternative.candidate);
            let key = TimingKey {
                device: device.clone(),
                problem: posed.key(),
                tactic: alternative.candidate.tactic.to_string(),
            };
            // Not looked up either: whether another list had it measured must not change what this one says.
            if alternative.ns > best * MAX_PREDICTED_RATIO {
                continue;
            }
            if let Some(entry) = cache.get(&key) {
                alternative.ns = entry.median_ns as f64;
                alternative.measured = true;
            } else if let Some(same) = open.iter_mut().find(|one: &&mut Open| one.key == key) {
                same.places.push(at);
            } else if !backends.is_late(options.build_time) {
                open.push(Open { places: vec![at], posed, key });
            }
        }
        let step = &draft.steps[idx];
        let weight = |place: usize| match step.inputs[place].map(|value| &draft.values[value].source) {
            Some(Source::Weight(tensor)) => Some(tensor),
            _ => None,
        };
        let mut trials = Vec::new();
        for Open { places, posed, key } in open {
            let tactic = &choices.list[places[0]].candidate.tactic;
            match Trial::new(backend, &posed, tactic, &weight, rotation) {
                Ok(trial) => trials.push((places, key, trial)),
                Err(error) => choices.refuse(&places, &error),
            }
        }
        if let (true, [(places, ..), ..]) = (options.timing_cache_only, &trials[..]) {
            let message = format!(
                "--timing-cache-only: {} of {rivals} times of `{}` are not in the cache, that of {} among them; \
                 build once without it",
                trials.len(),
                problem.region.title(),
                choices.list[places[0]].candidate.tactic
            );
            return Err(BuildError::new(BuildErrorKind::Refused, message));
        }
        let mut queue = match trials.is_empty() {
            true => None,
            false => Some(queue(backend, options.threads)?),
        };
        for round in 0..rounds {
            let Some(queue) = &mut queue else { break };
            trials.retain_mut(|(places, _, trial)| match trial.sample(&mut **queue) {
                Ok(()) => true,
                Err(error) => {
                    choices.refuse(places, &error);
                    false
                }
            });
            if round == 0 {
                let fastest = trials.iter().map(|(_, _, trial)| trial.median()).min().unwrap_or(0);
                for (places, key, trial) in &trials {
                    if trial.median() as f64 > fastest as f64 * DROP_RATIO {
                        choices.price(places, trial.median());
                        cache.insert(key.clone(), trial.entry());
                    }
                }
                trials.retain(|(_, _, trial)| trial.median() as f64 <= fastest as f64 * DROP_RATIO);
            }
            if trials.len() < 2 {
                break;
            }
        }
        for (places, key, trial) in trials {
            choices.price(&places, trial.median());
            cache.insert(key, trial.entry());
        }
        if let Some(refusal) = choices.refused.last()
            && choices.list.iter().all(|alternative| alternative.ns == f64::INFINITY)
        {
            let message = format!("nothing can compute `{}`: {refusal}", problem.region.title());
            return Err(BuildError::internal(message));
        }
        if let Some(path) = &options.timing_cache
            && saved.elapsed() >= SAVE_EVERY
        {
            cache.save(path)?;
            saved = Instant::now();
        }
        // What was not measured is priced by the model, and must not win against what was.
        let slowest = choices.list.iter().filter(|a| a.measured).map(|a| a.ns).fold(0.0, f64::max);
        for alternative in choices.list.iter_mut().filter(|a| !a.measured && !a.view) {
            alternative.ns = alternative.ns.max(slowest);
        }
    }
    Ok(())
}

fn queue(backend: &dyn Backend, threads: usize) -> Result<Box<dyn Queue>, BuildError> {
    let options = QueueOptions { threads, wait: Wait::Spin };
    backend.queue(options).map_err(|error| BuildError::internal(error.to_string()))
}

/// Bytes of the model's weights, within bounds.
fn rotation_bytes(draft: &Draft) -> usize {
    let bytes = |value: &crate::lower::DraftValue| match &value.source {
        Source::Weight(tensor) => tensor.bytes().len(),
        Source::Input | Source::Step => 0,
    };
    draft.values.iter().map(bytes).sum::<usize>().min(MAX_DEVICE_ROTATION_BYTES)
}

/// Has devices compile all that is going to be measured, on every core at once.
fn compile_open(draft: &Draft, choices: &[Choices], backends: Backends<'_>, cache: &TimingCache) {
    for target in backends.by_preference() {
        let backend = backends.get(target);
        if backend.memory_kind() == MemoryKind::Host {
            continue;
        }
        let device = backend.target().device;
        let mut seen = HashSet::new();
        let mut work = Vec::new();
        for (step, choices) in draft.steps.iter().zip(choices).filter(|(step, _)| step.target == target) {
            let Some(problem) = &choices.problem else { continue };
            let best = choices.list.iter().filter(|a| !a.view).map(|a| a.ns).fold(f64::INFINITY, f64::min);
            debug_assert_eq!(step.target, target);
            for alternative in &choices.list {
                if alternative.view || alternative.ns > best * MAX_PREDICTED_RATIO {
                    continue;
                }
                let posed = posed(problem, &alternative.candidate);
                let key = TimingKey {
                    device: device.clone(),
                    problem: posed.key(),
                    tactic: alternative.candidate.tactic.to_string(),
                };
                if cache.get(&key).is_none() && seen.insert((key.problem, key.tactic)) {
                    work.push((posed, alternative.candidate.tactic.clone()));
                }
            }
        }
        compile_ahead(backend, &work);
    }
}

/// The problem with its operands as the candidate wants them.
pub(crate) fn posed(problem: &Problem, candidate: &planish_kernel::Candidate) -> Problem {
    let mut posed = problem.clone();
    for (place, (operand, want)) in posed.inputs.iter_mut().zip(&candidate.inputs).enumerate() {
        let dense = Operand::dense(operand.dtype, &operand.dims, want.layout);
        *operand = Operand {
            constant: operand.constant,
            packed: candidate.packed.get(place).cloned().flatten(),
            ..dense
        };
    }
    for (operand, want) in posed.outputs.iter_mut().zip(&candidate.outputs) {
        *operand = Operand::dense(operand.dtype, &operand.dims, want.layout);
    }
    posed
}

/// One candidate with memory to run on.
struct Trial {
    kernel: Box<dyn Kernel>,
    memory: Vec<Box<dyn Memory>>,
    /// Addresses of the inputs, for each copy of the weights.
    inputs: Vec<Vec<Address>>,
    outputs: Vec<Address>,
    workspace: Address,
    samples: Vec<u64>,
    n_runs: usize,
    /// Made at the first sample, where the device records.
    replay: Option<Replay>,
}

/// Launches that are timed together.
struct Replay {
    recording: Box<dyn Recording>,
    begin: Box<dyn Event>,
    end: Box<dyn Event>,
    n_replays: usize,
}

impl Trial {
    fn new<'a>(
        backend: &dyn Backend,
        problem: &Problem,
        tactic: &planish_kernel::Tactic,
        weight: &dyn Fn(usize) -> Option<&'a Tensor>,
        device_rotation: usize,
    ) -> Result<Trial, KernelError> {
        let kernel = backend.prepare(problem, tactic)?;
        let mut trial = Trial {
            memory: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            workspace: Address::NULL,
            samples: Vec::new(),
            n_runs: 0,
            replay: None,
            kernel,
        };
        let mut queue = backend.queue(QueueOptions::new(1))?;
        let mut shared = Vec::new();
        let mut weights: Vec<(usize, Vec<u8>)> = Vec::new();
        for (place, operand) in problem.inputs.iter().enumerate() {
            let bytes = match (weight(place), &operand.packed) {
                (Some(tensor), Some(_)) => backend.pack(problem, tactic, place, tensor)?.bytes,
                (Some(tensor), None) if operand.is_dense(Layout::Plain) => tensor.bytes().to_vec(),
                _ => {
                    let bytes = filled(operand, place as u64 + 1);
                    shared.push(trial.put(backend, &mut *queue, &bytes)?);
                    continue;
                }
            };
            shared.push(Address::NULL);
            weights.push((place, bytes));
        }
        let n_bytes: usize = weights.iter().map(|(_, bytes)| bytes.len()).sum();
        let n_copies = match backend.memory_kind() {
            MemoryKind::Host => (WEIGHT_ROTATION_BYTES / n_bytes.max(1)).clamp(1, MAX_COPIES),
            MemoryKind::Device => (device_rotation / n_bytes.max(1)).clamp(1, RECORDED_RUNS),
        };
        for _ in 0..n_copies {
            let mut inputs = shared.clone();
            for (place, bytes) in &weights {
                inputs[*place] = trial.put(backend, &mut *queue, bytes)?;
            }
            trial.inputs.push(inputs);
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

    /// Launches once, so that nothing is left to be done at the first launch, then records.
    fn record(&mut self, backend: &dyn Backend, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let (Ok(begin), Ok(end)) = (backend.event(true), backend.event(true)) else { return Ok(()) };
        self.run(queue)?;
        queue.synchronize()?;
        queue.begin_capture()?;
        let recorded = (0..RECORDED_RUNS).try_for_each(|_| self.run(queue));
        let recording = queue.end_capture();
        recorded?;
        let mut replay = Replay { recording: recording?, begin, end, n_replays: 1 };
        // The first replay pays for what the driver puts off until then, the second tells how long one takes.
        replay.sample_ns(queue)?;
        let ns = replay.sample_ns(queue)? * RECORDED_RUNS as f64;
        replay.n_replays = ((DEVICE_SAMPLE_NS / ns.max(1.0)).ceil() as usize).clamp(1, MAX_REPLAYS);
        self.replay = Some(replay);
        Ok(())
    }

    fn put(
        &mut self,
        backend: &dyn Backend,
        queue: &mut dyn Queue,
        bytes: &[u8],
    ) -> Result<Address, KernelError> {
        let memory = backend.allocate(bytes.len())?;
        let address = memory.address();
        // SAFETY: the memory was just allocated with this length.
        unsafe { queue.upload(address, bytes)? };
        self.memory.push(memory);
        Ok(address)
    }

    fn run(&mut self, queue: &mut dyn Queue) -> Result<(), KernelError> {
        let inputs = &self.inputs[self.n_runs % self.inputs.len()];
        self.n_runs += 1;
        let call = Call { inputs, outputs: &self.outputs, workspace: self.workspace };
        // SAFETY: every operand has memory of its own that spans it, and nobody else touches it.
        unsafe { self.kernel.launch(&call, queue) }
    }

    /// One sample: as many runs as the clock needs.
    fn sample(&mut self, queue: &mut dyn Queue) -> Result<(), KernelError> {
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

    fn median(&self) -> u64 {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or(u64::MAX)
    }

    fn entry(&self) -> TimingEntry {
        let sorted = self.sorted();
        let at = |share: usize| sorted.get(sorted.len() * share / 4).copied().unwrap_or(0);
        TimingEntry { median_ns: self.median(), spread_ns: at(3) - at(1), n_samples: sorted.len() as u32 }
    }
}

impl Replay {
    /// The time of one launch.
    fn sample_ns(&mut self, queue: &mut dyn Queue) -> Result<f64, KernelError> {
        queue.record_at(&*self.begin)?;
        for _ in 0..self.n_replays {
            // SAFETY: the trial's memory is there as long as the trial, and nothing else runs on the queue.
            unsafe { queue.replay(&*self.recording)? };
        }
        queue.record_at(&*self.end)?;
        queue.synchronize()?;
        Ok(self.end.ns_since(&*self.begin)? / (self.n_replays * RECORDED_RUNS) as f64)
    }
}

/// Plausible contents of an operand: floats around zero, zeros for everything else (valid as any index).
fn filled(operand: &Operand, seed: u64) -> Vec<u8> {
    let n_bytes = operand.span_bytes();
    if !matches!(operand.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return vec![0; n_bytes];
    }
    let size = if operand.dtype == DType::F32 { 4 } else { 2 };
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(n_bytes);
    for _ in 0..n_bytes / size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        match operand.dtype {
            DType::F16 => bytes.extend_from_slice(&half_bits(value).to_le_bytes()),
            // The upper half of an f32 is a bf16.
            DType::BF16 => bytes.extend_from_slice(&value.to_le_bytes()[2..]),
            _ => bytes.extend_from_slice(&value.to_le_bytes()),
        }
    }
    bytes
}

/// An f16 near a number between -1 and 1; those below the smallest normal one become zero.
fn half_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    let sign = (bits >> 16) as u16 & 0x8000;
    if exponent <= 0 { sign } else { sign | (exponent as u16) << 10 | (bits >> 13) as u16 & 0x3ff }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::Bytes;

    #[test]
    fn made_up_operands_are_numbers_around_zero_in_every_float_type() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let operand = Operand::dense(dtype, &[1000], Layout::Plain);
            let tensor = Tensor::from_bytes(dtype, &[1000], Bytes::from_vec(filled(&operand, 3))).unwrap();
            let values = tensor.to_f64s();
            let mean: f64 = values.iter().sum::<f64>() / 1000.0;
            assert!(values.iter().all(|value| value.abs() <= 1.0) && mean.abs() < 0.1, "{dtype}: {mean}");
            assert!(values.iter().filter(|value| value.abs() > 0.5).count() > 300, "{dtype}");
        }
    }
}
