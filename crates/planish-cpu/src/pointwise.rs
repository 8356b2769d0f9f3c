//! Pointwise programs on the CPU: an interpreter whose instructions are loops over chunks of elements.
//!
//! A chunk is small enough that the values between instructions stay in the first cache, and long enough that
//! choosing the loop costs nothing. Inputs without gaps are read where they are; those that repeat are splats
//! or one period copied out; whatever else is gathered into a buffer. There are two ways in: a whole output
//! ([`Pointwise::run_task`]), and a block of a matrix that a product just finished
//! ([`Pointwise::run_block`]), where the block is the running value.

mod bytes;
pub(crate) mod cost;
pub(crate) mod family;
mod float8;
pub(crate) mod loops;
mod place;
mod slot;
pub(crate) mod space;
mod steps;
#[cfg(test)]
mod tests;
mod unary;

pub(crate) use bytes::ToBytes;

use std::ops::Range;

use planish_kernel::pointwise::{Kind, Program, Source};
use planish_kernel::{KernelError, Problem};
use planish_tensor::Tensor;

use crate::isa::Isa;
use cost::{TASK_NS, cost_per_element};
use loops::SPLAT_BYTES;
use place::{Filled, Place, PlacedStep, Placement};
use slot::{Block, Slot};
use space::{Axis, Space, Stream};

/// Rows of at least this many elements are worked on one at a time; shorter ones several at once.
const LONG_ROW: usize = 256;

/// Bytes of chunks that should be in the first cache at a time: half of a usual 32 KiB.
const CHUNK_BUDGET: usize = 16 * 1024;

/// One operand of the program in memory.
#[derive(Debug)]
struct Operand {
    source: Option<Source>,
    kind: Kind,
    stream: Stream,
    /// Offset of its staging buffer in a slot's workspace.
    staging: usize,
    /// The elements, if it is a constant.
    constant: Option<Tensor>,
}

/// A program with its operands' places settled.
#[derive(Debug)]
pub struct Pointwise {
    isa: Isa,
    space: Space,
    steps: Vec<PlacedStep>,
    places: Vec<Filled>,
    inputs: Vec<Operand>,
    outputs: Vec<Operand>,
    constants: Vec<[u64; SPLAT_BYTES / 8]>,
    buffers: Vec<usize>,
    /// Elements of a chunk at most.
    chunk: usize,
    workspace: usize,
    n_per_task: usize,
}

impl Pointwise {
    /// The whole problem as a program over its outputs.
    pub fn new(isa: Isa, problem: &Problem, program: &Program) -> Result<Pointwise, KernelError> {
        if problem.outputs.iter().any(|output| output.dims != program.dims) {
            return Err(KernelError::unsupported("outputs of other sizes than the program's"));
        }
        let mut strides = input_strides(problem, program)?;
        let n_inputs = strides.len();
        strides.extend(problem.outputs.iter().map(|output| output.strides.clone()));
        let axes = axes_of(&program.dims, &strides, 0..program.dims.len());
        let (space, streams) = Space::of_all(axes, n_inputs, strides.len());
        Pointwise::build(isa, problem, program, space, streams)
    }

    /// The program of an epilogue, over an output that is seen as a matrix: its row axes and column axes, each
    /// from the outermost in, in the order in which the caller counts rows and columns.
    pub fn for_blocks(
        isa: Isa,
        problem: &Problem,
        program: &Program,
        row_axes: &[usize],
        col_axes: &[usize],
    ) -> Result<Pointwise, KernelError> {
        one_f32(program)?;
        let strides = input_strides(problem, program)?;
        let rows = axes_of(&program.dims, &strides, row_axes.iter().copied());
        let cols = axes_of(&program.dims, &strides, col_axes.iter().copied());
        let (space, streams) = Space::new(rows, cols, strides.len());
        Pointwise::build(isa, problem, program, space, streams)
    }

    /// The same over an output that is dense, in the order of its elements, with columns as long as all operands let them
    /// be: the whole output where they are dense, too.
    pub fn for_order(isa: Isa, problem: &Problem, program: &Program) -> Result<Pointwise, KernelError> {
        one_f32(program)?;
        let strides = input_strides(problem, program)?;
        let mut axes = space::merged(axes_of(&program.dims, &strides, 0..program.dims.len()));
        let cols = axes.pop().into_iter().collect();
        let (space, streams) = Space::new(axes, cols, strides.len());
        Pointwise::build(isa, problem, program, space, streams)
    }

