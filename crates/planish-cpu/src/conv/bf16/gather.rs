//! Windows of f32 as blocks of bf16, with zeros after their end.

use std::arch::x86_64::*;

use super::super::igemm::TileAt;

/// Numbers of a window that a block has.
pub(super) const BLOCK: usize = 32;
/// Bytes of a window's part of a block: a row of a tile of AMX, a vector.
pub(super) const ROW_BYTES: usize = 64;

/// Bytes of `rows` windows of `depth` numbers.
pub(super) fn bytes(rows: usize, depth: usize) -> usize {
    depth.div_ceil(BLOCK) * rows * ROW_BYTES
}

/// The first `n` of 32 lanes.
fn first(n: usize) -> u32 {
    if n >= BLOCK { !0 } else { (1 << n) - 1 }
}

/// Rounds the tile's windows into its scratch memory, block by block; `rows` windows have room in a block.
///
/// # Safety
/// The windows must be readable for `at.depth` numbers a segment, `at.scratch` writable for [`bytes`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn gather(at: &TileAt, rows: usize) {
    let place = |i: usize, k: usize| {
        at.scratch.wrapping_add(k / BLOCK * rows * ROW_BYTES + i * ROW_BYTES + k % BLOCK * 2).cast::<i16>()
    };
    // SAFETY: granted by the caller; lanes that a mask leaves out are not touched.
    unsafe {
        for segment in 0..at.n_segments {
            let windows = at.rows.add(segment * at.rows_stride);
            let mut done = 0;
            while done < at.depth {
                let k = segment * at.depth + done;
                let n = (BLOCK - k % BLOCK).min(at.depth - done);
                let mask = first(n);
                for i in 0..at.m {
                    let (from, to) = ((*windows.add(i)).wrapping_add(done), place(i, k));
                    if n == BLOCK {
                        let (low, high) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16)));
                        _mm512_storeu_epi16(to, rounded(low, high));
                    } else {
                        let low = _mm512_maskz_loadu_ps(mask as u16, from);
                        let high = _mm512_maskz_loadu_ps((mask >> 16) as u16, from.wrapping_add(16));
                        _mm512_mask_storeu_epi16(to, mask, rounded(low, high));
                    }
                }
                done += n;
            }
        }
        let depth = at.n_segments * at.depth;
        if !depth.is_multiple_of(BLOCK) {
            let missing = first(depth.next_multiple_of(BLOCK) - depth);
            for i in 0..at.m {
                _mm512_mask_storeu_epi16(place(i, depth), missing, _mm512_setzero_si512());
            }
        }
    }
}

/// 32 numbers as bf16, to the nearest, ties to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn rounded(low: __m512, high: __m512) -> __m512i {
    let both = _mm512_cvtne2ps_pbh(high, low);
    // SAFETY: both are 64 bytes without padding.
    unsafe { std::mem::transmute::<__m512bh, __m512i>(both) }
}
