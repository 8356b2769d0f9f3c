//! Winograd's convolution for windows of 3x3, 1x3 and 3x3x3 with stride 1: far fewer multiplications, as many
//! matrix products as there are points.
//!
//! Tiles of pixels are transformed, a matrix product per point runs over tiles and channels, and the products
//! are transformed back with bias, residual and clamp. Along the depth of a 3-D convolution nothing is
//! transformed: the three taps lengthen the sums, each slice is transformed once for all three.
//!
//! Four ways of cutting the work, which are different tactics. *Fused*: a task takes a block of tiles through all
//! three steps, with points and products in its cache; right where there are many tiles. *Split*: the same, with several
//! tasks for a block, each for some of the output channels; right where there are so few tiles that threads would be
//! left without any. *Phased*: the tiles
//! of a larger block are transformed first, then tasks take blocks of output channels; right where weights are
//! many and tiles few, because each weight is then read once. *Live*: as phased, with weights as the model has
//! them, which are transformed as they are used; right where the transformed ones are too many to read or keep.
//!
//! What a pixel is, a [`Border`] says: f32 here, bytes in `quantized`. Between its two transforms elements are
//! four bytes wide: an f32, or two channels of 16 bits.

pub mod algebra;
mod border;
mod kind;
mod live;
pub mod pack;
mod transform;

use std::marker::PhantomData;
use std::ops::Range;

use algebra::AxisKind;
pub use border::{Border, Products};
pub(super) use border::{InputTile, OutputTile};
pub use kind::{Cut, Kind};
pub use transform::Floats;

use super::geometry::Geometry;
use super::{Finished, L2_BYTES, RunCall, even_part, part, wanted_tasks};
use crate::gemm::table::Tile;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::isa::Isa;
use crate::simd::arrays;
use crate::team::{Task, Team};

/// Winograd's convolution for one geometry.
#[derive(Debug)]
pub struct Winograd<B = Floats> {
    kind: Kind,
    cut: Cut,
    pub(super) geometry: Geometry,
    pub(super) isa: Isa,
    pub(super) tile: Tile,
    /// Tiles along rows and columns of an image.
    n_tiles: [usize; 2],
    /// Tiles of all images at one depth, and how many of them, at how many depths, make a block.
    n_columns: usize,
    columns_per_block: usize,
    depths_per_block: usize,
    /// Channels of a tile in memory: whole vectors.
    pub(super) padded_c: usize,
    /// Panels of a block of channels, and output tiles that are multiplied before they are transformed back.
    panels_per_block: usize,
    rows_per_chunk: usize,
    /// Tasks that share out the channels of a block.
    n_parts: usize,
    zeros: Vec<f32>,
    /// Whether pixels are asked for before their turn: where they come from further away than the second cache.
    prefetches: bool,
    /// Whether the next panel of weights is asked for while tiles go through one.
    fetches_weights: bool,
    /// Bytes of the points of a block, of the products and of the pointers of a slot.
    points_bytes: usize,
    products_bytes: usize,
    table_bytes: usize,
    /// Bytes of the weights that a slot transforms, if it does.
    weights_bytes: usize,
    border: PhantomData<fn() -> B>,
}

/// Tiles that are transformed together: columns, each at a range of depths.
#[derive(Debug)]
pub struct Block {
    columns: Range<usize>,
    /// Output depths.
    depths: Range<usize>,
    /// Input depths that they read, inside the image.
    in_depths: Range<usize>,
    /// From one point to the next of the block's input tiles.
    pub(super) point_stride: usize,
}

impl Block {
    fn n_inputs(&self) -> usize {
        self.columns.len() * self.in_depths.len()
    }

    fn n_rows(&self) -> usize {
        self.columns.len() * self.depths.len()
    }
}

/// A distance of at least `len` elements that is an odd number of cache lines: what lies this far apart is
/// spread over all sets of a cache.
fn spread(len: usize) -> usize {
    (len.div_ceil(16) | 1) * 16
}

impl Winograd {
    /// Plans a run over f32; `None` where the transform does not compute this geometry.
    pub fn new(kind: Kind, cut: Cut, geometry: Geometry, isa: Isa, tile: Tile) -> Option<Winograd> {
        Winograd::between(kind, cut, geometry, isa, tile)
    }
}

