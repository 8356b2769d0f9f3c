//! Rows of a depthwise convolution: the vector code.

use std::ops::Range;

use super::{Depthwise, DepthwiseArguments, OutputRow, TILE, Tile, pitch};
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};

/// Output rows to compute.
pub(super) struct RowsCall<'a> {
    pub(super) plan: &'a Depthwise,
    pub(super) arguments: &'a DepthwiseArguments<'a>,
    pub(super) rows: Range<usize>,
    pub(super) channels: Range<usize>,
    pub(super) slot: usize,
}

/// `K` taps along the row, `STRIDE` pixels apart, no dilation.
pub(super) fn sliding<const K: usize, const STRIDE: usize>(isa: Isa, call: &RowsCall<'_>) {
    isa.run(Sliding::<K, STRIDE>(call));
}

/// Any taps, strides and dilations; `REPEATS` where an input channel has several output channels.
pub(super) fn general<const REPEATS: bool>(isa: Isa, call: &RowsCall<'_>) {
    isa.run(General::<REPEATS>(call));
}

struct Sliding<'a, const K: usize, const STRIDE: usize>(&'a RowsCall<'a>);
struct General<'a, const REPEATS: bool>(&'a RowsCall<'a>);

/// A tile of one row with its channels still to be walked. Pointers are those of channel 0.
struct TileCall<'a> {
    /// The first column of the tile's first window under the first tap row; may lie before the image.
    x: *const f32,
    /// The weights of the first tap row.
    weights: *const f32,
    bias: *const f32,
    y: *mut f32,
    tile: &'a Tile,
    /// Tap rows that lie in the image: counts, and elements from one to the next in the input and in the
    /// weights.
    depths: TapRows,
    heights: TapRows,
    in_pixel: usize,
    out_pixel: usize,
    pitch: usize,
    clamp: (f32, f32),
    prefetches: bool,
}

struct TapRows {
    n: usize,
    input: usize,
    weights: usize,
}

impl RowsCall<'_> {
    /// Walks rows and tiles.
    #[inline(always)]
    fn for_each_tile(&self, visit: impl Fn(&TileCall<'_>)) {
        let (plan, windows) = (self.plan, &self.plan.windows);
        let [depth, height, width] = &windows.axes;
        let pitch = pitch(windows.channels);
        for row in self.rows.clone() {
            let [n, d, h] = windows.row(row);
            let (d_taps, h_taps) = (depth.taps(d), height.taps(h));
            let at = |axis: &planish_op::window::PlacedAxis, window: usize, taps: &Range<usize>| {
                (window * axis.stride + taps.start * axis.dilation).saturating_sub(axis.pad_begin)
            };
            let tap_row = (d_taps.start * height.kernel + h_taps.start) * width.kernel;
            let in_row = n * windows.from.batch
                + at(depth, d, &d_taps) * windows.from.axes[0]
                + at(height, h, &h_taps) * windows.from.axes[1];
            let out_row = n * windows.to.batch + d * windows.to.axes[0] + h * windows.to.axes[1];
            for tile in &plan.tiles {
                let column = (tile.start * width.stride) as isize - width.pad_begin as isize;
                let in_pixel = windows.from.axes[2];
                visit(&TileCall {
                    // May point before the image; only columns inside are read.
                    x: self
                        .arguments
                        .x
                        .wrapping_add(in_row)
                        .wrapping_offset(column.wrapping_mul(in_pixel as isize)),
                    weights: self.arguments.weights.wrapping_add(tap_row * pitch),
                    bias: self.arguments.bias,
                    y: self.arguments.y.wrapping_add(out_row + tile.start * windows.to.axes[2]),
                    tile,
                    depths: TapRows {
                        n: d_taps.len(),
                        input: depth.dilation * windows.from.axes[0],
                        weights: height.kernel * width.kernel * pitch,
                    },
                    heights: TapRows {
                        n: h_taps.len(),
                        input: height.dilation * windows.from.axes[1],
                        weights: width.kernel * pitch,
                    },
                    in_pixel,
                    out_pixel: windows.to.axes[2],
                    pitch,
                    clamp: plan.clamp,
                    prefetches: plan.prefetches,
                });
            }
            if let Some(hook) = self.arguments.hook {
                hook(OutputRow {
                    start: self.arguments.y.wrapping_add(out_row + self.channels.start),
                    n_pixels: width.output,
                    pixel_stride: windows.to.axes[2],
                    channels: self.channels.clone(),
                    first_pixel: row * width.output,
                    slot: self.slot,
                });
            }
        }
    }
}

