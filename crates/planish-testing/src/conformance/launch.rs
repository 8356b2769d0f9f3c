//! One candidate on one case: on dense operands and inside larger ones, between fences, twice, captured and replayed, and
//! over its own input where it says that it may.

// Copies and launches are for the caller to get right.
#![allow(unsafe_code)]

use planish_kernel::{
    Address, Backend, Call, Candidate, Kernel, KernelError, KernelErrorKind, Memory, Operand, Problem, Queue,
    QueueOptions, Want, WeightUse,
};
use planish_tensor::Bytes;

use super::Case;
use crate::operand::{GAP, collect, lay_out, part, widened};
use crate::{Tolerance, error_within, within};

/// How a candidate did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// The largest error as a share of what is granted.
    pub worst: f64,
    pub n_runs: usize,
    /// Strides that it refused.
    pub n_refused: usize,
}

/// How a candidate is run.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// How much farther than its number types explain the result may be off.
    pub slack: f64,
    /// Nothing is written to outputs and workspace before a launch, so that a tool sees who reads them first. Operands
    /// inside larger ones, whose gaps must hold something known, are left out then.
    pub bare: bool,
    /// Launches in the graph that is captured, where a queue captures.
    pub n_captured: usize,
}

impl Default for How {
    fn default() -> How {
        How { slack: 1.0, bare: false, n_captured: 2 }
    }
}

/// How an operand is inside a larger one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inside {
    /// Nowhere: it is dense.
    Dense,
    /// A part of a concatenation of channels, which begins and ends at whole vectors of 16 bytes.
    Channels,
    /// With whole vectors after each row.
    Rows,
    /// With an odd number of elements after each row.
    OddRows,
}

impl Inside {
    /// Elements of a larger value before and after: whole vectors of 16 bytes.
    fn gap(operand: &Operand) -> usize {
        (128 / operand.dtype.bits().max(1)).max(8)
    }

    fn operand(self, operand: &Operand, want: Want) -> Operand {
        if operand.packed.is_some() || !want.inside || operand.rank() == 0 {
            return operand.clone();
        }
        match self {
            Inside::Dense => operand.clone(),
            Inside::Channels | Inside::Rows if want.aligned => {
                widened(operand, want.layout, Inside::gap(operand))
            }
            Inside::OddRows if want.aligned => operand.clone(),
            Inside::Channels => part(operand, want.layout, 1.min(operand.rank() - 1), Inside::gap(operand)),
            Inside::Rows => widened(operand, want.layout, Inside::gap(operand)),
            Inside::OddRows => widened(operand, want.layout, 3),
        }
    }

    /// Bytes before the operand: where the part begins.
    fn offset(self, operand: &Operand, want: Want) -> usize {
        let is_part =
            want.inside && operand.packed.is_none() && matches!(self, Inside::Channels | Inside::Rows);
        if is_part { Inside::gap(operand) * operand.dtype.bytes_for(1).unwrap_or(1) } else { 0 }
    }
}

/// Threads of a queue; a second run has one.
const THREADS: usize = 2;

/// What is around memory.
const FENCE: u8 = 0xa5;

/// Bytes of each fence; keeps the alignment of what is between them.
const FENCE_BYTES: usize = 128;

/// Runs a candidate and compares it with the reference.
pub fn launch(
    backend: &dyn Backend,
    case: &Case,
    candidate: &Candidate,
    how: How,
) -> Result<Outcome, String> {
    let problem = Problem { threads: THREADS, ..case.problem.for_candidate(candidate) };
    let mut outcome = Outcome::default();
    let dense = |error: KernelError| format!("dense operands: {error}");
    let kernel = backend.prepare(&problem, &candidate.tactic).map_err(dense)?;
    check(backend, case, candidate, &problem, &*kernel, Inside::Dense, how, &mut outcome)?;
    let operands = candidate.inputs.iter().chain(&candidate.outputs);
    if how.bare || !operands.clone().any(|want| want.inside) {
        return Ok(outcome);
    }
    for way in [Inside::Channels, Inside::Rows, Inside::OddRows] {
        let mut inside = problem.clone();
        for (operand, want) in inside.inputs.iter_mut().zip(&candidate.inputs) {
            *operand = way.operand(operand, *want);
        }
        for (operand, want) in inside.outputs.iter_mut().zip(&candidate.outputs) {
            *operand = way.operand(operand, *want);
        }
        let said = |what: String| format!("{way:?} of larger operands: {what}");
        match backend.prepare(&inside, &candidate.tactic) {
            Ok(kernel) => {
                check(backend, case, candidate, &inside, &*kernel, way, how, &mut outcome).map_err(said)?;
            }
            // Gaps between rows are more than a candidate promises to take.
            Err(error) if way != Inside::Channels && *error.kind() == KernelErrorKind::Unsupported => {
                outcome.n_refused += 1;
            }
            Err(error) => return Err(said(error.to_string())),
        }
    }
    Ok(outcome)
}

