//! Tiles, number types and splits of a product, and their names in tactics.

use planish_kernel::{Arithmetic, Numeric, Operand, Problem};
use planish_tensor::DType;

use crate::gpu::Gpu;

/// What products are taken in. Accumulators are f32, those of integers i32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Math {
    F16,
    BF16,
    TF32,
    /// On the plain units.
    F32,
    /// Signed bytes.
    I8,
    /// Floats of 8 bits, E4M3.
    F8,
}

/// Sums of so many products of f32 are taken in parts: in one row their rounding is seen at the end of a network.
const LONG_SUM: usize = 256;
/// Products of so few rows wait for their weights, whatever they are multiplied in.
const FEW_ROWS: usize = 8;

/// Whether a product has so few rows that rounding its factors to tf32 would gain nothing.
pub(crate) fn has_few_rows(problem: &Problem) -> bool {
    let rows = |operand: &Operand| operand.dims.iter().rev().skip(1).product::<usize>();
    problem.outputs.first().is_some_and(|output| rows(output) <= FEW_ROWS)
}

impl Math {
    /// Ways to multiply that the problem's number types allow on this GPU; elements are stored in one type.
    pub(crate) fn of(gpu: &Gpu, problem: &Problem, stored: DType) -> Vec<Math> {
        let Numeric { element, accumulator, .. } = problem.numeric;
        let wanted = if element == Arithmetic::I8 { DType::I32 } else { DType::F32 };
        if accumulator != wanted {
            return Vec::new();
        }
        match (stored, element) {
            (DType::I8, Arithmetic::I8) => vec![Math::I8],
            (DType::F8E4M3FN, Arithmetic::F8) if gpu.has_f8() => vec![Math::F8],
            (DType::F16, Arithmetic::F16) => vec![Math::F16],
            (DType::BF16, Arithmetic::Bf16) if gpu.sm >= 80 => vec![Math::BF16],
            (DType::F32, Arithmetic::Tf32) if gpu.sm >= 80 && !has_few_rows(problem) => vec![Math::TF32],
            (DType::F32, Arithmetic::F32 | Arithmetic::Tf32) => vec![Math::F32],
            _ => Vec::new(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Math::F16 => "f16",
            Math::BF16 => "bf16",
            Math::TF32 => "tf32",
            Math::F32 => "f32",
            Math::I8 => "i8",
            Math::F8 => "f8",
        }
    }

    fn named(name: &str) -> Option<Math> {
        let all = [Math::F16, Math::BF16, Math::TF32, Math::F32, Math::I8, Math::F8];
        all.into_iter().find(|math| math.name() == name)
    }

    pub(crate) fn name_in_c(self) -> &'static str {
        match self {
            Math::F16 => "f16",
            Math::BF16 => "bf16",
            Math::TF32 => "tf32",
            Math::F32 => "float",
            Math::I8 => "i8",
            Math::F8 => "e4m3",
        }
    }

    /// What lies in shared memory.
    pub(crate) fn element_in_c(self) -> &'static str {
        match self {
            Math::F16 => "f16",
            Math::BF16 => "bf16",
            Math::TF32 | Math::F32 => "float",
            Math::I8 => "i8",
            Math::F8 => "e4m3",
        }
    }

    /// What sums are kept in.
    pub(crate) fn accumulator_in_c(self) -> &'static str {
        match self {
            Math::F16 | Math::BF16 | Math::TF32 | Math::F32 | Math::F8 => "float",
            Math::I8 => "i32",
        }
    }

    pub(crate) fn arithmetic(self) -> Arithmetic {
        match self {
            Math::F16 => Arithmetic::F16,
            Math::BF16 => Arithmetic::Bf16,
            Math::TF32 => Arithmetic::Tf32,
            Math::F32 => Arithmetic::F32,
            Math::I8 => Arithmetic::I8,
            Math::F8 => Arithmetic::F8,
        }
    }

    pub(crate) fn dtype(self) -> DType {
        match self {
            Math::F16 => DType::F16,
            Math::BF16 => DType::BF16,
            Math::TF32 | Math::F32 => DType::F32,
            Math::I8 => DType::I8,
            Math::F8 => DType::F8E4M3FN,
        }
    }

    /// Elements of a chunk of 16 bytes.
    pub(crate) fn per_chunk(self) -> usize {
        match self {
            Math::F16 | Math::BF16 => 8,
            Math::TF32 | Math::F32 => 4,
            Math::I8 | Math::F8 => 16,
        }
    }
}

