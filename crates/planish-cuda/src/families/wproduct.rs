//! Matrix products and convolutions on Hopper's own units: TMA brings tiles, warpgroups
//! multiply them (wgmma), and clusters share long sums. What `wgemm` and `wconv` have in common.
//!
//! TMA asks for rows of whole 16-byte chunks; what has others is left to the families on `mma.sync`.

mod price;
mod tile;

#[cfg(test)]
mod tests;

pub(super) use price::{Amount, occupied};
pub(super) use tile::Tile;

use std::sync::Arc;

use planish_gpu::args::{self, ArgBytes, Field};
use planish_gpu::kernel_args;
use planish_gpu::space::int;
use planish_kernel::{Budget, Candidate, KernelError, Operand, Problem, Tactic, Want};
use planish_tensor::DType;

use super::product::epilogue::{Rows, TileEpilogue, TileEpilogueArgs};
use super::product::{self, Math, Offer};
use crate::driver::{Module, Swizzle, TensorMap};
use crate::family::Work;
use crate::gpu::Gpu;
use crate::launch::{self, Launch, Launches, Params, Slot};
use crate::source::Source;

const EPILOGUE: &str = include_str!("../../kernels/epilogue.cuh");
const HOPPER: &str = include_str!("../../kernels/hopper.cuh");
const BLOCK: &str = include_str!("../../kernels/epilogue_row.cuh");
const TILE: &str = include_str!("../../kernels/wtile.cuh");
const KERNEL: &str = include_str!("../../kernels/wproduct.cu");

/// Raised when the kernels change.
pub(super) const REVISION: u32 = 5;

/// Taps of a transposed convolution, at most.
pub(super) const MAX_TAPS: usize = 16;

kernel_args! {
    /// The sizes of the output's row dimensions, outermost first; `wanted` where some operand is not linear.
    pub(super) struct Places {
        size: [i32; 4],
        wanted: i32,
    }

    /// A convolution's windows: width, height, depth.
    pub(super) struct Window {
        /// Of the output.
        pub(super) size: [i32; 3],
        pub(super) stride: [i32; 3],
        pub(super) pad: [i32; 3],
        pub(super) taps: [i32; 3],
        pub(super) dilation: [i32; 3],
    }
}

impl Places {
    pub(super) fn new(epilogue: &TileEpilogue, problem: &Problem, rows: &Rows) -> Places {
        let size = rows.sizes.map(|size| size as i32);
        Places { size, wanted: i32::from(!epilogue.is_linear(problem, rows)) }
    }
}

impl Window {
    /// Of a matrix product.
    pub(super) const NONE: Window =
        Window { size: [1; 3], stride: [1; 3], pad: [0; 3], taps: [1; 3], dilation: [1; 3] };
}

kernel_args! {
    /// What wproduct.cu is given: sizes of the product, its tiles, and how its windows lie.
    struct WProductArgs {
        epilogue: TileEpilogueArgs,
        places: Places,
        m: i32,
        n: i32,
        /// Tiles along n, and all of them.
        tiles_n: i32,
        tiles: i32,
        /// Pieces of k, and those of one tap.
        chunks: i32,
        tap_chunks: i32,
        window: Window,
        /// Columns of one tap of a transposed convolution, and where the outputs of each begin.
        tap_columns: i32,
        out_taps: [i64; MAX_TAPS],
    }
}

/// The best of the candidates, in the order of their prices.
pub(super) fn best_of(candidates: Vec<Candidate>, budget: &Budget) -> Vec<Candidate> {
    product::best_of(candidates, budget.special, budget)
}

/// What TMA takes products in on this GPU; `None` where there is no TMA or no such type.
pub(super) fn math(gpu: &Gpu, problem: &Problem, stored: DType) -> Option<Math> {
    let math = Math::of(gpu, problem, stored);
    let takes = |math: &Math| matches!(math, Math::F16 | Math::BF16 | Math::I8 | Math::F8);
    (gpu.sm == 90).then_some(math)?.into_iter().find(takes)
}

/// The number type and the tile that a tactic's name tells.
pub(super) fn way_of(tactic: &Tactic, prefix: &str) -> Result<(Math, Tile), KernelError> {
    product::half_way_of(tactic, prefix, Tile::named)
}

