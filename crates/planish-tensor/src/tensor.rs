//! `Tensor`: an element type, a shape and shared memory, always dense and row-major.

mod numbers;

use std::borrow::Cow;
use std::fmt;

use crate::element::{copy_cast, try_cast};
use crate::{Bytes, DType, Element, memory};

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
    /// The shape's bytes do not fit into the address space, or not into the memory that there is.
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
        let expected = dtype.bytes_of(shape).ok_or_else(too_large)?;
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
        let len = dtype.bytes_of(shape).ok_or_else(too_large)?;
        let zeros = memory::zeroed(len).map_err(|_| too_large())?;
        Tensor::from_bytes(dtype, shape, Bytes::from_vec(zeros))
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
        // The constructors refused shapes whose count overflows; a plain product could overflow before it
        // meets the zero of a shape without elements.
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
}

impl PartialEq for Tensor {
    /// Same type, shape and bits (so NaN equals the same NaN). The unused bits of the last byte of a packed
    /// kind do not count.
    fn eq(&self, other: &Tensor) -> bool {
        if self.dtype != other.dtype || self.shape != other.shape {
            return false;
        }
        let used_bits = self.len() % (8 / self.dtype.bits().min(8)) * self.dtype.bits();
        match (self.data.split_last(), other.data.split_last()) {
            (Some((last, rest)), Some((other_last, other_rest))) if used_bits > 0 => {
                (last ^ other_last) << (8 - used_bits) == 0 && rest == other_rest
            }
            _ => self.data[..] == other.data[..],
        }
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
    fn the_padding_of_a_packed_kind_does_not_count() {
        let packed =
            |bytes: &[u8]| Tensor::from_bytes(DType::I4, &[3], Bytes::from_vec(bytes.to_vec())).unwrap();
        assert_eq!(packed(&[0x21, 0x03]), packed(&[0x21, 0xf3]));
        assert_ne!(packed(&[0x21, 0x03]), packed(&[0x21, 0x04]));
        assert_ne!(packed(&[0x21, 0x03]), packed(&[0x22, 0x03]));
        assert_ne!(Tensor::vector(vec![1u8]), Tensor::vector(vec![2u8]));
    }

    #[test]
    fn the_count_of_a_shape_without_elements_does_not_overflow() {
        let tensor = Tensor::zeros(DType::F32, &[usize::MAX, 2, 0]).unwrap();
        assert_eq!(tensor.len(), 0);
    }
}
