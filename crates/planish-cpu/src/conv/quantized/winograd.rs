//! Winograd's F(2x2, 3x3) of bytes, exact: 2.25 times fewer multiplications, in 16 bits.
//!
//! Activations less their zero point are at most 255 in size, at the points at most 4 times that. Weights at the points
//! are halves and quarters of whole numbers, so they are kept four times as large: at most 9 · 128. Both fit 16 bits, and
//! two channels of them are an element of [`winograd`](crate::conv::winograd)'s driver, whose tile multiplies and adds
//! pairs (`vpmaddwd`). Sums and what is made of them wrap around in 32 bits, which does not matter: the result, four
//! times the sum of the convolution, fits.
//!
//! It is for machines with AVX2 and no more: where four products of bytes are one instruction, these win.

mod tile;

use std::arch::x86_64::*;
use std::ops::Range;

use super::finish::{Finish, kind};
use super::region::{Form, Quantized, WeightZeros};
use super::words::{LANES, MAX_CHANNELS};
use crate::conv::RunCall;
use crate::conv::geometry::{AXES, Geometry, Pixels};
use crate::conv::winograd::{Block, Border, Cut, InputTile, Kind, Products, Winograd};
use crate::gemm::table::Panels;
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel, arrays};

/// Multiply-adds a cycle against those of f32, in elements of two channels: each is two instructions, which more ports
/// take.
const SPEED: f64 = 0.73;

/// Pixels of bytes.
#[derive(Debug)]
pub(super) enum Bytes {}

/// The addresses and numbers of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct BytesCall {
    pub(super) input: *const u8,
    pub(super) input_zero: u8,
    pub(super) weights: *const u8,
    pub(super) finish: Finish,
    pub(super) workspace: *mut u8,
}

// SAFETY: tasks write disjoint parts of the output and of the workspace; the rest is read.
unsafe impl Sync for BytesCall {}
// SAFETY: as above: the addresses belong to no thread.
unsafe impl Send for BytesCall {}

/// The ways of cutting the work: blocks of a few of the tile's rows, or of many.
pub(super) const CUTS: [Cut; 4] = [Cut::Fused(12), Cut::Fused(24), Cut::Fused(48), Cut::Phased(192)];

/// As in `2_i16_6x16_avx2_fused24`.
pub(super) fn name(cut: Cut) -> String {
    format!("2_i16_6x16_avx2_{}", cut.name())
}

/// How wide panels are, where the machine has the tile.
pub(super) fn panels(isa: Isa) -> Option<Panels> {
    tile::of(isa).map(Panels::from)
}

/// A plan; `None` where it does not compute this. The geometry counts quads of channels.
pub(super) fn plan(
    isa: Isa,
    quantized: &Quantized,
    geometry: &Geometry,
    cut: Cut,
) -> Option<Winograd<Bytes>> {
    let tile = tile::of(isa)?;
    let Form::Conv(convolution) = &quantized.form else { return None };
    let fits = quantized.weight_zeros == WeightZeros::None
        && convolution.c.is_multiple_of(LANES)
        && convolution.c <= MAX_CHANNELS
        && geometry.axes[0].kernel == 1;
    if !fits {
        return None;
    }
    let Pixels { image, axes, channel } = geometry.input;
    let input = Pixels { image: image * super::QUAD, axes: axes.map(|stride| stride * super::QUAD), channel };
    // An element is two channels, half of a quad.
    let geometry = Geometry { c: geometry.c * 2, input, ..geometry.clone() };
    Winograd::between(Kind::Two, cut, geometry, tile.isa(), tile)
}

/// Expected nanoseconds.
pub(super) fn cost(plan: &Winograd<Bytes>, cut: Cut, threads: usize) -> f64 {
    let way = (Kind::Two, cut, SPEED);
    crate::conv::cost::winograd(&plan.geometry, plan.isa, plan.tile, way, plan.n_tasks(), threads)
}

impl Border for Bytes {
    type Call<'a> = BytesCall;

    const TAKES_LIVE: bool = false;

    fn weights(call: &BytesCall) -> *const f32 {
        call.weights.cast()
    }

    unsafe fn transform_inputs(
        plan: &Winograd<Bytes>,
        call: &BytesCall,
        block: &Block,
        tiles: Range<usize>,
        to: *mut f32,
    ) {
        // SAFETY: plans exist only where AVX2 does; the rest is granted by the caller.
        unsafe { input_tiles(plan, call, block, tiles, to) }
    }

    unsafe fn transform_outputs(plan: &Winograd<Bytes>, call: &BytesCall, block: &Block, products: Products) {
        plan.isa.run(OutputTiles { plan, call, block, products });
    }
}

impl RunCall for BytesCall {
    fn workspace(&self) -> *mut u8 {
        self.workspace
    }
}

