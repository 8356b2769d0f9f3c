//! A few hundred elements of any type as 64-bit words, in which typed programs compute: floats as f64, integers and truth
//! values as i64, the widest unsigned ones as u64.
//!
//! A word always holds a number of its own type exactly, so every operation on words followed by [`Form::settle`] is the
//! operation of the type: floats are rounded once, integers wrap.

use planish_tensor::DType;
use planish_tensor::rounding::{bf16_from_f64, f16_from_f64};
use planish_tensor::small_float::{E8M0Rounding, decode, encode, encode_e8m0};

use crate::isa::Isa;
use crate::simd::{Simd, SimdKernel};

/// Elements of a column.
pub(crate) const COLUMN: usize = 256;

/// What a word stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Real,
    Int,
    /// The unsigned integers of 64 bits.
    Unsigned,
}

impl Form {
    pub(crate) fn of(dtype: DType) -> Form {
        match dtype {
            DType::U64 => Form::Unsigned,
            dtype if dtype.is_float() => Form::Real,
            _ => Form::Int,
        }
    }
}

/// The words of a column as floats.
pub(crate) fn reals(words: &[u64]) -> &[f64] {
    // SAFETY: both have the same size and alignment, and every word is a number of each.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

pub(crate) fn reals_mut(words: &mut [u64]) -> &mut [f64] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}

pub(crate) fn ints(words: &[u64]) -> &[i64] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

pub(crate) fn ints_mut(words: &mut [u64]) -> &mut [i64] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}

/// f16 without branches, so that loops over it become vectors.
#[inline(always)]
pub(crate) fn widened_f16(code: u16) -> f32 {
    const TWO_TO_112: f32 = f32::from_bits((112 + 127) << 23);
    let magnitude = u32::from(code & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * TWO_TO_112).to_bits();
    let bits = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(bits | u32::from(code & 0x8000) << 16)
}

/// The f16 nearest to an f32, ties to even, likewise.
#[inline(always)]
pub(crate) fn rounded_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    // Below 2^-14 the sum with one half has the last place of a denormal; above, half of the last place is added.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let normal = magnitude.wrapping_add(0xc800_0fff + (magnitude >> 13 & 1)) >> 13;
    let finite = if magnitude < 0x3880_0000 { small } else { normal };
    let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let code = if magnitude >= 0x4780_0000 { special } else { finite };
    (code | bits >> 16 & 0x8000) as u16
}

/// The bf16 nearest to an f32, ties to even.
#[inline(always)]
pub(crate) fn rounded_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if value.is_nan() { bits >> 16 | 0x40 } else { nearest }) as u16
}

/// Elements of a type from memory to words. `step` is the distance of neighbours in elements.
pub(crate) struct Load<'a> {
    pub(crate) dtype: DType,
    pub(crate) from: *const u8,
    /// The first element, counted from `from`.
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) to: &'a mut [u64],
}

impl Load<'_> {
    /// # Safety
    /// The elements must be readable.
    pub(crate) unsafe fn run(self, isa: Isa) {
        isa.run(self);
    }

    /// # Safety
    /// The elements must be readable.
    #[inline(always)]
    unsafe fn each<T: Copy>(&mut self, word: impl Fn(T) -> u64) {
        let from = self.from.cast::<T>().wrapping_add(self.first);
        // SAFETY: granted by the caller.
        unsafe {
            match self.step {
                0 => self.to.fill(word(from.read_unaligned())),
                1 => {
                    for (at, to) in self.to.iter_mut().enumerate() {
                        *to = word(from.add(at).read_unaligned());
                    }
                }
                step => {
                    for (at, to) in self.to.iter_mut().enumerate() {
                        *to = word(from.add(at * step).read_unaligned());
                    }
                }
            }
        }
    }

    /// Codes of less than a byte.
    ///
    /// # Safety
    /// The elements must be readable.
    #[inline(always)]
    unsafe fn packed(&mut self, word: impl Fn(u8) -> u64) {
        let bits = self.dtype.bits();
        let per_byte = 8 / bits;
        let mask = (1u16 << bits) as u8 - 1;
        for (at, to) in self.to.iter_mut().enumerate() {
            let idx = self.first + at * self.step;
            // SAFETY: granted by the caller.
            let byte = unsafe { self.from.add(idx / per_byte).read() };
            *to = word(byte >> (idx % per_byte * bits) & mask);
        }
    }
}