    /// How many columns the space has that it runs over.
    pub fn n_cols(&self) -> usize {
        self.space.n_cols
    }

    fn build(
        isa: Isa,
        problem: &Problem,
        program: &Program,
        space: Space,
        mut streams: Vec<Stream>,
    ) -> Result<Pointwise, KernelError> {
        let output_streams = streams.split_off(program.inputs.len());
        let operand = |kind, stream, source: Option<Source>| Operand {
            source,
            kind,
            stream,
            staging: 0,
            constant: source.and_then(|source| source.constant(&problem.region).cloned()),
        };
        let mut inputs: Vec<Operand> = program
            .inputs
            .iter()
            .zip(streams)
            .map(|(input, stream)| operand(input.kind, stream, Some(input.source)))
            .collect();
        let mut outputs: Vec<Operand> = output_streams
            .into_iter()
            .zip(&program.outputs)
            .map(|(stream, reg)| operand(program.kinds[reg.0 as usize], stream, None))
            .collect();
        let placed = Placement::of(program, !outputs.is_empty());

        let n_live = placed.n_buffers + inputs.len() + outputs.len().max(1);
        let widest = program.kinds.iter().map(|kind| kind.size()).max().unwrap_or(4);
        let chunk = (CHUNK_BUDGET / (widest * n_live) / 64 * 64).clamp(LONG_ROW, 2048);
        // A program of one instruction has nothing between instructions to keep in cache.
        let chunk = if placed.n_buffers == 0 && space.n_cols >= LONG_ROW { 4 * chunk } else { chunk };

        // Workspace of a slot: the table of places, then splats, staging and buffers, each on a cache line.
        let mut workspace = (placed.places.len() * size_of::<Place>()).next_multiple_of(64);
        let mut take = |bytes: usize| {
            let at = workspace;
            workspace += bytes.next_multiple_of(64).max(SPLAT_BYTES);
            at
        };
        inputs.iter_mut().chain(&mut outputs).for_each(|operand| {
            operand.staging = take(chunk * operand.kind.size());
        });
        let running = take(chunk * size_of::<f32>());
        let mut buffers: Vec<usize> = (0..placed.n_buffers).map(|_| take(chunk * widest)).collect();
        // The staging of a running value is the last of the buffers' offsets.
        buffers.push(running);
        let cost = cost_per_element(program);
        let n_per_task = (TASK_NS / cost) as usize;
        Ok(Pointwise {
            isa,
            space,
            steps: placed.steps,
            places: placed.places,
            inputs,
            outputs,
            constants: placed.constants,
            buffers,
            chunk,
            workspace,
            n_per_task,
        })
    }

