//! Winograd's products with weights that are transformed as they are used: they stay as small as the model has
//! them, which counts twice where tiles are few and reading weights is what takes time.
//!
//! A block of channels of one panel is transformed to all points, in workspace, then multiplied with all
//! tiles of the block. Weights are packed as for implicit GEMM, and transformed in f32; accumulators made block by
//! block more than make up for it: a layer of 256 channels had an error of 7.7e-7 instead of 1.5e-6.

use std::ops::Range;

use super::algebra::{Axis, AxisKind, Four, One, POINTS, TAPS, Two};
use super::{Block, Border, Kind, Winograd, spread};
use crate::conv::even_part;
use crate::gemm::table::Tile;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::simd::{Simd, SimdKernel};

/// Bytes of transformed weights at a time: a quarter of the second cache.
const WEIGHT_BYTES: usize = super::L2_BYTES / 4;

/// Channels whose weights are transformed at a time.
pub(super) fn channels_per_block(kind: Kind, tile: Tile, c: usize) -> usize {
    even_part(c, WEIGHT_BYTES / (4 * kind.n_points() * tile.nr())).max(1)
}

/// Bytes that they take.
pub(super) fn weights_bytes(kind: Kind, tile: Tile, c: usize) -> usize {
    4 * kind.n_points() * spread(channels_per_block(kind, tile, c) * tile.nr())
}

/// Weights of some channels to all points.
struct Weights {
    kind: Kind,
    /// The first tap of the first channel.
    from: *const f32,
    /// From tap to tap.
    tap_stride: usize,
    to: *mut f32,
    point_stride: usize,
    /// Elements of each tap, a whole number of vectors.
    n: usize,
}

impl SimdKernel for Weights {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: whoever made it grants the weights and the memory for their transforms.
        unsafe {
            match self.kind {
                Kind::Two => self.transform::<S, Two, Two>(s),
                Kind::Four => self.transform::<S, Four, Four>(s),
                Kind::Row => self.transform::<S, One, Four>(s),
            }
        }
    }
}

impl Weights {
    #[inline(always)]
    unsafe fn transform<S: Simd, Y: Axis, X: Axis>(&self, s: S) {
        let (n_y, n_x) = (Y::IN - Y::OUT + 1, X::IN - X::OUT + 1);
        for at in (0..self.n).step_by(S::LANES) {
            let mut half = [[s.zero(); TAPS]; POINTS];
            // SAFETY: taps have `n` elements, and so has every point.
            unsafe {
                for x in 0..n_x {
                    let mut g = [s.zero(); TAPS];
                    for (y, g) in g.iter_mut().enumerate().take(n_y) {
                        *g = s.load(self.from.add((y * n_x + x) * self.tap_stride + at));
                    }
                    for (half, value) in half.iter_mut().zip(Y::taps(s, g)) {
                        half[x] = value;
                    }
                }
                for (y, half) in half.iter().enumerate().take(Y::IN) {
                    for (x, value) in X::taps(s, *half).iter().enumerate().take(X::IN) {
                        s.store(self.to.add((y * X::IN + x) * self.point_stride + at), *value);
                    }
                }
            }
        }
    }
}

impl<B: Border> Winograd<B> {
    /// The products of all points, of `rows` of a block with one panel of channels.
    ///
    /// # Safety
    /// As for [`Winograd::run`]; `table` has the pointers of the rows at the first point, tap by tap, `weights`
    /// room for [`weights_bytes`].
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn live_products(
        &self,
        call: &B::Call<'_>,
        block: &Block,
        rows: Range<usize>,
        panel: usize,
        table: *mut *const f32,
        weights: *mut f32,
        products: *mut f32,
        products_stride: usize,
    ) {
        let g = &self.geometry;
        let n = self.tile.nr().min(g.k - panel * self.tile.nr());
        let width = self.tile.panel_width(n);
        let taps: usize = self.kind.axes().map(AxisKind::n_taps).iter().product();
        let n_depths = g.axes[0].kernel;
        let per_block = channels_per_block(self.kind, self.tile, g.c);
        let n_row_tiles = rows.len().div_ceil(self.tile.mr());
        let zeros = self.zeros.as_ptr();
        // SAFETY: panels lie inside the packed weights; tables, weights and products have room for a block.
        unsafe {
            let panel = B::weights(call).add(panel * self.tile.nr() * n_depths * taps * g.c);
            for tap in 0..n_depths {
                let table = table.add(tap * rows.len());
                for c in (0..g.c.max(1)).step_by(per_block) {
                    let depth = per_block.min(g.c - c);
                    let point_stride = spread(depth * width);
                    self.isa.run(Weights {
                        kind: self.kind,
                        from: panel.add((tap * taps * g.c + c) * width),
                        tap_stride: g.c * width,
                        to: weights,
                        point_stride,
                        n: depth * width,
                    });
                    // What is transformed next, a part with each tile: tap by tap, as it lies.
                    let following = match () {
                        () if c + depth < g.c => panel.add((tap * taps * g.c + c + depth) * width),
                        () if tap + 1 < n_depths => panel.add((tap + 1) * taps * g.c * width),
                        () => panel.wrapping_add(n_depths * taps * g.c * width),
                    };
                    let n_parts = self.kind.n_points() * n_row_tiles;
                    let lines = Ahead::lines(taps * width, n_parts);
                    for point in 0..self.kind.n_points() {
                        for idx in 0..n_row_tiles {
                            let part = (point * n_row_tiles + idx) * taps;
                            let (at_tap, within) = (part / n_parts, part % n_parts * depth / n_parts);
                            let from = following.wrapping_add((at_tap * g.c + within) * width);
                            let tile_rows = crate::conv::part(rows.len(), n_row_tiles, idx);
                            self.tile.run(&TileCall {
                                rows: table.add(tile_rows.start),
                                rows_stride: rows.len(),
                                n_segments: 1,
                                depth,
                                panel: weights.add(point * point_stride),
                                panel_stride: width,
                                ahead: Ahead { from, lines },
                                c: products.add(point * products_stride + tile_rows.start * width),
                                c_stride: width,
                                m: tile_rows.len(),
                                n,
                                accumulate: tap > 0 || c > 0,
                                epilogue: EpilogueCall::NONE,
                            });
                        }
                        advance(table, rows.len(), zeros, block.point_stride as isize);
                    }
                    // Back to the first point, on to the next channels.
                    let back = (self.kind.n_points() * block.point_stride) as isize - depth as isize;
                    advance(table, rows.len(), zeros, -back);
                }
            }
        }
    }
}

/// Moves the pointers that are not to zeros.
///
/// # Safety
/// The table must have `len` pointers, which must stay inside their memory, or one past it.
pub(super) unsafe fn advance(table: *mut *const f32, len: usize, zeros: *const f32, by: isize) {
    for row in 0..len {
        // SAFETY: granted by the caller.
        unsafe {
            let pixel = *table.add(row);
            table.add(row).write(if pixel == zeros { zeros } else { pixel.wrapping_offset(by) });
        }
    }
}
