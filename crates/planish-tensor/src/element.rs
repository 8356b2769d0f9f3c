//! `Element`: the Rust types that stand for whole-byte element types, and the byte casts between them.

#![allow(unsafe_code)]

use half::{bf16, f16};

use crate::DType;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose slices are the memory of a tensor of type [`Element::DTYPE`].
///
/// Sealed: every implementor is plain data without padding, so that its slices may be seen as bytes; all
/// but `bool` accept any bit pattern.
pub trait Element:
    Copy + Default + PartialEq + Send + Sync + std::fmt::Debug + sealed::Sealed + 'static
{
    /// The element type this Rust type stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(
            impl sealed::Sealed for $rust {}
            impl Element for $rust {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

elements! {
    f64 => F64, f32 => F32, f16 => F16, bf16 => BF16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    bool => Bool,
}

/// The memory of `elements` as bytes.
pub(crate) fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: `Element` is sealed to types without padding; u8 has no alignment or validity demands, and
    // the byte length is the slice's own size.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), std::mem::size_of_val(elements)) }
}

/// `bytes` as elements if the address is aligned and the length divides; the caller vouches for `bool`
/// contents (`Tensor` checks them at construction and never hands out mutable bytes).
pub(crate) fn try_cast<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    let size = size_of::<T>();
    if !(bytes.as_ptr() as usize).is_multiple_of(align_of::<T>()) || !bytes.len().is_multiple_of(size) {
        return None;
    }
    if T::DTYPE == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return None;
    }
    // SAFETY: alignment and length were checked above; every implementor but bool accepts any bit pattern,
    // and bool's were checked to be 0 or 1.
    Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size) })
}

/// A copy of `bytes` as elements, for addresses that are not aligned. A trailing partial element is dropped.
pub(crate) fn copy_cast<T: Element>(bytes: &[u8]) -> Vec<T> {
    let count = bytes.len() / size_of::<T>();
    let mut elements = vec![T::default(); count];
    if T::DTYPE == DType::Bool {
        // SAFETY: bool is one byte, and only 0 and 1 are written.
        let target = unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast::<u8>(), count) };
        for (to, from) in target.iter_mut().zip(bytes) {
            *to = u8::from(*from != 0);
        }
        return elements;
    }
    // SAFETY: the destination holds `count` elements of `size_of::<T>()` bytes each, the source at least as
    // many bytes, they do not overlap, and any bit pattern is valid for these types.
    unsafe {
        std::ptr::copy_nonoverlapping(
            bytes.as_ptr(),
            elements.as_mut_ptr().cast::<u8>(),
            count * size_of::<T>(),
        );
    }
    elements
}
