//! Inference: matrix products and small linear algebra.

use planish_tensor::{DType, Dim, Shape};

use crate::einsum::{Equation, Label};
use crate::{Det, Einsum, Gemm, Inverse, MatMul};

use super::checks::{common_type, differ};
use super::{InferError, InferResult, Inference, Inferred};

pub(super) fn matmul(_op: &MatMul, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 2, is_product_type)?;
    let (Some(a), Some(b)) = (cx.shape(0)?, cx.shape(1)?) else {
        return Ok(vec![Inferred::maybe_ranked(dtype, None)]);
    };
    Ok(vec![Inferred::tensor(dtype, matmul_shape(cx, a, b)?)])
}

/// The shape of a matrix product by numpy's rules: vectors are a row on the left and a column on the right,
/// the axes before the last two broadcast.
pub(super) fn matmul_shape(cx: &Inference<'_>, a: &Shape, b: &Shape) -> Result<Shape, InferError> {
    let ([a_batch @ .., a_depth], [.., b_last]) = (a.dims(), b.dims()) else {
        return Err(cx.bad_shape(format!("a scalar has no matrix product: {a} by {b}")));
    };
    let (a_batch, rows) = match a_batch {
        [batch @ .., rows] => (batch, Some(rows)),
        [] => (a_batch, None),
    };
    let (b_batch, b_depth, columns) = match b.dims() {
        [batch @ .., depth, columns] => (batch, depth, Some(columns)),
        _ => (&[][..], b_last, None),
    };
    if differ(a_depth, b_depth) {
        return Err(cx.bad_shape(format!("the inner dimensions of {a} by {b} differ")));
    }
    let batch = Shape::broadcast(&a_batch.iter().collect(), &b_batch.iter().collect())
        .map_err(|error| cx.bad_shape(error.to_string()))?;
    Ok(batch.iter().chain(rows).chain(columns).collect())
}

pub(super) fn gemm(op: &Gemm, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 3, is_product_type)?;
    let (a, b) = (cx.shape_of_rank(0, 2)?, cx.shape_of_rank(1, 2)?);
    let (a_rows, a_depth) = if op.trans_a { (1, 0) } else { (0, 1) };
    let (b_depth, b_columns) = if op.trans_b { (1, 0) } else { (0, 1) };
    if let (Some(a), Some(b)) = (a, b)
        && differ(&a[a_depth], &b[b_depth])
    {
        return Err(cx.bad_shape(format!("the inner dimensions of {a} by {b} differ")));
    }
    let rows = a.map(|a| a[a_rows].clone()).unwrap_or_else(|| cx.fresh_dim("rows"));
    let columns = b.map(|b| b[b_columns].clone()).unwrap_or_else(|| cx.fresh_dim("columns"));
    let out: Shape = [rows, columns].into_iter().collect();
    if let Some(c) = cx.optional_tensor(2)?.and_then(|ty| ty.shape.as_ref()) {
        let fits = c.rank() <= 2
            && c.iter().rev().zip(out.iter().rev()).all(|(from, to)| *from == Dim::ONE || !differ(from, to));
        if !fits {
            return Err(cx.bad_shape(format!("{c} does not broadcast to the product's shape {out}")));
        }
    }
    Ok(vec![Inferred::tensor(dtype, out)])
}

pub(super) fn einsum(op: &Einsum, cx: &mut Inference<'_>) -> InferResult {
    let equation = Equation::parse(&op.equation).map_err(|error| cx.bad_attribute(error.to_string()))?;
    if equation.n_inputs() != cx.n_inputs() {
        return Err(cx.bad_attribute(format!(
            "`{}` has {} terms for {} inputs",
            op.equation,
            equation.n_inputs(),
            cx.n_inputs()
        )));
    }
    let dtype = common_type(cx, cx.n_inputs(), |dtype| dtype.is_wide_float() || dtype.is_whole_int())?;
    let mut shapes = Vec::new();
    for idx in 0..cx.n_inputs() {
        match cx.shape(idx)? {
            Some(shape) => shapes.push(shape),
            None => return Ok(vec![Inferred::maybe_ranked(dtype, None)]),
        }
    }
    let ranks: Vec<usize> = shapes.iter().map(|shape| shape.rank()).collect();
    let labels = equation.label(&ranks).map_err(|error| cx.bad_shape(error.to_string()))?;
    let size = |label: &Label| {
        let mut size = Dim::ONE;
        for (shape, labels) in shapes.iter().zip(&labels.inputs) {
            let mut own: Option<&Dim> = None;
            for dim in labels.iter().zip(shape.iter()).filter(|(other, _)| *other == label).map(|pair| pair.1)
            {
                if own.is_some_and(|first| differ(first, dim)) {
                    return Err(
                        cx.bad_shape(format!("`{label:?}` is repeated over different sizes in {shape}"))
                    );
                }
                own = own.filter(|first| first.as_const().is_some()).or(Some(dim));
            }
            let own = own.unwrap_or(&Dim::ONE);
            if size != Dim::ONE && *own != Dim::ONE && differ(&size, own) {
                return Err(
                    cx.bad_shape(format!("`{label:?}` has sizes {size} and {own} in `{}`", op.equation))
                );
            }
            size = size.broadcast(own);
        }
        Ok(size)
    };
    // Labels that are summed away are checked too.
    for label in labels.inputs.iter().flatten() {
        size(label)?;
    }
    let shape: Shape = labels.output.iter().map(size).collect::<Result<Vec<Dim>, InferError>>()?.into();
    Ok(vec![Inferred::tensor(dtype, shape)])
}

pub(super) fn det(_op: &Det, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    let batch = square_matrices(cx)?.map(|shape| shape.iter().take(shape.rank() - 2).collect());
    Ok(vec![Inferred::maybe_ranked(dtype, batch)])
}

pub(super) fn inverse(_op: &Inverse, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    Ok(vec![Inferred::maybe_ranked(dtype, square_matrices(cx)?.cloned())])
}

/// The shape of input 0, whose last two axes must be equal.
fn square_matrices<'a>(cx: &Inference<'a>) -> Result<Option<&'a Shape>, InferError> {
    match cx.shape(0)? {
        Some(shape) => match shape.dims() {
            [.., rows, columns] if !differ(rows, columns) => Ok(Some(shape)),
            _ => {
                Err(cx.bad_shape(format!("the last two axes must be a square matrix, the shape is {shape}")))
            }
        },
        None => Ok(None),
    }
}

fn is_product_type(dtype: DType) -> bool {
    dtype.is_wide_float() || matches!(dtype, DType::I32 | DType::I64 | DType::U32 | DType::U64)
}

#[cfg(test)]
mod tests;