/// Bytes in a backend's memory, between fences.
#[derive(Debug)]
struct Fenced {
    memory: Box<dyn Memory>,
    front: usize,
    /// What it was given, with fences; nothing was written where this is bare.
    bytes: Vec<u8>,
    bare: bool,
}

impl Fenced {
    fn new(
        backend: &dyn Backend,
        queue: &mut dyn Queue,
        bytes: &[u8],
        offset: usize,
    ) -> Result<Fenced, KernelError> {
        let front = FENCE_BYTES + offset;
        let whole = [&vec![FENCE; front][..], bytes, &[FENCE; FENCE_BYTES]].concat();
        let memory = backend.allocate(whole.len())?;
        // SAFETY: the memory was taken for these bytes.
        unsafe { queue.upload(memory.address(), &whole)? };
        Ok(Fenced { memory, front, bytes: whole, bare: false })
    }

    /// Memory that nobody has written to.
    fn bare(backend: &dyn Backend, len: usize) -> Result<Fenced, KernelError> {
        let bytes = vec![0; len + FENCE_BYTES];
        Ok(Fenced { memory: backend.allocate(bytes.len())?, front: 0, bytes, bare: true })
    }

    fn address(&self) -> Address {
        self.memory.address().offset(self.front)
    }

    /// What the memory holds now; an error where something was written around it.
    fn fetch(&self, queue: &mut dyn Queue) -> Result<Vec<u8>, String> {
        let end = self.bytes.len() - FENCE_BYTES;
        let mut whole = vec![0; if self.bare { end } else { self.bytes.len() }];
        // SAFETY: the memory was taken for these bytes.
        unsafe { queue.download(&mut whole, self.memory.address()) }.map_err(said)?;
        if self.bare {
            return Ok(whole);
        }
        let around = whole[..self.front].iter().chain(&whole[end..]);
        match around.clone().all(|byte| *byte == FENCE) {
            true => Ok(whole[self.front..end].to_vec()),
            false => Err("something was written before or after an operand".to_string()),
        }
    }

    /// Whether it holds what it was given.
    fn is_untouched(&self, queue: &mut dyn Queue) -> Result<bool, String> {
        Ok(self.fetch(queue)? == self.bytes[self.front..self.bytes.len() - FENCE_BYTES])
    }
}

fn said(error: KernelError) -> String {
    error.to_string()
}

