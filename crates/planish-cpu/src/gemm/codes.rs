//! Packed B of small integers: the panels of [`PackedB`](super::PackedB), with 4 or 8 bits an element.
//!
//! Integers of 8 bits lie row by row of a panel. Of 4 bits, eight rows share a word for each column, the first in the
//! lowest bits, so that one load and eight shifts give eight vectors. Panels have whole eights of rows, zeros behind the
//! last. Integers without a sign are stored less the middle of their range, which zero points are too: kernels know
//! signed ones alone.

use planish_tensor::DType;

use super::pack::Strides;
use super::table::Panels;

/// Rows that share a word where elements have 4 bits, and that kernels take at a time.
pub const ROWS: usize = 8;

/// How many bits an element is stored in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    Four,
    Eight,
}

impl Width {
    /// The width of a type of 4 or 8 bits.
    pub fn of(dtype: DType) -> Option<Width> {
        match dtype {
            DType::I4 | DType::U4 => Some(Width::Four),
            DType::I8 | DType::U8 => Some(Width::Eight),
            _ => None,
        }
    }

    pub fn bits(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// What a stored integer is less than the type's own, in the type's width: the middle of a range without a sign.
fn middle(dtype: DType) -> u8 {
    match dtype {
        DType::U4 => 8,
        DType::U8 => 128,
        _ => 0,
    }
}

/// The layout of a packed matrix of `k` rows and `n` columns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PackedCodes {
    pub panels: Panels,
    pub width: Width,
    pub k: usize,
    pub n: usize,
}

impl PackedCodes {
    /// Bytes, padding included; `None` where they overflow.
    pub fn checked_len(&self) -> Option<usize> {
        let columns = self.n.checked_next_multiple_of(self.panels.lanes)?;
        self.k.div_ceil(ROWS).checked_mul(columns)?.checked_mul(self.width.bits())
    }

    pub fn n_panels(&self) -> usize {
        self.n.div_ceil(self.panels.nr)
    }

    /// Where panel `idx` begins, in bytes: eight rows of a column are as many bytes as an element has bits.
    pub fn offset(&self, idx: usize) -> usize {
        idx * self.panels.nr * self.k.div_ceil(ROWS) * self.width.bits()
    }

    /// Stored columns of panel `idx`.
    pub fn stored_columns(&self, idx: usize) -> usize {
        self.panels.width((self.n - idx * self.panels.nr).min(self.panels.nr))
    }

    /// Visits all elements: where each is in the matrix, its byte, and how far up in it.
    fn each(&self, strides: Strides, mut one: impl FnMut(usize, usize, usize)) {
        for panel in 0..self.n_panels() {
            let (first, columns) = (panel * self.panels.nr, self.stored_columns(panel));
            for k in 0..self.k {
                let from = k * strides.k + first * strides.n;
                let (start, step, up) = match self.width {
                    Width::Four => {
                        (k / ROWS * columns * size_of::<u32>() + k % ROWS / 2, size_of::<u32>(), k % 2 * 4)
                    }
                    Width::Eight => (k * columns, 1, 0),
                };
                let start = self.offset(panel) + start;
                for j in 0..self.panels.nr.min(self.n - first) {
                    one(from + j * strides.n, start + j * step, up);
                }
            }
        }
    }

    /// Packs elements of this type, one in each byte as [`planish_tensor::Tensor::codes`] gives them.
    pub fn pack(&self, dtype: DType, codes: &[u8], strides: Strides) -> Vec<u8> {
        let mut packed = vec![0u8; self.checked_len().unwrap_or(0)];
        let (middle, kept) = (middle(dtype), kept(self.width));
        // A value of 4 bits that is stored in 8 has its sign copied.
        let extend = (dtype.bits() == 4 && self.width == Width::Eight) as u32 * 4;
        self.each(strides, |from, byte, up| {
            let code = codes[from].wrapping_sub(middle);
            let signed = ((code << extend) as i8 >> extend) as u8;
            packed[byte] |= (signed & kept) << up;
        });
        packed
    }

