//! An operand of any strides as a plain tensor.

use planish_kernel::{Layout, Operand};
use planish_tensor::{Bytes, Tensor};

use crate::error::{RunError, RunErrorKind};

/// Elements of `SIZE` bytes in plain order. The self-check does this to every value of a model.
fn gathered<const SIZE: usize>(operand: &Operand, bytes: &[u8]) -> Vec<u8> {
    let (elements, _) = bytes.as_chunks::<SIZE>();
    let (Some((&n_inner, dims)), Some((&stride, strides))) =
        (operand.dims.split_last(), operand.strides.split_last())
    else {
        return bytes.to_vec();
    };
    let mut gathered: Vec<[u8; SIZE]> = Vec::with_capacity(operand.len());
    let mut index = vec![0usize; dims.len()];
    for _ in 0..dims.iter().product() {
        let first: usize = index.iter().zip(strides).map(|(place, stride)| place * stride).sum();
        gathered.extend((0..n_inner).map(|place| elements[first + place * stride]));
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < dims[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    gathered.into_flattened()
}

/// The elements of an operand, gathered from the bytes that it spans.
pub(crate) fn plain(operand: &Operand, bytes: &[u8]) -> Result<Tensor, RunError> {
    let damaged = |detail: String| RunError::new(RunErrorKind::Failed, detail);
    let gathered = if operand.is_dense(Layout::Plain) {
        bytes.to_vec()
    } else {
        let Some(size) = operand.dtype.bytes_for(1).filter(|_| !operand.dtype.is_sub_byte()) else {
            return Err(damaged(format!("{} cannot be gathered", operand.dtype.name())));
        };
        match size {
            4 => gathered::<4>(operand, bytes),
            8 => gathered::<8>(operand, bytes),
            2 => gathered::<2>(operand, bytes),
            _ => gathered::<1>(operand, bytes),
        }
    };
    Tensor::from_bytes(operand.dtype, &operand.dims, Bytes::from_vec(gathered))
        .map_err(|error| damaged(error.to_string()))
}
