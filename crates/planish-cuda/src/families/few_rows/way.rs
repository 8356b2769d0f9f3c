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
    /// Chunks of each tile under way.
    pub(in crate::families) ahead: usize,
    /// Blocks that share a tile's chunks.
    pub(in crate::families) split: usize,
}

/// Tiles times eights of rows beyond which a lane's registers run out, for rows of 16 bits and for those in three parts.
const MOST_SUMS: usize = 8;
const MOST_SUMS_OF_PARTS: usize = 4;

impl Way {
    /// As in `m8r1w8a4` or `m16r2w4a2_s4`.
    pub(in crate::families) fn name(&self) -> String {
        let Way { rows, tiles, warps, ahead, split } = self;
        let split = if *split > 1 { format!("_s{split}") } else { String::new() };
        format!("m{rows}r{tiles}w{warps}a{ahead}{split}")
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
        ahead
            .flat_map(|((rows, tiles, warps), ahead)| {
                [1, 2, 4, 8].map(|split| Way { rows, tiles, warps, ahead, split })
            })
            .filter(|way| way.sums() <= MOST_SUMS && way.tiles * way.ahead <= 16)
    }

    /// Tiles times eights of rows.
    fn sums(&self) -> usize {
        self.tiles * self.rows / 8
    }

    /// Shared memory of a block: what is under way, `slot` bytes for a chunk of a tile, and then its sums.
    pub(in crate::families) fn shared_bytes(&self, slot: usize) -> usize {
        let Way { rows, tiles, warps, ahead, .. } = *self;
        (warps * ahead * tiles * slot).max(warps * rows * (COLUMNS * tiles + 4) * 4)
    }

    /// Ways for a product of these sizes.
    pub(in crate::families) fn all(gpu: &Gpu, amount: &Amount) -> Vec<Way> {
        let most_sums = if amount.parts > 1 { MOST_SUMS_OF_PARTS } else { MOST_SUMS };
        let rows = amount.m.next_power_of_two().clamp(8, 8 * most_sums);
        let is_fit = |way: &Way| {
            if way.sums() > most_sums || way.shared_bytes(amount.slot) > gpu.smem_per_block {
                return false;
            }
            let per_warp = amount.chunks / (way.warps * way.split);
            let blocks = amount.tiles.div_ceil(way.tiles) * amount.m.div_ceil(way.rows);
            // Splits are for products that leave multiprocessors without work.
            let fills = way.split == 1 || blocks * way.split <= 4 * gpu.n_sms as usize;
            let is_short = per_warp >= way.ahead || way.ahead == 1;
            way.rows == rows && fills && (is_short && per_warp >= 1 || way.warps == 2 && way.ahead == 1)
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
    /// Shared memory of a chunk of a tile.
    pub(in crate::families) slot: usize,
}

/// Nanoseconds of a launch in a graph, of what a block does before its first product and after its last, and of the second
/// kernel that adds parts up.
const LAUNCH: f64 = 1_900.0;
const ENDS: f64 = 1_300.0;
const SUM: f64 = 1_400.0;
/// Bytes under way on a multiprocessor that keep the memory busy, and the share of its bandwidth that they reach.
const UNDER_WAY: f64 = 40_000.0;
const REACHED: f64 = 0.88;
/// Warps of a multiprocessor that registers leave room for.
const WARPS: f64 = 32.0;
/// Clocks of a scheduler for a chunk of a tile: integers become numbers once, each eight rows are loaded and multiplied.
const CHUNK: f64 = 70.0;
const CHUNK_ROWS: f64 = 36.0;

impl Amount {
    /// Expected nanoseconds of a way.
    pub(in crate::families) fn price_ns(&self, gpu: &Gpu, way: &Way) -> f64 {
        let n_sms = f64::from(gpu.n_sms.max(1));
        let passes = self.m.div_ceil(way.rows);
        let blocks = (self.tiles.div_ceil(way.tiles) * way.split * passes) as f64;
        // Registers leave room for so many warps, shared memory for so many blocks.
        let by_registers = WARPS / (way.sums() * self.parts) as f64 * 2.0;
        let by_shared = (gpu.smem_per_sm / (way.shared_bytes(self.slot) + 1024)) as f64 * way.warps as f64;
        let room = by_registers.clamp(8.0, WARPS).min(by_shared.max(way.warps as f64));
        let warps = (blocks * way.warps as f64 / n_sms).min(room);
        let under_way = warps * (way.tiles * way.ahead) as f64 * 512.0;
        let share = REACHED * (under_way / UNDER_WAY).min(1.0);
        let memory = self.bytes as f64 * passes as f64 / (gpu.bandwidth * share) * 1e9;
        let eights = (way.rows / 8 * self.parts) as f64;
        let per_chunk = CHUNK + eights * CHUNK_ROWS * (0.5 + 0.5 / way.tiles as f64);
        let chunks = (self.tiles * self.chunks * passes) as f64;
        let busy = (blocks * way.warps as f64).min(4.0 * n_sms);
        let arithmetic = chunks * per_chunk / busy / gpu.clock_hz * 1e9;
        let sum = if way.split > 1 { SUM } else { 0.0 };
        LAUNCH + ENDS + sum + memory.max(arithmetic) + 0.2 * memory.min(arithmetic)
    }
}
