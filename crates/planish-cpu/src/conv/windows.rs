//! The windows of one phase as pointers to pixels, a tile of them at a time.

use std::ops::Range;

use super::geometry::{AXES, Geometry, Phase, Pixels};
use super::part;

/// The windows of a phase, cut into tiles whose outputs are evenly spaced in memory.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) phase: Phase,
    /// Each tap's distance from the window's origin: per axis, and in elements of the input.
    taps: Vec<([isize; AXES], isize)>,
    /// Windows of a tile at most.
    rows: usize,
    /// Outputs in a row whose addresses are evenly spaced, and how many such rows there are.
    run: usize,
    n_runs: usize,
    tiles_per_run: usize,
    /// Whether tiles have all their windows, but for the last of a run.
    whole_tiles: bool,
}

/// The outputs of one tile.
pub(super) struct Place {
    /// Offset of the first one in the output and the residual, in elements, from the phase's first.
    pub(super) output: usize,
    pub(super) residual: usize,
    /// How many there are, and which is the first, counted over the whole phase.
    pub(super) m: usize,
    pub(super) first: usize,
}

impl Windows {
    pub(super) fn new(geometry: &Geometry, phase: Phase, rows: usize, whole_tiles: bool) -> Windows {
        let places: Vec<_> =
            [Some(&geometry.output), geometry.residual.as_ref()].into_iter().flatten().collect();
        let run = phase.run(geometry.n_images, &places);
        let n_runs = (geometry.n_images * phase.n_pixels()).checked_div(run).unwrap_or(0);
        let [a, b, c] = &phase.axes;
        let mut taps = Vec::with_capacity(phase.n_taps());
        for &x in &a.taps {
            for &y in &b.taps {
                for &z in &c.taps {
                    let offsets = [x, y, z];
                    let elements = (0..AXES).map(|i| offsets[i] * geometry.input.axes[i] as isize).sum();
                    taps.push((offsets, elements));
                }
            }
        }
        let tiles_per_run = run.div_ceil(rows);
        Windows { phase, taps, rows, run, n_runs, tiles_per_run, whole_tiles }
    }

    pub(super) fn n_taps(&self) -> usize {
        self.taps.len()
    }

    pub(super) fn n_tiles(&self) -> usize {
        self.n_runs * self.tiles_per_run
    }

    /// Whether every tap of a window that starts here is inside the input along this axis.
    #[inline]
    fn inside(&self, axis: usize, start: isize, size: usize) -> bool {
        let taps = &self.phase.axes[axis].taps;
        match (taps.first(), taps.last()) {
            // Taps are in order, upwards or (transposed) downwards.
            (Some(&a), Some(&b)) => start + a.min(b) >= 0 && start + a.max(b) < size as isize,
            _ => true,
        }
    }

    /// Writes pointers to the pixels of one tile's windows, tap by tap, `rows` for each; `input` is the channel
    /// of the first image's first pixel that they point to, `zeros` what stands for padding.
    ///
    /// # Safety
    /// `table` must have room for `rows` pointers for each of `taps`.
    pub(super) unsafe fn point(
        &self,
        g: &Geometry,
        input: *const f32,
        zeros: *const f32,
        taps: Range<usize>,
        tile_idx: usize,
        table: *mut *const f32,
    ) -> Place {
        let axes = &self.phase.axes;
        let (run_idx, tile_in_run) = (tile_idx / self.tiles_per_run, tile_idx % self.tiles_per_run);
        let pixels = match self.whole_tiles {
            true => tile_in_run * self.rows..((tile_in_run + 1) * self.rows).min(self.run),
            false => part(self.run, self.tiles_per_run, tile_in_run),
        };
        let m = pixels.len();
        let first = run_idx * self.run + pixels.start;
        let mut rest = first;
        let mut at = [0; AXES];
        for axis in (0..AXES).rev() {
            at[axis] = rest % axes[axis].count;
            rest /= axes[axis].count;
        }
        let mut image = rest;
        let offset = |pixels: &Pixels| {
            let along = |axis: usize| at[axis] * axes[axis].step * pixels.axes[axis];
            image * pixels.image + (0..AXES).map(along).sum::<usize>()
        };
        let place =
            Place { output: offset(&g.output), residual: g.residual.as_ref().map_or(0, offset), m, first };
        let step = (axes[AXES - 1].in_step * g.input.axes[AXES - 1]) as isize;
        let mut i = 0;
        while i < m {
            // The windows that lie in one row are evenly spaced in the input too.
            let n = (m - i).min(axes[AXES - 1].count - at[AXES - 1]);
            let mut origin = (image * g.input.image) as isize;
            let mut inside = true;
            let mut start = [0isize; AXES];
            for axis in 0..AXES {
                start[axis] = (at[axis] * axes[axis].in_step) as isize;
                origin += start[axis] * g.input.axes[axis] as isize;
                inside &= self.inside(axis, start[axis], g.in_size(axis));
            }
            let last = start[AXES - 1] + ((n - 1) * axes[AXES - 1].in_step) as isize;
            inside &= self.inside(AXES - 1, last, g.in_size(AXES - 1));
            for (slot, (offsets, distance)) in self.taps[taps.clone()].iter().enumerate() {
                let first = input.wrapping_offset(origin + distance);
                // SAFETY: `slot` is below the number of taps and `i + n` at most `rows`.
                let to = unsafe { table.add(slot * self.rows + i) };
                if inside {
                    for j in 0..n {
                        // SAFETY: as above.
                        unsafe { to.add(j).write(first.wrapping_offset(j as isize * step)) };
                    }
                    continue;
                }
                let there = |axis: usize, start: isize| {
                    let at = start + offsets[axis];
                    at >= 0 && (at as usize) < g.in_size(axis)
                };
                let row = (0..AXES - 1).all(|axis| there(axis, start[axis]));
                for j in 0..n {
                    let col = start[AXES - 1] + (j * axes[AXES - 1].in_step) as isize;
                    let inside = row && there(AXES - 1, col);
                    let pixel = if inside { first.wrapping_offset(j as isize * step) } else { zeros };
                    // SAFETY: as above.
                    unsafe { to.add(j).write(pixel) };
                }
            }
            i += n;
            // The next row, carrying into the outer axes.
            at[AXES - 1] = 0;
            let mut axis = AXES - 1;
            loop {
                if axis == 0 {
                    image += 1;
                    break;
                }
                axis -= 1;
                at[axis] += 1;
                if at[axis] < axes[axis].count {
                    break;
                }
                at[axis] = 0;
            }
        }
        place
    }
}
