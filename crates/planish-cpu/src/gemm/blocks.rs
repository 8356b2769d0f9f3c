//! B of small integers in blocks with a scale each: the product of a few rows of A with it, and its panels in f32.
//!
//! An element stands for `(integer - zero) · scale`, where `rows` rows of a column share scale and zero point. A few
//! rows of A are bound by what of B comes from memory, so integers are multiplied as they are unpacked, and the sum of
//! a block is scaled once at its end. For many rows a panel is written as f32 first, which they then pay for together.

use super::codes::{PackedCodes, ROWS, Width};
use super::tile::EpilogueCall;
use crate::simd::{Simd, SimdKernel, arrays};

/// How B is quantized.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocks {
    pub width: Width,
    /// Rows with one scale: a multiple of [`ROWS`], or all.
    pub rows: usize,
}

impl Blocks {
    /// Whether kernels take blocks of so many of `k` rows.
    pub fn takes(rows: usize, k: usize) -> bool {
        rows > 0 && (rows.is_multiple_of(ROWS) || rows >= k)
    }

    /// How many of them a column of `k` rows has.
    pub fn count(&self, k: usize) -> usize {
        k.div_ceil(self.rows)
    }
}

/// B itself.
#[derive(Clone, Copy, Debug)]
pub struct BlocksCall {
    /// In the layout of [`PackedCodes`].
    pub codes: *const u8,
    /// A matrix of blocks by columns, in the panels of [`PackedB`](super::PackedB); a single row may end at its last
    /// column.
    pub scales: *const f32,
    /// In the layout of [`PackedCodes`] with 8 bits, or null where all are 0.
    pub zeros: *const i8,
}

/// A panel of B.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panel {
    k: usize,
    blocks: Blocks,
    codes: *const u8,
    scales: *const f32,
    zeros: *const i8,
    /// Columns that there are, and as many as are stored.
    n: usize,
    stored: usize,
}

impl Panel {
    /// Panel `idx`.
    pub(super) fn of(b: &BlocksCall, layout: &PackedCodes, blocks: Blocks, idx: usize) -> Panel {
        let (k, first) = (layout.k, idx * layout.panels.nr);
        let zeros = PackedCodes { k: blocks.count(k), width: Width::Eight, ..*layout };
        Panel {
            k,
            blocks,
            codes: b.codes.wrapping_add(layout.offset(idx)),
            scales: b.scales.wrapping_add(first * blocks.count(k)),
            zeros: if b.zeros.is_null() { b.zeros } else { b.zeros.wrapping_add(zeros.offset(idx)) },
            n: (layout.n - first).min(layout.panels.nr),
            stored: layout.stored_columns(idx),
        }
    }

    /// The scales of a block for a vector of columns.
    ///
    /// # Safety
    /// The panel must be there.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, s: S, block: usize, column: usize) -> S::F {
        // SAFETY: the scales of the panel's columns are there; a single row ends with them.
        unsafe { s.load_part(self.scales.add(block * self.stored + column), self.n - column) }
    }

    /// The zero points of a block for a vector of columns.
    ///
    /// # Safety
    /// The panel must be there.
    #[inline(always)]
    unsafe fn zero<S: Simd>(&self, s: S, block: usize, column: usize) -> S::F {
        if self.zeros.is_null() {
            return s.zero();
        }
        // SAFETY: zero points are stored for whole vectors of columns.
        unsafe { s.to_float(s.load_signed_bytes(self.zeros.add(block * self.stored + column), S::LANES)) }
    }
}

/// Integers of one width, eight rows of a panel at a time.
trait Codes: Copy {
    /// Bytes of a column of eight rows, and from a column to the next.
    const BYTES: usize;
    const STEP: usize;

    /// Row `AT` of eight for a vector of columns; `from` is what lies at the first of both, rows have `stored` columns.
    ///
    /// # Safety
    /// The rows must be there.
    unsafe fn row<S: Simd, const AT: usize>(s: S, from: *const u8, stored: usize) -> S::F;

    /// Where a column begins in the eight rows from `k` on.
    #[inline(always)]
    fn at(panel: &Panel, k: usize, column: usize) -> *const u8 {
        let before = (k / ROWS).wrapping_mul(panel.stored).wrapping_mul(Self::BYTES);
        panel.codes.wrapping_add(before).wrapping_add(column.wrapping_mul(Self::STEP))
    }
}

#[derive(Clone, Copy)]
struct Nibbles;

impl Codes for Nibbles {
    const BYTES: usize = 4;
    const STEP: usize = 4;

    #[inline(always)]
    unsafe fn row<S: Simd, const AT: usize>(s: S, from: *const u8, _stored: usize) -> S::F {
        // SAFETY: a word for each column holds the eight rows.
        s.signed_nibble::<AT>(unsafe { s.load_int(from.cast()) })
    }
}

