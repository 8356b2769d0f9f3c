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
use planish_kernel::{Budget, Candidate, KernelError, Problem, Tactic};
use planish_tensor::DType;

use super::conv::region::Convolution;
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
pub(super) const REVISION: u32 = 3;

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
    }
}

/// The best of the candidates, in the order of their prices.
pub(super) fn best_of(candidates: Vec<Candidate>, budget: &Budget) -> Vec<Candidate> {
    product::best_of(candidates, budget.special, budget)
}

/// What TMA takes products in on this GPU; `None` where there is no TMA or no such type.
pub(super) fn math(gpu: &Gpu, problem: &Problem, stored: DType) -> Option<Math> {
    let math = Math::of(gpu, problem, stored);
    let takes = |math: &Math| matches!(math, Math::F16 | Math::BF16 | Math::I8);
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
        Math::I8 => elements / 2,
        _ => elements,
    }
}

/// What maps are told that places hold.
const PLACE: DType = DType::F16;

/// A map over places; `dims` innermost first, strides in bytes.
pub(super) fn map(dims: &[u64], strides: &[u64], box_of: &[u32], bk: u32) -> TensorMap {
    TensorMap::new(PLACE, dims, strides, box_of, swizzle(bk))
}

/// A map of rows of `row` places, which a box takes `bk` places of `count` rows of.
pub(super) fn rows_map(row: usize, rows: usize, bk: u32, count: u32) -> TensorMap {
    let row = row as u64;
    map(&[row, rows as u64], &[row * 2], &[bk, count], bk)
}

/// Sizes of a convolution's image as a map takes them, channels innermost and dense, and its strides in bytes.
pub(super) fn image_sizes(convolution: &Convolution, problem: &Problem, math: Math) -> (Vec<u64>, Vec<u64>) {
    let mut dims = vec![places(math, convolution.c) as u64];
    let sizes = convolution.along(|axis| axis.input);
    dims.extend(sizes[..convolution.spatial].iter().map(|size| *size as u64));
    let mut strides = vec![2 * dims[0]];
    strides.extend(dims[1..].iter().scan(2 * dims[0], |step, size| {
        *step *= size;
        Some(*step)
    }));
    dims.push(problem.inputs[convolution.x].dims[0] as u64);
    (dims, strides)
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
    /// Whether no kernel writes the second factor.
    pub(super) b_weight: bool,
}

impl Setting<'_> {
    /// The text with what follows the accumulators, in front of a kernel.
    pub(super) fn text<A: Field + Default>(&self, kernel: &str) -> Result<String, KernelError> {
        let products = tile::products(self.tile.bn, self.math);
        let epilogue = self.epilogue.text(self.problem)?;
        let structures = args::text_of::<A>();
        Ok([&*structures, EPILOGUE, HOPPER, &epilogue, &products, BLOCK, TILE, kernel].join("\n"))
    }

    /// The settings that kernels share.
    pub(super) fn defines(&self, source: Source) -> Source {
        let residual = self.epilogue.residual();
        // Wide tiles have no registers left for residuals that wait.
        let early = (self.tile.split > 1 || self.tile.bn <= 64)
            && residual
                .is_some_and(|residual| self.problem.inputs[residual.input as usize].dtype.bits() <= 16);
        let source = source
            .define("ACC", self.math.accumulator_in_c())
            .define("BM", self.tile.bm)
            .define("BN", self.tile.bn)
            .define("BK", self.tile.bk)
            .define("SPLIT", self.tile.split)
            .define("MIN_BLOCKS", self.tile.blocks)
            .define("EARLY", u32::from(early));
        self.epilogue.define(source, self.problem, &self.rows)
    }

    pub(super) fn source(&self) -> Result<Source, KernelError> {
        let source = Source::new("wproduct.cu", self.text::<WProductArgs>(KERNEL)?, "wproduct")
            .define("KIND", self.kind)
            .define("STAGES", self.tile.stages)
            .define("B_WEIGHT", u32::from(self.b_weight));
        Ok(self.defines(source))
    }

    /// The parameters of both kernels: the factors' maps, what follows the accumulators, and the kernel's own.
    pub(super) fn params(&self, factors: [(usize, TensorMap); 2], own: &impl Field) -> Params {
        let [(a, map_a), (b, map_b)] = factors;
        let params = Params::new().tensor_map(Slot::Input(a), 0, map_a).tensor_map(Slot::Input(b), 0, map_b);
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
        };
        let function = module.function("wproduct")?;
        let (threads, shared) = (tile.threads(), tile.shared_bytes());
        let blocks = match tile.split {
            // As many as there is room for go from tile to tile.
            1 => tiles.min(launch::room(gpu, &function, threads, shared)?),
            split => tiles * split as usize,
        };
        int(blocks)?;
        let launch = Launch::line(function, blocks, threads, self.params(factors, &arguments));
        Ok(Launches::one(launch.with_shared(shared)?.programmatic()))
    }
}
