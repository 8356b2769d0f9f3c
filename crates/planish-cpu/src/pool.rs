//! Pooling of images: the largest or the average element under each window, of f32 in either layout, of bytes with channels
//! innermost.
//!
//! Channels-last images keep channels in vectors and walk the taps of one output pixel. In the plain layout
//! columns are in vectors: a first pass folds the rows under a window into one row of workspace, a second folds
//! along it; both folds commute with the order of taps up to rounding.

mod averages;
mod bytes;
mod family;
mod last;
mod plain;
#[cfg(test)]
mod tests;

pub(crate) use family::PoolFamily;

use std::marker::PhantomData;
use std::ops::Range;

use crate::elements::{Bytes, Requantized};
use crate::isa::Isa;
use crate::spatial::{AXES, Windows, units_per_task};
use crate::team::Team;

/// Elements that a task reads at least.
const TASK_READS: usize = 1 << 15;

/// Bytes of fewer taps are summed in 32 bits, whatever they are.
const MAX_TAPS: usize = 1 << 22;

/// Workspace rows begin on cache lines.
const LINE: usize = 16;
/// Elements behind a row of workspace that vectors of windows may read: two of the longest vectors.
const BEYOND: usize = 32;

/// What is taken of the elements under a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// The largest; NaN wins. Minus infinity where the window meets nothing.
    Max,
    /// The average of the elements, or of elements and padding, which counts as zeros.
    Average { include_pad: bool },
}

/// What images hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    F32,
    U8,
    I8,
}

/// A pool with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct Pool {
    isa: Isa,
    windows: Windows,
    fold: Fold,
    element: Element,
    /// Of an average of bytes.
    averaged: Option<Requantized>,
    is_channels_last: bool,
    /// For each window along an axis: where its first tap inside the image looks, how many are inside, and how
    /// many count for the average.
    places: [Vec<Place>; AXES],
    /// Windows along a row that have all their taps inside the image.
    whole_columns: Range<usize>,
    n_units: usize,
    units_per_task: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    first: usize,
    n: usize,
    n_counted: usize,
}

/// What a run reads and writes, by the plan's element.
#[derive(Clone, Copy, Debug)]
pub struct PoolArguments {
    pub x: *const f32,
    pub y: *mut f32,
    /// [`Pool::workspace_len`] elements for each slot of the team.
    pub workspace: *mut f32,
}

// SAFETY: the input is only read, the output is written by one task each, the workspace by one slot each.
unsafe impl Sync for PoolArguments {}

/// Units to compute: output rows of all channels, or of one channel in the plain layout.
struct UnitsCall<'a> {
    plan: &'a Pool,
    arguments: &'a PoolArguments,
    units: Range<usize>,
    workspace: *mut f32,
}

impl UnitsCall<'_> {
    /// Walks the output pixels of channels-last images: elements from the start of the input to the first tap, and from
    /// that of the output to the pixel, for channel 0, and where the taps are.
    #[inline(always)]
    fn for_each_pixel(&self, visit: impl Fn(usize, usize, [&Place; AXES])) {
        let windows = &self.plan.windows;
        for unit in self.units.clone() {
            let [n, d, h] = windows.row(unit);
            let (depth, height) = (&self.plan.places[0][d], &self.plan.places[1][h]);
            let in_row = n * windows.from.batch
                + depth.first * windows.from.axes[0]
                + height.first * windows.from.axes[1];
            let out_row = n * windows.to.batch + d * windows.to.axes[0] + h * windows.to.axes[1];
            for (w, width) in self.plan.places[2].iter().enumerate() {
                let from = in_row + width.first * windows.from.axes[2];
                visit(from, out_row + w * windows.to.axes[2], [depth, height, width]);
            }
        }
    }
}

impl Pool {
    /// Elements of the input from one tap to the next: depth, height, width.
    fn steps(&self) -> [usize; AXES] {
        std::array::from_fn(|axis| self.windows.axes[axis].dilation * self.windows.from.axes[axis])
    }

