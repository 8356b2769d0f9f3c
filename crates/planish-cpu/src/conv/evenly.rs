//! Pixels of a row whose windows are evenly spaced in memory: what a band computes without a table of pointers.
//!
//! First layers have short sums, 9 or 27 products a pixel: writing down where the windows of a tile begin, and a call and
//! an epilogue for every 14 pixels, takes longer than these. Here the places follow from one another, a whole row is
//! computed by one call, and what follows element by element is done a piece of a row at a time.

use crate::gemm::tile::{step, vectors};
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel, arrays};

/// Pixels of one row, and all output channels of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    /// The window of the first pixel under the first row of taps.
    pub(super) input: *const f32,
    /// Elements from one window to the next.
    pub(super) spacing: usize,
    /// Rows of taps by depth and height, and elements from one to the next.
    pub(super) depths: (usize, usize),
    pub(super) heights: (usize, usize),
    /// Elements of a row of taps.
    pub(super) n_taps: usize,
    pub(super) panel: *const f32,
    pub(super) panel_stride: usize,
    pub(super) output: *mut f32,
    pub(super) stride: usize,
    /// At least [`least`].
    pub(super) n_pixels: usize,
    /// Channels.
    pub(super) n: usize,
    /// One a channel, or null.
    pub(super) bias: *const f32,
    pub(super) lo: f32,
    pub(super) hi: f32,
}

/// Pixels that are computed at once, of so many vectors of channels: accumulators that fit the registers beside the
/// vectors of weights and one of the image.
const fn at_once(registers: usize, vectors: usize) -> usize {
    match (registers, vectors) {
        (32, 1 | 2) => 14,
        (32, 3) => 8,
        (32, _) => 6,
        (16, 1) => 12,
        (16, 2) => 6,
        (16, 3) => 4,
        _ => 2,
    }
}

/// The most pixels that are computed at once.
const MOST: usize = 14;

/// The fewest pixels of a row that are worth it: the last of a row are computed together with some before them once more.
pub(super) const fn least() -> usize {
    3 * MOST
}

/// Computes them.
///
/// # Safety
/// What the call names must be readable, and its output writable.
pub(super) unsafe fn run(isa: Isa, call: &Pixels) {
    isa.run(Run { call });
}

struct Run<'a> {
    call: &'a Pixels,
}

impl SimdKernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the caller of `run` grants the memory.
        unsafe {
            match self.call.n.div_ceil(S::LANES) {
                0 => {}
                1 => self.of_vectors::<S, 1>(s),
                2 => self.of_vectors::<S, 2>(s),
                3 => self.of_vectors::<S, 3>(s),
                _ => self.of_vectors::<S, 4>(s),
            }
        }
    }
}

impl Run<'_> {
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn of_vectors<S: Simd, const NV: usize>(self, s: S) {
        // The usual ones are parts of addresses: one channel and three, at every or every second pixel.
        // SAFETY: granted by the caller.
        unsafe {
            match self.call.spacing {
                1 => self.row::<S, NV, 1>(s),
                2 => self.row::<S, NV, 2>(s),
                3 => self.row::<S, NV, 3>(s),
                6 => self.row::<S, NV, 6>(s),
                _ => self.row::<S, NV, 0>(s),
            }
        }
    }

    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn row<S: Simd, const NV: usize, const SPACING: usize>(self, s: S) {
        // SAFETY: granted by the caller.
        unsafe {
            match const { at_once(S::REGISTERS, NV) } {
                14 => self.pieces::<S, NV, SPACING, 14>(s),
                12 => self.pieces::<S, NV, SPACING, 12>(s),
                8 => self.pieces::<S, NV, SPACING, 8>(s),
                6 => self.pieces::<S, NV, SPACING, 6>(s),
                4 => self.pieces::<S, NV, SPACING, 4>(s),
                _ => self.pieces::<S, NV, SPACING, 2>(s),
            }
        }
    }

    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn pieces<S: Simd, const NV: usize, const SPACING: usize, const P: usize>(self, s: S) {
        if const { at_once(S::REGISTERS, NV) != P } {
            return;
        }
        let n_pixels = self.call.n_pixels;
        // SAFETY: granted by the caller; there are at least `P` pixels.
        unsafe {
            let mut first = 0;
            while first < n_pixels {
                let from = first.min(n_pixels - P);
                self.pixels::<S, NV, SPACING, P>(s, from);
                first = from + P;
            }
        }
    }

    /// `P` pixels from `first` on.
    ///
    /// # Safety
    /// As for [`run`]; there must be such pixels.
    #[inline(always)]
    unsafe fn pixels<S: Simd, const NV: usize, const SPACING: usize, const P: usize>(
        &self,
        s: S,
        first: usize,
    ) {
        let call = self.call;
        let spacing = if SPACING == 0 { call.spacing } else { SPACING };
        let last = call.n - (NV - 1) * S::LANES;
        // SAFETY: granted by the caller.
        unsafe {
            let bias = if call.bias.is_null() { [s.zero(); NV] } else { vectors(s, call.bias, last) };
            let mut acc = [bias; P];
            let mut panel = call.panel;
            for depth in 0..call.depths.0 {
                for height in 0..call.heights.0 {
                    let row =
                        call.input.add(depth * call.depths.1 + height * call.heights.1 + first * spacing);
                    let rows: [*const f32; P] = arrays::from_fn(|pixel| row.wrapping_add(pixel * spacing));
                    for tap in 0..call.n_taps {
                        step(s, &mut acc, &rows, tap, panel);
                        panel = panel.wrapping_add(call.panel_stride);
                    }
                }
            }
            let (lo, hi) = (s.splat(call.lo), s.splat(call.hi));
            for (pixel, sums) in acc.iter().enumerate() {
                let to = call.output.add((first + pixel) * call.stride);
                for (at, sum) in sums.iter().enumerate() {
                    // The second operand is the answer where one is NaN, so a NaN sum stays.
                    let value = s.min(hi, s.max(lo, *sum));
                    let to = to.add(at * S::LANES);
                    if at + 1 < NV || last == S::LANES {
                        s.store(to, value)
                    } else {
                        s.store_part(to, last, value)
                    }
                }
            }
        }
    }
}