#[expect(clippy::too_many_arguments, reason = "what a run is made of")]
fn check(
    backend: &dyn Backend,
    case: &Case,
    candidate: &Candidate,
    problem: &Problem,
    kernel: &dyn Kernel,
    way: Inside,
    how: How,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let mut queue = backend.queue(QueueOptions::new(THREADS)).map_err(said)?;
    let queue = &mut *queue;
    let mut inputs = Vec::new();
    for (idx, (operand, tensor)) in problem.inputs.iter().zip(case.inputs()).enumerate() {
        let bytes = match &candidate.packed[idx] {
            Some(_) => {
                backend.pack(WeightUse::new(problem, &candidate.tactic, idx), tensor).map_err(said)?.bytes
            }
            None => Bytes::from_vec(lay_out(operand, tensor)),
        };
        let offset = way.offset(operand, candidate.inputs[idx]);
        inputs.push(Fenced::new(backend, queue, &bytes, offset).map_err(said)?);
    }
    let blank = |queue: &mut dyn Queue, len: usize, offset: usize| match how.bare {
        true => Fenced::bare(backend, len),
        // As a float of any width it is NaN, which would show.
        false => Fenced::new(backend, queue, &vec![GAP; len], offset),
    };
    let mut outputs = Vec::new();
    for (operand, want) in problem.outputs.iter().zip(&candidate.outputs) {
        let offset = way.offset(operand, *want);
        outputs.push(blank(queue, operand.span_bytes(), offset).map_err(said)?);
    }
    let workspace = blank(queue, kernel.workspace_bytes(), 0).map_err(said)?;
    let addresses = |list: &[Fenced]| list.iter().map(Fenced::address).collect::<Vec<Address>>();
    let (from, to) = (addresses(&inputs), addresses(&outputs));
    let call = Call { inputs: &from, outputs: &to, workspace: workspace.address(), fault: Address::NULL };
    let mut runs: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut fetched = |queue: &mut dyn Queue, what: &str| -> Result<(), String> {
        queue.synchronize().map_err(|error| format!("{what}: {error}"))?;
        let bytes = outputs.iter().map(|output| output.fetch(queue)).collect::<Result<Vec<_>, _>>()?;
        runs.push(bytes);
        outcome.n_runs += 1;
        match runs.last() == runs.first() {
            true => Ok(()),
            false => Err(format!("{what} makes other bytes than the first run")),
        }
    };
    // SAFETY: the operands span what the problem says, and live until the queue was waited for.
    unsafe { kernel.launch(&call, queue) }.map_err(said)?;
    fetched(queue, "the first run")?;
    let mut alone = backend.queue(QueueOptions::new(1)).map_err(said)?;
    // SAFETY: as above; the other queue has nothing left to do.
    unsafe { kernel.launch(&call, &mut *alone) }.map_err(said)?;
    fetched(&mut *alone, "a run of one thread")?;
    if queue.can_capture() {
        queue.begin_capture().map_err(said)?;
        // SAFETY: as above.
        let launched = (0..how.n_captured).try_for_each(|_| unsafe { kernel.launch(&call, queue) });
        let graph = queue.end_capture().map_err(said)?;
        launched.map_err(said)?;
        // SAFETY: as above.
        unsafe { queue.replay(&*graph) }.map_err(said)?;
        fetched(queue, "a replay")?;
    }
    for (idx, input) in inputs.iter().enumerate() {
        if !input.is_untouched(queue)? {
            return Err(format!("input {idx} was written to"));
        }
    }
    workspace.fetch(queue).map_err(|what| format!("{what} (the workspace)"))?;
    let first = runs.swap_remove(0);
    for ((operand, bytes), want) in problem.outputs.iter().zip(&first).zip(case.want()) {
        let got = collect(operand, bytes)?;
        let error = match case.is_exact {
            true => within(&got, want, Tolerance::EXACT).map(|()| 0.0),
            false => error_within(problem.numeric, &got, want, how.slack * case.slack),
        };
        outcome.worst = outcome.worst.max(error?);
    }
    let equal = |output: &Operand, input: &Operand| {
        (output.dtype, &output.dims, &output.strides) == (input.dtype, &input.dims, &input.strides)
    };
    // The input is gone after one such run, so only one is tried.
    let over = candidate
        .in_place
        .iter()
        .find(|(output, input)| equal(&problem.outputs[*output], &problem.inputs[*input]));
    if let Some(&(output, input)) = over {
        let mut to = to.clone();
        to[output] = from[input];
        let call = Call { outputs: &to, ..call };
        // SAFETY: as above; the candidate says that these two may share their memory.
        unsafe { kernel.launch(&call, queue) }.map_err(said)?;
        queue.synchronize().map_err(said)?;
        outcome.n_runs += 1;
        let made = collect(&problem.outputs[output], &inputs[input].fetch(queue)?)?;
        if made.bytes() != collect(&problem.outputs[output], &first[output])?.bytes() {
            return Err(format!("output {output} over input {input} makes other bytes"));
        }
    }
    Ok(())
}
