//! Losses of scores `[N, C, d1, …]` against labels `[N, d1, …]`.

use planish_op::{LossReduction, NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss, Value};
use planish_tensor::{DType, Tensor};

use crate::reduce::{log_softmax_line, map_lines};
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn negative_log_likelihood_loss(
    op: &NegativeLogLikelihoodLoss,
    cx: &Evaluation<'_>,
) -> EvalResult {
    check_shapes(cx)?;
    let log_probs = cx.floats(0)?;
    Ok(vec![Value::Tensor(loss(cx, &log_probs, op.reduction, op.ignore_index)?)])
}

pub(crate) fn softmax_cross_entropy_loss(op: &SoftmaxCrossEntropyLoss, cx: &Evaluation<'_>) -> EvalResult {
    check_shapes(cx)?;
    let scores = cx.tensor(0)?;
    let log_probs = map_lines(&cx.floats(0)?, scores.shape(), 1, log_softmax_line);
    let mut outputs = vec![Value::Tensor(loss(cx, &log_probs, op.reduction, op.ignore_index)?)];
    if cx.n_outputs() > 1 {
        let log_probs = Tensor::from_f64s(scores.dtype(), scores.shape(), &log_probs)?;
        outputs.push(Value::Tensor(log_probs));
    }
    Ok(outputs)
}

/// Labels have the shape of the scores without the class axis.
fn check_shapes(cx: &Evaluation<'_>) -> Result<(), EvalError> {
    let (scores, labels) = (cx.tensor(0)?.shape(), cx.tensor(1)?.shape());
    let fits = match scores {
        [n, _, rest @ ..] => labels.split_first().is_some_and(|(first, others)| first == n && others == rest),
        _ => false,
    };
    match fits {
        true => Ok(()),
        false => {
            Err(cx.bad_shape(format!("labels of shape {labels:?} do not fit scores of shape {scores:?}")))
        }
    }
}

/// The loss, given the scores as log probabilities; the shapes are checked.
fn loss(
    cx: &Evaluation<'_>,
    log_probs: &[f64],
    reduction: LossReduction,
    ignored: Option<i64>,
) -> Result<Tensor, EvalError> {
    let (scores, labels) = (cx.tensor(0)?, cx.tensor(1)?);
    if !matches!(labels.dtype(), DType::I32 | DType::I64) {
        return Err(cx.bad_type(labels.dtype()));
    }
    let n_classes = scores.shape()[1];
    let weights = match cx.optional_tensor(2)? {
        Some(weights) if weights.shape() != [n_classes] => {
            let found = weights.shape();
            return Err(cx.bad_shape(format!("weights must have shape [{n_classes}], they have {found:?}")));
        }
        Some(_) => Some(cx.floats(2)?),
        None => None,
    };
    // Without classes no label is valid, so that only shapes without samples pass.
    nd::result_len(cx, labels.shape())?;
    let plane = if labels.is_empty() { 1 } else { nd::count(&labels.shape()[1..]) };
    let mut losses = Vec::with_capacity(labels.len());
    let mut total_weight = 0.0;
    for (sample, label) in labels.to_i64s().into_iter().enumerate() {
        if Some(label) == ignored {
            losses.push(0.0);
            continue;
        }
        let class = usize::try_from(label).ok().filter(|class| *class < n_classes).ok_or_else(|| {
            cx.error(EvalErrorKind::BadValue, format!("label {label} is not one of {n_classes} classes"))
        })?;
        let weight = weights.as_ref().map_or(1.0, |weights| weights[class]);
        total_weight += weight;
        losses.push(-log_probs[(sample / plane * n_classes + class) * plane + sample % plane] * weight);
    }
    let dtype = scores.dtype();
    Ok(match reduction {
        LossReduction::None => Tensor::from_f64s(dtype, labels.shape(), &losses)?,
        LossReduction::Sum => {
            Tensor::from_f64s(dtype, &[], &[losses.iter().fold(0.0, |sum, loss| sum + loss)])?
        }
        LossReduction::Mean => Tensor::from_f64s(dtype, &[], &[losses.iter().sum::<f64>() / total_weight])?,
    })
}
