//! Tiles of wgmma products, their names in tactics, and the text that depends on a tile's width.

use crate::families::product::Math;
use crate::gpu::Gpu;

/// What is compiled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::families) struct Tile {
    /// Rows of a block's tile: 64 for each warpgroup that multiplies.
    pub(in crate::families) bm: u32,
    pub(in crate::families) bn: u32,
    /// Places of 2 bytes of k in one stage: 64, 32 or 16.
    pub(in crate::families) bk: u32,
    pub(in crate::families) stages: u32,
    /// Blocks of a cluster that share one tile's k.
    pub(in crate::families) split: u32,
    /// Blocks on one multiprocessor that registers must allow.
    pub(in crate::families) blocks: u32,
}

/// Rows, columns, stages (of 64 deep), blocks of one multiprocessor. Narrow tiles spread small products over the
/// chip, wide ones read less; many stages hide the way through memory where few blocks run.
const SHAPES: [(u32, u32, u32, u32); 19] = [
    (64, 32, 8, 1),
    (64, 64, 6, 1),
    (64, 64, 12, 1),
    // Short sums wait for their way to memory: many blocks wait beside each other.
    (64, 64, 3, 4),
    (64, 128, 2, 3),
    (64, 128, 4, 1),
    (64, 128, 8, 1),
    (128, 32, 5, 2),
    (128, 64, 4, 2),
    (128, 64, 8, 1),
    (128, 128, 2, 2),
    (128, 128, 3, 2),
    (128, 128, 6, 1),
    // 768 columns and multiples fill 132 multiprocessors with these: 4,096 rows are 128 tiles, or 256 in pairs.
    (128, 96, 3, 2),
    (128, 192, 5, 1),
    (128, 256, 4, 1),
    (64, 256, 5, 1),
    (128, 16, 6, 2),
    (64, 16, 8, 1),
];

/// Splits of a sum between the blocks of a cluster.
const SPLITS: [u32; 4] = [1, 2, 4, 8];

impl Tile {
    pub(in crate::families) fn name(&self) -> String {
        let Tile { bm, bn, bk, stages, split, blocks } = self;
        format!("{bm}x{bn}x{bk}_s{stages}_k{split}_b{blocks}")
    }

    pub(super) fn named(name: &str) -> Option<Tile> {
        let mut parts = name.split('_');
        let mut sides = parts.next()?.split('x').map(|side| side.parse::<u32>().ok());
        let (bm, bn, bk) = (sides.next()??, sides.next()??, sides.next()??);
        let mut number = |prefix: char| parts.next()?.strip_prefix(prefix)?.parse::<u32>().ok();
        let tile = Tile { bm, bn, bk, stages: number('s')?, split: number('k')?, blocks: number('b')? };
        let known = SHAPES.iter().any(|shape| (shape.0, shape.1) == (bm, bn))
            && [16, 32, 64].contains(&bk)
            && (2..=32).contains(&tile.stages)
            && SPLITS.contains(&tile.split);
        (known && tile.name() == name).then_some(tile)
    }

    pub(in crate::families) fn threads(&self) -> u32 {
        self.bm * 2 + 32
    }

    pub(in crate::families) fn stage_bytes(&self) -> u32 {
        (self.bm + self.bn) * self.bk * 2
    }

    /// As the kernel lays it out: stages from an aligned address on, parts of accumulators, bias and scales, barriers.
    pub(in crate::families) fn shared_bytes(&self) -> usize {
        let parts = if self.split > 1 { self.bm * (self.bn * 4 + 64) } else { 0 };
        (1024 + self.stages * self.stage_bytes() + parts + 4 * self.bn * 4 + 16 * self.stages + 8) as usize
    }

    /// Tiles for a product of `m` by `n` whose k is `taps` runs of `c`, without those that have no chance.
    pub(in crate::families) fn all(gpu: &Gpu, m: usize, n: usize, taps: usize, c: usize) -> Vec<Tile> {
        // As deep as leaves little of a stage empty.
        let bk = [64u32, 32, 16]
            .into_iter()
            .min_by_key(|bk| c.div_ceil(*bk as usize) * (*bk as usize + 16))
            .unwrap_or(64);
        let chunks = taps * c.div_ceil(bk as usize);
        let n_sms = gpu.n_sms as usize;
        let mut tiles = Vec::new();
        for (bm, bn, stages, blocks) in SHAPES {
            if bn as usize > n.next_multiple_of(16).max(16) || (n > 32 && bn < 32) {
                continue;
            }
            let n_tiles = m.div_ceil(bm as usize) * n.div_ceil(bn as usize);
            for split in SPLITS {
                // Two tiles ahead there is nothing more to bring.
                let stages = (stages * (64 / bk).min(2)).min(2 * chunks.min(32) as u32).max(2);
                let tile = Tile { bm, bn, bk, stages, split, blocks };
                let parts = split as usize;
                let sensible =
                    split == 1 || (blocks == 1 && n_tiles * parts <= 2 * n_sms && chunks >= 2 * parts);
                if tile.shared_bytes() <= gpu.smem_per_block && sensible && !tiles.contains(&tile) {
                    tiles.push(tile);
                }
            }
        }
        tiles
    }
}

/// `Accumulators` and `warpgroup_product`: inline PTX names every register, so its text depends on the width.
pub(super) fn products(bn: u32, math: Math) -> String {
    let n = bn / 2;
    let list = |each: &dyn Fn(u32) -> String| (0..n).map(each).collect::<Vec<_>>().join(", ");
    let registers = list(&|i| format!("%{i}"));
    let register = if math == Math::I8 { "r" } else { "f" };
    let operands = list(&|i| format!("\"+{register}\"(s.d[{i}])"));
    // Depth and types, and what floats are besides: factors of both matrices, and of 16 bits that neither is transposed.
    let (kind, ends) = match (math, math.name_in_c()) {
        (Math::I8, _) => ("k32.s32.s8.s8".to_string(), "1"),
        (Math::F8, ty) => (format!("k32.f32.{ty}.{ty}"), "1, 1, 1"),
        (_, ty) => (format!("k16.f32.{ty}.{ty}"), "1, 1, 1, 0, 0"),
    };
    format!(
        "
struct Accumulators {{
    ACC d[BN / 2];
    // A lane's two columns of a block of eight columns, in its upper or lower row.
    PL_INLINE void pair(ACC (&x)[2], int block, int half) const {{
        x[0] = block < BN / 8 ? d[block * 4 + 2 * half] : (ACC)0;
        x[1] = block < BN / 8 ? d[block * 4 + 2 * half + 1] : (ACC)0;
    }}
}};

PL_INLINE void warpgroup_product(Accumulators &s, u64 a, u64 b) {{
#if __CUDA_ARCH__ >= 900
    asm volatile(\"wgmma.mma_async.sync.aligned.m64n{bn}{kind} {{{registers}}}, %{n}, %{next}, {ends};\"
        : {operands} : \"l\"(a), \"l\"(b));
#endif
}}
",
        next = n + 1,
    )
}
