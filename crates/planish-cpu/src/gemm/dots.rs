//! A few rows of A against B stored by columns: dot products along memory, where packing B would cost more than
//! the product itself.

use crate::simd::{Simd, SimdKernel, arrays};

use super::tile::EpilogueCall;

/// More rows than this are worth packing B for.
pub(super) const MAX_ROWS: usize = 4;
/// Columns that are computed together, so that a load of A serves several and the additions overlap.
const COLUMNS: usize = 4;

/// `C[i][j] = epilogue(Σ a[i][k] · b[j][k])`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dots {
    pub a: *const f32,
    pub a_stride: usize,
    pub b: *const f32,
    pub b_stride: usize,
    pub c: *mut f32,
    pub c_stride: usize,
    /// At most [`MAX_ROWS`].
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub epilogue: EpilogueCall,
}

impl SimdKernel for Dots {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in 0..self.m {
            let mut j = 0;
            // SAFETY: whoever made the struct grants the memory that it names.
            unsafe {
                while j + COLUMNS <= self.n {
                    self.group::<S, COLUMNS>(s, i, j);
                    j += COLUMNS;
                }
                while j < self.n {
                    self.group::<S, 1>(s, i, j);
                    j += 1;
                }
            }
        }
    }
}

impl Dots {
    /// `N` neighbouring columns of a row.
    ///
    /// # Safety
    /// The memory that the struct names must be there.
    #[inline(always)]
    unsafe fn group<S: Simd, const N: usize>(&self, s: S, i: usize, j: usize) {
        let mut acc = [[s.zero(); 2]; N];
        // SAFETY: as the caller grants; the last vector reads only the lanes that are left.
        let acc: [f32; N] = unsafe {
            let a = self.a.add(i * self.a_stride);
            let mut b = [std::ptr::null::<f32>(); N];
            for (t, b) in b.iter_mut().enumerate() {
                *b = self.b.add((j + t) * self.b_stride);
            }
            let mut k = 0;
            while k + 2 * S::LANES <= self.k {
                let x = [s.load(a.add(k)), s.load(a.add(k + S::LANES))];
                for (acc, b) in acc.iter_mut().zip(b) {
                    acc[0] = s.mul_add(x[0], s.load(b.add(k)), acc[0]);
                    acc[1] = s.mul_add(x[1], s.load(b.add(k + S::LANES)), acc[1]);
                }
                k += 2 * S::LANES;
            }
            while k < self.k {
                let left = self.k - k;
                let x = s.load_part(a.add(k), left);
                for (acc, b) in acc.iter_mut().zip(b) {
                    acc[0] = s.mul_add(x, s.load_part(b.add(k), left), acc[0]);
                }
                k += S::LANES;
            }
            arrays::map(acc, |[even, odd]| s.sum(s.add(even, odd)))
        };
        for (t, mut sum) in acc.into_iter().enumerate() {
            let epilogue = &self.epilogue;
            // SAFETY: as the caller grants.
            unsafe {
                if !epilogue.bias.is_null() {
                    sum += *epilogue.bias.add(j + t);
                }
                if !epilogue.residual.is_null() {
                    sum += *epilogue.residual.add(i * epilogue.residual_stride + j + t);
                }
                // Comparisons that are false for NaN keep it, as in the tile.
                if sum < epilogue.lo {
                    sum = epilogue.lo;
                }
                if sum > epilogue.hi {
                    sum = epilogue.hi;
                }
                *self.c.add(i * self.c_stride + j + t) = sum;
            }
        }
    }
}
