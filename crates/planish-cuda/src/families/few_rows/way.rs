//! Ways to multiply a few rows with a weight in tiles, their names, and what they are expected to take.

use crate::formats::codes::COLUMNS;
use crate::gpu::Gpu;

/// How blocks and warps share a product; see few_rows.cu.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::families) struct Way {
    /// Rows of a block.
    pub(in crate::families) rows: usize,
    /// Tiles of 16 columns of a warp.
    pub(in crate::families) tiles: usize,
    pub(in crate::families) warps: usize,
    /// Whether warps have tiles of their own, and rows come into shared memory for all of them.
    pub(in crate::families) staged: bool,
    /// Whether weights are scaled before they are multiplied, not the sums of their blocks.
    pub(in crate::families) scaled: bool,
    /// Chunks of each tile under way.
    pub(in crate::families) ahead: usize,
    /// Blocks that share a tile's chunks.
    pub(in crate::families) split: usize,
}

/// Tiles times eights of rows beyond which a lane's registers run out, for rows of 16 bits and for those in three parts.
const MOST_SUMS: usize = 8;
const MOST_SUMS_OF_PARTS: usize = 4;
const MOST_ROWS: usize = 64;
/// Rows that each warp may copy for itself: those of more take longer to come than the weight.
const MOST_OWN_ROWS: usize = 32;
/// Fewer sums are scaled at the end of blocks for less.
const LEAST_ROWS_SCALED: usize = 64;

impl Way {
    /// As in `m8r1w8a4`, `m16r2w4a2_s4` or, staged, `m64r2w8a4x` and `m64r2w8a4xh`.
    pub(in crate::families) fn name(&self) -> String {
        let Way { rows, tiles, warps, staged, scaled, ahead, split } = self;
        let split = if *split > 1 { format!("_s{split}") } else { String::new() };
        let (staged, scaled) = (if *staged { "x" } else { "" }, if *scaled { "h" } else { "" });
        format!("m{rows}r{tiles}w{warps}a{ahead}{staged}{scaled}{split}")
    }

    /// The way of a name, which may come from a file that nobody vouches for.
    pub(in crate::families) fn named(name: &str) -> Option<Way> {
        Way::every().find(|way| way.name() == name)
    }

    fn every() -> impl Iterator<Item = Way> {
        let rows = [8, 16, 32, 64].into_iter();
        let tiles = rows.flat_map(|rows| [1, 2, 4].map(|tiles| (rows, tiles)));
        let warps = tiles.flat_map(|(rows, tiles)| [2, 4, 8, 16].map(|warps| (rows, tiles, warps)));
        let ahead = warps.flat_map(|own| [1, 2, 4, 8].map(|ahead| (own, ahead)));
        let kinds = [(false, false), (true, false), (true, true)];
        let staged = ahead.flat_map(move |own| kinds.map(|kind| (own, kind)));
        staged
            .flat_map(|(((rows, tiles, warps), ahead), (staged, scaled))| {
                [1, 2, 4, 8].map(|split| Way { rows, tiles, warps, staged, scaled, ahead, split })
            })
            .filter(Way::fits)
    }

    /// Few sums leave a lane registers for what is under way; rows in shared memory need none, and two slots at least.
    fn fits(&self) -> bool {
        let is_staged_well = !self.staged || self.ahead > 1 && self.rows > 8 && self.warps > 2;
        let is_scaled_well = !self.scaled || self.rows >= LEAST_ROWS_SCALED;
        self.sums() <= 2 * MOST_SUMS && self.tiles * self.ahead <= 16 && is_staged_well && is_scaled_well
    }

    /// Tiles times eights of rows.
    fn sums(&self) -> usize {
        self.tiles * self.rows / 8
    }

    /// Shared memory of a block: what is under way, `slot` bytes for a chunk of a tile and `row` for one of a row, of which
    /// warps may have some of their own, and then its sums.
    pub(in crate::families) fn shared_bytes(&self, slot: usize, row: usize, own_rows: usize) -> usize {
        let Way { rows, tiles, warps, staged, ahead, .. } = *self;
        let weights = warps * ahead * tiles * slot;
        match staged {
            true => (weights + ahead * rows * row).max(rows * (COLUMNS * tiles * warps + 4) * 4),
            false => (weights + warps * ahead * own_rows * row).max(warps * rows * (COLUMNS * tiles + 4) * 4),
        }
    }

