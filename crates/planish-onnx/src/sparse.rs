//! Sparse tensors and their dense form.

use crate::error::{OnnxError, OnnxErrorKind, Result};
use crate::tensor::{element_count, packed_len};
use crate::{DataType, Tensor};

/// A tensor of which only some elements are stored: `SparseTensorProto`. The others are zero.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseTensor<'a> {
    /// The stored elements, shape `[NNZ]`. Their name is that of the sparse tensor.
    pub values: Tensor<'a>,
    /// Where they belong: shape `[NNZ]` (positions in row-major order) or `[NNZ, rank]` (coordinates).
    pub indices: Tensor<'a>,
    /// Dimensions of the dense tensor.
    pub dims: Vec<i64>,
}

/// A dense form larger than this is refused: it could not stand in an ONNX file itself, and a few bytes of
/// sparse tensor can ask for any size.
const MAX_DENSE_BYTES: usize = 2 << 30;

impl SparseTensor<'_> {
    /// Bytes of the dense form, so that a caller can refuse a size before asking for it.
    pub fn dense_byte_len(&self) -> Result<usize> {
        let count = element_count(&self.dims).map_err(|error| self.locate(error))?;
        packed_len(count, self.values.data_type).map_err(|error| self.locate(error))
    }

    /// The dense tensor's elements, packed little-endian as [`Tensor::to_le_bytes`] gives them.
    pub fn to_dense_le_bytes(&self) -> Result<Vec<u8>> {
        let length = self.dense_byte_len()?;
        let too_large = || {
            let what = format!("the dense form takes {length} bytes, too many to make");
            self.locate(OnnxError::new(OnnxErrorKind::BadDims, what))
        };
        if length > MAX_DENSE_BYTES {
            return Err(too_large());
        }
        let values = self.values.to_le_bytes()?;
        let positions = self.positions()?;
        let mut dense = Vec::new();
        dense.try_reserve_exact(length).map_err(|_| too_large())?;
        dense.resize(length, 0);
        let bits = self.values.data_type.bits().unwrap_or_default();
        for (nth, &position) in positions.iter().enumerate() {
            if bits >= 8 {
                let width = bits / 8;
                // In range: positions lie below the element count, and there is one value for each.
                dense[position * width..][..width].copy_from_slice(&values[nth * width..][..width]);
            } else {
                let per_byte = 8 / bits;
                let mask = (1u8 << bits) - 1;
                let value = values[nth / per_byte] >> (nth % per_byte * bits) & mask;
                dense[position / per_byte] |= value << (position % per_byte * bits);
            }
        }
        Ok(dense)
    }

    /// Row-major positions of the stored elements: ascending, distinct and below the element count.
    fn positions(&self) -> Result<Vec<usize>> {
        let bad = |what: String| Err(self.locate(OnnxError::new(OnnxErrorKind::BadSparse, what)));
        let n_values = self.values.element_count()?;
        if self.values.dims.len() != 1 {
            return bad(format!("the values have {} dimensions instead of one", self.values.dims.len()));
        }
        let rank = self.dims.len();
        let is_linear = match self.indices.dims.as_slice() {
            [n] => usize::try_from(*n) == Ok(n_values),
            [n, width] => {
                if usize::try_from(*n) != Ok(n_values) || usize::try_from(*width) != Ok(rank) {
                    return bad(format!(
                        "indices of shape [{n}, {width}] for {n_values} values of rank {rank}"
                    ));
                }
                false
            }
            dims => return bad(format!("the indices have {} dimensions instead of one or two", dims.len())),
        };
        if self.indices.dims.len() == 1 && !is_linear {
            return bad(format!("indices of shape {:?} for {n_values} values", self.indices.dims));
        }
        let indices = self.index_numbers()?;
        // A linear index is a coordinate in one dimension that holds every element.
        let count = element_count(&self.dims).map_err(|error| self.locate(error))?;
        let whole = [i64::try_from(count).unwrap_or(i64::MAX)];
        let dims: &[i64] = if is_linear { &whole } else { &self.dims };
        let mut positions = Vec::with_capacity(n_values);
        for nth in 0..n_values {
            let mut position = 0usize;
            for (axis, &dim) in dims.iter().enumerate() {
                let index = indices[nth * dims.len() + axis];
                if index < 0 || index >= dim {
                    return bad(format!(
                        "index {index} of value {nth} is outside dimension {axis}, of {dim}"
                    ));
                }
                // Cannot overflow: the result stays below the element count, which was checked.
                position = position * dim as usize + index as usize;
            }
            if positions.last().is_some_and(|&last| last >= position) {
                return bad(format!("the index of value {nth} is not above the one before"));
            }
            positions.push(position);
        }
        Ok(positions)
    }

    /// The index tensor's elements. ONNX asks for int64; ONNX Runtime takes the narrower ones too.
    fn index_numbers(&self) -> Result<Vec<i64>> {
        let bytes = self.indices.to_le_bytes()?;
        Ok(match self.indices.data_type {
            DataType::Int64 => bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect(),
            DataType::Int32 => bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
            DataType::Int16 => bytes.as_chunks().0.iter().map(|b| i16::from_le_bytes(*b).into()).collect(),
            DataType::Int8 => bytes.iter().map(|&b| i64::from(b as i8)).collect(),
            other => {
                let what = format!("indices of type {} instead of int64", other.name());
                return Err(self.locate(OnnxError::new(OnnxErrorKind::BadSparse, what)));
            }
        })
    }

    fn locate(&self, error: OnnxError) -> OnnxError {
        error.inside(&format!("sparse tensor {:?}", crate::error::shorten(&self.values.name)))
    }
}