impl<B: Border> Winograd<B> {
    /// Plans a run between borders of any type. The geometry's channels are elements of the points, its strides those
    /// of the operands.
    pub(super) fn between(
        kind: Kind,
        cut: Cut,
        geometry: Geometry,
        isa: Isa,
        tile: Tile,
    ) -> Option<Winograd<B>> {
        if !kind.fits(&geometry) || matches!(cut, Cut::Live(_)) && !B::TAKES_LIVE {
            return None;
        }
        let outs = kind.axes().map(AxisKind::n_out);
        let n_tiles = [geometry.out_size(1).div_ceil(outs[0]), geometry.out_size(2).div_ceil(outs[1])];
        let n_columns = geometry.n_images * n_tiles[0] * n_tiles[1];
        let depth = geometry.out_size(0);
        let rows = cut.rows();
        // Slices beside a block are transformed again by its neighbours, so blocks are deep rather than wide.
        let most_depths =
            if geometry.axes[0].kernel == 1 { 1 } else { even_part(depth, rows.min(MOST_DEPTHS)) };
        let depths_per_block = most_depths.max(1);
        let columns_per_block = even_part(n_columns, rows.div_ceil(depths_per_block)).max(1);
        let padded_c = geometry.c.next_multiple_of(tile.lanes());
        let in_depths = (depths_per_block + geometry.axes[0].kernel - 1).min(geometry.in_size(0));
        let n_points = kind.n_points();
        let points_bytes = 4 * n_points * spread(columns_per_block * in_depths * padded_c);
        let block_rows = columns_per_block * depths_per_block;
        let n_panels = geometry.k.div_ceil(tile.nr()).max(1);
        let flops = geometry.flops();
        // Products of a chunk take at most about a third of the cache.
        let most_products = L2_BYTES / 3 / (4 * n_points);
        let (panels_per_block, rows_per_chunk) = match cut {
            Cut::Fused(_) | Cut::Split(_) => {
                let panels = (most_products / (block_rows * tile.nr())).clamp(1, n_panels);
                (n_panels.div_ceil(n_panels.div_ceil(panels)), block_rows)
            }
            Cut::Live(_) => (1, block_rows),
            Cut::Phased(_) => {
                let rows = (most_products / tile.nr()).clamp(tile.mr(), block_rows.max(tile.mr()));
                let rows = even_part(block_rows, rows - rows % tile.mr()).max(1);
                // Channels are cut first: every part of the rows reads the weights again.
                let wanted = wanted_tasks(flops / 4.0).min(PHASED_TASKS);
                let panels = (most_products / (rows * tile.nr())).clamp(1, n_panels);
                let panels = panels.min(n_panels / wanted.div_ceil(block_rows.div_ceil(rows))).max(1);
                let n_parts = wanted.div_ceil(n_panels.div_ceil(panels));
                let rows = rows.min(block_rows.div_ceil(n_parts).max(tile.mr().min(rows)));
                (panels, rows)
            }
        };
        let n_blocks = n_columns.div_ceil(columns_per_block) * depth.div_ceil(depths_per_block);
        let n_parts = match cut {
            Cut::Split(_) => SPLIT_TASKS.div_ceil(n_blocks.max(1)).min(n_panels),
            _ => 1,
        };
        let products_bytes = 4 * n_points * spread(rows_per_chunk * panels_per_block * tile.nr());
        let table_bytes = (8 * rows_per_chunk * geometry.axes[0].kernel).next_multiple_of(64);
        let weights_bytes = match cut {
            Cut::Live(_) => live::weights_bytes(kind, tile, geometry.c),
            _ => 0,
        };
        Some(Winograd {
            kind,
            cut,
            isa,
            tile,
            n_tiles,
            n_columns,
            columns_per_block,
            depths_per_block,
            padded_c,
            panels_per_block,
            rows_per_chunk,
            n_parts,
            zeros: vec![0.0; padded_c],
            prefetches: 4 * geometry.n_images * geometry.input.image > L2_BYTES,
            fetches_weights: 4
                * n_points
                * geometry.axes[0].kernel
                * geometry.c
                * tile.panel_width(geometry.k)
                > NEAR_WEIGHTS,
            points_bytes,
            products_bytes,
            table_bytes,
            weights_bytes,
            geometry,
            border: PhantomData,
        })
    }

    /// Whether blocks were to be split, and are as many as tasks are wanted, or of one panel: then it is as if fused.
    pub(super) fn splits_nothing(&self) -> bool {
        matches!(self.cut, Cut::Split(_)) && self.n_parts == 1
    }

    fn n_blocks(&self) -> usize {
        self.n_columns.div_ceil(self.columns_per_block)
            * self.geometry.out_size(0).div_ceil(self.depths_per_block)
    }

    fn n_channel_blocks(&self) -> usize {
        self.geometry.k.div_ceil(self.tile.nr()).div_ceil(self.panels_per_block)
    }

