//! Tiles of AMX: eight registers of 16 rows of 64 bytes each, and products of them.
//!
//! Linux hands them to a process that asks for them. A thread configures them before it uses them and gives them back
//! after, so that nobody keeps their 8 KiB when threads take turns. The compiler knows nothing of them: what one function
//! here leaves in them is there for the next.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

/// Rows of a tile, and its quads of bytes in a row.
pub(crate) const ROWS: usize = 16;
/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 64;

/// Bits of `edx` of CPUID's leaf 7: the tiles, and products of bf16 and of bytes.
const BF16: u32 = 1 << 22;
const TILES: u32 = 1 << 24;
const INT8: u32 = 1 << 25;

/// Whether this process may multiply tiles of bytes: the CPU does, and the operating system agreed, which is asked once.
pub(crate) fn has_int8() -> bool {
    has(TILES | INT8)
}

/// The same of bf16, with AVX-512's conversions to it.
pub(crate) fn has_bf16() -> bool {
    is_x86_feature_detected!("avx512bf16") && has(TILES | BF16)
}

fn has(bits: u32) -> bool {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    let is_there = is_x86_feature_detected!("avx512f") && __cpuid_count(7, 0).edx & bits == bits;
    is_there && *ALLOWED.get_or_init(ask)
}

/// Asks Linux for the tiles, for all threads of this process.
#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_PRCTL: isize = 158;
    const REQUEST_PERMISSION: usize = 0x1023;
    /// The component of the saved state that holds the tiles.
    const TILE_DATA: usize = 18;
    let status: isize;
    // SAFETY: the call changes nothing but what this process may do.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => status,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status == 0
}

#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// The configuration that LDTILECFG reads: palette 1, then for each tile its bytes a row and its rows.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles in full size.
static FULL: Configuration = {
    let mut full =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut tile = 0;
    while tile < 8 {
        full.row_bytes[tile] = ROW_BYTES as u16;
        full.rows[tile] = ROWS as u8;
        tile += 1;
    }
    full
};

/// The tiles of this thread, ready; they are given back where it ends.
pub(crate) struct Configured(());

impl Configured {
    /// # Safety
    /// [`has_int8`] or [`has_bf16`] must have said yes.
    pub(crate) unsafe fn new() -> Configured {
        // SAFETY: granted by the caller.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const FULL, options(nostack, preserves_flags, readonly));
        }
        Configured(())
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: whoever made it may use the tiles.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// Both sides of a product, block by block of a row's bytes. Rows of the left side are `row` bytes apart and blocks
/// `block`; of the right side a row holds the quads of two tiles side by side, and the next block begins 16 rows on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(crate) left: *const u8,
    pub(crate) left_row: usize,
    pub(crate) left_block: usize,
    pub(crate) right: *const u8,
    pub(crate) right_row: usize,
    pub(crate) n: usize,
}

/// Which of the four sums of a product are wanted: of the second 16 rows, and of the second 16 columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) two_rows: bool,
    pub(crate) two_columns: bool,
}

/// Begins sums.
///
/// # Safety
/// The tiles must be configured.
#[inline(always)]
pub(crate) unsafe fn zero() {
    // SAFETY: granted by the caller.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            options(nostack, nomem, preserves_flags)
        );
    }
}

/// Declares a sum of products of tiles by an instruction.
macro_rules! add_products {
    ($(#[$doc:meta])* $name:ident, $instruction:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The tiles must be configured, the blocks readable for the rows and columns that `extent` names.
        #[inline(always)]
        pub(crate) unsafe fn $name(blocks: &Blocks, extent: Extent) {
            let Blocks { mut left, left_row, left_block, mut right, right_row, n } = *blocks;
            for _ in 0..n {
                let (second, beside) = (left.wrapping_add(ROWS * left_row), right.wrapping_add(ROW_BYTES));
                // SAFETY: granted by the caller.
                unsafe {
                    match extent {
                        Extent { two_rows: true, two_columns: true } => asm!(
                            "tileloadd tmm4, [{a} + {ar}*1]",
                            "tileloadd tmm6, [{b} + {br}*1]",
                            "tileloadd tmm7, [{d} + {br}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            concat!($instruction, " tmm1, tmm4, tmm7"),
                            "tileloadd tmm5, [{c} + {ar}*1]",
                            concat!($instruction, " tmm2, tmm5, tmm6"),
                            concat!($instruction, " tmm3, tmm5, tmm7"),
                            a = in(reg) left, ar = in(reg) left_row, c = in(reg) second,
                            b = in(reg) right, br = in(reg) right_row, d = in(reg) beside,
                            options(nostack, readonly, preserves_flags)
                        ),
                        Extent { two_rows: true, two_columns: false } => asm!(
                            "tileloadd tmm4, [{a} + {ar}*1]",
                            "tileloadd tmm6, [{b} + {br}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            "tileloadd tmm5, [{c} + {ar}*1]",
                            concat!($instruction, " tmm2, tmm5, tmm6"),
                            a = in(reg) left, ar = in(reg) left_row, c = in(reg) second,
                            b = in(reg) right, br = in(reg) right_row,
                            options(nostack, readonly, preserves_flags)
                        ),
                        Extent { two_rows: false, two_columns: true } => asm!(
                            "tileloadd tmm4, [{a} + {ar}*1]",
                            "tileloadd tmm6, [{b} + {br}*1]",
                            "tileloadd tmm7, [{d} + {br}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            concat!($instruction, " tmm1, tmm4, tmm7"),
                            a = in(reg) left, ar = in(reg) left_row,
                            b = in(reg) right, br = in(reg) right_row, d = in(reg) beside,
                            options(nostack, readonly, preserves_flags)
                        ),
                        Extent { two_rows: false, two_columns: false } => asm!(
                            "tileloadd tmm4, [{a} + {ar}*1]",
                            "tileloadd tmm6, [{b} + {br}*1]",
                            concat!($instruction, " tmm0, tmm4, tmm6"),
                            a = in(reg) left, ar = in(reg) left_row,
                            b = in(reg) right, br = in(reg) right_row,
                            options(nostack, readonly, preserves_flags)
                        ),
                    }
                }
                left = left.wrapping_add(left_block);
                right = right.wrapping_add(ROWS * right_row);
            }
        }
    };
}

add_products!(
    /// Adds products of unsigned bytes on the left and signed ones on the right.
    add_products,
    "tdpbusd"
);
add_products!(
    /// Adds products of pairs of bf16, summed in f32.
    add_bf16_products,
    "tdpbf16ps"
);

/// Stores all four sums as 32 rows of 32.
///
/// # Safety
/// The tiles must be configured, `to` writable for so many.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut i32) {
    let row = 2 * ROW_BYTES;
    let to = to.cast::<u8>();
    // SAFETY: granted by the caller.
    unsafe {
        asm!(
            "tilestored [{a} + {row}*1], tmm0",
            "tilestored [{b} + {row}*1], tmm1",
            "tilestored [{c} + {row}*1], tmm2",
            "tilestored [{d} + {row}*1], tmm3",
            a = in(reg) to,
            b = in(reg) to.add(ROW_BYTES),
            c = in(reg) to.add(ROWS * row),
            d = in(reg) to.add(ROWS * row + ROW_BYTES),
            row = in(reg) row,
            options(nostack, preserves_flags)
        );
    }
}