    /// Rows that a warp brings into shared memory with each of its chunks, where they are not staged: of one eight, or more
    /// where all rows must be there.
    pub(in crate::families) fn own_rows(&self, m: usize, must: bool) -> usize {
        let most = if must { MOST_OWN_ROWS } else { 8 };
        if self.staged || self.rows > most { 0 } else { m.next_power_of_two().min(self.rows) }
    }

    /// Tiles of a block.
    pub(in crate::families) fn block_tiles(&self) -> usize {
        if self.staged { self.warps * self.tiles } else { self.tiles }
    }

    /// Warps of a block that share its chunks, with those of the blocks beside it.
    pub(in crate::families) fn sharers(&self) -> usize {
        if self.staged { self.split } else { self.warps * self.split }
    }

    /// Ways for a product of these sizes.
    pub(in crate::families) fn all(gpu: &Gpu, amount: &Amount) -> Vec<Way> {
        let most_sums = if amount.parts > 1 { MOST_SUMS_OF_PARTS } else { 2 * MOST_SUMS };
        let most_rows = if amount.parts > 1 { 8 * MOST_SUMS_OF_PARTS } else { MOST_ROWS };
        let rows = amount.m.next_power_of_two().clamp(8, most_rows);
        let is_fit = |way: &Way| {
            let shared = amount.shared_bytes(way);
            let may_stage = match way.staged {
                true => amount.stages,
                false => !amount.shares_rows || way.own_rows(amount.m, true) > 0,
            } && (!way.scaled || amount.clocks.scaled.is_some());
            // Rows in shared memory leave registers to sums, as many as a block of so many warps has.
            let most_sums = match (way.staged, amount.shares_rows) {
                (true, _) => most_sums,
                (false, true) => most_sums.min(8 * 2 * MOST_SUMS / way.warps),
                (false, false) => most_sums.min(MOST_SUMS),
            };
            if way.sums() > most_sums || shared > gpu.smem_per_block || !may_stage || way.rows != rows {
                return false;
            }
            let per_warp = amount.chunks / way.sharers();
            let blocks = amount.tiles.div_ceil(way.block_tiles()) * amount.m.div_ceil(way.rows);
            // Splits are for products that leave multiprocessors without work.
            let fills = way.split == 1 || blocks * way.split <= 4 * gpu.n_sms as usize;
            let is_short = per_warp >= way.ahead || way.ahead == 1;
            let is_least = match way.staged {
                false => way.warps == 2 && way.ahead == 1,
                true => amount.shares_rows && [way.tiles, way.warps, way.ahead, way.split] == [1, 4, 2, 1],
            };
            fills && (is_short && per_warp >= 1 || is_least)
        };
        Way::every().filter(is_fit).collect()
    }
}

/// A product's size as prices see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::families) struct Amount {
    pub(in crate::families) m: usize,
    pub(in crate::families) tiles: usize,
    pub(in crate::families) chunks: usize,
    /// Bytes of all operands.
    pub(in crate::families) bytes: usize,
    /// Products of the tensor cores for each of a row's elements.
    pub(in crate::families) parts: usize,
    /// Shared memory of a chunk of a tile, and of a row.
    pub(in crate::families) slot: usize,
    pub(in crate::families) row: usize,
    /// What a chunk of a tile is of the weight itself.
    pub(in crate::families) chunk_bytes: usize,
    /// Whether rows may be staged: they are of 16 bits and begin at whole vectors.
    pub(in crate::families) stages: bool,
    /// Whether they must be in shared memory.
    pub(in crate::families) shares_rows: bool,
    pub(in crate::families) clocks: Clocks,
}

