//! Reference: random numbers, which depend on the seed and the shape alone (see `generator`).

mod generator;

use planish_op::{
    Bernoulli, Dropout, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike, Value,
};
use planish_tensor::{DType, Tensor};

use crate::movement::to_size;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};
pub use generator::{Generator, Stream};

pub(crate) fn random_normal(op: &RandomNormal, cx: &Evaluation<'_>) -> EvalResult {
    normal(cx, op.dtype, &attribute_shape(cx, &op.shape)?, op.seed, (op.mean, op.scale))
}

pub(crate) fn random_normal_like(op: &RandomNormalLike, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    normal(cx, op.dtype.unwrap_or(input.dtype()), input.shape(), op.seed, (op.mean, op.scale))
}

pub(crate) fn random_uniform(op: &RandomUniform, cx: &Evaluation<'_>) -> EvalResult {
    uniform(cx, op.dtype, &attribute_shape(cx, &op.shape)?, op.seed, (op.low, op.high))
}

pub(crate) fn random_uniform_like(op: &RandomUniformLike, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    uniform(cx, op.dtype.unwrap_or(input.dtype()), input.shape(), op.seed, (op.low, op.high))
}

fn attribute_shape(cx: &Evaluation<'_>, shape: &[i64]) -> Result<Vec<usize>, EvalError> {
    shape.iter().map(|&dim| to_size(cx, dim, "a dimension of `shape`")).collect()
}

/// Distributions over the real numbers need a type for them.
fn check_float(cx: &Evaluation<'_>, dtype: DType) -> Result<(), EvalError> {
    if dtype.is_wide_float() { Ok(()) } else { Err(cx.bad_type(dtype)) }
}

/// One number per element, each from its flat index.
fn drawn(
    cx: &Evaluation<'_>,
    dtype: DType,
    shape: &[usize],
    draw: impl Fn(usize) -> f64 + Sync,
) -> Result<Tensor, EvalError> {
    let count = nd::result_len(cx, shape)?;
    // Ten rounds of the cipher and a logarithm or cosine: about 50 steps.
    let values = nd::fill_blocks(count, 1, 50, |place, out| out[0] = draw(place));
    Ok(Tensor::from_f64s(dtype, shape, &values)?)
}

fn normal(
    cx: &Evaluation<'_>,
    dtype: DType,
    shape: &[usize],
    seed: Option<f32>,
    (mean, scale): (f32, f32),
) -> EvalResult {
    check_float(cx, dtype)?;
    let generator = Generator::from_float_seed(seed, Stream::Normal);
    let draw = |place| f64::from(mean) + f64::from(scale) * generator.normal(place);
    Ok(vec![drawn(cx, dtype, shape, draw)?.into()])
}

fn uniform(
    cx: &Evaluation<'_>,
    dtype: DType,
    shape: &[usize],
    seed: Option<f32>,
    (low, high): (f32, f32),
) -> EvalResult {
    check_float(cx, dtype)?;
    let generator = Generator::from_float_seed(seed, Stream::Uniform);
    let (low, high) = (f64::from(low), f64::from(high));
    let draw = |place| low + (high - low) * generator.uniform_of(dtype, place);
    Ok(vec![drawn(cx, dtype, shape, draw)?.into()])
}

pub(crate) fn bernoulli(op: &Bernoulli, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    check_float(cx, input.dtype())?;
    let chances = input.to_f64s();
    let generator = Generator::from_float_seed(op.seed, Stream::Bernoulli);
    let draw = |place: usize| f64::from(generator.uniform(place) < chances[place]);
    Ok(vec![drawn(cx, op.dtype.unwrap_or(input.dtype()), input.shape(), draw)?.into()])
}

pub(crate) fn multinomial(op: &Multinomial, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    check_float(cx, input.dtype())?;
    let &[n_batches, n_classes] = input.shape() else {
        return Err(cx.bad_shape(format!("log-probabilities are [batch, class], not {:?}", input.shape())));
    };
    if !matches!(op.dtype, DType::I32 | DType::I64) {
        return Err(cx.bad_type(op.dtype));
    }
    let n_samples = to_size(cx, op.sample_size, "`sample_size`")?;
    if n_classes == 0 {
        return Err(cx.bad_shape("there are no classes to draw from"));
    }
    let logits = input.to_f64s();
    let sums: Vec<f64> = logits.chunks_exact(n_classes).flat_map(running_sums).collect();
    // The largest probability counts 1, so that a total below is one that is not a number.
    if !sums.chunks_exact(n_classes).all(|sums| sums[n_classes - 1] >= 1.0) {
        let detail = "log-probabilities must be numbers below infinity, not all minus infinity";
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    let generator = Generator::from_float_seed(op.seed, Stream::Multinomial);
    let draw = |place: usize| {
        let sums = &sums[place / n_samples * n_classes..][..n_classes];
        let target = generator.uniform(place) * sums[n_classes - 1];
        // The first class whose running sum is beyond; a class without probability is never that.
        sums.partition_point(|&sum| sum <= target).min(n_classes - 1) as f64
    };
    Ok(vec![drawn(cx, op.dtype, &[n_batches, n_samples], draw)?.into()])
}

/// The running sums of unnormalized probabilities, from their logarithms; NaN if they are not a distribution.
fn running_sums(logits: &[f64]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    let add = |&logit: &f64| {
        sum += (logit - largest).exp();
        sum
    };
    logits.iter().map(add).collect()
}

pub(crate) fn dropout(op: &Dropout, cx: &Evaluation<'_>) -> EvalResult {
    let data = cx.tensor(0)?;
    check_float(cx, data.dtype())?;
    let is_training = match cx.optional_tensor(2)? {
        Some(mode) => mode.to_i64s().first().is_some_and(|&mode| mode != 0),
        None => false,
    };
    let ratio = match cx.optional_tensor(1)? {
        Some(ratio) => ratio.to_f64s().first().copied().unwrap_or(0.5),
        None => 0.5,
    };
    if is_training && !(0.0..1.0).contains(&ratio) {
        let detail = format!("the ratio must lie in [0, 1), it is {ratio}");
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    let generator = Generator::from_int_seed(op.seed, Stream::Dropout);
    let is_kept = |place: usize| !is_training || ratio == 0.0 || generator.uniform(place) >= ratio;
    let mut outputs = Vec::new();
    outputs.push(if is_training && ratio != 0.0 {
        let values = data.to_f64s();
        let scale = 1.0 / (1.0 - ratio);
        let draw = |place: usize| if is_kept(place) { values[place] * scale } else { 0.0 };
        Value::Tensor(drawn(cx, data.dtype(), data.shape(), draw)?)
    } else {
        Value::Tensor(data.clone())
    });
    if cx.n_outputs() > 1 {
        outputs.push(drawn(cx, DType::Bool, data.shape(), |place| f64::from(is_kept(place)))?.into());
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests;
