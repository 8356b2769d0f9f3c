//! What a wgmma product is expected to take. The constants were fitted to 1100 measured instances on an H200, with
//! those of `whalo` (convolutions of ResNet-18, U-Nets and a decoder, matrix products of BERT and MiniLM): what both
//! find cheapest is 2.7 % slower than the fastest on average.

use super::Tile;
use crate::gpu::Gpu;

/// The sizes of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::families) struct Amount {
    pub(in crate::families) m: usize,
    pub(in crate::families) n: usize,
    /// k is so many taps of `c` places of 2 bytes each.
    pub(in crate::families) taps: usize,
    pub(in crate::families) c: usize,
    /// Bytes of both factors.
    pub(in crate::families) bytes: usize,
}

/// Nanoseconds of a launch after another one, and of the first stages' way and the last stores of a block.
const LAUNCH: f64 = 730.0;
const FILL: f64 = 1030.0;
/// Of one stage at least.
const STAGE: f64 = 31.0;
/// How much longer products take than the rated speed says.
const SLOWER: f64 = 2.09;
/// Nanoseconds in which TMA brings 64 rows, however short they are.
const ROWS: f64 = 110.0;
/// Nanoseconds to give out 64 by 64 accumulators.
const GIVE: f64 = 458.0;
/// Nanoseconds to send accumulators through a cluster.
const SPLIT: f64 = 330.0;
/// Bytes of factors that come in a nanosecond, from the second-level cache mostly.
const BYTES: f64 = 11_450.0;
/// Bytes that all multiprocessors together take from the second-level cache in a nanosecond.
const TRAFFIC: f64 = 10_100.0;

/// How many multiprocessors blocks in clusters of this size occupy at once: clusters do not reach over the groups
/// that multiprocessors come in, so some of each group stay idle. Of an H200's 132, 116 and 104 as measured.
pub(in crate::families) fn occupied(gpu: &Gpu, cluster: u32) -> usize {
    let n_sms = gpu.n_sms.max(1) as usize;
    match cluster {
        ..4 => n_sms,
        4..8 => n_sms * 116 / 132,
        _ => n_sms * 104 / 132,
    }
    .max(1)
}

impl Amount {
    /// Expected nanoseconds with a tile.
    pub(in crate::families) fn price_ns(&self, gpu: &Gpu, tile: &Tile) -> f64 {
        let (bm, bn, bk) = (tile.bm as usize, tile.bn as usize, tile.bk as usize);
        let tiles = self.m.div_ceil(bm) * self.n.div_ceil(bn);
        let chunks = (self.taps * self.c.div_ceil(bk)).div_ceil(tile.split as usize);
        let per_sm = (tiles * tile.split as usize).div_ceil(occupied(gpu, tile.split));
        let threads = tile.threads() as usize;
        let registers = threads * (bn / 2 + 40).max(64);
        let room =
            (gpu.smem_per_sm / (tile.shared_bytes() + 1024)).min(2048 / threads).min(65_536 / registers);
        let together = room.clamp(1, per_sm.max(1));
        let peak = 4096.0 * 1.7;
        let products = (bm * bn * bk * 2) as f64 / peak * SLOWER;
        let rows = bm as f64 / 64.0 * ROWS;
        let stage = (together as f64 * products.max(rows)).max(STAGE);
        let waves = per_sm.div_ceil(together) as f64;
        let given = GIVE * (bm * bn) as f64 / 4096.0 * together.min(2) as f64;
        let split = if tile.split > 1 { SPLIT } else { 0.0 };
        let traffic = (tiles * tile.split as usize * chunks * (bm + bn) * bk * 2) as f64 / TRAFFIC;
        let products = (waves * chunks as f64 * stage).max(traffic);
        LAUNCH + waves * (FILL + given) + products + split + self.bytes as f64 / BYTES
    }
}
