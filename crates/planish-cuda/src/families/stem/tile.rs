//! Tiles of first layers: so many output pixels by so many channels, their room and their price.

use planish_kernel::Layout;

use super::super::conv::region::Convolution;
use crate::gpu::Gpu;

/// Four warps.
pub(super) const THREADS: u32 = 128;

/// Output pixels (depth, rows, columns) and channels of a block, and how its image lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    pub(super) size: [usize; 3],
    pub(super) bn: usize,
    /// Channels are innermost.
    pub(super) last: bool,
    /// The pixels of the next tile come while one is computed.
    pub(super) ahead: bool,
}

/// Pixels of a tile, 16 or 32 for each warp.
const PIXELS: [usize; 2] = [64, 128];
const COLUMNS: [usize; 3] = [16, 32, 64];
/// Fragments have eight pixels side by side.
const WIDTHS: [usize; 4] = [8, 16, 32, 64];

/// Nanoseconds of a launch with its way to the first pixels, and to the last stores.
const LAUNCH: f64 = 1900.0;
/// Nanoseconds in which a multiprocessor brings an element, makes a product of 16x8x16, gives a sum out.
const ELEMENT: f64 = 0.10;
const PRODUCT: f64 = 1.1;
const SUM: f64 = 0.03;
/// Bytes a nanosecond in and out.
const BYTES: f64 = 3500.0;
/// Registers that a thread has besides its accumulators and the places of its fragments.
const REGISTERS: usize = 48;

impl Tile {
    pub(super) fn name(&self) -> String {
        let [d, h, w] = self.size;
        let ahead = if self.ahead { "_ahead" } else { "" };
        format!("{d}x{h}x{w}_n{}_{}{ahead}", self.bn, if self.last { "last" } else { "plain" })
    }

    pub(super) fn named(name: &str) -> Option<Tile> {
        let (sizes, rest) = name.split_once("_n")?;
        let (bn, layout) = rest.split_once('_')?;
        let (layout, ahead) = layout.strip_suffix("_ahead").map_or((layout, false), |layout| (layout, true));
        let mut size = sizes.split('x').map(|size| size.parse().ok());
        let tile = Tile {
            size: [size.next()??, size.next()??, size.next()??],
            bn: bn.parse().ok()?,
            last: layout == "last",
            ahead,
        };
        let known = size.next().is_none()
            && tile.size.iter().all(|size| (1..=PIXELS[1]).contains(size))
            && PIXELS.contains(&tile.pixels())
            && COLUMNS.contains(&tile.bn)
            && WIDTHS.contains(&tile.size[2]);
        (known && tile.name() == name).then_some(tile)
    }

    /// Every tile that wastes not too much, those that look ahead or those that do not.
    pub(super) fn all(gpu: &Gpu, convolution: &Convolution, row: usize, ahead: bool) -> Vec<Tile> {
        let mut all = Vec::new();
        for pixels in PIXELS {
            for width in WIDTHS {
                for depth in [1, 2, 4].into_iter().filter(|depth| convolution.spatial == 3 || *depth == 1) {
                    let size = [depth, pixels / width / depth, width];
                    if size[1] == 0 || (convolution.spatial == 1 && size[1] != 1) {
                        continue;
                    }
                    for bn in COLUMNS {
                        for last in [false, true] {
                            let tile = Tile { size, bn, last, ahead };
                            let narrow = bn > COLUMNS[0] && bn / 2 >= convolution.n;
                            // One tile for each multiprocessor has none after it.
                            let alone = ahead && tile.n_tiles(convolution) <= gpu.n_sms as usize;
                            if !narrow && !alone && tile.shared_bytes(convolution, row) <= gpu.smem_per_block
                            {
                                all.push(tile);
                            }
                        }
                    }
                }
            }
        }
        all
    }

    pub(super) fn layout(&self) -> Layout {
        if self.last { Layout::ChannelsLast } else { Layout::Plain }
    }

    fn pixels(&self) -> usize {
        self.size.iter().product()
    }

    /// Of 16 rows each, in a warp.
    pub(super) fn fragments(&self) -> usize {
        self.pixels() / 64
    }

    /// Tiles along each axis of an image.
    pub(super) fn counts(&self, convolution: &Convolution) -> [usize; 3] {
        [0, 1, 2].map(|axis| convolution.axes[axis].output.div_ceil(self.size[axis]))
    }

    /// Of all images.
    pub(super) fn n_tiles(&self, convolution: &Convolution) -> usize {
        self.counts(convolution).iter().product::<usize>() * convolution.n_images
    }

    /// Rows under a tile's windows and elements of one.
    fn patch(&self, convolution: &Convolution) -> [usize; 2] {
        let [d, h, w] = [0, 1, 2].map(|axis| {
            let placed = &convolution.axes[axis];
            (self.size[axis] - 1) * placed.stride + placed.kernel
        });
        [d * h, w * convolution.c]
    }

    fn copies(&self, convolution: &Convolution) -> usize {
        1 + convolution.axes[2].stride * convolution.c % 2
    }

    pub(super) fn shared_bytes(&self, convolution: &Convolution, row: usize) -> usize {
        let [rows, elements] = self.patch(convolution);
        let patch = rows * elements.next_multiple_of(2);
        let copy = patch.next_multiple_of(64) + 32;
        let ahead = if self.ahead { (patch + 2) * 4 } else { 0 };
        self.bn * (row + 8) * 2 + self.bn * 4 + self.copies(convolution) * copy * 2 + ahead
    }

    /// Blocks that share a multiprocessor.
    pub(super) fn room(&self, gpu: &Gpu, convolution: &Convolution, row: usize) -> usize {
        let registers = (self.fragments() * self.bn / 2 + row / 8 + REGISTERS).next_multiple_of(8);
        let by_memory = gpu.smem_per_sm / (self.shared_bytes(convolution, row) + 1024);
        (65_536 / (registers * THREADS as usize)).min(by_memory).clamp(1, 8)
    }

    /// Expected nanoseconds.
    pub(super) fn price_ns(&self, gpu: &Gpu, convolution: &Convolution, row: usize, bytes: usize) -> f64 {
        let tiles = self.n_tiles(convolution);
        let columns = convolution.n.div_ceil(self.bn);
        let per_sm = (tiles * columns).div_ceil(gpu.n_sms.max(1) as usize) as f64;
        let [rows, elements] = self.patch(convolution);
        let brought = (rows * elements) as f64 * (1.0 + 0.3 * self.copies(convolution) as f64) * ELEMENT;
        let products = (self.pixels() / 16 * (self.bn / 8) * (row / 16)) as f64 * PRODUCT;
        let given = (self.pixels() * self.bn) as f64 * SUM;
        // One tile's way is longer than its share of a full multiprocessor.
        let alone = 600.0 + row as f64 * 4.0;
        LAUNCH + alone + (per_sm * (brought + products + given)).max(bytes as f64 / BYTES)
    }
}
