//! Evaluation by name, for tests.

use planish_op::{Attribute, Op, Value};
use planish_tensor::{DType, Tensor};

use crate::{EvalErrorKind, evaluate};

/// All of the first `n_outputs` outputs, which must be tensors. `None` is an absent input.
pub(crate) fn run_all(
    op: &str,
    attributes: &[(&str, Attribute)],
    inputs: &[Option<&Tensor>],
    n_outputs: usize,
) -> Result<Vec<Tensor>, EvalErrorKind> {
    let attributes: Vec<(String, Attribute)> =
        attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let op = Op::from_attributes(op, &attributes).unwrap();
    let values: Vec<Option<Value>> =
        inputs.iter().map(|tensor| tensor.map(|tensor| Value::Tensor(tensor.clone()))).collect();
    let inputs: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let outputs = evaluate(&op, &inputs, n_outputs).map_err(|error| error.kind())?;
    Ok(outputs.iter().map(|value| value.as_tensor().unwrap().clone()).collect())
}

/// The first output.
pub(crate) fn run(
    op: &str,
    attributes: &[(&str, Attribute)],
    inputs: &[&Tensor],
) -> Result<Tensor, EvalErrorKind> {
    let inputs: Vec<Option<&Tensor>> = inputs.iter().copied().map(Some).collect();
    run_all(op, attributes, &inputs, 1).map(|mut outputs| outputs.remove(0))
}

/// An f32 tensor.
pub(crate) fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64s(DType::F32, shape, values).unwrap()
}

/// 0, 1, 2, … in a shape.
pub(crate) fn counting(dtype: DType, shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|idx| idx as f64).collect();
    Tensor::from_f64s(dtype, shape, &values).unwrap()
}

/// Small whole numbers in no order, from -8 to 8, so that sums stay exact.
pub(crate) fn scattered(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 17) as f64 - 8.0
    };
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|_| next()).collect();
    Tensor::from_f64s(dtype, shape, &values).unwrap()
}

/// An attribute of integers.
pub(crate) fn ints(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}