    /// The elements again, one in each byte.
    pub fn unpack(&self, dtype: DType, packed: &[u8], strides: Strides) -> Vec<u8> {
        let mut codes = vec![0u8; self.k * self.n];
        let (middle, kept) = (middle(dtype), kept(self.width));
        self.each(strides, |to, byte, up| codes[to] = (packed[byte] >> up & kept).wrapping_add(middle));
        codes
    }
}

/// Several such matrices of equal sizes, one after the other: those of a recurrent layer's directions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CodesStack {
    pub count: usize,
    pub layout: PackedCodes,
    /// Where the elements of a matrix are in it.
    pub strides: Strides,
}

impl CodesStack {
    /// Bytes, padding included; `None` where they overflow.
    pub fn checked_len(&self) -> Option<usize> {
        self.layout.checked_len()?.checked_mul(self.count)
    }

    /// As [`PackedCodes::pack`].
    pub fn pack(&self, dtype: DType, codes: &[u8]) -> Vec<u8> {
        let matrices = codes.chunks_exact((self.layout.k * self.layout.n).max(1));
        matrices.flat_map(|matrix| self.layout.pack(dtype, matrix, self.strides)).collect()
    }

    /// As [`PackedCodes::unpack`].
    pub fn unpack(&self, dtype: DType, packed: &[u8]) -> Vec<u8> {
        let matrices = packed.chunks_exact(self.layout.checked_len().unwrap_or(0).max(1));
        matrices.flat_map(|matrix| self.layout.unpack(dtype, matrix, self.strides)).collect()
    }
}

fn kept(width: Width) -> u8 {
    match width {
        Width::Four => 0xf,
        Width::Eight => 0xff,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::Tensor;
    use planish_testing::Random;

    #[test]
    fn unpacking_gives_the_integers_back_and_padding_is_zero() {
        let mut random = Random::new(4);
        let panels = Panels { nr: 32, lanes: 16 };
        for (k, n) in [(1, 1), (7, 31), (8, 32), (9, 33), (40, 70)] {
            for dtype in [DType::I4, DType::U4, DType::I8, DType::U8] {
                for width in [Width::Four, Width::Eight] {
                    if dtype.bits() > width.bits() {
                        continue;
                    }
                    for strides in [Strides { k: n, n: 1 }, Strides { k: 1, n: k }] {
                        let tensor = random.raw(dtype, &[k * n]);
                        let layout = PackedCodes { panels, width, k, n };
                        let packed = layout.pack(dtype, &tensor.codes().unwrap(), strides);
                        assert_eq!(Some(packed.len()), layout.checked_len());
                        let again = layout.unpack(dtype, &packed, strides);
                        assert_eq!(Tensor::from_codes(dtype, &[k * n], again).unwrap(), tensor);
                    }
                }
            }
        }
        let layout = PackedCodes { panels, width: Width::Eight, k: 9, n: 5 };
        let stack = CodesStack { count: 3, layout, strides: Strides { k: 1, n: 9 } };
        let codes = random.raw(DType::I8, &[3 * 45]).codes().unwrap().into_owned();
        let packed = stack.pack(DType::I8, &codes);
        assert_eq!(Some(packed.len()), stack.checked_len());
        assert_eq!(packed[2 * packed.len() / 3..], layout.pack(DType::I8, &codes[90..], stack.strides));
        assert_eq!(stack.unpack(DType::I8, &packed), codes);
        let layout = PackedCodes { panels, width: Width::Four, k: 3, n: 1 };
        let packed = layout.pack(DType::U4, &[9, 8, 7], Strides { k: 1, n: 3 });
        assert_eq!(packed[..4], [0x01, 0x0f, 0, 0], "stored less the middle");
        assert!(packed[4..].iter().all(|byte| *byte == 0));
    }
}