    /// Plans a pool. `None` where neither channels nor columns are innermost on both sides; of bytes only with channels
    /// innermost. What bytes stand for is `averaged`, which an average of them must have.
    pub fn plan(
        isa: Isa,
        windows: Windows,
        fold: Fold,
        element: Element,
        averaged: Option<Requantized>,
    ) -> Option<Pool> {
        let (from, to) = (&windows.from, &windows.to);
        let width = &windows.axes[2];
        let is_channels_last = windows.channels <= 1 || (from.channel == 1 && to.channel == 1);
        let is_plain = (width.input <= 1 || from.axes[2] == 1) && (width.output <= 1 || to.axes[2] == 1);
        // One channel lies both ways; columns are then the longer vectors.
        let is_f32 = element == Element::F32;
        let is_channels_last = is_channels_last && !(is_f32 && is_plain && windows.channels <= 1);
        let is_average_of_bytes = fold != Fold::Max && !is_f32;
        let has_kernel = is_f32 || is_channels_last && windows.n_taps() < MAX_TAPS;
        if is_average_of_bytes != averaged.is_some() {
            return None;
        }
        if !has_kernel || !is_channels_last && !is_plain {
            return None;
        }
        let places = [0, 1, 2].map(|axis| {
            let axis = &windows.axes[axis];
            let place = |window| {
                let taps = axis.taps(window);
                let n_counted = match fold {
                    Fold::Average { include_pad: true } => axis.n_padded_taps(window),
                    _ => taps.len(),
                };
                let first =
                    (window * axis.stride + taps.start * axis.dilation).saturating_sub(axis.pad_begin);
                Place { first, n: taps.len(), n_counted }
            };
            (0..axis.output).map(place).collect()
        });
        let places: [Vec<Place>; AXES] = places;
        let is_whole = |place: &Place| place.n == width.kernel;
        let start = places[2].iter().position(is_whole).unwrap_or(places[2].len());
        let end = places[2].iter().rposition(is_whole).map_or(start, |last| last + 1);
        let channels_of_unit = if is_channels_last { windows.channels } else { 1 };
        let n_units = windows.n_rows() * windows.channels.checked_div(channels_of_unit).unwrap_or(0);
        let reads = width.output * windows.n_taps() * channels_of_unit;
        let units_per_task = units_per_task(n_units, reads, TASK_READS);
        Some(Pool {
            isa,
            windows,
            fold,
            element,
            averaged,
            is_channels_last,
            places,
            whole_columns: start..end,
            n_units,
            units_per_task,
        })
    }

    /// Elements that a run folds.
    pub fn n_reads(&self) -> usize {
        let windows = &self.windows;
        windows.n_rows() * windows.axes[2].output * windows.channels * windows.n_taps()
    }

    /// Elements that are folded one by one along rows, after whole rows were folded in vectors.
    pub fn n_column_folds(&self) -> usize {
        let windows = &self.windows;
        if windows.axes[2].stride <= 2 {
            return 0;
        }
        windows.n_rows() * windows.axes[2].output * windows.channels * windows.axes[2].kernel
    }

    /// Elements of workspace for one slot.
    pub fn workspace_len(&self) -> usize {
        let row = self.windows.axes[2].input.next_multiple_of(LINE) + BEYOND;
        if self.is_channels_last { 0 } else { row }
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// `x` and `y` must be valid for the elements that the planned operands span, `workspace` for
    /// [`Pool::workspace_len`] elements for each slot of the team, and nothing else may write them meanwhile.
    pub unsafe fn run(&self, arguments: &PoolArguments, team: &Team) {
        if self.windows.axes[2].output == 0 {
            return;
        }
        team.for_each(self.n_units.div_ceil(self.units_per_task), &|task| {
            let first = task.idx * self.units_per_task;
            let call = UnitsCall {
                plan: self,
                arguments,
                units: first..(first + self.units_per_task).min(self.n_units),
                workspace: arguments.workspace.wrapping_add(task.slot * self.workspace_len()),
            };
            match (self.is_channels_last, self.fold) {
                _ if self.element != Element::F32 => self.bytes(&call),
                (true, Fold::Max) => self.isa.run(last::Rows::<true>(&call)),
                (true, Fold::Average { .. }) => self.isa.run(last::Rows::<false>(&call)),
                (false, Fold::Max) => self.isa.run(plain::Rows::<true>(&call)),
                (false, Fold::Average { .. }) => self.isa.run(plain::Rows::<false>(&call)),
            }
        });
    }

    /// Units of bytes.
    fn bytes(&self, call: &UnitsCall<'_>) {
        match (self.element, self.averaged) {
            (Element::I8, None) => self.isa.run(bytes::Rows::<i8>(call, PhantomData)),
            (_, None) => self.isa.run(bytes::Rows::<u8>(call, PhantomData)),
            (Element::I8, Some(by)) => {
                self.isa.run(averages::Rows { call, elements: Bytes::<i8>::new(by) });
            }
            (_, Some(by)) => self.isa.run(averages::Rows { call, elements: Bytes::<u8>::new(by) }),
        }
    }
}