impl SimdKernel for Load<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let dtype = self.dtype;
        // SAFETY: `Load::run`'s caller grants the elements.
        unsafe {
            match dtype {
                DType::F64 | DType::I64 | DType::U64 => self.each(|x: u64| x),
                DType::F32 => self.each(|x: f32| f64::from(x).to_bits()),
                DType::F16 => self.each(|x: u16| f64::from(widened_f16(x)).to_bits()),
                DType::BF16 => self.each(|x: u16| f64::from(f32::from_bits(u32::from(x) << 16)).to_bits()),
                DType::I8 => self.each(|x: i8| i64::from(x) as u64),
                DType::I16 => self.each(|x: i16| i64::from(x) as u64),
                DType::I32 => self.each(|x: i32| i64::from(x) as u64),
                DType::U8 => self.each(|x: u8| u64::from(x)),
                // A byte other than 0 and 1 is never made; whoever brings one has brought true.
                DType::Bool => self.each(|x: u8| u64::from(x != 0)),
                DType::U16 => self.each(|x: u16| u64::from(x)),
                DType::U32 => self.each(|x: u32| u64::from(x)),
                DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => {
                    self.each(|x: u8| f64::from(decode(dtype, x)).to_bits());
                }
                DType::F4E2M1 => self.packed(|x| f64::from(decode(dtype, x)).to_bits()),
                DType::I4 => self.packed(|x| i64::from((x << 4) as i8 >> 4) as u64),
                DType::I2 => self.packed(|x| i64::from((x << 6) as i8 >> 6) as u64),
                DType::U4 | DType::U2 => self.packed(u64::from),
            }
        }
    }
}

/// How floats of a few bits are rounded when they are stored.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rounding {
    pub(crate) saturate: bool,
    pub(crate) scale: E8M0Rounding,
}

impl Rounding {
    pub(crate) const USUAL: Rounding = Rounding { saturate: true, scale: E8M0Rounding::Nearest };
}

/// Words to elements of their type in memory.
pub(crate) struct Store<'a> {
    pub(crate) dtype: DType,
    pub(crate) rounding: Rounding,
    pub(crate) from: &'a [u64],
    pub(crate) to: *mut u8,
    /// The first element, counted from `to`; of types below a byte it must begin one.
    pub(crate) first: usize,
    pub(crate) step: usize,
}

impl Store<'_> {
    /// # Safety
    /// The elements must be writable; of types below a byte whole bytes.
    pub(crate) unsafe fn run(self, isa: Isa) {
        isa.run(self);
    }

    /// # Safety
    /// The elements must be writable.
    #[inline(always)]
    unsafe fn each<T>(&self, element: impl Fn(u64) -> T) {
        let to = self.to.cast::<T>().wrapping_add(self.first);
        // SAFETY: granted by the caller.
        unsafe {
            match self.step {
                1 => {
                    for (at, word) in self.from.iter().enumerate() {
                        to.add(at).write_unaligned(element(*word));
                    }
                }
                step => {
                    for (at, word) in self.from.iter().enumerate() {
                        to.add(at * step).write_unaligned(element(*word));
                    }
                }
            }
        }
    }

    /// Codes of less than a byte, dense.
    ///
    /// # Safety
    /// The bytes must be writable.
    #[inline(always)]
    unsafe fn packed(&self, code: impl Fn(u64) -> u8) {
        let bits = self.dtype.bits();
        let per_byte = 8 / bits;
        let mask = (1u16 << bits) as u8 - 1;
        for (at, words) in self.from.chunks(per_byte).enumerate() {
            let place = |byte: u8, (idx, word): (usize, &u64)| byte | (code(*word) & mask) << (idx * bits);
            let byte = words.iter().enumerate().fold(0, place);
            // SAFETY: granted by the caller.
            unsafe { self.to.add(self.first / per_byte + at).write(byte) };
        }
    }
}

