//! Rows of a depthwise convolution: the vector code, whatever the elements are.

use std::ops::Range;

use super::plan::{RowPlan, Tile};
use super::{TILE, pitch};
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};

/// The images of one run: how their elements become sums of f32, and what becomes of the sums.
pub(super) trait RowElements: Sync {
    /// An element of the input.
    type X: Copy;

    /// Kernels up to so many columns are [`Sliding`] ones: each is a dozen functions to compile.
    const WIDEST_SLIDING: usize;

    fn x(&self) -> *const Self::X;

    /// As `pack` made them.
    fn weights(&self) -> *const f32;

    /// What an element stands for.
    fn number(&self, x: Self::X) -> f32;

    /// What a vector of elements stands for, or its first `n` lanes.
    ///
    /// # Safety
    /// The lanes must be readable.
    unsafe fn load<S: Simd, const PART: bool>(&self, s: S, from: *const Self::X, n: usize) -> S::F;

    /// The sums of channels `c..c + n` before the first tap.
    ///
    /// # Safety
    /// There must be such channels.
    unsafe fn begin<S: Simd, const PART: bool>(&self, s: S, c: usize, n: usize) -> S::F;

    /// Stores the lanes of the tile's pixels.
    ///
    /// # Safety
    /// The output must be writable.
    unsafe fn finish<S: Simd, const PART: bool>(&self, s: S, at: Lanes<'_, Self>, sums: Sums<S>)
    where
        Self: Sized;

    /// Called for every row that is stored.
    fn after_row(&self, _row: RowAt) {}
}

/// A vector of channels for each pixel of a tile.
pub(super) type Sums<S> = [<S as Simd>::F; TILE];

/// Channels `c..c + n` of a tile's pixels.
pub(super) struct Lanes<'a, E: RowElements> {
    pub(super) tile: &'a TileCall<'a, E>,
    pub(super) c: usize,
    pub(super) n: usize,
}

/// Some channels of an output row.
pub(super) struct RowAt {
    /// Elements from the start of the output to the row.
    pub(super) to: usize,
    pub(super) n_pixels: usize,
    /// In elements.
    pub(super) pixel_stride: usize,
    pub(super) channels: Range<usize>,
    /// The number of its first pixel, counted through the whole output.
    pub(super) first_pixel: usize,
    pub(super) slot: usize,
}

/// Output rows to compute.
pub(super) struct RowsCall<'a, E> {
    pub(super) plan: &'a RowPlan,
    pub(super) elements: &'a E,
    pub(super) rows: Range<usize>,
    pub(super) channels: Range<usize>,
    pub(super) slot: usize,
}

/// Computes the rows by the kernel for their windows.
pub(super) fn run<E: RowElements>(isa: Isa, call: &RowsCall<'_, E>) {
    let width = &call.plan.windows.axes[2];
    let slides = width.kernel <= E::WIDEST_SLIDING && width.dilation == 1 && call.plan.multiplier == 1;
    match (slides, width.kernel, width.stride) {
        (true, 3, 1) => isa.run(Sliding::<E, 3, 1>(call)),
        (true, 3, 2) => isa.run(Sliding::<E, 3, 2>(call)),
        (true, 5, 1) => isa.run(Sliding::<E, 5, 1>(call)),
        (true, 5, 2) => isa.run(Sliding::<E, 5, 2>(call)),
        (true, 7, 1) => isa.run(Sliding::<E, 7, 1>(call)),
        (true, 7, 2) => isa.run(Sliding::<E, 7, 2>(call)),
        _ => match call.plan.multiplier {
            0 | 1 => isa.run(General::<E, 1>(call)),
            2 => isa.run(General::<E, 2>(call)),
            _ => isa.run(General::<E, ANY>(call)),
        },
    }
}

/// `K` taps along the row, `STRIDE` pixels apart, no dilation.
struct Sliding<'a, E, const K: usize, const STRIDE: usize>(&'a RowsCall<'a, E>);
/// Any taps, strides and dilations; an input channel has `REPEATS` output channels.
struct General<'a, E, const REPEATS: usize>(&'a RowsCall<'a, E>);

/// As many output channels as the plan says.
const ANY: usize = 0;

/// A tile of one row with its channels still to be walked. Pointers are those of channel 0.
pub(super) struct TileCall<'a, E: RowElements> {
    elements: &'a E,
    /// The first column of the tile's first window under the first tap row; may lie before the image.
    x: *const E::X,
    /// The weights of the first tap row.
    weights: *const f32,
    /// Batch, depth and height of the row.
    pub(super) row: [usize; 3],
    /// Elements from the start of the output to the tile.
    pub(super) to: usize,
    pub(super) tile: &'a Tile,
    /// Tap rows that lie in the image: counts, and elements from one to the next in the input and in the
    /// weights.
    depths: TapRows,
    heights: TapRows,
    in_pixel: usize,
    pub(super) out_pixel: usize,
    pitch: usize,
    prefetches: bool,
}

struct TapRows {
    n: usize,
    input: usize,
    weights: usize,
}

impl<E: RowElements> RowsCall<'_, E> {
    /// Walks rows and tiles.
    #[inline(always)]
    fn for_each_tile(&self, visit: impl Fn(&TileCall<'_, E>)) {
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
                    elements: self.elements,
                    // May point before the image; only columns inside are read.
                    x: self
                        .elements
                        .x()
                        .wrapping_add(in_row)
                        .wrapping_offset(column.wrapping_mul(in_pixel as isize)),
                    weights: self.elements.weights().wrapping_add(tap_row * pitch),
                    row: [n, d, h],
                    to: out_row + tile.start * windows.to.axes[2],
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
                    prefetches: plan.prefetches,
                });
            }
            self.elements.after_row(RowAt {
                to: out_row,
                n_pixels: width.output,
                pixel_stride: windows.to.axes[2],
                channels: self.channels.clone(),
                first_pixel: row * width.output,
                slot: self.slot,
            });
        }
    }
}

