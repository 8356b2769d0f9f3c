//! Convolution of inputs with few channels: the rows that a band of outputs looks at are copied with their
//! padding, channels innermost, so that a row of the window is one run of memory.
//!
//! A run of `kernel width · channels` elements is then a segment of the matrix product: 21 instead of 3 for the
//! first layer of a ResNet. The copy is small beside the outputs, and takes channels in any order, so images
//! are read as networks get them. Weights are packed as for implicit GEMM.

use super::evenly::{self, Pixels};
use super::geometry::Geometry;
use super::{ConvCall, Finished, LINE, part, prefetch_to_write, wanted_tasks};
use crate::gemm::table::Tile;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};
use crate::team::{Task, Team};

/// Bytes of copied rows that a task keeps: they are read once for each panel.
const BAND_BYTES: usize = 64 << 10;

/// Outputs of a row that are finished before what follows them is done: 16 KB.
const PIECE: usize = 4 << 10;

/// A convolution over bands for one geometry.
#[derive(Debug)]
pub struct Band {
    geometry: Geometry,
    isa: Isa,
    tile: Tile,
    /// Output rows of a task.
    rows_per_task: usize,
    /// Elements of a copied row, its padding included.
    row_len: usize,
    slot_bytes: usize,
    table_bytes: usize,
}

impl Band {
    /// Plans a run; `None` where the window has gaps along rows, or the convolution is grouped or transposed.
    pub fn new(geometry: Geometry, tile: Tile) -> Option<Band> {
        let [z, y, x] = &geometry.axes;
        if geometry.transposed || geometry.groups != 1 || x.dilation != 1 {
            return None;
        }
        let row_len = (x.output.max(1) - 1) * x.stride + x.kernel;
        let row_len = (row_len * geometry.c).next_multiple_of(LINE);
        let rows = |outputs: usize| (outputs.max(1) - 1) * y.stride + (y.kernel - 1) * y.dilation + 1;
        let bytes = |outputs: usize| 4 * z.kernel * rows(outputs) * row_len;
        let n_rows = geometry.n_images * z.output * y.output;
        let fair = n_rows.div_ceil(wanted_tasks(geometry.flops()));
        let mut rows_per_task = fair.clamp(1, y.output.max(1));
        while rows_per_task > 1 && bytes(rows_per_task) > BAND_BYTES {
            rows_per_task -= 1;
        }
        let table_bytes = (8 * z.kernel * y.kernel * tile.mr()).next_multiple_of(64);
        let slot_bytes = table_bytes + bytes(rows_per_task);
        Some(Band { geometry, isa: tile.isa(), tile, rows_per_task, row_len, slot_bytes, table_bytes })
    }

    /// The most pixels that are finished before what follows them is done.
    pub fn tile_rows(&self) -> usize {
        match self.is_by_rows() {
            true => self.geometry.axes[2].output.div_ceil(self.n_pieces()),
            false => self.tile.mr(),
        }
    }

    /// Parts of a row of outputs, each as long as the kernel without a table needs it: what follows finds its pixels in the
    /// first-level cache.
    fn n_pieces(&self) -> usize {
        let n = self.geometry.axes[2].output;
        (n * self.geometry.k).div_ceil(PIECE).clamp(1, (n / evenly::least()).max(1))
    }

    /// What the work is cut into.
    pub fn n_tasks(&self) -> usize {
        let g = &self.geometry;
        g.n_images * g.out_size(0) * g.out_size(1).div_ceil(self.rows_per_task)
    }

    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.slot_bytes * n_slots
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the workspace writable, for what the geometry and
    /// the plan say.
    pub unsafe fn run(&self, call: &ConvCall<'_>, team: &Team) {
        if self.geometry.out_size(2) == 0 || self.geometry.k == 0 {
            return;
        }
        team.for_each(self.n_tasks(), &|task| {
            // SAFETY: granted by the caller; tasks have different outputs, slots different workspace.
            unsafe { self.task(call, task) }
        });
    }

