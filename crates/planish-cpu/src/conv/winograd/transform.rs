//! Winograd's transforms of whole tiles, vectors of channels at a time: pixels to points, products to pixels.

use std::ops::Range;

use super::algebra::{Axis, Four, One, POINTS, Two};
use super::{Block, Border, Kind, OutputTile, Products, Winograd};
use crate::conv::geometry::AXES;
use crate::conv::{ConvCall, LINE, prefetch};
use crate::simd::{Simd, SimdKernel, arrays};

/// Pixels of f32.
#[derive(Debug)]
pub enum Floats {}

impl Border for Floats {
    type Call<'a> = ConvCall<'a>;

    const TAKES_LIVE: bool = true;

    fn weights(call: &ConvCall<'_>) -> *const f32 {
        call.weights
    }

    unsafe fn transform_inputs(
        plan: &Winograd,
        call: &ConvCall<'_>,
        block: &Block,
        tiles: Range<usize>,
        to: *mut f32,
    ) {
        plan.isa.run(InputTiles { plan, block, input: call.input, tiles, to });
    }

    unsafe fn transform_outputs(plan: &Winograd, call: &ConvCall<'_>, block: &Block, products: Products) {
        plan.isa.run(OutputTiles { plan, block, call, products });
    }
}

/// Transforms tiles of a block, all channels.
struct InputTiles<'a> {
    plan: &'a Winograd,
    block: &'a Block,
    input: *const f32,
    /// Which of the block's input tiles.
    tiles: Range<usize>,
    /// The block's first tile at the first point.
    to: *mut f32,
}

/// Tiles are transformed by the plan's kind.
macro_rules! by_kind {
    ($($tiles:ident)*) => {$(
        impl SimdKernel for $tiles<'_> {
            type Output = ();

            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                // SAFETY: whoever made it grants the pixels, the points' memory, bias and residual.
                unsafe {
                    match self.plan.kind {
                        Kind::Two => self.transform::<S, Two, Two>(s),
                        Kind::Four => self.transform::<S, Four, Four>(s),
                        Kind::Row => self.transform::<S, One, Four>(s),
                    }
                }
            }
        }
    )*};
}

by_kind!(InputTiles OutputTiles);

impl InputTiles<'_> {
    #[inline(always)]
    unsafe fn transform<S: Simd, Y: Axis, X: Axis>(&self, s: S) {
        let (c, point_stride) = (self.plan.geometry.c, self.block.point_stride);
        let [_, row_stride, pixel_stride] = self.plan.geometry.input.axes;
        for idx in self.tiles.clone() {
            let tile = self.plan.input_tile(self.block, idx);
            let first = self.input.wrapping_offset(tile.at);
            // SAFETY: the block has room for its tiles.
            let to = unsafe { self.to.add(idx * self.plan.padded_c) };
            let whole = c - c % S::LANES;
            let tail = c - whole;
            // The pixels that the next tile but one does not share with the next, if it lies in the same row.
            let ahead = first.wrapping_add((X::IN + X::OUT) * pixel_stride);
            let rows_ahead = if self.plan.prefetches { tile.rows.clone() } else { 0..0 };
            for y in rows_ahead {
                for x in 0..X::OUT {
                    let pixel = ahead.wrapping_add(y * row_stride + x * pixel_stride);
                    (0..c).step_by(LINE).for_each(|c| prefetch(pixel.wrapping_add(c)));
                }
            }
            // SAFETY: pixels inside the image have `c` channels, `zeros` too; points have room for whole
            // vectors.
            unsafe {
                if tile.rows.len() == Y::IN && tile.cols.len() == X::IN {
                    let at = |y: usize, x: usize| first.add(y * row_stride + x * pixel_stride);
                    for c in (0..whole).step_by(S::LANES) {
                        input_vector::<S, Y, X>(s, to.add(c), point_stride, |y, x| s.load(at(y, x).add(c)));
                    }
                    if tail > 0 {
                        let load = |y, x| s.load_part(at(y, x).add(whole), tail);
                        input_vector::<S, Y, X>(s, to.add(whole), point_stride, load);
                    }
                    continue;
                }
                let mut pixels = [[self.plan.zeros.as_ptr(); POINTS]; POINTS];
                for y in tile.rows.clone() {
                    for x in tile.cols.clone() {
                        pixels[y][x] = first.wrapping_add(y * row_stride + x * pixel_stride);
                    }
                }
                for c in (0..whole).step_by(S::LANES) {
                    input_vector::<S, Y, X>(s, to.add(c), point_stride, |y, x| s.load(pixels[y][x].add(c)));
                }
                if tail > 0 {
                    let load = |y: usize, x: usize| s.load_part(pixels[y][x].add(whole), tail);
                    input_vector::<S, Y, X>(s, to.add(whole), point_stride, load);
                }
            }
        }
    }
}

/// One vector of channels, along columns first, then along rows. The 36 values between the two do not fit the
/// registers. Where halves of them do, six points are made in two halves, for which the pixels are loaded twice: stores
/// are what the transform waits for. Sixteen registers do not hold half of them either, and then storing all is cheaper
/// than computing twice (AVX2 on a Zen 5: 106 cycles a vector, with halves 130; AVX-512 140 and 127).
///
/// # Safety
/// `to` must be writable for a vector at every point.
#[inline(always)]
unsafe fn input_vector<S: Simd, Y: Axis, X: Axis>(
    s: S,
    to: *mut f32,
    point_stride: usize,
    load: impl Fn(usize, usize) -> S::F,
) {
    // SAFETY: granted by the caller.
    unsafe {
        if Y::IN == POINTS && S::REGISTERS > 16 {
            input_rows::<S, Y, X>(s, to, point_stride, 0..POINTS / 2, &load);
            input_rows::<S, Y, X>(s, to, point_stride, POINTS / 2..POINTS, &load);
        } else {
            input_rows::<S, Y, X>(s, to, point_stride, 0..Y::IN, &load);
        }
    }
}

