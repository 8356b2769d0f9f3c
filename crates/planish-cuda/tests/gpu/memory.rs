//! Values as bytes where an operand says that they lie, and back.

use planish_kernel::{Layout, Operand};
use planish_tensor::{Bytes, DType, Tensor};

/// A repeatable stream of numbers (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Reals between -1 and 1, 0 or 1 of integers (indices that are valid nearly everywhere), booleans.
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let n = dims.iter().product();
        let values: Vec<f64> = (0..n)
            .map(|_| match dtype {
                DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
                    (self.next() >> 40) as f64 / f64::from(1u32 << 23) - 1.0
                }
                _ => (self.next() >> 33 & 1) as f64,
            })
            .collect();
        Tensor::from_f64s(dtype, dims, &values).unwrap()
    }
}

/// What lies between the elements before a run and must lie there after. As a float of any width it is NaN, so
/// that reading it shows too.
pub(crate) const GAP: u8 = 0xff;

/// The operand inside of a larger one: `gap` elements after each run of the innermost dimension.
pub(crate) fn widened(operand: &Operand, layout: Layout, gap: usize) -> Operand {
    let mut larger = operand.dims.clone();
    if let Some(&innermost) = layout.order(larger.len()).last() {
        larger[innermost] += gap;
    }
    Operand { strides: layout.strides(&larger), ..operand.clone() }
}

/// A tensor's elements in the memory of an operand.
pub(crate) fn lay_out(operand: &Operand, tensor: &Tensor) -> Vec<u8> {
    let size = operand.dtype.bytes_for(1).unwrap();
    let mut bytes = vec![GAP; operand.span_bytes()];
    let from = tensor.bytes();
    for (flat, offset) in offsets(operand).into_iter().enumerate() {
        bytes[offset * size..(offset + 1) * size].copy_from_slice(&from[flat * size..(flat + 1) * size]);
    }
    bytes
}

/// The way back; an error where a gap was written to.
pub(crate) fn collect(operand: &Operand, bytes: &[u8]) -> Result<Tensor, String> {
    let size = operand.dtype.bytes_for(1).unwrap();
    let mut written = vec![false; bytes.len()];
    let mut out = Vec::with_capacity(operand.len() * size);
    for offset in offsets(operand) {
        let range = offset * size..(offset + 1) * size;
        written[range.clone()].fill(true);
        out.extend_from_slice(&bytes[range]);
    }
    if let Some(at) = (0..bytes.len()).find(|at| !written[*at] && bytes[*at] != GAP) {
        return Err(format!("byte {at}, which is no part of the output, was written to"));
    }
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(out)).map_err(|error| error.to_string())
}

/// Where each element lies, in row-major order of the sizes.
fn offsets(operand: &Operand) -> Vec<usize> {
    let mut index = vec![0usize; operand.rank()];
    let mut offsets = Vec::with_capacity(operand.len());
    for _ in 0..operand.len() {
        offsets.push(index.iter().zip(&operand.strides).map(|(place, stride)| place * stride).sum());
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < operand.dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    offsets
}
