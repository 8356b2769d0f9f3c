//! `Tensor`: an element type, a shape and shared memory, always dense and row-major.

use std::borrow::Cow;
use std::fmt;

use half::{bf16, f16};

use crate::element::{copy_cast, try_cast};
use crate::{Bytes, DType, Element, small_float};

/// A dense, row-major tensor. Cloning shares the memory.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Box<[usize]>,
    data: Bytes,
}

/// Why bytes, a shape and an element type do not make a tensor, or a tensor is not what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TensorError {
    /// The shape's element count or byte size does not fit the address space.
    TooLarge { dtype: DType, shape: Vec<usize> },
    /// The data has another length than the shape demands.
    WrongLength { dtype: DType, shape: Vec<usize>, expected: usize, found: usize },
    /// The elements were asked for as another type.
    WrongType { expected: DType, found: DType },
}

impl fmt::Display for TensorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TensorError::TooLarge { dtype, shape } => {
                write!(f, "a tensor {dtype}{shape:?} does not fit into memory")
            }
            TensorError::WrongLength { dtype, shape, expected, found } => {
                write!(f, "a tensor {dtype}{shape:?} needs {expected} bytes, the data has {found}")
            }
            TensorError::WrongType { expected, found } => {
                write!(f, "expected elements of type {expected}, found {found}")
            }
        }
    }
}

impl std::error::Error for TensorError {}

/// The number of elements of a shape; `None` on overflow.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the count zero, however large the other dimensions are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1usize, |count, &dim| count.checked_mul(dim))
}