/// # Safety
/// As for [`Border::transform_inputs`], with AVX2.
#[target_feature(enable = "avx2")]
unsafe fn input_tiles(
    plan: &Winograd<Bytes>,
    call: &BytesCall,
    block: &Block,
    tiles: Range<usize>,
    to: *mut f32,
) {
    let zero = _mm256_set1_epi16(call.input_zero.into());
    let [_, row_stride, pixel_stride] = plan.geometry.input.axes;
    let n_vectors = 2 * plan.geometry.c / LANES;
    for idx in tiles {
        let InputTile { at, rows, cols } = plan.input_tile(block, idx);
        let pixel = call.input.wrapping_offset(at);
        let is_whole = rows.len() == SIDE && cols.len() == SIDE;
        for vector in 0..n_vectors {
            let channels = pixel.wrapping_add(vector * LANES);
            // SAFETY: pixels inside the image have these channels, the block has room for its tiles.
            unsafe {
                let load = |y: usize, x: usize| {
                    let from = channels.wrapping_add(y * row_stride + x * pixel_stride);
                    _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(from.cast())), zero)
                };
                let mut pixels = [[_mm256_setzero_si256(); SIDE]; SIDE];
                for (y, row) in pixels.iter_mut().enumerate() {
                    for (x, pixel) in row.iter_mut().enumerate() {
                        if is_whole || rows.contains(&y) && cols.contains(&x) {
                            *pixel = load(y, x);
                        }
                    }
                }
                let to = to.add(idx * plan.padded_c + vector * LANES / 2);
                for (y, row) in points_of_columns(pixels).into_iter().enumerate() {
                    for (x, point) in to_points(row).into_iter().enumerate() {
                        let to = to.add((y * SIDE + x) * block.point_stride);
                        _mm256_storeu_si256(to.cast(), point);
                    }
                }
            }
        }
    }
}

/// Pixels and points of a tile's side.
const SIDE: usize = 4;

/// Each column of pixels to its points; a row of the result is one point of all columns.
#[inline]
#[target_feature(enable = "avx2")]
fn points_of_columns(pixels: [[__m256i; SIDE]; SIDE]) -> [[__m256i; SIDE]; SIDE] {
    let mut points = [[_mm256_setzero_si256(); SIDE]; SIDE];
    for x in 0..SIDE {
        let column = to_points([pixels[0][x], pixels[1][x], pixels[2][x], pixels[3][x]]);
        for (row, point) in points.iter_mut().zip(column) {
            row[x] = point;
        }
    }
    points
}

/// The values at 0, 1, -1 and infinity, as [`crate::conv::winograd::algebra`] has them.
#[inline]
#[target_feature(enable = "avx2")]
fn to_points(d: [__m256i; SIDE]) -> [__m256i; SIDE] {
    [
        _mm256_sub_epi16(d[2], d[0]),
        _mm256_add_epi16(d[2], d[1]),
        _mm256_sub_epi16(d[2], d[1]),
        _mm256_sub_epi16(d[3], d[1]),
    ]
}

/// Transforms products back, with what follows the sum.
struct OutputTiles<'a> {
    plan: &'a Winograd<Bytes>,
    call: &'a BytesCall,
    block: &'a Block,
    products: Products,
}

impl SimdKernel for OutputTiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let channels = self.products.channels.clone();
        for channel in channels.clone().step_by(S::LANES) {
            let n = (channels.end - channel).min(S::LANES);
            // SAFETY: whoever made it grants products, scales, bias, residual and output.
            unsafe {
                match self.call.finish.kind(n == S::LANES) {
                    kind::BYTES => self.vector::<S, { kind::BYTES }>(s, channel, n),
                    kind::SUM => self.vector::<S, { kind::SUM }>(s, channel, n),
                    _ => self.vector::<S, { kind::ANY }>(s, channel, n),
                }
            }
        }
    }
}

impl OutputTiles<'_> {
    /// `n` channels from `channel` on, of all tiles.
    ///
    /// # Safety
    /// Products, scales, bias, residual and output must be there.
    #[inline(always)]
    unsafe fn vector<S: Simd, const KIND: u8>(&self, s: S, channel: usize, n: usize) {
        let Products { tiles, channels, from, tile_stride, point_stride } = self.products.clone();
        let g = &self.plan.geometry;
        let [_, row_stride, pixel_stride] = g.output.axes;
        let residual_strides = g.residual.map_or([0; AXES], |pixels| pixels.axes);
        // SAFETY: granted by the caller.
        unsafe {
            let scales = self.call.finish.channels(s, channel, n).times(s, 0.25);
            for (idx, row) in tiles.enumerate() {
                let tile = self.plan.output_tile(self.block, row);
                let from = from.add(idx * tile_stride + channel - channels.start).cast::<i32>();
                let mut half = [[s.splat_int(0); SIDE]; 2];
                // Written column by column, read row by row.
                #[allow(clippy::needless_range_loop)]
                for x in 0..SIDE {
                    let m: [S::I; SIDE] =
                        arrays::from_fn(|y| s.load_int(from.add((y * SIDE + x) * point_stride)));
                    let [first, second] = to_pixels(s, m);
                    (half[0][x], half[1][x]) = (first, second);
                }
                for (y, half) in half.into_iter().enumerate().take(tile.rows) {
                    for (x, sum) in to_pixels(s, half).into_iter().enumerate().take(tile.cols) {
                        let residual = tile.residual.unwrap_or(0)
                            + y * residual_strides[1]
                            + x * residual_strides[2]
                            + channel;
                        let to = tile.output + y * row_stride + x * pixel_stride + channel;
                        self.call.finish.store::<S, KIND>(s, &scales, s.to_float(sum), residual, to);
                    }
                }
            }
        }
    }
}

/// Products at the points to two pixels.
#[inline(always)]
fn to_pixels<S: Simd>(s: S, m: [S::I; SIDE]) -> [S::I; 2] {
    let first = s.add_int(s.add_int(m[1], m[2]), m[0]);
    let second = s.add_int(s.sub_int(m[1], m[2]), m[3]);
    [first, second]
}