impl<const K: usize, const STRIDE: usize> SimdKernel for Sliding<'_, K, STRIDE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Range { start, end } = self.0.channels;
        self.0.for_each_tile(
            #[inline(always)]
            |tile| {
                let mut c = start;
                // SAFETY: the caller of `Depthwise::run` grants the memory; the columns that are read lie in
                // the image, and channel vectors end with the last channel.
                unsafe {
                    if tile.tile.is_inside {
                        while c + S::LANES <= end {
                            slide::<S, K, STRIDE, false, false>(s, tile, c, S::LANES);
                            c += S::LANES;
                        }
                    }
                    while c + S::LANES <= end {
                        slide::<S, K, STRIDE, true, false>(s, tile, c, S::LANES);
                        c += S::LANES;
                    }
                    if c < end {
                        slide::<S, K, STRIDE, true, true>(s, tile, c, end - c);
                    }
                }
            },
        );
    }
}

impl<const REPEATS: bool> SimdKernel for General<'_, REPEATS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let plan = self.0.plan;
        let Range { start, end } = self.0.channels;
        self.0.for_each_tile(
            #[inline(always)]
            |tile| {
                let mut c = start;
                // SAFETY: as for the sliding kernels.
                unsafe {
                    while c + S::LANES <= end {
                        gather::<S, REPEATS, false>(s, plan, tile, c, S::LANES);
                        c += S::LANES;
                    }
                    if c < end {
                        gather::<S, REPEATS, true>(s, plan, tile, c, end - c);
                    }
                }
            },
        );
    }
}

/// Asks for a cache line to be brought into the second-level cache; the address need not be memory.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed, and the instruction is part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A vector, or its first `n` lanes.
///
/// # Safety
/// The lanes must be readable.
#[inline(always)]
unsafe fn load<S: Simd, const PART: bool>(s: S, from: *const f32, n: usize) -> S::F {
    // SAFETY: the caller says so.
    unsafe { if PART { s.load_part(from, n) } else { s.load(from) } }
}

/// The accumulators before the first tap.
///
/// # Safety
/// The bias must be null or have the lanes.
#[inline(always)]
unsafe fn begin<S: Simd, const PART: bool>(s: S, t: &TileCall<'_>, c: usize, n: usize) -> [S::F; TILE] {
    // SAFETY: the caller says so.
    let bias = if t.bias.is_null() { s.zero() } else { unsafe { load::<S, PART>(s, t.bias.add(c), n) } };
    [bias; TILE]
}

/// Clamps and stores the tile's pixels.
///
/// # Safety
/// The output must be writable.
#[inline(always)]
unsafe fn finish<S: Simd, const PART: bool>(s: S, t: &TileCall<'_>, c: usize, n: usize, acc: [S::F; TILE]) {
    let (lo, hi) = (s.splat(t.clamp.0), s.splat(t.clamp.1));
    for (pixel, sum) in acc.into_iter().enumerate() {
        if pixel < t.tile.n {
            // `min` and `max` give their second operand when one is NaN: it passes.
            let value = s.min(hi, s.max(lo, sum));
            // SAFETY: the caller says so.
            unsafe {
                let to = t.y.add(pixel * t.out_pixel + c);
                if PART { s.store_part(to, n, value) } else { s.store(to, value) }
            }
        }
    }
}