impl SimdKernel for Store<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (dtype, Rounding { saturate, scale }) = (self.dtype, self.rounding);
        // SAFETY: `Store::run`'s caller grants the elements.
        unsafe {
            match dtype {
                DType::F64 | DType::I64 | DType::U64 => self.each(|x| x),
                DType::F32 => self.each(|x| f64::from_bits(x) as f32),
                // Words are numbers of the type: nothing is rounded on the way through f32.
                DType::F16 => self.each(|x| rounded_f16(f64::from_bits(x) as f32)),
                DType::BF16 => self.each(|x| rounded_bf16(f64::from_bits(x) as f32)),
                DType::I8 | DType::U8 => self.each(|x| x as u8),
                DType::Bool => self.each(|x| u8::from(x != 0)),
                DType::I16 | DType::U16 => self.each(|x| x as u16),
                DType::I32 | DType::U32 => self.each(|x| x as u32),
                DType::F8E8M0 => self.each(|x| encode_e8m0(f64::from_bits(x), saturate, scale)),
                DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => {
                    self.each(|x| encode(dtype, f64::from_bits(x), saturate));
                }
                DType::F4E2M1 => self.packed(|x| encode(dtype, f64::from_bits(x), saturate)),
                DType::I4 | DType::U4 | DType::I2 | DType::U2 => self.packed(|x| x as u8),
            }
        }
    }
}

/// Makes words the numbers of a type that they are nearest to, or wrap to. Floats of 8 bits and less are rounded as they are
/// stored.
pub(crate) fn settle(dtype: DType, words: &mut [u64]) {
    let small = |words: &mut [u64], shift: u32| {
        ints_mut(words).iter_mut().for_each(|x| *x = *x << shift >> shift);
    };
    match dtype {
        DType::F32 => reals_mut(words).iter_mut().for_each(|x| *x = f64::from(*x as f32)),
        DType::F16 => reals_mut(words).iter_mut().for_each(|x| *x = f16_from_f64(*x).to_f64()),
        DType::BF16 => reals_mut(words).iter_mut().for_each(|x| *x = bf16_from_f64(*x).to_f64()),
        DType::I8 => small(words, 56),
        DType::I16 => small(words, 48),
        DType::I32 => small(words, 32),
        DType::U8 => words.iter_mut().for_each(|x| *x &= 0xff),
        DType::U16 => words.iter_mut().for_each(|x| *x &= 0xffff),
        DType::U32 => words.iter_mut().for_each(|x| *x &= 0xffff_ffff),
        _ => {}
    }
}

/// The number of an f64 as words of another type's form: what Cast makes of it before it is stored.
pub(crate) fn truncated(value: f64, to: DType) -> i64 {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    const TWO_TO_31: f64 = 2_147_483_648.0;
    let wide = if (-TWO_TO_63..TWO_TO_63).contains(&value) { value as i64 } else { i64::MIN };
    match to {
        DType::I64 | DType::U32 => wide,
        DType::U64 if value >= TWO_TO_63 => {
            let rest = value - TWO_TO_63;
            (if rest < TWO_TO_63 { rest as i64 } else { i64::MIN }) ^ i64::MIN
        }
        DType::U64 => wide,
        _ if value > -TWO_TO_31 - 1.0 && value < TWO_TO_31 => value as i64,
        _ => i64::from(i32::MIN),
    }
}

#[cfg(test)]
mod tests {
    use planish_tensor::{bf16, f16};

    use super::*;

    #[test]
    fn halves_are_those_of_the_crate() {
        for code in 0..=u16::MAX {
            let (ours, theirs) = (widened_f16(code), f16::from_bits(code).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()), "{code:x}");
        }
        // Every midpoint of two neighbours, the numbers beside it, and a sweep over all exponents.
        let sweep = (0..=u16::MAX).map(|high| f32::from_bits(u32::from(high) << 16 | 0x1234));
        let middles = (0..0x7c00u16).flat_map(|code| {
            let middle = (widened_f16(code) + widened_f16(code + 1)) / 2.0;
            [middle, f32::from_bits(middle.to_bits() + 1), f32::from_bits(middle.to_bits() - 1), -middle]
        });
        for value in sweep.chain(middles) {
            let (ours, theirs) = (f16::from_bits(rounded_f16(value)), f16::from_f32(value));
            assert!(ours == theirs || (ours.is_nan() && theirs.is_nan()), "{value:e}: {ours} {theirs}");
            let (ours, theirs) = (bf16::from_bits(rounded_bf16(value)), bf16::from_f32(value));
            assert!(ours == theirs || (ours.is_nan() && theirs.is_nan()), "{value:e}: {ours} {theirs}");
        }
    }
}
