//! Prices that memory-bound kernels put on their candidates, before anything is measured.

use crate::isa::Isa;

/// Bytes per nanosecond that one thread moves, read and written together; measured out of the last cache.
const BYTES_PER_NS: f64 = 12.0;

/// Threads beyond this share the same memory.
const MEMORY_THREADS: usize = 4;

/// Cycles per nanosecond; a kernel's share of the peak matters more than the exact clock.
const CYCLES_PER_NS: f64 = 3.0;

/// What starting a step costs.
const START_NS: f64 = 500.0;

/// Expected nanoseconds of a step that does `operations` of f32 (a multiply-add is two) and moves `bytes`.
pub(crate) fn expected_ns(isa: Isa, operations: f64, bytes: f64, threads: usize) -> f64 {
    let per_ns = 2.0 * isa.lanes() as f64 * CYCLES_PER_NS * threads.max(1) as f64;
    let moved = bytes / (BYTES_PER_NS * threads.clamp(1, MEMORY_THREADS) as f64);
    START_NS + (operations / per_ns).max(moved)
}
