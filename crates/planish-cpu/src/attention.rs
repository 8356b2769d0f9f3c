//! Fused attention: scores, softmax and the mean of the values of a block of queries at a time, so that the
//! matrix of scores never exists as a whole.
//!
//! A task is a block of queries of one head. It goes over the keys in blocks: keys and values are packed for the
//! tile kernel, the scores of a few rows are computed, exponentiated against the largest score so far, and
//! multiplied with the values into sums that are rescaled whenever a larger score appears.

pub(crate) mod family;
mod scores;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::gemm::{Ahead, EpilogueCall, PackedB, Strides, Tile, TileCall};
use crate::isa::Isa;
use crate::shared::Shared;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};
use scores::{divide, rescale, soften};

/// Queries of a task: enough that packing keys and values (once a task) is a few percent of the products; more
/// where there are tasks enough.
const QUERIES: usize = 128;
const MANY_QUERIES: usize = 256;
/// Tasks that are enough for a few threads.
const ENOUGH_TASKS: usize = 8;
/// Keys of a block: with 64 features, packed keys and values are 256 KiB, a quarter of a second-level cache.
const KEYS: usize = 512;
/// More rows than any tile has.
const MAX_MR: usize = 16;

/// Distances between neighbours in an operand seen as `[batch, head, step, feature]`; features are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadStrides {
    pub(crate) batch: usize,
    pub(crate) head: usize,
    pub(crate) step: usize,
}

impl HeadStrides {
    fn at(self, batch: usize, head: usize, step: usize) -> usize {
        batch * self.batch + head * self.head + step * self.step
    }
}

/// What is added to the scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MaskPlace {
    /// Which input of the region it is.
    pub(crate) input: usize,
    /// Booleans (false hides a key) instead of f32.
    pub(crate) boolean: bool,
    pub(crate) strides: HeadStrides,
    /// 0 where one number stands for all keys.
    pub(crate) key: usize,
    /// Keys from here on are hidden.
    pub(crate) n_keys: usize,
}

/// Attention at given sizes.
#[derive(Clone, Debug)]
pub(crate) struct Attention {
    pub(crate) isa: Isa,
    pub(crate) tile: Tile,
    pub(crate) batch: usize,
    pub(crate) heads: usize,
    /// Query heads that share a head of keys and values.
    pub(crate) group: usize,
    pub(crate) n_queries: usize,
    pub(crate) n_keys: usize,
    /// Features of queries and keys, and of values.
    pub(crate) size: usize,
    pub(crate) value_size: usize,
    pub(crate) q: (usize, HeadStrides),
    pub(crate) k: (usize, HeadStrides),
    pub(crate) v: (usize, HeadStrides),
    pub(crate) out: HeadStrides,
    pub(crate) mask: Option<MaskPlace>,
    pub(crate) scale: f32,
    /// 0 for none.
    pub(crate) softcap: f32,
    pub(crate) causal: bool,
}

/// Where the parts of a slot's workspace begin, in f32.
struct Parts {
    keys: usize,
    values: usize,
    scores: usize,
    sums: usize,
    largest: usize,
    total: usize,
    len: usize,
}

impl Attention {
    fn n_blocks(&self) -> usize {
        let many = self.n_queries.div_ceil(MANY_QUERIES);
        if self.batch * self.heads * many >= ENOUGH_TASKS { many } else { self.n_queries.div_ceil(QUERIES) }
    }

    /// The queries of a block, about as many in each.
    fn block(&self, idx: usize) -> Range<usize> {
        let n_blocks = self.n_blocks();
        self.n_queries * idx / n_blocks..self.n_queries * (idx + 1) / n_blocks
    }

    fn key_block(&self) -> usize {
        self.n_keys.min(KEYS)
    }

    fn parts(&self) -> Parts {
        // 16 f32 are a cache line.
        let line = |n: usize| n.next_multiple_of(16);
        let n_keys = self.key_block();
        let queries = self.n_queries.div_ceil(self.n_blocks().max(1));
        let keys = 0;
        let values = keys + line(PackedB::new(self.tile, self.size, n_keys).len());
        let scores = values + line(PackedB::new(self.tile, n_keys, self.value_size).len());
        let sums = scores + line(MAX_MR * self.score_stride());
        let largest = sums + line(queries * self.sum_stride());
        let total = largest + line(queries);
        Parts { keys, values, scores, sums, largest, total, len: total + line(queries) }
    }

    fn score_stride(&self) -> usize {
        self.key_block().next_multiple_of(16)
    }

    fn sum_stride(&self) -> usize {
        self.value_size.next_multiple_of(16)
    }

    pub(crate) fn workspace_bytes(&self, n_slots: usize) -> usize {
        n_slots * self.parts().len * size_of::<f32>()
    }

    /// Computes it.
    ///
    /// # Safety
    /// The pointers must be valid for what the operands span, and workspace for [`Attention::workspace_bytes`].
    pub(crate) unsafe fn run(&self, shared: Shared<'_>, team: &Team) {
        if self.n_queries == 0 || self.value_size == 0 {
            return;
        }
        let n_tasks = self.batch * self.heads * self.n_blocks();
        team.for_each(n_tasks, &move |task: Task| {
            let shared = shared;
            self.isa.run(Block { plan: self, shared, task });
        });
    }
}

/// One task.
struct Block<'a> {
    plan: &'a Attention,
    shared: Shared<'a>,
    task: Task,
}

