//! Convolution in f32: implicit GEMM, Winograd, kernels for few channels; plain, grouped and transposed.
//!
//! Activations have their channels innermost, with any distance between pixels, so that inputs and outputs may
//! lie inside larger values; an input with few channels may have them outermost. Everything is made in two
//! steps: a plan for one geometry, which decides blocks and tasks by sizes alone, and a run over addresses,
//! which allocates nothing. Read in this order: [`geometry`], [`pack`], [`igemm`], then the others.

pub mod band;
pub(crate) mod bf16;
pub(crate) mod cost;
mod evenly;
mod family;
pub mod geometry;
pub mod igemm;
pub mod narrow;
pub mod pack;
pub(crate) mod quantized;
mod region;
mod scale;
mod stored_bytes;
mod way;
mod windows;
pub mod winograd;

#[cfg(test)]
mod igemm_tests;
#[cfg(test)]
mod testing;

use std::fmt;
use std::ops::Range;

use crate::pointwise::Pointwise;
use crate::shared::Shared;

pub(crate) use family::ConvFamily;

/// The addresses and values of one run; which of them matter, and for how many elements, the plan says.
#[derive(Clone, Copy)]
pub struct ConvCall<'a> {
    pub input: *const f32,
    /// Packed as the plan wants it, aligned to 64 bytes.
    pub weights: *const f32,
    /// One per output channel, or null.
    pub bias: *const f32,
    /// Read where the geometry has a residual. It must not overlap the output.
    pub residual: *const f32,
    pub output: *mut f32,
    /// As large as the plan asks for the team's slots, aligned to 64 bytes.
    pub workspace: *mut u8,
    /// Bounds of the last step; infinite where there are none.
    pub lo: f32,
    pub hi: f32,
    /// What else is to happen to outputs, while they are in cache.
    pub after: Option<&'a After<'a>>,
    /// Where not 0, outputs are not stored in place: `output` is memory of so many elements for each slot, which holds the
    /// tile that `after` is called with and brings to where it belongs.
    pub staging: usize,
}

/// Called once for every output, on the thread that stored it.
pub type After<'a> = dyn Fn(&Finished) + Sync + 'a;

/// Neighbouring outputs that were just stored.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The first channel of the first pixel.
    pub at: *mut f32,
    /// From pixel to pixel, in elements.
    pub stride: usize,
    /// Pixels, counted over images, depths, rows and columns.
    pub pixels: Range<usize>,
    pub channels: Range<usize>,
    /// Of the thread.
    pub slot: usize,
}

impl Finished {
    /// Runs the program that follows the convolution over these outputs.
    ///
    /// # Safety
    /// As for `Pointwise::run_block`; `shared` has the workspace of the programs of all slots.
    pub(crate) unsafe fn follow(&self, program: &Pointwise, shared: &Shared<'_>) {
        let Shared { inputs, workspace, .. } = shared.of_slot(self.slot, program.workspace_bytes());
        let (pixels, channels) = (self.pixels.clone(), self.channels.clone());
        // SAFETY: granted by the caller.
        unsafe { program.run_block(inputs, self.at, self.stride, pixels, channels, workspace) };
    }
}

impl fmt::Debug for ConvCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConvCall")
            .field("input", &self.input)
            .field("weights", &self.weights)
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

// SAFETY: tasks write disjoint parts of the output and of the workspace, as each plan says; the rest is read.
unsafe impl Sync for ConvCall<'_> {}
// SAFETY: as above: the addresses belong to no thread.
unsafe impl Send for ConvCall<'_> {}

/// What the calls of all element types have.
pub trait RunCall: Sync {
    fn workspace(&self) -> *mut u8;
    /// What else is to happen to outputs, and the first of them.
    fn after<'c>(&'c self) -> Option<(&'c After<'c>, *mut f32)> {
        None
    }
}

impl RunCall for ConvCall<'_> {
    fn workspace(&self) -> *mut u8 {
        self.workspace
    }

    fn after<'c>(&'c self) -> Option<(&'c After<'c>, *mut f32)> {
        Some((self.after? as &After<'c>, self.output))
    }
}

/// A core's second-level cache, at least: what a block of weights or of transformed tiles may fill. Zen 4 has
/// 1 MiB, Intel's server cores 2 MiB since 2023 and 1 MiB since 2017.
const L2_BYTES: usize = 1 << 20;

/// The least work of a task, in floating-point operations: some ten microseconds, against about one for
/// handing a task over.
const MIN_TASK_FLOPS: f64 = 1e6;

/// As many tasks as a run is cut into where it has the work: three for each of sixteen threads, so that the
/// last round is a small part of the whole.
const TARGET_TASKS: usize = 48;

/// How many tasks to aim at for this much work: a number that 2, 4 and 8 threads share evenly, where there are
/// as many.
fn wanted_tasks(flops: f64) -> usize {
    match (flops / MIN_TASK_FLOPS) as usize {
        0 | 1 => 1,
        2 => 2,
        3..=5 => 4,
        n => ((n + 4) / 8 * 8).clamp(8, TARGET_TASKS),
    }
}

/// The `idx`th of `parts` even parts of `0..len`.
fn part(len: usize, parts: usize, idx: usize) -> Range<usize> {
    len * idx / parts..len * (idx + 1) / parts
}

/// `len` cut into even parts of at most `most`.
fn even_part(len: usize, most: usize) -> usize {
    len.div_ceil(len.div_ceil(most.max(1)).max(1))
}

/// Elements of a cache line.
const LINE: usize = 16;

/// Asks for the cache line at this address, which need not be memory, to be written: it comes from another
/// core's cache in one go, instead of to be read first and to be owned when it is stored.
#[inline(always)]
fn prefetch_to_write(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed; machines that do not know this one do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the cache line at this address, which need not be memory.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is allowed, and the instruction is part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
