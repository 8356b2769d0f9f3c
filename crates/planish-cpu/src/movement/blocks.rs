//! The two innermost loops of copies, for every element width.

use crate::isa::Isa;

use super::copy::Core;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// Elements may be widened up to this many bytes.
pub(super) const MAX_WIDTH: usize = 32;

/// Rows and columns of elements; steps are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) from: *const u8,
    pub(super) to: *mut u8,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) from_row: isize,
    pub(super) from_col: isize,
    pub(super) to_row: isize,
    pub(super) to_col: isize,
}

/// Moves a block.
///
/// # Safety
/// The block's elements must be readable and writable, and the instruction set of the function present.
pub(super) type BlockFn = unsafe fn(&Block);

/// Whether blocks of elements this wide are transposed in registers.
pub(super) fn transposes(width: usize) -> bool {
    matches!(width, 1 | 2 | 4 | 8)
}

/// The loops for a core and a width of 1 to 32 bytes.
pub(super) fn choose(isa: Isa, core: Core, width: usize) -> Option<BlockFn> {
    Some(match (core, width) {
        (Core::Runs, 1) => runs::<1>,
        (Core::Runs, 2) => runs::<2>,
        (Core::Runs, 4) => runs::<4>,
        (Core::Runs, 8) => runs::<8>,
        (Core::Runs, 16) => runs::<16>,
        (Core::Runs, 32) => runs::<32>,
        (Core::Repeat, 1) => repeat::<u8>,
        (Core::Repeat, 2) => repeat::<u16>,
        (Core::Repeat, 4) => repeat::<u32>,
        (Core::Repeat, 8) => repeat::<u64>,
        (Core::Repeat, 16) => repeat::<u128>,
        (Core::Repeat, 32) => repeat::<[u128; 2]>,
        (Core::Transpose, 1 | 2 | 4 | 8) => transpose(isa, width),
        (Core::Strided, 1) => strided::<u8>,
        (Core::Strided, 2) => strided::<u16>,
        (Core::Strided, 4) => strided::<u32>,
        (Core::Strided, 8) => strided::<u64>,
        (Core::Strided, 16) => strided::<u128>,
        (Core::Strided, 32) => strided::<[u128; 2]>,
        _ => return None,
    })
}

fn transpose(isa: Isa, width: usize) -> BlockFn {
    #[cfg(target_arch = "x86_64")]
    if !matches!(isa, Isa::Portable(_)) {
        // Both instruction sets have AVX2: their proofs say so.
        return match width {
            1 => x86::transpose_1,
            2 => x86::transpose_2,
            4 => x86::transpose_4,
            _ => x86::transpose_8,
        };
    }
    let _ = isa;
    match width {
        1 => strided::<u8>,
        2 => strided::<u16>,
        4 => strided::<u32>,
        _ => strided::<u64>,
    }
}

/// Runs of `cols` elements of `WIDTH` bytes.
unsafe fn runs<const WIDTH: usize>(block: &Block) {
    let n = block.cols * WIDTH;
    for row in 0..block.rows as isize {
        // SAFETY: the caller grants the block.
        unsafe {
            copy_run(
                block.from.wrapping_offset(row * block.from_row),
                block.to.wrapping_offset(row * block.to_row),
                n,
            );
        }
    }
}

/// Copies `n` bytes; short runs without a call.
///
/// # Safety
/// Both sides must be valid for `n` bytes and not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_run(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: every access lies within the `n` bytes that the caller grants.
    unsafe {
        match n {
            // Halves that overlap in the middle: any length within a factor of two takes two moves.
            16..=32 => halves::<u128>(from, to, n),
            33..=64 => halves::<[u128; 2]>(from, to, n),
            65..=128 => halves::<[u128; 4]>(from, to, n),
            8..=15 => halves::<u64>(from, to, n),
            4..=7 => halves::<u32>(from, to, n),
            2..=3 => halves::<u16>(from, to, n),
            1 => *to = *from,
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

/// # Safety
/// `n` must be between one and two `T`s, and valid on both sides.
#[inline(always)]
unsafe fn halves<T: Copy>(from: *const u8, to: *mut u8, n: usize) {
    let after = n - size_of::<T>();
    // SAFETY: both `T`s lie within the `n` bytes.
    unsafe {
        let (first, last) = (from.cast::<T>().read_unaligned(), from.add(after).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(first);
        to.add(after).cast::<T>().write_unaligned(last);
    }
}

/// One element for each row, repeated along it.
unsafe fn repeat<T: Copy>(block: &Block) {
    for row in 0..block.rows as isize {
        let to = block.to.wrapping_offset(row * block.to_row).cast::<T>();
        // SAFETY: the caller grants the block.
        unsafe {
            let value = block.from.wrapping_offset(row * block.from_row).cast::<T>().read_unaligned();
            for col in 0..block.cols {
                to.add(col).write_unaligned(value);
            }
        }
    }
}

/// Element by element, the longer side innermost.
pub(super) unsafe fn strided<T: Copy>(block: &Block) {
    let Block { from, to, rows, cols, from_row, from_col, to_row, to_col } = *block;
    let (rows, cols) = ((rows, from_row, to_row), (cols, from_col, to_col));
    let (outer, inner) = if rows.0 > cols.0 { (cols, rows) } else { (rows, cols) };
    for at in 0..outer.0 as isize {
        let (from, to) = (from.wrapping_offset(at * outer.1), to.wrapping_offset(at * outer.2));
        for at in 0..inner.0 as isize {
            // SAFETY: the caller grants the block.
            unsafe {
                let value = from.wrapping_offset(at * inner.1).cast::<T>().read_unaligned();
                to.wrapping_offset(at * inner.2).cast::<T>().write_unaligned(value);
            }
        }
    }
}
