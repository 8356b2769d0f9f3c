//! From operators to lookups.

use planish_kernel::movement::{Source, Walk};
use planish_kernel::{KernelError, Layout, Operand, Problem, Ref};
use planish_op::{Op, ScatterReduction};
use planish_tensor::DType;

use super::{IndexType, Indexed, LOOKUP_BYTES, MAX_TUPLE_DIMS, Picks, Slice, TASK_BYTES, TupleDim};
use crate::isa::Isa;
use crate::movement::copy::Copy;

/// What the lookup reads.
#[derive(Clone, Debug)]
pub struct PickInputs {
    pub data: Source,
    pub index: Source,
    pub updates: Option<Source>,
}

/// Sizes and steps, brought together per operator. Steps are in elements until the plan is made.
struct Form {
    /// Length, and steps in the data, the other operand.
    tuple_dims: Vec<(usize, usize, usize)>,
    indexed: Vec<(usize, usize)>,
    /// Length, and steps in the data, the other operand.
    slice: Vec<(usize, usize, usize)>,
    writes: bool,
}

/// The lookup of a problem that is one of these operators.
pub fn of_problem(isa: Isa, problem: &Problem) -> Result<(Picks, PickInputs), KernelError> {
    let unfit = || KernelError::unsupported("no operator that looks slices up in inputs of whole bytes");
    let ([node], [output], [y]) =
        (&problem.region.nodes[..], &problem.region.outputs[..], &problem.outputs[..])
    else {
        return Err(unfit());
    };
    let read = |idx: usize| match node.inputs.get(idx).copied().flatten() {
        Some(Ref::Input(input)) => {
            Some((Source::Input(input as usize), problem.inputs.get(input as usize)?.clone()))
        }
        Some(reference @ Ref::Constant(_)) => {
            let tensor = problem.region.constant(Some(reference))?;
            let operand = Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain);
            Some((Source::Constant(tensor.bytes().clone()), operand))
        }
        _ => None,
    };
    let ((data, x), (index, indices)) = (read(0).ok_or_else(unfit)?, read(1).ok_or_else(unfit)?);
    let (x, indices) = (&x, &indices);
    let index_type = match indices.dtype {
        DType::I32 => IndexType::I32,
        DType::I64 => IndexType::I64,
        _ => return Err(unfit()),
    };
    let fits = *output == Ref::Node { node: 0, output: 0 }
        && x.dtype == y.dtype
        && !x.dtype.is_sub_byte()
        && indices.is_dense(Layout::Plain);
    if !fits {
        return Err(unfit());
    }
    let updates = if matches!(node.op, Op::ScatterElements(_) | Op::ScatterND(_)) { read(2) } else { None };
    let other = updates.as_ref().map_or(y, |(_, operand)| operand);
    let form = match &node.op {
        Op::Gather(op) => gather(x, indices, y, op.axis),
        Op::GatherElements(op) => elements(x, indices, y, op.axis, false),
        Op::GatherND(op) => usize::try_from(op.batch_dims).ok().and_then(|n| slices(x, indices, y, n, false)),
        Op::ScatterElements(op) if op.reduction == ScatterReduction::None => {
            written(x, y, other).and_then(|_| elements(y, indices, other, op.axis, true))
        }
        Op::ScatterND(op) if op.reduction == ScatterReduction::None => {
            written(x, y, other).and_then(|_| slices(y, indices, other, 0, true))
        }
        _ => None,
    };
    let form = form.ok_or_else(unfit)?;
    if form.writes != updates.is_some() {
        return Err(unfit());
    }
    let picks = plan(isa, x, y, index_type, &form).ok_or_else(unfit)?;
    Ok((picks, PickInputs { data, index, updates: updates.map(|(source, _)| source) }))
}

