//! How one matrix product is computed: the route, the blocks that stay in cache, and the cut into tasks.
//!
//! Everything here follows from the problem's shape and the tile, never from the number of threads, so that the
//! result has the same bits on any team.

use planish_kernel::axes::join;

use super::blocks::{Blocks, most_few_rows};
use super::codes::{PackedCodes, ROWS};
use super::dots;
use super::pack::PackedB;
use super::table::Tile;
use crate::isa::Isa;

/// Batch dimensions that do not merge; more than ONNX models use after equal neighbours are merged.
pub const MAX_BATCH_DIMS: usize = 4;

/// One batch dimension: how far each operand moves from one index to the next, 0 where it is broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchDim {
    pub len: usize,
    pub a: usize,
    /// In elements of the packed matrix where B is packed.
    pub b: usize,
    pub c: usize,
    pub residual: usize,
}

impl BatchDim {
    /// A dimension of one index.
    pub const ONE: BatchDim = BatchDim { len: 1, a: 0, b: 0, c: 0, residual: 0 };
}

/// How A is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixA {
    /// Row by row, this many elements apart.
    Rows { stride: usize },
    /// Column by column: the transpose is what lies in memory.
    Columns { stride: usize },
}

/// How B is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatrixB {
    /// In the panels of [`PackedB`] for the plan's tile.
    Packed,
    /// Row by row.
    Rows { stride: usize },
    /// Column by column: the transpose is what lies in memory.
    Columns { stride: usize },
    /// Small integers, in the panels of [`PackedCodes`] for the plan's tile.
    Blocks(Blocks),
}

/// A product of matrices, possibly many: `C = finish(A · B)` with A of `m x k` and B of `k x n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmProblem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: MatrixA,
    pub b: MatrixB,
    pub c_stride: usize,
    /// Outermost first; unused ones are [`BatchDim::ONE`].
    pub batch: [BatchDim; MAX_BATCH_DIMS],
}

impl GemmProblem {
    /// One product of dense matrices, B packed.
    pub fn dense(m: usize, n: usize, k: usize) -> GemmProblem {
        GemmProblem {
            m,
            n,
            k,
            a: MatrixA::Rows { stride: k },
            b: MatrixB::Packed,
            c_stride: n,
            batch: [BatchDim::ONE; MAX_BATCH_DIMS],
        }
    }

    /// Products in all.
    pub fn n_batches(&self) -> usize {
        self.batch.iter().map(|dim| dim.len).product()
    }
}

/// Where the tile finds B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// In panels that were packed before.
    Packed,
    /// In panels that the task packs, one at a time.
    Pack,
    /// In the rows of B as they lie: too few rows of A to pay for packing.
    Direct,
    /// No tile: dot products of the rows of A and the columns of B, these many elements apart.
    Dots { a_stride: usize, b_stride: usize },
    /// In panels that the task makes of integers, one at a time.
    Expand(Blocks),
    /// No tile: integers as they are unpacked, times a few rows of A.
    FewRows { a_stride: usize, blocks: Blocks },
}

/// A product that is ready to run: see [`GemmPlan::run`](super::GemmPlan::run).
#[derive(Clone, Copy, Debug)]
pub struct GemmPlan {
    pub(super) problem: GemmProblem,
    pub(super) isa: Isa,
    pub(super) tile: Tile,
    pub(super) route: Route,
    pub(super) layout: PackedB,
    /// Whether A's rows are copied together first.
    pub(super) copy_a: bool,
    /// Steps of the sum that are computed before C is stored.
    pub(super) depth: usize,
    /// Register tiles in a column of C; the rows are shared out evenly among them.
    pub(super) n_row_tiles: usize,
    /// Tasks along the rows and along the columns of C.
    pub(super) row_cuts: usize,
    pub(super) column_cuts: usize,
}

/// Longest part of a sum. A panel of 32 columns is then 64 KiB: it streams from the second cache at a fraction
/// of its bandwidth, and C is stored and read again seldom. Sums in parts also round less.
const MAX_DEPTH: usize = 512;
/// The same where all rows of A for so many steps fit the second cache beside a panel: 128 rows of K = 768 in one part run
/// at 93 % of a Zen 5's peak, in two at 90 %.
const LONG_DEPTH: usize = 768;
const LONG_DEPTH_BYTES: usize = 640 << 10;
/// Most rows of a task; with the longest sum that is half of a 1 MiB second cache.
pub(super) const MAX_ROWS: usize = 256;
/// Rows of A in the same set of an 8-way first cache that leave room for the panel streaming by. Seven (K = 1536)
/// run at 95 % of peak as they lie; fourteen (K = 3072) at 77 %, copied together first at 89 %.
const MAX_ROWS_PER_SET: usize = 7;
/// Bytes after which addresses share a set of the first cache: 64 sets of 64 bytes.
const SET_PERIOD: usize = 4096;

impl GemmPlan {
    /// The plan with the usual tile of an instruction set.
    pub fn new(problem: GemmProblem, isa: Isa) -> GemmPlan {
        GemmPlan::with_tile(problem, isa, Tile::usual(isa))
    }

