//! The family of softmax.

use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use super::Softmax;
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::pointwise::cost::OPERATIONS_PER_NS;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when the kernel changes.
const REVISION: u32 = 1;

/// Nanoseconds of an element on vectors of sixteen.
const ELEMENT_NS: f64 = 0.5;

/// Softmax and LogSoftmax of one f32 input.
pub(crate) struct SoftmaxFamily;

/// The axis, and whether the logarithm is wanted.
fn wanted(problem: &Problem) -> Option<(usize, bool)> {
    let ([node], [x], [y]) = (&*problem.region.nodes, &*problem.inputs, &*problem.outputs) else {
        return None;
    };
    let (axis, log) = match &node.op {
        Op::Softmax(op) => (op.axis, false),
        Op::LogSoftmax(op) => (op.axis, true),
        _ => return None,
    };
    let fits = x.dtype == DType::F32 && y.dtype == DType::F32 && x.dims == y.dims;
    Some((normalize_axis(axis, x.rank()).ok()?, log)).filter(|_| fits)
}

impl Family for SoftmaxFamily {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        if wanted(problem).is_none() {
            return Vec::new();
        }
        let operations = problem.outputs[0].len() as f64 * ELEMENT_NS * OPERATIONS_PER_NS;
        let bytes = problem.traffic_bytes() as f64;
        let predicted_ns = expected_ns(isa, operations, bytes, problem.threads);
        layouts_for(&problem.outputs)
            .map(|layout| Candidate {
                in_place: self.in_place(isa, problem),
                ..Candidate::new(
                    Tactic::new(format!("softmax_{}_{isa}", layout.name()), REVISION),
                    vec![Want::inside(layout)],
                    vec![Want::inside(layout)],
                    predicted_ns,
                )
            })
            .collect()
    }

    /// A row is read before it is written.
    fn in_place(&self, _isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        wanted(problem).map_or(Vec::new(), |_| vec![(0, 0)])
    }

    fn prepare(&self, isa: Isa, problem: &Problem, tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let Some((axis, log)) = wanted(problem) else {
            return Err(KernelError::unsupported(format!("{tactic} computes one f32 softmax")));
        };
        let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
        Ok(Box::new(Softmax::new(isa, &x.dims, &x.strides, &y.strides, axis, log)))
    }
}

impl Work for Softmax {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * Softmax::workspace_bytes(self)
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let (n_tasks, per_slot) = (self.n_tasks(), Softmax::workspace_bytes(self));
        team.for_each(n_tasks, &|task| {
            let Shared { inputs, outputs, workspace } = { shared }.of_slot(task.slot, per_slot);
            // SAFETY: the caller grants the operands and a workspace per slot; tasks write apart.
            unsafe { self.run_task(task.idx, inputs[0].cast(), outputs[0].cast(), workspace.cast()) };
        });
        Ok(())
    }
}
