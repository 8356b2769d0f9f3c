//! One thread's run: points every place at the operands of a chunk, runs the steps, puts away what was staged.

use std::ops::Range;

use planish_kernel::pointwise::Source;

use super::loops::Args;
use super::place::{Filled, Place, PlaceIdx};
use super::{Operand, Pointwise, space};
use crate::simd::arrays;

/// The matrix block that holds the running value.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) at: *mut u8,
    pub(super) row_stride: usize,
    pub(super) first_row: usize,
    pub(super) first_col: usize,
}

/// One thread's run: the plan, the operands and the workspace.
pub(super) struct Slot<'a> {
    pub(super) plan: &'a Pointwise,
    pub(super) inputs: &'a [*const u8],
    pub(super) outputs: &'a [*mut u8],
    pub(super) workspace: *mut u8,
    pub(super) block: Option<Block>,
}

impl Slot<'_> {
    /// # Safety
    /// As for `run_task`; so are those below.
    unsafe fn place(&self, idx: PlaceIdx) -> *mut Place {
        // SAFETY: the table of places comes first in the workspace and is aligned.
        unsafe { self.workspace.cast::<Place>().add(idx) }
    }

    fn input(&self, operand: &Operand) -> *const u8 {
        match (&operand.constant, operand.source) {
            (Some(tensor), _) => tensor.bytes().as_ptr(),
            (None, Some(Source::Input(idx))) => self.inputs[idx as usize],
            _ => std::ptr::null(),
        }
    }

    /// Fills the places that stay the same for all chunks.
    pub(super) unsafe fn start(&self) {
        for (idx, filled) in self.plan.places.iter().enumerate() {
            // SAFETY: the plan counted the workspace; inputs have at least one element where one is read.
            unsafe {
                match *filled {
                    Filled::Constant(constant) => {
                        let at = self.plan.constants[constant].as_ptr().cast_mut().cast();
                        *self.place(idx) = Place { at, step: 0 };
                    }
                    Filled::Buffer(buffer) => {
                        let at = self.workspace.add(self.plan.buffers[buffer]);
                        *self.place(idx) = Place { at, step: 1 };
                    }
                    Filled::Input(input) => {
                        let operand = &self.plan.inputs[input];
                        if operand.stream.is_single(&self.plan.space) && self.plan.space.n_rows > 0 {
                            self.splat(idx, operand, self.input(operand));
                        }
                    }
                    Filled::Output(_) | Filled::Running => {}
                }
            }
        }
    }

    /// Copies short rows that are the same for all into their staging, as often as a chunk has rows.
    pub(super) unsafe fn repeat_periods(&self) {
        let space = &self.plan.space;
        for (idx, filled) in self.plan.places.iter().enumerate() {
            let Filled::Input(input) = *filled else { continue };
            let operand = &self.plan.inputs[input];
            if !self.is_periodic(operand) {
                continue;
            }
            let size = operand.kind.size();
            let row_bytes = space.n_cols * size;
            // SAFETY: the staging holds a chunk, and that many rows make at most a chunk.
            unsafe {
                let to = self.workspace.add(operand.staging);
                for row in 0..self.plan.rows_at_once() {
                    self.gather_row(operand, 0, 0..space.n_cols, to.add(row * row_bytes));
                }
                *self.place(idx) = Place { at: to, step: 1 };
            }
        }
    }

    fn is_periodic(&self, operand: &Operand) -> bool {
        let stream = &operand.stream;
        stream.same_rows && !stream.is_single(&self.plan.space) && self.block.is_none()
    }

    unsafe fn splat(&self, idx: PlaceIdx, operand: &Operand, from: *const u8) {
        // SAFETY: the staging of an operand holds at least a splat.
        unsafe {
            let to = self.workspace.add(operand.staging);
            match operand.kind.size() {
                4 => {
                    let value = from.cast::<u32>().read_unaligned();
                    to.cast::<[u32; 16]>().write([value; 16]);
                }
                8 => to.cast::<u64>().write(from.cast::<u64>().read_unaligned()),
                _ => to.write(from.read()),
            }
            *self.place(idx) = Place { at: to, step: 0 };
        }
    }

    /// Columns `cols` of an operand's row, side by side.
    unsafe fn gather_row(&self, operand: &Operand, row: usize, cols: Range<usize>, to: *mut u8) {
        let (space, stream, size) = (&self.plan.space, &operand.stream, operand.kind.size());
        // SAFETY: row and columns lie in the space, so the offsets lie in the operand.
        unsafe {
            let from = self.input(operand).add(stream.row_offset(space, row) * size);
            match stream.col_step {
                Some(step) => {
                    space::gather(size, from.add(cols.start * step * size), step, to, cols.len());
                }
                None => {
                    for (at, col) in cols.enumerate() {
                        let from = from.add(stream.col_offset(space, col) * size);
                        std::ptr::copy_nonoverlapping(from, to.add(at * size), size);
                    }
                }
            }
        }
    }

    /// A part of one long row.
    pub(super) unsafe fn long(&self, row: usize, cols: Range<usize>) {
        let space = &self.plan.space;
        // SAFETY: row and columns lie in the space or block.
        unsafe {
            for (idx, filled) in self.plan.places.iter().enumerate() {
                match *filled {
                    Filled::Input(input) => {
                        let operand = &self.plan.inputs[input];
                        let (stream, size) = (&operand.stream, operand.kind.size());
                        if stream.is_single(space) {
                            continue;
                        }
                        let start = || {
                            let offset = stream.row_offset(space, row) + stream.col_offset(space, cols.start);
                            self.input(operand).add(offset * size)
                        };
                        match stream.col_step {
                            Some(1) => *self.place(idx) = Place { at: start().cast_mut(), step: 1 },
                            Some(0) => self.splat(idx, operand, start()),
                            _ => {
                                let to = self.workspace.add(operand.staging);
                                self.gather_row(operand, row, cols.clone(), to);
                                *self.place(idx) = Place { at: to, step: 1 };
                            }
                        }
                    }
                    Filled::Output(output) => {
                        let operand = &self.plan.outputs[output];
                        let at = match operand.stream.col_step {
                            Some(1) => self.outputs[output].add(
                                (operand.stream.row_offset(space, row) + cols.start) * operand.kind.size(),
                            ),
                            _ => self.workspace.add(operand.staging),
                        };
                        *self.place(idx) = Place { at, step: 1 };
                    }
                    Filled::Running => {
                        if let Some(block) = self.block {
                            let at = block.row(row).add((cols.start - block.first_col) * size_of::<f32>());
                            *self.place(idx) = Place { at, step: 1 };
                        }
                    }
                    Filled::Constant(_) | Filled::Buffer(_) => {}
                }
            }
            self.run_steps(cols.len());
            for (output, operand) in self.plan.outputs.iter().enumerate() {
                if operand.stream.col_step != Some(1) {
                    let from = self.workspace.add(operand.staging);
                    self.scatter_row(output, operand, row, cols.clone(), from);
                }
            }
        }
    }

    /// Several short rows at once.
    pub(super) unsafe fn short(&self, rows: Range<usize>, cols: Range<usize>) {
        let space = &self.plan.space;
        let n = rows.len() * cols.len();
        // SAFETY: rows and columns lie in the space or block, and make at most a chunk.
        unsafe {
            // A block whose rows follow each other is worked on where it is.
            let (running, staged) = match self.block {
                Some(block) if block.row_stride == cols.len() => (block.row(rows.start), false),
                _ => (self.running(), true),
            };
            for (idx, filled) in self.plan.places.iter().enumerate() {
                match *filled {
                    Filled::Input(input) => {
                        let operand = &self.plan.inputs[input];
                        let (stream, size) = (&operand.stream, operand.kind.size());
                        if stream.is_single(space) || self.is_periodic(operand) {
                            continue;
                        }
                        let at = if stream.dense && cols.len() == space.n_cols {
                            self.input(operand).add(rows.start * space.n_cols * size).cast_mut()
                        } else {
                            let to = self.workspace.add(operand.staging);
                            for (count, row) in rows.clone().enumerate() {
                                let to = to.add(count * cols.len() * size);
                                self.gather_row(operand, row, cols.clone(), to);
                            }
                            to
                        };
                        *self.place(idx) = Place { at, step: 1 };
                    }
                    Filled::Output(output) => {
                        let operand = &self.plan.outputs[output];
                        let at = match operand.stream.dense {
                            true => self.outputs[output].add(rows.start * space.n_cols * operand.kind.size()),
                            false => self.workspace.add(operand.staging),
                        };
                        *self.place(idx) = Place { at, step: 1 };
                    }
                    Filled::Running => *self.place(idx) = Place { at: running, step: 1 },
                    Filled::Constant(_) | Filled::Buffer(_) => {}
                }
            }
            if let Some(block) = self.block
                && staged
            {
                let bytes = cols.len() * size_of::<f32>();
                for (count, row) in rows.clone().enumerate() {
                    let from = block.row(row).add((cols.start - block.first_col) * size_of::<f32>());
                    std::ptr::copy_nonoverlapping(from, self.running().add(count * bytes), bytes);
                }
                self.run_steps(n);
                for (count, row) in rows.enumerate() {
                    let to = block.row(row).add((cols.start - block.first_col) * size_of::<f32>());
                    std::ptr::copy_nonoverlapping(self.running().add(count * bytes), to, bytes);
                }
                return;
            }
            self.run_steps(n);
            for (output, operand) in self.plan.outputs.iter().enumerate() {
                if !operand.stream.dense {
                    for (count, row) in rows.clone().enumerate() {
                        let offset = operand.staging + count * cols.len() * operand.kind.size();
                        self.scatter_row(output, operand, row, cols.clone(), self.workspace.add(offset));
                    }
                }
            }
        }
    }

    unsafe fn scatter_row(
        &self,
        output: usize,
        operand: &Operand,
        row: usize,
        cols: Range<usize>,
        from: *const u8,
    ) {
        let (space, stream, size) = (&self.plan.space, &operand.stream, operand.kind.size());
        // SAFETY: row and columns lie in the space, so the offsets lie in the operand.
        unsafe {
            let to = self.outputs[output].add(stream.row_offset(space, row) * size);
            match stream.col_step {
                Some(step) => {
                    space::scatter(size, from, to.add(cols.start * step * size), step, cols.len());
                }
                None => {
                    for (at, col) in cols.enumerate() {
                        let to = to.add(stream.col_offset(space, col) * size);
                        std::ptr::copy_nonoverlapping(from.add(at * size), to, size);
                    }
                }
            }
        }
    }

    /// The staging of the running value.
    unsafe fn running(&self) -> *mut u8 {
        let offset = self.plan.buffers.last().copied().unwrap_or(0);
        // SAFETY: the plan counted it.
        unsafe { self.workspace.add(offset) }
    }

    unsafe fn run_steps(&self, n: usize) {
        for placed in &self.plan.steps {
            // SAFETY: all places were filled for this chunk.
            unsafe {
                let from = arrays::map(placed.from, |idx| *self.place(idx));
                let args = Args {
                    from: arrays::map(from, |place| place.at.cast_const()),
                    steps: arrays::map(from, |place| place.step),
                    to: (*self.place(placed.to)).at,
                    n,
                };
                (placed.step.run)(self.plan.isa, &args);
            }
        }
    }
}

impl Block {
    unsafe fn row(&self, row: usize) -> *mut u8 {
        // SAFETY: the row is one of the block's.
        unsafe { self.at.add((row - self.first_row) * self.row_stride * size_of::<f32>()) }
    }
}
