//! Blocks transposed in registers: 8x8 elements of four, two or one byte, 4x4 of eight.
//!
//! The source is contiguous along rows (`from_row` is the width), the destination along columns. Sixteen rows
//! are taken at a time where there are as many, so that a cache line of the source is used up when it is read.

use std::arch::x86_64::*;

use super::blocks::{Block, strided};
use crate::simd::arrays;

/// Moves `block` by tiles of `ROWS` x `COLS`, and what is left over element by element.
///
/// # Safety
/// The block must be granted, and `tile` runnable for any `ROWS` x `COLS` elements of it.
#[inline(always)]
unsafe fn tiled<T: Copy, const ROWS: usize, const COLS: usize>(
    block: &Block,
    tile: impl Fn(*const u8, *mut u8),
) {
    let width = size_of::<T>();
    let (whole_rows, whole_cols) = (block.rows / ROWS * ROWS, block.cols / COLS * COLS);
    let at = |row: usize, col: usize| {
        (
            block.from.wrapping_add(row * width).wrapping_offset(col as isize * block.from_col),
            block.to.wrapping_offset(row as isize * block.to_row).wrapping_add(col * width),
        )
    };
    for row in (0..whole_rows).step_by(2 * ROWS) {
        for col in (0..whole_cols).step_by(COLS) {
            let (from, to) = at(row, col);
            tile(from, to);
            if row + ROWS < whole_rows {
                let (from, to) = at(row + ROWS, col);
                tile(from, to);
            }
        }
    }
    let rest = |rows: std::ops::Range<usize>, cols: std::ops::Range<usize>| {
        let (from, to) = at(rows.start, cols.start);
        let rest = Block { from, to, rows: rows.len(), cols: cols.len(), ..*block };
        // SAFETY: it is a part of the block that the caller grants.
        unsafe { strided::<T>(&rest) }
    };
    if whole_cols < block.cols {
        rest(0..whole_rows, whole_cols..block.cols);
    }
    if whole_rows < block.rows {
        rest(whole_rows..block.rows, 0..block.cols);
    }
}

/// # Safety
/// The block must be granted, and AVX2 present.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose_4(block: &Block) {
    if block.cols == 3 && block.to_row == 12 {
        // SAFETY: the caller grants the block.
        return unsafe { interleave_3(block) };
    }
    let tile = |from: *const u8, to: *mut u8| {
        let source = |col: isize, half: usize| {
            // SAFETY: sixteen bytes of a column of the tile.
            unsafe {
                _mm_loadu_ps(from.wrapping_offset(col * block.from_col).cast::<f32>().wrapping_add(half))
            }
        };
        // Register `i` holds columns `i` and `i + 4`, so that no lane is crossed later.
        let pair = |col: isize, half: usize| {
            _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(source(col, half)), source(col + 4, half))
        };
        for half in [0, 4] {
            let (a, b, c, d) = (pair(0, half), pair(1, half), pair(2, half), pair(3, half));
            let (ab_lo, ab_hi) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (cd_lo, cd_hi) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let rows = [
                _mm256_shuffle_ps::<0x44>(ab_lo, cd_lo),
                _mm256_shuffle_ps::<0xEE>(ab_lo, cd_lo),
                _mm256_shuffle_ps::<0x44>(ab_hi, cd_hi),
                _mm256_shuffle_ps::<0xEE>(ab_hi, cd_hi),
            ];
            for (row, values) in rows.into_iter().enumerate() {
                let to = to.wrapping_offset((half + row) as isize * block.to_row);
                // SAFETY: a row of the tile.
                unsafe { _mm256_storeu_ps(to.cast(), values) };
            }
        }
    };
    // SAFETY: the caller grants the block.
    unsafe { tiled::<u32, 8, 8>(block, tile) }
}

/// Three columns of four-byte elements interleaved, as the planes of a picture are: `a b c a b c …`.
///
/// # Safety
/// The block must be granted, its rows lie side by side in the destination.
unsafe fn interleave_3(block: &Block) {
    let whole = block.rows / 4 * 4;
    let col = |col: isize| block.from.wrapping_offset(col * block.from_col).cast::<f32>();
    for row in (0..whole).step_by(4) {
        // SAFETY: four rows of the block; SSE is part of the architecture.
        unsafe {
            let [a, b, c] = arrays::map([0, 1, 2], |at| _mm_loadu_ps(col(at).wrapping_add(row)));
            let first = _mm_shuffle_ps::<0x84>(_mm_unpacklo_ps(a, b), _mm_shuffle_ps::<0x50>(c, a));
            let second = _mm_shuffle_ps::<0x88>(_mm_shuffle_ps::<0x55>(b, c), _mm_shuffle_ps::<0xAA>(a, b));
            let third = _mm_shuffle_ps::<0x88>(_mm_shuffle_ps::<0xFA>(c, a), _mm_shuffle_ps::<0xFF>(b, c));
            let to = block.to.cast::<f32>().wrapping_add(3 * row);
            _mm_storeu_ps(to, first);
            _mm_storeu_ps(to.wrapping_add(4), second);
            _mm_storeu_ps(to.wrapping_add(8), third);
        }
    }
    let rest = Block {
        from: block.from.wrapping_add(4 * whole),
        to: block.to.wrapping_add(12 * whole),
        rows: block.rows - whole,
        ..*block
    };
    // SAFETY: the last rows of the block.
    unsafe { strided::<u32>(&rest) }
}

