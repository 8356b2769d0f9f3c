//! AVX-512: 512-bit vectors of sixteen f32, masks in mask registers.

use std::arch::x86_64::*;

use super::Simd;
use crate::isa::Avx512;

/// A mask whose first `n` lanes are set.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1u16 << n) - 1 }
}

// SAFETY of every block in this implementation: `self` proves that the instruction set is there, and where
// memory is touched the caller of the method grants it.
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;

    const LANES: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m512) {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm512_storeu_ps(to, vector) }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, vector: __m512) {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm512_mask_storeu_ps(to, first(n), vector) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn neg_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_abs_ps(a) }
    }
    #[inline(always)]
    fn neg(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_xor_ps(a, _mm512_set1_ps(-0.0)) }
    }
    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn floor(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn ceil(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn trunc(self, a: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
    }
    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn le(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: __m512) -> __mmask16 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) }
    }
    #[inline(always)]
    fn mask_and(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn mask_or(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn mask_not(self, a: __mmask16) -> __mmask16 {
        !a
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_mask_blend_ps(mask, no, yes) }
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn load_int(self, from: *const i32) -> __m512i {
        // SAFETY: granted by the caller; the proof of the instruction set is `self`.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> __m512i {
        // SAFETY: lanes beyond `n` are not read; the proof of the instruction set is `self`.
        unsafe { _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_signed_bytes(self, from: *const i8, n: usize) -> __m512i {
        // SAFETY: lanes beyond `n` are not read; the proof of the instruction set is `self`.
        unsafe { _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), from)) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, n: usize, vector: __m512i) {
        // SAFETY: lanes beyond `n` are not written; the proof of the instruction set is `self`.
        unsafe { _mm_mask_storeu_epi8(to.cast(), first(n), _mm512_cvtepi32_epi8(vector)) }
    }
    #[inline(always)]
    fn mul_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn add_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn sub_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn and_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_and_si512(a, b) }
    }
    #[inline(always)]
    fn or_int(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_sllv_epi32(a, _mm512_set1_epi32(N)) }
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_srav_epi32(a, _mm512_set1_epi32(N)) }
    }
    #[inline(always)]
    fn to_int(self, a: __m512) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn to_float(self, a: __m512i) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn signed_nibble<const AT: usize>(self, words: __m512i) -> __m512 {
        // A permutation looks at the lowest four bits alone: one instruction takes them out and makes them numbers.
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let numbers = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0,
            );
            let lowest = match AT {
                0 => words,
                1 => _mm512_srli_epi32::<4>(words),
                2 => _mm512_srli_epi32::<8>(words),
                3 => _mm512_srli_epi32::<12>(words),
                4 => _mm512_srli_epi32::<16>(words),
                5 => _mm512_srli_epi32::<20>(words),
                6 => _mm512_srli_epi32::<24>(words),
                _ => _mm512_srli_epi32::<28>(words),
            };
            _mm512_permutexvar_ps(lowest, numbers)
        }
    }
    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_castps_si512(a) }
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_castsi512_ps(a) }
    }
    #[inline(always)]
    fn scale(self, a: __m512, n: __m512) -> __m512 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_scalef_ps(a, n) }
    }
    #[inline(always)]
    fn scale_near(self, a: __m512, n: __m512) -> __m512 {
        self.scale(a, n)
    }
    #[inline(always)]
    fn scale_down(self, a: __m512, n: __m512) -> __m512 {
        self.scale(a, n)
    }
    #[inline(always)]
    fn unzip(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let second = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(a, first, b), _mm512_permutex2var_ps(a, second, b))
        }
    }
    #[inline(always)]
    fn zip(self, first: __m512, second: __m512) -> (__m512, __m512) {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(first, low, second), _mm512_permutex2var_ps(first, high, second))
        }
    }
    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_reduce_add_ps(a) }
    }
    #[inline(always)]
    fn max_lane(self, a: __m512) -> f32 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm512_reduce_max_ps(a) }
    }
}
