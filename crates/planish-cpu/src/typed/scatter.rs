//! ScatterElements and ScatterND that add, multiply or choose: updates are folded in the order of their indices.
//!
//! Elements that differ in a coordinate beside the indexed one never meet, so tasks take columns, or lines, of their own; results
//! do not depend on threads.

use std::ops::Range;

use planish_kernel::{KernelError, KernelErrorKind, Layout, Problem};
use planish_op::{Op, ScatterReduction};
use planish_tensor::{DType, normalize_axis};

use super::args::Args;
use crate::family::Work;
use crate::shared::Shared;
use crate::spatial::units_per_task;
use crate::team::Team;

/// Updates of a task: some 20 µs.
const TASK_UPDATES: usize = 1 << 13;

/// Columns of a task, or a multiple: those of a cache line of 32-bit numbers.
const COLUMNS: usize = 16;

/// Numbers that updates are folded in.
trait Number: Copy {
    fn fold(by: ScatterReduction, old: Self, new: Self) -> Self;
}

macro_rules! numbers {
    ($($int:ty)*) => {
        $(impl Number for $int {
            #[inline(always)]
            fn fold(by: ScatterReduction, old: $int, new: $int) -> $int {
                match by {
                    ScatterReduction::None => new,
                    ScatterReduction::Add => old.wrapping_add(new),
                    ScatterReduction::Mul => old.wrapping_mul(new),
                    ScatterReduction::Max => old.max(new),
                    ScatterReduction::Min => old.min(new),
                }
            }
        })*
    };
}

macro_rules! floats {
    ($($float:ident)*) => {
        $(impl Number for $float {
            #[inline(always)]
            fn fold(by: ScatterReduction, old: $float, new: $float) -> $float {
                let nan = old.is_nan() || new.is_nan();
                match by {
                    ScatterReduction::None => new,
                    ScatterReduction::Add => old + new,
                    ScatterReduction::Mul => old * new,
                    ScatterReduction::Max => if nan { $float::NAN } else { old.max(new) },
                    ScatterReduction::Min => if nan { $float::NAN } else { old.min(new) },
                }
            }
        })*
    };
}

numbers! { i8 i16 i32 i64 u8 u16 u32 u64 }
floats! { f32 f64 }

/// What a row of updates is: all that share everything but the last coordinate.
#[derive(Debug)]
enum Form {
    /// ScatterElements: places differ by the index times `along`, and by the column where the axis is not the last.
    Elements { dims: Vec<usize>, strides: Vec<usize>, axis: usize, along: usize, limit: usize },
    /// ScatterND: tuples of indices with the size and stride of each, and runs of elements.
    Slices { indexed: Vec<(usize, usize)>, n_tuples: usize, run: usize },
}

/// A scatter with everything settled that its sizes settle. Operands are dense.
#[derive(Debug)]
pub(super) struct Scatter {
    args: Args,
    by: ScatterReduction,
    dtype: DType,
    wide_index: bool,
    n_indices: usize,
    n_data: usize,
    form: Form,
}

pub(super) fn plan(problem: &Problem, args: &Args) -> Option<Scatter> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let (data, indices, updates) = (args.operand(0)?, args.operand(1)?, args.operand(2)?);
    let by = match &node.op {
        Op::ScatterElements(op) => op.reduction,
        Op::ScatterND(op) => op.reduction,
        _ => return None,
    };
    let wide_index = match indices.dtype {
        DType::I64 => true,
        DType::I32 => false,
        _ => return None,
    };
    let is_number = data.dtype.is_whole_int() || matches!(data.dtype, DType::F32 | DType::F64);
    let fits = by != ScatterReduction::None
        && is_number
        && updates.dtype == data.dtype
        && y.dtype == data.dtype
        && y.dims == data.dims
        && y.is_dense(Layout::Plain)
        && args.are_dense();
    if !fits {
        return None;
    }
    let strides = Layout::Plain.strides(&data.dims);
    let form = match &node.op {
        Op::ScatterElements(op) => {
            let axis = normalize_axis(op.axis, data.rank()).ok()?;
            let inside = indices.rank() == data.rank()
                && updates.dims == indices.dims
                && (0..data.rank()).all(|at| at == axis || indices.dims[at] <= data.dims[at]);
            if !inside {
                return None;
            }
            let (along, limit) = (strides[axis], data.dims[axis]);
            Form::Elements { dims: indices.dims.clone(), strides, axis, along, limit }
        }
        _ => {
            let (&depth, tuples) = indices.dims.split_last()?;
            if depth > data.rank() || updates.dims != [tuples, &data.dims[depth..]].concat() {
                return None;
            }
            let indexed = data.dims[..depth].iter().copied().zip(strides).collect();
            let run = data.dims[depth..].iter().product();
            Form::Slices { indexed, n_tuples: tuples.iter().product(), run }
        }
    };
    let (n_indices, n_data) = (indices.len(), data.len());
    Some(Scatter { args: args.clone(), by, dtype: data.dtype, wide_index, n_indices, n_data, form })
}

