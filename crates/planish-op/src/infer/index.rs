//! Inference: gathering, scattering, searching.

mod gather;
mod scatter;
mod search;
#[cfg(test)]
mod tests;

pub(super) use gather::{compress, gather, gather_elements, gather_nd, one_hot};
pub(super) use scatter::{scatter_elements, scatter_nd, tensor_scatter};
pub(super) use search::{non_zero, tfidf_vectorizer, topk, unique};

use super::{InferError, Inference};

/// Refuses indices that are not integers.
fn int_indices(cx: &Inference<'_>, idx: usize) -> Result<(), InferError> {
    let dtype = cx.dtype(idx)?;
    if dtype.is_int() { Ok(()) } else { Err(cx.bad_type(format!("indices must be integers, not {dtype}"))) }
}

/// A known index counted from the front; `None` if it is outside.
fn place(index: i64, dim: usize) -> Option<usize> {
    let from_front = i128::from(index) + if index < 0 { dim as i128 } else { 0 };
    usize::try_from(from_front).ok().filter(|&place| place < dim)
}
