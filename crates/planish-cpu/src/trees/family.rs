//! Ensembles of trees as the backend sees them: candidates and prepared work.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_op::trees::Forest;
use planish_tensor::DType;

use super::{Feature, Table, Trees, TreesArguments};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::shared::Shared;
use crate::team::Team;

/// Nanoseconds for one step of a walk beside others.
const STEP_NS: f64 = 1.2;

/// TreeEnsemble of f32 and f64.
#[derive(Debug)]
pub(crate) struct TreesFamily;

/// The element type and the forest, if the problem is an ensemble that is computed here.
fn forest(problem: &Problem) -> Option<(DType, Forest)> {
    let ([node], [rows], [results]) = (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..])
    else {
        return None;
    };
    let Op::TreeEnsemble(op) = &node.op else { return None };
    let forest = Forest::of(op).ok()?;
    let fits = node.inputs == [Some(Ref::Input(0))]
        && problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
        && matches!(rows.dtype, DType::F32 | DType::F64)
        && [results.dtype, op.nodes_splits.dtype(), op.leaf_weights.dtype()] == [rows.dtype; 3]
        && rows.rank() == 2
        && rows.dims[1] >= forest.n_features
        && results.dims == [rows.dims[0], forest.n_targets];
    fits.then_some((rows.dtype, forest))
}

fn plan<T: Feature>(problem: &Problem, forest: Forest) -> Trees<T> {
    let (rows, results) = (&problem.inputs[0], &problem.outputs[0]);
    Trees {
        table: Table::of(&forest, rows.strides[1]),
        forest,
        n_rows: rows.dims[0],
        row: rows.strides[0],
        feature: rows.strides[1],
        result_row: results.strides[0],
        target: results.strides[1],
    }
}

impl Family for TreesFamily {
    fn name(&self) -> &'static str {
        "trees"
    }

    fn candidates(&self, _isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Some((_, forest)) = forest(problem) else { return Vec::new() };
        let plan = plan::<f32>(problem, forest);
        vec![Candidate::new(
            Tactic::new("trees_walk", 2),
            vec![Want::inside(Layout::Plain)],
            vec![Want::inside(Layout::Plain)],
            STEP_NS * (plan.n_rows * plan.steps_per_row()) as f64,
        )]
    }

    fn prepare(&self, _isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        match forest(problem) {
            Some((DType::F64, forest)) => Ok(Box::new(plan::<f64>(problem, forest))),
            Some((_, forest)) => Ok(Box::new(plan::<f32>(problem, forest))),
            None => Err(KernelError::unsupported("not an ensemble of trees over f32 or f64")),
        }
    }
}

impl<T: Feature> Work for Trees<T> {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<f64>()
    }

    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let Shared { inputs, outputs, workspace } = shared;
        let arguments = TreesArguments {
            rows: inputs[0].cast::<T>(),
            results: outputs[0].cast::<T>(),
            workspace: workspace.cast(),
        };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Trees::run(self, &arguments, team) };
        Ok(())
    }
}
