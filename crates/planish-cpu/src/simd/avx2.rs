//! AVX2 with FMA: 256-bit vectors of eight f32, masks as vectors of all ones or zeros.

use std::arch::x86_64::*;

use super::Simd;
use crate::isa::Avx2;

/// A mask whose first `n` lanes are set.
#[inline(always)]
fn first(n: usize) -> __m256i {
    static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    let from = &ONES_THEN_ZEROS[8 - n.min(8)..];
    // SAFETY: at least eight elements follow any start up to eight; callers hold the proof of AVX2.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

// SAFETY of every block in this implementation: `self` proves that the instruction set is there, and where
// memory is touched the caller of the method grants it.
impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    type M = __m256;

    const LANES: usize = 8;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: __m256) {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm256_storeu_ps(to, vector) }
    }
    #[inline(always)]
    unsafe fn load_part(self, from: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm256_maskload_ps(from, first(n)) }
    }
    #[inline(always)]
    unsafe fn store_part(self, to: *mut f32, n: usize, vector: __m256) {
        // SAFETY: the caller grants the memory, `self` is the proof.
        unsafe { _mm256_maskstore_ps(to, first(n), vector) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn neg_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn sqrt(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_sqrt_ps(a) }
    }
    #[inline(always)]
    fn abs(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
    }
    #[inline(always)]
    fn neg(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_xor_ps(a, _mm256_set1_ps(-0.0)) }
    }
    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn floor(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn ceil(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn trunc(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a) }
    }
    #[inline(always)]
    fn eq(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
    }
    #[inline(always)]
    fn lt(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn le(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cmp_ps::<_CMP_LE_OQ>(a, b) }
    }
    #[inline(always)]
    fn is_nan(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a) }
    }
    #[inline(always)]
    fn mask_and(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_and_ps(a, b) }
    }
    #[inline(always)]
    fn mask_or(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_or_ps(a, b) }
    }
    #[inline(always)]
    fn mask_not(self, a: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))) }
    }
    #[inline(always)]
    fn select(self, mask: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_blendv_ps(no, yes, mask) }
    }
    #[inline(always)]
    fn splat_int(self, value: i32) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_set1_epi32(value) }
    }
    #[inline(always)]
    unsafe fn load_int(self, from: *const i32) -> __m256i {
        // SAFETY: granted by the caller; the proof of the instruction set is `self`.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, from: *const u8, n: usize) -> __m256i {
        let mut word = 0u64;
        // SAFETY: at most eight bytes, which the caller grants; the proof of the instruction set is `self`.
        unsafe {
            match n >= 8 {
                true => word = from.cast::<u64>().read_unaligned(),
                false => from.copy_to_nonoverlapping((&raw mut word).cast(), n),
            }
            _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(word as i64))
        }
    }
    #[inline(always)]
    unsafe fn load_signed_bytes(self, from: *const i8, n: usize) -> __m256i {
        let mut word = 0u64;
        // SAFETY: as above.
        unsafe {
            match n >= 8 {
                true => word = from.cast::<u64>().read_unaligned(),
                false => from.copy_to_nonoverlapping((&raw mut word).cast(), n),
            }
            _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(word as i64))
        }
    }
    #[inline(always)]
    unsafe fn store_two_bytes(self, to: *mut u8, first: __m256i, second: __m256i) {
        // SAFETY: the caller grants 16 bytes; the proof of the instruction set is `self`.
        unsafe {
            // Words of both in each half; their low bytes to the front of it; then in order.
            let words = _mm256_packs_epi32(first, second);
            let low = _mm256_setr_epi8(
                0, 2, 4, 6, 8, 10, 12, 14, -1, -1, -1, -1, -1, -1, -1, -1, 0, 2, 4, 6, 8, 10, 12, 14, -1, -1,
                -1, -1, -1, -1, -1, -1,
            );
            let bytes = _mm256_shuffle_epi8(words, low);
            let joined = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0));
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(joined));
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, to: *mut u8, n: usize, vector: __m256i) {
        // SAFETY: the caller grants the bytes; the proof of the instruction set is `self`.
        unsafe {
            // The low byte of each lane to the front of its half, then both halves together.
            let low = _mm256_setr_epi8(
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1, -1,
                -1, -1, -1, -1, -1, -1, -1,
            );
            let packed = _mm256_shuffle_epi8(vector, low);
            let joined = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 1, 1, 1, 1, 1));
            let word = _mm_cvtsi128_si64(_mm256_castsi256_si128(joined)) as u64;
            match n >= 8 {
                true => to.cast::<u64>().write_unaligned(word),
                false => (&raw const word).cast::<u8>().copy_to_nonoverlapping(to, n),
            }
        }
    }
    #[inline(always)]
    fn mul_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn add_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn sub_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_sub_epi32(a, b) }
    }
    #[inline(always)]
    fn and_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_and_si256(a, b) }
    }
    #[inline(always)]
    fn or_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    fn shift_left<const N: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_slli_epi32::<N>(a) }
    }
    #[inline(always)]
    fn shift_right<const N: i32>(self, a: __m256i) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_srai_epi32::<N>(a) }
    }
    #[inline(always)]
    fn to_int(self, a: __m256) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cvtps_epi32(a) }
    }
    #[inline(always)]
    fn to_float(self, a: __m256i) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_cvtepi32_ps(a) }
    }
    #[inline(always)]
    fn bits(self, a: __m256) -> __m256i {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_castps_si256(a) }
    }
    #[inline(always)]
    fn from_bits(self, a: __m256i) -> __m256 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_castsi256_ps(a) }
    }
    #[inline(always)]
    fn unzip(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            // Shuffles stay within halves of a vector, so the middle quarters are exchanged after them.
            let halves =
                |vector| _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(vector)));
            let (first, second) =
                (_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b));
            (halves(first), halves(second))
        }
    }
    #[inline(always)]
    fn zip(self, first: __m256, second: __m256) -> (__m256, __m256) {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(first, second), _mm256_unpackhi_ps(first, second));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        }
    }
    #[inline(always)]
    fn any(self, mask: __m256) -> bool {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe { _mm256_movemask_ps(mask) != 0 }
    }
    #[inline(always)]
    fn sum(self, a: __m256) -> f32 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }
    }
    #[inline(always)]
    fn max_lane(self, a: __m256) -> f32 {
        // SAFETY: the proof of the instruction set is `self`.
        unsafe {
            let half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }
    }
}
