//! Movement as the backend sees it: candidates and prepared work.

use planish_kernel::movement::{Source, layouts, lower, wants};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};

use super::pick::{self, PickArguments, Picks};
use super::{Moves, start};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Nanoseconds that looking up one slice takes.
const LOOKUP_NS: f64 = 3.0;

/// Operators that are strided copies.
#[derive(Debug)]
pub(crate) struct MoveFamily;

/// Operators that look slices up.
#[derive(Debug)]
pub(crate) struct PickFamily;

fn candidate(tactic: &str, inputs: Vec<Want>, outputs: Vec<Want>, ns: f64) -> Candidate {
    Candidate::new(Tactic::new(tactic, 1), inputs, outputs, ns)
}

impl Family for MoveFamily {
    fn name(&self) -> &'static str {
        "move"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for pair in layouts(problem) {
            let (inputs, outputs) = wants(problem, pair);
            let planned = lower(&problem.with_layouts(&inputs, &outputs))
                .ok()
                .and_then(|moves| Moves::plan(isa, moves));
            let Some(moves) = planned else { continue };
            candidates.push(candidate("move_copies", inputs, outputs, moves.predicted_ns(problem.threads)));
        }
        candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        candidates
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let moves = Moves::plan(isa, lower(problem)?)
            .ok_or_else(|| KernelError::unsupported("a copy of more dimensions than kernels hold"))?;
        Ok(Box::new(moves))
    }
}

impl Work for Moves {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        // SAFETY: the caller grants what the operands span.
        unsafe { Moves::run(self, inputs, outputs, team) };
        Ok(())
    }
}

impl Family for PickFamily {
    fn name(&self) -> &'static str {
        "pick"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let wants = |n: usize| vec![Want::inside(Layout::Plain); n];
        let (wanted, outputs) = (wants(problem.inputs.len()), wants(problem.outputs.len()));
        let laid = problem.with_layouts(&wanted, &outputs);
        let Ok((picks, inputs)) = pick::of_problem(isa, &laid) else { return Vec::new() };
        let lookups = LOOKUP_NS * picks.n_slices() as f64 / problem.threads.max(1) as f64;
        let ns = lookups + expected_ns(isa, 0.0, 2.0 * picks.bytes() as f64, problem.threads);
        let mut candidate = candidate("pick_slices", wanted, outputs, ns);
        if let Source::Input(index) = inputs.index {
            candidate.inputs[index].inside = false;
        }
        vec![candidate]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let (picks, inputs) = pick::of_problem(isa, problem)?;
        Ok(Box::new(PickWork { picks, inputs }))
    }
}

#[derive(Debug)]
struct PickWork {
    picks: Picks,
    inputs: pick::PickInputs,
}

impl Work for PickWork {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, .. } = shared;
        let arguments = PickArguments {
            data: start(&self.inputs.data, inputs),
            index: start(&self.inputs.index, inputs),
            updates: self.inputs.updates.as_ref().map_or(std::ptr::null(), |updates| start(updates, inputs)),
            y: outputs[0],
        };
        // SAFETY: the caller grants what the operands span.
        unsafe { self.picks.run(&arguments, team) }
    }
}