    /// The plan with a chosen tile, which must be one of the instruction set's.
    pub fn with_tile(problem: GemmProblem, isa: Isa, tile: Tile) -> GemmPlan {
        let problem = merge_batches(problem);
        let route = match (problem.a, problem.b) {
            (_, MatrixB::Packed) => Route::Packed,
            (_, MatrixB::Rows { .. }) if problem.m <= tile.mr() => Route::Direct,
            (MatrixA::Rows { stride: a_stride }, MatrixB::Columns { stride: b_stride })
                if problem.m <= dots::MAX_ROWS =>
            {
                Route::Dots { a_stride, b_stride }
            }
            (MatrixA::Rows { stride: a_stride }, MatrixB::Blocks(blocks))
                if problem.m <= most_few_rows(tile.lanes(), blocks.width) =>
            {
                Route::FewRows { a_stride, blocks }
            }
            (_, MatrixB::Blocks(blocks)) => Route::Expand(blocks),
            (_, MatrixB::Rows { .. } | MatrixB::Columns { .. }) => Route::Pack,
        };
        let n_row_tiles = problem.m.div_ceil(tile.mr()).max(1);
        let fits_long = 4 * problem.m.min(MAX_ROWS) * LONG_DEPTH <= LONG_DEPTH_BYTES;
        let most_depth = if route == Route::Packed && fits_long { LONG_DEPTH } else { MAX_DEPTH };
        let n_parts = problem.k.div_ceil(most_depth).max(1);
        let mut plan = GemmPlan {
            problem,
            isa,
            tile,
            route,
            layout: PackedB::new(tile, problem.k, problem.n),
            copy_a: match problem.a {
                MatrixA::Rows { stride } => problem.m > 1 && collides(stride, tile.mr()),
                MatrixA::Columns { .. } => true,
            },
            // A multiple of four suits the tile's unrolled loop, one of eight suits integers.
            depth: problem.k.div_ceil(n_parts).next_multiple_of(match route {
                Route::Expand(_) => ROWS,
                _ => 4,
            }),
            n_row_tiles,
            row_cuts: 1,
            column_cuts: 1,
        };
        (plan.row_cuts, plan.column_cuts) = plan.cut();
        plan
    }

    /// The tile whose panels a packed B must have.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// The problem as it is computed, batches merged.
    pub fn problem(&self) -> &GemmProblem {
        &self.problem
    }

    /// Tasks of a run.
    pub fn n_tasks(&self) -> usize {
        self.problem.n_batches() * self.row_cuts * self.column_cuts
    }

    /// Bytes of workspace, 64-byte aligned, that a run on `n_slots` slots needs.
    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.slot_len() * size_of::<f32>()
    }

    /// Elements of a slot's workspace: the packed panel, then the copy of A.
    pub(super) fn slot_len(&self) -> usize {
        self.panel_len() + self.copy_len()
    }

    pub(super) fn panel_len(&self) -> usize {
        match self.route {
            Route::Pack | Route::Direct | Route::Expand(_) => self.tile.nr() * self.depth,
            Route::Packed | Route::Dots { .. } | Route::FewRows { .. } => 0,
        }
    }

    /// The layout of B where it is of integers.
    pub(super) fn codes(&self, blocks: Blocks) -> PackedCodes {
        let GemmProblem { k, n, .. } = self.problem;
        PackedCodes { panels: self.tile.into(), width: blocks.width, k, n }
    }

    fn copy_len(&self) -> usize {
        if self.copy_a { self.max_rows_of_a_task() * self.copy_stride() } else { 0 }
    }

    /// An odd number of cache lines, so that copied rows spread over all sets.
    pub(super) fn copy_stride(&self) -> usize {
        (self.depth.div_ceil(16) | 1) * 16
    }

    fn max_rows_of_a_task(&self) -> usize {
        let tiles = self.n_row_tiles.div_ceil(self.row_cuts);
        tiles * self.problem.m.div_ceil(self.n_row_tiles)
    }

    /// The cut into tasks that comes closest to the ideal on 1 to 16 threads, as cuts of the rows and of the
    /// panels.
    fn cut(&self) -> (usize, usize) {
        let fewest = self.n_row_tiles.div_ceil(MAX_ROWS / self.tile.mr());
        let most = self.n_row_tiles;
        let mut best = (f64::INFINITY, (fewest, 1));
        for rows in cuts(fewest, most) {
            for columns in cuts(1, self.layout.n_panels().max(1)) {
                let badness = self.badness(rows, columns);
                if badness < best.0 {
                    best = (badness, (rows, columns));
                }
            }
        }
        best.1
    }

    /// Rough cycles of a run on so many threads of a core that does one multiply and add of a vector a cycle.
    pub fn expected_cycles(&self, threads: usize) -> f64 {
        if self.problem.n_batches() == 0 {
            0.0
        } else {
            self.cycles(self.row_cuts, self.column_cuts, threads)
        }
    }

    fn cycles(&self, row_cuts: usize, column_cuts: usize, threads: usize) -> f64 {
        let task = self.task_cycles(row_cuts, column_cuts);
        let n_tasks = self.problem.n_batches().max(1) * row_cuts * column_cuts;
        if n_tasks == 1 || threads <= 1 {
            return n_tasks as f64 * task;
        }
        // Threads neither begin nor run alike: the last to finish is late by a part of a task.
        (n_tasks.div_ceil(threads) as f64 + 0.3) * task + FORK_CYCLES
    }

    /// Time relative to the ideal, summed over numbers of threads.
    fn badness(&self, row_cuts: usize, column_cuts: usize) -> f64 {
        let ideal = self.task_cycles(1, 1) * self.problem.n_batches().max(1) as f64;
        [(1, 4.0), (2, 4.0), (4, 2.0), (8, 2.0), (16, 1.0)]
            .iter()
            .map(|&(threads, weight)| {
                weight * self.cycles(row_cuts, column_cuts, threads) * threads as f64 / ideal
            })
            .sum()
    }

    /// Rough cycles of the largest task of a cut.
    fn task_cycles(&self, row_cuts: usize, column_cuts: usize) -> f64 {
        let k = self.problem.k as f64;
        let tiles = self.n_row_tiles.div_ceil(row_cuts) as f64;
        let rows = tiles * (self.problem.m as f64 / self.n_row_tiles as f64);
        let panels = self.layout.n_panels().max(1).div_ceil(column_cuts) as f64;
        let width = (self.tile.nr().min(self.problem.n) as f64).max(1.0);
        let vectors = (width / self.tile.lanes() as f64).ceil();
        let parts = (k / self.depth.max(1) as f64).ceil().max(1.0);
        let sum = rows * panels * vectors * k;
        let stores = tiles * panels * parts * TILE_CYCLES;
        let pack = match self.route {
            Route::Pack => PACK_CYCLES * k * width * panels,
            Route::Expand(_) => EXPAND_CYCLES * k * vectors * panels,
            // Eight rows share what is unpacked.
            Route::FewRows { .. } => UNPACK_CYCLES * k * vectors * panels * (rows / 8.0).ceil(),
            Route::Packed | Route::Direct | Route::Dots { .. } => 0.0,
        };
        let copy = if self.copy_a { COPY_CYCLES * rows * k } else { 0.0 };
        // The other operand comes from the second cache or beyond once a task.
        let loads = FETCH_CYCLES * k * (rows + width * panels);
        sum + stores + pack + copy + loads + TASK_CYCLES
    }
}