#[derive(Clone, Copy)]
struct Octets;

impl Codes for Octets {
    const BYTES: usize = 8;
    const STEP: usize = 1;

    #[inline(always)]
    unsafe fn row<S: Simd, const AT: usize>(s: S, from: *const u8, stored: usize) -> S::F {
        let from = from.wrapping_add(stored.wrapping_mul(AT));
        // SAFETY: the row is stored for whole vectors of columns.
        s.to_float(unsafe { s.load_signed_bytes(from.cast(), S::LANES) })
    }
}

/// Does the same for each of eight rows.
macro_rules! for_rows {
    ($at:ident, $body:block) => {
        for_rows!(@each $at, $body, 0 1 2 3 4 5 6 7)
    };
    (@each $at:ident, $body:block, $($row:literal)*) => {
        $({ const $at: usize = $row; $body })*
    };
}

/// Writes rows `from..from + depth` of a panel as f32, up to a whole eight of them.
pub(super) struct Expand {
    pub panel: Panel,
    /// A multiple of [`ROWS`].
    pub from: usize,
    pub depth: usize,
    /// Rows are as far apart as columns are stored.
    pub to: *mut f32,
}

impl SimdKernel for Expand {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.panel.blocks.width {
            Width::Four => self.expand::<S, Nibbles>(s),
            Width::Eight => self.expand::<S, Octets>(s),
        }
    }
}

impl Expand {
    #[inline(always)]
    fn expand<S: Simd, C: Codes>(&self, s: S) {
        for k in (self.from..self.from + self.depth).step_by(ROWS) {
            let block = k / self.panel.blocks.rows;
            for column in (0..self.panel.stored).step_by(S::LANES) {
                // SAFETY: whoever made the struct grants the panel and room for its rows.
                unsafe {
                    let (scale, zero) =
                        (self.panel.scale(s, block, column), self.panel.zero(s, block, column));
                    let stored = self.panel.stored;
                    let from = C::at(&self.panel, k, column);
                    let to = self.to.add((k - self.from) * stored + column);
                    for_rows!(AT, {
                        let integers = C::row::<S, AT>(s, from, stored);
                        let to = to.wrapping_add(stored.wrapping_mul(AT));
                        s.store(to, s.mul(s.sub(integers, zero), scale));
                    });
                }
            }
        }
    }
}

/// A few rows of A times a panel: `C[i][j] = epilogue(Σ a[i][k] · b[k][j])`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FewRows {
    pub panel: Panel,
    pub a: *const f32,
    pub a_stride: usize,
    pub m: usize,
    pub c: *mut f32,
    pub c_stride: usize,
    pub epilogue: EpilogueCall,
}

/// Most rows that are computed so: beyond it panels of f32 are faster. Measured with AVX-512 at 64 x 256 to 512 x 2048: bytes are
/// twice as fast at 32 rows as from panels, 4 bits as fast at 16; with AVX2, which takes four rows at a time, no more than 8.
pub(super) fn most_few_rows(lanes: usize, width: Width) -> usize {
    match (lanes, width) {
        (16.., Width::Eight) => 32,
        (16.., Width::Four) => 16,
        _ => 8,
    }
}

/// Rows that are computed together: two vectors of sums for each must find registers, and as many for a block's.
const fn most_rows<S: Simd>() -> usize {
    match S::REGISTERS {
        32.. => 8,
        16.. => 4,
        _ => 1,
    }
}

impl SimdKernel for FewRows {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let most = most_rows::<S>();
        for row in (0..self.m).step_by(most) {
            // SAFETY: whoever made the struct grants its memory; the rows are some of its own.
            unsafe {
                let part = FewRows {
                    a: self.a.add(row * self.a_stride),
                    m: most.min(self.m - row),
                    c: self.c.add(row * self.c_stride),
                    epilogue: self.epilogue.at(row, 0),
                    ..self
                };
                match self.panel.blocks.width {
                    Width::Four => part.with::<S, Nibbles>(s),
                    Width::Eight => part.with::<S, Octets>(s),
                }
            }
        }
    }
}

impl FewRows {
    /// # Safety
    /// What the struct names must be there.
    #[inline(always)]
    unsafe fn with<S: Simd, C: Codes>(&self, s: S) {
        // SAFETY: as the caller grants. Few copies of the loop: each is some hundred instructions.
        unsafe {
            match (self.m, self.panel.zeros.is_null()) {
                (1, true) => self.columns::<S, C, 1, 2, false>(s),
                (1, false) => self.columns::<S, C, 1, 2, true>(s),
                (2..=4, true) => self.columns::<S, C, 4, 1, false>(s),
                (2..=4, false) => self.columns::<S, C, 4, 1, true>(s),
                (_, true) => self.columns::<S, C, 8, 1, false>(s),
                (_, false) => self.columns::<S, C, 8, 1, true>(s),
            }
        }
    }

