//! How the rows of a depthwise convolution are cut into tiles and tasks, by sizes alone, whatever its elements are.

use std::ops::Range;

use planish_op::window::PlacedAxis;

use super::rows::{self, RowElements, RowsCall};
use super::{CHANNEL_BLOCK, TILE};
use crate::isa::Isa;
use crate::spatial::Windows;
use crate::team::Team;

/// Images up to this are in the second-level cache (1 MiB or more) when they have just been written.
const NEAR_BYTES: usize = 512 << 10;

/// Multiply-adds that a task has at least.
const TASK_MACS: usize = 1 << 16;

/// Tasks that rows alone should make; where there are too few rows, channels are cut as well.
const ROW_TASKS: usize = 8;

/// Windows with everything settled that their sizes settle.
#[derive(Clone, Debug)]
pub(super) struct RowPlan {
    isa: Isa,
    pub(super) windows: Windows,
    /// Output channels for each input channel.
    pub(super) multiplier: usize,
    pub(super) tiles: Vec<Tile>,
    /// Whether rows are asked for before they are read: where the image is larger than the second-level cache.
    pub(super) prefetches: bool,
    rows_per_task: usize,
    channels_per_task: usize,
}

/// Neighbouring output pixels of a row that are computed at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) start: usize,
    /// At most [`TILE`].
    pub(super) n: usize,
    /// Bit `j` is set where column `start * stride - pad + j` lies in the image and belongs to one of the
    /// tile's windows.
    pub(super) columns: u64,
    /// Whether all of its columns lie in the image and all of its pixels exist.
    pub(super) is_inside: bool,
}

impl RowPlan {
    /// For input elements of `element_bytes`. `None` where channels are not innermost on both sides or do not divide.
    pub(super) fn new(
        isa: Isa,
        windows: Windows,
        in_channels: usize,
        element_bytes: usize,
    ) -> Option<RowPlan> {
        let is_innermost = (windows.from.channel == 1 || in_channels <= 1)
            && (windows.to.channel == 1 || windows.channels <= 1);
        if !is_innermost || in_channels == 0 || !windows.channels.is_multiple_of(in_channels) {
            return None;
        }
        let width = &windows.axes[2];
        let input: usize = windows.axes.iter().map(|axis| axis.input).product();
        let row = width.output * windows.channels * windows.n_taps();
        let n_rows = windows.n_rows();
        let n_tasks = (n_rows * row / TASK_MACS).max(1);
        let n_row_tasks = n_tasks.min(n_rows.div_ceil(2)).max(1);
        let n_channel_tasks = (n_tasks.min(ROW_TASKS) / n_row_tasks).max(1);
        let channels_per_task = windows.channels.div_ceil(n_channel_tasks).next_multiple_of(CHANNEL_BLOCK);
        Some(RowPlan {
            isa,
            multiplier: windows.channels / in_channels,
            tiles: tiles(width),
            prefetches: windows.batch * input * in_channels * element_bytes > NEAR_BYTES,
            rows_per_task: n_rows.div_ceil(n_row_tasks).max(1),
            channels_per_task: channels_per_task.max(CHANNEL_BLOCK),
            windows,
        })
    }

    /// Multiply-adds of a run, those that meet padding counted as well.
    pub(super) fn macs(&self) -> usize {
        self.windows.n_rows() * self.windows.axes[2].output * self.windows.channels * self.windows.n_taps()
    }

    /// Computes some rows of the output, on the calling thread.
    ///
    /// # Safety
    /// As for [`RowPlan::run`], for what these rows read and write.
    pub(super) unsafe fn run_rows<E: RowElements>(&self, elements: &E, rows: Range<usize>) {
        let channels = 0..self.windows.channels;
        rows::run(self.isa, &RowsCall { plan: self, elements, rows, channels, slot: 0 });
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// What `elements` holds must be valid for what the planned operands span, its weights for as many elements as
    /// packed ones have, and nothing else may write them meanwhile. The output must not overlap what is read.
    pub(super) unsafe fn run<E: RowElements>(&self, elements: &E, team: &Team) {
        let (n_rows, n_channels) = (self.windows.n_rows(), self.windows.channels);
        let n_channel_blocks = n_channels.div_ceil(self.channels_per_task);
        team.for_each(n_rows.div_ceil(self.rows_per_task) * n_channel_blocks, &|task| {
            let row = task.idx / n_channel_blocks * self.rows_per_task;
            let channel = task.idx % n_channel_blocks * self.channels_per_task;
            let call = RowsCall {
                plan: self,
                elements,
                rows: row..(row + self.rows_per_task).min(n_rows),
                channels: channel..(channel + self.channels_per_task).min(n_channels),
                slot: task.slot,
            };
            rows::run(self.isa, &call);
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