/// Folds neighbouring updates into neighbouring elements.
///
/// # Safety
/// There must be `n` of both, those of `to` nobody else's.
#[inline(always)]
unsafe fn run_of<T: Number>(to: *mut T, from: *const T, n: usize, fold: &impl Fn(T, T) -> T) {
    for at in 0..n {
        // SAFETY: granted by the caller.
        unsafe {
            let to = to.add(at);
            to.write_unaligned(fold(to.read_unaligned(), from.add(at).read_unaligned()));
        }
    }
}

/// The pointers of a run.
#[derive(Clone, Copy)]
struct Pointers {
    index: *const u8,
    updates: *const u8,
    y: *mut u8,
}

// SAFETY: tasks write apart.
unsafe impl Sync for Pointers {}

impl Scatter {
    /// # Safety
    /// The index must be readable.
    #[inline(always)]
    unsafe fn index(&self, from: *const u8, at: usize) -> i64 {
        // SAFETY: granted by the caller.
        unsafe {
            match self.wide_index {
                true => from.cast::<i64>().add(at).read_unaligned(),
                false => from.cast::<i32>().add(at).read_unaligned().into(),
            }
        }
    }

    /// The index that all these columns of a row have, if it is one: graph networks repeat it for every feature.
    ///
    /// # Safety
    /// The index tensor must have them.
    #[inline(always)]
    unsafe fn one_index(&self, from: *const u8, row: usize, cols: Range<usize>) -> Option<i64> {
        // SAFETY: granted by the caller.
        unsafe {
            let first = self.index(from, row + cols.start);
            if cols.len() < 2 || self.index(from, row + cols.end - 1) != first {
                return None;
            }
            let differs = match self.wide_index {
                true => {
                    let from = from.cast::<i64>().add(row);
                    cols.fold(false, |differs, col| differs | (from.add(col).read_unaligned() != first))
                }
                false => {
                    let (from, first) = (from.cast::<i32>().add(row), first as i32);
                    cols.fold(false, |differs, col| differs | (from.add(col).read_unaligned() != first))
                }
            };
            (!differs).then_some(first)
        }
    }

    /// The lowest and the highest index, of ScatterElements, whose indices all belong to one axis.
    ///
    /// # Safety
    /// The index tensor must be readable.
    unsafe fn ends(&self, from: *const u8) -> (i64, i64) {
        /// # Safety
        /// There must be so many.
        unsafe fn of<T: Copy + Ord + Into<i64>>(from: *const T, n: usize) -> (i64, i64) {
            // SAFETY: granted by the caller.
            let at = |at: usize| unsafe { from.add(at).read_unaligned() };
            if n == 0 {
                return (0, -1);
            }
            let (mut low, mut high) = (at(0), at(0));
            for idx in 1..n {
                (low, high) = (low.min(at(idx)), high.max(at(idx)));
            }
            (low.into(), high.into())
        }
        // SAFETY: granted by the caller.
        unsafe {
            match self.wide_index {
                true => of(from.cast::<i64>(), self.n_indices),
                false => of(from.cast::<i32>(), self.n_indices),
            }
        }
    }

    /// The size that an index number belongs to.
    fn limit(&self, at: usize) -> usize {
        match &self.form {
            Form::Elements { limit, .. } => *limit,
            Form::Slices { indexed, .. } => indexed[at % indexed.len()].0,
        }
    }

    /// # Safety
    /// As for `Work::run`.
    unsafe fn fold_all<T: Number>(&self, at: Pointers, team: &Team) {
        // A constant each, so that the loops have no choice in them.
        // SAFETY: granted by the caller.
        unsafe {
            match self.by {
                ScatterReduction::Add => {
                    self.folded(at, team, |old: T, new| T::fold(ScatterReduction::Add, old, new));
                }
                ScatterReduction::Mul => {
                    self.folded(at, team, |old: T, new| T::fold(ScatterReduction::Mul, old, new));
                }
                ScatterReduction::Max => {
                    self.folded(at, team, |old: T, new| T::fold(ScatterReduction::Max, old, new));
                }
                _ => self.folded(at, team, |old: T, new| T::fold(ScatterReduction::Min, old, new)),
            }
        }
    }

