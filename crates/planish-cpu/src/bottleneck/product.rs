//! Rows of pixels through a 1x1 convolution: tiles of a matrix product with packed weights.

use crate::gemm::pack::PackedB;
use crate::gemm::table::Tile;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::pointwise::Pointwise;

/// No tile has more rows.
const MAX_TILE_ROWS: usize = 16;

/// A 1x1 convolution of rows.
#[derive(Debug)]
pub(super) struct Product {
    pub(super) tile: Tile,
    pub(super) packed: PackedB,
    pub(super) c: usize,
    pub(super) k: usize,
    /// Inputs of the region.
    pub(super) weight: usize,
    pub(super) bias: Option<usize>,
    pub(super) clamp: (f32, f32),
    pub(super) program: Option<Pointwise>,
}

/// One row of pixels: where it is read and written, in elements.
pub(super) struct Row {
    pub(super) from: *const f32,
    pub(super) from_pixel: usize,
    pub(super) to: *mut f32,
    pub(super) to_pixel: usize,
    /// What is added, or null.
    pub(super) residual: *const f32,
    pub(super) residual_pixel: usize,
    pub(super) n_pixels: usize,
    /// The number of its first pixel, counted through all images.
    pub(super) first_pixel: usize,
}

impl Product {
    pub(super) fn program(&self) -> Option<&Pointwise> {
        self.program.as_ref()
    }

    /// Multiply-adds for one pixel.
    pub(super) fn macs(&self) -> usize {
        self.c * self.k
    }

    /// Computes a row.
    ///
    /// # Safety
    /// The row must be readable and writable for its pixels, the inputs valid for the region's operands, the
    /// workspace for the program.
    pub(super) unsafe fn row(&self, inputs: &[*const u8], row: &Row, workspace: *mut u8) {
        let weights = inputs[self.weight].cast::<f32>();
        let epilogue = EpilogueCall {
            bias: self.bias.map_or(std::ptr::null(), |input| inputs[input].cast()),
            residual: row.residual,
            residual_stride: row.residual_pixel,
            lo: self.clamp.0,
            hi: self.clamp.1,
        };
        let mr = self.tile.mr().min(MAX_TILE_ROWS);
        for pixel in (0..row.n_pixels).step_by(mr) {
            let m = (row.n_pixels - pixel).min(mr);
            let mut rows = [row.from; MAX_TILE_ROWS];
            for (at, pointer) in rows.iter_mut().enumerate().take(m) {
                *pointer = row.from.wrapping_add((pixel + at) * row.from_pixel);
            }
            let mut call = TileCall {
                rows: rows.as_ptr(),
                rows_stride: 0,
                n_segments: 1,
                depth: self.c,
                panel: weights,
                panel_stride: 0,
                ahead: Ahead::NONE,
                c: row.to,
                c_stride: row.to_pixel,
                m,
                n: 0,
                accumulate: false,
                epilogue,
            };
            for panel in 0..self.packed.n_panels() {
                let col = panel * self.tile.nr();
                // SAFETY: the tile lies in the row, whose memory the caller grants; packed weights are as long
                // as their layout says.
                unsafe {
                    call.panel = weights.add(self.packed.offset(panel));
                    call.panel_stride = self.packed.width(panel);
                    call.c = row.to.wrapping_add(pixel * row.to_pixel + col);
                    call.n = self.packed.columns(panel);
                    call.epilogue = epilogue.at(pixel, col);
                    self.tile.run(&call);
                }
            }
        }
        if let Some(program) = &self.program {
            let pixels = row.first_pixel..row.first_pixel + row.n_pixels;
            // SAFETY: the row was just written; the caller grants the rest.
            unsafe { program.run_block(inputs, row.to, row.to_pixel, pixels, 0..self.k, workspace) };
        }
    }
}
