//! The family of TopK along lines that fit a block's shared memory.

use planish_gpu::kernel_args;
use planish_gpu::lines::Lines;
use planish_gpu::operands::{candidate, is_float, refuse, storage};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Divisor, blocks, divisors, int, ints, strides_along};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use crate::family::Family;
use crate::gpu::Gpu;

#[cfg(test)]
mod tests;

const REVISION: u32 = 1;

/// Elements of the longest line: 32 KiB of keys with their places.
const MAX_LINE: usize = 4096;

kernel_args! {
    /// What topk.cu is given.
    struct TopKArgs {
        len: i32,
        /// How many are taken.
        k: i32,
        /// Strides along a line.
        x_step: i32,
        value_step: i32,
        place_step: i32,
        /// The lines' axes, innermost first, and their strides.
        axes: Vec<Divisor>,
        x_strides: Vec<i32>,
        value_strides: Vec<i32>,
        place_strides: Vec<i32>,
    }
}

/// TopK of floats and of i32.
pub(crate) struct TopKFamily;

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let ([node], [x, ..], [values, places]) =
        (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..])
    else {
        return refuse("one TopK with both outputs");
    };
    let Op::TopK(op) = &node.op else { return refuse("no TopK") };
    let axis =
        normalize_axis(op.axis, x.rank()).map_err(|error| KernelError::unsupported(error.to_string()))?;
    // The output has as many as are asked for, wherever the number comes from.
    let Some(&k) = values.dims.get(axis) else { return refuse("an output without the axis") };
    let mut expected = x.dims.clone();
    expected[axis] = k;
    let output = |output| Ref::Node { node: 0, output };
    let fits = node.inputs.first() == Some(&Some(Ref::Input(0)))
        && problem.region.outputs == [output(0), output(1)]
        && k <= x.dims[axis]
        && x.dims[axis] <= MAX_LINE
        && values.dims == expected
        && places.dims == expected
        && values.dtype == x.dtype
        && places.dtype == DType::I64
        && (is_float(x.dtype) || x.dtype == DType::I32);
    if !fits {
        return refuse("not a TopK of short lines of numbers");
    }
    if values.is_empty() {
        return Ok(Plan::default());
    }
    let lines = Lines::of(&[x, values, places], axis);
    let axes = &lines.axes;
    let [x_step, value_step, place_step] = ints([lines.steps[0], lines.steps[1], lines.steps[2]])?;
    let numbers = TopKArgs {
        len: int(lines.len)?,
        k: int(k)?,
        x_step,
        value_step,
        place_step,
        axes: divisors(axes),
        x_strides: strides_along(axes, 0)?,
        value_strides: strides_along(axes, 1)?,
        place_strides: strides_along(axes, 2)?,
    };
    let source = KernelCode::new("topk.cu", include_str!("../../kernels/topk.cu"), "topk", &numbers)
        .define("T", storage(x)?)
        .define("LARGEST", u8::from(op.largest))
        .define("SIZE", x.dims[axis].next_power_of_two().max(2))
        .define("N_OUT", axes.len());
    let args = vec![
        Arg::Address(Slot::Input(0), 0),
        Arg::Address(Slot::Output(0), 0),
        Arg::Address(Slot::Output(1), 0),
        Arg::of(&numbers),
    ];
    Ok(Plan::one(source, [blocks(lines.n, 1)?, 1, 1], 256, args))
}

impl Family for TopKFamily {
    fn name(&self) -> &'static str {
        "topk"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let inputs = vec![Want::inside(Layout::Plain); problem.inputs.len()];
        let outputs = vec![Want::inside(Layout::Plain); problem.outputs.len()];
        if plan(&problem.with_layouts(&inputs, &outputs)).is_err() {
            return Vec::new();
        }
        // A sorted line of a thousand takes some fifty steps of a block.
        let ns =
            gpu.roofline_ns(problem.inputs[0].len() as f64 * 200.0, 1e13, problem.traffic_bytes() as f64);
        vec![candidate("topk_block".to_string(), REVISION, inputs, outputs, ns)]
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
