//! Pieces of an image that a block takes: how warpgroups share one, how weights come, and what it costs.

use super::super::wproduct::{Tile, occupied};
use crate::gpu::Gpu;

/// What is compiled in besides the taps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) bn: u32,
    /// Places of 2 bytes of channels of one stage: 64, 32 or 16.
    pub(super) bk: u32,
    /// Warpgroups along x, y and z, each with 8 by 8 pixels of x and y.
    pub(super) groups: [u32; 3],
    /// Stages of the image.
    pub(super) sa: u32,
    /// Taps of one stage of weights.
    pub(super) tb: u32,
    /// Stages of weights: all there are where they are resident.
    pub(super) sb: u32,
    pub(super) resident: bool,
    /// Blocks of a cluster that share one tile's sum.
    pub(super) split: u32,
    /// Blocks on one multiprocessor that registers must allow.
    pub(super) blocks: u32,
}

/// The sizes of a convolution; those of axes as x, y, z.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Amount {
    pub(super) images: usize,
    pub(super) size: [usize; 3],
    pub(super) taps: [usize; 3],
    /// In places of 2 bytes.
    pub(super) c: usize,
    pub(super) n: usize,
    pub(super) spatial: usize,
}

const GROUPS_2D: [[u32; 3]; 4] = [[1, 1, 1], [1, 2, 1], [2, 2, 1], [1, 4, 1]];
const GROUPS_3D: [[u32; 3]; 4] = [[1, 1, 1], [1, 1, 2], [1, 1, 4], [1, 2, 2]];

/// Weights of more bytes are not kept.
const MOST_RESIDENT: usize = 150 << 10;

/// Splits of a sum between the blocks of a cluster.
const SPLITS: [u32; 4] = [1, 2, 4, 8];

impl Piece {
    pub(super) fn name(&self) -> String {
        let Piece { bn, bk, groups: [gx, gy, gz], sa, tb, sb, resident, split, blocks } = self;
        let kept = if *resident { 'r' } else { 's' };
        format!("{bn}x{bk}_g{gx}x{gy}x{gz}_a{sa}_t{tb}_{kept}{sb}_k{split}_b{blocks}")
    }

    pub(super) fn named(name: &str) -> Option<Piece> {
        let mut parts = name.split('_');
        let mut numbers = |prefix: &str| -> Option<Vec<u32>> {
            parts.next()?.strip_prefix(prefix)?.split('x').map(|part| part.parse().ok()).collect()
        };
        let sides = numbers("")?;
        let (groups, sa, tb) = (numbers("g")?, numbers("a")?, numbers("t")?);
        let kept = parts.next()?;
        let resident = kept.starts_with('r');
        let sb = kept.strip_prefix(['r', 's'])?.parse().ok()?;
        let split = parts.next()?.strip_prefix('k')?.parse().ok()?;
        let blocks = parts.next()?.strip_prefix('b')?.parse().ok()?;
        let ([bn, bk], [sa], [tb]) = (&sides[..], &sa[..], &tb[..]) else { return None };
        let groups = <[u32; 3]>::try_from(groups).ok()?;
        let piece = Piece { bn: *bn, bk: *bk, groups, sa: *sa, tb: *tb, sb, resident, split, blocks };
        let sane = [16, 32, 64, 128, 256].contains(bn)
            && [16, 32, 64].contains(bk)
            && (GROUPS_2D.contains(&groups) || GROUPS_3D.contains(&groups))
            && (1..=8).contains(sa)
            && *tb >= 1
            && sb >= 1
            && SPLITS.contains(&split)
            && (1..=8).contains(&blocks);
        (sane && piece.name() == name).then_some(piece)
    }

    /// Whether its stages are made for these taps and so many channels.
    pub(super) fn divides(&self, taps: [usize; 3], c: usize) -> bool {
        let tb = self.tb as usize;
        let units = taps.iter().product::<usize>() / tb * c.div_ceil(self.bk as usize);
        (tb == 1 || tb == taps[0])
            && (!self.resident || units.div_ceil(self.split as usize) <= self.sb as usize)
    }

    fn n_groups(&self) -> u32 {
        self.groups.iter().product()
    }

    /// As the settings that kernels share take it.
    pub(super) fn tile(&self) -> Tile {
        let bm = 64 * self.n_groups();
        Tile { bm, bn: self.bn, bk: self.bk, stages: self.sa, split: self.split, blocks: self.blocks }
    }

    pub(super) fn threads(&self) -> u32 {
        self.n_groups() * 128 + 32
    }

    /// Pixels along x, y, z.
    pub(super) fn extent(&self) -> [usize; 3] {
        let [x, y, z] = self.groups.map(|groups| groups as usize);
        [8 * x, 8 * y, z]
    }