    /// # Safety
    /// As for `Work::run`.
    unsafe fn folded<T: Number>(&self, at: Pointers, team: &Team, fold: impl Fn(T, T) -> T + Sync) {
        let all = at;
        match &self.form {
            Form::Elements { dims, strides, axis, along, limit } => {
                let (last, outer) = dims.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
                let n_rows: usize = outer.iter().product();
                let is_last = *axis + 1 >= dims.len();
                // Lines of the last axis never meet; of another axis columns do not.
                let unit = if is_last { last } else { n_rows };
                let n_units = if is_last { n_rows } else { last };
                let mut per_task = units_per_task(n_units, unit, TASK_UPDATES);
                if !is_last {
                    // Whole lines of the cache: narrower columns are read and written many times over.
                    per_task = per_task.next_multiple_of(COLUMNS);
                }
                team.for_each(n_units.div_ceil(per_task), &|task| {
                    let at = &all;
                    let units = task.idx * per_task..((task.idx + 1) * per_task).min(n_units);
                    let (rows, cols) = if is_last { (units, 0..last) } else { (0..n_rows, units) };
                    for row in rows {
                        let mut rest = row;
                        let mut base = 0;
                        for (place, dim) in outer.iter().enumerate().rev() {
                            base += if place == *axis { 0 } else { rest % dim * strides[place] };
                            rest /= dim;
                        }
                        let one = match is_last {
                            true => None,
                            // SAFETY: the index tensor has the row.
                            false => unsafe { self.one_index(at.index, row * last, cols.clone()) },
                        };
                        if let Some(index) = one {
                            let place = index + if index < 0 { *limit as i64 } else { 0 };
                            assert!((place as usize) < *limit, "an index changed while it was used");
                            // SAFETY: as below, for all columns.
                            unsafe {
                                let to = at.y.cast::<T>().add(base + cols.start + place as usize * along);
                                let from = at.updates.cast::<T>().add(row * last + cols.start);
                                run_of(to, from, cols.len(), &fold);
                            }
                            continue;
                        }
                        for col in cols.clone() {
                            // SAFETY: the caller grants the operands; an index is within its axis or the task stops.
                            unsafe {
                                let index = self.index(at.index, row * last + col);
                                let place = index + if index < 0 { *limit as i64 } else { 0 };
                                assert!((place as usize) < *limit, "an index changed while it was used");
                                let beside = if is_last { 0 } else { col };
                                let to = at.y.cast::<T>().add(base + beside + place as usize * along);
                                let new = at.updates.cast::<T>().add(row * last + col).read_unaligned();
                                to.write_unaligned(fold(to.read_unaligned(), new));
                            }
                        }
                    }
                });
            }
            Form::Slices { indexed, n_tuples, run } => {
                let depth = indexed.len();
                let per_task = units_per_task(*run, *n_tuples, TASK_UPDATES).next_multiple_of(COLUMNS);
                team.for_each(run.div_ceil(per_task), &|task| {
                    let at = &all;
                    let cols = task.idx * per_task..((task.idx + 1) * per_task).min(*run);
                    for tuple in 0..*n_tuples {
                        let mut base = 0;
                        for (idx, (dim, stride)) in indexed.iter().enumerate() {
                            // SAFETY: the index tensor has it.
                            let index = unsafe { self.index(at.index, tuple * depth + idx) };
                            let place = index + if index < 0 { *dim as i64 } else { 0 };
                            assert!((place as usize) < *dim, "an index changed while it was used");
                            base += place as usize * stride;
                        }
                        // SAFETY: the slice lies within the data, the update within the updates.
                        unsafe {
                            let to = at.y.cast::<T>().add(base + cols.start);
                            let from = at.updates.cast::<T>().add(tuple * run + cols.start);
                            run_of(to, from, cols.len(), &fold);
                        }
                    }
                });
            }
        }
    }
}

impl Work for Scatter {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let at = |place: usize| self.args.at(&shared, place);
        let pointers = Pointers { index: at(1), updates: at(2), y: shared.outputs[0] };
        let is_inside = match &self.form {
            Form::Elements { limit, .. } => {
                // SAFETY: the caller grants the index tensor.
                let (low, high) = unsafe { self.ends(pointers.index) };
                low >= -(*limit as i64) && high < *limit as i64
            }
            Form::Slices { .. } => false,
        };
        for idx in 0..if is_inside { 0 } else { self.n_indices } {
            // SAFETY: the index tensor has so many.
            let (index, dim) = (unsafe { self.index(pointers.index, idx) }, self.limit(idx) as i64);
            if index >= dim || index < -dim {
                let why = format!("index {index} is outside an axis of size {dim}");
                return Err(KernelError::new(KernelErrorKind::BadValues, why));
            }
        }
        let bytes = self.n_data * self.dtype.bits() / 8;
        // SAFETY: data and output have as many bytes; the output lies apart from the inputs.
        unsafe {
            std::ptr::copy_nonoverlapping(at(0), pointers.y, bytes);
            match self.dtype {
                DType::F32 => self.fold_all::<f32>(pointers, team),
                DType::F64 => self.fold_all::<f64>(pointers, team),
                DType::I8 => self.fold_all::<i8>(pointers, team),
                DType::I16 => self.fold_all::<i16>(pointers, team),
                DType::I32 => self.fold_all::<i32>(pointers, team),
                DType::I64 => self.fold_all::<i64>(pointers, team),
                DType::U8 => self.fold_all::<u8>(pointers, team),
                DType::U16 => self.fold_all::<u16>(pointers, team),
                DType::U32 => self.fold_all::<u32>(pointers, team),
                _ => self.fold_all::<u64>(pointers, team),
            }
        }
        Ok(())
    }
}
