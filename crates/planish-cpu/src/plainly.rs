//! A problem whose operands lie plainly in memory, by the cheapest kernel there is, whatever layouts and packed weights that
//! kernel wants: operands are turned and weights packed as it runs.
//!
//! Steps whose sizes only a run can tell are computed so (`evaluate.rs`), and layers whose weights are not known when a plan
//! is built (`live`).

use planish_kernel::movement::Walk;
use planish_kernel::{
    Budget, Candidate, KernelError, KernelErrorKind, Layout, Operand, Problem, REFERENCE_SOURCE, WeightUse,
};
use planish_tensor::{Bytes, Tensor, memory};

use crate::backend::families;
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::movement::copy::Copy;
use crate::shared::Shared;
use crate::team::Team;

/// Nanoseconds that turning or packing takes for a byte.
const TURN_NS_PER_BYTE: f64 = 0.25;

/// One such problem with its kernel.
pub(crate) struct Plainly {
    isa: Isa,
    family: &'static dyn Family,
    candidate: Candidate,
    /// As the kernel has it.
    problem: Problem,
    /// As it lies outside.
    plain: Vec<Operand>,
    work: Box<dyn Work>,
    /// From plain to the kernel's layout, and back.
    turns_in: Vec<Option<Copy>>,
    turns_out: Vec<Option<Copy>>,
}

impl std::fmt::Debug for Plainly {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} plainly", self.candidate.tactic)
    }
}

/// Memory in lines of 64 bytes, as kernels want their workspace.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

fn lines(bytes: usize) -> Result<Vec<Line>, KernelError> {
    memory::fits(bytes).map_err(|error| KernelError::new(KernelErrorKind::OutOfMemory, error.to_string()))?;
    Ok(vec![Line { _bytes: [0; 64] }; bytes.div_ceil(64)])
}

/// Nanoseconds of a candidate with what is done before and after it.
fn price(problem: &Problem, candidate: &Candidate) -> f64 {
    let turns = |operands: &[Operand], wants: &[planish_kernel::Want]| -> f64 {
        let turned = operands
            .iter()
            .zip(wants)
            .filter(|(operand, want)| !want.layout.same_for(Layout::Plain, &operand.dims));
        turned.map(|(operand, _)| operand.span_bytes() as f64).sum()
    };
    let packed = candidate.packed.iter().zip(&problem.inputs).filter(|(format, _)| format.is_some());
    let bytes = turns(&problem.inputs, &candidate.inputs)
        + turns(&problem.outputs, &candidate.outputs)
        + packed.map(|(_, operand)| 2.0 * operand.span_bytes() as f64).sum::<f64>();
    candidate.predicted_ns + TURN_NS_PER_BYTE * bytes
}