    /// Workspace bytes that one slot needs, aligned to 64.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.next_multiple_of(64)
    }

    /// Workspace bytes of a kernel that takes `own` of them, and of the program after it in every slot.
    pub(crate) fn bytes_behind(program: Option<&Pointwise>, own: usize, n_slots: usize) -> usize {
        own.next_multiple_of(64) + n_slots * program.map_or(0, Pointwise::workspace_bytes)
    }

    /// Elements of a unit of work, and how many units there are.
    fn units(&self) -> (usize, usize) {
        if self.space.n_rows == 0 || self.space.n_cols == 0 {
            return (0, 0);
        }
        if self.space.n_cols >= LONG_ROW {
            (self.chunk.min(self.space.n_cols), self.space.n_rows * self.space.n_cols.div_ceil(self.chunk))
        } else {
            let rows = self.rows_at_once();
            (rows * self.space.n_cols, self.space.n_rows.div_ceil(rows))
        }
    }

    fn rows_at_once(&self) -> usize {
        (self.chunk / self.space.n_cols.max(1)).clamp(1, self.space.n_rows.max(1))
    }

    fn units_per_task(&self) -> usize {
        let (per_unit, _) = self.units();
        (self.n_per_task / per_unit.max(1)).max(1)
    }

    /// How many tasks the whole output is cut into: a matter of sizes and program alone.
    pub fn n_tasks(&self) -> usize {
        self.units().1.div_ceil(self.units_per_task())
    }

    /// Runs one task of the whole output. `inputs` and `outputs` are those of the region.
    ///
    /// # Safety
    /// The pointers must be valid for what the problem's operands span, `workspace` for `workspace_bytes()` and
    /// aligned to 64 bytes, and nobody else may use them meanwhile except other tasks of the same run. An
    /// output may lie upon an input of the same kind and strides if it is the only one.
    pub unsafe fn run_task(
        &self,
        task: usize,
        inputs: &[*const u8],
        outputs: &[*mut u8],
        workspace: *mut u8,
    ) {
        let (_, n_units) = self.units();
        let per_task = self.units_per_task();
        let units = task * per_task..((task + 1) * per_task).min(n_units);
        // SAFETY: the caller grants everything.
        unsafe {
            let cx = Slot { plan: self, inputs, outputs, workspace, block: None };
            cx.start();
            if self.space.n_cols >= LONG_ROW {
                let per_row = self.space.n_cols.div_ceil(self.chunk);
                for unit in units {
                    let (row, start) = (unit / per_row, unit % per_row * self.chunk);
                    cx.long(row, start..(start + self.chunk).min(self.space.n_cols));
                }
            } else {
                let rows = self.rows_at_once();
                cx.repeat_periods();
                for unit in units {
                    let start = unit * rows;
                    cx.short(start..(start + rows).min(self.space.n_rows), 0..self.space.n_cols);
                }
            }
        }
    }

    /// Runs the program of an epilogue over a block of the matrix, in place. `block` is the element at the
    /// first row and column, rows are `row_stride` elements apart, columns lie side by side.
    ///
    /// # Safety
    /// `inputs` are those of the region and must be valid for what the problem's operands span, the block for
    /// its rows and columns, `workspace` for `workspace_bytes()` and aligned to 64 bytes.
    pub unsafe fn run_block(
        &self,
        inputs: &[*const u8],
        block: *mut f32,
        row_stride: usize,
        rows: Range<usize>,
        cols: Range<usize>,
        workspace: *mut u8,
    ) {
        let block = Block { at: block.cast(), row_stride, first_row: rows.start, first_col: cols.start };
        // SAFETY: the caller grants everything.
        unsafe {
            let cx = Slot { plan: self, inputs, outputs: &[], workspace, block: Some(block) };
            cx.start();
            if cols.len() >= LONG_ROW || rows.len() == 1 {
                for row in rows {
                    for start in cols.clone().step_by(self.chunk) {
                        cx.long(row, start..(start + self.chunk).min(cols.end));
                    }
                }
            } else if !cols.is_empty() {
                // Fewer columns than a chunk has elements: at least one row fits.
                let at_once = (self.chunk / cols.len()).max(1);
                for start in rows.clone().step_by(at_once) {
                    for from in cols.clone().step_by(self.chunk) {
                        let to = (from + self.chunk).min(cols.end);
                        cx.short(start..(start + at_once).min(rows.end), from..to);
                    }
                }
            }
        }
    }
}

/// What epilogues give.
fn one_f32(program: &Program) -> Result<(), KernelError> {
    match &program.outputs[..] {
        [output] if program.kinds[output.0 as usize] == Kind::F32 => Ok(()),
        _ => Err(KernelError::unsupported("an epilogue gives one f32")),
    }
}

/// Strides of each program input along the axes of the output; 0 where it repeats.
fn input_strides(problem: &Problem, program: &Program) -> Result<Vec<Vec<usize>>, KernelError> {
    let rank = program.dims.len();
    program
        .inputs
        .iter()
        .map(|input| {
            let own: Vec<usize> = match input.source {
                Source::Input(idx) => match problem.inputs.get(idx as usize) {
                    Some(operand) if operand.packed.is_none() => operand.strides.clone(),
                    _ => return Err(KernelError::unsupported("a packed or missing operand of a program")),
                },
                Source::Constant(_) => planish_kernel::Layout::Plain.strides(&input.dims),
            };
            Ok(input.axes(rank).into_iter().map(|axis| axis.map_or(0, |axis| own[axis])).collect())
        })
        .collect()
}

fn axes_of(dims: &[usize], strides: &[Vec<usize>], which: impl IntoIterator<Item = usize>) -> Vec<Axis> {
    which
        .into_iter()
        .map(|axis| Axis { dim: dims[axis], strides: strides.iter().map(|own| own[axis]).collect() })
        .collect()
}
