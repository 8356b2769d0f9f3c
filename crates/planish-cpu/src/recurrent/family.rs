//! The family of recurrent layers: LSTM and GRU with their usual functions.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::{Op, RecurrentDirection};
use planish_tensor::DType;

use super::{Cell, ROWS, Recurrent, Thin, transposed};
use crate::family::{Family, Work};
use crate::gemm::GemmPlan;
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the kernel changes.
const REVISION: u32 = 1;

/// LSTM and GRU without peepholes, clipping, lengths or other functions than sigmoid and tanh.
pub(crate) struct RecurrentFamily;

/// Whether the functions named are the usual ones: sigmoid for gates, tanh for the rest.
fn are_usual(names: &[String], usual: &[&str]) -> bool {
    names.iter().zip(usual.iter().cycle()).all(|(name, usual)| name.eq_ignore_ascii_case(usual))
}

fn plan(isa: Isa, problem: &Problem) -> Option<Recurrent> {
    let [node] = &problem.region.nodes[..] else { return None };
    let (cell, direction, is_plain) = match &node.op {
        Op::LSTM(op) => {
            let plain = op.clip.is_none()
                && !op.input_forget
                && op.layout == 0
                && are_usual(&op.activations, &["Sigmoid", "Tanh", "Tanh"]);
            (Cell::Lstm, op.direction, plain)
        }
        Op::GRU(op) => {
            let plain =
                op.clip.is_none() && op.layout == 0 && are_usual(&op.activations, &["Sigmoid", "Tanh"]);
            (Cell::Gru { linear_before_reset: op.linear_before_reset }, op.direction, plain)
        }
        _ => return None,
    };
    // Lengths and peepholes.
    let absent = |place: usize| node.inputs.get(place).copied().flatten().is_none();
    if !is_plain || !absent(4) || !absent(7) {
        return None;
    }
    let input = |place: usize| match node.inputs.get(place).copied().flatten() {
        Some(Ref::Input(idx)) => Some(idx as usize),
        _ => None,
    };
    let given = |place: usize| (!absent(place)).then(|| input(place));
    let optional = |place: usize| match given(place) {
        None => Some(None),
        Some(found) => found.map(Some),
    };
    let (x, w, r) = (input(0)?, input(1)?, input(2)?);
    let (b, initial_h, initial_c) = (optional(3)?, optional(5)?, optional(6)?);
    let all = problem.inputs.iter().chain(&problem.outputs);
    if all.clone().any(|operand| operand.dtype != DType::F32 || !operand.is_dense(Layout::Plain)) {
        return None;
    }
    let backwards = match direction {
        RecurrentDirection::Forward => vec![false],
        RecurrentDirection::Reverse => vec![true],
        RecurrentDirection::Bidirectional => vec![false, true],
    };
    let &[seq, batch, size] = &problem.inputs[x].dims[..] else { return None };
    let &[dirs, width, hidden] = &problem.inputs[r].dims[..] else { return None };
    let dims =
        |idx: Option<usize>, wanted: &[usize]| idx.is_none_or(|idx| problem.inputs[idx].dims == wanted);
    let fits = dirs == backwards.len()
        && width == cell.n_gates() * hidden
        && problem.inputs[w].dims == [dirs, width, size]
        && dims(b, &[dirs, 2 * width])
        && dims(initial_h, &[dirs, batch, hidden])
        && dims(initial_c, &[dirs, batch, hidden]);
    if !fits {
        return None;
    }
    let place =
        |output: u32| problem.region.outputs.iter().position(|known| *known == Ref::Node { node: 0, output });
    let rest = batch % ROWS;
    Some(Recurrent {
        isa,
        cell,
        seq,
        batch,
        input: size,
        hidden,
        backwards,
        x,
        w,
        r,
        b,
        initial_h,
        initial_c,
        y: place(0),
        y_h: place(1),
        y_c: place(2),
        gates: GemmPlan::new(transposed(seq * batch, width, size, size, width), isa),
        full: Thin::new(isa, cell, ROWS, hidden),
        rest: Thin::new(isa, cell, rest, hidden),
    })
}

impl Family for RecurrentFamily {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some(plan) = plan(isa, problem) else { return Vec::new() };
        let width = plan.cell.n_gates() * plan.hidden;
        let n_rows = (plan.seq * plan.batch * plan.backwards.len()) as f64;
        let operations = n_rows * width as f64 * (2.0 * (plan.input + plan.hidden) as f64 + 20.0);
        let threads = problem.threads.min(plan.backwards.len() * plan.batch.div_ceil(ROWS));
        vec![Candidate::new(
            Tactic::new(format!("recurrent_f32_{isa}"), REVISION),
            vec![Want::dense(Layout::Plain); problem.inputs.len()],
            vec![Want::dense(Layout::Plain); problem.outputs.len()],
            expected_ns(isa, operations, problem.traffic_bytes() as f64, threads),
        )]
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let plan = plan(isa, problem);
        Ok(Box::new(plan.ok_or_else(|| KernelError::unsupported(format!("{tactic}: not this layer")))?))
    }
}

impl Work for Recurrent {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        Recurrent::workspace_bytes(self, n_slots)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        if self.batch == 0 || self.hidden == 0 {
            return Ok(());
        }
        if self.seq == 0 {
            // As the reference has it: no step, no state, not even the initial one.
            for place in [self.y_h, self.y_c].into_iter().flatten() {
                let n = self.backwards.len() * self.batch * self.hidden;
                // SAFETY: the last states have this many elements.
                unsafe { std::ptr::write_bytes(outputs[place].cast::<f32>(), 0, n) };
            }
            return Ok(());
        }
        // SAFETY: the caller grants what the operands span.
        unsafe { Recurrent::run(self, Shared { inputs, outputs, workspace }, team) };
        Ok(())
    }
}

/// Only dense operands have a meaning here; a helper for tests that lay them out.
#[cfg(test)]
pub(super) fn is_offered(problem: &Problem) -> bool {
    let dense = |operand: &planish_kernel::Operand| operand.is_dense(Layout::Plain);
    problem.inputs.iter().all(dense) && plan(Isa::best(), problem).is_some()
}