/// # Safety
/// The block must be granted, and AVX2 present.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose_8(block: &Block) {
    let tile = |from: *const u8, to: *mut u8| {
        let source = |col: isize, half: usize| {
            // SAFETY: sixteen bytes of a column of the tile.
            unsafe {
                _mm_loadu_pd(from.wrapping_offset(col * block.from_col).cast::<f64>().wrapping_add(half))
            }
        };
        let pair = |col: isize, half: usize| {
            _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(source(col, half)), source(col + 2, half))
        };
        for half in [0, 2] {
            let (a, b) = (pair(0, half), pair(1, half));
            for (row, values) in [_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)].into_iter().enumerate()
            {
                let to = to.wrapping_offset((half + row) as isize * block.to_row);
                // SAFETY: a row of the tile.
                unsafe { _mm256_storeu_pd(to.cast(), values) };
            }
        }
    };
    // SAFETY: the caller grants the block.
    unsafe { tiled::<u64, 4, 4>(block, tile) }
}

/// # Safety
/// The block must be granted.
pub(super) unsafe fn transpose_2(block: &Block) {
    let tile = |from: *const u8, to: *mut u8| {
        // SAFETY: every load is a column of the tile, every store a row; SSE2 is part of the architecture.
        unsafe {
            let col = |col: isize| _mm_loadu_si128(from.wrapping_offset(col * block.from_col).cast());
            let cols = [col(0), col(1), col(2), col(3), col(4), col(5), col(6), col(7)];
            for (row, values) in transposed_16(cols).into_iter().enumerate() {
                _mm_storeu_si128(to.wrapping_offset(row as isize * block.to_row).cast(), values);
            }
        }
    };
    // SAFETY: the caller grants the block.
    unsafe { tiled::<u16, 8, 8>(block, tile) }
}

/// Eight rows of eight 16-bit elements from eight columns.
#[inline(always)]
fn transposed_16([a, b, c, d, e, f, g, h]: [__m128i; 8]) -> [__m128i; 8] {
    // SAFETY: SSE2 is part of the architecture.
    unsafe {
        let pairs = |a, b| (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
        let ((ae0, ae1), (bf0, bf1)) = (pairs(a, e), pairs(b, f));
        let ((cg0, cg1), (dh0, dh1)) = (pairs(c, g), pairs(d, h));
        let ((p0, p1), (q0, q1)) = (pairs(ae0, cg0), pairs(bf0, dh0));
        let ((p2, p3), (q2, q3)) = (pairs(ae1, cg1), pairs(bf1, dh1));
        let ((r0, r1), (r2, r3)) = (pairs(p0, q0), pairs(p1, q1));
        let ((r4, r5), (r6, r7)) = (pairs(p2, q2), pairs(p3, q3));
        [r0, r1, r2, r3, r4, r5, r6, r7]
    }
}

/// # Safety
/// The block must be granted.
pub(super) unsafe fn transpose_1(block: &Block) {
    let tile = |from: *const u8, to: *mut u8| {
        // SAFETY: every load is a column of the tile, every store a row; SSE2 is part of the architecture.
        unsafe {
            let col = |col: isize| _mm_loadl_epi64(from.wrapping_offset(col * block.from_col).cast());
            let pair = |a: isize| _mm_unpacklo_epi8(col(a), col(a + 4));
            let (ae, bf, cg, dh) = (pair(0), pair(1), pair(2), pair(3));
            let (aceg_lo, aceg_hi) = (_mm_unpacklo_epi8(ae, cg), _mm_unpackhi_epi8(ae, cg));
            let (bdfh_lo, bdfh_hi) = (_mm_unpacklo_epi8(bf, dh), _mm_unpackhi_epi8(bf, dh));
            let rows = [
                _mm_unpacklo_epi8(aceg_lo, bdfh_lo),
                _mm_unpackhi_epi8(aceg_lo, bdfh_lo),
                _mm_unpacklo_epi8(aceg_hi, bdfh_hi),
                _mm_unpackhi_epi8(aceg_hi, bdfh_hi),
            ];
            for (idx, two) in rows.into_iter().enumerate() {
                let row = |row: usize| to.wrapping_offset(row as isize * block.to_row);
                _mm_storel_epi64(row(2 * idx).cast(), two);
                _mm_storel_epi64(row(2 * idx + 1).cast(), _mm_unpackhi_epi64(two, two));
            }
        }
    };
    // SAFETY: the caller grants the block.
    unsafe { tiled::<u8, 8, 8>(block, tile) }
}
