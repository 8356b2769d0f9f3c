//! Tensors from numbers and back: `f64`, `i64` and raw codes, for every element type.

use std::borrow::Cow;

use half::{bf16, f16};

use super::{Tensor, TensorError};
use crate::element::{copy_cast, try_cast};
use crate::rounding::{bf16_from_f64, f16_from_f64, f64_to_odd};
use crate::{Bytes, DType, Element, small_float};

/// One element per number.
fn bytes_of<N: Copy, T: Element>(numbers: &[N], convert: impl Fn(N) -> T) -> Bytes {
    Bytes::from_vec(numbers.iter().map(|&number| convert(number)).collect::<Vec<T>>())
}

/// One number per element.
fn numbers_of<T: Element, N>(tensor: &Tensor, convert: impl Fn(T) -> N) -> Vec<N> {
    match try_cast::<T>(&tensor.data) {
        Some(elements) => elements.iter().map(|&value| convert(value)).collect(),
        None => copy_cast::<T>(&tensor.data).into_iter().map(convert).collect(),
    }
}

impl Tensor {
    /// A tensor from one number per element, each rounded once to `dtype` (nearest, ties to even; integers
    /// and the kinds of at most 8 bits saturate). For `Bool`, everything but zero is true.
    pub fn from_f64s(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, TensorError> {
        let data = match dtype {
            DType::F64 => bytes_of(values, |value| value),
            DType::F32 => bytes_of(values, |value| value as f32),
            DType::F16 => bytes_of(values, f16_from_f64),
            DType::BF16 => bytes_of(values, bf16_from_f64),
            DType::I8 => bytes_of(values, |value| value.round_ties_even() as i8),
            DType::I16 => bytes_of(values, |value| value.round_ties_even() as i16),
            DType::I32 => bytes_of(values, |value| value.round_ties_even() as i32),
            DType::I64 => bytes_of(values, |value| value.round_ties_even() as i64),
            DType::U8 => bytes_of(values, |value| value.round_ties_even() as u8),
            DType::U16 => bytes_of(values, |value| value.round_ties_even() as u16),
            DType::U32 => bytes_of(values, |value| value.round_ties_even() as u32),
            DType::U64 => bytes_of(values, |value| value.round_ties_even() as u64),
            DType::Bool => bytes_of(values, |value| value != 0.0),
            DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => {
                let codes = values.iter().map(|&value| small_float::encode(dtype, value, true)).collect();
                return Tensor::from_codes(dtype, shape, codes);
            }
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let (low, high) = dtype.int_range().unwrap_or((0, 0));
                let code = |&value: &f64| value.round_ties_even().clamp(low as f64, high as f64) as i8 as u8;
                return Tensor::from_codes(dtype, shape, values.iter().map(code).collect());
            }
        };
        Tensor::from_bytes(dtype, shape, data)
    }

