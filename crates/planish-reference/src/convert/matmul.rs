//! `MatMulInteger` and `QLinearMatMul`: products of quantized matrices, with zero points and scales per
//! tensor, per row of the left side or per column of the right.

use planish_op::{MatMulInteger, QLinearMatMul};
use planish_tensor::{DType, Tensor, element_count};

use super::{bad_input_type, is_int8, quantized, single, store, to_i32s};
use crate::product::{Strips, multiply_all};
use crate::scalar::Scalar;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// The shapes of one product in the manner of numpy: vectors made matrices, batches broadcast.
struct Product {
    a_shape: Vec<usize>,
    b_shape: Vec<usize>,
    /// For each matrix of the output, which matrices of the inputs it is the product of.
    a_matrices: Vec<usize>,
    b_matrices: Vec<usize>,
    m: usize,
    k: usize,
    n: usize,
    y_shape: Vec<usize>,
}

impl Product {
    fn new(cx: &Evaluation<'_>, a: &Tensor, b: &Tensor, dtype: DType) -> Result<Product, EvalError> {
        let (mut a_shape, mut b_shape) = (a.shape().to_vec(), b.shape().to_vec());
        if a.rank() == 1 {
            a_shape.insert(0, 1);
        }
        if b.rank() == 1 {
            b_shape.push(1);
        }
        let ([a_batch @ .., m, a_k], [b_batch @ .., b_k, n]) = (a_shape.as_slice(), b_shape.as_slice())
        else {
            return Err(cx.bad_shape("a scalar has no matrix product"));
        };
        if a_k != b_k {
            let (a, b) = (a.shape(), b.shape());
            return Err(cx.bad_shape(format!("shapes {a:?} and {b:?} have no product: {a_k} is not {b_k}")));
        }
        let (m, k, n) = (*m, *a_k, *n);
        let batch = nd::broadcast(cx, a_batch, b_batch)?;
        let mut y_shape = batch.clone();
        if a.rank() > 1 {
            y_shape.push(m);
        }
        if b.rank() > 1 {
            y_shape.push(n);
        }
        nd::output_len(cx, dtype, &y_shape)?;
        // Without rows or columns the batches could be far more than memory, and none is looked at.
        let n_matrices = if m == 0 || n == 0 { 0 } else { element_count(&batch).unwrap_or(0) };
        let matrices = |own: &[usize]| {
            let mut matrices = Vec::new();
            let strides = nd::broadcast_strides(own, &batch);
            nd::for_each_offset(&batch, &strides, 0..n_matrices, |_, offset| matrices.push(offset));
            matrices
        };
        let (a_matrices, b_matrices) = (matrices(a_batch), matrices(b_batch));
        Ok(Product { a_shape, b_shape, a_matrices, b_matrices, m, k, n, y_shape })
    }

    /// The product of elements that are ready to multiply.
    fn of<T: Scalar>(&self, a: &[T], b: &[T]) -> Vec<T> {
        let Product { m, k, n, .. } = *self;
        if self.a_matrices.is_empty() {
            return Vec::new();
        }
        let n_matrices = |shape: &[usize]| nd::count(&shape[..shape.len() - 2]);
        let left: Vec<Strips<T>> = (0..n_matrices(&self.a_shape))
            .map(|matrix| Strips::strided(&a[matrix * m * k..], m, k, k, 1))
            .collect();
        let right: Vec<Strips<T>> = (0..n_matrices(&self.b_shape))
            .map(|matrix| Strips::strided(&b[matrix * k * n..], n, k, 1, n))
            .collect();
        let pairs: Vec<(usize, usize)> =
            self.a_matrices.iter().copied().zip(self.b_matrices.iter().copied()).collect();
        multiply_all(&left, &right, &pairs)
    }
}

/// The side of a product decides which axis of the matrix its parameters may vary along.
#[derive(Clone, Copy)]
enum Side {
    /// Parameters per row.
    Left,
    /// Parameters per column.
    Right,
}