fn plan(isa: Isa, x: &Operand, y: &Operand, index_type: IndexType, form: &Form) -> Option<Picks> {
    let width = x.dtype.bits() / 8;
    // The data is what indices lead to: the source of reading forms, the destination of writing ones.
    let sides = |(data, other): (usize, usize)| match form.writes {
        false => (data * width, other * width),
        true => (other * width, data * width),
    };
    let walk = |&(len, data, other): &(usize, usize, usize)| {
        let (from, to) = sides((data, other));
        Walk { len, from: from as isize, to: to as isize }
    };
    let tuple = |&(len, data, other): &(usize, usize, usize)| {
        let (from, to) = sides((data, other));
        TupleDim { len, from, to }
    };
    let slice = Copy::plan(isa, width, &form.slice.iter().map(walk).collect::<Vec<_>>())?;
    // Dense on both sides: one run, for which even a planned copy would be too much.
    let mut run = 1;
    let is_run = form.slice.iter().rev().all(|&(len, data, other)| {
        let follows = len == 1 || (data == run && other == run);
        run *= len;
        follows
    });
    let n_tuples: usize = form.tuple_dims.iter().map(|dim| dim.0).product();
    let bytes = slice.bytes();
    let slice = if is_run { Slice::Run(bytes) } else { Slice::Copy(slice) };
    let before = match form.writes {
        false => None,
        true => {
            let dims = y.dims.iter().zip(&x.strides).zip(&y.strides);
            let walk = |((len, from), to): ((&usize, &usize), &usize)| Walk {
                len: *len,
                from: (from * width) as isize,
                to: (to * width) as isize,
            };
            Some(Copy::plan(isa, width, &dims.map(walk).collect::<Vec<_>>())?)
        }
    };
    let tuples_per_task = match form.writes {
        true => n_tuples.max(1),
        false => crate::spatial::units_per_task(n_tuples, bytes + LOOKUP_BYTES, TASK_BYTES),
    };
    (form.tuple_dims.len() <= MAX_TUPLE_DIMS).then_some(Picks {
        index_type,
        tuple_dims: form.tuple_dims.iter().map(tuple).collect(),
        n_tuples: if bytes == 0 { 0 } else { n_tuples },
        indexed: form.indexed.iter().map(|&(dim, stride)| Indexed { dim, stride: stride * width }).collect(),
        writes: form.writes,
        slice,
        before,
        tuples_per_task,
    })
}

fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(counted).ok().filter(|axis| *axis < rank)
}

/// Dimensions of `a` and `b` side by side, which must be as long as `dims`.
fn together(dims: &[usize], a: &[usize], b: &[usize]) -> Vec<(usize, usize, usize)> {
    dims.iter().zip(a).zip(b).map(|((len, a), b)| (*len, *a, *b)).collect()
}

fn gather(x: &Operand, indices: &Operand, y: &Operand, axis: i64) -> Option<Form> {
    let axis = axis_of(axis, x.rank())?;
    let after = axis + indices.rank();
    let expected = [&x.dims[..axis], &indices.dims, &x.dims[axis + 1..]].concat();
    if y.dims != expected {
        return None;
    }
    let tuple_dims = indices.dims.iter().zip(&y.strides[axis..]).map(|(len, to)| (*len, 0, *to)).collect();
    let mut slice = together(&x.dims[..axis], &x.strides[..axis], &y.strides[..axis]);
    slice.extend(together(&x.dims[axis + 1..], &x.strides[axis + 1..], &y.strides[after..]));
    Some(Form { tuple_dims, indexed: vec![(x.dims[axis], x.strides[axis])], slice, writes: false })
}

/// Single elements, whose other coordinates are those of their index.
fn elements(data: &Operand, indices: &Operand, other: &Operand, axis: i64, writes: bool) -> Option<Form> {
    let axis = axis_of(axis, data.rank())?;
    let inside = indices.rank() == data.rank()
        && other.dims == indices.dims
        && (0..data.rank()).all(|at| at == axis || indices.dims[at] <= data.dims[at]);
    if !inside {
        return None;
    }
    let mut tuple_dims = together(&indices.dims, &data.strides, &other.strides);
    tuple_dims[axis].1 = 0;
    let indexed = vec![(data.dims[axis], data.strides[axis])];
    Some(Form { tuple_dims, indexed, slice: Vec::new(), writes })
}

/// Slices named by tuples, the first `n_batch` axes of data and indices being the same.
fn slices(data: &Operand, indices: &Operand, other: &Operand, n_batch: usize, writes: bool) -> Option<Form> {
    let (&depth, tuples) = indices.dims.split_last()?;
    let fits = n_batch <= tuples.len()
        && n_batch < data.rank()
        && depth <= data.rank() - n_batch
        && tuples[..n_batch] == data.dims[..n_batch];
    if !fits || other.dims != [tuples, &data.dims[n_batch + depth..]].concat() {
        return None;
    }
    let tuple_dims = (0..tuples.len())
        .map(|at| (tuples[at], if at < n_batch { data.strides[at] } else { 0 }, other.strides[at]))
        .collect();
    let axes = n_batch..n_batch + depth;
    let indexed = data.dims[axes.clone()].iter().copied().zip(data.strides[axes].iter().copied()).collect();
    let after = n_batch + depth;
    let slice = together(&data.dims[after..], &data.strides[after..], &other.strides[tuples.len()..]);
    Some(Form { tuple_dims, indexed, slice, writes })
}

/// What the writing forms ask of their operands.
fn written(x: &Operand, y: &Operand, updates: &Operand) -> Option<()> {
    (x.dims == y.dims && updates.dtype == x.dtype).then_some(())
}
