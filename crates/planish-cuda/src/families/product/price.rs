//! What a product is expected to take: rounds of blocks, each as long as its slower side.
//!
//! The constants are fitted to 11,988 times of all tactics of the suite's convolutions and matrix products on an
//! H200 (`benches/products`): the tactic that is cheapest by this takes 9 % more time in sum than the best one,
//! and prices are within 30 % of the time of those that are at most twice as slow as the best.

use super::{Math, Split, Way};
use crate::gpu::Gpu;

/// The sizes of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Work {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    /// Products side by side: batches, groups.
    pub(crate) count: usize,
    /// Bytes of all operands.
    pub(crate) bytes: usize,
    /// Elements are read one by one instead of in chunks.
    pub(crate) strided: bool,
}

/// What `mma.sync` reaches of a tensor core's peak on Hopper, whose full rate only wgmma has; of the plain units;
/// before Hopper, where nothing was measured, twice the share of a peak that is half as high.
const SHARE_HOPPER: f64 = 0.4;
const SHARE_PLAIN: f64 = 0.53;
const SHARE: f64 = 0.8;
/// A warp's products keep one tensor core half busy if its tile has so many elements.
const FEED: f64 = 430.0;
/// Bytes a clock that one multiprocessor takes from the second-level cache.
const BYTES_PER_CLOCK: f64 = 26.0;
/// Of the clocks that fragments take out of shared memory at 128 bytes a clock; the rest is hidden.
const FRAGMENTS: f64 = 0.5;
/// Clocks of a launch in a graph; of the first stage's way through memory and of the way out, in each round of
/// blocks, and of each element of a tile on its way out.
const LAUNCH: f64 = 3_750.0;
const FILL: f64 = 1_470.0;
const EPILOGUE: f64 = 830.0;
const EPILOGUE_ELEMENT: f64 = 0.097;
/// Clocks of one stage at least: a barrier, and a warp's products of a depth of 64 for each element of its tile.
const STEP: f64 = 24.0;
const STEP_ELEMENT: f64 = 0.022;
/// Clocks that adding up through a cluster's shared memory takes in each round, besides for each of its blocks, and
/// for each element of each block.
const CLUSTER: f64 = 800.0;
const CLUSTER_BLOCK: f64 = 205.0;
const CLUSTER_ELEMENT: f64 = 0.0215;
/// Clocks of a second launch, and bytes a clock of the parts that it adds up.
const MEMORY: f64 = 1_900.0;
const MEMORY_BYTES: f64 = 36.0;
/// Element by element, a chunk takes about this many clocks of a multiprocessor.
const STRIDED_CHUNK: f64 = 4.8;
/// Operands pass through memory at a third of its bandwidth on top of all else: they are not there at once.
const OF_BANDWIDTH: f64 = 1.0 / 3.0;
/// More blocks on a multiprocessor do not hide more.
const MOST_TOGETHER: f64 = 3.0;

impl Work {
    /// Expected nanoseconds of a way.
    pub(crate) fn price_ns(&self, gpu: &Gpu, way: &Way) -> f64 {
        let tile = &way.tile;
        let n_sms = f64::from(gpu.n_sms.max(1));
        let parts = f64::from(way.split.parts());
        let blocks = (tile.rows(self.m) * tile.columns(self.n) * self.count.max(1)) as f64 * parts;
        let depth = tile.depth(way.math);
        let steps = (self.k.div_ceil(depth) as f64 / parts).ceil();
        let (threads, elements) = (f64::from(tile.threads()), f64::from(tile.bm * tile.bn));
        // Multiply-adds a clock and multiprocessor.
        let peak = gpu.flops(way.math.arithmetic()) / 2.0 / n_sms / gpu.clock_hz;
        let is_plain = way.math == Math::F32;
        let share = match (is_plain, gpu.sm >= 90) {
            (true, _) => SHARE_PLAIN,
            (false, true) => SHARE_HOPPER,
            (false, false) => SHARE,
        };
        let (rows, columns) = (f64::from(tile.bm / tile.wm), f64::from(tile.bn / tile.wn));
        let per_warp = rows * columns;
        let fed = (per_warp / (per_warp + FEED)).max(0.1);
        let arithmetic = elements * depth as f64 / (peak * share * fed);
        let mut reading = f64::from(tile.stage_bytes()) / BYTES_PER_CLOCK;
        if self.strided {
            reading += f64::from(tile.bm * tile.chunks) * STRIDED_CHUNK;
        }
        let own_chunks = f64::from(tile.chunks) / f64::from(tile.wk);
        let fragments = threads / 32.0 * own_chunks * 16.0 * (rows + columns) / 128.0 * FRAGMENTS;
        let per_stage = arithmetic.max(reading).max(fragments);
        let slower = if is_plain { 4.0 } else { 1.0 };
        let latency = STEP + STEP_ELEMENT * per_warp * depth as f64 / 64.0 * slower;

        let by_memory = (gpu.smem_per_sm / (tile.shared_bytes() + 1024)) as f64;
        let copies = if is_plain && tile.sums_in_parts() { 2.0 } else { 1.0 };
        let by_registers = (65_536.0 / ((copies * per_warp / 32.0 + 70.0).min(255.0) * threads)).floor();
        let together = by_memory.min(by_registers).clamp(1.0, MOST_TOGETHER);
        let per_sm = (blocks / n_sms).ceil();
        let rounds = (per_sm / together).ceil();
        let epilogue = EPILOGUE + EPILOGUE_ELEMENT * elements * per_sm.min(together);
        let (cluster, memory) = match way.split {
            Split::None => (0.0, 0.0),
            Split::Cluster(_) => (CLUSTER + (CLUSTER_BLOCK + CLUSTER_ELEMENT * elements) * parts, 0.0),
            Split::Memory(_) => (0.0, MEMORY + blocks * elements * 8.0 / (n_sms * MEMORY_BYTES)),
        };
        let busy = (per_sm * steps * per_stage).max(rounds * steps * latency);
        let clocks = LAUNCH + rounds * (FILL + epilogue + cluster) + busy + memory;
        let from_memory = self.bytes as f64 / (gpu.bandwidth * OF_BANDWIDTH);
        clocks / gpu.clock_hz * 1e9 + from_memory * 1e9
    }
}
