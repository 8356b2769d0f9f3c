//! The family of pointwise programs.

use planish_kernel::pointwise::{Kind, Program};
use planish_kernel::{Budget, Candidate, KernelError, Operand, Problem, Tactic, Want, layouts_for};

use super::Pointwise;
use super::cost::{OPERATIONS_PER_NS, cost_per_element};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the loops change.
const REVISION: u32 = 2;

/// Regions whose nodes are all pointwise.
pub(crate) struct PointwiseFamily;

impl Family for PointwiseFamily {
    fn name(&self) -> &'static str {
        "pointwise"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok(program) = Program::of_problem(problem) else {
            return Vec::new();
        };
        if !outputs_fit(problem, &program) {
            return Vec::new();
        }
        let n_elements: usize = program.dims.iter().product();
        let operations = n_elements as f64 * cost_per_element(&program) * OPERATIONS_PER_NS;
        let bytes = problem.traffic_bytes() as f64;
        let predicted_ns = expected_ns(isa, operations, bytes, problem.threads);
        layouts_for(&problem.outputs)
            .map(|layout| Candidate {
                in_place: in_place(problem, &program),
                ..Candidate::new(
                    Tactic::new(format!("pointwise_{}_{isa}", layout.name()), REVISION),
                    problem
                        .inputs
                        .iter()
                        .map(|input| Want::following(input, program.dims.len(), layout))
                        .collect(),
                    vec![Want::inside(layout); problem.outputs.len()],
                    predicted_ns,
                )
            })
            .collect()
    }

    fn in_place(&self, _isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        Program::of_problem(problem).map_or(Vec::new(), |program| in_place(problem, &program))
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let program = Program::of_problem(problem)?;
        if !outputs_fit(problem, &program) {
            return Err(KernelError::unsupported("outputs of other types or sizes than the program makes"));
        }
        Ok(Box::new(Pointwise::new(isa, problem, &program)?))
    }
}

fn outputs_fit(problem: &Problem, program: &Program) -> bool {
    problem.outputs.len() == program.outputs.len()
        && problem.outputs.iter().zip(&program.outputs).all(|(output, reg)| {
            output.dims == program.dims && Kind::of(output.dtype) == Some(program.kinds[reg.0 as usize])
        })
}

/// A single output may lie upon an input of its own type and sizes: the last step writes it.
fn in_place(problem: &Problem, program: &Program) -> Vec<(usize, usize)> {
    let [output] = &*problem.outputs else {
        return Vec::new();
    };
    let fits = |input: &Operand| !input.constant && input.dtype == output.dtype && input.dims == program.dims;
    problem.inputs.iter().enumerate().filter(|(_, input)| fits(input)).map(|(idx, _)| (0, idx)).collect()
}

impl Work for Pointwise {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * Pointwise::workspace_bytes(self)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let per_slot = Pointwise::workspace_bytes(self);
        team.for_each(self.n_tasks(), &|task| {
            let Shared { inputs, outputs, workspace } = { shared }.of_slot(task.slot, per_slot);
            // SAFETY: the caller grants the operands and a workspace per slot; tasks write apart.
            unsafe { self.run_task(task.idx, inputs, outputs, workspace) };
        });
        Ok(())
    }
}