/// How the sum of a tile is divided between blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Split {
    None,
    /// Blocks of one cluster add up through their shared memory; at most 8.
    Cluster(u32),
    /// Blocks leave their parts in the workspace, and a second kernel adds them up.
    Memory(u32),
}

impl Split {
    pub(crate) fn parts(self) -> u32 {
        match self {
            Split::None => 1,
            Split::Cluster(parts) | Split::Memory(parts) => parts,
        }
    }
}

/// A block's tile and how its warps share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) bm: u32,
    pub(crate) bn: u32,
    /// Chunks of 16 bytes along k in one stage.
    pub(crate) chunks: u32,
    pub(crate) wm: u32,
    pub(crate) wn: u32,
    pub(crate) wk: u32,
    pub(crate) stages: u32,
}

/// Tiles without their number of stages: rows, columns, chunks, warps along rows, columns and k. Large tiles
/// read least, small ones spread small products over many multiprocessors; warps along k keep the tensor cores
/// of a small tile busy.
#[rustfmt::skip]
const TILES: [[u32; 6]; 22] = [
    [128, 256, 4, 2, 4, 1],
    [256, 128, 4, 4, 2, 1],
    [128, 128, 8, 2, 4, 1],
    [128, 128, 4, 2, 4, 1],
    [256,  64, 4, 4, 2, 1],
    [128,  64, 8, 4, 2, 1],
    [128,  64, 8, 2, 2, 1],
    [ 64, 128, 8, 2, 4, 1],
    [128,  32, 8, 4, 1, 2],
    [256,  32, 4, 8, 1, 1],
    [128,  32, 8, 4, 1, 1],
    [256,  16, 4, 8, 1, 1],
    [128,  16, 8, 4, 1, 1],
    [ 64,  64, 8, 2, 2, 2],
    [ 64,  64, 8, 2, 2, 1],
    [ 64,  32, 8, 2, 1, 4],
    [ 32,  64, 8, 1, 2, 4],
    [ 32,  32, 8, 1, 1, 4],
    [ 16, 128, 8, 1, 4, 2],
    [ 16,  64, 8, 1, 2, 4],
    [ 16,  32, 8, 1, 1, 4],
    [ 64,  16, 8, 2, 1, 4],
];

/// Bytes of stages that hide the latency of memory; more hide no more.
const STAGE_BYTES: u32 = 80 << 10;

impl Tile {
    /// Every tile that fits the GPU, with as many stages as are of use.
    pub(crate) fn all(gpu: &Gpu) -> Vec<Tile> {
        let fit = |[bm, bn, chunks, wm, wn, wk]: [u32; 6]| {
            let tile = Tile { bm, bn, chunks, wm, wn, wk, stages: 2 };
            let most = gpu.smem_per_block as u32 / tile.stage_bytes();
            let stages = (STAGE_BYTES / tile.stage_bytes()).clamp(3, 8).min(most);
            let tile = Tile { stages, ..tile };
            (stages >= 2 && tile.shared_bytes() <= gpu.smem_per_block).then_some(tile)
        };
        TILES.into_iter().filter_map(fit).collect()
    }

    pub(crate) fn threads(&self) -> u32 {
        32 * self.wm * self.wn * self.wk
    }

    pub(crate) fn stage_bytes(&self) -> u32 {
        (self.bm + self.bn) * self.chunks * 16
    }

    /// Dynamic shared memory: the stages, and then the accumulators in their place.
    pub(crate) fn shared_bytes(&self) -> usize {
        let acc_bytes = self.wk * self.bm * (self.bn + 8) * 4;
        (self.stages * self.stage_bytes()).max(acc_bytes) as usize
    }