    unsafe fn task(&self, call: &ConvCall<'_>, task: Task) {
        let g = &self.geometry;
        let [z, y, x] = &g.axes;
        let bands = y.output.div_ceil(self.rows_per_task);
        let (plane, band) = (task.idx / bands, task.idx % bands);
        let (image, depth) = (plane / z.output, plane % z.output);
        let first = band * self.rows_per_task;
        let n_rows = self.rows_per_task.min(y.output - first);
        let rows_copied = (n_rows - 1) * y.stride + (y.kernel - 1) * y.dilation + 1;
        // SAFETY: a slot has room for the pointers of a tile, then for the copied rows.
        let (table, copy) = unsafe {
            let slot = call.workspace.add(task.slot * self.slot_bytes);
            (slot.cast::<*const f32>(), slot.add(self.table_bytes).cast::<f32>())
        };
        for tap in 0..z.kernel {
            let in_depth = z.position(depth, tap);
            for row in 0..rows_copied {
                let in_row = (first * y.stride + row).checked_sub(y.pad_begin).filter(|row| *row < y.input);
                let from = match (in_depth, in_row) {
                    (Some(depth), Some(row)) => {
                        image * g.input.image + depth * g.input.axes[0] + row * g.input.axes[1]
                    }
                    _ => usize::MAX,
                };
                // SAFETY: the row is inside the image, or not read; the copy has room for it.
                unsafe {
                    let to = copy.add((tap * rows_copied + row) * self.row_len);
                    if from == usize::MAX {
                        std::ptr::write_bytes(to, 0, self.row_len);
                    } else {
                        self.copy_row(call.input.add(from), to);
                    }
                }
            }
        }
        if self.is_by_rows() {
            for row in 0..n_rows {
                // SAFETY: granted by the caller; the rows were copied.
                unsafe {
                    self.row(
                        call,
                        copy.add(row * y.stride * self.row_len),
                        rows_copied,
                        (task.slot, plane, first + row),
                    )
                };
            }
            return;
        }
        // Outputs of several rows make one tile where they are evenly spaced.
        let even = |pixels: &super::geometry::Pixels| pixels.axes[1] == x.output * pixels.axes[2];
        let joined = even(&g.output) && g.residual.as_ref().is_none_or(even);
        let run = if joined { n_rows * x.output } else { x.output };
        let n_tiles = run.div_ceil(self.tile.mr());
        for start in (0..n_rows * x.output).step_by(run) {
            for idx in 0..n_tiles {
                let outputs = part(run, n_tiles, idx);
                let outputs = start + outputs.start..start + outputs.end;
                let (row, col) = (outputs.start / x.output, outputs.start % x.output);
                // Counted on instead of divided anew, which would take a sixth of the time of a first layer.
                let (mut out_row, mut out_col) = (row, col);
                for i in 0..outputs.len() {
                    let place = out_row * y.stride * self.row_len + out_col * x.stride * g.c;
                    for z_tap in 0..z.kernel {
                        for y_tap in 0..y.kernel {
                            let row = z_tap * rows_copied + y_tap * y.dilation;
                            // SAFETY: the table has room for all segments of a tile, the copy for the row.
                            unsafe {
                                let pixel = copy.add(place + row * self.row_len);
                                table.add((z_tap * y.kernel + y_tap) * self.tile.mr() + i).write(pixel);
                            }
                        }
                    }
                    out_col += 1;
                    if out_col == x.output {
                        (out_row, out_col) = (out_row + 1, 0);
                    }
                }
                let row = first + row;
                let at = |pixels: &super::geometry::Pixels| {
                    image * pixels.image
                        + depth * pixels.axes[0]
                        + row * pixels.axes[1]
                        + col * pixels.axes[2]
                };
                let (output, stride) = match call.staging {
                    0 => (at(&g.output), g.output.axes[2]),
                    len => (task.slot * len, g.k),
                };
                // SAFETY: granted by the caller.
                unsafe { self.tiles(call, table, outputs.len(), (output, stride), at) };
                if let Some(after) = call.after {
                    let first = (plane * y.output + row) * x.output + col;
                    after(&Finished {
                        at: call.output.wrapping_add(output),
                        stride,
                        pixels: first..first + outputs.len(),
                        channels: 0..g.k,
                        slot: task.slot,
                    });
                }
            }
        }
    }

    /// Whether rows are long enough for the kernel without a table, which adds nothing to its sums.
    fn is_by_rows(&self) -> bool {
        self.geometry.residual.is_none() && self.geometry.axes[2].output >= evenly::least()
    }