/// Clocks of a scheduler for a chunk of a tile: once, and for each eight rows, that lanes load themselves or that are staged.
#[derive(Clone, Copy, Debug)]
pub(in crate::families) struct Clocks {
    pub(in crate::families) chunk: f64,
    pub(in crate::families) rows: f64,
    pub(in crate::families) staged: f64,
    /// The last where weights are scaled before they are multiplied; `None` where they cannot be.
    pub(in crate::families) scaled: Option<f64>,
}

/// Nanoseconds of a launch in a graph, of what a block does before its first product and after its last, and of the second
/// kernel that adds parts up.
const LAUNCH: f64 = 1_900.0;
const ENDS: f64 = 1_300.0;
const SUM: f64 = 1_400.0;
/// Bytes under way on a multiprocessor that keep the memory busy, and the share of its bandwidth that they reach.
const UNDER_WAY: f64 = 24_000.0;
const REACHED: f64 = 0.88;
/// Bytes that the second-level cache gives in a nanosecond.
const CACHED: f64 = 5_500.0;
/// How much more than its share of the memory's bandwidth a multiprocessor takes while others have no block, where rows are
/// staged: 43 blocks of 16 rows took 28.6 us for what 172 took 22 us for.
const MULTIPROCESSOR: f64 = 1.5;
/// Warps of a multiprocessor that registers leave room for.
const WARPS: f64 = 32.0;

impl Amount {
    fn shared_bytes(&self, way: &Way) -> usize {
        let own_rows = if self.stages { way.own_rows(self.m, self.shares_rows) } else { 0 };
        way.shared_bytes(self.slot, self.row, own_rows)
    }

    /// Nanoseconds in which the second-level cache gives the weight, and rows as often as warps or blocks copy them.
    fn copies_ns(&self, way: &Way, passes: usize) -> f64 {
        let rows = if way.staged { way.rows } else { way.own_rows(self.m, true) };
        let copied = self.tiles.div_ceil(way.block_tiles()) * self.chunks * rows * self.row;
        ((self.bytes + copied) * passes) as f64 / CACHED
    }

    /// Expected nanoseconds of a way.
    pub(in crate::families) fn price_ns(&self, gpu: &Gpu, way: &Way) -> f64 {
        let n_sms = f64::from(gpu.n_sms.max(1));
        let passes = self.m.div_ceil(way.rows);
        let blocks = (self.tiles.div_ceil(way.block_tiles()) * way.split * passes) as f64;
        // Registers leave room for so many warps, shared memory for so many blocks.
        let by_registers = WARPS / (way.sums() * self.parts) as f64 * 2.0;
        let by_shared = (gpu.smem_per_sm / (self.shared_bytes(way) + 1024)) as f64 * way.warps as f64;
        let room = by_registers.clamp(8.0, WARPS).min(by_shared.max(way.warps as f64));
        let warps = (blocks * way.warps as f64 / n_sms).min(room);
        let under_way = warps * (way.tiles * way.ahead * self.chunk_bytes) as f64;
        let share = REACHED * (under_way / UNDER_WAY).min(1.0);
        let memory = self.bytes as f64 * passes as f64 / (gpu.bandwidth * share) * 1e9;
        let memory = match (self.shares_rows, way.staged) {
            (true, true) => {
                memory.max(self.copies_ns(way, passes)) / (MULTIPROCESSOR * blocks / n_sms).min(1.0)
            }
            (true, false) => memory.max(self.copies_ns(way, passes)),
            (false, _) => memory,
        };
        let eights = (way.rows / 8 * self.parts) as f64;
        let Clocks { chunk, rows, staged, scaled } = self.clocks;
        let own = if way.staged { staged } else { rows };
        let per_rows = scaled.filter(|_| way.scaled).unwrap_or(own);
        let per_chunk = chunk + eights * per_rows * (0.5 + 0.5 / way.tiles as f64);
        let chunks = (self.tiles * self.chunks * passes) as f64;
        let busy = (blocks * way.warps as f64).min(4.0 * n_sms);
        let arithmetic = chunks * per_chunk / busy / gpu.clock_hz * 1e9;
        let sum = if way.split > 1 { SUM } else { 0.0 };
        LAUNCH + ENDS + sum + memory.max(arithmetic) + 0.2 * memory.min(arithmetic)
    }
}