impl Tensor {
    /// A tensor over `data`, which is taken over without copying.
    pub fn new<T: Element>(shape: &[usize], data: Vec<T>) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(T::DTYPE, shape, Bytes::from_vec(data))
    }

    /// A tensor of rank 0.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor { dtype: T::DTYPE, shape: Box::new([]), data: Bytes::from_vec(vec![value]) }
    }

    /// A tensor of rank 1.
    pub fn vector<T: Element>(values: Vec<T>) -> Tensor {
        Tensor { dtype: T::DTYPE, shape: Box::new([values.len()]), data: Bytes::from_vec(values) }
    }

    /// A tensor over little-endian packed bytes, shared. `Bool` bytes other than 0 and 1 become 1.
    pub fn from_bytes(dtype: DType, shape: &[usize], data: Bytes) -> Result<Tensor, TensorError> {
        let too_large = || TensorError::TooLarge { dtype, shape: shape.to_vec() };
        let expected = element_count(shape).and_then(|n| dtype.bytes_for(n)).ok_or_else(too_large)?;
        if data.len() != expected {
            let found = data.len();
            return Err(TensorError::WrongLength { dtype, shape: shape.to_vec(), expected, found });
        }
        // Owned memory for booleans: their validity is checked once and must not change under a map.
        let data = if dtype == DType::Bool { Bytes::from_vec(copy_cast::<bool>(&data)) } else { data };
        Ok(Tensor { dtype, shape: shape.into(), data })
    }

    /// All elements zero (for the kinds without a zero, the code 0).
    pub fn zeros(dtype: DType, shape: &[usize]) -> Result<Tensor, TensorError> {
        let too_large = || TensorError::TooLarge { dtype, shape: shape.to_vec() };
        let len = element_count(shape).and_then(|n| dtype.bytes_for(n)).ok_or_else(too_large)?;
        Tensor::from_bytes(dtype, shape, Bytes::from_vec(vec![0u8; len]))
    }

    /// A tensor from one number per element, each rounded once to `dtype` (nearest, ties to even; integers
    /// saturate). For `Bool`, everything but zero is true.
    pub fn from_f64s(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, TensorError> {
        fn map<T: Element>(values: &[f64], convert: impl Fn(f64) -> T) -> Bytes {
            Bytes::from_vec(values.iter().map(|&value| convert(value)).collect::<Vec<T>>())
        }
        let data = match dtype {
            DType::F64 => map(values, |value| value),
            DType::F32 => map(values, |value| value as f32),
            DType::F16 => map(values, f16::from_f64),
            DType::BF16 => map(values, bf16_from_f64),
            DType::I8 => map(values, |value| value.round_ties_even() as i8),
            DType::I16 => map(values, |value| value.round_ties_even() as i16),
            DType::I32 => map(values, |value| value.round_ties_even() as i32),
            DType::I64 => map(values, |value| value.round_ties_even() as i64),
            DType::U8 => map(values, |value| value.round_ties_even() as u8),
            DType::U16 => map(values, |value| value.round_ties_even() as u16),
            DType::U32 => map(values, |value| value.round_ties_even() as u32),
            DType::U64 => map(values, |value| value.round_ties_even() as u64),
            DType::Bool => map(values, |value| value != 0.0),
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => {
                map(values, |value| small_float::encode(dtype, value, true))
            }
            DType::F4E2M1 => {
                let codes: Vec<u8> =
                    values.iter().map(|&value| small_float::encode(dtype, value, true)).collect();
                Bytes::from_vec(pack(dtype, &codes))
            }
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let (low, high) = dtype.int_range().unwrap_or((0, 0));
                let mask = (1u8 << dtype.bits()) - 1;
                let codes: Vec<u8> = values
                    .iter()
                    .map(|&value| (value.round_ties_even().clamp(low as f64, high as f64) as i8 as u8) & mask)
                    .collect();
                Bytes::from_vec(pack(dtype, &codes))
            }
        };
        Tensor::from_bytes(dtype, shape, data)
    }

    /// A tensor from one code per byte, packing the kinds below a byte. Codes are masked to their width.
    pub fn from_codes(dtype: DType, shape: &[usize], codes: Vec<u8>) -> Result<Tensor, TensorError> {
        let data = if dtype.is_sub_byte() { pack(dtype, &codes) } else { codes };
        Tensor::from_bytes(dtype, shape, Bytes::from_vec(data))
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        // The constructors refused shapes whose count overflows; a zero may hide an overflow of the others.
        element_count(&self.shape).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packed little-endian memory.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }

    /// The same elements under another shape with the same count.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(self.dtype, shape, self.data.clone())
    }

    /// The elements as a slice; copied only if the memory is not aligned for `T` (a mapped weight).
    pub fn elements<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        if T::DTYPE != self.dtype {
            return Err(TensorError::WrongType { expected: T::DTYPE, found: self.dtype });
        }
        Ok(match try_cast(&self.data) {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned(copy_cast(&self.data)),
        })
    }

    /// One raw code per byte for the kinds of at most 8 bits (the kinds below a byte are unpacked, signed
    /// ones not yet sign-extended).
    pub fn codes(&self) -> Result<Cow<'_, [u8]>, TensorError> {
        match self.dtype.bits() {
            8 => Ok(Cow::Borrowed(&self.data)),
            2 | 4 => Ok(Cow::Owned(unpack(self.dtype, &self.data, self.len()))),
            _ => Err(TensorError::WrongType { expected: DType::U8, found: self.dtype }),
        }
    }

    /// Every element as `f64`. Exact but for 64-bit integers beyond 2^53.
    pub fn to_f64s(&self) -> Vec<f64> {
        fn map<T: Element>(tensor: &Tensor, convert: impl Fn(T) -> f64) -> Vec<f64> {
            match try_cast::<T>(&tensor.data) {
                Some(elements) => elements.iter().map(|&value| convert(value)).collect(),
                None => copy_cast::<T>(&tensor.data).into_iter().map(convert).collect(),
            }
        }
        match self.dtype {
            DType::F64 => map(self, |value: f64| value),
            DType::F32 => map(self, |value: f32| f64::from(value)),
            DType::F16 => map(self, |value: f16| value.to_f64()),
            DType::BF16 => map(self, |value: bf16| value.to_f64()),
            DType::I64 => map(self, |value: i64| value as f64),
            DType::U64 => map(self, |value: u64| value as f64),
            DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => {
                // `codes` cannot fail for kinds of at most 8 bits.
                let codes = self.codes().unwrap_or_default();
                codes.iter().map(|&code| f64::from(small_float::decode(self.dtype, code))).collect()
            }
            DType::I8
            | DType::I16
            | DType::I32
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::Bool
            | DType::I4
            | DType::U4
            | DType::I2
            | DType::U2 => self.to_i64s().into_iter().map(|value| value as f64).collect(),
        }
    }

    /// Every element as `i64`: floats are truncated towards zero, `u64` beyond `i64::MAX` wraps.
    pub fn to_i64s(&self) -> Vec<i64> {
        fn map<T: Element>(tensor: &Tensor, convert: impl Fn(T) -> i64) -> Vec<i64> {
            match try_cast::<T>(&tensor.data) {
                Some(elements) => elements.iter().map(|&value| convert(value)).collect(),
                None => copy_cast::<T>(&tensor.data).into_iter().map(convert).collect(),
            }
        }
        match self.dtype {
            DType::I8 => map(self, |value: i8| i64::from(value)),
            DType::I16 => map(self, |value: i16| i64::from(value)),
            DType::I32 => map(self, |value: i32| i64::from(value)),
            DType::I64 => map(self, |value: i64| value),
            DType::U8 => map(self, |value: u8| i64::from(value)),
            DType::U16 => map(self, |value: u16| i64::from(value)),
            DType::U32 => map(self, |value: u32| i64::from(value)),
            DType::U64 => map(self, |value: u64| value as i64),
            DType::Bool => map(self, |value: bool| i64::from(value)),
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let codes = self.codes().unwrap_or_default();
                codes.iter().map(|&code| sign_extend(self.dtype, code)).collect()
            }
            DType::F64
            | DType::F32
            | DType::F16
            | DType::BF16
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => self.to_f64s().into_iter().map(|value| value as i64).collect(),
        }
    }
}