    /// One row of outputs, of the slot and the row that are given: `from` is the first row that was copied for it.
    ///
    /// # Safety
    /// As for [`Band::run`].
    unsafe fn row(
        &self,
        call: &ConvCall<'_>,
        from: *const f32,
        rows_copied: usize,
        (slot, plane, row): (usize, usize, usize),
    ) {
        let g = &self.geometry;
        let [z, y, x] = &g.axes;
        let (image, depth) = (plane / z.output, plane % z.output);
        let to = image * g.output.image + depth * g.output.axes[0] + row * g.output.axes[1];
        let (n_taps, nr) = (x.kernel * g.c, self.tile.nr());
        let n_pieces = call.after.map_or(1, |_| self.n_pieces());
        for piece in 0..n_pieces {
            let pixels = part(x.output, n_pieces, piece);
            let (output, pixel) = match call.staging {
                0 => (to + pixels.start * g.output.axes[2], g.output.axes[2]),
                len => (slot * len, g.k),
            };
            let output = call.output.wrapping_add(output);
            for k0 in (0..g.k).step_by(nr) {
                let n = nr.min(g.k - k0);
                // SAFETY: panels lie inside the packed weights; the copy holds all windows, output and bias all channels.
                unsafe {
                    let call = Pixels {
                        input: from.add(pixels.start * x.stride * g.c),
                        spacing: x.stride * g.c,
                        depths: (z.kernel, rows_copied * self.row_len),
                        heights: (y.kernel, y.dilation * self.row_len),
                        n_taps,
                        panel: call.weights.add(k0 * z.kernel * y.kernel * n_taps),
                        panel_stride: self.tile.panel_width(n),
                        output: output.add(k0),
                        stride: pixel,
                        n_pixels: pixels.len(),
                        n,
                        bias: if call.bias.is_null() { call.bias } else { call.bias.add(k0) },
                        lo: call.lo,
                        hi: call.hi,
                    };
                    evenly::run(self.isa, &call);
                }
            }
            if let Some(after) = call.after {
                let first = (plane * y.output + row) * x.output;
                after(&Finished {
                    at: output,
                    stride: pixel,
                    pixels: first + pixels.start..first + pixels.end,
                    channels: 0..g.k,
                    slot,
                });
            }
        }
    }

    /// All panels of one tile of outputs.
    ///
    /// # Safety
    /// As for [`Band::run`]; `rows` are the pointers of `m` windows.
    unsafe fn tiles(
        &self,
        call: &ConvCall<'_>,
        rows: *const *const f32,
        m: usize,
        (output, c_stride): (usize, usize),
        at: impl Fn(&super::geometry::Pixels) -> usize,
    ) {
        let g = &self.geometry;
        let [z, y, x] = &g.axes;
        let n_segments = z.kernel * y.kernel;
        let depth = x.kernel * g.c;
        let nr = self.tile.nr();
        for k0 in (0..g.k).step_by(nr) {
            let n = nr.min(g.k - k0);
            // SAFETY: panels lie inside the packed weights; output, bias and residual hold all channels.
            unsafe {
                let c = call.output.add(output + k0);
                for i in 0..m {
                    for j in (0..n).step_by(LINE) {
                        prefetch_to_write(c.wrapping_add(i * c_stride + j));
                    }
                }
                self.tile.run(&TileCall {
                    rows,
                    rows_stride: self.tile.mr(),
                    n_segments,
                    depth,
                    panel: call.weights.add(k0 * n_segments * depth),
                    panel_stride: self.tile.panel_width(n),
                    ahead: Ahead::NONE,
                    c,
                    c_stride,
                    m,
                    n,
                    accumulate: false,
                    epilogue: EpilogueCall {
                        bias: if call.bias.is_null() { call.bias } else { call.bias.add(k0) },
                        residual: match &g.residual {
                            Some(pixels) => call.residual.add(at(pixels) + k0),
                            None => std::ptr::null(),
                        },
                        residual_stride: g.residual.map_or(0, |pixels| pixels.axes[2]),
                        lo: call.lo,
                        hi: call.hi,
                    },
                });
            }
        }
    }

    /// One row of the image with zeros before and after it, channels innermost.
    ///
    /// # Safety
    /// `from` must be a row of the input, `to` writable for a copied row.
    unsafe fn copy_row(&self, from: *const f32, to: *mut f32) {
        let g = &self.geometry;
        let x = &g.axes[2];
        let c = g.c;
        let room = self.row_len / c.max(1);
        let before = x.pad_begin.min(room);
        let n = x.input.min(room - before);
        // SAFETY: `before + n` pixels fit the copied row, and the image has `n` of them.
        unsafe {
            std::ptr::write_bytes(to, 0, before * c);
            std::ptr::write_bytes(to.add((before + n) * c), 0, self.row_len - (before + n) * c);
            let to = to.add(before * c);
            let (pixel, channel) = (g.input.axes[2], g.input.channel);
            if c == 1 && pixel == 1 || channel == 1 && pixel == c {
                std::ptr::copy_nonoverlapping(from, to, n * c);
            } else if c == 3 && pixel == 1 {
                let plane = |idx: usize| std::slice::from_raw_parts(from.add(idx * channel), n);
                let to = std::slice::from_raw_parts_mut(to, 3 * n);
                self.isa.run(Interleave { planes: [plane(0), plane(1), plane(2)], to });
            } else {
                for i in 0..n {
                    for j in 0..c {
                        *to.add(i * c + j) = *from.add(i * pixel + j * channel);
                    }
                }
            }
        }
    }
}