    /// The same with the rim.
    pub(super) fn halo(&self, taps: [usize; 3]) -> [usize; 3] {
        let extent = self.extent();
        [0, 1, 2].map(|axis| extent[axis] + taps[axis] - 1)
    }

    fn row_bytes(&self) -> usize {
        self.bk as usize * 2
    }

    fn image_bytes(&self, taps: [usize; 3]) -> usize {
        self.halo(taps).iter().product::<usize>() * self.row_bytes()
    }

    fn weight_bytes(&self) -> usize {
        (self.tb * self.bn) as usize * self.row_bytes()
    }

    /// As the kernel lays it out: the image's stages, the weights', parts of accumulators, bias and scales, barriers.
    pub(super) fn shared_bytes(&self, taps: [usize; 3]) -> usize {
        let image = self.image_bytes(taps).next_multiple_of(1024);
        let stages = self.sa as usize * image + self.sb as usize * self.weight_bytes();
        let parts = if self.split > 1 { 64 * self.n_groups() * (self.bn * 4 + 64) } else { 0 };
        1024 + stages + parts as usize + self.bn as usize * 8 + 16 * (self.sa + self.sb) as usize + 8
    }

    /// Pieces for a convolution, without those that have no chance.
    pub(super) fn all(gpu: &Gpu, work: &Amount) -> Vec<Piece> {
        let bk = [64u32, 32, 16]
            .into_iter()
            .min_by_key(|bk| work.c.div_ceil(*bk as usize) * (*bk as usize + 16))
            .unwrap_or(64);
        let groups = if work.spatial == 3 { GROUPS_3D } else { GROUPS_2D };
        let mut pieces = Vec::new();
        for groups in groups {
            for bn in [16u32, 32, 64, 128] {
                if bn as usize > work.n.next_multiple_of(16) || (work.n > 32 && bn < 32) {
                    continue;
                }
                // A row of taps comes at once, single ones where that were too much.
                let row = work.taps[0] as u32;
                let tb = if row * bn * bk * 2 <= 32 << 10 { row } else { 1 };
                let bare = Piece { bn, bk, groups, sa: 0, tb, sb: 0, resident: false, split: 1, blocks: 1 };
                for split in SPLITS {
                    for sa in [2, 3] {
                        // More stages than there is to bring come out as fewer.
                        if let Some(piece) = (Piece { sa, split, ..bare }).fitted(gpu, work)
                            && !pieces.contains(&piece)
                        {
                            pieces.push(piece);
                        }
                    }
                }
            }
        }
        pieces
    }

    /// With as many stages of weights as there is room for; `None` where that is too little, or where it makes no
    /// sense.
    fn fitted(mut self, gpu: &Gpu, work: &Amount) -> Option<Piece> {
        let chunks = work.c.div_ceil(self.bk as usize);
        let units = work.taps.iter().product::<usize>() / self.tb as usize * chunks;
        let own = units.div_ceil(self.split as usize);
        let n_sms = gpu.n_sms as usize;
        let split = self.split as usize;
        if split > 1 && (work.tiles(&self) * split > 2 * n_sms || units < 2 * split || self.n_groups() > 2) {
            return None;
        }
        // One block of a cluster needs no more of the image than its chunks.
        self.sa = self.sa.min(own.div_ceil(units / chunks).max(1) as u32 + u32::from(split > 1));
        let bare = self.shared_bytes(work.taps);
        let stage = self.weight_bytes();
        let room = |bytes: usize| bytes.saturating_sub(bare) / (stage + 16);
        self.resident = own * stage <= MOST_RESIDENT && own <= room(gpu.smem_per_block);
        self.sb = if self.resident {
            own as u32
        } else {
            // For two blocks if that leaves four stages.
            let half = room((gpu.smem_per_sm / 2).saturating_sub(1024));
            let most = if half >= 4 && self.n_groups() <= 2 { half } else { room(gpu.smem_per_block) };
            most.min(own).min(12) as u32
        };
        let shared = self.shared_bytes(work.taps);
        let boxes = self.halo(work.taps).iter().all(|side| *side <= 256);
        if self.sb < 2.min(own as u32) || shared > gpu.smem_per_block || !boxes {
            return None;
        }
        let by_memory = gpu.smem_per_sm / (shared + 1024);
        // Registers: the accumulators, residuals that wait, and what else there is.
        let by_registers = 65_536 / (self.threads() as usize * (self.bn as usize / 2 + 60).max(64));
        self.blocks = if split > 1 { 1 } else { by_memory.min(by_registers).clamp(1, 4) as u32 };
        Some(self)
    }
}

