//! `MatMulInteger` and `QLinearMatMul`: the shape of numpy's matmul, and parameters per row or column.

use planish_tensor::{DType, Dim, Shape};

use super::{check_scalar, check_zero_type, dtype_of, is_int8, is_single};
use crate::infer::checks::differ;
use crate::infer::matmul::matmul_shape;
use crate::infer::{InferError, InferResult, Inference, Inferred};
use crate::{MatMulInteger, QLinearMatMul};

/// The shape of the product of inputs `a_idx` and `b_idx`; `None` if a rank is unknown.
fn product_shape(cx: &Inference<'_>, a_idx: usize, b_idx: usize) -> Result<Option<Shape>, InferError> {
    let (Some(a), Some(b)) = (cx.shape(a_idx)?, cx.shape(b_idx)?) else { return Ok(None) };
    matmul_shape(cx, a, b).map(Some)
}

/// Which axis of a matrix its parameters may vary along.
#[derive(Clone, Copy)]
enum Lines {
    Rows,
    Columns,
}

/// Refuses a scale or zero point that is neither per tensor nor per line of its matrix.
fn check_parameter(
    cx: &Inference<'_>,
    idx: usize,
    matrix_idx: usize,
    lines: Lines,
) -> Result<(), InferError> {
    let Some(parameter) = cx.optional_tensor(idx)?.and_then(|ty| ty.shape.as_ref()) else { return Ok(()) };
    let Some(matrix) = cx.shape(matrix_idx)? else { return Ok(()) };
    if is_single(parameter) {
        return Ok(());
    }
    // Vectors count as one row or one column.
    let mut dims = matrix.dims().to_vec();
    match (dims.len(), lines) {
        (0, _) => return Err(cx.bad_shape(format!("input {matrix_idx} is a scalar"))),
        (1, Lines::Rows) => dims.insert(0, Dim::ONE),
        (1, Lines::Columns) => dims.push(Dim::ONE),
        _ => {}
    }
    let rank = dims.len();
    let (line_axis, summed_axis, name) = match lines {
        Lines::Rows => (rank - 2, rank - 1, "row"),
        Lines::Columns => (rank - 1, rank - 2, "column"),
    };
    dims[summed_axis] = Dim::ONE;
    let fits = match parameter.dims() {
        [len] => !differ(len, &dims[line_axis]) || *len == 1,
        all if all.len() == rank => all.iter().zip(&dims).all(|(own, dim)| !differ(own, dim) || *own == 1),
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(cx.bad_shape(format!(
        "input {idx} of shape {parameter} is neither per tensor nor per {name} of input {matrix_idx}, {matrix}"
    )))
}

pub(in crate::infer) fn matmul_integer(_op: &MatMulInteger, cx: &mut Inference<'_>) -> InferResult {
    dtype_of(cx, 0, "A", is_int8)?;
    dtype_of(cx, 1, "B", is_int8)?;
    check_zero_type(cx, 2, 0)?;
    check_zero_type(cx, 3, 1)?;
    let shape = product_shape(cx, 0, 1)?;
    check_parameter(cx, 2, 0, Lines::Rows)?;
    check_parameter(cx, 3, 1, Lines::Columns)?;
    Ok(vec![Inferred::maybe_ranked(DType::I32, shape)])
}

pub(in crate::infer) fn qlinear_matmul(_op: &QLinearMatMul, cx: &mut Inference<'_>) -> InferResult {
    let is_operand = |dtype: DType| {
        is_int8(dtype) || (dtype.is_small_float() && dtype.bits() == 8 && dtype != DType::F8E8M0)
    };
    let a = dtype_of(cx, 0, "a", is_operand)?;
    dtype_of(cx, 3, "b", is_operand)?;
    for (idx, name) in [(1, "a_scale"), (4, "b_scale"), (6, "y_scale")] {
        dtype_of(cx, idx, name, DType::is_wide_float)?;
    }
    check_zero_type(cx, 2, 0)?;
    check_zero_type(cx, 5, 3)?;
    let dtype = if cx.has_input(7) { dtype_of(cx, 7, "y_zero_point", is_operand)? } else { a };
    let shape = product_shape(cx, 0, 3)?;
    for (idx, matrix_idx, lines) in
        [(1, 0, Lines::Rows), (2, 0, Lines::Rows), (4, 3, Lines::Columns), (5, 3, Lines::Columns)]
    {
        check_parameter(cx, idx, matrix_idx, lines)?;
    }
    check_scalar(cx, 6, "y_scale")?;
    check_scalar(cx, 7, "y_zero_point")?;
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}
