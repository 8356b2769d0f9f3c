//! The family of lookups: Gather (embeddings) and GatherElements along one axis, GatherND by tuples.

use planish_gpu::kernel_args;
use planish_gpu::operands::{candidate, moved_type, refuse, size_of_element};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{self, Divisor, blocks, divisors, int, strides_along};
use planish_kernel::{Budget, Candidate, KernelError, Layout, Operand, Problem, Ref, Tactic, Want};
use planish_op::Op;
use planish_tensor::{DType, normalize_axis};

use crate::family::Family;
use crate::gpu::Gpu;

mod nd;
#[cfg(test)]
mod tests;

const REVISION: u32 = 2;

kernel_args! {
    /// What gather.cu is given.
    struct GatherArgs {
        /// Elements of the output, in vectors.
        n_vectors: i32,
        /// The size of the innermost axis.
        inner: i32,
        /// Of the data's indexed axis.
        axis_size: i32,
        axis_stride: i32,
        /// The output's axes, innermost first (of vectors there), and their strides.
        axes: Vec<Divisor>,
        data_strides: Vec<i32>,
        index_strides: Vec<i32>,
        y_strides: Vec<i32>,
    }
}

/// Gather and GatherElements with an index that only a run can tell, GatherND with any.
pub(crate) struct GatherFamily;

fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    if nd::is_nd(problem) {
        return nd::plan(problem);
    }
    let ([node], [data, index], [y]) = (&problem.region.nodes[..], &problem.inputs[..], &problem.outputs[..])
    else {
        return refuse("one lookup of data by an index");
    };
    let fits = node.inputs == [Some(Ref::Input(0)), Some(Ref::Input(1))]
        && data.dtype == y.dtype
        && !data.dtype.is_sub_byte()
        && data.packed.is_none()
        && matches!(index.dtype, DType::I32 | DType::I64);
    let (axis, each) = match &node.op {
        Op::Gather(op) if fits => (op.axis, false),
        Op::GatherElements(op) if fits => (op.axis, true),
        _ => return refuse("no lookup along an axis"),
    };
    let axis =
        normalize_axis(axis, data.rank()).map_err(|error| KernelError::unsupported(error.to_string()))?;
    let signed = |operand: &Operand, axis: usize| operand.strides[axis] as isize;
    // Strides of the data and of the index for every axis of the output.
    let (mut from, mut which): (Vec<isize>, Vec<isize>) = (Vec::new(), Vec::new());
    if each {
        if index.dims != y.dims || index.rank() != data.rank() {
            return refuse("an index of other sizes than the output");
        }
        for idx in 0..y.rank() {
            from.push(if idx == axis { 0 } else { signed(data, idx) });
            which.push(signed(index, idx));
        }
    } else {
        if y.dims != [&data.dims[..axis], &index.dims, &data.dims[axis + 1..]].concat() {
            return refuse("an output of other sizes than data and index make");
        }
        for idx in 0..axis {
            from.push(signed(data, idx));
            which.push(0);
        }
        for idx in 0..index.rank() {
            from.push(0);
            which.push(signed(index, idx));
        }
        for idx in axis + 1..data.rank() {
            from.push(signed(data, idx));
            which.push(0);
        }
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    if data.dims[axis] == 0 {
        return refuse("a lookup in nothing");
    }
    let to: Vec<isize> = y.strides.iter().map(|stride| *stride as isize).collect();
    let mut axes = space::joined(&y.dims, &[&from, &which, &to], 2);
    if axes.is_empty() {
        axes.push(space::Axis { dim: 1, strides: vec![1, 0, 1] });
    }
    let (inner, outer) = axes.split_last().ok_or_else(|| KernelError::unsupported("no axes"))?;
    let size = size_of_element(data.dtype);
    let aligned = |lanes: usize| {
        let lanes = lanes as isize;
        inner.dim as isize >= lanes
            && data.strides[axis] as isize % lanes == 0
            && outer.iter().all(|axis| axis.strides[0] % lanes == 0 && axis.strides[2] % lanes == 0)
    };
    let mut lanes = if inner.strides == [1, 0, 1] { 16 / size } else { 1 };
    while lanes > 1 && !aligned(lanes) {
        lanes /= 2;
    }
    let n_vectors = inner.dim.div_ceil(lanes) * outer.iter().map(|axis| axis.dim).product::<usize>();
    let mut dividing = divisors(&axes);
    dividing[0] = Divisor::of(inner.dim.div_ceil(lanes));
    let numbers = GatherArgs {
        n_vectors: int(n_vectors)?,
        inner: int(inner.dim)?,
        axis_size: int(data.dims[axis])?,
        axis_stride: int(data.strides[axis])?,
        axes: dividing,
        data_strides: strides_along(&axes, 0)?,
        index_strides: strides_along(&axes, 1)?,
        y_strides: strides_along(&axes, 2)?,
    };
    let source = KernelCode::new("gather.cu", include_str!("../../kernels/gather.cu"), "gather", &numbers)
        .define("T", moved_type(size)?)
        .define("I_T", if index.dtype == DType::I32 { "i32" } else { "i64" })
        .define("V", lanes)
        .define("N_AXES", axes.len());
    let args = vec![
        Arg::Address(Slot::Input(0), 0),
        Arg::Address(Slot::Input(1), 0),
        Arg::Address(Slot::Output(0), 0),
        Arg::Address(Slot::Fault, 0),
        Arg::of(&numbers),
    ];
    Ok(Plan::one(source, [blocks(n_vectors, 256)?, 1, 1], 256, args))
}

impl Family for GatherFamily {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn candidates(&self, gpu: &Gpu, problem: &Problem, _budget: &Budget) -> Vec<Candidate> {
        let is_nd = nd::is_nd(problem);
        let want = if is_nd { Want::dense(Layout::Plain) } else { Want::inside(Layout::Plain) };
        let inputs = vec![want; problem.inputs.len()];
        let outputs = vec![want; problem.outputs.len()];
        if plan(&problem.with_layouts(&inputs, &outputs)).is_err() {
            return Vec::new();
        }
        let bytes = 2.0 * problem.outputs[0].span_bytes() as f64;
        let ns = gpu.roofline_ns(0.0, 1.0, bytes);
        let name = if is_nd { "gather_nd" } else { "gather_plain" };
        vec![candidate(name.to_string(), REVISION, inputs, outputs, ns)]
    }

    fn plan(&self, _gpu: &Gpu, problem: &Problem, _tactic: &Tactic) -> Result<Plan, KernelError> {
        plan(problem)
    }
}
