//! How kernels of images read and write elements in vectors: floats, or bytes with a scale and a zero point, which become
//! floats in registers and bytes again where the result is stored so.

use std::marker::PhantomData;

use planish_kernel::quantized::{Dequantized, Quantization, Scales};
use planish_tensor::DType;

use crate::simd::Simd;

/// Elements of an image in memory; places are counted in elements.
pub(crate) trait Elements: Copy {
    /// A vector of numbers from element `at` on: all lanes, or with `PART` the first `n`.
    ///
    /// # Safety
    /// The elements must be readable.
    unsafe fn load<S: Simd, const PART: bool>(self, s: S, x: *const u8, at: usize, n: usize) -> S::F;

    /// Stores such a vector, in the units that [`Elements::load`] gives.
    ///
    /// # Safety
    /// The elements must be writable.
    unsafe fn store<S: Simd, const PART: bool>(self, s: S, y: *mut u8, at: usize, n: usize, value: S::F);
}

/// Floats on both sides.
#[derive(Clone, Copy)]
pub(crate) struct Floats;

impl Elements for Floats {
    #[inline(always)]
    unsafe fn load<S: Simd, const PART: bool>(self, s: S, x: *const u8, at: usize, n: usize) -> S::F {
        let x = x.cast::<f32>().wrapping_add(at);
        // SAFETY: granted by the caller.
        unsafe { if PART { s.load_part(x, n) } else { s.load(x) } }
    }

    #[inline(always)]
    unsafe fn store<S: Simd, const PART: bool>(self, s: S, y: *mut u8, at: usize, n: usize, value: S::F) {
        let y = y.cast::<f32>().wrapping_add(at);
        // SAFETY: granted by the caller.
        unsafe { if PART { s.store_part(y, n, value) } else { s.store(y, value) } }
    }
}

/// Signed or unsigned bytes.
pub(crate) trait Byte: Copy + Ord {
    const LOWEST: Self;

    fn widened(self) -> i32;

    /// # Safety
    /// `from` must be readable for `min(n, LANES)` bytes.
    unsafe fn load<S: Simd>(s: S, from: *const Self, n: usize) -> S::I;
}

impl Byte for u8 {
    const LOWEST: u8 = u8::MIN;

    #[inline(always)]
    fn widened(self) -> i32 {
        i32::from(self)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u8, n: usize) -> S::I {
        // SAFETY: granted by the caller.
        unsafe { s.load_bytes(from, n) }
    }
}

impl Byte for i8 {
    const LOWEST: i8 = i8::MIN;

    #[inline(always)]
    fn widened(self) -> i32 {
        i32::from(self)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const i8, n: usize) -> S::I {
        // SAFETY: granted by the caller.
        unsafe { s.load_signed_bytes(from, n) }
    }
}

/// What the bytes of an image stand for, and those of a result, where it is bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Requantized {
    pub scale: f32,
    pub zero: i32,
    pub to: Option<Quantization>,
}

impl Requantized {
    /// Of a region of one node over an image of bytes; `None` where numbers or scales are of another kind.
    pub(crate) fn of(inner: &Dequantized) -> Option<Requantized> {
        let [from] = &inner.inputs[..] else { return None };
        let Scales::One(scale) = from.scales else { return None };
        let is_integer = |dtype: DType| matches!(dtype, DType::U8 | DType::I8);
        let in_floats = |operands: &[planish_kernel::Operand]| {
            operands.first().is_some_and(|operand| operand.dtype == DType::F32)
        };
        let fits = is_integer(from.dtype)
            && from.input == 0
            && in_floats(&inner.problem.inputs)
            && in_floats(&inner.problem.outputs)
            && inner.output.is_none_or(|to| is_integer(to.dtype));
        fits.then_some(Requantized { scale, zero: from.zero, to: inner.output })
    }
}

/// Bytes on the one side, and bytes or floats on the other. Between them numbers are in units of the scale.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<T> {
    by: Requantized,
    of: PhantomData<T>,
}

impl<T: Byte> Bytes<T> {
    pub(crate) fn new(by: Requantized) -> Bytes<T> {
        Bytes { by, of: PhantomData }
    }

    pub(crate) fn zero(self) -> i32 {
        self.by.zero
    }
}

impl<T: Byte> Elements for Bytes<T> {
    #[inline(always)]
    unsafe fn load<S: Simd, const PART: bool>(self, s: S, x: *const u8, at: usize, n: usize) -> S::F {
        // SAFETY: granted by the caller.
        let bytes = unsafe { T::load(s, x.cast::<T>().wrapping_add(at), if PART { n } else { S::LANES }) };
        s.to_float(s.sub_int(bytes, s.splat_int(self.by.zero)))
    }

    #[inline(always)]
    unsafe fn store<S: Simd, const PART: bool>(self, s: S, y: *mut u8, at: usize, n: usize, value: S::F) {
        let value = s.mul(value, s.splat(self.by.scale));
        match self.by.to {
            // SAFETY: granted by the caller.
            None => unsafe { Floats.store::<S, PART>(s, y, at, n, value) },
            Some(to) => {
                let (low, high) = if to.dtype == DType::U8 { (0.0, 255.0) } else { (-128.0, 127.0) };
                let integer = s.add(s.round(s.div(value, s.splat(to.scale))), s.splat(to.zero as f32));
                let integer = s.to_int(s.max(s.min(integer, s.splat(high)), s.splat(low)));
                // SAFETY: granted by the caller.
                unsafe { s.store_bytes(y.wrapping_add(at), if PART { n } else { S::LANES }, integer) };
            }
        }
    }
}