impl SimdKernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Attention::run` was granted the operands; the slot's workspace is this thread's alone, and
        // tasks write different queries or heads of the output.
        unsafe { self.compute(s) }
    }
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        let plan = self.plan;
        let parts = plan.parts();
        let block = self.task.idx % plan.n_blocks();
        let head = self.task.idx / plan.n_blocks() % plan.heads;
        let batch = self.task.idx / plan.n_blocks() / plan.heads;
        let Range { start: first, end } = plan.block(block);
        let n_queries = end - first;
        let kv_head = head / plan.group;
        // SAFETY: see `run`.
        unsafe {
            let workspace = self.shared.workspace.cast::<f32>().add(self.task.slot * parts.len);
            let input = |idx: usize| self.shared.inputs[idx].cast::<f32>();
            let q = input(plan.q.0).add(plan.q.1.at(batch, head, first));
            let out = self.shared.outputs[0].cast::<f32>().add(plan.out.at(batch, head, first));
            let (largest, total) = (workspace.add(parts.largest), workspace.add(parts.total));
            for row in 0..n_queries {
                *largest.add(row) = f32::NEG_INFINITY;
                *total.add(row) = 0.0;
            }
            let sums = workspace.add(parts.sums);
            std::ptr::write_bytes(sums, 0, n_queries * plan.sum_stride());
            // Causal queries see no key beyond their own place.
            let visible = if plan.causal { (first + n_queries).min(plan.n_keys) } else { plan.n_keys };
            let mut start = 0;
            while start < visible {
                let n_keys = (plan.n_keys - start).min(KEYS);
                let k = input(plan.k.0).add(plan.k.1.at(batch, kv_head, start));
                let v = input(plan.v.0).add(plan.v.1.at(batch, kv_head, start));
                let (key_step, value_step) = (plan.k.1.step, plan.v.1.step);
                let keys = PackedB::new(plan.tile, plan.size, n_keys);
                pack(
                    &keys,
                    k,
                    (n_keys - 1) * key_step + plan.size,
                    Strides { k: 1, n: key_step },
                    workspace.add(parts.keys),
                );
                let values = PackedB::new(plan.tile, n_keys, plan.value_size);
                let span = (n_keys - 1) * value_step + plan.value_size;
                pack(&values, v, span, Strides { k: value_step, n: 1 }, workspace.add(parts.values));
                let scores = workspace.add(parts.scores);
                let n_tiles = n_queries.div_ceil(plan.tile.mr().min(MAX_MR));
                for tile in 0..n_tiles {
                    let row = n_queries * tile / n_tiles;
                    let m = n_queries * (tile + 1) / n_tiles - row;
                    let rows = pointers(q.add(row * plan.q.1.step), plan.q.1.step, m);
                    self.product(
                        &rows,
                        m,
                        &keys,
                        workspace.add(parts.keys),
                        scores,
                        plan.score_stride(),
                        false,
                    );
                    for i in 0..m {
                        let at = row + i;
                        let line = scores.add(i * plan.score_stride());
                        let scale = self.prepare(s, line, (batch, head, first + at), start, n_keys);
                        let kept = soften(s, line, n_keys, scale, &mut *largest.add(at), &mut *total.add(at));
                        if kept != 1.0 {
                            rescale(s, sums.add(at * plan.sum_stride()), plan.value_size, kept);
                        }
                    }
                    let rows = pointers(scores.cast_const(), plan.score_stride(), m);
                    let to = sums.add(row * plan.sum_stride());
                    self.product(&rows, m, &values, workspace.add(parts.values), to, plan.sum_stride(), true);
                }
                start += n_keys;
            }
            for row in 0..n_queries {
                let from = sums.add(row * plan.sum_stride());
                divide(s, from, *total.add(row), out.add(row * plan.out.step), plan.value_size);
            }
        }
    }

    /// `C = A · B` (or added to C) for up to a tile of rows, over all panels of B.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn product(
        &self,
        rows: &[*const f32; MAX_MR],
        m: usize,
        layout: &PackedB,
        packed: *const f32,
        c: *mut f32,
        c_stride: usize,
        accumulate: bool,
    ) {
        let tile = self.plan.tile;
        for panel in 0..layout.n_panels() {
            let call = TileCall {
                rows: rows.as_ptr(),
                rows_stride: MAX_MR,
                n_segments: 1,
                depth: layout.depth(),
                // SAFETY: the panels lie inside the packed matrix, and C holds all its columns.
                panel: unsafe { packed.add(layout.offset(panel)) },
                panel_stride: layout.width(panel),
                ahead: Ahead::NONE,
                // SAFETY: as above.
                c: unsafe { c.add(panel * tile.nr()) },
                c_stride,
                m,
                n: layout.columns(panel),
                accumulate,
                epilogue: EpilogueCall::NONE,
            };
            // SAFETY: rows, panel and C reach as far as the call says.
            unsafe { tile.run(&call) };
        }
    }
}

/// Packs a matrix that spans `len` elements from `from`.
#[inline(always)]
unsafe fn pack(layout: &PackedB, from: *const f32, len: usize, strides: Strides, to: *mut f32) {
    // SAFETY: the caller grants both.
    unsafe {
        let to = std::slice::from_raw_parts_mut(to, layout.len());
        layout.pack(std::slice::from_raw_parts(from, len), strides, to);
    }
}

/// Pointers to `m` rows; those after repeat the last.
#[inline(always)]
unsafe fn pointers(first: *const f32, stride: usize, m: usize) -> [*const f32; MAX_MR] {
    // SAFETY: the caller grants `m` rows.
    crate::simd::arrays::from_fn(|row| unsafe { first.add(row.min(m - 1) * stride) })
}
