//! Depthwise convolution over channels-last images: every output channel reads one input channel.
//!
//! A vector holds neighbouring channels of one pixel, a tile holds `TILE` neighbouring output pixels of a
//! row. In the common kernels (3, 5 or 7 taps along the row, stride 1 or 2) a loaded input vector serves every
//! tap that meets it, so loads stay well below multiplications. Tiles whose windows lie inside the image run
//! without checks; at the left and right border a mask of columns is tested, at the other borders whole taps
//! are left out. For every output element the taps are added in the same order whichever way it is computed.

mod family;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use family::{DepthwiseFamily, FORMAT};

use std::ops::Range;

use planish_op::window::PlacedAxis;

use crate::isa::Isa;
use crate::spatial::Windows;
use crate::team::Team;
use rows::RowsCall;

/// Output pixels of a row that are computed at once: accumulators that fit sixteen registers together with
/// seven weights and an input.
pub(crate) const TILE: usize = 8;

/// Channels of packed weights are rounded up to this: the widest vector.
pub(crate) const CHANNEL_BLOCK: usize = 16;

/// Images up to this are in the second-level cache (1 MiB or more) when they have just been written.
const NEAR_BYTES: usize = 512 << 10;

/// Multiply-adds that a task has at least.
const TASK_MACS: usize = 1 << 16;

/// Tasks that rows alone should make; where there are too few rows, channels are cut as well.
const ROW_TASKS: usize = 8;

/// A depthwise convolution with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct Depthwise {
    isa: Isa,
    windows: Windows,
    /// Output channels for each input channel.
    multiplier: usize,
    tiles: Vec<Tile>,
    clamp: (f32, f32),
    /// Whether rows are asked for before they are read: where the image is larger than the second-level cache.
    prefetches: bool,
    rows_per_task: usize,
    channels_per_task: usize,
    entry: fn(Isa, &RowsCall<'_>),
}

/// Neighbouring output pixels of a row that are computed at once.
#[derive(Clone, Copy, Debug)]
struct Tile {
    start: usize,
    /// At most [`TILE`].
    n: usize,
    /// Bit `j` is set where column `start * stride - pad + j` lies in the image and belongs to one of the
    /// tile's windows.
    columns: u64,
    /// Whether all of its columns lie in the image and all of its pixels exist.
    is_inside: bool,
}

/// Some channels of an output row that were just stored, for what follows them element by element.
#[derive(Clone, Debug)]
pub struct OutputRow {
    /// The first of the channels of the first pixel.
    pub start: *mut f32,
    pub n_pixels: usize,
    /// In elements.
    pub pixel_stride: usize,
    pub channels: Range<usize>,
    /// The number of its first pixel, counted through the whole output.
    pub first_pixel: usize,
    /// The slot of the thread.
    pub slot: usize,
}

/// Called for all channels of every output row, on the thread that stored them, while they are still in cache.
pub type RowHook<'a> = dyn Fn(OutputRow) + Sync + 'a;

/// What a run reads and writes.
#[derive(Clone, Copy)]
pub struct DepthwiseArguments<'a> {
    pub x: *const f32,
    /// As [`pack`] made them.
    pub weights: *const f32,
    /// One per output channel, or null.
    pub bias: *const f32,
    pub y: *mut f32,
    pub hook: Option<&'a RowHook<'a>>,
}

impl std::fmt::Debug for DepthwiseArguments<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DepthwiseArguments").finish_non_exhaustive()
    }
}

// SAFETY: the pointers are read, or written by one task each, as `Depthwise::run` says.
unsafe impl Sync for DepthwiseArguments<'_> {}

/// Elements from one tap's weights to the next tap's.
fn pitch(channels: usize) -> usize {
    channels.next_multiple_of(CHANNEL_BLOCK)
}

/// How many elements packed weights have.
pub fn packed_len(channels: usize, n_taps: usize) -> usize {
    n_taps * pitch(channels)
}

/// Weights `channels, 1, taps…` with taps outermost and channels innermost, padded with zeros.
pub fn pack(weights: &[f32], channels: usize, n_taps: usize) -> Vec<f32> {
    let pitch = pitch(channels);
    let mut packed = vec![0.0; packed_len(channels, n_taps)];
    if n_taps > 0 {
        for (channel, taps) in weights.chunks_exact(n_taps).take(channels).enumerate() {
            for (tap, &weight) in taps.iter().enumerate() {
                packed[tap * pitch + channel] = weight;
            }
        }
    }
    packed
}

/// The weights that were packed.
pub(crate) fn unpack(packed: &[f32], channels: usize, n_taps: usize) -> Vec<f32> {
    let pitch = pitch(channels);
    let taps = |channel| (0..n_taps).map(move |tap| packed[tap * pitch + channel]);
    (0..channels).flat_map(taps).collect()
}

