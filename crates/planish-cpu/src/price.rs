//! Prices that memory-bound kernels put on their candidates, before anything is measured.

use crate::isa::Isa;

/// Bytes per nanosecond that one thread moves, read and written together: within the last cache, and out of
/// it. Measured by the example `movement` on a Zen 4 at some 90 and 25; kernels reach less than copies.
const CACHED_BYTES_PER_NS: f64 = 60.0;
const FAR_BYTES_PER_NS: f64 = 20.0;

/// What is taken to stay in the last cache.
const CACHED_BYTES: f64 = 16e6;

/// Threads beyond this share the same memory.
const MEMORY_THREADS: usize = 4;

/// Cycles per nanosecond; a kernel's share of the peak matters more than the exact clock.
const CYCLES_PER_NS: f64 = 3.0;

/// What starting a step costs.
const START_NS: f64 = 500.0;

/// Expected nanoseconds of a step that does `operations` of f32 (a multiply-add is two) and moves `bytes`.
pub(crate) fn expected_ns(isa: Isa, operations: f64, bytes: f64, threads: usize) -> f64 {
    let per_ns = 2.0 * isa.lanes() as f64 * CYCLES_PER_NS * threads.max(1) as f64;
    let rate = if bytes <= CACHED_BYTES { CACHED_BYTES_PER_NS } else { FAR_BYTES_PER_NS };
    let moved = bytes / (rate * threads.clamp(1, MEMORY_THREADS) as f64);
    START_NS + (operations / per_ns).max(moved)
}
