//! The family of running sums along one axis.

use planish_gpu::lines::Lines;
use planish_gpu::operands::{candidate, is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::blocks;
use planish_kernel::{Budget, Candidate, KernelError, Problem, Ref, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_tensor::{DType, Tensor, normalize_axis};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

/// Nanoseconds from one element of a line to the next: a thread waits for memory at each.
const STEP_NS: f64 = 30.0;

/// CumSum along a constant axis.
pub(crate) struct ScanFamily;

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let ([node], [x], [y]) = (&*problem.region.nodes, &*problem.inputs, &*problem.outputs) else {
        return refuse("one running sum");
    };
    let Op::CumSum(op) = &node.op else { return refuse("no running sum") };
    let axis = problem.region.constant(node.inputs.get(1).copied().flatten()).map(Tensor::to_i64s);
    let (Some([axis]), Some(&Some(Ref::Input(0)))) = (axis.as_deref(), node.inputs.first()) else {
        return refuse("a running sum along one axis that is constant");
    };
    let axis =
        normalize_axis(*axis, x.rank()).map_err(|error| KernelError::unsupported(error.to_string()))?;
    let numbers = is_float(x.dtype) || matches!(x.dtype, DType::I32 | DType::I64);
    if !numbers || x.dtype != y.dtype || x.dims != y.dims {
        return refuse("a running sum of numbers");
    }
    if x.is_empty() {
        return Ok(Plan::default());
    }
    let lines = Lines::of(&[x, y], axis);
    let numbers = lines.args()?;
    let source = KernelCode::new("scan.cu", include_str!("../../kernels/scan.cu"), "scan", &numbers)
        .define("T", storage(x)?)
        .define("REVERSE", u8::from(op.reverse))
        .define("EXCLUSIVE", u8::from(op.exclusive))
        .define("N_OUT", lines.axes.len());
    let args = vec![Arg::Address(Slot::Input(0), 0), Arg::Address(Slot::Output(0), 0), Arg::of(&numbers)];
    Ok(Plan::one(source, [blocks(lines.n, 256)?, 1, 1], 256, args))
}

impl Family for ScanFamily {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let offer = |layout: planish_kernel::Layout| {
            let wants = vec![Want::inside(layout)];
            let plan = plan(&problem.with_layouts(&wants, &wants)).ok()?;
            let n_lines = plan.steps.first().map_or(1.0, |step| f64::from(step.grid[0]) * 256.0);
            let len = problem.outputs[0].len() as f64 / n_lines.max(1.0);
            let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64) + len * STEP_NS;
            Some(candidate(format!("scan_{}", layout.name()), REVISION, wants.clone(), wants, ns))
        };
        layouts_for(&problem.outputs).filter_map(offer).collect()
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
