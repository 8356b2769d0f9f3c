//! The family of movement: transposes, reorders between layouts, concatenations, slices, pads and whatever else
//! is a few strided copies. Only the width of elements matters; every copy is a launch.

#[cfg(test)]
mod tests;

use planish_gpu::map::{Body, Laid, Map, Place};
use planish_gpu::operands::{candidate, moved_type, refuse};
use planish_gpu::plan::{Plan, Slot};
use planish_kernel::movement::{Move, Source, layouts, lower, wants};
use planish_kernel::{Budget, Candidate, KernelError, Operand, Problem, Tactic};

use crate::family::Family;
use crate::gpu::Gpu;

const REVISION: u32 = 1;

/// More copies than this are slower than going through the host.
const MAX_COPIES: usize = 64;

/// Operators that only move data.
pub(crate) struct MoveFamily;

impl Family for MoveFamily {
    fn name(&self) -> &'static str {
        "move"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let mut list: Vec<Candidate> = Vec::new();
        for (from, to) in layouts(problem) {
            let (inputs, outputs) = wants(problem, (from, to));
            let Ok(plan) = plan(&problem.with_layouts(&inputs, &outputs)) else { continue };
            let bytes = 2.0 * problem.outputs.iter().map(Operand::span_bytes).sum::<usize>() as f64;
            // A copy that goes against the grain of one side is slower by some.
            let slower = if from == to { 1.0 } else { 1.5 };
            let launches = plan.steps.len().saturating_sub(1) as f64;
            let ns = gpu.roofline_ns(0.0, 1.0, bytes * slower) + launches * gpu.roofline_ns(0.0, 1.0, 0.0);
            list.push(candidate("move_copies".to_string(), REVISION, inputs, outputs, ns));
        }
        list.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
        list
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    if problem.inputs.iter().any(|input| input.packed.is_some()) {
        return refuse("a packed weight is not moved");
    }
    let moves = lower(problem)?;
    if moves.len() > MAX_COPIES {
        return refuse(format!("{} copies", moves.len()));
    }
    moves.into_iter().try_fold(Plan::default(), |plan, part| Ok(plan.then(map(part)?.plan()?)))
}

/// One copy as a map.
fn map(part: Move) -> Result<Map, KernelError> {
    let Move { source, output, width, from, to, walks } = part;
    let storage = moved_type(width)?;
    let size = width as isize;
    let place = match source {
        Source::Input(idx) => Place::Operand(Slot::Input(idx), from / width),
        Source::Constant(bytes) => Place::Constant(bytes.get(from..).unwrap_or_default().to_vec()),
    };
    // Strides of one place may be beyond all bounds.
    let stride = |len: usize, step: isize| if len <= 1 { 0 } else { step / size };
    let input = Laid {
        place,
        storage,
        size: width,
        strides: walks.iter().map(|walk| stride(walk.len, walk.from)).collect(),
    };
    let output = Laid {
        place: Place::Operand(Slot::Output(output), to / width),
        storage,
        size: width,
        strides: walks.iter().map(|walk| stride(walk.len, walk.to)).collect(),
    };
    Ok(Map {
        dims: walks.iter().map(|walk| walk.len).collect(),
        inputs: vec![input],
        outputs: vec![output],
        body: Body::Copy,
    })
}