/// The points of some rows; what the others need is not computed.
///
/// # Safety
/// As for [`input_vector`].
#[inline(always)]
unsafe fn input_rows<S: Simd, Y: Axis, X: Axis>(
    s: S,
    to: *mut f32,
    point_stride: usize,
    rows: Range<usize>,
    load: &impl Fn(usize, usize) -> S::F,
) {
    let mut half = [[s.zero(); POINTS]; POINTS];
    // Written column by column, read row by row.
    #[allow(clippy::needless_range_loop)]
    for x in 0..X::IN {
        let mut d = [s.zero(); POINTS];
        for (y, d) in d.iter_mut().enumerate().take(Y::IN) {
            *d = load(y, x);
        }
        let points = Y::input(s, d);
        for y in rows.clone() {
            half[y][x] = points[y];
        }
    }
    for y in rows {
        let points = X::input(s, half[y]);
        for (x, point) in points.iter().enumerate().take(X::IN) {
            // SAFETY: granted by the caller.
            unsafe { s.store(to.add((y * X::IN + x) * point_stride), *point) };
        }
    }
}

/// Transforms the products of tiles back to pixels, with what follows the sum.
struct OutputTiles<'a> {
    plan: &'a Winograd,
    block: &'a Block,
    call: &'a ConvCall<'a>,
    products: Products,
}

impl OutputTiles<'_> {
    #[inline(always)]
    unsafe fn transform<S: Simd, Y: Axis, X: Axis>(&self, s: S) {
        let Products { tiles, channels, from, tile_stride, .. } = &self.products;
        for (idx, row) in tiles.clone().enumerate() {
            let tile = self.plan.output_tile(self.block, row);
            let output = self.call.output.wrapping_add(tile.output);
            // Where the next tile's pixels go, if it lies in the same row.
            let [_, row_stride, pixel_stride] = self.plan.geometry.output.axes;
            for y in 0..if self.plan.prefetches { tile.rows } else { 0 } {
                for x in X::OUT..2 * X::OUT {
                    let pixel = output.wrapping_add(y * row_stride + x * pixel_stride);
                    channels.clone().step_by(LINE).for_each(|c| prefetch(pixel.wrapping_add(c)));
                }
            }
            for channel in channels.clone().step_by(S::LANES) {
                let n = (channels.end - channel).min(S::LANES);
                // SAFETY: products are stored in whole vectors; pixels have `n` channels from `channel` on.
                unsafe {
                    let from = from.add(idx * tile_stride + channel - channels.start);
                    if n == S::LANES {
                        let store = |to, value| s.store(to, value);
                        self.vector::<S, Y, X>(s, &tile, from, channel, |from| s.load(from), store);
                    } else {
                        let load = |from| s.load_part(from, n);
                        let store = |to, value| s.store_part(to, n, value);
                        self.vector::<S, Y, X>(s, &tile, from, channel, load, store);
                    }
                }
            }
        }
    }

    /// One vector of channels: along rows first, then along columns.
    #[inline(always)]
    unsafe fn vector<S: Simd, Y: Axis, X: Axis>(
        &self,
        s: S,
        tile: &OutputTile,
        from: *const f32,
        channel: usize,
        load: impl Fn(*const f32) -> S::F,
        store: impl Fn(*mut f32, S::F),
    ) {
        let [_, row_stride, pixel_stride] = self.plan.geometry.output.axes;
        let residual = self.plan.geometry.residual.map_or([0; AXES], |pixels| pixels.axes);
        let (lo, hi) = (s.splat(self.call.lo), s.splat(self.call.hi));
        let mut half = [[s.zero(); POINTS]; POINTS];
        // SAFETY: granted by the caller.
        unsafe {
            for (y, row) in half.iter_mut().enumerate().take(Y::IN) {
                let mut m = [s.zero(); POINTS];
                for (x, m) in m.iter_mut().enumerate().take(X::IN) {
                    *m = s.load(from.add((y * X::IN + x) * self.products.point_stride));
                }
                *row = X::output(s, m);
            }
            let bias = if self.call.bias.is_null() { s.zero() } else { load(self.call.bias.add(channel)) };
            // Written row by row, read column by column.
            #[allow(clippy::needless_range_loop)]
            for x in 0..X::OUT {
                let m = arrays::from_fn(|y| half[y][x]);
                let pixels = Y::output(s, m);
                for (y, pixel) in pixels.iter().enumerate().take(Y::OUT) {
                    if y >= tile.rows || x >= tile.cols {
                        continue;
                    }
                    let mut value = s.add(*pixel, bias);
                    if let Some(at) = tile.residual {
                        let at = at + y * residual[1] + x * residual[2] + channel;
                        value = s.add(value, load(self.call.residual.add(at)));
                    }
                    // The second operand is the answer where one is NaN, so a NaN sum stays.
                    value = s.min(hi, s.max(lo, value));
                    let to = tile.output + y * row_stride + x * pixel_stride + channel;
                    store(self.call.output.add(to), value);
                }
            }
        }
    }
}