impl<E: RowElements, const K: usize, const STRIDE: usize> SimdKernel for Sliding<'_, E, K, STRIDE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Kernels that nobody asks for, and instruction sets whose registers a tile does not fit, have no code.
        if const { K > E::WIDEST_SLIDING || S::REGISTERS < 2 * TILE } {
            return General::<E, 1>(self.0).run(s);
        }
        let Range { start, end } = self.0.channels;
        self.0.for_each_tile(
            #[inline(always)]
            |tile| {
                let mut c = start;
                // SAFETY: the caller of `RowPlan::run` grants the memory; the columns that are read lie in
                // the image, and channel vectors end with the last channel.
                unsafe {
                    if tile.tile.is_inside {
                        while c + S::LANES <= end {
                            slide::<S, E, K, STRIDE, false, false>(s, tile, c, S::LANES);
                            c += S::LANES;
                        }
                    }
                    while c + S::LANES <= end {
                        slide::<S, E, K, STRIDE, true, false>(s, tile, c, S::LANES);
                        c += S::LANES;
                    }
                    if c < end {
                        slide::<S, E, K, STRIDE, true, true>(s, tile, c, end - c);
                    }
                }
            },
        );
    }
}

impl<E: RowElements, const REPEATS: usize> SimdKernel for General<'_, E, REPEATS> {
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
                        gather::<S, E, REPEATS, false>(s, plan, tile, c, S::LANES);
                        c += S::LANES;
                    }
                    if c < end {
                        gather::<S, E, REPEATS, true>(s, plan, tile, c, end - c);
                    }
                }
            },
        );
    }
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Asks for a cache line to be brought into the second-level cache; the address need not be memory.
#[inline(always)]
fn prefetch<T>(at: *const T) {
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
pub(super) unsafe fn load<S: Simd, const PART: bool>(s: S, from: *const f32, n: usize) -> S::F {
    // SAFETY: the caller says so.
    unsafe { if PART { s.load_part(from, n) } else { s.load(from) } }
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
unsafe fn slide<
    S: Simd,
    E: RowElements,
    const K: usize,
    const STRIDE: usize,
    const CHECKED: bool,
    const PART: bool,
>(
    s: S,
    t: &TileCall<'_, E>,
    c: usize,
    n: usize,
) {
    // SAFETY: the caller grants the memory.
    unsafe {
        let mut acc = [t.elements.begin::<S, PART>(s, c, n); TILE];
        for d in 0..t.depths.n {
            for h in 0..t.heights.n {
                let row = t.x.wrapping_add(d * t.depths.input + h * t.heights.input + c);
                if !CHECKED
                    && t.prefetches
                    && h + 1 == t.heights.n
                    && (c * size_of::<E::X>()).is_multiple_of(LINE)
                {
                    // The rows that the next output row reads for the first time, once for each cache line.
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
                        let x = t.elements.load::<S, PART>(s, row.wrapping_add(j * t.in_pixel), n);
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
        t.elements.finish::<S, PART>(s, Lanes { tile: t, c, n }, acc);
    }
}

/// One vector of channels of a tile with any windows: each tap of each pixel is loaded by itself.
///
/// # Safety
/// The image must be readable and the output writable from channel `c` for `n` lanes.
#[inline(always)]
unsafe fn gather<S: Simd, E: RowElements, const REPEATS: usize, const PART: bool>(
    s: S,
    plan: &RowPlan,
    t: &TileCall<'_, E>,
    c: usize,
    n: usize,
) {
    let width = &plan.windows.axes[2];
    // SAFETY: the caller grants the memory.
    unsafe {
        let mut acc = [t.elements.begin::<S, PART>(s, c, n); TILE];
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
                        let x = match REPEATS {
                            1 => t.elements.load::<S, PART>(s, from.wrapping_add(c), n),
                            // Vectors of channels begin at even ones: half a vector, each lane twice.
                            2 if S::LANES.is_multiple_of(2) => {
                                let half =
                                    t.elements.load::<S, true>(s, from.wrapping_add(c / 2), n.div_ceil(2));
                                s.zip(half, half).0
                            }
                            _ => repeated(s, t.elements, from, plan.multiplier, c, n),
                        };
                        *sum = s.mul_add(x, tap, *sum);
                    }
                }
            }
        }
        t.elements.finish::<S, PART>(s, Lanes { tile: t, c, n }, acc);
    }
}

/// The inputs of output channels `c..c + n`, each input channel having `multiplier` of them.
///
/// # Safety
/// The pixel at `from` must be readable.
#[inline(always)]
unsafe fn repeated<S: Simd, E: RowElements>(
    s: S,
    elements: &E,
    from: *const E::X,
    multiplier: usize,
    c: usize,
    n: usize,
) -> S::F {
    let mut lanes = [0.0; 16];
    for (lane, value) in lanes.iter_mut().enumerate().take(n) {
        // SAFETY: the caller grants the pixel.
        *value = elements.number(unsafe { *from.wrapping_add((c + lane) / multiplier) });
    }
    // SAFETY: no vector has more than 16 lanes.
    unsafe { s.load(lanes.as_ptr()) }
}