impl Side {
    /// Strides that read a scale or zero point along its matrix; zero along the axis that is summed over.
    fn strides(
        self,
        cx: &Evaluation<'_>,
        parameter: &Tensor,
        matrix: &[usize],
    ) -> Result<Vec<usize>, EvalError> {
        let rank = matrix.len();
        let (line_axis, summed_axis) = match self {
            Side::Left => (rank - 2, rank - 1),
            Side::Right => (rank - 1, rank - 2),
        };
        let shape = parameter.shape();
        let mut strides = vec![0; rank];
        if parameter.len() == 1 {
            return Ok(strides);
        }
        if shape == [matrix[line_axis]] {
            strides[line_axis] = 1;
            return Ok(strides);
        }
        let fits = |axis: usize| shape[axis] == 1 || (axis != summed_axis && shape[axis] == matrix[axis]);
        if shape.len() == rank && (0..rank).all(fits) {
            return Ok(nd::broadcast_strides(shape, matrix));
        }
        let (side, lines) = match self {
            Side::Left => ("left", "row"),
            Side::Right => ("right", "column"),
        };
        Err(cx.bad_shape(format!(
            "a scale or zero point of shape {shape:?} is neither per tensor nor per {lines} of the {side} side {matrix:?}"
        )))
    }

    /// The elements of a matrix less their zero points.
    fn centered<T: Copy>(
        self,
        cx: &Evaluation<'_>,
        elements: &[T],
        zero_point: Option<&Tensor>,
        zeros: impl Fn(&Tensor) -> Vec<T>,
        shape: &[usize],
        subtract: impl Fn(T, T) -> T,
    ) -> Result<Vec<T>, EvalError> {
        let Some(zero_point) = zero_point else { return Ok(elements.to_vec()) };
        let strides = self.strides(cx, zero_point, shape)?;
        let zeros = zeros(zero_point);
        let mut centered = Vec::with_capacity(elements.len());
        nd::for_each_offset(shape, &strides, 0..elements.len(), |flat, offset| {
            centered.push(subtract(elements[flat], zeros[offset]));
        });
        Ok(centered)
    }

    /// One scale per row (left) or column (right) of every matrix.
    fn line_scales(
        self,
        cx: &Evaluation<'_>,
        scale: &Tensor,
        shape: &[usize],
    ) -> Result<Vec<f64>, EvalError> {
        let strides = self.strides(cx, scale, shape)?;
        let mut lines = shape.to_vec();
        match self {
            Side::Left => lines[shape.len() - 1] = 1,
            Side::Right => lines[shape.len() - 2] = 1,
        }
        // Only a matrix whose summed axis is empty can have more lines than elements.
        let count = nd::result_len(cx, &lines)?;
        let scales = scale.to_f64s();
        let mut line_scales = Vec::with_capacity(count);
        nd::for_each_offset(&lines, &strides, 0..count, |_, offset| line_scales.push(scales[offset]));
        Ok(line_scales)
    }
}

fn check_zero_type(cx: &Evaluation<'_>, zero: Option<&Tensor>, matrix: &Tensor) -> Result<(), EvalError> {
    match zero {
        Some(zero) if zero.dtype() != matrix.dtype() => {
            let (zero, dtype) = (zero.dtype(), matrix.dtype());
            Err(cx.error(
                EvalErrorKind::BadType,
                format!("a zero point of type {zero} for elements of {dtype}"),
            ))
        }
        _ => Ok(()),
    }
}

/// The product of 8-bit integers in `i32`, which may wrap, as ONNX allows.
fn integer_product(
    cx: &Evaluation<'_>,
    product: &Product,
    (a, a_zero): (&Tensor, Option<&Tensor>),
    (b, b_zero): (&Tensor, Option<&Tensor>),
) -> Result<Vec<i32>, EvalError> {
    let subtract = |value: i32, zero: i32| value - zero;
    let a = Side::Left.centered(cx, &to_i32s(a), a_zero, to_i32s, &product.a_shape, subtract)?;
    let b = Side::Right.centered(cx, &to_i32s(b), b_zero, to_i32s, &product.b_shape, subtract)?;
    Ok(product.of(&a, &b))
}

