//! One strided copy: what every movement of data comes down to.
//!
//! A copy walks several dimensions, each with a step in the source and one in the destination (source steps
//! may be zero or negative). Planning drops and merges dimensions, widens the element where runs are short and
//! regular, and picks what the two innermost loops do: copy runs, repeat an element, transpose blocks in
//! registers, or take elements one by one. The rest is an odometer.

use planish_kernel::axes::join;
use planish_kernel::movement::Walk;

use super::blocks::{self, Block, BlockFn};
use crate::isa::Isa;

/// The most dimensions that remain around the two innermost loops; ONNX models have far fewer.
const MAX_OUTER: usize = 12;

/// Bytes of one call of the innermost loops: its overhead vanishes, and a block stays in the first-level cache.
const BLOCK_BYTES: usize = 1 << 14;

/// Elements along either side of a block that is transposed, at least.
const TRANSPOSED_SIDE: usize = 64;

/// Bytes that a task moves at least.
const TASK_BYTES: usize = 1 << 16;

/// What the two innermost loops do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Core {
    /// Runs that are contiguous on both sides.
    Runs,
    /// One element repeated.
    Repeat,
    /// Contiguous along one dimension in the source and along another in the destination.
    Transpose,
    /// Elements one by one.
    Strided,
}

/// A planned copy. Addresses are relative to the first element on either side.
#[derive(Clone, Debug)]
pub struct Copy {
    core: Core,
    call: BlockFn,
    /// Outermost first.
    outer: Vec<Walk>,
    rows: Walk,
    cols: Walk,
    row_block: usize,
    col_block: usize,
    n_units: usize,
    units_per_task: usize,
    bytes: usize,
}

impl Copy {
    /// Plans to move elements of `width` bytes along `walks`; `None` where that is more than kernels hold.
    /// Destinations of different elements must not overlap.
    pub fn plan(isa: Isa, width: usize, walks: &[Walk]) -> Option<Copy> {
        let n: usize = walks.iter().map(|walk| walk.len).product();
        let bytes = n.checked_mul(width)?;
        let mut width = width;
        let mut walks: Vec<Walk> = walks.iter().copied().filter(|walk| walk.len != 1).collect();
        walks.sort_by_key(|walk| std::cmp::Reverse(walk.to.unsigned_abs()));
        let mut walks = merge(walks);
        widen(&mut walks, &mut width);
        let unit = Walk { len: 1, from: 0, to: 0 };
        let cols = walks.pop().unwrap_or(Walk { len: 1, from: width as isize, to: width as isize });
        let is_unit = |step: isize| step == width as isize;
        // A row of the transposed block is where the source is contiguous.
        let contiguous = walks.iter().rposition(|walk| is_unit(walk.from));
        let (core, rows) = match contiguous {
            _ if is_unit(cols.to) && is_unit(cols.from) => (Core::Runs, walks.pop().unwrap_or(unit)),
            Some(at) if is_unit(cols.to) && blocks::transposes(width) => (Core::Transpose, walks.remove(at)),
            _ if is_unit(cols.to) && cols.from == 0 => (Core::Repeat, walks.pop().unwrap_or(unit)),
            _ => (Core::Strided, walks.pop().unwrap_or(unit)),
        };
        let call = blocks::choose(isa, core, width)?;
        let (row_block, col_block) = match core {
            // Blocks that are narrow one way are long the other.
            Core::Transpose => {
                let beside = |len: usize| (BLOCK_BYTES / (width * len.max(1))).max(TRANSPOSED_SIDE);
                (beside(cols.len), beside(rows.len))
            }
            _ => {
                let col_block = cols.len.min((BLOCK_BYTES / width).max(1));
                ((BLOCK_BYTES / (width * col_block.max(1))).max(1), col_block)
            }
        };
        let (row_block, col_block) = (row_block.min(rows.len).max(1), col_block.min(cols.len).max(1));
        let n_outer: usize = walks.iter().map(|walk| walk.len).product();
        let n_units =
            if n == 0 { 0 } else { n_outer * rows.len.div_ceil(row_block) * cols.len.div_ceil(col_block) };
        let unit_bytes = width * row_block * col_block;
        let units_per_task = crate::spatial::units_per_task(n_units, unit_bytes, TASK_BYTES);
        (walks.len() <= MAX_OUTER).then_some(Copy {
            core,
            call,
            outer: walks,
            rows,
            cols,
            row_block,
            col_block,
            n_units,
            units_per_task,
            bytes,
        })
    }

