//! Short ways to evaluate an operator in a test.

use planish_op::{Op, Value};
use planish_tensor::{DType, Tensor};

use crate::{EvalErrorKind, evaluate};

/// The outputs on these inputs, or why there are none.
pub(crate) fn run(
    op: impl Into<Op>,
    inputs: &[&Tensor],
    n_outputs: usize,
) -> Result<Vec<Tensor>, EvalErrorKind> {
    let values: Vec<Value> = inputs.iter().map(|&tensor| tensor.clone().into()).collect();
    let borrowed: Vec<Option<&Value>> = values.iter().map(Some).collect();
    let outputs = evaluate(&op.into(), &borrowed, n_outputs).map_err(|error| error.kind())?;
    Ok(outputs.into_iter().map(|value| value.as_tensor().cloned().unwrap()).collect())
}

/// The only output.
pub(crate) fn one(op: impl Into<Op>, inputs: &[&Tensor]) -> Tensor {
    run(op, inputs, 1).unwrap().remove(0)
}

/// Why there is no output.
pub(crate) fn refusal(op: impl Into<Op>, inputs: &[&Tensor]) -> EvalErrorKind {
    run(op, inputs, 1).unwrap_err()
}

/// A vector of indices or sizes.
pub(crate) fn ints(values: &[i64]) -> Tensor {
    Tensor::vector(values.to_vec())
}

/// A pattern of zeros and ones, which every element type can hold.
pub(crate) fn pattern(dtype: DType, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|idx| ((idx * idx + idx / 3) % 5 % 2) as f64).collect();
    Tensor::from_f64s(dtype, shape, &values).unwrap()
}

/// The numbers 0, 1, 2, … in a shape.
pub(crate) fn f32s(shape: &[usize]) -> Tensor {
    Tensor::new(shape, (0..shape.iter().product::<usize>()).map(|idx| idx as f32).collect()).unwrap()
}

/// The elements as integers, which most tests use.
pub(crate) fn values(tensor: &Tensor) -> Vec<i64> {
    tensor.to_i64s()
}