/// Cycles to fork and join a team, to claim a task and set up its row pointers, and to begin and store a tile.
const FORK_CYCLES: f64 = 8000.0;
const TASK_CYCLES: f64 = 300.0;
const TILE_CYCLES: f64 = 60.0;
/// Cycles an element to pack B, to copy rows of A, and to bring an operand nearer.
const PACK_CYCLES: f64 = 0.4;
const COPY_CYCLES: f64 = 0.3;
const FETCH_CYCLES: f64 = 0.1;
/// Cycles a vector to make f32 of integers, written to a panel or in registers.
const EXPAND_CYCLES: f64 = 3.0;
const UNPACK_CYCLES: f64 = 1.5;

/// Numbers of cuts that are worth a look: all small ones, then steps of an eighth.
fn cuts(fewest: usize, most: usize) -> impl Iterator<Item = usize> {
    let limit = most.min(MAX_CUTS).max(fewest);
    std::iter::successors(Some(fewest), |&n| Some(n + (n / 8).max(1))).take_while(move |&n| n <= limit)
}

/// More cuts than this balance no better on sixteen threads.
const MAX_CUTS: usize = 64;

/// Whether rows `stride` apart fall into so few sets of the first cache that they push each other out.
fn collides(stride: usize, mr: usize) -> bool {
    let bytes = stride * size_of::<f32>();
    let mut step = SET_PERIOD;
    while step > 64 && !bytes.is_multiple_of(step) {
        step /= 2;
    }
    mr.div_ceil(SET_PERIOD / step) > MAX_ROWS_PER_SET
}

/// Merges neighbouring batch dimensions that move alike, and a batch that shares B into the rows.
fn merge_batches(mut problem: GemmProblem) -> GemmProblem {
    let stride = |dim: &BatchDim, operand: usize| {
        [dim.a, dim.b, dim.c, dim.residual].get(operand).map(|stride| *stride as isize)
    };
    let mut dims = join(problem.batch.into_iter().filter(|dim| dim.len != 1), |dim| &mut dim.len, stride);
    if let ([dim], MatrixA::Rows { stride }) = (&dims[..], problem.a) {
        let rows_follow = dim.a == stride * problem.m && dim.c == problem.c_stride * problem.m;
        // A residual must move as C does to be merged; without one both strides are as good as any.
        if dim.b == 0 && rows_follow && dim.residual == dim.c {
            problem.m *= dim.len;
            dims.clear();
        }
    }
    problem.batch = [BatchDim::ONE; MAX_BATCH_DIMS];
    problem.batch[MAX_BATCH_DIMS - dims.len()..].copy_from_slice(&dims);
    problem
}
