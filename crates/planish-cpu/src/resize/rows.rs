//! Weighted sums of pixels: the vector code.

use std::ops::Range;

use super::{Columns, ResizeArguments, Resizing};
use crate::elements::{Elements, Floats};
use crate::simd::{Simd, SimdKernel};

/// Vectors of channels that are summed at once.
const VECTORS: usize = 4;

/// Some rows of the output.
pub(super) struct Units<'a> {
    pub(super) plan: &'a Resizing,
    pub(super) arguments: &'a ResizeArguments,
    pub(super) units: Range<usize>,
}

/// Rows with channels innermost.
pub(super) struct Last<'a, E>(pub(super) Units<'a>, pub(super) E);

/// Rows with columns innermost, and room for a row of the input.
pub(super) struct Plain<'a>(pub(super) Units<'a>, pub(super) *mut f32);

/// The rows of the input that an output row reads, and with which weights.
struct TapRows<'a> {
    /// Where the image begins, in elements.
    start: usize,
    depths: &'a [(usize, f32)],
    heights: &'a [(usize, f32)],
    strides: [usize; 2],
}

impl TapRows<'_> {
    #[inline(always)]
    fn for_each(&self, mut visit: impl FnMut(usize, f32)) {
        for (depth, depth_weight) in self.depths {
            for (height, height_weight) in self.heights {
                let row = self.start + depth * self.strides[0] + height * self.strides[1];
                visit(row, depth_weight * height_weight);
            }
        }
    }
}

impl<'a> Units<'a> {
    /// For each unit the rows under it, and where its output row begins, in elements.
    #[inline(always)]
    fn for_each(self, mut visit: impl FnMut(&'a Resizing, TapRows<'a>, usize)) {
        let Units { plan, units, .. } = self;
        for unit in units {
            let [n, c, d, h] = plan.place(unit);
            let rows = TapRows {
                start: n * plan.from.batch + c * plan.from.channel,
                depths: plan.taps[0].of(d),
                heights: plan.taps[1].of(h),
                strides: [plan.from.axes[0], plan.from.axes[1]],
            };
            let to = n * plan.to.batch + c * plan.to.channel + d * plan.to.axes[0] + h * plan.to.axes[1];
            visit(plan, rows, to);
        }
    }
}

impl<E: Elements> SimdKernel for Last<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Last(units, elements) = self;
        let memory = *units.arguments;
        units.for_each(
            #[inline(always)]
            |plan, rows, to| {
                for at in 0..plan.taps[2].len() {
                    let (columns, to) = (plan.taps[2].of(at), to + at * plan.to.axes[2]);
                    let pixel = Pixel { memory, rows: &rows, columns, in_pixel: plan.from.axes[2], to };
                    let mut c = 0;
                    // SAFETY: taps lie in the image and vectors end with the last channel; the caller of
                    // `Resizing::run` grants the memory.
                    unsafe {
                        while c + VECTORS * S::LANES <= plan.channels {
                            pixel.compute::<S, E, VECTORS, false>(s, elements, c, S::LANES);
                            c += VECTORS * S::LANES;
                        }
                        while c < plan.channels {
                            let n = (plan.channels - c).min(S::LANES);
                            pixel.compute::<S, E, 1, true>(s, elements, c, n);
                            c += n;
                        }
                    }
                }
            },
        );
    }
}

/// One output pixel.
struct Pixel<'a> {
    memory: ResizeArguments,
    rows: &'a TapRows<'a>,
    columns: &'a [(usize, f32)],
    /// Elements from a pixel of a row to the next.
    in_pixel: usize,
    /// Where it is, in elements.
    to: usize,
}

impl Pixel<'_> {
    /// `V` vectors of channels from `c` on, or the first `n` lanes of one.
    ///
    /// # Safety
    /// The pixels that the taps name must be readable, the output pixel writable.
    #[inline(always)]
    unsafe fn compute<S: Simd, E: Elements, const V: usize, const PART: bool>(
        &self,
        s: S,
        elements: E,
        c: usize,
        n: usize,
    ) {
        let mut sums = [s.zero(); V];
        self.rows.for_each(
            #[inline(always)]
            |row, row_weight| {
                let mut along = [s.zero(); V];
                for (column, weight) in self.columns {
                    let from = row + column * self.in_pixel + c;
                    let weight = s.splat(*weight);
                    for (v, sum) in along.iter_mut().enumerate() {
                        // SAFETY: the caller grants the memory.
                        let x = unsafe { elements.load::<S, PART>(s, self.memory.x, from + v * S::LANES, n) };
                        *sum = s.mul_add(x, weight, *sum);
                    }
                }
                let weight = s.splat(row_weight);
                for (sum, along) in sums.iter_mut().zip(along) {
                    *sum = s.mul_add(along, weight, *sum);
                }
            },
        );
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller grants the memory.
            unsafe { elements.store::<S, PART>(s, self.memory.y, self.to + c + v * S::LANES, n, sum) };
        }
    }
}

impl SimdKernel for Plain<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Plain(units, row) = self;
        let ResizeArguments { x, y, .. } = *units.arguments;
        units.for_each(
            #[inline(always)]
            |plan, rows, to| {
                let mut column = 0;
                while column < plan.in_width {
                    let n = (plan.in_width - column).min(S::LANES);
                    let mut sum = s.zero();
                    rows.for_each(
                        #[inline(always)]
                        |tap, weight| {
                            // SAFETY: the row has `in_width` elements, which the caller of `Resizing::run` grants.
                            let x = unsafe { Floats.load::<S, true>(s, x, tap + column, n) };
                            sum = s.mul_add(x, s.splat(weight), sum);
                        },
                    );
                    // SAFETY: the workspace holds a row of the input.
                    unsafe { s.store_part(row.add(column), n, sum) };
                    column += n;
                }
                let to = y.cast::<f32>().wrapping_add(to);
                // SAFETY: taps lie in the row that was just stored; the output row is this unit's.
                unsafe {
                    match &plan.columns {
                        Columns::Two(taps) => along(row, taps, to),
                        Columns::Four(taps) => along(row, taps, to),
                        Columns::Any => {
                            for at in 0..plan.taps[2].len() {
                                let taps = plan.taps[2].of(at).iter();
                                *to.add(at) = taps.map(|(column, weight)| *row.add(*column) * weight).sum();
                            }
                        }
                    }
                }
            },
        );
    }
}

/// The points of an output row, each the sum of `N` elements of a row.
///
/// # Safety
/// The places that the taps name must be readable, as many elements as there are taps writable.
#[inline(always)]
unsafe fn along<const N: usize>(row: *const f32, taps: &[[(u32, f32); N]], to: *mut f32) {
    for (at, taps) in taps.iter().enumerate() {
        let mut sum = 0.0;
        for (column, weight) in taps {
            // SAFETY: the caller grants the memory.
            sum += unsafe { *row.add(*column as usize) } * weight;
        }
        // SAFETY: as above.
        unsafe { *to.add(at) = sum };
    }
}
