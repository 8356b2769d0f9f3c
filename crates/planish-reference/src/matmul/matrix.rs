//! Reference: determinants and inverses of batches of square matrices, by elimination with row exchange.

use planish_op::{Det, Inverse};
use planish_tensor::Tensor;

use crate::{EvalError, EvalResult, Evaluation, nd};

pub(crate) fn det(_op: &Det, cx: &Evaluation<'_>) -> EvalResult {
    let (x, batch, n) = matrices(cx)?;
    nd::result_len(cx, batch)?;
    let values = x.to_f64s();
    let out = nd::fill_blocks(nd::count(batch), 1, n.saturating_pow(3), |idx, out| {
        out[0] = determinant(values[idx * n * n..][..n * n].to_vec(), n);
    });
    Ok(vec![Tensor::from_f64s(x.dtype(), batch, &out)?.into()])
}

/// A matrix without an inverse gives NaNs.
pub(crate) fn inverse(_op: &Inverse, cx: &Evaluation<'_>) -> EvalResult {
    let (x, batch, n) = matrices(cx)?;
    if x.is_empty() {
        return Ok(vec![x.clone().into()]);
    }
    let values = x.to_f64s();
    let out = nd::fill_blocks(nd::count(batch), n * n, n.saturating_pow(3), |idx, out| {
        invert(values[idx * n * n..][..n * n].to_vec(), n, out);
    });
    Ok(vec![Tensor::from_f64s(x.dtype(), x.shape(), &out)?.into()])
}

/// Input 0, the axes before the last two, and the size of its matrices.
fn matrices<'a>(cx: &Evaluation<'a>) -> Result<(&'a Tensor, &'a [usize], usize), EvalError> {
    let x = cx.tensor(0)?;
    cx.common_float(&[x])?;
    match x.shape() {
        [batch @ .., rows, columns] if rows == columns => Ok((x, batch, *rows)),
        shape => Err(cx.bad_shape(format!("square matrices are needed, the shape is {shape:?}"))),
    }
}

/// The row at or below `column` with the largest element there, `None` if all are zero.
fn pivot(matrix: &[f64], n: usize, column: usize) -> Option<usize> {
    let size = |row: &usize| matrix[row * n + column].abs();
    (column..n).max_by(|a, b| size(a).total_cmp(&size(b))).filter(|row| matrix[row * n + column] != 0.0)
}

fn swap_rows(matrix: &mut [f64], n: usize, a: usize, b: usize) {
    (0..n).for_each(|column| matrix.swap(a * n + column, b * n + column));
}

/// Takes `factor` times row `from` off row `to`.
fn take_off(matrix: &mut [f64], n: usize, from: usize, to: usize, factor: f64) {
    for column in 0..n {
        matrix[to * n + column] -= factor * matrix[from * n + column];
    }
}

fn determinant(mut matrix: Vec<f64>, n: usize) -> f64 {
    let mut product = 1.0;
    for column in 0..n {
        let Some(row) = pivot(&matrix, n, column) else { return 0.0 };
        if row != column {
            swap_rows(&mut matrix, n, row, column);
            product = -product;
        }
        let head = matrix[column * n + column];
        product *= head;
        for below in column + 1..n {
            let factor = matrix[below * n + column] / head;
            take_off(&mut matrix, n, column, below, factor);
        }
    }
    product
}

fn invert(mut matrix: Vec<f64>, n: usize, out: &mut [f64]) {
    (0..n).for_each(|row| out[row * n + row] = 1.0);
    for column in 0..n {
        let Some(row) = pivot(&matrix, n, column) else { return out.fill(f64::NAN) };
        swap_rows(&mut matrix, n, row, column);
        swap_rows(out, n, row, column);
        let head = matrix[column * n + column];
        for place in 0..n {
            matrix[column * n + place] /= head;
            out[column * n + place] /= head;
        }
        for other in (0..n).filter(|row| *row != column) {
            let factor = matrix[other * n + column];
            take_off(&mut matrix, n, column, other, factor);
            take_off(out, n, column, other, factor);
        }
    }
}