    /// What the work is cut into: the tasks that can run at once.
    pub fn n_tasks(&self) -> usize {
        match self.cut {
            Cut::Fused(_) | Cut::Split(_) => self.n_blocks() * self.n_parts,
            Cut::Phased(_) | Cut::Live(_) => {
                let rows = self.columns_per_block * self.depths_per_block;
                self.n_channel_blocks() * rows.div_ceil(self.rows_per_chunk)
            }
        }
    }

    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        match self.cut {
            Cut::Fused(_) | Cut::Split(_) => n_slots * self.slot_bytes(),
            Cut::Phased(_) | Cut::Live(_) => self.points_bytes + n_slots * self.slot_bytes(),
        }
    }

    fn slot_bytes(&self) -> usize {
        let points = match self.cut {
            Cut::Fused(_) | Cut::Split(_) => self.points_bytes,
            Cut::Phased(_) | Cut::Live(_) => 0,
        };
        points + self.products_bytes + self.table_bytes + self.weights_bytes
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the workspace writable, for what the geometry and
    /// the plan say.
    pub unsafe fn run(&self, call: &B::Call<'_>, team: &Team) {
        if self.geometry.k == 0 {
            return;
        }
        let (n_blocks, n_channel_blocks) = (self.n_blocks(), self.n_channel_blocks());
        let n_panels = self.geometry.k.div_ceil(self.tile.nr());
        match self.cut {
            Cut::Fused(_) | Cut::Split(_) => team.for_each(n_blocks * self.n_parts, &|task| {
                let block = self.block(task.idx / self.n_parts);
                let own = part(n_panels, self.n_parts, task.idx % self.n_parts);
                let n_chunks = own.len().div_ceil(self.panels_per_block);
                let channels = own.start * self.tile.nr()..(own.end * self.tile.nr()).min(self.geometry.k);
                // SAFETY: granted by the caller; slots have different workspace, tasks different outputs.
                unsafe {
                    let points = call.workspace().add(task.slot * self.slot_bytes());
                    let rest = points.add(self.points_bytes);
                    self.transform_inputs(call, &block, 0..block.n_inputs(), points.cast());
                    for idx in 0..n_chunks {
                        let panels = part(own.len(), n_chunks, idx);
                        let panels = own.start + panels.start..own.start + panels.end;
                        self.multiply(call, &block, points.cast(), 0..block.n_rows(), panels, rest);
                    }
                    self.finished(call, &block, 0..block.n_rows(), channels, task.slot);
                }
            }),
            Cut::Phased(_) | Cut::Live(_) => {
                for idx in 0..n_blocks {
                    let block = self.block(idx);
                    let points: Address = Address(call.workspace());
                    // A tile of 32 channels is some 4,000 operations.
                    let work = (block.n_inputs() * self.padded_c * self.kind.n_points()) as f64 * 5.0;
                    let n_chunks = wanted_tasks(work).min(block.n_inputs());
                    team.for_each(n_chunks, &|task: Task| {
                        let tiles = part(block.n_inputs(), n_chunks, task.idx);
                        // SAFETY: granted by the caller; chunks have different points.
                        unsafe { self.transform_inputs(call, &block, tiles, points.get().cast()) }
                    });
                    let n_row_chunks = block.n_rows().div_ceil(self.rows_per_chunk);
                    team.for_each(n_channel_blocks * n_row_chunks, &|task: Task| {
                        let rows = part(block.n_rows(), n_row_chunks, task.idx % n_row_chunks);
                        let panels = part(n_panels, n_channel_blocks, task.idx / n_row_chunks);
                        // SAFETY: granted by the caller; slots have different workspace, tasks different outputs.
                        unsafe {
                            let rest = points.get().add(self.points_bytes + task.slot * self.slot_bytes());
                            let channels = panels.start * self.tile.nr()
                                ..(panels.end * self.tile.nr()).min(self.geometry.k);
                            self.multiply(call, &block, points.get().cast(), rows.clone(), panels, rest);
                            self.finished(call, &block, rows, channels, task.slot);
                        }
                    });
                }
            }
        }
    }

    fn block(&self, idx: usize) -> Block {
        let g = &self.geometry;
        let n_column_blocks = self.n_columns.div_ceil(self.columns_per_block);
        let first = idx % n_column_blocks * self.columns_per_block;
        let depth = idx / n_column_blocks * self.depths_per_block;
        let columns = first..(first + self.columns_per_block).min(self.n_columns);
        let depths = depth..(depth + self.depths_per_block).min(g.out_size(0));
        let axis = &g.axes[0];
        let from = depths.start.saturating_sub(axis.pad_begin).min(axis.input);
        let to = (depths.end + axis.kernel - 1).saturating_sub(axis.pad_begin).min(axis.input);
        let in_depths = from..to.max(from);
        let point_stride = spread(columns.len() * in_depths.len() * self.padded_c);
        Block { columns, depths, in_depths, point_stride }
    }

    unsafe fn transform_inputs(&self, call: &B::Call<'_>, block: &Block, tiles: Range<usize>, to: *mut f32) {
        // SAFETY: granted by the caller.
        unsafe { B::transform_inputs(self, call, block, tiles, to) }
    }

    /// Multiplies tiles and channels of a block point by point and transforms the products back.
    ///
    /// # Safety
    /// As for [`Winograd::run`]; `workspace` must hold a slot's products and pointers.
    unsafe fn multiply(
        &self,
        call: &B::Call<'_>,
        block: &Block,
        points: *const f32,
        rows: Range<usize>,
        panels: Range<usize>,
        workspace: *mut u8,
    ) {
        let g = &self.geometry;
        let nr = self.tile.nr();
        let n_taps = g.axes[0].kernel;
        let channels = panels.start * nr..(panels.end * nr).min(g.k);
        let width = self.tile.panel_width(channels.len());
        let point_stride = spread(rows.len() * width);
        let products: *mut f32 = workspace.cast();
        let depth = n_taps * g.c;
        let weights_per_point = depth * self.tile.panel_width(g.k);
        let n_row_tiles = rows.len().div_ceil(self.tile.mr());
        let n_columns = block.columns.len();
        let zeros = self.zeros.as_ptr();
        // SAFETY: the table lies after the products; every pointer is to `c` channels of a tile at a point, or
        // to zeros.
        unsafe {
            let table: *mut *const f32 = workspace.add(self.products_bytes).cast();
            for tap in 0..n_taps {
                for (i, row) in rows.clone().enumerate() {
                    let depth = block.depths.start + row / n_columns + tap;
                    let pixel = match depth.checked_sub(g.axes[0].pad_begin) {
                        Some(depth) if block.in_depths.contains(&depth) => {
                            let slice = depth - block.in_depths.start;
                            points.add((slice * n_columns + row % n_columns) * self.padded_c)
                        }
                        _ => zeros,
                    };
                    table.add(tap * rows.len() + i).write(pixel);
                }
            }
            let live = matches!(self.cut, Cut::Live(_));
            if live {
                let weights = workspace.add(self.products_bytes + self.table_bytes).cast();
                let panel = panels.start;
                self.live_products(call, block, rows.clone(), panel, table, weights, products, point_stride);
            }
            for point in 0..if live { 0 } else { self.kind.n_points() } {
                if point > 0 {
                    live::advance(table, n_taps * rows.len(), zeros, block.point_stride as isize);
                }
                for panel in panels.clone() {
                    let n = nr.min(g.k - panel * nr);
                    let at = |point: usize, panel: usize| {
                        B::weights(call).wrapping_add(point * weights_per_point + panel * nr * depth)
                    };
                    let weights = at(point, panel);
                    let next = match () {
                        () if panel + 1 < panels.end => at(point, panel + 1),
                        () if point + 1 < self.kind.n_points() => at(point + 1, panels.start),
                        () => at(0, panels.end),
                    };
                    let lines = Ahead::lines(self.tile.panel_width(n), n_row_tiles);
                    let per_tile = Ahead::fetched(n_taps, g.c, lines);
                    for idx in 0..n_row_tiles {
                        let tile_rows = part(rows.len(), n_row_tiles, idx);
                        let column = (panel - panels.start) * nr;
                        self.tile.run(&TileCall {
                            rows: table.add(tile_rows.start),
                            rows_stride: rows.len(),
                            n_segments: n_taps,
                            depth: g.c,
                            panel: weights,
                            panel_stride: self.tile.panel_width(n),
                            ahead: match self.fetches_weights {
                                true => Ahead { from: next.wrapping_add(idx * per_tile), lines },
                                false => Ahead::NONE,
                            },
                            c: products.add(point * point_stride + tile_rows.start * width + column),
                            c_stride: width,
                            m: tile_rows.len(),
                            n,
                            accumulate: false,
                            epilogue: EpilogueCall::NONE,
                        });
                    }
                }
            }
        }
        let products = Products { tiles: rows, channels, from: products, tile_stride: width, point_stride };
        // SAFETY: granted by the caller; all points were multiplied.
        unsafe { B::transform_outputs(self, call, block, products) }
    }

    /// Hands finished outputs on: of tiles side by side, row by row.
    fn finished(
        &self,
        call: &B::Call<'_>,
        block: &Block,
        rows: Range<usize>,
        channels: Range<usize>,
        slot: usize,
    ) {
        let Some((after, output)) = call.after() else { return };
        let g = &self.geometry;
        let [y_out, x_out] = self.kind.axes().map(AxisKind::n_out);
        let n_columns = block.columns.len();
        let mut row = rows.start;
        while row < rows.end {
            let depth = block.depths.start + row / n_columns;
            let (image, y_tile, x_tile) = self.locate(block.columns.start + row % n_columns);
            let n = (self.n_tiles[1] - x_tile).min(n_columns - row % n_columns).min(rows.end - row);
            let (y, x) = (y_tile * y_out, x_tile * x_out);
            let n_pixels = (n * x_out).min(g.out_size(2) - x);
            for y in y..(y + y_out).min(g.out_size(1)) {
                let first = ((image * g.out_size(0) + depth) * g.out_size(1) + y) * g.out_size(2) + x;
                let [d_stride, y_stride, x_stride] = g.output.axes;
                let offset = image * g.output.image + depth * d_stride + y * y_stride + x * x_stride;
                after(&Finished {
                    at: output.wrapping_add(offset + channels.start),
                    stride: x_stride,
                    pixels: first..first + n_pixels,
                    channels: channels.clone(),
                    slot,
                });
            }
            row += n;
        }
    }

    /// Image, row and column of a tile.
    #[inline(always)]
    fn locate(&self, column: usize) -> (usize, usize, usize) {
        let [rows, cols] = self.n_tiles;
        (column / (rows * cols), column / cols % rows, column % cols)
    }

    #[inline(always)]
    pub(super) fn input_tile(&self, block: &Block, idx: usize) -> InputTile {
        let g = &self.geometry;
        let n_columns = block.columns.len();
        let depth = block.in_depths.start + idx / n_columns;
        let (image, row, col) = self.locate(block.columns.start + idx % n_columns);
        let axes = self.kind.axes();
        let start = |axis: usize, tile: usize| {
            (tile * axes[axis - 1].n_out()) as isize - g.axes[axis].pad_begin as isize
        };
        let inside = |axis: usize, start: isize| {
            let n = axes[axis - 1].n_in();
            let from = (-start).clamp(0, n as isize) as usize;
            let to = (g.axes[axis].input as isize - start).clamp(from as isize, n as isize) as usize;
            from..to
        };
        let (y, x) = (start(1, row), start(2, col));
        let [d_stride, y_stride, x_stride] = arrays::map(g.input.axes, |stride| stride as isize);
        let at = (image * g.input.image) as isize + depth as isize * d_stride + y * y_stride + x * x_stride;
        InputTile { at, rows: inside(1, y), cols: inside(2, x) }
    }

    #[inline(always)]
    pub(super) fn output_tile(&self, block: &Block, row: usize) -> OutputTile {
        let g = &self.geometry;
        let n_columns = block.columns.len();
        let depth = block.depths.start + row / n_columns;
        let (image, row, col) = self.locate(block.columns.start + row % n_columns);
        let [y_kind, x_kind] = self.kind.axes();
        let (y, x) = (row * y_kind.n_out(), col * x_kind.n_out());
        let at = |pixels: &super::geometry::Pixels| {
            image * pixels.image + depth * pixels.axes[0] + y * pixels.axes[1] + x * pixels.axes[2]
        };
        OutputTile {
            output: at(&g.output),
            residual: g.residual.as_ref().map(at),
            rows: (g.out_size(1) - y).min(y_kind.n_out()),
            cols: (g.out_size(2) - x).min(x_kind.n_out()),
        }
    }
}

/// Transformed weights of at most so many bytes stay in the second-level cache from one block of tiles to the next.
const NEAR_WEIGHTS: usize = L2_BYTES / 4 * 3;

/// Tasks that blocks are split into where they are fewer: each more transforms the tiles once more, 2 % of the time of 512
/// channels at 7x7.
const SPLIT_TASKS: usize = 4;

/// Tasks that the products of a phase are cut into at least, where there is the work.
const PHASED_TASKS: usize = 16;

/// Depths of a block of a 3-D convolution: with 8, a quarter of the slices is transformed twice.
const MOST_DEPTHS: usize = 8;

/// An address that tasks share.
#[derive(Clone, Copy)]
struct Address(*mut u8);

// SAFETY: tasks use disjoint parts of what is there.
unsafe impl Sync for Address {}

impl Address {
    fn get(&self) -> *mut u8 {
        self.0
    }
}

#[cfg(test)]
mod tests;
