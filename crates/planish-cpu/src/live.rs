//! Layers whose weights a run brings: the kernel for known weights, which are packed anew in each run.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Tactic, Want};
use planish_op::Op;

use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::plainly::Plainly;
use crate::shared::Shared;
use crate::team::Team;

/// Convolutions and recurrent layers with weights that are computed or given.
pub(crate) struct LiveFamily;

fn plan(isa: Isa, problem: &Problem) -> Option<Plainly> {
    let [node] = &problem.region.nodes[..] else { return None };
    let is_layer =
        matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_) | Op::LSTM(_) | Op::GRU(_) | Op::RNN(_));
    let is_plain =
        |operand: &planish_kernel::Operand| operand.packed.is_none() && operand.is_dense(Layout::Plain);
    if !is_layer || !problem.inputs.iter().chain(&problem.outputs).all(is_plain) {
        return None;
    }
    let mut known = problem.clone();
    let is_weight = |place: usize| {
        node.inputs
            .iter()
            .enumerate()
            .any(|(at, from)| (at == 1 || at == 2) && *from == Some(planish_kernel::Ref::Input(place as u32)))
    };
    let mut is_live = false;
    for (place, operand) in known.inputs.iter_mut().enumerate() {
        is_live |= is_weight(place) && !operand.constant;
        operand.constant |= is_weight(place);
    }
    if is_live { Plainly::new(isa, &known) } else { None }
}

impl Family for LiveFamily {
    fn name(&self) -> &'static str {
        "live"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let candidate = |plan: Plainly| {
            Candidate::new(
                Tactic::new(format!("live_{isa}"), 1),
                vec![Want::dense(Layout::Plain); problem.inputs.len()],
                vec![Want::dense(Layout::Plain); problem.outputs.len()],
                plan.predicted_ns(),
            )
        };
        plan(isa, problem).map(candidate).into_iter().collect()
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match plan(isa, problem) {
            Some(plan) => Ok(Box::new(plan)),
            None => {
                Err(KernelError::unsupported(format!("{tactic}: not a layer whose weights a run brings")))
            }
        }
    }
}

impl Work for Plainly {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        // SAFETY: the caller grants what the operands span.
        unsafe { Plainly::run(self, shared.inputs, shared.outputs, team) }
    }
}