/// Nanoseconds of a launch after another one, of the way of the first stages, and to give out 64 by 64 accumulators.
const LAUNCH: f64 = 330.0;
const FILL: f64 = 864.0;
const GIVE: f64 = 494.0;
/// Nanoseconds to send accumulators through a cluster.
const SPLIT: f64 = 602.0;
/// Nanoseconds in which TMA brings a row of the piece.
const ROW: f64 = 0.8;
/// Bytes that a multiprocessor takes from the second-level cache in a nanosecond.
const BYTES: f64 = 83.0;
/// Bytes that all of them together take.
const TRAFFIC: f64 = 6800.0;
/// Nanoseconds from one round of pieces to the next.
const ROUND: f64 = 990.0;
/// Cycles a nanosecond as products see them.
const CLOCK: f64 = 1.29;

impl Amount {
    /// Pieces of all images times columns of blocks.
    fn tiles(&self, piece: &Piece) -> usize {
        let extent = piece.extent();
        let pieces = (0..3).map(|axis| self.size[axis].div_ceil(extent[axis])).product::<usize>();
        pieces * self.images * self.n.div_ceil(piece.bn as usize)
    }

    /// Expected nanoseconds with a piece.
    pub(super) fn price_ns(&self, gpu: &Gpu, piece: &Piece) -> f64 {
        let tiles = self.tiles(piece) * piece.split as usize;
        let chunks = self.c.div_ceil(piece.bk as usize) as f64 / f64::from(piece.split);
        let n_taps = self.taps.iter().product::<usize>() as f64;
        let per_sm = tiles.div_ceil(occupied(gpu, piece.split));
        let together = (piece.blocks as usize).min(per_sm).max(1);
        // A product of 64 rows and 16 of k: arithmetic, or both factors out of shared memory.
        let bn = f64::from(piece.bn);
        let product = (bn / 2.0).max(16.0 + bn / 4.0) / CLOCK;
        let products = n_taps * f64::from(piece.bk / 16) * f64::from(piece.n_groups()) * product;
        let rows = piece.halo(self.taps).iter().product::<usize>() as f64 * ROW;
        let streamed = if piece.resident { 0.0 } else { n_taps * bn * piece.row_bytes() as f64 };
        let traffic = piece.image_bytes(self.taps) as f64 + streamed;
        let bytes = traffic / BYTES;
        let chunk = products.max(rows).max(bytes) * together as f64;
        let waves = per_sm.div_ceil(together) as f64;
        let given = GIVE * f64::from(piece.n_groups()) * bn / 64.0;
        let kept =
            if piece.resident { (piece.sb as usize * piece.weight_bytes()) as f64 / BYTES } else { 0.0 };
        let split = if piece.split > 1 { SPLIT } else { 0.0 };
        let products = (waves * chunks * chunk).max(tiles as f64 * chunks * traffic / TRAFFIC);
        let given = waves * given * together as f64 + (waves - 1.0) * ROUND;
        LAUNCH + FILL + split + kept * together as f64 + products + given
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_of_pieces_can_be_read_back_and_all_fit() {
        let gpu = Gpu::known("h200").unwrap();
        for (size, taps, c, n, spatial) in [
            ([56, 56, 1], [3, 3, 1], 64, 64, 2),
            ([14, 14, 1], [3, 3, 1], 256, 256, 2),
            ([64, 64, 64], [3, 3, 3], 16, 16, 3),
            ([30, 20, 1], [5, 5, 1], 24, 40, 2),
        ] {
            let work = Amount { images: 2, size, taps, c, n, spatial };
            let pieces = Piece::all(&gpu, &work);
            assert!(!pieces.is_empty());
            let names: BTreeSet<String> = pieces.iter().map(Piece::name).collect();
            assert_eq!(names.len(), pieces.len(), "a piece is there twice");
            for piece in pieces {
                assert_eq!(Piece::named(&piece.name()), Some(piece));
                assert!(piece.shared_bytes(taps) <= gpu.smem_per_block);
                assert!(piece.divides(taps, c));
                assert!(work.price_ns(&gpu, &piece) > LAUNCH);
            }
        }
        for wrong in
            ["64x64_g1x1x1_a2_t3_q3_k1_b1", "64x64_g3x1x1_a2_t3_r3_k1_b1", "64_g1x1x1_a2_t3_r3_k1_b1", ""]
        {
            assert_eq!(Piece::named(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn few_weights_stay_in_shared_memory() {
        let gpu = Gpu::known("h200").unwrap();
        let work = Amount { images: 1, size: [56, 56, 1], taps: [3, 3, 1], c: 64, n: 64, spatial: 2 };
        assert!(Piece::all(&gpu, &work).iter().all(|piece| piece.resident));
        // Those of 512 channels do not, unless a cluster shares them.
        let work = Amount { c: 512, n: 512, size: [7, 7, 1], ..work };
        let pieces = Piece::all(&gpu, &work);
        assert!(pieces.iter().all(|piece| !piece.resident || piece.split > 1));
        assert!(pieces.iter().any(|piece| piece.resident && piece.split == 8));
    }
}