impl Depthwise {
    /// Plans a convolution whose output is clamped to `clamp` (infinite bounds leave it alone; NaN passes).
    /// `None` where channels are not innermost on both sides or do not divide.
    pub fn plan(isa: Isa, windows: Windows, in_channels: usize, clamp: (f32, f32)) -> Option<Depthwise> {
        let is_innermost = (windows.from.channel == 1 || in_channels <= 1)
            && (windows.to.channel == 1 || windows.channels <= 1);
        if !is_innermost || in_channels == 0 || !windows.channels.is_multiple_of(in_channels) {
            return None;
        }
        let multiplier = windows.channels / in_channels;
        let width = &windows.axes[2];
        let entry = match (width.kernel, width.stride, width.dilation, multiplier) {
            (3, 1, 1, 1) => rows::sliding::<3, 1>,
            (3, 2, 1, 1) => rows::sliding::<3, 2>,
            (5, 1, 1, 1) => rows::sliding::<5, 1>,
            (5, 2, 1, 1) => rows::sliding::<5, 2>,
            (7, 1, 1, 1) => rows::sliding::<7, 1>,
            (7, 2, 1, 1) => rows::sliding::<7, 2>,
            (_, _, _, 0 | 1) => rows::general::<false>,
            _ => rows::general::<true>,
        };
        let input: usize = windows.axes.iter().map(|axis| axis.input).product();
        let prefetches = windows.batch * input * in_channels * size_of::<f32>() > NEAR_BYTES;
        let row = width.output * windows.channels * windows.n_taps();
        let n_rows = windows.n_rows();
        let n_tasks = (n_rows * row / TASK_MACS).max(1);
        let n_row_tasks = n_tasks.min(n_rows.div_ceil(2)).max(1);
        let n_channel_tasks = (n_tasks.min(ROW_TASKS) / n_row_tasks).max(1);
        let channels_per_task = windows.channels.div_ceil(n_channel_tasks).next_multiple_of(CHANNEL_BLOCK);
        Some(Depthwise {
            isa,
            tiles: tiles(width),
            rows_per_task: n_rows.div_ceil(n_row_tasks).max(1),
            channels_per_task: channels_per_task.max(CHANNEL_BLOCK),
            windows,
            multiplier,
            clamp,
            prefetches,
            entry,
        })
    }

    /// The same for an image that is in the second-level cache already.
    pub(crate) fn of_near_image(self) -> Depthwise {
        Depthwise { prefetches: false, ..self }
    }

    /// Multiply-adds of a run, those that meet padding counted as well.
    pub fn macs(&self) -> usize {
        self.windows.n_rows() * self.windows.axes[2].output * self.windows.channels * self.windows.n_taps()
    }

    /// Computes some rows of the output, on the calling thread.
    ///
    /// # Safety
    /// As for [`Depthwise::run`], for what these rows read and write.
    pub unsafe fn run_rows(&self, arguments: &DepthwiseArguments<'_>, rows: Range<usize>) {
        let channels = 0..self.windows.channels;
        (self.entry)(self.isa, &RowsCall { plan: self, arguments, rows, channels, slot: 0 });
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// `x` and `y` must be valid for the elements that the planned operands span, `weights` for
    /// [`packed_len`] elements, `bias` for one element per output channel or null, and nothing else may write
    /// them meanwhile. `y` must not overlap what is read.
    pub unsafe fn run(&self, arguments: &DepthwiseArguments<'_>, team: &Team) {
        let (n_rows, n_channels) = (self.windows.n_rows(), self.windows.channels);
        let n_channel_blocks = n_channels.div_ceil(self.channels_per_task);
        team.for_each(n_rows.div_ceil(self.rows_per_task) * n_channel_blocks, &|task| {
            let row = task.idx / n_channel_blocks * self.rows_per_task;
            let channel = task.idx % n_channel_blocks * self.channels_per_task;
            let call = RowsCall {
                plan: self,
                arguments,
                rows: row..(row + self.rows_per_task).min(n_rows),
                channels: channel..(channel + self.channels_per_task).min(n_channels),
                slot: task.slot,
            };
            (self.entry)(self.isa, &call);
        });
    }
}

/// The tiles of a row; only the last may be short.
fn tiles(width: &PlacedAxis) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let mut from = 0;
    while from < width.output {
        let (start, n) = (from, (width.output - from).min(TILE));
        // Only kernels with few columns read the mask: at most 7 strides of 2 and 7 taps.
        let (mut columns, mut is_inside) = (0, n == TILE);
        for pixel in 0..n {
            let taps = width.taps(start + pixel);
            is_inside &= taps.len() == width.kernel;
            for tap in taps {
                columns |= 1u64.checked_shl((pixel * width.stride + tap) as u32).unwrap_or(0);
            }
        }
        tiles.push(Tile { start, n, columns, is_inside });
        from = start + n;
    }
    tiles
}