/// Three planes to pixels. A loop that the compiler makes vectors of, given the instruction set.
struct Interleave<'a> {
    planes: [&'a [f32]; 3],
    to: &'a mut [f32],
}

impl SimdKernel for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let [red, green, blue] = self.planes;
        let (pixels, _) = self.to.as_chunks_mut::<3>();
        let n = pixels.len().min(red.len()).min(green.len()).min(blue.len());
        let (red, green, blue, pixels) = (&red[..n], &green[..n], &blue[..n], &mut pixels[..n]);
        for i in 0..n {
            pixels[i] = [red[i], green[i], blue[i]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::pack;
    use super::super::testing::{Case, SUM_TOLERANCE, axis};
    use super::*;

    fn check(case: &Case) {
        for isa in Isa::available() {
            for tile in Tile::of(isa) {
                let plan = Band::new(case.geometry.clone(), tile).expect("a band fits");
                let weights = pack(&case.filter, tile, &case.weight);
                let workspace = plan.workspace_bytes(1);
                // SAFETY: the case owns what the call names.
                let got = case.run(&weights, workspace, |call, team| unsafe { plan.run(call, team) });
                case.check(&got, SUM_TOLERANCE, 0.0, tile.name());
            }
        }
    }

    #[test]
    fn few_channels_in_any_order() {
        for c in 1..5 {
            for (kernel, stride, pads) in [
                (3, 1, (1, 1)),
                (7, 2, (3, 3)),
                (4, 4, (0, 0)),
                (2, 3, (0, 4)),
                (5, 1, (7, 2)),
                (1, 2, (0, 0)),
            ] {
                let x = axis(19, kernel, stride, 1, pads);
                let y = axis(11, kernel, stride, 2, (pads.1, pads.0));
                check(&Case::new(2, 1, c, 21, &[y, x], false, 0));
                check(&Case::new(1, 1, c, 33, &[y, x], false, 3).with_residual(0).clamped(0.0, 2.0));
                check(&Case::new(2, 1, c, 40, &[y, x], false, 0).with_plain_input());
                check(&Case::new(1, 1, c, 5, &[x], false, 0).with_plain_input());
                let z = axis(6, 3, 2, 1, (1, 2));
                check(&Case::new(2, 1, c, 17, &[z, y, x], false, 0).with_plain_input().with_residual(2));
            }
        }
    }

    #[test]
    fn rows_that_are_long_enough_to_go_without_a_table() {
        for (c, stride, kernel, n, k) in
            [(1, 1, 3, 43, 16), (1, 2, 3, 90, 7), (3, 2, 5, 101, 40), (3, 1, 3, 44, 70), (2, 3, 2, 140, 33)]
        {
            let x = axis(n, kernel, stride, 1, (1, 2));
            let y = axis(7, 3, 2, 1, (1, 1));
            check(&Case::new(2, 1, c, k, &[y, x], false, 0).with_plain_input());
            check(&Case::new(1, 1, c, k, &[y, x], false, 3).clamped(0.0, 2.0));
            check(&Case::new(1, 1, c, k, &[axis(3, 2, 1, 1, (1, 0)), y, x], false, 0));
        }
    }

    #[test]
    fn outputs_with_gaps_between_rows() {
        let x = axis(9, 3, 1, 1, (1, 1));
        let mut case = Case::new(2, 1, 3, 18, &[x, x], false, 0).with_plain_input();
        case.geometry.output.axes[1] += 7;
        case.geometry.output.image += 7 * 9;
        check(&case);
    }

    #[test]
    fn nothing_to_compute_and_what_is_refused() {
        let x = axis(4, 3, 1, 1, (1, 1));
        check(&Case::new(0, 1, 3, 5, &[x, x], false, 0));
        check(&Case::new(1, 1, 0, 5, &[x, x], false, 0));
        check(&Case::new(1, 1, 3, 0, &[x, x], false, 0));
        check(&Case::new(1, 1, 3, 5, &[x, axis(0, 1, 1, 1, (0, 0))], false, 0));
        let tile = Tile::usual(Isa::best());
        for case in [
            Case::new(1, 2, 3, 5, &[x, x], false, 0),
            Case::new(1, 1, 3, 5, &[x, axis(9, 3, 1, 2, (0, 0))], false, 0),
        ] {
            assert!(Band::new(case.geometry.clone(), tile).is_none());
        }
    }

    #[test]
    fn not_a_number_stays_in_its_windows() {
        let x = axis(9, 3, 2, 1, (1, 1));
        let mut case = Case::new(1, 1, 3, 18, &[x, x], false, 0).with_plain_input();
        case.input[20] = f32::NAN;
        case.input[200] = f32::NEG_INFINITY;
        check(&case);
    }
}
