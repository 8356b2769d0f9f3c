//! Pooling with columns innermost: the rows under a window are folded in vectors, then along the row.

use std::ops::Range;

use super::{BEYOND, Place, UnitsCall};
use crate::simd::{Simd, SimdKernel};

pub(super) struct Rows<'a, const MAX: bool>(pub(super) &'a UnitsCall<'a>);

impl<const MAX: bool> SimdKernel for Rows<'_, MAX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let call = self.0;
        let windows = &call.plan.windows;
        let [depth_axis, height_axis, width_axis] = &windows.axes;
        // Units are rows of one channel: batch, channel, depth, height.
        for unit in call.units.clone() {
            let (rest, h) = (unit / height_axis.output, unit % height_axis.output);
            let (rest, d) = (rest / depth_axis.output, rest % depth_axis.output);
            let (n, c) = (rest / windows.channels, rest % windows.channels);
            let (depth, height) = (&call.plan.places[0][d], &call.plan.places[1][h]);
            let in_row = n * windows.from.batch
                + c * windows.from.channel
                + depth.first * windows.from.axes[0]
                + height.first * windows.from.axes[1];
            let out_row = n * windows.to.batch
                + c * windows.to.channel
                + d * windows.to.axes[0]
                + h * windows.to.axes[1];
            let rows = TapRows {
                start: call.arguments.x.wrapping_add(in_row),
                n: [depth.n, height.n],
                steps: [
                    depth_axis.dilation * windows.from.axes[0],
                    height_axis.dilation * windows.from.axes[1],
                ],
            };
            // SAFETY: the rows lie in the image, the workspace holds one of them, the output row is this
            // unit's; the caller of `Pool::run` grants the memory.
            unsafe {
                fold_rows::<S, MAX>(s, &rows, call.workspace, width_axis.input);
                let n_counted = depth.n_counted * height.n_counted;
                let columns = Columns {
                    row: call.workspace,
                    to: call.arguments.y.wrapping_add(out_row),
                    places: &call.plan.places[2],
                    dilation: width_axis.dilation,
                    n_counted_rows: n_counted,
                };
                let whole = call.plan.whole_columns.clone();
                columns.fold_each::<MAX>(0..whole.start);
                match width_axis.stride {
                    1 => columns.fold_vectors::<S, MAX, 1>(s, whole.clone()),
                    2 => columns.fold_vectors::<S, MAX, 2>(s, whole.clone()),
                    _ => columns.fold_each::<MAX>(whole.clone()),
                }
                columns.fold_each::<MAX>(whole.end..columns.places.len());
            }
        }
    }
}

/// The rows under a window.
struct TapRows {
    start: *const f32,
    n: [usize; 2],
    steps: [usize; 2],
}

/// Folds the rows into one.
///
/// # Safety
/// Each row must have `width` readable elements, `to` as many writable ones and [`BEYOND`] more.
#[inline(always)]
unsafe fn fold_rows<S: Simd, const MAX: bool>(s: S, rows: &TapRows, to: *mut f32, width: usize) {
    let mut column = 0;
    while column < width {
        let n = (width - column).min(S::LANES);
        let mut folded = if MAX { s.splat(f32::NEG_INFINITY) } else { s.zero() };
        let mut nan = s.is_nan(s.zero());
        for d in 0..rows.n[0] {
            for h in 0..rows.n[1] {
                let from = rows.start.wrapping_add(d * rows.steps[0] + h * rows.steps[1] + column);
                // SAFETY: the caller grants the row.
                let x = unsafe { if n == S::LANES { s.load(from) } else { s.load_part(from, n) } };
                if MAX {
                    nan = s.mask_or(nan, s.is_nan(x));
                    folded = s.max(x, folded);
                } else {
                    folded = s.add(folded, x);
                }
            }
        }
        let value = if MAX { s.select(nan, s.splat(f32::NAN), folded) } else { folded };
        // SAFETY: the caller grants the workspace.
        unsafe { s.store_part(to.add(column), n, value) };
        column += n;
    }
    for at in width..width + BEYOND {
        // SAFETY: the caller grants these, too.
        unsafe { to.add(at).write(0.0) };
    }
}

/// Windows along a row of folded elements.
struct Columns<'a> {
    row: *const f32,
    to: *mut f32,
    places: &'a [Place],
    dilation: usize,
    n_counted_rows: usize,
}

impl Columns<'_> {
    /// Folds some windows one by one.
    ///
    /// # Safety
    /// The places must lie in the row; there must be a writable element for each.
    #[inline(always)]
    unsafe fn fold_each<const MAX: bool>(&self, windows: Range<usize>) {
        for idx in windows {
            let place = &self.places[idx];
            let mut folded = if MAX { f32::NEG_INFINITY } else { 0.0 };
            for tap in 0..place.n {
                // SAFETY: the caller says that the places lie in the row.
                let x = unsafe { *self.row.add(place.first + tap * self.dilation) };
                if MAX {
                    let is_better = x > folded || x.is_nan();
                    folded = if is_better && !folded.is_nan() { x } else { folded };
                } else {
                    folded += x;
                }
            }
            if !MAX {
                folded /= (self.n_counted_rows * place.n_counted).max(1) as f32;
            }
            // SAFETY: the caller grants the output row.
            unsafe { *self.to.add(idx) = folded };
        }
    }

    /// Folds windows that meet no border, `STRIDE` elements apart: as many at once as a vector has lanes. What a vector
    /// reads behind the last window counts for nothing.
    ///
    /// # Safety
    /// As above; behind the row there must be [`BEYOND`] readable elements.
    #[inline(always)]
    unsafe fn fold_vectors<S: Simd, const MAX: bool, const STRIDE: usize>(
        &self,
        s: S,
        windows: Range<usize>,
    ) {
        let Some(place) = self.places.get(windows.start).filter(|_| !windows.is_empty()) else { return };
        let by = s.splat((self.n_counted_rows * place.n_counted).max(1) as f32);
        for idx in windows.clone().step_by(S::LANES) {
            let n = S::LANES.min(windows.end - idx);
            let first = self.row.wrapping_add(place.first + (idx - windows.start) * STRIDE);
            let mut folded = if MAX { s.splat(f32::NEG_INFINITY) } else { s.zero() };
            let mut nan = s.is_nan(s.zero());
            for tap in 0..place.n {
                let from = first.wrapping_add(tap * self.dilation);
                // SAFETY: the last window ends in the row, and a vector reads less than `BEYOND` elements behind it.
                let x = unsafe {
                    match STRIDE {
                        1 => s.load(from),
                        _ => s.unzip(s.load(from), s.load(from.add(S::LANES))).0,
                    }
                };
                if MAX {
                    nan = s.mask_or(nan, s.is_nan(x));
                    folded = s.max(x, folded);
                } else {
                    folded = s.add(folded, x);
                }
            }
            let value = if MAX { s.select(nan, s.splat(f32::NAN), folded) } else { s.div(folded, by) };
            // SAFETY: the caller grants the output row.
            unsafe { s.store_part(self.to.add(idx), n, value) };
        }
    }
}
