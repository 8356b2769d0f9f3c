//! Pooling as the backend sees it: candidates and prepared work.

use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_op::window::{PlacedAxis, WindowAttributes};
use planish_tensor::DType;

use super::{Fold, Pool, PoolArguments};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::price::expected_ns;
use crate::spatial::Windows;
use crate::team::Team;

/// Nanoseconds of folding one element along a row of the plain layout; measured by the example `movement`.
const COLUMN_FOLD_NS: f64 = 1.0;

/// Pools over windows or over whole images, of f32.
#[derive(Debug)]
pub(crate) struct PoolFamily;

/// The pool that a problem asks for, with these operands.
fn plan(isa: Isa, problem: &Problem, x: &Operand, y: &Operand) -> Option<Pool> {
    let [node] = &problem.region.nodes[..] else { return None };
    let fits = node.inputs == [Some(Ref::Input(0))]
        && problem.region.outputs == [Ref::Node { node: 0, output: 0 }]
        && (3..=5).contains(&x.rank())
        && x.rank() == y.rank()
        && x.dims[..2] == y.dims[..2]
        && [x, y].iter().all(|operand| operand.dtype == DType::F32);
    if !fits {
        return None;
    }
    let windowed = |attributes: &WindowAttributes<'_>| {
        let axes = attributes.axes(&attributes.kernel()).ok()?;
        let placed = axes.iter().zip(&x.dims[2..]).map(|(axis, size)| axis.place(*size).ok());
        placed.collect::<Option<Vec<_>>>().filter(|placed| placed.len() == x.rank() - 2)
    };
    let whole = || {
        let axis = |&size: &usize| PlacedAxis {
            input: size,
            output: 1,
            kernel: size,
            stride: 1,
            dilation: 1,
            pad_begin: 0,
            pad_end: 0,
        };
        Some(x.dims[2..].iter().map(axis).collect())
    };
    let (axes, fold) = match &node.op {
        Op::MaxPool(op) => (windowed(&op.window())?, Fold::Max),
        Op::AveragePool(op) => (windowed(&op.window())?, Fold::Average { include_pad: op.count_include_pad }),
        Op::GlobalMaxPool(_) => (whole()?, Fold::Max),
        Op::GlobalAveragePool(_) => (whole()?, Fold::Average { include_pad: false }),
        _ => return None,
    };
    Pool::plan(isa, Windows::new(&axes, x, y)?, fold)
}

impl Family for PoolFamily {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let ([x], [y]) = (&problem.inputs[..], &problem.outputs[..]) else { return Vec::new() };
        let candidate = |layout: Layout| {
            let laid = |operand: &Operand| Operand::dense(operand.dtype, &operand.dims, layout);
            let plan = plan(isa, problem, &laid(x), &laid(y))?;
            let bytes = (x.span_bytes() + y.span_bytes()) as f64;
            let mut ns = expected_ns(isa, plan.n_reads() as f64, bytes, problem.threads);
            if layout == Layout::Plain {
                // Along rows windows are folded one by one.
                ns += COLUMN_FOLD_NS * plan.n_column_folds() as f64 / problem.threads.max(1) as f64;
            }
            Some(Candidate {
                tactic: Tactic::new(format!("pool_f32_{isa}"), 1),
                inputs: vec![Want::inside(layout)],
                outputs: vec![Want::inside(layout)],
                packed: vec![None],
                predicted_ns: ns,
                in_place: Vec::new(),
                slow: false,
            })
        };
        [Layout::ChannelsLast, Layout::Plain].into_iter().filter_map(candidate).collect()
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        let planned = match (&problem.inputs[..], &problem.outputs[..]) {
            ([x], [y]) => plan(isa, problem, x, y),
            _ => None,
        };
        match planned {
            Some(plan) => Ok(Box::new(plan)),
            None => Err(KernelError::unsupported("not a pool of f32 images with one output")),
        }
    }
}

impl Work for Pool {
    fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.workspace_len() * size_of::<f32>()
    }

    unsafe fn run(
        &self,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        workspace: *mut u8,
        team: &Team,
    ) -> Result<(), KernelError> {
        let arguments =
            PoolArguments { x: inputs[0].cast(), y: outputs[0].cast(), workspace: workspace.cast() };
        // SAFETY: the caller grants what the operands span and the workspace that was asked for.
        unsafe { Pool::run(self, &arguments, team) };
        Ok(())
    }
}
