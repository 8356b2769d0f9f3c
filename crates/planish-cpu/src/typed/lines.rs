//! Reductions, running sums and running products of every type, in words.

use planish_kernel::{KernelError, Layout, Problem};
use planish_op::{Op, Reduction};
use planish_tensor::{DType, normalize_axis};

use super::args::Args;
use super::column::{COLUMN, Form, Load, Rounding, Store, ints, ints_mut, reals, reals_mut, settle};
use crate::family::Work;
use crate::isa::Isa;
use crate::shared::Shared;
use crate::spatial::units_per_task;
use crate::team::Team;

/// Elements of a task: some 20 µs.
const TASK_ELEMENTS: usize = 1 << 14;

/// How a word takes in the next one.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Add,
    Mul,
    Max,
    Min,
    /// Of magnitudes and of squares.
    AddAbs,
    AddSquare,
}

/// What is made along the lines.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Made {
    /// One word for each line; the last function is applied to it.
    Whole(Reduction),
    /// One word for each element.
    Running { reverse: bool, exclusive: bool },
}

/// An operator along lines at given sizes, over dense operands: `outer` blocks of `len` rows of `inner` elements, each row
/// taken in by the one before. Reduced axes that do not lie together are walked by offsets.
#[derive(Debug)]
pub(super) struct Lines {
    isa: Isa,
    args: Args,
    dtype: DType,
    step: Step,
    made: Made,
    /// Offsets of blocks, and of rows within them.
    blocks: Vec<usize>,
    rows: Vec<usize>,
    inner: usize,
}

/// More offsets than this take more memory than a table may.
const MAX_OFFSETS: usize = 1 << 26;

/// Offsets of all places of some axes, the last of them innermost; `None` for too many of them.
fn offsets(axes: &[(usize, usize)]) -> Option<Vec<usize>> {
    let n = planish_tensor::element_count(&axes.iter().map(|(len, _)| *len).collect::<Vec<_>>())?;
    (n <= MAX_OFFSETS).then(|| {
        axes.iter().fold(vec![0], |all, (len, stride)| {
            all.iter().flat_map(|base| (0..*len).map(move |at| base + at * stride)).collect()
        })
    })
}

pub(super) fn plan(isa: Isa, problem: &Problem, args: &Args) -> Option<Lines> {
    let ([node], [y]) = (&problem.region.nodes[..], &problem.outputs[..]) else { return None };
    let x = args.operand(0)?;
    let rank = x.rank();
    let constants = |place: usize| match args.get(place) {
        None => Some(Vec::new()),
        Some(_) => args.constant(place).map(|tensor| tensor.to_i64s()),
    };
    let running = |reverse: bool, exclusive: bool| Made::Running { reverse, exclusive };
    let (step, made, axes) = match &node.op {
        Op::CumSum(op) => (Step::Add, running(op.reverse, op.exclusive), constants(1)?),
        Op::CumProd(op) => (Step::Mul, running(op.reverse, op.exclusive), constants(1)?),
        op => {
            let op = op.as_reduce()?;
            let axes = constants(1)?;
            let all: Vec<i64> = (0..rank as i64).collect();
            let axes = if axes.is_empty() && !op.noop_with_empty_axes { all } else { axes };
            let step = match op.by {
                Reduction::Sum | Reduction::Mean | Reduction::LogSum => Step::Add,
                Reduction::Prod => Step::Mul,
                Reduction::Max => Step::Max,
                Reduction::Min => Step::Min,
                Reduction::L1 => Step::AddAbs,
                Reduction::L2 | Reduction::SumSquare => Step::AddSquare,
                Reduction::LogSumExp => return None,
            };
            // Roots and logarithms of integers, and their means, are the reference's to cut.
            let exact = matches!(op.by, Reduction::Sum | Reduction::Prod | Reduction::Max | Reduction::Min);
            if !x.dtype.is_float() && !exact {
                return None;
            }
            (step, Made::Whole(op.by), axes)
        }
    };
    let mut is_line = vec![false; rank];
    for axis in axes {
        is_line[normalize_axis(axis, rank).ok()?] = true;
    }
    let expected = args.inferred(problem, 0)?;
    let runs = matches!(made, Made::Running { .. });
    let is_number = x.dtype.is_whole_int() || x.dtype.is_wide_float();
    let fits = is_number
        && y.dtype == x.dtype
        && expected.dims == y.dims
        && expected.dtype == y.dtype
        && y.is_dense(Layout::Plain)
        && args.are_dense()
        && !x.is_empty()
        && (!runs || is_line.iter().filter(|line| **line).count() == 1);
    if !fits {
        return None;
    }
    let strides = Layout::Plain.strides(&x.dims);
    // What follows the last line axis is a row.
    let after = is_line.iter().rposition(|line| *line).map_or(rank, |last| last + 1);
    let inner: usize = x.dims[after..].iter().product();
    let pick = |wanted: bool| -> Vec<(usize, usize)> {
        (0..after).filter(|axis| is_line[*axis] == wanted).map(|axis| (x.dims[axis], strides[axis])).collect()
    };
    let (blocks, rows) = (offsets(&pick(false))?, offsets(&pick(true))?);
    Some(Lines { isa, args: args.clone(), dtype: x.dtype, step, made, blocks, rows, inner })
}

