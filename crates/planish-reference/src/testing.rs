//! Evaluation in tests: short ways to make operators and tensors, to run them, and to compare.

use planish_op::{Attribute, Op, Value};
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use crate::{EvalErrorKind, evaluate};

/// An operator by its name.
pub(crate) fn named(name: &str, attributes: &[(&str, Attribute)]) -> Op {
    let attributes: Vec<(String, Attribute)> =
        attributes.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    Op::from_attributes(name, &attributes).unwrap()
}

/// An attribute of integers.
pub(crate) fn int_list(values: &[i64]) -> Attribute {
    Attribute::Ints(values.to_vec())
}

/// An attribute that is a word.
pub(crate) fn word(text: &str) -> Attribute {
    Attribute::Str(text.to_string())
}

/// What may stand for an input: a tensor, or `None` where it is absent.
pub(crate) trait Input {
    fn tensor(&self) -> Option<&Tensor>;
}

impl Input for Tensor {
    fn tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

impl Input for &Tensor {
    fn tensor(&self) -> Option<&Tensor> {
        Some(self)
    }
}

impl Input for Option<Tensor> {
    fn tensor(&self) -> Option<&Tensor> {
        self.as_ref()
    }
}

impl Input for Option<&Tensor> {
    fn tensor(&self) -> Option<&Tensor> {
        *self
    }
}

pub(crate) const NO_INPUTS: &[Tensor] = &[];

/// The outputs, which must be tensors, or why there are none.
pub(crate) fn run_all(
    op: impl Into<Op>,
    inputs: &[impl Input],
    n_outputs: usize,
) -> Result<Vec<Tensor>, EvalErrorKind> {
    let values: Vec<Option<Value>> =
        inputs.iter().map(|input| input.tensor().map(|tensor| Value::Tensor(tensor.clone()))).collect();
    let borrowed: Vec<Option<&Value>> = values.iter().map(Option::as_ref).collect();
    let outputs = evaluate(&op.into(), &borrowed, n_outputs).map_err(|error| error.kind())?;
    Ok(outputs.iter().map(|value| value.as_tensor().cloned().unwrap()).collect())
}

/// The only output, or why there is none.
pub(crate) fn run(op: impl Into<Op>, inputs: &[impl Input]) -> Result<Tensor, EvalErrorKind> {
    run_all(op, inputs, 1).map(|mut outputs| outputs.remove(0))
}

/// The only output.
#[track_caller]
pub(crate) fn one(op: impl Into<Op>, inputs: &[impl Input]) -> Tensor {
    run(op, inputs).unwrap()
}

/// Why there is no output.
#[track_caller]
pub(crate) fn refusal(op: impl Into<Op>, inputs: &[impl Input]) -> EvalErrorKind {
    run(op, inputs).unwrap_err()
}

/// An f32 tensor.
pub(crate) fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64s(DType::F32, shape, values).unwrap()
}

/// A vector of i64: indices or sizes.
pub(crate) fn ints(values: &[i64]) -> Tensor {
    Tensor::vector(values.to_vec())
}

/// 0, 1, 2, … in a shape.
pub(crate) fn counting(dtype: DType, shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|idx| idx as f64).collect();
    Tensor::from_f64s(dtype, shape, &values).unwrap()
}

/// A pattern of zeros and ones, which every element type can hold.
pub(crate) fn pattern(dtype: DType, shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f64> = (0..n).map(|idx| ((idx * idx + idx / 3) % 5 % 2) as f64).collect();
    Tensor::from_f64s(dtype, shape, &values).unwrap()
}

/// Small whole numbers in no order, from -8 to 8, so that sums stay exact.
pub(crate) fn scattered(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    Random::new(seed).whole(dtype, shape, -8, 8)
}

/// The element types that arithmetic is defined on.
pub(crate) fn number_types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_wide_float() || dtype.is_whole_int())
}

/// What separates a result, which is rounded to f32 once, from a value that was computed in another order or
/// by hand: 8 roundings of f32, relative to the value but for values below 1.
const ROUNDING: f64 = 1e-6;

/// Asserts that the elements are these, up to rounding; NaN is NaN.
#[track_caller]
pub(crate) fn assert_near(tensor: &Tensor, expected: &[f64]) {
    let found = tensor.to_f64s();
    assert_eq!(found.len(), expected.len(), "{tensor:?}");
    let near = |(found, expected): (&f64, &f64)| {
        // Infinities are equal, their difference is not a number.
        found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= ROUNDING * expected.abs().max(1.0)
    };
    assert!(found.iter().zip(expected).all(near), "{tensor:?} is not {expected:?}");
}
