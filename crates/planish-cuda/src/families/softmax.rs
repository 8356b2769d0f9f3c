//! The family of softmax and its logarithm, along any axis.

use planish_gpu::lines::Lines;
use planish_gpu::operands::{candidate, is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{blocks, int};
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic, Want, layouts_for};
use planish_op::Op;
use planish_tensor::normalize_axis;

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

/// Threads of a block; a line is shared by all of them or by a warp.
const THREADS: usize = 256;
/// The most elements that a thread holds.
const MAX_HELD: usize = 32;

/// Softmax and LogSoftmax.
pub(crate) struct SoftmaxFamily;

/// The axis, and whether the logarithm is wanted.
fn wanted(problem: &Problem) -> Result<(usize, bool), KernelError> {
    let ([node], [x], [y]) = (&*problem.region.nodes, &*problem.inputs, &*problem.outputs) else {
        return refuse("one softmax");
    };
    let (axis, log) = match &node.op {
        Op::Softmax(op) => (op.axis, false),
        Op::LogSoftmax(op) => (op.axis, true),
        _ => return refuse("no softmax"),
    };
    let fits = is_float(x.dtype) && is_float(y.dtype) && x.dims == y.dims;
    match normalize_axis(axis, x.rank()) {
        Ok(axis) if fits => Ok((axis, log)),
        _ => refuse("a softmax of floats"),
    }
}

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let (axis, log) = wanted(problem)?;
    let (x, y) = (&problem.inputs[0], &problem.outputs[0]);
    if x.is_empty() {
        return Ok(Plan::default());
    }
    let mut lines = Lines::of(&[x, y], axis);
    if lines.len == 1 {
        lines.steps = vec![1, 1];
    }
    let (len, axes) = (lines.len, &lines.axes);
    let along = lines.steps == [1, 1];
    let aligned = |lanes: usize| axes.iter().flat_map(|axis| &axis.strides).all(|s| s % lanes as isize == 0);
    let size = x.dtype.bits().min(y.dtype.bits()) / 8;
    let mut lanes = if along { 16 / size } else { 1 };
    while lanes > 1 && (!aligned(lanes) || len < lanes) {
        lanes /= 2;
    }
    // A warp for lines that fit its registers, unless there are too few of them to fill the GPU.
    let sharers = if len <= 32 * MAX_HELD / 2 { 32 } else { THREADS };
    let held = len.div_ceil(sharers * lanes).next_power_of_two() * lanes;
    let held = if along && held <= MAX_HELD { held } else { 0 };
    let numbers = lines.args()?;
    int(x.span_bytes().max(y.span_bytes()) / 2)?;
    let text = include_str!("../../kernels/softmax.cu");
    let source = KernelCode::new("softmax.cu", text, "softmax", &numbers)
        .define("T", storage(x)?)
        .define("U", storage(y)?)
        .define("IS_LOG", u8::from(log))
        .define("ALONG", u8::from(along))
        .define("THREADS", sharers)
        .define("HELD", held)
        .define("V", lanes)
        .define("N_OUT", axes.len());
    let per_block = if along { THREADS / sharers } else { THREADS };
    let args = vec![Arg::Address(Slot::Input(0), 0), Arg::Address(Slot::Output(0), 0), Arg::of(&numbers)];
    Ok(Plan::one(source, [blocks(lines.n, per_block)?, 1, 1], THREADS as u32, args))
}

impl Family for SoftmaxFamily {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        if wanted(problem).is_err() {
            return Vec::new();
        }
        let ns =
            gpu.roofline_ns(problem.outputs[0].len() as f64 * 20.0, 1e13, problem.traffic_bytes() as f64);
        let offer = |layout: planish_kernel::Layout| {
            let wants = vec![Want::inside(layout)];
            plan(&problem.with_layouts(&wants, &wants)).ok()?;
            let made = candidate(format!("softmax_{}", layout.name()), REVISION, wants.clone(), wants, ns);
            let in_place = Family::in_place(self, problem, &made.tactic);
            Some(Candidate { in_place, ..made })
        };
        layouts_for(&problem.outputs).filter_map(offer).collect()
    }

    /// A line is read whole before it is written.
    fn in_place(&self, problem: &Problem, _tactic: &Tactic) -> Vec<(usize, usize)> {
        let ([x], [y]) = (&problem.inputs[..], &problem.outputs[..]) else { return Vec::new() };
        if x.dtype == y.dtype && !x.constant { vec![(0, 0)] } else { Vec::new() }
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