    /// Whether a lane of the plain units has registers to take accumulators in parts, as product.cuh does.
    pub(crate) fn sums_in_parts(&self) -> bool {
        self.bm * self.bn / (self.wm * self.wn * 32) <= 64
    }

    /// k of one stage.
    pub(crate) fn depth(&self, math: Math) -> usize {
        self.chunks as usize * math.per_chunk()
    }

    pub(crate) fn rows(&self, m: usize) -> usize {
        m.div_ceil(self.bm as usize)
    }

    pub(crate) fn columns(&self, n: usize) -> usize {
        n.div_ceil(self.bn as usize)
    }
}

/// One way to compute a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) math: Math,
    pub(crate) tile: Tile,
    pub(crate) split: Split,
}

impl Way {
    /// As in `f16_128x64x8_w4x2x1_s3` or `f16_32x32x8_w1x1x4_s8_c4`.
    pub(crate) fn name(&self) -> String {
        let Tile { bm, bn, chunks, wm, wn, wk, stages } = self.tile;
        let split = match self.split {
            Split::None => String::new(),
            Split::Cluster(parts) => format!("_c{parts}"),
            Split::Memory(parts) => format!("_m{parts}"),
        };
        format!("{}_{bm}x{bn}x{chunks}_w{wm}x{wn}x{wk}_s{stages}{split}", self.math.name())
    }

    pub(crate) fn named(name: &str) -> Option<Way> {
        let mut parts = name.split('_');
        let math = Math::named(parts.next()?)?;
        let [bm, bn, chunks] = triple(parts.next()?)?;
        let [wm, wn, wk] = triple(parts.next()?.strip_prefix('w')?)?;
        let stages = parts.next()?.strip_prefix('s')?.parse().ok()?;
        let split = match parts.next() {
            None => Split::None,
            Some(split) if split.starts_with('c') => Split::Cluster(split[1..].parse().ok()?),
            Some(split) if split.starts_with('m') => Split::Memory(split[1..].parse().ok()?),
            Some(_) => return None,
        };
        let known = TILES.contains(&[bm, bn, chunks, wm, wn, wk]) && (2..=8).contains(&stages);
        let tile = Tile { bm, bn, chunks, wm, wn, wk, stages };
        let way = Way { math, tile, split };
        (known && split.parts() >= 1 && parts.next().is_none() && way.name() == name).then_some(way)
    }

    /// Ways for a product of these sizes: every tile that is not far too large, with splits that leave each
    /// part a few stages.
    pub(crate) fn all(gpu: &Gpu, math: Math, m: usize, n: usize, k: usize) -> Vec<Way> {
        let mut ways = Vec::new();
        for tile in Tile::all(gpu) {
            let fills = |block: u32, size: usize| block <= 32 || (block as usize) < 2 * size.max(1);
            if !fills(tile.bm, m) || !fills(tile.bn, n) {
                continue;
            }
            if math == Math::F32 && k > LONG_SUM && !tile.sums_in_parts() {
                continue;
            }
            let steps = k.div_ceil(tile.depth(math));
            ways.push(Way { math, tile, split: Split::None });
            let useful = |parts: u32| steps >= 2 * parts as usize;
            if gpu.sm >= 90 {
                // Consumer Blackwell has clusters too, but no more than 8 are portable anywhere.
                let clusters = [2, 3, 4, 6, 8].into_iter().filter(|parts| useful(*parts));
                ways.extend(clusters.map(|parts| Way { math, tile, split: Split::Cluster(parts) }));
            } else {
                let parts = [2, 4, 8].into_iter().filter(|parts| useful(*parts));
                ways.extend(parts.map(|parts| Way { math, tile, split: Split::Memory(parts) }));
            }
            if steps >= 64 {
                ways.push(Way { math, tile, split: Split::Memory(16) });
            }
        }
        ways
    }
}

fn triple(text: &str) -> Option<[u32; 3]> {
    let mut numbers = text.split('x').map(|number| number.parse::<u32>().ok());
    let triple = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(triple)
}