/// A candidate for each tile, the best of them.
pub(super) fn candidates(
    gpu: &Gpu,
    prefix: &str,
    math: Math,
    amount: &Amount,
    offer: &Offer,
    budget: &Budget,
) -> Vec<Candidate> {
    let tiles = Tile::all(gpu, amount.m, amount.n, amount.taps, amount.c);
    let candidate = |tile: Tile| {
        let name = product::half_name(prefix, math, &tile.name());
        offer.candidate(name, REVISION, amount.price_ns(gpu, &tile))
    };
    best_of(tiles.into_iter().map(candidate).collect(), budget)
}

/// Stages, prices and maps count along k in places of 2 bytes: a number of 16 bits, or two bytes side by side. Both
/// multiply at the same rate, place by place, and copies do not look into them.
pub(super) fn places(math: Math, elements: usize) -> usize {
    match math {
        Math::I8 | Math::F8 => elements / 2,
        _ => elements,
    }
}

/// What maps are told that places hold.
const PLACE: DType = DType::F16;

/// A map over places; `dims` innermost first, strides in bytes.
pub(super) fn map(dims: &[u64], strides: &[u64], box_of: &[u32], bk: u32) -> TensorMap {
    TensorMap::new(PLACE, dims, strides, box_of, swizzle(bk))
}

/// A map of rows of `row` places, one after the other, which a box takes `bk` places of `count` rows of.
pub(super) fn rows_map(row: usize, rows: usize, bk: u32, count: u32) -> TensorMap {
    spaced_rows_map(row, rows, row as u64 * 2, bk, count)
}

/// The same with `pitch` bytes from one row to the next.
pub(super) fn spaced_rows_map(row: usize, rows: usize, pitch: u64, bk: u32, count: u32) -> TensorMap {
    map(&[row as u64, rows as u64], &[pitch], &[bk, count], bk)
}

/// A map of b: `n` rows of `row` places each, in the order that leaves `run` neighbouring columns to a lane (see
/// wtile.cuh). Products give a lane two columns of every eight: of row `8 j + 2 q + e` it brings column `run q + 2 j + e`,
/// in groups of four runs.
pub(super) fn runs_map(row: usize, n: usize, run: u32, bk: u32, bn: u32) -> TensorMap {
    let (row, group, pitch) = (row as u64, 4 * run, row as u64 * 2);
    let steps = [1, u64::from(run), 2, u64::from(group)].map(|rows| rows * pitch);
    let dims = [row, 2, 4, u64::from(run / 2), n as u64 / u64::from(group)];
    map(&dims, &steps, &[bk, 2, 4, run / 2, bn / group], bk)
}

/// Sizes of a channels-last image as a map takes them, innermost first, and its strides in bytes. `None` where TMA cannot
/// step over it: channels that are not side by side, or steps of no whole multiples.
pub(super) fn image_sizes(image: &Operand, math: Math) -> Option<(Vec<u64>, Vec<u64>)> {
    let bytes = image.dtype.bytes_for(1)?;
    let channels = places(math, image.dims[1]);
    if !image.contiguous_along(1) {
        return None;
    }
    let (mut dims, mut strides) = (vec![channels as u64], Vec::new());
    // What follows without a gap: the stride of an axis of one element says nothing.
    let mut next = 2 * channels;
    for axis in (2..image.rank()).rev().chain([0]) {
        let size = image.dims[axis];
        let stride = if size == 1 { next } else { image.strides[axis].checked_mul(bytes)? };
        if !stride.is_multiple_of(Want::ALIGNMENT) {
            return None;
        }
        dims.push(size as u64);
        strides.push(stride as u64);
        next = stride.checked_mul(size)?;
    }
    Some((dims, strides))
}

/// Bytes from one pixel of an image to the next, where the same for all of them, over rows and images too.
pub(super) fn pixel_pitch(image: &Operand, math: Math) -> Option<u64> {
    let (dims, strides) = image_sizes(image, math)?;
    let goes_on = |at: usize| strides[at] == strides[at - 1] * dims[at];
    (1..strides.len()).all(goes_on).then(|| strides[0])
}