/// `bf16::from_f64` rounds through single precision in some versions; rounding to odd first makes the
/// second rounding exact.
fn bf16_from_f64(value: f64) -> bf16 {
    let nearest = value as f32;
    if f64::from(nearest) == value || !nearest.is_finite() {
        return bf16::from_f32(nearest);
    }
    // Truncate towards zero, then set the last bit: the classic double-rounding remedy.
    let towards_zero =
        if f64::from(nearest).abs() > value.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest };
    bf16::from_f32(f32::from_bits(towards_zero.to_bits() | 1))
}

/// The value of an unpacked integer code of fewer than 8 bits.
fn sign_extend(dtype: DType, code: u8) -> i64 {
    if !dtype.is_signed_int() {
        return i64::from(code);
    }
    let shift = 8 - dtype.bits();
    i64::from(((code << shift) as i8) >> shift)
}

/// Packs one code per byte into the layout of a kind below a byte.
fn pack(dtype: DType, codes: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    let mask = (1u16 << bits) as u8 - 1;
    let pack_byte = |chunk: &[u8]| {
        chunk.iter().enumerate().fold(0u8, |byte, (place, &code)| byte | ((code & mask) << (place * bits)))
    };
    codes.chunks(8 / bits).map(pack_byte).collect()
}

/// The first `n` codes of packed bytes.
fn unpack(dtype: DType, bytes: &[u8], n: usize) -> Vec<u8> {
    let bits = dtype.bits();
    let mask = (1u8 << bits) - 1;
    let per_byte = 8 / bits;
    (0..n).map(|idx| (bytes[idx / per_byte] >> (idx % per_byte * bits)) & mask).collect()
}

impl PartialEq for Tensor {
    /// Same type, shape and bits (so NaN equals the same NaN).
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.data[..] == other.data[..]
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= SHOWN {
            write!(f, "{:?}", self.to_f64s())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn construction_checks_lengths_and_overflow() {
        assert!(Tensor::new(&[2, 3], vec![0f32; 6]).is_ok());
        assert!(matches!(Tensor::new(&[2, 3], vec![0f32; 5]), Err(TensorError::WrongLength { .. })));
        let huge = [usize::MAX, 2];
        assert!(matches!(Tensor::zeros(DType::U8, &huge), Err(TensorError::TooLarge { .. })));
        assert!(Tensor::zeros(DType::F32, &[usize::MAX, 0]).is_ok());
    }

    #[test]
    fn sub_byte_kinds_pack_low_bits_first() {
        let tensor = Tensor::from_f64s(DType::I4, &[3], &[-8.0, 7.0, -1.0]).unwrap();
        assert_eq!(&tensor.bytes()[..], &[0x78, 0x0f]);
        assert_eq!(tensor.to_i64s(), [-8, 7, -1]);
        let tensor = Tensor::from_f64s(DType::U2, &[5], &[0.0, 1.0, 2.0, 3.0, 9.0]).unwrap();
        assert_eq!(&tensor.bytes()[..], &[0b11_10_01_00, 0b11]);
        assert_eq!(tensor.to_f64s(), [0.0, 1.0, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn unaligned_memory_is_copied_to_slices() {
        let mut bytes = vec![0xaau8];
        bytes.extend(1.5f32.to_le_bytes());
        bytes.extend((-2.0f32).to_le_bytes());
        let data = Bytes::from_vec(bytes).slice(1..9).unwrap();
        let tensor = Tensor::from_bytes(DType::F32, &[2], data).unwrap();
        assert_eq!(&*tensor.elements::<f32>().unwrap(), &[1.5, -2.0]);
        assert!(tensor.elements::<i32>().is_err());
    }

    #[test]
    fn bool_bytes_are_made_valid() {
        let tensor = Tensor::from_bytes(DType::Bool, &[3], Bytes::from_vec(vec![0u8, 1, 7])).unwrap();
        assert_eq!(&*tensor.elements::<bool>().unwrap(), &[false, true, true]);
    }

    #[test]
    fn bf16_rounds_once() {
        // Just above the midpoint of two neighbours: rounding through f32 would land on the tie.
        let value = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(bf16_from_f64(value).to_f64(), 1.0 + 2f64.powi(-7));
        assert_eq!(bf16_from_f64(1.0 + 2f64.powi(-8)).to_f64(), 1.0);
    }
}
