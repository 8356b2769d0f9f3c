//! What a product is expected to take: waves of blocks, each as long as its slower side.

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

/// What `mma.sync` reaches of a tensor core's peak on Hopper, whose full rate only wgmma has; before it, most.
const SHARE_HOPPER: f64 = 0.6;
const SHARE: f64 = 0.8;
/// Bytes a clock that one multiprocessor takes from the second-level cache.
const BYTES_PER_CLOCK: f64 = 40.0;
/// Clocks of a launch in a graph, of the first stage's way through memory, of the way out.
const LAUNCH: f64 = 2_000.0;
const FILL: f64 = 1_200.0;
const FINISH: f64 = 800.0;
/// Clocks of one stage at least: a barrier, fragments, dependent products.
const STEP: f64 = 110.0;
/// Clocks that adding up through a cluster's shared memory takes in each wave; through the workspace, with a second launch.
const CLUSTER: f64 = 900.0;
const MEMORY: f64 = 4_500.0;
/// Element by element, a chunk takes about this many clocks of a multiprocessor.
const STRIDED_CHUNK: f64 = 2.0;

impl Work {
    /// Expected nanoseconds of a way.
    pub(crate) fn price_ns(&self, gpu: &Gpu, way: &Way) -> f64 {
        let tile = &way.tile;
        let n_sms = f64::from(gpu.n_sms.max(1));
        let parts = f64::from(way.split.parts());
        let blocks = (tile.rows(self.m) * tile.columns(self.n) * self.count.max(1)) as f64 * parts;
        let depth = tile.depth(way.math);
        let steps = (self.k.div_ceil(depth) as f64 / parts).ceil();
        // Multiply-adds a clock and multiprocessor.
        let peak = gpu.flops(way.math.arithmetic()) / 2.0 / n_sms / gpu.clock_hz;
        let share = if gpu.sm >= 90 && way.math != Math::F32 { SHARE_HOPPER } else { SHARE };
        // A warp's products keep one tensor core busy only if there are a few of them.
        let per_warp = f64::from((tile.bm / tile.wm) * (tile.bn / tile.wn));
        let fed = (per_warp / (per_warp + 384.0)).max(0.2);
        let arithmetic = f64::from(tile.bm * tile.bn) * depth as f64 / (peak * share * fed);
        let mut reading = f64::from(tile.stage_bytes()) / BYTES_PER_CLOCK;
        if self.strided {
            reading += f64::from(tile.bm * tile.chunks) * STRIDED_CHUNK;
        }
        let by_memory = gpu.smem_per_sm / (tile.shared_bytes() + 1024);
        let by_threads = (1536 / tile.threads()) as usize;
        let together = by_memory.min(by_threads).clamp(1, 4) as f64;
        let per_sm = (blocks / n_sms).ceil();
        let busy = per_sm * steps * arithmetic.max(reading);
        let waves = (per_sm / together).ceil();
        let split = match way.split {
            Split::None => 0.0,
            Split::Cluster(_) => CLUSTER * waves,
            Split::Memory(_) => {
                MEMORY + blocks * f64::from(tile.bm * tile.bn * 8) / (n_sms * BYTES_PER_CLOCK)
            }
        };
        let latency = waves * (steps * STEP + FINISH);
        let clocks = LAUNCH + FILL + busy.max(latency) + FINISH + split;
        let from_memory = self.bytes as f64 / gpu.bandwidth;
        clocks / gpu.clock_hz * 1e9 + from_memory * 1e9
    }
}
