//! Resize of images: nearest pixels, or weighted sums of neighbours, of f32 in either layout, of bytes with channels innermost.
//!
//! Where each output point reads, and with which weights, is settled per axis when the plan is made ([`taps`]).
//! With channels innermost, an output pixel is a weighted sum of whole pixels, in vectors of channels. In the
//! plain layout the rows under an output row are first summed into workspace, then taps along the row.

mod family;
mod rows;
pub mod taps;
#[cfg(test)]
mod tests;

pub(crate) use family::ResizeFamily;

use crate::elements::{Bytes, Floats, Requantized};
use crate::isa::Isa;
use crate::movement::copy_run;
use crate::spatial::{AXES, ImageStrides, units_per_task};
use crate::team::Team;
use taps::Taps;

/// Bytes that a task writes at least.
const TASK_BYTES: usize = 1 << 15;

/// Workspace rows begin on cache lines.
const LINE: usize = 16;

/// A resize with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct Resizing {
    isa: Isa,
    /// Of nearest pixels: one tap each, and only the width of elements in bytes matters.
    nearest: Option<usize>,
    bytes: Option<BytesOf>,
    batch: usize,
    channels: usize,
    /// Depth, height, width.
    taps: [Taps; AXES],
    /// Taps of the width for the plain layout.
    columns: Columns,
    in_width: usize,
    from: ImageStrides,
    to: ImageStrides,
    is_channels_last: bool,
    n_units: usize,
    units_per_task: usize,
}

/// The taps of an output row: as many for each of its points, where that is how many there are.
#[derive(Clone, Debug)]
enum Columns {
    /// Linear.
    Two(Vec<[(u32, f32); 2]>),
    /// Cubic, and linear to half the size without aliasing.
    Four(Vec<[(u32, f32); 4]>),
    Any,
}

impl Columns {
    fn of(taps: &Taps) -> Columns {
        let four = || taps.padded().map(Columns::Four);
        taps.padded().map(Columns::Two).or_else(four).unwrap_or(Columns::Any)
    }
}

/// What a run reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct ResizeArguments {
    pub x: *const u8,
    pub y: *mut u8,
    /// [`Resizing::workspace_len`] elements for each slot of the team.
    pub workspace: *mut f32,
}

// SAFETY: the input is only read, the output is written by one task each, the workspace by one slot each.
unsafe impl Sync for ResizeArguments {}

/// Weighted sums of bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BytesOf {
    pub signed: bool,
    pub by: Requantized,
}

/// Sizes and places of a resize.
#[derive(Clone, Debug)]
pub struct ResizeForm {
    pub batch: usize,
    pub channels: usize,
    /// Depth, height, width.
    pub taps: [Taps; AXES],
    /// Columns of the input.
    pub in_width: usize,
    pub from: ImageStrides,
    pub to: ImageStrides,
}

impl Resizing {
    /// Plans a resize of images of f32 or of `bytes`, or of nearest pixels whose elements have `nearest` bytes. `None` where
    /// neither channels nor columns are innermost on both sides; `bytes` must have channels there.
    pub fn plan(
        isa: Isa,
        form: ResizeForm,
        nearest: Option<usize>,
        bytes: Option<BytesOf>,
    ) -> Option<Resizing> {
        let ResizeForm { batch, channels, taps, in_width, from, to } = form;
        let [depth, height, width] = [0, 1, 2].map(|axis| taps[axis].len());
        let is_plain = (in_width <= 1 || from.axes[2] == 1) && (width <= 1 || to.axes[2] == 1);
        let channels_inside = channels <= 1 || (from.channel == 1 && to.channel == 1);
        // One channel lies both ways; columns are then the longer vectors.
        let is_channels_last = channels_inside && !(is_plain && channels <= 1 && bytes.is_none());
        if !is_channels_last && (!is_plain || bytes.is_some()) {
            return None;
        }
        if nearest.is_some() && taps.iter().any(|taps| !taps.is_single()) {
            return None;
        }
        let per_unit = if is_channels_last { channels } else { 1 };
        let n_units = batch * depth * height * channels.checked_div(per_unit).unwrap_or(0);
        let n_units = if width == 0 { 0 } else { n_units };
        let unit_bytes = width * per_unit * nearest.unwrap_or(size_of::<f32>());
        let columns = match is_channels_last || nearest.is_some() {
            true => Columns::Any,
            false => Columns::of(&taps[2]),
        };
        Some(Resizing {
            isa,
            nearest,
            bytes,
            batch,
            channels,
            taps,
            columns,
            in_width,
            from,
            to,
            is_channels_last,
            n_units,
            units_per_task: units_per_task(n_units, unit_bytes, TASK_BYTES),
        })
    }

