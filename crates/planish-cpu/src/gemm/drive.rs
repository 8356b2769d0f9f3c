//! Runs a plan: each task walks its block of C, part by part of the sum, panel by panel, tile by tile.

use std::fmt;
use std::ops::Range;

use super::blocks::{Blocks, BlocksCall, Expand, FewRows, Panel};
use super::dots::Dots;
use super::pack::{Strides, copy_rows, pack_panel, transpose};
use super::plan::{GemmPlan, MAX_ROWS, MatrixA, MatrixB, Route};
use super::tile::{Ahead, EpilogueCall, TileCall};
use crate::team::{Task, Team};

/// A finished block of C, still in cache.
#[derive(Clone, Debug)]
pub struct Block {
    /// Index into the plan's batches.
    pub batch: usize,
    pub rows: Range<usize>,
    pub columns: Range<usize>,
    /// The block's first element.
    pub c: *mut f32,
    pub c_stride: usize,
    /// Of the thread that computed it, for workspace of the hook's own.
    pub slot: usize,
}

/// What else is to happen to a block of C once its sum is final. Blocks do not overlap.
pub type BlockHook<'a> = dyn Fn(&Block) + Sync + 'a;

/// The operands of one run.
#[derive(Clone, Copy)]
pub struct GemmCall<'a> {
    pub a: *const f32,
    pub b: *const f32,
    /// B where it is of integers; `b` is not read then.
    pub blocks: Option<BlocksCall>,
    pub c: *mut f32,
    /// Bias, residual and clamp; the pointers belong to C's first element.
    pub epilogue: EpilogueCall,
    pub hook: Option<&'a BlockHook<'a>>,
    /// 64-byte aligned, of [`GemmPlan::workspace_bytes`] for the team's slots; may be dangling where that is 0.
    pub workspace: *mut f32,
}

impl fmt::Debug for GemmCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GemmCall")
            .field("a", &self.a)
            .field("b", &self.b)
            .field("c", &self.c)
            .field("epilogue", &self.epilogue)
            .field("hook", &self.hook.is_some())
            .finish_non_exhaustive()
    }
}

/// A call shared by the threads of a team.
struct Shared<'a>(GemmCall<'a>);

// SAFETY: tasks read A, B, bias and residual and write blocks of C that do not overlap; workspace is per slot.
unsafe impl Sync for Shared<'_> {}

impl GemmPlan {
    /// Computes the product.
    ///
    /// # Safety
    /// The operands must reach as far as the problem says and stay unchanged meanwhile; C must be writable and
    /// overlap nothing else but a residual of equal place and stride.
    pub unsafe fn run(&self, call: &GemmCall<'_>, team: &Team) {
        if self.problem.m == 0 || self.problem.n == 0 {
            return;
        }
        let shared = Shared(*call);
        let shared = &shared;
        team.for_each(self.n_tasks(), &move |task: Task| {
            // SAFETY: the caller grants the operands; the slot is this thread's alone.
            unsafe { self.task(&shared.0, task) }
        });
    }

    /// One task; consecutive ones share their panels of B.
    ///
    /// # Safety
    /// As for [`GemmPlan::run`], and the slot's workspace must be this thread's alone.
    unsafe fn task(&self, call: &GemmCall<'_>, task: Task) {
        let row_cut = task.idx % self.row_cuts;
        let column_cut = task.idx / self.row_cuts % self.column_cuts;
        let batch = task.idx / (self.row_cuts * self.column_cuts);
        let tiles = share(self.n_row_tiles, self.row_cuts, row_cut);
        let panels = share(self.layout.n_panels(), self.column_cuts, column_cut);
        let rows = self.tile_rows(tiles.start).start..self.tile_rows(tiles.end - 1).end;
        let columns = panels.start * self.tile.nr()..(panels.end * self.tile.nr()).min(self.problem.n);
        // SAFETY: the offsets stay inside the operands that the caller grants.
        unsafe {
            let mut call = self.at_batch(call, batch);
            call.workspace = call.workspace.wrapping_add(task.slot * self.slot_len());
            match self.route {
                Route::Dots { a_stride, b_stride } => {
                    self.dots(&call, a_stride, b_stride, rows.clone(), columns.clone());
                }
                Route::FewRows { a_stride, blocks } => {
                    self.few_rows(&call, a_stride, blocks, rows.clone(), panels);
                }
                Route::Packed | Route::Pack | Route::Direct | Route::Expand(_) => {
                    self.tiles(&call, tiles, panels);
                }
            }
            if let Some(hook) = call.hook {
                let c_stride = self.problem.c_stride;
                let c = call.c.add(rows.start * c_stride + columns.start);
                hook(&Block { batch, rows, columns, c, c_stride, slot: task.slot });
            }
        }
    }

