//! Movement as the backend sees it: candidates and prepared work.

use planish_kernel::movement::{Source, lower};
use planish_kernel::{Candidate, KernelError, Layout, Operand, Problem, Tactic, Want};
use planish_op::Op;

use super::pick::{self, PickArguments, Picks};
use super::{Moves, start};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::team::Team;

/// Nanoseconds that looking up one slice takes.
const LOOKUP_NS: f64 = 3.0;

/// Operators that are strided copies.
#[derive(Debug)]
pub(crate) struct Moving;

/// Operators that look slices up.
#[derive(Debug)]
pub(crate) struct Picking;

/// The same operand, dense in another layout.
fn in_layout(operand: &Operand, layout: Layout) -> Operand {
    Operand { strides: layout.strides(&operand.dims), ..operand.clone() }
}

fn with_layouts(problem: &Problem, inputs: Layout, outputs: Layout) -> Problem {
    Problem {
        inputs: problem.inputs.iter().map(|operand| in_layout(operand, inputs)).collect(),
        outputs: problem.outputs.iter().map(|operand| in_layout(operand, outputs)).collect(),
        ..problem.clone()
    }
}

fn candidate(tactic: &str, problem: &Problem, layouts: (Layout, Layout), ns: f64) -> Candidate {
    Candidate {
        tactic: Tactic::new(tactic, 1),
        inputs: vec![Want::inside(layouts.0); problem.inputs.len()],
        outputs: vec![Want::inside(layouts.1); problem.outputs.len()],
        packed: vec![None; problem.inputs.len()],
        predicted_ns: ns,
        in_place: Vec::new(),
        slow: false,
    }
}

impl Family for Moving {
    fn name(&self) -> &'static str {
        "move"
    }

    fn candidates(&self, isa: Isa, problem: &Problem) -> Vec<Candidate> {
        const BOTH: [Layout; 2] = [Layout::Plain, Layout::ChannelsLast];
        let mut candidates: Vec<Candidate> = Vec::new();
        let is_reorder = matches!(&problem.region.nodes[..], [node] if matches!(node.op, Op::Identity(_)));
        for (from, to) in BOTH.into_iter().flat_map(|from| BOTH.map(|to| (from, to))) {
            // Where both layouts are the same, one of them is enough, but for reorders: they are asked for by
            // their layouts, and other sizes may tell the layouts apart.
            let differs = |layout: Layout, operands: &[Operand]| {
                layout == Layout::Plain
                    || operands.iter().any(|operand| !layout.same_for(Layout::Plain, &operand.dims))
            };
            if !is_reorder && (!differs(from, &problem.inputs) || !differs(to, &problem.outputs)) {
                continue;
            }
            let laid = with_layouts(problem, from, to);
            let planned = lower(&laid).ok().and_then(|moves| Moves::plan(isa, moves));
            candidates.extend(planned.map(|moves| {
                candidate("move_copies", problem, (from, to), moves.predicted_ns(problem.threads))
            }));
        }
        // Regrouping needs gapless operands; everything else follows strides.
        let is_regrouped = problem.region.nodes.iter().any(|node| {
            matches!(node.op, Op::Reshape(_) | Op::Flatten(_) | Op::Squeeze(_) | Op::Unsqueeze(_))
        });
        if is_regrouped {
            for candidate in &mut candidates {
                candidate
                    .inputs
                    .iter_mut()
                    .chain(&mut candidate.outputs)
                    .for_each(|want| want.inside = false);
            }
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
    fn scratch_bytes(&self, _n_slots: usize) -> usize {
        0
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        _scratch: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        // SAFETY: the caller grants what the operands span.
        unsafe { Moves::run(self, inputs, outputs, team) };
        Ok(())
    }
}

impl Family for Picking {
    fn name(&self) -> &'static str {
        "pick"
    }

    fn candidates(&self, isa: Isa, problem: &Problem) -> Vec<Candidate> {
        let laid = with_layouts(problem, Layout::Plain, Layout::Plain);
        let Ok((picks, inputs)) = pick::of_problem(isa, &laid) else { return Vec::new() };
        let lookups = LOOKUP_NS * picks.n_slices() as f64 / problem.threads.max(1) as f64;
        let ns = lookups + expected_ns(isa, 0.0, 2.0 * picks.bytes() as f64, problem.threads);
        let mut candidate = candidate("pick_slices", problem, (Layout::Plain, Layout::Plain), ns);
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
    fn scratch_bytes(&self, _n_slots: usize) -> usize {
        0
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        _scratch: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
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
