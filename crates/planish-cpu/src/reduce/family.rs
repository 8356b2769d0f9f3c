//! The family of reductions.

use planish_kernel::{
    Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want, layouts_for,
};
use planish_op::{Op, Reduction};
use planish_tensor::{DType, normalize_axis};

use super::{ArgExtreme, Reduce, Reduced, RunningSum};
use crate::family::{Family, Work};
use crate::isa::Isa;
use crate::lines::LineKernel;
use crate::price::expected_ns;
use crate::shared::Shared;
use crate::team::Team;

/// Raised when a kernel changes.
const REVISION: u32 = 3;

/// Reductions, searches for extremes and running sums of one f32 input.
pub(crate) struct ReduceFamily;

/// One of them with its places settled.
#[derive(Debug)]
enum Plan {
    Reduce(Reduce),
    Arg(ArgExtreme),
    Scan(RunningSum),
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, KernelError> {
    Err(KernelError::unsupported(reason))
}

/// The `Reduce*` operators and their like: what they make, whether no axes mean none, whether axes stay.
fn reduction_of(op: &Op) -> Option<(Reduced, bool, bool)> {
    let pooled = |by: Reduction| Some((Reduced { by, least_count: 1.0 }, false, true));
    match op {
        Op::GlobalAveragePool(_) => pooled(Reduction::Mean),
        Op::GlobalMaxPool(_) => pooled(Reduction::Max),
        _ => op
            .as_reduce()
            .map(|op| (Reduced { by: op.by, least_count: 0.0 }, op.noop_with_empty_axes, op.keepdims)),
    }
}

/// The strides of the output for every axis of the input: 0 where an axis is gone. `None` where the output does not
/// have the sizes of the axes that stay.
fn strides_for(x: &Operand, output: &Operand, is_reduced: &[bool], keepdims: bool) -> Option<Vec<usize>> {
    let mut own = output.dims.iter().copied().zip(output.strides.iter().copied());
    let strides: Vec<usize> = is_reduced
        .iter()
        .zip(&x.dims)
        .map(|(reduced, size)| match (*reduced, keepdims) {
            (true, false) => Some(0),
            (true, true) => own.next().filter(|(kept, _)| *kept == 1).map(|_| 0),
            (false, _) => own.next().filter(|(kept, _)| kept == size).map(|(_, stride)| stride),
        })
        .collect::<Option<_>>()?;
    own.next().is_none().then_some(strides)
}

impl Plan {
    fn new(isa: Isa, problem: &Problem) -> Result<Plan, KernelError> {
        let ([node], [output]) = (&*problem.region.nodes, &*problem.outputs) else {
            return refuse("one reduction with one output");
        };
        if problem.region.outputs != [Ref::Node { node: 0, output: 0 }] {
            return refuse("an output that the reduction does not make");
        }
        let x = match (node.inputs.first(), &*problem.inputs) {
            (Some(Some(Ref::Input(0))), [x]) if x.dtype == DType::F32 && x.packed.is_none() => x,
            _ => return refuse("one f32 input, with axes that are constants"),
        };
        let rank = x.rank();
        let constant = |idx: usize| match node.inputs.get(idx).copied().flatten() {
            None => Ok(Vec::new()),
            reference => match problem.region.constant(reference) {
                Some(tensor) => Ok(tensor.to_i64s()),
                None => refuse("axes that are not constants"),
            },
        };
        let axis_of = |axis: i64| {
            normalize_axis(axis, rank).map_err(|error| KernelError::unsupported(error.to_string()))
        };
        let arg = match &node.op {
            Op::ArgMax(op) => Some((op.axis, op.keepdims, false, op.select_last_index)),
            Op::ArgMin(op) => Some((op.axis, op.keepdims, true, op.select_last_index)),
            _ => None,
        };
        if let Some((axis, keepdims, smallest, last)) = arg {
            let axis = axis_of(axis)?;
            let is_reduced: Vec<bool> = (0..rank).map(|idx| idx == axis).collect();
            let Some(to) = strides_for(x, output, &is_reduced, keepdims) else {
                return refuse("an output of other sizes");
            };
            if output.dtype != DType::I64 || x.dims[axis] == 0 {
                return refuse("a search of nothing");
            }
            return Ok(Plan::Arg(ArgExtreme::new(isa, (&x.dims, &x.strides, &to), axis, smallest, last)));
        }
        if output.dtype != DType::F32 {
            return refuse("the output is not f32");
        }
        if let Op::CumSum(op) = &node.op {
            let [axis] = constant(1)?[..] else {
                return refuse("a running sum along one axis");
            };
            if output.dims != x.dims {
                return refuse("an output of other sizes");
            }
            let places = (&x.dims[..], &x.strides[..], &output.strides[..]);
            let axis = axis_of(axis)?;
            return Ok(Plan::Scan(RunningSum::new(isa, places, axis, op.reverse, op.exclusive)));
        }
        let Some((reduction, noop, keepdims)) = reduction_of(&node.op) else {
            return refuse(format!("{} is not a reduction", node.op.name()));
        };
        let is_reduced: Vec<bool> = match &node.op {
            Op::GlobalAveragePool(_) | Op::GlobalMaxPool(_) => (0..rank).map(|axis| axis >= 2).collect(),
            _ => {
                let axes = constant(1)?;
                let mut mask = vec![axes.is_empty() && !noop; rank];
                // A scalar is taken as one element along axis 0.
                for axis in axes.into_iter().filter(|_| rank > 0) {
                    mask[axis_of(axis)?] = true;
                }
                mask
            }
        };
        let Some(to) = strides_for(x, output, &is_reduced, keepdims) else {
            return refuse("an output of other sizes");
        };
        Ok(Plan::Reduce(Reduce::new(isa, reduction, &x.dims, &x.strides, &to, &is_reduced)))
    }
}

impl Family for ReduceFamily {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn candidates(&self, isa: Isa, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let Ok(plan) = Plan::new(isa, problem) else {
            return Vec::new();
        };
        let x = &problem.inputs[0];
        let operations = match plan {
            Plan::Reduce(_) => 4.0,
            Plan::Arg(_) => 3.0,
            Plan::Scan(_) => 40.0,
        };
        let bytes = problem.traffic_bytes() as f64;
        let predicted_ns = expected_ns(isa, operations * x.len() as f64, bytes, problem.threads);
        layouts_for(&problem.inputs)
            .map(|layout| Candidate {
                in_place: self.in_place(isa, problem),
                ..Candidate::new(
                    Tactic::new(format!("reduce_{}_{isa}", layout.name()), REVISION),
                    vec![Want::inside(layout)],
                    vec![Want::inside(match problem.outputs[0].rank() == x.rank() {
                        true => layout,
                        false => Layout::Plain,
                    })],
                    predicted_ns,
                )
            })
            .collect()
    }