/// Takes a row in.
fn take(form: Form, step: Step, all: &mut [u64], row: &[u64]) {
    fn each<T: Copy>(all: &mut [T], row: &[T], f: impl Fn(T, T) -> T) {
        all.iter_mut().zip(row).for_each(|(all, next)| *all = f(*all, *next));
    }
    match form {
        Form::Real => {
            let (all, row) = (reals_mut(all), reals(row));
            match step {
                Step::Add => each(all, row, |a, b| a + b),
                Step::Mul => each(all, row, |a, b| a * b),
                Step::Max => each(all, row, |a, b| if a.is_nan() || a >= b { a } else { b }),
                Step::Min => each(all, row, |a, b| if a.is_nan() || a <= b { a } else { b }),
                Step::AddAbs => each(all, row, |a, b| a + b.abs()),
                Step::AddSquare => each(all, row, |a, b| a + b * b),
            }
        }
        Form::Int => {
            let (all, row) = (ints_mut(all), ints(row));
            match step {
                Step::Mul => each(all, row, i64::wrapping_mul),
                Step::Max => each(all, row, |a, b| a.max(b)),
                Step::Min => each(all, row, |a, b| a.min(b)),
                _ => each(all, row, i64::wrapping_add),
            }
        }
        Form::Unsigned => match step {
            Step::Mul => each(all, row, u64::wrapping_mul),
            Step::Max => each(all, row, |a, b| a.max(b)),
            Step::Min => each(all, row, |a, b| a.min(b)),
            _ => each(all, row, u64::wrapping_add),
        },
    }
}

impl Lines {
    fn take(&self, all: &mut [u64], row: &[u64]) {
        take(Form::of(self.dtype), self.step, all, row);
    }

    /// Whether rows lie one after the other, where each is one element.
    fn is_dense(&self) -> bool {
        self.rows.last().is_none_or(|last| last + 1 == self.rows.len())
    }

    /// What nothing is taken into.
    fn start(&self) -> u64 {
        let is_real = Form::of(self.dtype) == Form::Real;
        match self.step {
            Step::Mul if is_real => 1f64.to_bits(),
            Step::Mul => 1,
            Step::Max if is_real => f64::NEG_INFINITY.to_bits(),
            Step::Min if is_real => f64::INFINITY.to_bits(),
            Step::Max if self.dtype != DType::U64 => i64::MIN as u64,
            Step::Min if self.dtype != DType::U64 => i64::MAX as u64,
            Step::Min => u64::MAX,
            _ => 0,
        }
    }

    fn finish(&self, by: Reduction, all: &mut [u64]) {
        let count = self.rows.len() as f64;
        match by {
            Reduction::Mean => reals_mut(all).iter_mut().for_each(|x| *x /= count),
            Reduction::L2 => reals_mut(all).iter_mut().for_each(|x| *x = x.sqrt()),
            Reduction::LogSum => reals_mut(all).iter_mut().for_each(|x| *x = x.ln()),
            _ => {}
        }
        settle(self.dtype, all);
    }