    /// A tensor from one integer per element: integer kinds keep the low bits (two's complement), floats
    /// are rounded once (the kinds of at most 8 bits saturate). For `Bool`, everything but zero is true.
    pub fn from_i64s(dtype: DType, shape: &[usize], values: &[i64]) -> Result<Tensor, TensorError> {
        let data = match dtype {
            DType::I8 | DType::U8 => bytes_of(values, |value| value as u8),
            DType::I16 | DType::U16 => bytes_of(values, |value| value as u16),
            DType::I32 | DType::U32 => bytes_of(values, |value| value as u32),
            DType::I64 | DType::U64 => bytes_of(values, |value| value),
            DType::Bool => bytes_of(values, |value| value != 0),
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                return Tensor::from_codes(dtype, shape, values.iter().map(|&value| value as u8).collect());
            }
            DType::F64 => bytes_of(values, |value| value as f64),
            DType::F32
            | DType::F16
            | DType::BF16
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => {
                let values: Vec<f64> = values.iter().map(|&value| f64_to_odd(value.into())).collect();
                return Tensor::from_f64s(dtype, shape, &values);
            }
        };
        Tensor::from_bytes(dtype, shape, data)
    }

    /// A tensor of a kind of at most 8 bits from one code per byte, packing the kinds below a byte. Codes
    /// are masked to their width.
    pub fn from_codes(dtype: DType, shape: &[usize], codes: Vec<u8>) -> Result<Tensor, TensorError> {
        let data = match dtype.bits() {
            8 => codes,
            2 | 4 => {
                // Packing hides a count that differs by less than a byte's worth, so it is checked first.
                let n = super::element_count(shape);
                let too_large = || TensorError::TooLarge { dtype, shape: shape.to_vec() };
                let (expected, found) = (n.ok_or_else(too_large)?, codes.len());
                if expected != found {
                    return Err(TensorError::WrongLength { dtype, shape: shape.to_vec(), expected, found });
                }
                pack(dtype, &codes)
            }
            _ => return Err(TensorError::WrongType { expected: DType::U8, found: dtype }),
        };
        Tensor::from_bytes(dtype, shape, Bytes::from_vec(data))
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

    /// Every element as `f64`. Exact but for 64-bit integers beyond 2^53, which are rounded to nearest.
    pub fn to_f64s(&self) -> Vec<f64> {
        match self.dtype {
            DType::F64 => numbers_of(self, |value: f64| value),
            DType::F32 => numbers_of(self, |value: f32| f64::from(value)),
            DType::F16 => numbers_of(self, |value: f16| value.to_f64()),
            DType::BF16 => numbers_of(self, |value: bf16| value.to_f64()),
            DType::I64 => numbers_of(self, |value: i64| value as f64),
            DType::U64 => numbers_of(self, |value: u64| value as f64),
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

    /// Every element as `i64`: floats are truncated towards zero and saturate (NaN gives 0), `u64` beyond
    /// `i64::MAX` wraps.
    pub fn to_i64s(&self) -> Vec<i64> {
        match self.dtype {
            DType::I8 => numbers_of(self, |value: i8| i64::from(value)),
            DType::I16 => numbers_of(self, |value: i16| i64::from(value)),
            DType::I32 => numbers_of(self, |value: i32| i64::from(value)),
            DType::I64 => numbers_of(self, |value: i64| value),
            DType::U8 => numbers_of(self, |value: u8| i64::from(value)),
            DType::U16 => numbers_of(self, |value: u16| i64::from(value)),
            DType::U32 => numbers_of(self, |value: u32| i64::from(value)),
            DType::U64 => numbers_of(self, |value: u64| value as i64),
            DType::Bool => numbers_of(self, |value: bool| i64::from(value)),
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
    let mask = (1u8 << bits) - 1;
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn integers_keep_their_low_bits() {
        let values = [200, -1, 1 << 40, i64::MIN];
        for (dtype, expected) in [
            (DType::I8, [-56, -1, 0, 0]),
            (DType::U8, [200, 255, 0, 0]),
            (DType::U16, [200, 65535, 0, 0]),
            (DType::I64, values),
            (DType::U4, [8, 15, 0, 0]),
            (DType::I4, [-8, -1, 0, 0]),
            (DType::I2, [0, -1, 0, 0]),
            (DType::Bool, [1, 1, 1, 1]),
        ] {
            let tensor = Tensor::from_i64s(dtype, &[4], &values).unwrap();
            assert_eq!((tensor.dtype(), tensor.to_i64s()), (dtype, expected.to_vec()));
        }
    }

    #[test]
    fn integers_round_once_to_floats() {
        // 2^60 + 2^52 is the midpoint of two bf16 numbers, and one more is above it. Rounding through f64
        // would land on the tie, which goes down to even.
        let above = (1i64 << 60) + (1 << 52) + 1;
        let tensor = Tensor::from_i64s(DType::BF16, &[2], &[above, -above]).unwrap();
        let rounded = 2f64.powi(60) + 2f64.powi(53);
        assert_eq!(tensor.to_f64s(), [rounded, -rounded]);
        let tensor = Tensor::from_i64s(DType::F32, &[1], &[(1 << 60) + (1 << 36) + 1]).unwrap();
        assert_eq!(tensor.to_f64s(), [2f64.powi(60) + 2f64.powi(37)]);
    }

    #[test]
    fn every_type_takes_small_numbers_there_and_back() {
        for dtype in DType::ALL {
            let tensor = Tensor::from_f64s(dtype, &[2, 1], &[1.0, 1.0]).unwrap();
            assert_eq!(tensor, Tensor::from_i64s(dtype, &[2, 1], &[1, 1]).unwrap(), "{dtype}");
            assert_eq!((tensor.to_f64s()[0], tensor.to_i64s()[1]), (1.0, 1), "{dtype}");
        }
    }

    #[test]
    fn codes_are_counted_and_only_for_small_kinds() {
        assert!(matches!(
            Tensor::from_codes(DType::U4, &[3], vec![1; 4]),
            Err(TensorError::WrongLength { expected: 3, found: 4, .. })
        ));
        assert!(Tensor::from_codes(DType::F32, &[1], vec![0; 4]).is_err());
        assert!(Tensor::scalar(1i16).codes().is_err());
    }
}