pub(crate) fn matmul_integer(_op: &MatMulInteger, cx: &Evaluation<'_>) -> EvalResult {
    let (a, b) = (cx.tensor(0)?, cx.tensor(1)?);
    let (a_zero, b_zero) = (cx.optional_tensor(2)?, cx.optional_tensor(3)?);
    for (name, tensor, zero) in [("A", a, a_zero), ("B", b, b_zero)] {
        if !is_int8(tensor.dtype()) {
            return Err(bad_input_type(cx, name, tensor.dtype()));
        }
        check_zero_type(cx, zero, tensor)?;
    }
    let product = Product::new(cx, a, b, DType::I32)?;
    let sums = integer_product(cx, &product, (a, a_zero), (b, b_zero))?;
    Ok(vec![Tensor::new(&product.y_shape, sums)?.into()])
}

pub(crate) fn qlinear_matmul(_op: &QLinearMatMul, cx: &Evaluation<'_>) -> EvalResult {
    let (a, a_scale, a_zero) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    let (b, b_scale, b_zero) = (cx.tensor(3)?, cx.tensor(4)?, cx.optional_tensor(5)?);
    let (y_scale, y_zero) = (cx.tensor(6)?, cx.optional_tensor(7)?);
    let dtype = y_zero.unwrap_or(a).dtype();
    let is_operand = |dtype: DType| {
        is_int8(dtype) || (dtype.is_small_float() && dtype.bits() == 8 && dtype != DType::F8E8M0)
    };
    for (name, dtype) in [("a", a.dtype()), ("b", b.dtype()), ("y", dtype)] {
        if !is_operand(dtype) {
            return Err(bad_input_type(cx, name, dtype));
        }
    }
    for (name, scale) in [("a_scale", a_scale), ("b_scale", b_scale), ("y_scale", y_scale)] {
        if !scale.dtype().is_wide_float() {
            return Err(bad_input_type(cx, name, scale.dtype()));
        }
    }
    check_zero_type(cx, a_zero, a)?;
    check_zero_type(cx, b_zero, b)?;
    let y_zero = y_zero.map_or(Ok(0.0), |zero| single(cx, "y_zero_point", zero))?;
    let y_scale = single(cx, "y_scale", y_scale)?;

    let product = Product::new(cx, a, b, dtype)?;
    let sums: Vec<f64> = if is_int8(a.dtype()) && is_int8(b.dtype()) {
        let sums = integer_product(cx, &product, (a, a_zero), (b, b_zero))?;
        sums.into_iter().map(f64::from).collect()
    } else {
        let zeros = Tensor::to_f64s;
        let subtract = |value: f64, zero: f64| value - zero;
        let a = Side::Left.centered(cx, &a.to_f64s(), a_zero, zeros, &product.a_shape, subtract)?;
        let b = Side::Right.centered(cx, &b.to_f64s(), b_zero, zeros, &product.b_shape, subtract)?;
        product.of(&a, &b)
    };
    let a_scales = Side::Left.line_scales(cx, a_scale, &product.a_shape)?;
    let b_scales = Side::Right.line_scales(cx, b_scale, &product.b_shape)?;
    let (m, n) = (product.m, product.n);
    let requantize = |(flat, sum): (usize, f64)| {
        let (matrix, row, column) = (flat / (m * n), flat / n % m, flat % n);
        let a_scale = a_scales[product.a_matrices[matrix] * m + row];
        let b_scale = b_scales[product.b_matrices[matrix] * n + column];
        quantized(dtype, sum * (a_scale * b_scale / y_scale), y_zero)
    };
    let values: Vec<f64> = sums.into_iter().enumerate().map(requantize).collect();
    Ok(vec![store(dtype, &product.y_shape, &values, true)?.into()])
}