fn swizzle(bk: u32) -> Swizzle {
    match bk {
        64 => Swizzle::B128,
        32 => Swizzle::B64,
        _ => Swizzle::B32,
    }
}

/// A product as both families see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    pub(super) problem: &'a Problem,
    pub(super) epilogue: &'a TileEpilogue,
    pub(super) rows: Rows,
    pub(super) math: Math,
    pub(super) tile: Tile,
    /// 0 for a matrix product, else how many spatial axes windows are gathered over.
    pub(super) kind: u32,
    /// Columns, and places of one tap along k.
    pub(super) n: usize,
    pub(super) c: usize,
    /// Whether no kernel writes the second factor.
    pub(super) b_weight: bool,
    /// Where the output of each tap begins, where columns are those of all taps of a transposed convolution.
    pub(super) out_taps: &'a [i64],
}

impl Setting<'_> {
    /// The text with what follows the accumulators, in front of a kernel.
    pub(super) fn text<A: Field + Default>(&self, kernel: &str) -> Result<String, KernelError> {
        let products = tile::products(self.tile.bn, self.math);
        let epilogue = self.epilogue.text(self.problem)?;
        let structures = args::text_of::<A>();
        Ok([&*structures, EPILOGUE, HOPPER, &epilogue, &products, BLOCK, TILE, kernel].join("\n"))
    }

    /// Neighbouring columns that a lane holds, as `RUN` in wtile.cuh.
    pub(super) fn run(&self) -> u32 {
        let Tile { bn, bk, split, .. } = self.tile;
        let fits = |run: u32| bn.is_multiple_of(4 * run) && self.n.is_multiple_of(4 * run as usize);
        // Maps have five dimensions: taps and channels are one, and no stage may reach from one tap into the next.
        if !fits(8) || (self.kind > 0 && !self.c.is_multiple_of(bk as usize)) {
            return 0;
        }
        let residual_fits = self.residual_bits().is_none_or(|bits| bits == 8);
        let sixteen = self.epilogue.gives_bytes(self.problem, &self.rows)
            && self.tap_columns().is_multiple_of(16)
            && split == 1
            && residual_fits;
        if sixteen && fits(16) { 16 } else { 8 }
    }

    /// Columns whose outputs lie side by side.
    fn tap_columns(&self) -> usize {
        self.n / self.out_taps.len().max(1)
    }

    fn residual_bits(&self) -> Option<usize> {
        self.epilogue.residual().map(|residual| self.problem.inputs[residual.input as usize].dtype.bits())
    }

    /// Whether residuals are fetched before the products begin. Wide tiles have no registers left for those of 16 bits.
    fn is_early(&self) -> bool {
        let few = self.tile.split > 1 || self.tile.bn <= 64 || self.run() == 16;
        few && self.residual_bits().is_some_and(|bits| bits <= 16)
    }

    /// The settings that kernels share.
    pub(super) fn defines(&self, source: Source) -> Source {
        let source = source
            .define("ACC", self.math.accumulator_in_c())
            .define("BM", self.tile.bm)
            .define("BN", self.tile.bn)
            .define("BK", self.tile.bk)
            .define("SPLIT", self.tile.split)
            .define("MIN_BLOCKS", self.tile.blocks)
            .define("OUT_TAPS", self.out_taps.len())
            .define("RUN", self.run());
        self.epilogue.define(source, self.problem, &self.rows)
    }

    /// The map of b, whose rows have so many places.
    pub(super) fn map_b(&self, row: usize) -> TensorMap {
        let Tile { bn, bk, .. } = self.tile;
        match self.run() {
            0 => rows_map(row, self.n, bk, bn),
            run => runs_map(row, self.n, run, bk, bn),
        }
    }

    /// Tiles of residuals that TMA brings ahead: as many as leave room for the tile's blocks. None where residuals do not
    /// lie as the rows do.
    fn residuals_ahead(&self, gpu: &Gpu) -> u32 {
        let lies = self.epilogue.residual_is_dense(self.problem, &self.rows, self.n);
        if self.tile.split > 1 || !lies || self.residual_bits().is_none_or(|bits| bits > 16) {
            return 0;
        }
        let room = gpu.smem_per_block.min(gpu.smem_per_sm / self.tile.blocks as usize - 1024);
        [2, 1].into_iter().find(|ahead| self.shared_bytes(*ahead) <= room).unwrap_or(0)
    }

    fn shared_bytes(&self, residuals: u32) -> usize {
        let residual = (self.tile.bm * self.tile.bn) as usize * self.residual_bits().unwrap_or(0) / 8;
        self.tile.shared_bytes() + residuals as usize * (residual + 16)
    }

    pub(super) fn source(&self, gpu: &Gpu) -> Result<Source, KernelError> {
        let residuals = self.residuals_ahead(gpu);
        let source = Source::new("wproduct.cu", self.text::<WProductArgs>(KERNEL)?, "wproduct")
            .define("KIND", self.kind)
            .define("STAGES", self.tile.stages)
            .define("B_WEIGHT", u32::from(self.b_weight))
            .define("RESIDUALS", residuals)
            .define("EARLY", u32::from(residuals > 0 || self.is_early()));
        Ok(self.defines(source))
    }

    /// The settings of a kernel that fetches its residuals by loads.
    pub(super) fn defines_with_loads(&self, source: Source) -> Source {
        let source = source.define("RESIDUALS", 0).define("EARLY", u32::from(self.is_early()));
        self.defines(source)
    }

    /// The parameters of both kernels: the maps, what follows the accumulators, and the kernel's own.
    pub(super) fn params(
        &self,
        maps: impl IntoIterator<Item = (usize, TensorMap)>,
        own: &impl Field,
    ) -> Params {
        let add =
            |params: Params, (input, map): (usize, TensorMap)| params.tensor_map(Slot::Input(input), 0, map);
        let params = maps.into_iter().fold(Params::new(), add);
        self.epilogue.addresses(params).structure(&ArgBytes::of(own))
    }

    /// The launch: both factors with their maps, sizes of the product (`k` of one tap), and the windows.
    pub(super) fn launch(
        &self,
        gpu: &Gpu,
        module: &Arc<Module>,
        factors: [(usize, TensorMap); 2],
        amount: &Amount,
        window: Window,
    ) -> Result<Box<dyn Work>, KernelError> {
        let tile = &self.tile;
        let tiles_n = amount.n.div_ceil(tile.bn as usize);
        let tiles = amount.m.div_ceil(tile.bm as usize) * tiles_n;
        let tap_chunks = amount.c.div_ceil(tile.bk as usize);
        let mut out_taps = [0; MAX_TAPS];
        out_taps[..self.out_taps.len()].copy_from_slice(self.out_taps);
        let arguments = WProductArgs {
            epilogue: self.epilogue.args(self.problem, &self.rows),
            places: Places::new(self.epilogue, self.problem, &self.rows),
            m: int(amount.m)?,
            n: int(amount.n)?,
            tiles_n: int(tiles_n)?,
            tiles: int(tiles)?,
            chunks: int(tap_chunks * amount.taps)?,
            tap_chunks: int(tap_chunks)?,
            window,
            tap_columns: int(self.tap_columns())?,
            out_taps,
        };
        let function = module.function("wproduct")?;
        let residuals = self.residuals_ahead(gpu);
        let (threads, shared) = (tile.threads(), self.shared_bytes(residuals));
        let blocks = match tile.split {
            // As many as there is room for go from tile to tile; with their columns, where that idles few.
            1 => {
                let room = launch::room(gpu, &function, threads, shared)?;
                let idle = room % tiles_n;
                tiles.min(if idle * 16 <= room { room - idle } else { room })
            }
            split => tiles * split as usize,
        };
        int(blocks)?;
        let residual = self.epilogue.residual().filter(|_| residuals > 0).map(|residual| {
            let operand = &self.problem.inputs[residual.input as usize];
            let (n, bytes) = (amount.n as u64, operand.dtype.bits() as u64 / 8);
            let dims = [n, amount.m as u64];
            let map = TensorMap::new(operand.dtype, &dims, &[n * bytes], &[tile.bn, tile.bm], Swizzle::None);
            (residual.input as usize, map)
        });
        let maps = factors.into_iter().chain(residual);
        let launch = Launch::line(function, blocks, threads, self.params(maps, &arguments));
        Ok(Launches::one(launch.with_shared(shared)?.programmatic()))
    }
}
