//! The quantized tile of AMX: 32 windows by 32 channels, 64 bytes of every window at a time.
//!
//! The windows' bytes are read where they lie if they are evenly spaced and whole blocks, as those of a 1x1 convolution
//! mostly are. Otherwise they are copied together, once for all panels that they meet.

use super::super::igemm::TileAt;
use super::finish::kind;
use super::tile::{QuantizedCall, Zeros, centered_sum};
use crate::amx::{self, Blocks, Extent, ROW_BYTES, ROWS};
use crate::isa::Avx512;
use crate::simd::Simd;

/// Windows and channels of a tile: two tiles of AMX each.
pub(super) const SIDE: usize = 2 * ROWS;
/// Quads of a window that a block has.
const BLOCK: usize = ROW_BYTES / 4;
/// Bytes of a block of all windows, side by side.
const BLOCK_BYTES: usize = SIDE * ROW_BYTES;
/// Bytes of the last rows of a panel, filled up to a block.
const LAST_BYTES: usize = ROWS * SIDE * 4;

/// Bytes that a task needs for windows of so many quads.
pub(super) fn scratch_bytes(depth: usize) -> usize {
    depth.div_ceil(BLOCK) * BLOCK_BYTES + LAST_BYTES
}

#[repr(align(64))]
struct Sums([std::mem::MaybeUninit<i32>; SIDE * SIDE]);

/// Any tile of up to 32 windows and 32 channels.
///
/// # Safety
/// As for `TileKernel::run`; the tiles must be configured, and `at.scratch` have [`scratch_bytes`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn tile(call: &QuantizedCall, at: &TileAt) {
    // SAFETY: reached only through a row of the table, which exists only where the instructions do.
    let s = unsafe { Avx512::assume() };
    let extent = Extent { two_rows: at.m > ROWS, two_columns: at.n > ROWS };
    let depth = at.n_segments * at.depth;
    let (n_blocks, rest) = (depth / BLOCK, depth % BLOCK);
    let mut sums = Sums([std::mem::MaybeUninit::uninit(); SIDE * SIDE]);
    let sums = sums.0.as_mut_ptr().cast::<i32>();
    // SAFETY: the windows are readable for `depth` quads and the panel has as many rows; what is copied together fits
    // the scratch memory.
    unsafe {
        let (left, left_row, left_block) = match evenly_spaced(at) {
            Some(row_bytes) => ((*at.rows).cast::<u8>(), row_bytes, ROW_BYTES),
            None => {
                if at.is_first_panel {
                    gather(s, at);
                }
                (at.scratch.cast_const(), ROW_BYTES, BLOCK_BYTES)
            }
        };
        let right = call.weights.cast::<u8>().add(4 * at.weights);
        let right_row = 4 * at.width;
        amx::zero();
        amx::add_products(&Blocks { left, left_row, left_block, right, right_row, n: n_blocks }, extent);
        if rest > 0 {
            // The windows have zeros beyond their end, the panel has something else there.
            let last = at.scratch.add(depth.div_ceil(BLOCK) * BLOCK_BYTES);
            let bytes = rest * right_row;
            right.add(n_blocks * ROWS * right_row).copy_to_nonoverlapping(last, bytes);
            let left = left.add(n_blocks * left_block);
            amx::add_products(&Blocks { left, left_row, left_block, right: last, right_row, n: 1 }, extent);
        }
        amx::store(sums);
    }
    let n_vectors = if extent.two_columns { 2 } else { 1 };
    let mut centered = [0; SIDE];
    let n_centered = if matches!(call.weight_zeros, Zeros::None) { 0 } else { at.m };
    for (i, centered) in centered.iter_mut().enumerate().take(n_centered) {
        // SAFETY: granted by the caller.
        *centered = unsafe { centered_sum(call, at, i) };
    }
    for j in 0..n_vectors {
        let column = j * Avx512::LANES;
        let n = (at.n - column).min(Avx512::LANES);
        let is_whole = n == Avx512::LANES && matches!(call.weight_zeros, Zeros::None);
        // SAFETY: the caller grants scales, bias, residual and output for the tile's columns; the sums are there.
        unsafe {
            let sums = sums.add(column);
            match call.finish.kind(is_whole) {
                kind::BYTES => finish::<{ kind::BYTES }>(s, call, at, (sums, &centered), (column, n)),
                kind::SUM => finish::<{ kind::SUM }>(s, call, at, (sums, &centered), (column, n)),
                _ => finish::<{ kind::ANY }>(s, call, at, (sums, &centered), (column, n)),
            }
        }
    }
}