impl Plainly {
    /// `None` where only the reference computes it. Operands must be plain and dense; those that are `constant` may be packed.
    pub(crate) fn new(isa: Isa, problem: &Problem) -> Option<Plainly> {
        // Chosen for one thread: prices hang on their number, and results must not.
        let problem = &Problem { threads: 1, ..problem.clone() };
        // These prepare what is prepared here.
        let is_apart =
            |family: &&'static dyn Family| ["live", "valued", REFERENCE_SOURCE].contains(&family.name());
        let offers = families().filter(|family| !is_apart(family));
        let mut offers: Vec<(&'static dyn Family, Candidate)> = offers
            .flat_map(|family| {
                let candidates = family.candidates(isa, problem, &Budget::USUAL);
                candidates.into_iter().map(move |candidate| (family, candidate))
            })
            .filter(|(_, candidate)| !candidate.slow)
            .collect();
        offers.sort_by(|(_, a), (_, b)| price(problem, a).total_cmp(&price(problem, b)));
        offers.into_iter().find_map(|(family, candidate)| {
            let laid = problem.for_candidate(&candidate);
            let work = family.prepare(isa, &laid, &candidate.tactic).ok()?;
            let turn = |from: &Operand, to: &Operand| {
                let width = from.dtype.bits() / 8;
                let walk = |axis: usize| Walk {
                    len: from.dims[axis],
                    from: (from.strides[axis] * width) as isize,
                    to: (to.strides[axis] * width) as isize,
                };
                match from.strides == to.strides || to.packed.is_some() {
                    true => Some(None),
                    false if from.dtype.is_sub_byte() => None,
                    false => {
                        Copy::plan(isa, width, &(0..from.rank()).map(walk).collect::<Vec<_>>()).map(Some)
                    }
                }
            };
            let inputs = problem.inputs.iter().zip(&laid.inputs).map(|(from, to)| turn(from, to));
            let outputs = problem.outputs.iter().zip(&laid.outputs).map(|(to, from)| turn(from, to));
            let (turns_in, turns_out) = (inputs.collect::<Option<_>>()?, outputs.collect::<Option<_>>()?);
            let plain = problem.inputs.clone();
            Some(Plainly { isa, family, candidate, problem: laid, plain, work, turns_in, turns_out })
        })
    }

    /// Expected nanoseconds.
    pub(crate) fn predicted_ns(&self) -> f64 {
        let mut plain = self.problem.clone();
        plain.inputs.clone_from(&self.plain);
        price(&plain, &self.candidate)
    }

    fn packed(&self, input: usize, from: *const u8) -> Result<Vec<Line>, KernelError> {
        let operand = &self.plain[input];
        let n_bytes = operand.span_bytes();
        let mut bytes = memory::zeroed(n_bytes)
            .map_err(|error| KernelError::new(KernelErrorKind::OutOfMemory, error.to_string()))?;
        // SAFETY: the caller of `run` grants what the operand spans.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n_bytes) };
        let weight = Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(bytes))
            .map_err(|error| KernelError::new(KernelErrorKind::Failed, error.to_string()))?;
        let used = WeightUse::new(&self.problem, &self.candidate.tactic, input);
        let packed = self.family.pack(self.isa, used, &weight)?.bytes;
        let mut to = lines(packed.len())?;
        // SAFETY: there are as many bytes.
        unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr(), to.as_mut_ptr().cast(), packed.len()) };
        Ok(to)
    }

    /// Runs it.
    ///
    /// # Safety
    /// The pointers must be valid for what the plain operands span, and nobody else may write them meanwhile.
    pub(crate) unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        team: &Team,
    ) -> Result<(), KernelError> {
        let mut held = Vec::new();
        let mut from = inputs.to_vec();
        for (idx, at) in from.iter_mut().enumerate() {
            if self.candidate.packed[idx].is_some() {
                held.push(self.packed(idx, *at)?);
            } else if let Some(turn) = &self.turns_in[idx] {
                let mut to = lines(self.problem.inputs[idx].span_bytes())?;
                // SAFETY: the buffer spans the operand as the kernel has it.
                unsafe { turned(turn, *at, to.as_mut_ptr().cast(), team) };
                held.push(to);
            } else {
                continue;
            }
            *at = held.last().map_or(*at, |lines| lines.as_ptr().cast());
        }
        let mut made = Vec::new();
        let mut to = outputs.to_vec();
        for (idx, at) in to.iter_mut().enumerate().filter(|(idx, _)| self.turns_out[*idx].is_some()) {
            made.push((idx, lines(self.problem.outputs[idx].span_bytes())?));
            *at = made.last_mut().map_or(*at, |(_, lines)| lines.as_mut_ptr().cast());
        }
        let mut workspace = lines(self.work.workspace_bytes(team.n_slots()))?;
        let shared = Shared::new(&from, &to, workspace.as_mut_ptr().cast());
        // SAFETY: the operands are the caller's or the buffers above, the workspace is as large as asked for.
        unsafe { self.work.run(shared, team)? };
        for (idx, lines) in &made {
            if let Some(turn) = &self.turns_out[*idx] {
                // SAFETY: the caller grants the output.
                unsafe { turned(turn, lines.as_ptr().cast(), outputs[*idx], team) };
            }
        }
        Ok(())
    }
}

/// # Safety
/// Both must span what the copy walks over.
unsafe fn turned(copy: &Copy, from: *const u8, to: *mut u8, team: &Team) {
    let ends = Shared::new(&[], &[], to);
    let start = from as usize;
    team.for_each(copy.n_tasks(), &|task| {
        let shared = &ends;
        // SAFETY: the caller grants both sides; tasks write apart.
        unsafe { copy.run(task.idx, std::ptr::with_exposed_provenance(start), shared.workspace) }
    });
}
