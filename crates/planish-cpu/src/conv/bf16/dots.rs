//! Tiles of AVX-512's dot products of pairs.

use std::arch::x86_64::*;

use super::super::ConvCall;
use super::super::igemm::TileAt;
use super::PAIR;
use super::gather::{self, BLOCK, ROW_BYTES};
use crate::gemm::tile::{TileCall, finish_row};
use crate::isa::Avx512;
use crate::simd::Simd;

/// Windows that have room in a block.
const ROWS: usize = 16;

/// Bytes that a task needs for windows of so many numbers.
pub(super) fn scratch_bytes(depth: usize) -> usize {
    gather::bytes(ROWS, depth)
}

/// `MR` windows by `NV` vectors of channels.
///
/// # Safety
/// As for `TileKernel::run`, and `at.scratch` must have [`scratch_bytes`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn tile<const MR: usize, const NV: usize>(call: &ConvCall<'_>, at: &TileAt) {
    // SAFETY: reached only through a row of the table, which exists only where the instructions do.
    let s = unsafe { Avx512::assume() };
    let n_pairs = at.n_segments * at.depth / PAIR;
    let mut acc = [[s.zero(); NV]; MR];
    // SAFETY: the windows are readable, the panel has a row for every pair, and the caller grants the rest.
    unsafe {
        if at.is_first_panel {
            gather::gather(at, ROWS);
        }
        let mut panel = call.weights.add(at.weights / PAIR);
        for block in 0..n_pairs.div_ceil(BLOCK / PAIR) {
            let windows = at.scratch.add(block * ROWS * ROW_BYTES).cast::<i32>();
            for pair in 0..(n_pairs - block * BLOCK / PAIR).min(BLOCK / PAIR) {
                let mut b = [_mm512_setzero_si512(); NV];
                for (j, b) in b.iter_mut().enumerate() {
                    *b = _mm512_loadu_epi32(panel.add(j * Avx512::LANES).cast());
                }
                for (i, row) in acc.iter_mut().enumerate() {
                    let a = _mm512_set1_epi32(*windows.add(i * ROW_BYTES / 4 + pair));
                    for (sum, b) in row.iter_mut().zip(b) {
                        *sum = _mm512_dpbf16_ps(*sum, numbers(a), numbers(b));
                    }
                }
                panel = panel.add(at.width);
            }
        }
        for (i, row) in acc.into_iter().enumerate() {
            let to = TileCall::after_sum(call.output.add(at.output + i * at.output_stride), at.n);
            finish_row(s, row, &TileCall { epilogue: call.epilogue(at).at(i, 0), ..to });
        }
    }
}

/// The same bits as pairs.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn numbers(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes without padding.
    unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) }
}
