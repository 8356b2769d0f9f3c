//! The tile of pairs of 16 bits: what [`crate::gemm::tile`] is for f32, without an epilogue.

use std::arch::x86_64::*;

use super::super::tile::{Dot, Factors, sum_up};
use crate::gemm::table::{Tile, TileRow, row};
use crate::gemm::tile::{TileCall, TileFn};
use crate::isa::{Avx2, Isa};
use crate::simd::Simd;

/// Two products of 16 bits and their sum.
#[derive(Clone, Copy)]
struct Words;

impl Dot<Avx2> for Words {
    #[inline(always)]
    fn dot(self, _: Avx2, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is an argument.
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
    }
}

/// Twelve accumulators, as in f32.
static ROW: TileRow = row("gemm_i16_6x16_avx2", "avx2", 6, 2, 8, GRID);

const GRID: &[&[TileFn]] = &[
    &[words::<1, 1>, words::<2, 1>, words::<3, 1>, words::<4, 1>, words::<5, 1>, words::<6, 1>],
    &[words::<1, 2>, words::<2, 2>, words::<3, 2>, words::<4, 2>, words::<5, 2>, words::<6, 2>],
];

/// The tile, if instruction sets up to `isa` have it.
pub(super) fn of(isa: Isa) -> Option<Tile> {
    Tile::of_row(&ROW).filter(|tile| tile.isa().is_within(isa))
}

/// `MR` rows of `NV` vectors, which are stored whole.
///
/// # Safety
/// As for [`Tile::run`]; C must be writable for whole vectors, and there is nothing to add to it or to follow.
#[target_feature(enable = "avx2,fma")]
unsafe fn words<const MR: usize, const NV: usize>(call: &TileCall) {
    // SAFETY: the caller has the proof, in the form of a `Tile`.
    let s = unsafe { Avx2::assume() };
    let mut acc = [[s.splat_int(0); NV]; MR];
    // SAFETY: rows are read below `depth`, the panel below `n_segments * depth` rows of `NV` vectors, as the caller
    // grants; C is written for `MR` rows of as many.
    unsafe {
        let &TileCall { rows, rows_stride, n_segments, depth, panel, panel_stride, .. } = call;
        let panel = panel.cast();
        sum_up(s, Words, &mut acc, &Factors { rows, rows_stride, n_segments, depth, panel, panel_stride });
        for (i, row) in acc.iter().enumerate() {
            for (j, vector) in row.iter().enumerate() {
                s.store(call.c.add(i * call.c_stride + j * 8), s.from_bits(*vector));
            }
        }
    }
}
