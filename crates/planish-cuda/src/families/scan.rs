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

/// Nanoseconds from one element of a line to the next, or from 32 of them to the next where a warp has the line: the
/// thread or the warp waits for memory at each.
const STEP_NS: f64 = 30.0;
const THREADS: usize = 256;

/// CumSum along a constant axis.
pub(crate) struct ScanFamily;

/// Who sums a line up.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Thread,
    Warp,
}

impl Form {
    const ALL: [Form; 2] = [Form::Thread, Form::Warp];

    fn name(self) -> &'static str {
        match self {
            Form::Thread => "scan",
            Form::Warp => "scan_warp",
        }
    }

    fn of(tactic: &Tactic) -> Form {
        if tactic.name.starts_with("scan_warp") { Form::Warp } else { Form::Thread }
    }

    fn threads_per_line(self) -> usize {
        match self {
            Form::Thread => 1,
            Form::Warp => 32,
        }
    }
}

fn plan(problem: &Problem, form: Form) -> Result<Plan, KernelError> {
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
    let (file, text) = match form {
        Form::Thread => ("scan.cu", include_str!("../../kernels/scan.cu")),
        Form::Warp => ("scan_warp.cu", include_str!("../../kernels/scan_warp.cu")),
    };
    let source = KernelCode::new(file, text, form.name(), &numbers)
        .define("T", storage(x)?)
        .define("REVERSE", u8::from(op.reverse))
        .define("EXCLUSIVE", u8::from(op.exclusive))
        .define("N_OUT", lines.axes.len());
    let args = vec![Arg::Address(Slot::Input(0), 0), Arg::Address(Slot::Output(0), 0), Arg::of(&numbers)];
    let lines_per_block = THREADS / form.threads_per_line();
    Ok(Plan::one(source, [blocks(lines.n, lines_per_block)?, 1, 1], THREADS as u32, args))
}

impl Family for ScanFamily {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let offer = |layout: planish_kernel::Layout, form: Form| {
            let wants = vec![Want::inside(layout)];
            let plan = plan(&problem.with_layouts(&wants, &wants), form).ok()?;
            let lines_per_block = (THREADS / form.threads_per_line()) as f64;
            let n_lines = plan.steps.first().map_or(1.0, |step| f64::from(step.grid[0]) * lines_per_block);
            let len = problem.outputs[0].len() as f64 / n_lines.max(1.0);
            let steps = (len / form.threads_per_line() as f64).ceil();
            let ns = gpu.roofline_ns(0.0, 1.0, problem.traffic_bytes() as f64) + steps * STEP_NS;
            let name = format!("{}_{}", form.name(), layout.name());
            Some(candidate(name, REVISION, wants.clone(), wants, ns))
        };
        let both = |layout| Form::ALL.into_iter().filter_map(move |form| offer(layout, form));
        layouts_for(&problem.outputs).flat_map(both).collect()
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem, Form::of(tactic))
    }
}