    /// # Safety
    /// As for [`FewRows::with`]; there are 1 to `M` rows.
    #[inline(always)]
    unsafe fn columns<S: Simd, C: Codes, const M: usize, const CHAINS: usize, const ZEROS: bool>(
        &self,
        s: S,
    ) {
        // `run` hands out no more rows, so narrower instruction sets need no code for them.
        if const { M > most_rows::<S>() } {
            return;
        }
        for column in (0..self.panel.stored).step_by(2 * S::LANES) {
            // SAFETY: as the caller grants.
            unsafe { self.vectors::<S, C, M, CHAINS, ZEROS>(s, column) };
        }
    }

    /// Two vectors of columns. The second, where there is none, and rows that there are not are computed as the last that
    /// there is, and not stored. A single chain of additions for each vector would wait for itself: one row has two.
    ///
    /// # Safety
    /// As for [`FewRows::columns`]; the panel has the column.
    #[inline(always)]
    unsafe fn vectors<S: Simd, C: Codes, const M: usize, const CHAINS: usize, const ZEROS: bool>(
        &self,
        s: S,
        column: usize,
    ) {
        let panel = &self.panel;
        let columns = [column, (column + S::LANES).min(panel.stored - S::LANES)];
        let mut codes = arrays::map(columns, |column| C::at(panel, 0, column));
        let mut rows = [self.a; M];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = row.wrapping_add(i.min(self.m - 1) * self.a_stride);
        }
        // The last rows of B, where they are no eight, meet zeros behind those of A.
        let mut copy = [[0.0f32; ROWS]; M];
        let mut sums = [[s.zero(); 2]; M];
        let mut left = panel.k;
        for block in 0..panel.blocks.count(panel.k) {
            let mut acc = [[[s.zero(); 2]; M]; CHAINS];
            // SAFETY: as the caller grants.
            unsafe {
                let mut zeros = [s.zero(); 2];
                for (zero, column) in zeros.iter_mut().zip(columns).filter(|_| ZEROS) {
                    *zero = panel.zero(s, block, column);
                }
                let n_rows = left.min(panel.blocks.rows);
                for group in 0..n_rows.div_ceil(ROWS) {
                    let there = n_rows - group * ROWS;
                    if there < ROWS {
                        for (copy, row) in copy.iter_mut().zip(&mut rows) {
                            copy.as_mut_ptr().copy_from_nonoverlapping(*row, there);
                            *row = copy.as_ptr();
                        }
                    }
                    for_rows!(AT, {
                        let mut b = arrays::map(codes, |codes| C::row::<S, AT>(s, codes, panel.stored));
                        if ZEROS {
                            b = [s.sub(b[0], zeros[0]), s.sub(b[1], zeros[1])];
                        }
                        for (row, acc) in rows.iter().zip(&mut acc[AT % CHAINS]) {
                            let x = s.splat(*row.add(AT));
                            *acc = [s.mul_add(x, b[0], acc[0]), s.mul_add(x, b[1], acc[1])];
                        }
                    });
                    rows = arrays::map(rows, |row| row.wrapping_add(ROWS));
                    codes =
                        arrays::map(codes, |codes| codes.wrapping_add(panel.stored.wrapping_mul(C::BYTES)));
                }
                left -= n_rows;
                let scales = arrays::map(columns, |column| panel.scale(s, block, column));
                for (i, sums) in sums.iter_mut().enumerate() {
                    for v in 0..2 {
                        let sum = acc[1..].iter().fold(acc[0][i][v], |sum, acc| s.add(sum, acc[i][v]));
                        sums[v] = s.mul_add(sum, scales[v], sums[v]);
                    }
                }
            }
        }
        for (i, sums) in sums.iter().enumerate().take(self.m) {
            // SAFETY: as the caller grants.
            unsafe {
                self.finish(s, i, column, sums[0]);
                if column + S::LANES < panel.stored {
                    self.finish(s, i, columns[1], sums[1]);
                }
            }
        }
    }

    /// Bias, residual and clamp of a vector of row `i`, as the tile has them, and the store.
    ///
    /// # Safety
    /// As for [`FewRows::with`].
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, i: usize, column: usize, mut sum: S::F) {
        let EpilogueCall { bias, residual, residual_stride, lo, hi } = self.epilogue;
        let n = self.panel.n - column;
        // SAFETY: as the caller grants.
        unsafe {
            if !bias.is_null() {
                sum = s.add(sum, s.load_part(bias.add(column), n));
            }
            if !residual.is_null() {
                sum = s.add(sum, s.load_part(residual.add(i * residual_stride + column), n));
            }
            if !self.epilogue.is_unclamped() {
                // The second operand is kept where it is NaN.
                sum = s.min(s.splat(hi), s.max(s.splat(lo), sum));
            }
            s.store_part(self.c.add(i * self.c_stride + column), n, sum);
        }
    }
}
