//! Reference: matrix products and small linear algebra.

mod einsum;
mod matrix;
#[cfg(test)]
mod tests;

pub(crate) use einsum::einsum;
pub(crate) use matrix::{det, inverse};

use planish_op::{Gemm, MatMul};
use planish_tensor::DType;

use crate::product::{Strips, multiply_all};
use crate::scalar::{Computation, Scalar, in_own_arithmetic};
use crate::{EvalError, EvalResult, Evaluation, nd};

pub(crate) fn matmul(_op: &MatMul, cx: &Evaluation<'_>) -> EvalResult {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    refuse_narrow_integers(cx, a.dtype())?;
    let problem = MatMulProblem::new(cx, a.shape(), b.shape())?;
    Ok(vec![in_own_arithmetic(cx, &[a, b], &problem)?.into()])
}

/// ONNX has products of 32 and 64 bits; narrower integers multiply by `MatMulInteger`.
fn refuse_narrow_integers(cx: &Evaluation<'_>, dtype: DType) -> Result<(), EvalError> {
    if dtype.is_int() && dtype.bits() < 32 { Err(cx.bad_type(dtype)) } else { Ok(()) }
}

/// Matrices of one batched product: numpy's rules for vectors and broadcasting, resolved.
#[derive(Clone, Debug)]
pub(crate) struct MatMulProblem {
    pub(crate) shape: Vec<usize>,
    n_rows: usize,
    depth: usize,
    n_columns: usize,
    /// Matrices in each factor.
    n_left: usize,
    n_right: usize,
    /// The factors of each matrix of the result.
    pairs: Vec<(usize, usize)>,
}

impl MatMulProblem {
    pub(crate) fn new(cx: &Evaluation<'_>, a: &[usize], b: &[usize]) -> Result<MatMulProblem, EvalError> {
        let scalar = || cx.bad_shape(format!("a scalar has no matrix product: {a:?} by {b:?}"));
        let (left_batch, n_rows, depth) = match *a {
            [ref batch @ .., rows, depth] => (batch, Some(rows), depth),
            [depth] => (&[][..], None, depth),
            [] => return Err(scalar()),
        };
        let (right_batch, right_depth, n_columns) = match *b {
            [ref batch @ .., depth, columns] => (batch, depth, Some(columns)),
            [depth] => (&[][..], depth, None),
            [] => return Err(scalar()),
        };
        if depth != right_depth {
            return Err(cx.bad_shape(format!("the inner dimensions of {a:?} by {b:?} differ")));
        }
        let batch = nd::broadcast(cx, left_batch, right_batch)?;
        let shape: Vec<usize> = batch.iter().copied().chain(n_rows).chain(n_columns).collect();
        nd::result_len(cx, &shape)?;
        // Empty matrices take no memory, so their number is not bounded by the result's size.
        let n_pairs = if shape.contains(&0) { 0 } else { nd::count(&batch) };
        let offsets = |from: &[usize]| {
            let mut offsets = Vec::with_capacity(n_pairs);
            let strides = nd::broadcast_strides(from, &batch);
            nd::for_each_offset(&batch, &strides, 0..n_pairs, |_, offset| offsets.push(offset));
            offsets
        };
        let pairs: Vec<(usize, usize)> = offsets(left_batch).into_iter().zip(offsets(right_batch)).collect();
        Ok(MatMulProblem {
            shape,
            n_rows: n_rows.unwrap_or(1),
            depth,
            n_columns: n_columns.unwrap_or(1),
            n_left: if n_pairs == 0 { 0 } else { nd::count(left_batch) },
            n_right: if n_pairs == 0 { 0 } else { nd::count(right_batch) },
            pairs,
        })
    }
}

impl Computation for MatMulProblem {
    fn compute<T: Scalar>(&self, inputs: &[Vec<T>]) -> Result<(Vec<usize>, Vec<T>), EvalError> {
        let MatMulProblem { n_rows, depth, n_columns, .. } = *self;
        let (a, b) = (&inputs[0], &inputs[1]);
        let left = (0..self.n_left)
            .map(|idx| Strips::strided(&a[idx * n_rows * depth..], n_rows, depth, depth, 1))
            .collect::<Vec<_>>();
        let right = (0..self.n_right)
            .map(|idx| Strips::strided(&b[idx * depth * n_columns..], n_columns, depth, 1, n_columns))
            .collect::<Vec<_>>();
        Ok((self.shape.clone(), multiply_all(&left, &right, &self.pairs)))
    }
}

pub(crate) fn gemm(op: &Gemm, cx: &Evaluation<'_>) -> EvalResult {
    let (a, b, c) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    refuse_narrow_integers(cx, a.dtype())?;
    let (&[a0, a1], &[b0, b1]) = (a.shape(), b.shape()) else {
        return Err(cx.bad_shape(format!("matrices are needed, found {:?} by {:?}", a.shape(), b.shape())));
    };
    let (n_rows, depth) = if op.trans_a { (a1, a0) } else { (a0, a1) };
    let (right_depth, n_columns) = if op.trans_b { (b1, b0) } else { (b0, b1) };
    if depth != right_depth {
        return Err(cx.bad_shape(format!("the inner dimensions are {depth} and {right_depth}")));
    }
    let shape = [n_rows, n_columns];
    nd::result_len(cx, &shape)?;
    if let Some(c) = c
        && (c.rank() > 2 || nd::broadcast(cx, c.shape(), &shape)? != shape)
    {
        return Err(cx.bad_shape(format!("{:?} does not broadcast to {shape:?}", c.shape())));
    }
    let inputs: Vec<_> = [Some(a), Some(b), c].into_iter().flatten().collect();
    let problem = GemmProblem {
        op,
        n_rows,
        depth,
        n_columns,
        addend_strides: c.map(|c| nd::broadcast_strides(c.shape(), &shape)),
    };
    Ok(vec![in_own_arithmetic(cx, &inputs, &problem)?.into()])
}

struct GemmProblem<'a> {
    op: &'a Gemm,
    n_rows: usize,
    depth: usize,
    n_columns: usize,
    /// How to read C as if it had the result's shape.
    addend_strides: Option<Vec<usize>>,
}

impl Computation for GemmProblem<'_> {
    fn compute<T: Scalar>(&self, inputs: &[Vec<T>]) -> Result<(Vec<usize>, Vec<T>), EvalError> {
        let GemmProblem { op, n_rows, depth, n_columns, .. } = *self;
        let (row, along) = if op.trans_a { (1, n_rows) } else { (depth, 1) };
        let left = Strips::strided(&inputs[0], n_rows, depth, row, along);
        let (column, along) = if op.trans_b { (depth, 1) } else { (1, n_columns) };
        let right = Strips::strided(&inputs[1], n_columns, depth, column, along);
        let mut out = multiply_all(&[left], &[right], &[(0, 0)]);
        // As in BLAS, beta = 0 means that C is not looked at, not even its NaNs.
        match &self.addend_strides {
            Some(strides) if op.beta != 0.0 => {
                let (shape, n_elements) = ([n_rows, n_columns], out.len());
                nd::for_each_offset(&shape, strides, 0..n_elements, |flat, offset| {
                    out[flat] = out[flat].combine(op.alpha, inputs[2][offset], op.beta);
                });
            }
            _ => out.iter_mut().for_each(|value| *value = value.combine(op.alpha, T::default(), 0.0)),
        }
        Ok((vec![n_rows, n_columns], out))
    }
}
