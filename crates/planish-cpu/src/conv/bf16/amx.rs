//! The tile of AMX: 32 windows by 32 channels, 32 numbers of every window at a time.

use super::super::ConvCall;
use super::super::igemm::TileAt;
use super::PAIR;
use super::gather::{self, BLOCK, ROW_BYTES};
use crate::amx::{self, Blocks, Extent, ROWS};
use crate::gemm::tile::{TileCall, finish_row};
use crate::isa::Avx512;
use crate::simd::Simd;

/// Windows and channels of a tile: two tiles of AMX each.
pub(super) const SIDE: usize = 2 * ROWS;
/// Bytes of the last rows of a panel, filled up to a block.
const LAST_BYTES: usize = ROWS * SIDE * 4;

/// Bytes that a task needs for windows of so many numbers.
pub(super) fn scratch_bytes(depth: usize) -> usize {
    gather::bytes(SIDE, depth) + LAST_BYTES
}

#[repr(align(64))]
struct Sums([std::mem::MaybeUninit<f32>; SIDE * SIDE]);

/// Any tile of up to 32 windows and 32 channels.
///
/// # Safety
/// As for `TileKernel::run`; the tiles must be configured, and `at.scratch` have [`scratch_bytes`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn tile(call: &ConvCall<'_>, at: &TileAt) {
    // SAFETY: reached only through a row of the table, which exists only where the instructions do.
    let s = unsafe { Avx512::assume() };
    let extent = Extent { two_rows: at.m > ROWS, two_columns: at.n > ROWS };
    let depth = at.n_segments * at.depth;
    let (n_blocks, rest) = (depth / BLOCK, depth % BLOCK);
    let mut sums = Sums([std::mem::MaybeUninit::uninit(); SIDE * SIDE]);
    let sums = sums.0.as_mut_ptr().cast::<f32>();
    // SAFETY: the windows are readable for `depth` numbers and the panel has half as many rows of pairs; what is copied
    // together fits the scratch memory.
    unsafe {
        if at.is_first_panel {
            gather::gather(at, SIDE);
        }
        let (left, left_row, left_block) = (at.scratch.cast_const(), ROW_BYTES, SIDE * ROW_BYTES);
        let right = call.weights.add(at.weights / PAIR).cast::<u8>();
        let right_row = 4 * at.width;
        amx::zero();
        let whole = Blocks { left, left_row, left_block, right, right_row, n: n_blocks };
        amx::add_bf16_products(&whole, extent);
        if rest > 0 {
            // What lies behind the panel may be infinite, and would not vanish with the windows' zeros.
            let last = at.scratch.add(gather::bytes(SIDE, depth));
            let bytes = rest / PAIR * right_row;
            right.add(n_blocks * ROWS * right_row).copy_to_nonoverlapping(last, bytes);
            last.add(bytes).write_bytes(0, ROWS * right_row - bytes);
            let left = left.add(n_blocks * left_block);
            let last = Blocks { left, left_row, left_block, right: last, right_row, n: 1 };
            amx::add_bf16_products(&last, extent);
        }
        amx::store(sums.cast());
        for i in 0..at.m {
            let row = TileCall::after_sum(call.output.add(at.output + i * at.output_stride), at.n);
            let row = TileCall { epilogue: call.epilogue(at).at(i, 0), ..row };
            let from = sums.add(i * SIDE);
            match extent.two_columns {
                true => finish_row(s, [s.load(from), s.load(from.add(Avx512::LANES))], &row),
                false => finish_row(s, [s.load(from)], &row),
            }
        }
    }
}
