//! Vectors as arrays of eight: what every target runs, and what the others are tested against.

use super::{Simd, arrays};
use crate::isa::Portable;

type F8 = [f32; 8];
type I8 = [i32; 8];

impl Simd for Portable {
    type F = F8;
    type I = I8;
    type M = [bool; 8];

    const LANES: usize = 8;
    // SSE2 has 16 registers of four lanes: eight vectors of eight.
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, value: f32) -> F8 {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> F8 {
        // SAFETY: the caller grants eight readable elements.
        unsafe { from.cast::<F8>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: F8) {
        // SAFETY: the caller grants eight writable elements.
        unsafe { to.cast::<F8>().write_unaligned(vector) }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> F8 {
        let mut vector = [0.0; 8];
        for (i, lane) in vector.iter_mut().enumerate().take(n) {
            // SAFETY: the caller grants `min(n, 8)` readable elements.
            *lane = unsafe { *from.add(i) };
        }
        vector
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, vector: F8) {
        for (i, lane) in vector.iter().enumerate().take(n) {
            // SAFETY: the caller grants `min(n, 8)` writable elements.
            unsafe { *to.add(i) = *lane };
        }
    }
    #[inline(always)]
    fn add(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: F8, b: F8, c: F8) -> F8 {
        arrays::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn neg_mul_add(self, a: F8, b: F8, c: F8) -> F8 {
        arrays::from_fn(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    fn min(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn max(self, a: F8, b: F8) -> F8 {
        arrays::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sqrt(self, a: F8) -> F8 {
        arrays::map(a, |x| x.sqrt())
    }
    #[inline(always)]
    fn abs(self, a: F8) -> F8 {
        arrays::map(a, |x| x.abs())
    }
    #[inline(always)]
    fn neg(self, a: F8) -> F8 {
        arrays::map(a, |x| -x)
    }
    #[inline(always)]
    fn round(self, a: F8) -> F8 {
        arrays::map(a, |x| x.round_ties_even())
    }
    #[inline(always)]
    fn floor(self, a: F8) -> F8 {
        arrays::map(a, |x| x.floor())
    }
    #[inline(always)]
    fn ceil(self, a: F8) -> F8 {
        arrays::map(a, |x| x.ceil())
    }
    #[inline(always)]
    fn trunc(self, a: F8) -> F8 {
        arrays::map(a, |x| x.trunc())
    }
    #[inline(always)]
    fn eq(self, a: F8, b: F8) -> [bool; 8] {
        arrays::from_fn(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn lt(self, a: F8, b: F8) -> [bool; 8] {
        arrays::from_fn(|i| a[i] < b[i])
    }
    #[inline(always)]
    fn le(self, a: F8, b: F8) -> [bool; 8] {
        arrays::from_fn(|i| a[i] <= b[i])
    }
    #[inline(always)]
    fn is_nan(self, a: F8) -> [bool; 8] {
        arrays::map(a, f32::is_nan)
    }
    #[inline(always)]
    fn mask_and(self, a: [bool; 8], b: [bool; 8]) -> [bool; 8] {
        arrays::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn mask_or(self, a: [bool; 8], b: [bool; 8]) -> [bool; 8] {
        arrays::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn mask_not(self, a: [bool; 8]) -> [bool; 8] {
        arrays::map(a, |x| !x)
    }
    #[inline(always)]
    fn select(self, mask: [bool; 8], yes: F8, no: F8) -> F8 {
        arrays::from_fn(|i| if mask[i] { yes[i] } else { no[i] })
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> I8 {
        [value; 8]
    }
    #[inline(always)]
    unsafe fn load_int(self, from: *const i32) -> I8 {
        // SAFETY: granted by the caller.
        unsafe { from.cast::<I8>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> I8 {
        // SAFETY: granted by the caller.
        arrays::from_fn(|i| if i < n { unsafe { i32::from(*from.add(i)) } } else { 0 })
    }
    #[inline(always)]
    unsafe fn load_signed_bytes(self, from: *const i8, n: usize) -> I8 {
        // SAFETY: granted by the caller.
        arrays::from_fn(|i| if i < n { unsafe { i32::from(*from.add(i)) } } else { 0 })
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, n: usize, vector: I8) {
        for (i, value) in vector.into_iter().enumerate().take(n) {
            // SAFETY: granted by the caller.
            unsafe { *to.add(i) = value as u8 };
        }
    }
    #[inline(always)]
    fn mul_int(self, a: I8, b: I8) -> I8 {
        arrays::from_fn(|i| a[i].wrapping_mul(b[i]))
    }
    #[inline(always)]
    fn add_int(self, a: I8, b: I8) -> I8 {
        arrays::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_int(self, a: I8, b: I8) -> I8 {
        arrays::from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn and_int(self, a: I8, b: I8) -> I8 {
        arrays::from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or_int(self, a: I8, b: I8) -> I8 {
        arrays::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: I8) -> I8 {
        arrays::map(a, |x| x << N)
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: I8) -> I8 {
        arrays::map(a, |x| x >> N)
    }
    #[inline(always)]
    fn to_int(self, a: F8) -> I8 {
        // 2^31 is the first f32 beyond i32; `as` saturates there, the machines give i32::MIN.
        arrays::map(a, |x| if x.abs() < 2_147_483_648.0 { x.round_ties_even() as i32 } else { i32::MIN })
    }
    #[inline(always)]
    fn to_float(self, a: I8) -> F8 {
        arrays::map(a, |x| x as f32)
    }
    #[inline(always)]
    fn bits(self, a: F8) -> I8 {
        arrays::map(a, |x| x.to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(self, a: I8) -> F8 {
        arrays::map(a, |x| f32::from_bits(x as u32))
    }
    #[inline(always)]
    fn unzip(self, a: F8, b: F8) -> (F8, F8) {
        let lane = |i: usize| if i < 8 { a[i] } else { b[i - 8] };
        (arrays::from_fn(|i| lane(2 * i)), arrays::from_fn(|i| lane(2 * i + 1)))
    }
    #[inline(always)]
    fn zip(self, first: F8, second: F8) -> (F8, F8) {
        let lane = |i: usize| [first, second][i % 2][i / 2];
        (arrays::from_fn(lane), arrays::from_fn(|i| lane(i + 8)))
    }
    #[inline(always)]
    fn any(self, mask: [bool; 8]) -> bool {
        mask.contains(&true)
    }
    #[inline(always)]
    fn sum(self, a: F8) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    fn max_lane(self, a: F8) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, |most, x| if x > most { x } else { most })
    }
}