    /// The operands of one product of the batch.
    ///
    /// # Safety
    /// As for [`GemmPlan::run`].
    unsafe fn at_batch<'a>(&self, call: &GemmCall<'a>, batch: usize) -> GemmCall<'a> {
        let mut call = *call;
        let mut left = batch;
        for dim in self.problem.batch.iter().rev() {
            let idx = left % dim.len;
            left /= dim.len;
            // SAFETY: the caller grants every product of the batch.
            unsafe {
                call.a = call.a.add(idx * dim.a);
                call.b = call.b.add(idx * dim.b);
                call.c = call.c.add(idx * dim.c);
                if !call.epilogue.residual.is_null() {
                    call.epilogue.residual = call.epilogue.residual.add(idx * dim.residual);
                }
            }
        }
        call
    }

    /// Rows of a register tile: all within one of each other, so that no tile is nearly empty.
    fn tile_rows(&self, tile: usize) -> Range<usize> {
        share(self.problem.m, self.n_row_tiles, tile)
    }

    /// # Safety
    /// As for [`GemmPlan::task`].
    unsafe fn tiles(&self, call: &GemmCall<'_>, tiles: Range<usize>, panels: Range<usize>) {
        let mut pointers = [std::ptr::null::<f32>(); MAX_ROWS];
        let first_row = self.tile_rows(tiles.start).start;
        let n_rows = self.tile_rows(tiles.end - 1).end - first_row;
        let k = self.problem.k;
        let mut from = 0;
        loop {
            let depth = self.depth.min(k - from);
            let is_last = from + depth == k;
            // SAFETY: the blocks below lie inside the operands, workspace has the plan's size.
            unsafe {
                self.point(call, &mut pointers[..n_rows], first_row, from, depth);
                for panel in panels.clone() {
                    let column = panel * self.tile.nr();
                    let (b, b_stride) = self.panel(call, panel, from, depth);
                    let mut ahead = self.next_panel((panel, from, depth), &panels);
                    let lines = Ahead::lines(self.layout.width(panel), tiles.len());
                    for tile in tiles.clone() {
                        let rows = self.tile_rows(tile);
                        let epilogue =
                            if is_last { call.epilogue.at(rows.start, column) } else { EpilogueCall::NONE };
                        let tile = TileCall {
                            rows: pointers[rows.start - first_row..].as_ptr(),
                            rows_stride: 0,
                            n_segments: 1,
                            depth,
                            panel: b,
                            panel_stride: b_stride,
                            c: call.c.add(rows.start * self.problem.c_stride + column),
                            c_stride: self.problem.c_stride,
                            m: rows.len(),
                            n: self.layout.columns(panel),
                            ahead: match ahead.is_empty() {
                                true => Ahead::NONE,
                                false => Ahead { from: call.b.wrapping_add(ahead.start), lines },
                            },
                            accumulate: from > 0,
                            epilogue,
                        };
                        ahead.start = (ahead.start + Ahead::fetched(1, depth, lines)).min(ahead.end);
                        self.tile.run(&tile);
                    }
                }
            }
            from += depth;
            if is_last {
                break;
            }
        }
    }

    /// Fills in where the rows of A are for a part of the sum, copying them together where the plan says so.
    ///
    /// # Safety
    /// As for [`GemmPlan::task`].
    unsafe fn point(
        &self,
        call: &GemmCall<'_>,
        pointers: &mut [*const f32],
        first_row: usize,
        from: usize,
        depth: usize,
    ) {
        let n_rows = pointers.len();
        let copy = call.workspace.wrapping_add(self.panel_len());
        let copy_stride = self.copy_stride();
        // SAFETY: A has the rows, workspace room for their copy.
        let (start, stride) = unsafe {
            match self.problem.a {
                MatrixA::Rows { stride } => {
                    let start = call.a.add(first_row * stride + from);
                    if self.copy_a {
                        copy_rows(start, stride, n_rows, depth, copy, copy_stride);
                        (copy.cast_const(), copy_stride)
                    } else {
                        (start, stride)
                    }
                }
                MatrixA::Columns { stride } => {
                    let start = call.a.add(from * stride + first_row);
                    transpose(start, stride, depth, n_rows, copy, copy_stride);
                    (copy.cast_const(), copy_stride)
                }
            }
        };
        for (i, pointer) in pointers.iter_mut().enumerate() {
            *pointer = start.wrapping_add(i * stride);
        }
    }

    /// Where in a packed B the part lies that is read after this one: the next panel's, or the first panel's of the next
    /// part of the sum. Memory beyond the caches gives a core some 16 lines at a time, so what is fetched while there is work
    /// costs nothing, and what is waited for a sixth of the time of 128 rows (Emerald Rapids). Nothing where B is at hand.
    fn next_panel(&self, (panel, from, depth): (usize, usize, usize), panels: &Range<usize>) -> Range<usize> {
        let k = self.problem.k;
        let is_far = matches!(self.problem.b, MatrixB::Packed) && 4 * k * self.problem.n > NEAR_BYTES;
        let (next, from) = match panel + 1 < panels.end {
            true => (panel + 1, from),
            false => (panels.start, from + depth),
        };
        if !is_far || from >= k {
            return 0..0;
        }
        let width = self.layout.width(next);
        let start = self.layout.offset(next) + from * width;
        start..start + self.depth.min(k - from) * width
    }

    /// A panel of B for a part of the sum, and the stride of its rows.
    ///
    /// # Safety
    /// As for [`GemmPlan::task`].
    unsafe fn panel(
        &self,
        call: &GemmCall<'_>,
        panel: usize,
        from: usize,
        depth: usize,
    ) -> (*const f32, usize) {
        let (n, width) = (self.layout.columns(panel), self.layout.width(panel));
        let column = panel * self.tile.nr();
        let strides = match self.problem.b {
            // SAFETY: the packed matrix has this panel and these rows of it.
            MatrixB::Packed => unsafe {
                return (call.b.add(self.layout.offset(panel) + from * width), width);
            },
            MatrixB::Rows { stride } => Strides { k: stride, n: 1 },
            MatrixB::Columns { stride } => Strides { k: 1, n: stride },
            MatrixB::Blocks(blocks) => {
                if let Some(b) = &call.blocks {
                    let panel = Panel::of(b, &self.codes(blocks), blocks, panel);
                    self.isa.run(Expand { panel, from, depth, to: call.workspace });
                }
                return (call.workspace, width);
            }
        };
        // SAFETY: B has the block, workspace room for its panel.
        unsafe {
            let start = call.b.add(from * strides.k + column * strides.n);
            // The tile reads whole vectors, which may reach past the end of B in a narrow last panel.
            if self.route == Route::Direct && n == width {
                return (start, strides.k);
            }
            pack_panel(start, strides, depth, n, call.workspace, width);
        }
        (call.workspace, width)
    }

    /// # Safety
    /// As for [`GemmPlan::task`].
    unsafe fn dots(
        &self,
        call: &GemmCall<'_>,
        a_stride: usize,
        b_stride: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        // SAFETY: the block lies inside the operands.
        unsafe {
            self.isa.run(Dots {
                a: call.a.add(rows.start * a_stride),
                a_stride,
                b: call.b.add(columns.start * b_stride),
                b_stride,
                c: call.c.add(rows.start * self.problem.c_stride + columns.start),
                c_stride: self.problem.c_stride,
                m: rows.len(),
                n: columns.len(),
                k: self.problem.k,
                epilogue: call.epilogue.at(rows.start, columns.start),
            });
        }
    }

    /// # Safety
    /// As for [`GemmPlan::task`].
    unsafe fn few_rows(
        &self,
        call: &GemmCall<'_>,
        a_stride: usize,
        blocks: Blocks,
        rows: Range<usize>,
        panels: Range<usize>,
    ) {
        let Some(b) = &call.blocks else { return };
        let layout = self.codes(blocks);
        for panel in panels {
            let column = panel * self.tile.nr();
            // SAFETY: the block lies inside the operands.
            unsafe {
                self.isa.run(FewRows {
                    panel: Panel::of(b, &layout, blocks, panel),
                    a: call.a.add(rows.start * a_stride),
                    a_stride,
                    m: rows.len(),
                    c: call.c.add(rows.start * self.problem.c_stride + column),
                    c_stride: self.problem.c_stride,
                    epilogue: call.epilogue.at(rows.start, column),
                });
            }
        }
    }
}

/// A matrix B of at most so many bytes stays in the second-level cache from run to run, or nearly so.
const NEAR_BYTES: usize = 1 << 18;

/// Part `idx` of `n` things shared out among `parts`, all within one of each other.
fn share(n: usize, parts: usize, idx: usize) -> Range<usize> {
    n * idx / parts..n * (idx + 1) / parts
}
