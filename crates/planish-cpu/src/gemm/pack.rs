//! Packed B: a padded permutation of a matrix, in panels that the tile reads from end to end.
//!
//! A panel holds a tile's columns, row by row; the last is only as wide as its columns need in whole vectors.
//! Padding is zero, so equal matrices pack to equal bytes.

use super::table::Panels;

/// Where the elements of a matrix of B lie: `at[k * k_stride + j * n_stride]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strides {
    pub k: usize,
    pub n: usize,
}

/// The layout of a packed matrix of `k` rows and `n` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedB {
    k: usize,
    n: usize,
    nr: usize,
    lanes: usize,
}

impl PackedB {
    /// The layout that a tile reads; it depends on the tile's columns alone.
    pub fn new(panels: impl Into<Panels>, k: usize, n: usize) -> PackedB {
        let Panels { nr, lanes } = panels.into();
        PackedB { k, n, nr, lanes }
    }

    /// Elements, padding included.
    pub fn len(&self) -> usize {
        self.k * self.n.next_multiple_of(self.lanes)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of the matrix: the length of the sums.
    pub fn depth(&self) -> usize {
        self.k
    }

    pub fn n_panels(&self) -> usize {
        self.n.div_ceil(self.nr)
    }

    /// Columns of panel `idx`.
    pub fn columns(&self, idx: usize) -> usize {
        (self.n - idx * self.nr).min(self.nr)
    }

    /// Stored elements of a row of panel `idx`.
    pub fn width(&self, idx: usize) -> usize {
        self.columns(idx).next_multiple_of(self.lanes)
    }

    /// Where panel `idx` begins.
    pub fn offset(&self, idx: usize) -> usize {
        idx * self.nr * self.k
    }

    /// Packs a matrix.
    ///
    /// # Panics
    /// When `to` is not [`PackedB::len`] long or `b` does not reach the last element.
    pub fn pack(&self, b: &[f32], strides: Strides, to: &mut [f32]) {
        assert_eq!(to.len(), self.len(), "packed B of {} x {}", self.k, self.n);
        self.check(b.len(), strides);
        for idx in 0..self.n_panels() {
            // SAFETY: the matrix reaches as far as the strides say, and the panel lies inside `to`.
            unsafe {
                let from = b.as_ptr().wrapping_add(idx * self.nr * strides.n);
                let panel = to.as_mut_ptr().add(self.offset(idx));
                pack_panel(from, strides, self.k, self.columns(idx), panel, self.width(idx));
            }
        }
    }

    /// The matrix again: undoes [`PackedB::pack`], element by element.
    ///
    /// # Panics
    /// When `packed` is not [`PackedB::len`] long or `to` does not reach the last element.
    pub fn unpack(&self, packed: &[f32], to: &mut [f32], strides: Strides) {
        assert_eq!(packed.len(), self.len(), "packed B of {} x {}", self.k, self.n);
        self.check(to.len(), strides);
        for idx in 0..self.n_panels() {
            let (offset, width) = (self.offset(idx), self.width(idx));
            for k in 0..self.k {
                for j in 0..self.columns(idx) {
                    to[k * strides.k + (idx * self.nr + j) * strides.n] = packed[offset + k * width + j];
                }
            }
        }
    }

    fn check(&self, len: usize, strides: Strides) {
        if self.k > 0 && self.n > 0 {
            let last = (self.k - 1) * strides.k + (self.n - 1) * strides.n;
            assert!(last < len, "B of {} x {} ends at {last}, beyond {len}", self.k, self.n);
        }
    }
}

/// Packs `depth` rows of `n` columns into a panel `width` wide; the columns after are zero.
///
/// # Safety
/// `from` must be readable where the strides lead, `to` writable for `depth * width` elements.
pub(super) unsafe fn pack_panel(
    from: *const f32,
    strides: Strides,
    depth: usize,
    n: usize,
    to: *mut f32,
    width: usize,
) {
    // SAFETY: as the caller grants.
    unsafe {
        if strides.n == 1 {
            copy_rows(from, strides.k, depth, n, to, width);
        } else if strides.k == 1 {
            transpose(from, strides.n, n, depth, to, width);
        } else {
            for k in 0..depth {
                for j in 0..n {
                    *to.add(k * width + j) = *from.add(k * strides.k + j * strides.n);
                }
            }
        }
        if n < width {
            for k in 0..depth {
                to.add(k * width + n).write_bytes(0, width - n);
            }
        }
    }
}

/// Rows that are asked for ahead.
const AHEAD: usize = 12;
/// Elements from which on memcpy pays.
const LONG_ROW: usize = 128;

/// Copies `rows` rows of `n` elements.
///
/// # Safety
/// Both sides must hold the rows that their strides name.
pub(super) unsafe fn copy_rows(
    from: *const f32,
    from_stride: usize,
    rows: usize,
    n: usize,
    to: *mut f32,
    to_stride: usize,
) {
    for i in 0..rows {
        // SAFETY: as the caller grants.
        unsafe {
            let (from, to) = (from.wrapping_add(i * from_stride), to.add(i * to_stride));
            // A panel's row is a few vectors: a call of memcpy would cost more than the copy.
            if n >= LONG_ROW {
                std::ptr::copy_nonoverlapping(from, to, n);
                continue;
            }
            // Rows of a wide matrix are pages apart, where no hardware prefetcher follows. Not for long rows:
            // those that are copied share cache sets and would push each other out before they are read.
            #[cfg(target_arch = "x86_64")]
            for line in (0..n).step_by(16) {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD * from_stride + line).cast());
            }
            let mut j = 0;
            while j + 8 <= n {
                to.add(j).cast::<[f32; 8]>().write_unaligned(from.add(j).cast::<[f32; 8]>().read_unaligned());
                j += 8;
            }
            while j < n {
                *to.add(j) = *from.add(j);
                j += 1;
            }
        }
    }
}

