//! Depthwise convolution over channels-last images: every output channel reads one input channel.
//!
//! A vector holds neighbouring channels of one pixel, a tile holds `TILE` neighbouring output pixels of a
//! row. In the common kernels (3, 5 or 7 taps along the row, stride 1 or 2) a loaded input vector serves every
//! tap that meets it, so loads stay well below multiplications. Tiles whose windows lie inside the image run
//! without checks; at the left and right border a mask of columns is tested, at the other borders whole taps
//! are left out. For every output element the taps are added in the same order whichever way it is computed.

mod family;
mod floats;
mod plan;
mod quantized;
mod rows;
#[cfg(test)]
mod tests;

pub(crate) use family::{DepthwiseFamily, FORMAT};
pub(crate) use quantized::{
    FORMAT as QUANTIZED_FORMAT, LESS, QuantizedDepthwiseFamily, format as quantized_format,
};

use std::ops::Range;

use crate::isa::Isa;
use crate::spatial::Windows;
use crate::team::Team;
use floats::Floats;
use plan::RowPlan;

/// Output pixels of a row that are computed at once: accumulators that fit sixteen registers together with
/// seven weights and an input.
pub(crate) const TILE: usize = 8;

/// Channels of packed weights are rounded up to this: the widest vector.
pub(crate) const CHANNEL_BLOCK: usize = 16;

/// A depthwise convolution of f32 with everything settled that its sizes settle.
#[derive(Clone, Debug)]
pub struct Depthwise {
    plan: RowPlan,
    clamp: (f32, f32),
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
        let plan = RowPlan::new(isa, windows, in_channels, size_of::<f32>())?;
        Some(Depthwise { plan, clamp })
    }

    /// The same for an image that is in the second-level cache already.
    pub(crate) fn of_near_image(mut self) -> Depthwise {
        self.plan.prefetches = false;
        self
    }

    /// Multiply-adds of a run, those that meet padding counted as well.
    pub fn macs(&self) -> usize {
        self.plan.macs()
    }

    /// Computes some rows of the output, on the calling thread.
    ///
    /// # Safety
    /// As for [`Depthwise::run`], for what these rows read and write.
    pub unsafe fn run_rows(&self, arguments: &DepthwiseArguments<'_>, rows: Range<usize>) {
        // SAFETY: the caller grants it.
        unsafe { self.plan.run_rows(&Floats { arguments, clamp: self.clamp }, rows) };
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// `x` and `y` must be valid for the elements that the planned operands span, `weights` for
    /// [`packed_len`] elements, `bias` for one element per output channel or null, and nothing else may write
    /// them meanwhile. `y` must not overlap what is read.
    pub unsafe fn run(&self, arguments: &DepthwiseArguments<'_>, team: &Team) {
        // SAFETY: the caller grants it.
        unsafe { self.plan.run(&Floats { arguments, clamp: self.clamp }, team) };
    }
}
