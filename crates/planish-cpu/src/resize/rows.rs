//! Weighted sums of pixels: the vector code.

use std::ops::Range;

use super::{ResizeArguments, Resizing};
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
pub(super) struct Last<'a>(pub(super) Units<'a>);

/// Rows with columns innermost, and room for a row of the input.
pub(super) struct Plain<'a>(pub(super) Units<'a>, pub(super) *mut f32);

/// The rows of the input that an output row reads, and with which weights.
struct TapRows<'a> {
    x: *const f32,
    depths: &'a [(usize, f32)],
    heights: &'a [(usize, f32)],
    strides: [usize; 2],
}

impl TapRows<'_> {
    #[inline(always)]
    fn for_each(&self, mut visit: impl FnMut(*const f32, f32)) {
        for (depth, depth_weight) in self.depths {
            for (height, height_weight) in self.heights {
                let row = self.x.wrapping_add(depth * self.strides[0] + height * self.strides[1]);
                visit(row, depth_weight * height_weight);
            }
        }
    }
}

impl<'a> Units<'a> {
    /// For each unit the rows under it, and where its output row begins.
    #[inline(always)]
    fn for_each(self, mut visit: impl FnMut(&'a Resizing, TapRows<'a>, *mut f32)) {
        let Units { plan, arguments, units } = self;
        for unit in units {
            let [n, c, d, h] = plan.place(unit);
            let rows = TapRows {
                x: arguments.x.cast::<f32>().wrapping_add(n * plan.from.batch + c * plan.from.channel),
                depths: plan.taps[0].of(d),
                heights: plan.taps[1].of(h),
                strides: [plan.from.axes[0], plan.from.axes[1]],
            };
            let to = n * plan.to.batch + c * plan.to.channel + d * plan.to.axes[0] + h * plan.to.axes[1];
            visit(plan, rows, arguments.y.cast::<f32>().wrapping_add(to));
        }
    }
}

impl SimdKernel for Last<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.for_each(
            #[inline(always)]
            |plan, rows, to| {
                for at in 0..plan.taps[2].len() {
                    let columns = plan.taps[2].of(at);
                    let to = to.wrapping_add(at * plan.to.axes[2]);
                    let mut c = 0;
                    // SAFETY: taps lie in the image and vectors end with the last channel; the caller of
                    // `Resizing::run` grants the memory.
                    unsafe {
                        while c + VECTORS * S::LANES <= plan.channels {
                            pixel::<S, VECTORS, false>(s, &rows, columns, plan.from.axes[2], to, c, S::LANES);
                            c += VECTORS * S::LANES;
                        }
                        while c < plan.channels {
                            let n = (plan.channels - c).min(S::LANES);
                            pixel::<S, 1, true>(s, &rows, columns, plan.from.axes[2], to, c, n);
                            c += n;
                        }
                    }
                }
            },
        );
    }
}

/// `V` vectors of channels of an output pixel, or the first `n` lanes of one.
///
/// # Safety
/// The pixels that the taps name must be readable, the output pixel writable.
#[inline(always)]
unsafe fn pixel<S: Simd, const V: usize, const PART: bool>(
    s: S,
    rows: &TapRows<'_>,
    columns: &[(usize, f32)],
    in_pixel: usize,
    to: *mut f32,
    c: usize,
    n: usize,
) {
    let mut sums = [s.zero(); V];
    rows.for_each(
        #[inline(always)]
        |row, row_weight| {
            let mut along = [s.zero(); V];
            for (column, weight) in columns {
                let from = row.wrapping_add(column * in_pixel + c);
                let weight = s.splat(*weight);
                for (v, sum) in along.iter_mut().enumerate() {
                    // SAFETY: the caller grants the memory.
                    let x = unsafe {
                        let from = from.wrapping_add(v * S::LANES);
                        if PART { s.load_part(from, n) } else { s.load(from) }
                    };
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
        unsafe {
            let to = to.wrapping_add(c + v * S::LANES);
            if PART { s.store_part(to, n, sum) } else { s.store(to, sum) }
        }
    }
}

impl SimdKernel for Plain<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Plain(units, row) = self;
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
                            let x = unsafe { s.load_part(tap.wrapping_add(column), n) };
                            sum = s.mul_add(x, s.splat(weight), sum);
                        },
                    );
                    // SAFETY: the workspace holds a row of the input.
                    unsafe { s.store_part(row.add(column), n, sum) };
                    column += n;
                }
                for at in 0..plan.taps[2].len() {
                    let mut sum = 0.0;
                    for (column, weight) in plan.taps[2].of(at) {
                        // SAFETY: taps lie in the row that was just stored.
                        sum += unsafe { *row.add(*column) } * weight;
                    }
                    // SAFETY: the output row is this unit's.
                    unsafe { *to.wrapping_add(at) = sum };
                }
            },
        );
    }
}
