//! Reference: gathering, scattering, searching.

mod gather;
mod ngram;
mod order;
mod scatter;
mod search;

pub(crate) use gather::{compress, gather, gather_elements, gather_nd, one_hot};
pub(crate) use ngram::tfidf_vectorizer;
pub(crate) use scatter::{scatter_elements, scatter_nd, tensor_scatter};
pub(crate) use search::{non_zero, topk, unique};

use planish_tensor::Tensor;

use crate::movement::reshaped;
use crate::{EvalError, EvalErrorKind, Evaluation};

/// An index counted from the front; `None` if it is outside `dim`.
fn find_place(index: i64, dim: usize) -> Option<usize> {
    let from_front = i128::from(index) + if index < 0 { dim as i128 } else { 0 };
    usize::try_from(from_front).ok().filter(|&place| place < dim)
}

/// An index counted from the front, refused if it is outside `dim`.
fn place(cx: &Evaluation<'_>, index: i64, dim: usize) -> Result<usize, EvalError> {
    find_place(index, dim).ok_or_else(|| {
        cx.error(EvalErrorKind::BadValue, format!("index {index} is outside an axis of size {dim}"))
    })
}

/// A tensor and one of its axes; without an axis, its elements in a row.
fn along(cx: &Evaluation<'_>, data: &Tensor, axis: Option<i64>) -> Result<(Tensor, usize), EvalError> {
    match axis {
        Some(axis) => Ok((data.clone(), cx.axis(axis, data.rank())?)),
        None => Ok((reshaped(cx, data, &[data.len()])?, 0)),
    }
}

/// The elements of an index tensor of any rank.
fn indices(cx: &Evaluation<'_>, tensor: &Tensor) -> Result<Vec<i64>, EvalError> {
    if !tensor.dtype().is_int() {
        let detail = format!("indices must be integers, they are {}", tensor.dtype());
        return Err(cx.error(EvalErrorKind::BadType, detail));
    }
    Ok(tensor.to_i64s())
}

#[cfg(test)]
mod tests;