/// Writes the transpose of `rows` rows of `n` elements: `to[j * to_stride + i] = from[i * from_stride + j]`.
///
/// # Safety
/// Both sides must hold the rows that their strides name.
pub(super) unsafe fn transpose(
    from: *const f32,
    from_stride: usize,
    rows: usize,
    n: usize,
    to: *mut f32,
    to_stride: usize,
) {
    let (whole_rows, whole_n) = (rows / 4 * 4, n / 4 * 4);
    // SAFETY: as the caller grants.
    unsafe {
        for j in (0..whole_n).step_by(4) {
            for i in (0..whole_rows).step_by(4) {
                let block = from.add(i * from_stride + j);
                transpose4(block, from_stride, to.add(j * to_stride + i), to_stride);
            }
        }
        for j in 0..n {
            let done = if j < whole_n { whole_rows } else { 0 };
            for i in done..rows {
                *to.add(j * to_stride + i) = *from.add(i * from_stride + j);
            }
        }
    }
}

/// Four rows of four.
///
/// # Safety
/// As for [`transpose`].
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: every x86-64 has SSE; the memory is the caller's.
    unsafe {
        let mut rows = [
            _mm_loadu_ps(from),
            _mm_loadu_ps(from.add(from_stride)),
            _mm_loadu_ps(from.add(2 * from_stride)),
            _mm_loadu_ps(from.add(3 * from_stride)),
        ];
        let [a, b, c, d] = &mut rows;
        _MM_TRANSPOSE4_PS(a, b, c, d);
        for (i, row) in rows.into_iter().enumerate() {
            _mm_storeu_ps(to.add(i * to_stride), row);
        }
    }
}

/// Four rows of four.
///
/// # Safety
/// As for [`transpose`].
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn transpose4(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    for i in 0..4 {
        for j in 0..4 {
            // SAFETY: as the caller grants.
            unsafe { *to.add(j * to_stride + i) = *from.add(i * from_stride + j) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::table::{TILES, Tile};
    use planish_testing::Random;

    #[test]
    fn unpacking_gives_the_matrix_back_and_padding_is_zero() {
        for tile in TILES.iter().filter_map(|row| Tile::named(row.name)) {
            let nr = tile.nr();
            for n in [0, 1, 3, nr - 1, nr, nr + 1, 2 * nr + 7] {
                for k in [0, 1, 4, 5, 19] {
                    for strides in [
                        Strides { k: n + 2, n: 1 },
                        Strides { k: 1, n: k + 3 },
                        Strides { k: 2, n: 2 * k + 1 },
                    ] {
                        let layout = PackedB::new(tile, k, n);
                        let b = Random::new(9).list(k * strides.k + n * strides.n + 1);
                        let mut packed = vec![f32::NAN; layout.len()];
                        layout.pack(&b, strides, &mut packed);
                        let mut again = vec![0.0; b.len()];
                        layout.unpack(&packed, &mut again, strides);
                        let mut used = 0;
                        for k in 0..k {
                            for j in 0..n {
                                let at = k * strides.k + j * strides.n;
                                assert_eq!(again[at], b[at]);
                                used += usize::from(b[at] != 0.0);
                            }
                        }
                        // Nothing but the elements and zeros: a permutation, padded.
                        assert_eq!(packed.iter().filter(|&&x| x != 0.0).count(), used);
                    }
                }
            }
        }
    }
}