/// Finishes the sums of `n` columns from `column` on and stores them.
///
/// # Safety
/// As for [`tile`]; `sums` are those of the first of these columns, rows [`SIDE`] apart, and `centered` what zero points of
/// the weights are multiplied with.
#[inline(always)]
unsafe fn finish<const KIND: u8>(
    s: Avx512,
    call: &QuantizedCall,
    at: &TileAt,
    (sums, centered): (*const i32, &[i32; SIDE]),
    (column, n): (usize, usize),
) {
    // SAFETY: the sums of the weights reach a vector beyond the last channel; the rest is granted by the caller.
    unsafe {
        // The windows hold `x + zero`: what that adds to each sum is taken away.
        let weights = s.load_int(call.weight_sums.add(at.class_channel + column));
        let start = s.mul_int(weights, s.splat_int(-call.input_zero));
        let channels = call.finish.channels(s, at.channel + column, n);
        let zeros = call.weight_zeros.of(s, at.channel + column, n);
        for (i, centered) in centered.iter().enumerate().take(at.m) {
            let mut sum = s.add_int(s.load_int(sums.add(i * SIDE)), start);
            if KIND == kind::ANY {
                sum = s.sub_int(sum, s.mul_int(zeros, s.splat_int(*centered)));
            }
            let residual = at.residual.unwrap_or(0) + i * at.residual_stride + column;
            let to = at.output + i * at.output_stride + column;
            call.finish.store::<_, KIND>(s, &channels, s.to_float(sum), residual, to);
        }
    }
}

/// Bytes from window to window where tiles can be loaded as they lie: whole ones, of whole blocks.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn evenly_spaced(at: &TileAt) -> Option<usize> {
    if at.n_segments != 1 || !at.depth.is_multiple_of(BLOCK) || !at.m.is_multiple_of(ROWS) {
        return None;
    }
    // SAFETY: there are `m` pointers.
    let address = |i: usize| unsafe { *at.rows.add(i) as usize };
    let step = address(1).wrapping_sub(address(0));
    (2..at.m).all(|i| address(i).wrapping_sub(address(i - 1)) == step).then_some(step)
}

/// Copies the windows together, block by block, with zeros after their end.
///
/// # Safety
/// As for [`tile`].
#[inline(always)]
unsafe fn gather(s: Avx512, at: &TileAt) {
    // A vector of f32 carries 16 quads; only its bits matter.
    let place = |i: usize, k: usize| {
        at.scratch.wrapping_add(k / BLOCK * BLOCK_BYTES + i * ROW_BYTES + k % BLOCK * 4).cast::<f32>()
    };
    // SAFETY: the windows are readable for `depth` quads a segment; the scratch memory has room for all of them.
    unsafe {
        for segment in 0..at.n_segments {
            let rows = at.rows.add(segment * at.rows_stride);
            let mut done = 0;
            while done < at.depth {
                let k = segment * at.depth + done;
                let n = (BLOCK - k % BLOCK).min(at.depth - done);
                for i in 0..at.m {
                    let (from, to) = ((*rows.add(i)).add(done), place(i, k));
                    // Lengths of usual channels are copied without a mask.
                    match n {
                        BLOCK => s.store(to, s.load(from)),
                        8 => from.copy_to_nonoverlapping(to, 8),
                        4 => from.copy_to_nonoverlapping(to, 4),
                        _ => s.store_part(to, n, s.load_part(from, n)),
                    }
                }
                done += n;
            }
        }
        let depth = at.n_segments * at.depth;
        let missing = depth.next_multiple_of(BLOCK) - depth;
        for i in 0..if missing > 0 { at.m } else { 0 } {
            s.store_part(place(i, depth), missing, s.zero());
        }
    }
}