    /// A running sum reads each element before it writes there.
    fn in_place(&self, isa: Isa, problem: &Problem) -> Vec<(usize, usize)> {
        match Plan::new(isa, problem) {
            Ok(Plan::Scan(_)) => vec![(0, 0)],
            _ => Vec::new(),
        }
    }

    fn prepare(&self, isa: Isa, problem: &Problem, _tactic: &Tactic) -> Result<Box<dyn Work>, KernelError> {
        Ok(Box::new(Plan::new(isa, problem)?))
    }
}

impl Work for Plan {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_tasks = match self {
            Plan::Reduce(plan) => plan.n_tasks(),
            Plan::Arg(plan) => plan.n_tasks(),
            Plan::Scan(plan) => plan.n_tasks(),
        };
        team.for_each(n_tasks, &|task| {
            let shared = &shared;
            let (from, to) = (shared.inputs[0].cast::<f32>(), shared.outputs[0]);
            // SAFETY: the caller grants the operands; tasks write apart.
            unsafe {
                match self {
                    Plan::Reduce(plan) => plan.run_task(task.idx, from, to.cast()),
                    Plan::Arg(plan) => plan.run_task(task.idx, from, to.cast()),
                    Plan::Scan(plan) => plan.run_task(task.idx, from, to.cast()),
                }
            }
        });
        Ok(())
    }
}