/// The body for every column of a tile, written out, so that the accumulators stay in registers: of the 17 columns of a
/// 3x3 window with stride 2 the compiler makes a loop that keeps them in memory, at a third of the speed.
macro_rules! for_each_column {
    ($j:ident in $n:expr => $body:block) => {
        for_each_column!(@ $j, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
    };
    (@ $j:ident, $n:expr, $body:block, $($column:literal)*) => {{
        const { assert!($n <= 21, "more columns than are written out") };
        $(if $column < $n {
            let $j: usize = $column;
            $body
        })*
    }};
}

/// One vector of channels of a tile. Every input column is loaded once for each row of taps.
///
/// # Safety
/// The columns that the tile's mask has (all of them where `CHECKED` is false) must be readable from channel
/// `c` for `n` lanes, the output pixels writable likewise.
#[inline(always)]
unsafe fn slide<S: Simd, const K: usize, const STRIDE: usize, const CHECKED: bool, const PART: bool>(
    s: S,
    t: &TileCall<'_>,
    c: usize,
    n: usize,
) {
    // SAFETY: the caller grants the memory.
    unsafe {
        let mut acc = begin::<S, PART>(s, t, c, n);
        for d in 0..t.depths.n {
            for h in 0..t.heights.n {
                let row = t.x.wrapping_add(d * t.depths.input + h * t.heights.input + c);
                if !CHECKED && t.prefetches && h + 1 == t.heights.n {
                    // The rows that the next output row reads for the first time.
                    for new in 1..=STRIDE {
                        let next = row.wrapping_add(new * t.heights.input);
                        for j in 0..TILE * STRIDE {
                            prefetch(next.wrapping_add(j * t.in_pixel));
                        }
                    }
                }
                let weights = t.weights.add(d * t.depths.weights + h * t.heights.weights + c);
                let mut taps = [s.zero(); K];
                for (k, tap) in taps.iter_mut().enumerate() {
                    *tap = s.load(weights.add(k * t.pitch));
                }
                for_each_column!(j in (TILE - 1) * STRIDE + K => {
                    if !CHECKED || (t.tile.columns >> j) & 1 != 0 {
                        let x = load::<S, PART>(s, row.wrapping_add(j * t.in_pixel), n);
                        for (k, tap) in taps.iter().enumerate() {
                            if j >= k && (j - k).is_multiple_of(STRIDE) && (j - k) / STRIDE < TILE {
                                let pixel = (j - k) / STRIDE;
                                acc[pixel] = s.mul_add(x, *tap, acc[pixel]);
                            }
                        }
                    }
                });
            }
        }
        finish::<S, PART>(s, t, c, n, acc);
    }
}

/// One vector of channels of a tile with any windows: each tap of each pixel is loaded by itself.
///
/// # Safety
/// The image must be readable and the output writable from channel `c` for `n` lanes.
#[inline(always)]
unsafe fn gather<S: Simd, const REPEATS: bool, const PART: bool>(
    s: S,
    plan: &Depthwise,
    t: &TileCall<'_>,
    c: usize,
    n: usize,
) {
    let width = &plan.windows.axes[2];
    // SAFETY: the caller grants the memory.
    unsafe {
        let mut acc = begin::<S, PART>(s, t, c, n);
        for d in 0..t.depths.n {
            for h in 0..t.heights.n {
                let row = t.x.wrapping_add(d * t.depths.input + h * t.heights.input);
                let weights = t.weights.add(d * t.depths.weights + h * t.heights.weights + c);
                for k in 0..width.kernel {
                    let tap = s.load(weights.add(k * t.pitch));
                    for (pixel, sum) in acc.iter_mut().enumerate() {
                        let is_inside = t.tile.is_inside
                            || (pixel < t.tile.n && width.position(t.tile.start + pixel, k).is_some());
                        if !is_inside {
                            continue;
                        }
                        let from = row.wrapping_add((pixel * width.stride + k * width.dilation) * t.in_pixel);
                        let x = if REPEATS {
                            repeated(s, from, plan.multiplier, c, n)
                        } else {
                            load::<S, PART>(s, from.wrapping_add(c), n)
                        };
                        *sum = s.mul_add(x, tap, *sum);
                    }
                }
            }
        }
        finish::<S, PART>(s, t, c, n, acc);
    }
}

/// The inputs of output channels `c..c + n`, each input channel having `multiplier` of them.
///
/// # Safety
/// The pixel at `from` must be readable.
#[inline(always)]
unsafe fn repeated<S: Simd>(s: S, from: *const f32, multiplier: usize, c: usize, n: usize) -> S::F {
    let mut lanes = [0.0; 16];
    for (lane, value) in lanes.iter_mut().enumerate().take(n) {
        // SAFETY: the caller grants the pixel.
        *value = unsafe { *from.wrapping_add((c + lane) / multiplier) };
    }
    // SAFETY: no vector has more than 16 lanes.
    unsafe { s.load(lanes.as_ptr()) }
}
