//! Slices at places that an index tensor names: Gather, GatherElements, GatherND, and the writing forms
//! ScatterElements and ScatterND.
//!
//! Every index (or tuple of indices) names a slice of the data, which is copied from or to its own place in
//! the other operand. Indices are checked before anything is written, and each again where it is used: whatever
//! happened to the index tensor in between, nothing outside of the data is touched. Slices to be written are
//! written in the order of the indices, on one thread: of equal indices the last wins, as ONNX says.

mod of_op;

use planish_kernel::{KernelError, KernelErrorKind};

use super::blocks::copy_run;
use super::copy::Copy;
use crate::team::Team;

pub use of_op::{PickInputs, of_problem};

/// The most dimensions of an index tensor.
const MAX_TUPLE_DIMS: usize = 12;

/// Bytes that a task moves at least.
const TASK_BYTES: usize = 1 << 16;

/// Bytes that looking up a slice is worth: short slices are bound by it.
const LOOKUP_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IndexType {
    I32,
    I64,
}

/// A dimension of the index tensor, and the bytes from one of its places to the next on either side.
#[derive(Clone, Copy, Debug)]
struct TupleDim {
    len: usize,
    from: usize,
    to: usize,
}

/// An axis of the data whose place an index says.
#[derive(Clone, Copy, Debug)]
struct Indexed {
    dim: usize,
    stride: usize,
}

/// A planned lookup.
#[derive(Clone, Debug)]
pub struct Picks {
    index_type: IndexType,
    tuple_dims: Vec<TupleDim>,
    n_tuples: usize,
    indexed: Vec<Indexed>,
    /// Whether indices say where to write instead of where to read.
    writes: bool,
    slice: Slice,
    /// The data as a whole, copied first where only slices of it are written.
    before: Option<Copy>,
    tuples_per_task: usize,
}

#[derive(Clone, Debug)]
enum Slice {
    /// This many contiguous bytes.
    Run(usize),
    Copy(Copy),
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct PickArguments {
    pub data: *const u8,
    pub index: *const u8,
    /// What is written at the indices; not read by the reading forms.
    pub updates: *const u8,
    pub y: *mut u8,
}

// SAFETY: the inputs are only read, and no two tasks write the same bytes.
unsafe impl Sync for PickArguments {}

impl Picks {
    fn slice_bytes(&self) -> usize {
        match &self.slice {
            Slice::Run(bytes) => *bytes,
            Slice::Copy(copy) => copy.bytes(),
        }
    }

    /// Bytes that a run writes.
    pub fn bytes(&self) -> usize {
        self.n_tuples * self.slice_bytes() + self.before.as_ref().map_or(0, Copy::bytes)
    }

    /// How many slices there are.
    pub fn n_slices(&self) -> usize {
        self.n_tuples
    }

    /// Index number `idx`.
    ///
    /// # Safety
    /// The index tensor must be readable.
    #[inline(always)]
    unsafe fn index(&self, index: *const u8, idx: usize) -> i64 {
        // SAFETY: the caller says so.
        unsafe {
            match self.index_type {
                IndexType::I32 => index.cast::<i32>().add(idx).read_unaligned().into(),
                IndexType::I64 => index.cast::<i64>().add(idx).read_unaligned(),
            }
        }
    }

    /// Makes the output.
    ///
    /// # Safety
    /// The pointers must be valid for what the planned operands span, the index tensor dense, and nothing else
    /// may write them meanwhile.
    pub unsafe fn run(&self, arguments: &PickArguments, team: &Team) -> Result<(), KernelError> {
        let depth = self.indexed.len();
        for idx in 0..self.n_tuples * depth {
            // SAFETY: there are `depth` indices for each tuple.
            let (index, dim) = (unsafe { self.index(arguments.index, idx) }, self.indexed[idx % depth].dim);
            if index >= dim as i64 || index < -(dim as i64) {
                return Err(KernelError::new(
                    KernelErrorKind::BadValues,
                    format!("index {index} is outside an axis of size {dim}"),
                ));
            }
        }
        if let Some(before) = &self.before {
            team.for_each(before.n_tasks(), &|task| {
                let PickArguments { data, y, .. } = *{ arguments };
                // SAFETY: the caller grants data and output.
                unsafe { before.run(task.idx, data, y) }
            });
        }
        team.for_each(self.n_tuples.div_ceil(self.tuples_per_task), &|task| {
            let first = task.idx * self.tuples_per_task;
            // SAFETY: the caller grants the operands, and `some` looks at each index that it uses.
            unsafe { self.some(arguments, first, (first + self.tuples_per_task).min(self.n_tuples)) }
        });
        Ok(())
    }

    /// The slices of tuples `first..last`.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn some(&self, arguments: &PickArguments, first: usize, last: usize) {
        let source = if self.writes { arguments.updates } else { arguments.data };
        let dims = &self.tuple_dims[..];
        let mut at = [0usize; MAX_TUPLE_DIMS];
        let mut rest = first;
        let (mut from, mut to) = (0usize, 0usize);
        for (place, dim) in at.iter_mut().zip(dims).take(dims.len()).rev() {
            *place = rest % dim.len;
            rest /= dim.len;
            from += dim.from * *place;
            to += dim.to * *place;
        }
        for tuple in first..last {
            let mut named = 0;
            let mut is_inside = true;
            for (idx, axis) in self.indexed.iter().enumerate() {
                // SAFETY: the index tensor has it.
                let index = unsafe { self.index(arguments.index, tuple * self.indexed.len() + idx) };
                let place = if index < 0 { index.wrapping_add(axis.dim as i64) } else { index };
                // As unsigned, one below zero is beyond any size.
                is_inside &= (place as usize) < axis.dim;
                named += if is_inside { place as usize * axis.stride } else { 0 };
            }
            assert!(is_inside, "an index changed while it was used");
            let (from_named, to_named) = if self.writes { (0, named) } else { (named, 0) };
            let from_at = source.wrapping_add(from + from_named);
            let to_at = arguments.y.wrapping_add(to + to_named);
            // SAFETY: both slices lie within their operands.
            unsafe {
                match &self.slice {
                    Slice::Run(bytes) => copy_run(from_at, to_at, *bytes),
                    Slice::Copy(copy) => (0..copy.n_tasks()).for_each(|task| copy.run(task, from_at, to_at)),
                }
            }
            for (place, dim) in at.iter_mut().zip(dims).take(dims.len()).rev() {
                *place += 1;
                from += dim.from;
                to += dim.to;
                if *place < dim.len {
                    break;
                }
                from -= dim.from * dim.len;
                to -= dim.to * dim.len;
                *place = 0;
            }
        }
    }
}