    /// Elements of workspace for one slot.
    pub fn workspace_len(&self) -> usize {
        match self.is_channels_last || self.nearest.is_some() {
            true => 0,
            false => self.in_width.next_multiple_of(LINE),
        }
    }

    /// Multiply-adds of a run.
    pub fn macs(&self) -> usize {
        let entries: usize = self.taps.iter().map(Taps::n_entries).product();
        if self.nearest.is_some() { 0 } else { self.batch * self.channels * entries }
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// `x` and `y` must be valid for the elements that the planned operands span, `workspace` for
    /// [`Resizing::workspace_len`] elements for each slot of the team, and nothing else may write them meanwhile.
    pub unsafe fn run(&self, arguments: &ResizeArguments, team: &Team) {
        team.for_each(self.n_units.div_ceil(self.units_per_task), &|task| {
            let arguments: &ResizeArguments = arguments;
            let first = task.idx * self.units_per_task;
            let units = first..(first + self.units_per_task).min(self.n_units);
            let workspace = self.workspace_of(arguments, task.slot);
            match (self.nearest, self.is_channels_last) {
                // SAFETY: the caller grants the memory, taps lie in the image.
                (Some(width), _) => unsafe { self.nearest(arguments, units, width) },
                (None, true) => self.run_last(rows::Units { plan: self, arguments, units }),
                (None, false) => {
                    self.isa.run(rows::Plain(rows::Units { plan: self, arguments, units }, workspace))
                }
            }
        });
    }

    /// Rows with channels innermost.
    fn run_last(&self, units: rows::Units<'_>) {
        match self.bytes {
            None => self.isa.run(rows::Last(units, Floats)),
            Some(BytesOf { signed: false, by }) => self.isa.run(rows::Last(units, Bytes::<u8>::new(by))),
            Some(BytesOf { signed: true, by }) => self.isa.run(rows::Last(units, Bytes::<i8>::new(by))),
        }
    }

    fn workspace_of(&self, arguments: &ResizeArguments, slot: usize) -> *mut f32 {
        arguments.workspace.wrapping_add(slot * self.workspace_len())
    }

    /// Batch, channel, depth and height of a unit: an output row, of one channel in the plain layout.
    #[inline(always)]
    fn place(&self, unit: usize) -> [usize; 4] {
        let (rest, height) = (unit / self.taps[1].len(), unit % self.taps[1].len());
        let (rest, depth) = (rest / self.taps[0].len(), rest % self.taps[0].len());
        match self.is_channels_last {
            true => [rest, 0, depth, height],
            false => [rest / self.channels, rest % self.channels, depth, height],
        }
    }

    /// Rows of nearest pixels.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn nearest(&self, arguments: &ResizeArguments, units: std::ops::Range<usize>, width: usize) {
        for unit in units {
            let [n, c, d, h] = self.place(unit);
            let source = |axis: usize, at: usize| self.taps[axis].of(at)[0].0 * self.from.axes[axis];
            let from = n * self.from.batch + c * self.from.channel + source(0, d) + source(1, h);
            let to = n * self.to.batch + c * self.to.channel + d * self.to.axes[0] + h * self.to.axes[1];
            let (from, to) = (arguments.x.wrapping_add(from * width), arguments.y.wrapping_add(to * width));
            // SAFETY: the caller grants the memory.
            unsafe {
                match (self.is_channels_last, width) {
                    (true, _) => self.nearest_pixels(from, to, width, self.channels * width),
                    (false, 1) => self.nearest_elements::<u8>(from, to),
                    (false, 2) => self.nearest_elements::<u16>(from, to),
                    (false, 4) => self.nearest_elements::<u32>(from, to),
                    (false, 8) => self.nearest_elements::<u64>(from, to),
                    (false, _) => self.nearest_pixels(from, to, width, width),
                }
            }
        }
    }

    /// One row, `run` bytes of each pixel.
    ///
    /// # Safety
    /// Both rows must be granted.
    unsafe fn nearest_pixels(&self, from: *const u8, to: *mut u8, width: usize, run: usize) {
        for (at, source) in self.taps[2].singles().enumerate() {
            // SAFETY: the taps lie in the row.
            unsafe {
                copy_run(
                    from.wrapping_add(source * self.from.axes[2] * width),
                    to.wrapping_add(at * self.to.axes[2] * width),
                    run,
                );
            }
        }
    }

    /// One row of neighbouring elements.
    ///
    /// # Safety
    /// Both rows must be granted.
    unsafe fn nearest_elements<T: Copy>(&self, from: *const u8, to: *mut u8) {
        for (at, source) in self.taps[2].singles().enumerate() {
            // SAFETY: the taps lie in the row.
            unsafe {
                let value = from.cast::<T>().add(source).read_unaligned();
                to.cast::<T>().add(at).write_unaligned(value);
            }
        }
    }
}
