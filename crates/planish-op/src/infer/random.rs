//! Inference: random numbers.

use planish_tensor::{DType, Dim, Shape};

use crate::{
    Bernoulli, Dropout, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike,
};

use super::{InferError, InferResult, Inference, Inferred, checks};

pub(super) fn random_normal(op: &RandomNormal, cx: &mut Inference<'_>) -> InferResult {
    of_shape(&op.shape, op.dtype, cx)
}

pub(super) fn random_normal_like(op: &RandomNormalLike, cx: &mut Inference<'_>) -> InferResult {
    like_input(op.dtype, cx)
}

pub(super) fn random_uniform(op: &RandomUniform, cx: &mut Inference<'_>) -> InferResult {
    of_shape(&op.shape, op.dtype, cx)
}

pub(super) fn random_uniform_like(op: &RandomUniformLike, cx: &mut Inference<'_>) -> InferResult {
    like_input(op.dtype, cx)
}

fn of_shape(shape: &[i64], dtype: DType, cx: &mut Inference<'_>) -> InferResult {
    check_float(cx, dtype)?;
    if let Some(dim) = shape.iter().find(|dim| **dim < 0) {
        return Err(cx.bad_attribute(format!("a dimension of `shape` cannot be {dim}")));
    }
    Ok(vec![Inferred::tensor(dtype, Shape::fixed(shape))])
}

fn like_input(dtype: Option<DType>, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    let dtype = dtype.unwrap_or(input.dtype);
    check_float(cx, dtype)?;
    Ok(vec![Inferred::maybe_ranked(dtype, input.shape.clone())])
}

/// Distributions over the real numbers need a type for them.
fn check_float(cx: &Inference<'_>, dtype: DType) -> Result<(), InferError> {
    if dtype.is_wide_float() {
        return Ok(());
    }
    Err(cx.bad_type(format!("random numbers are f64, f32, f16 or bf16, not {dtype}")))
}

pub(super) fn bernoulli(op: &Bernoulli, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    check_float(cx, input.dtype)?;
    Ok(vec![Inferred::maybe_ranked(op.dtype.unwrap_or(input.dtype), input.shape.clone())])
}

pub(super) fn multinomial(op: &Multinomial, cx: &mut Inference<'_>) -> InferResult {
    check_float(cx, cx.dtype(0)?)?;
    if !matches!(op.dtype, DType::I32 | DType::I64) {
        return Err(cx.bad_type(format!("samples are i32 or i64, not {}", op.dtype)));
    }
    if op.sample_size < 0 {
        return Err(cx.bad_attribute(format!("`sample_size` cannot be {}", op.sample_size)));
    }
    let batch = match cx.shape_of_rank(0, 2)? {
        Some(shape) => shape[0].clone(),
        None => cx.fresh_dim("batch"),
    };
    Ok(vec![Inferred::tensor(op.dtype, [batch, Dim::from(op.sample_size)].into_iter().collect())])
}

pub(super) fn dropout(_op: &Dropout, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    check_float(cx, input.dtype)?;
    if cx.optional_tensor(1)?.is_some_and(|ratio| !ratio.dtype.is_float()) {
        return Err(cx.bad_type("the ratio must be of a floating-point type"));
    }
    if cx.optional_tensor(2)?.is_some_and(|mode| mode.dtype != DType::Bool) {
        return Err(cx.bad_type("training_mode must be a boolean"));
    }
    let outputs = vec![
        Inferred::maybe_ranked(input.dtype, input.shape.clone()),
        Inferred::maybe_ranked(DType::Bool, input.shape.clone()),
    ];
    checks::outputs(cx, outputs)
}

#[cfg(test)]
mod tests {
    use super::super::InferErrorKind::{BadAttribute, BadShape, BadType};
    use super::super::testing::{ABSENT, of, output, outputs};
    use super::*;

    #[test]
    fn shapes_come_from_the_attribute_or_the_input() {
        let normal = |shape: &[i64], dtype| RandomNormal {
            shape: shape.to_vec(),
            dtype,
            seed: None,
            scale: 1.0,
            mean: 0.0,
        };
        assert_eq!(output(normal(&[2, 0], DType::F16), &[]).unwrap(), "f16[2,0]");
        assert_eq!(output(normal(&[], DType::F32), &[]).unwrap(), "f32[]");
        assert_eq!(output(normal(&[2, i64::MIN], DType::F32), &[]), Err(BadAttribute));
        assert_eq!(output(normal(&[2], DType::I32), &[]), Err(BadType));
        let like = |dtype| RandomUniformLike { dtype, seed: None, high: 1.0, low: 0.0 };
        assert_eq!(output(like(None), &[of("f32[n,3]")]).unwrap(), "f32[n,3]");
        assert_eq!(output(like(Some(DType::F64)), &[of("i32[n]")]).unwrap(), "f64[n]");
        assert_eq!(output(like(None), &[of("i32[n]")]), Err(BadType));
        assert_eq!(output(like(None), &[of("bf16[*]")]).unwrap(), "bf16[*]");
    }

    #[test]
    fn draws_from_given_distributions() {
        let bernoulli = Bernoulli { dtype: Some(DType::Bool), seed: None };
        assert_eq!(output(bernoulli, &[of("f32[n]")]).unwrap(), "bool[n]");
        let multinomial = |sample_size| Multinomial { dtype: DType::I64, seed: None, sample_size };
        assert_eq!(output(multinomial(7), &[of("f32[b,10]")]).unwrap(), "i64[b,7]");
        assert_eq!(output(multinomial(-1), &[of("f32[b,10]")]), Err(BadAttribute));
        assert_eq!(output(multinomial(1), &[of("f32[10]")]), Err(BadShape));
    }

    #[test]
    fn dropout_gives_a_mask_if_asked() {
        let types = |inputs: &[_], n| outputs(Dropout { seed: None }, inputs, n);
        assert_eq!(types(&[of("f16[n]")], 1).unwrap(), ["f16[n]"]);
        assert_eq!(types(&[of("f16[n]"), of("f32[]"), of("bool[]")], 2).unwrap(), ["f16[n]", "bool[n]"]);
        assert_eq!(types(&[of("f16[n]"), ABSENT, of("i64[]")], 1), Err(BadType));
        assert_eq!(types(&[of("i64[n]")], 1), Err(BadType));
    }
}
