//! Rows of f32 as three digits each.

use super::ZERO;
use super::table::{BASE, DIGITS};
use crate::simd::{Simd, SimdKernel};

/// The largest digit.
const MOST: f32 = 127.0;
/// The bits that stand for the scale of a row that cannot be taken apart: numbers that are none, or so large or small that
/// a scale is none. NaN, so that whoever forgets them sees it.
pub(super) const PLAIN: u32 = 0x7fc0_5eed;
/// Rows whose largest magnitude is between are taken apart.
const SMALLEST: f32 = 1e-30;
const LARGEST: f32 = 1e30;

/// Rows of `k` numbers become planes of `k` bytes, the highest digit first, and a scale.
pub(super) struct TakeApart {
    pub(super) from: *const f32,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) digits: *mut u8,
    pub(super) scales: *mut f32,
}

impl SimdKernel for TakeApart {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: whoever made the struct grants the rows.
        unsafe { self.compute(s) }
    }
}

impl TakeApart {
    /// # Safety
    /// All rows must be readable, their digits and scales writable.
    #[inline(always)]
    pub(super) unsafe fn compute<S: Simd>(&self, s: S) {
        let &TakeApart { n, k, .. } = self;
        let most = MOST * BASE * BASE;
        for row in 0..n {
            // SAFETY: granted by the caller.
            unsafe {
                let from = self.from.add(row * k);
                let digits = self.digits.add(row * DIGITS * k);
                let mut largest = s.zero();
                let mut odd = s.is_nan(s.zero());
                for at in (0..k).step_by(S::LANES) {
                    let x = s.load_part(from.add(at), k - at);
                    odd = s.mask_or(odd, s.is_nan(x));
                    largest = s.max(largest, s.abs(x));
                }
                let largest = s.max_lane(largest);
                let is_apart = largest == 0.0 || (SMALLEST..=LARGEST).contains(&largest);
                if s.any(odd) || !is_apart {
                    *self.scales.add(row) = f32::from_bits(PLAIN);
                    digits.write_bytes(ZERO as u8, DIGITS * k);
                    continue;
                }
                let inverse = if largest == 0.0 { 0.0 } else { most / largest };
                *self.scales.add(row) = largest / most;
                let inverse = s.splat(inverse);
                let (high, low) = (s.splat(1.0 / (BASE * BASE)), s.splat(1.0 / BASE));
                let zero = s.splat_int(ZERO);
                for at in (0..k).step_by(S::LANES) {
                    let rest = k - at;
                    let y = s.mul(s.load_part(from.add(at), rest), inverse);
                    // What is left is a multiple of y's last bit and smaller than y: exact.
                    let a = s.round(s.mul(y, high));
                    let y = s.neg_mul_add(a, s.splat(BASE * BASE), y);
                    let b = s.round(s.mul(y, low));
                    let c = s.neg_mul_add(b, s.splat(BASE), y);
                    for (place, digit) in [a, b, c].into_iter().enumerate() {
                        let byte = s.add_int(s.to_int(digit), zero);
                        s.store_bytes(digits.add(place * k + at), rest, byte);
                    }
                }
            }
        }
    }
}
