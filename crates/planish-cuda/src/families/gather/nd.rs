//! Lookups of slices by tuples: GatherND.

use planish_gpu::indices::Index;
use planish_gpu::kernel_args;
use planish_gpu::operands::{moved_type, refuse, size_of_element};
use planish_gpu::plan::{Arg, KernelCode, Plan, Slot};
use planish_gpu::space::{Divisor, blocks, int};
use planish_kernel::{KernelError, Layout, Problem, Ref};
use planish_op::Op;

kernel_args! {
    /// What gather_nd.cu is given.
    struct GatherNdArgs {
        n_vectors: i32,
        /// Of a slice in vectors, and of the tuples of a batch.
        slice: Divisor,
        batch_tuples: Divisor,
        batch_elements: i32,
        /// Of the axes of a tuple.
        sizes: Vec<i32>,
        strides: Vec<i32>,
    }
}

/// Whether this is the problem's operator.
pub(super) fn is_nd(problem: &Problem) -> bool {
    matches!(&problem.region.nodes[..], [node] if matches!(node.op, Op::GatherND(_)))
}

pub(super) fn plan(problem: &Problem) -> Result<Plan, KernelError> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else {
        return refuse("one lookup of slices");
    };
    let (Op::GatherND(op), &[Some(Ref::Input(0)), index]) = (&node.op, &node.inputs[..]) else {
        return refuse("a lookup of slices by tuples");
    };
    let data = &problem.inputs[0];
    let index = Index::of(problem, index)?;
    let is_dense = data.packed.is_none() && data.is_dense(Layout::Plain) && y.is_dense(Layout::Plain);
    if !is_dense || data.dtype != y.dtype || data.dtype.is_sub_byte() {
        return refuse("dense values of one type");
    }
    let n_batch = usize::try_from(op.batch_dims).unwrap_or(usize::MAX);
    let Some((&depth, tuples)) = index.dims.split_last() else { return refuse("an index without tuples") };
    let fits = n_batch <= tuples.len()
        && depth > 0
        && n_batch.checked_add(depth).is_some_and(|axes| axes <= data.rank())
        && tuples[..n_batch] == data.dims[..n_batch]
        && y.dims == [tuples, &data.dims[n_batch + depth..]].concat();
    if !fits {
        return refuse("an output of other sizes than data and index make");
    }
    if y.is_empty() {
        return Ok(Plan::default());
    }
    if data.is_empty() {
        return refuse("a lookup in nothing");
    }
    let run: usize = data.dims[n_batch + depth..].iter().product();
    let size = size_of_element(data.dtype);
    let mut lanes = 16 / size;
    while !run.is_multiple_of(lanes) {
        lanes /= 2;
    }
    let n_vectors = y.len() / lanes;
    let per_batch: usize = tuples[n_batch..].iter().product();
    let tuple = n_batch..n_batch + depth;
    let each = |values: &[usize]| values.iter().map(|value| int(*value)).collect::<Result<Vec<i32>, _>>();
    let numbers = GatherNdArgs {
        n_vectors: int(n_vectors)?,
        slice: Divisor::of(run / lanes),
        batch_tuples: Divisor::of(per_batch),
        batch_elements: int(data.dims[n_batch..].iter().product())?,
        sizes: each(&data.dims[tuple.clone()])?,
        strides: each(&data.strides[tuple])?,
    };
    let code =
        KernelCode::new("gather_nd.cu", include_str!("../../../kernels/gather_nd.cu"), "gather_nd", &numbers)
            .define("T", moved_type(size)?)
            .define("V", lanes)
            .define("N", depth);
    let args = vec![
        Arg::Address(Slot::Input(0), 0),
        index.arg.clone(),
        Arg::Address(Slot::Output(0), 0),
        Arg::Address(Slot::Fault, 0),
        Arg::of(&numbers),
    ];
    Ok(Plan::one(index.told(code)?, [blocks(n_vectors, 256)?, 1, 1], 256, args))
}
