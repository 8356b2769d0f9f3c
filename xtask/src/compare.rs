//! Comparison of outputs with expected ones, in the manner of numpy's `assert_allclose`.

use planish_op::Value;
use planish_tensor::{DType, Tensor};

/// How far two numbers may be apart: `|actual - expected| <= absolute + relative * |expected|`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) relative: f64,
    pub(crate) absolute: f64,
}

/// Why `actual` is not `expected`; `None` if it is, within the tolerance.
pub(crate) fn difference(actual: &Value, expected: &Value, tolerance: Tolerance) -> Option<String> {
    match (actual, expected) {
        (Value::Tensor(actual), Value::Tensor(expected)) => tensor_difference(actual, expected, tolerance),
        (Value::Sequence(actual), Value::Sequence(expected)) => {
            if actual.len() != expected.len() {
                return Some(format!("{} elements, expected {}", actual.len(), expected.len()));
            }
            let pairs = actual.iter().zip(expected).enumerate();
            pairs.into_iter().find_map(|(idx, (actual, expected))| {
                difference(actual, expected, tolerance).map(|why| format!("element {idx}: {why}"))
            })
        }
        (Value::Optional(None), Value::Optional(None)) => None,
        (Value::Optional(Some(actual)), Value::Optional(Some(expected))) => {
            difference(actual, expected, tolerance)
        }
        // Test data stores the value of an optional without its wrapping now and then.
        (Value::Optional(Some(actual)), expected) => difference(actual, expected, tolerance),
        (actual, Value::Optional(Some(expected))) => difference(actual, expected, tolerance),
        _ => Some("another kind of value".to_string()),
    }
}

pub(crate) fn tensor_difference(actual: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Option<String> {
    if actual.dtype() != expected.dtype() {
        return Some(format!("elements of type {}, expected {}", actual.dtype(), expected.dtype()));
    }
    if actual.shape() != expected.shape() {
        return Some(format!("shape {:?}, expected {:?}", actual.shape(), expected.shape()));
    }
    if matches!(actual.dtype(), DType::I64 | DType::U64 | DType::Bool) {
        // Integers of 64 bits do not fit into f64; they must be equal anyway.
        let (actual, expected) = (actual.to_i64s(), expected.to_i64s());
        let place = actual.iter().zip(&expected).position(|(a, b)| a != b)?;
        return Some(format!("at {place}: {}, expected {}", actual[place], expected[place]));
    }
    let (actual, expected) = (actual.to_f64s(), expected.to_f64s());
    let is_close = |(a, e): (&f64, &f64)| {
        a == e
            || (a.is_nan() && e.is_nan())
            || (e.is_finite() && (a - e).abs() <= tolerance.absolute + tolerance.relative * e.abs())
    };
    let place = actual.iter().zip(&expected).position(|pair| !is_close(pair))?;
    let n_wrong = actual.iter().zip(&expected).filter(|&pair| !is_close(pair)).count();
    Some(format!(
        "at {place}: {}, expected {} ({n_wrong} of {} differ)",
        actual[place],
        expected[place],
        actual.len()
    ))
}
