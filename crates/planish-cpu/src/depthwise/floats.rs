//! Rows of f32 images: a bias before the taps, a clamp after them, and a hook for what follows a row.

use super::rows::{Lanes, RowAt, RowElements, Sums, load};
use super::{DepthwiseArguments, OutputRow};
use crate::simd::Simd;

/// Images of f32 on both sides.
pub(super) struct Floats<'a> {
    pub(super) arguments: &'a DepthwiseArguments<'a>,
    pub(super) clamp: (f32, f32),
}

impl RowElements for Floats<'_> {
    type X = f32;

    const WIDEST_SLIDING: usize = 7;

    fn x(&self) -> *const f32 {
        self.arguments.x
    }

    fn weights(&self) -> *const f32 {
        self.arguments.weights
    }

    #[inline(always)]
    fn number(&self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    unsafe fn load<S: Simd, const PART: bool>(&self, s: S, from: *const f32, n: usize) -> S::F {
        // SAFETY: the caller says so.
        unsafe { load::<S, PART>(s, from, n) }
    }

    #[inline(always)]
    unsafe fn begin<S: Simd, const PART: bool>(&self, s: S, c: usize, n: usize) -> S::F {
        let bias = self.arguments.bias;
        // SAFETY: the caller says so.
        if bias.is_null() { s.zero() } else { unsafe { load::<S, PART>(s, bias.add(c), n) } }
    }

    #[inline(always)]
    unsafe fn finish<S: Simd, const PART: bool>(&self, s: S, at: Lanes<'_, Self>, sums: Sums<S>) {
        let Lanes { tile: t, c, n } = at;
        let (lo, hi) = (s.splat(self.clamp.0), s.splat(self.clamp.1));
        for (pixel, sum) in sums.into_iter().enumerate() {
            if pixel < t.tile.n {
                // `min` and `max` give their second operand when one is NaN: it passes.
                let value = s.min(hi, s.max(lo, sum));
                // SAFETY: the caller says so.
                unsafe {
                    let to = self.arguments.y.add(t.to + pixel * t.out_pixel + c);
                    if PART { s.store_part(to, n, value) } else { s.store(to, value) }
                }
            }
        }
    }

    fn after_row(&self, row: RowAt) {
        if let Some(hook) = self.arguments.hook {
            hook(OutputRow {
                start: self.arguments.y.wrapping_add(row.to + row.channels.start),
                n_pixels: row.n_pixels,
                pixel_stride: row.pixel_stride,
                channels: row.channels,
                first_pixel: row.first_pixel,
                slot: row.slot,
            });
        }
    }
}