    /// Some columns of one block.
    ///
    /// # Safety
    /// The operands must be readable and writable.
    unsafe fn columns(&self, (x, y): (*const u8, *mut u8), block: usize, first: usize, n: usize) {
        let mut all = [self.start(); COLUMN];
        let mut row = [0u64; COLUMN];
        let all = &mut all[..n];
        let load = |at: usize, to: &mut [u64]| {
            // SAFETY: the row lies in the input.
            unsafe { Load { dtype: self.dtype, from: x, first: at, step: 1, to }.run(self.isa) };
        };
        let store = |at: usize, from: &[u64]| {
            let rounding = Rounding::USUAL;
            // SAFETY: the row lies in the output.
            unsafe { Store { dtype: self.dtype, rounding, from, to: y, first: at, step: 1 }.run(self.isa) };
        };
        let base = self.blocks[block] + first;
        match self.made {
            Made::Whole(by) if self.inner == 1 => {
                // One element a row: a column is as many rows, where they lie one after the other.
                if self.is_dense() {
                    let mut sums = [self.start(); COLUMN];
                    for start in (0..self.rows.len()).step_by(COLUMN) {
                        let n = COLUMN.min(self.rows.len() - start);
                        load(base + start, &mut row[..n]);
                        self.take(&mut sums[..n], &row[..n]);
                    }
                    let wide = self.rows.len().min(COLUMN);
                    // Partial sums of magnitudes and squares are added up as they are.
                    let step = match self.step {
                        Step::AddAbs | Step::AddSquare => Step::Add,
                        step => step,
                    };
                    for sum in &sums[..wide] {
                        take(Form::of(self.dtype), step, &mut all[..1], &[*sum]);
                    }
                } else {
                    for offset in &self.rows {
                        load(base + offset, &mut row[..1]);
                        self.take(&mut all[..1], &row[..1]);
                    }
                }
                self.finish(by, all);
                store(block, all);
            }
            Made::Whole(by) => {
                for offset in &self.rows {
                    load(base + offset, &mut row[..n]);
                    self.take(all, &row[..n]);
                }
                self.finish(by, all);
                store(block * self.inner + first, all);
            }
            Made::Running { reverse, exclusive } if self.inner == 1 && self.is_dense() => {
                let len = self.rows.len();
                let n_parts = len.div_ceil(COLUMN);
                for part in 0..n_parts {
                    let start = COLUMN * if reverse { n_parts - 1 - part } else { part };
                    let n = COLUMN.min(len - start);
                    load(base + start, &mut row[..n]);
                    for at in 0..n {
                        let at = if reverse { n - 1 - at } else { at };
                        let (before, next) = (all[0], row[at]);
                        self.take(&mut all[..1], &[next]);
                        row[at] = if exclusive { before } else { all[0] };
                    }
                    settle(self.dtype, &mut row[..n]);
                    store(base + start, &row[..n]);
                }
            }
            Made::Running { reverse, exclusive } => {
                let mut out = [0u64; COLUMN];
                let len = self.rows.len();
                for at in 0..len {
                    let offset = base + self.rows[if reverse { len - 1 - at } else { at }];
                    load(offset, &mut row[..n]);
                    if exclusive {
                        out[..n].copy_from_slice(all);
                    }
                    self.take(all, &row[..n]);
                    if !exclusive {
                        out[..n].copy_from_slice(all);
                    }
                    settle(self.dtype, &mut out[..n]);
                    store(offset, &out[..n]);
                }
            }
        }
    }
}

impl Work for Lines {
    unsafe fn run(&self, shared: Shared<'_>, team: &Team) -> Result<(), KernelError> {
        let n_parts = self.inner.div_ceil(COLUMN);
        let n_units = self.blocks.len() * n_parts;
        let unit = self.rows.len() * self.inner.min(COLUMN);
        let per_task = units_per_task(n_units, unit, TASK_ELEMENTS);
        team.for_each(n_units.div_ceil(per_task), &|task| {
            let shared = &shared;
            let ends = (self.args.at(shared, 0), shared.outputs[0]);
            for idx in task.idx * per_task..((task.idx + 1) * per_task).min(n_units) {
                let (block, first) = (idx / n_parts, idx % n_parts * COLUMN);
                // SAFETY: the caller grants the operands; tasks write apart.
                unsafe { self.columns(ends, block, first, COLUMN.min(self.inner - first)) };
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_no_larger_than_a_table_may_be() {
        assert_eq!(offsets(&[(2, 10), (3, 1)]), Some(vec![0, 1, 2, 10, 11, 12]));
        assert_eq!(offsets(&[(1 << 38, 1)]), None);
        assert_eq!(offsets(&[(usize::MAX, 1), (2, 1)]), None);
    }
}