    pub fn core(&self) -> Core {
        self.core
    }

    /// Bytes that it writes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn n_tasks(&self) -> usize {
        self.n_units.div_ceil(self.units_per_task)
    }

    /// Does one task of it.
    ///
    /// # Safety
    /// `from` and `to` must be the first elements of memory that is valid wherever the walks lead, which
    /// nothing else writes meanwhile, and which does not overlap.
    pub unsafe fn run(&self, task: usize, from: *const u8, to: *mut u8) {
        let first = task * self.units_per_task;
        let last = (first + self.units_per_task).min(self.n_units);
        if first >= last {
            return;
        }
        let (n_rows, n_cols) =
            (self.rows.len.div_ceil(self.row_block), self.cols.len.div_ceil(self.col_block));
        let (mut outer, mut row, mut col) =
            (first / n_cols / n_rows, first / n_cols % n_rows, first % n_cols);
        let mut at = [0usize; MAX_OUTER];
        let (mut from_outer, mut to_outer) = (0isize, 0isize);
        for (place, walk) in at.iter_mut().zip(&self.outer).take(self.outer.len()).rev() {
            *place = outer % walk.len;
            outer /= walk.len;
            from_outer += walk.from * *place as isize;
            to_outer += walk.to * *place as isize;
        }
        for _ in first..last {
            let (row_at, col_at) = (row * self.row_block, col * self.col_block);
            let from_at = from_outer + self.rows.from * row_at as isize + self.cols.from * col_at as isize;
            let to_at = to_outer + self.rows.to * row_at as isize + self.cols.to * col_at as isize;
            let block = Block {
                from: from.wrapping_offset(from_at),
                to: to.wrapping_offset(to_at),
                rows: (self.rows.len - row_at).min(self.row_block),
                cols: (self.cols.len - col_at).min(self.col_block),
                from_row: self.rows.from,
                from_col: self.cols.from,
                to_row: self.rows.to,
                to_col: self.cols.to,
            };
            // SAFETY: the block lies within the walks, whose memory the caller grants; the function was chosen
            // for an instruction set that this machine has.
            unsafe { (self.call)(&block) };
            col += 1;
            if col < n_cols {
                continue;
            }
            col = 0;
            row += 1;
            if row < n_rows {
                continue;
            }
            row = 0;
            for (place, walk) in at.iter_mut().zip(&self.outer).take(self.outer.len()).rev() {
                *place += 1;
                from_outer += walk.from;
                to_outer += walk.to;
                if *place < walk.len {
                    break;
                }
                from_outer -= walk.from * walk.len as isize;
                to_outer -= walk.to * walk.len as isize;
                *place = 0;
            }
        }
    }
}

/// Joins dimensions that are one on both sides.
fn merge(walks: Vec<Walk>) -> Vec<Walk> {
    join(walks, |walk| &mut walk.len, |walk, side| [walk.from, walk.to].get(side).copied())
}

/// Takes a short run of a power of two bytes as one wide element.
fn widen(walks: &mut Vec<Walk>, width: &mut usize) {
    if let [.., _, last] = walks[..]
        && last.from == *width as isize
        && last.to == *width as isize
    {
        let run = last.len * *width;
        if run.is_power_of_two() && run <= blocks::MAX_WIDTH {
            walks.pop();
            *width = run;
        }
    }
}
