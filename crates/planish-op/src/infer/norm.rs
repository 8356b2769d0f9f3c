//! Inference: normalizations and losses.

use planish_tensor::{DType, Dim, Shape};

use crate::{
    BatchNormalization, GroupNormalization, InstanceNormalization, LRN, LayerNormalization, LossReduction,
    LpNormalization, MeanVarianceNormalization, NegativeLogLikelihoodLoss, RMSNormalization,
    SoftmaxCrossEntropyLoss,
};

use super::checks;
use super::{InferError, InferResult, Inference, Inferred};

/// The channel dimension of `[N, C, …]`; `None` if the rank of the input is unknown.
fn channels<'a>(cx: &Inference<'a>) -> Result<Option<&'a Dim>, InferError> {
    match cx.shape(0)? {
        Some(shape) => match shape.get(1) {
            Some(dim) => Ok(Some(dim)),
            None => Err(cx.bad_shape(format!("input 0 must have a batch and a channel axis, it is {shape}"))),
        },
        None => Ok(None),
    }
}

/// Checks per-channel parameters at `inputs`: rank 1, floats, one element per channel.
fn per_channel(
    cx: &Inference<'_>,
    channels: Option<&Dim>,
    inputs: std::ops::Range<usize>,
) -> Result<(), InferError> {
    for idx in inputs {
        checks::float(cx, idx)?;
        match channels {
            Some(channels) => checks::expect_dims(cx, idx, &[("the number of channels", channels)])?,
            None => drop(cx.shape_of_rank(idx, 1)?),
        }
    }
    Ok(())
}

pub(super) fn batch_normalization(op: &BatchNormalization, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    let shape = cx.shape(0)?;
    // ONNX takes a plain vector as N samples of one channel.
    let one_channel = Dim::ONE;
    let channels = match shape {
        Some(shape) if shape.rank() == 1 => Some(&one_channel),
        _ => channels(cx)?,
    };
    per_channel(cx, channels, 1..5)?;
    let mut all = vec![Inferred::maybe_ranked(dtype, shape.cloned())];
    if op.training_mode {
        let running = match channels {
            Some(channels) => Shape::from_iter([channels]),
            None => cx.fresh_shape(1, "channels"),
        };
        all.push(Inferred::tensor(cx.dtype(3)?, running.clone()));
        all.push(Inferred::tensor(cx.dtype(4)?, running));
    }
    checks::outputs(cx, all)
}

pub(super) fn instance_normalization(_op: &InstanceNormalization, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    per_channel(cx, channels(cx)?, 1..3)?;
    checks::like_input(cx, 0)
}

pub(super) fn group_normalization(op: &GroupNormalization, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    stash_type(cx, op.stash_type)?;
    let channels = channels(cx)?;
    per_channel(cx, channels, 1..3)?;
    if op.num_groups < 1 {
        return Err(cx.bad_attribute(format!("num_groups must be at least 1, it is {}", op.num_groups)));
    }
    match channels.and_then(Dim::as_const) {
        Some(channels) if channels % op.num_groups != 0 => {
            Err(cx.bad_attribute(format!("{channels} channels do not divide into {} groups", op.num_groups)))
        }
        _ => checks::like_input(cx, 0),
    }
}

/// The element type that `stash_type` names by its ONNX number: that of the first stage's results.
fn stash_type(cx: &Inference<'_>, number: i64) -> Result<DType, InferError> {
    match number {
        1 => Ok(DType::F32),
        10 => Ok(DType::F16),
        11 => Ok(DType::F64),
        16 => Ok(DType::BF16),
        _ => Err(cx.bad_attribute(format!(
            "stash_type {number} is not a float type; it is 1 (f32), 10 (f16), 11 (f64) or 16 (bf16)"
        ))),
    }
}

pub(super) fn layer_normalization(op: &LayerNormalization, cx: &mut Inference<'_>) -> InferResult {
    let dtype = checks::float(cx, 0)?;
    let stash = stash_type(cx, op.stash_type)?;
    checks::float(cx, 1)?;
    checks::optional_float(cx, 2)?;
    let Some(shape) = cx.shape(0)? else {
        let all = [dtype, stash, stash].map(|dtype| Inferred::maybe_ranked(dtype, None)).into();
        return checks::outputs(cx, all);
    };
    let axis = cx.axis(op.axis, shape.rank())?;
    checks::expect_broadcasts_to(cx, 1, shape)?;
    checks::expect_broadcasts_to(cx, 2, shape)?;
    let of_rows: Shape =
        shape.iter().enumerate().map(|(idx, dim)| if idx < axis { dim.clone() } else { Dim::ONE }).collect();
    let all = vec![
        Inferred::tensor(dtype, shape.clone()),
        Inferred::tensor(stash, of_rows.clone()),
        Inferred::tensor(stash, of_rows),
    ];
    checks::outputs(cx, all)
}

pub(super) fn rms_normalization(op: &RMSNormalization, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    // The result has the type of the scale, which may differ from the data's.
    let dtype = checks::float(cx, 1)?;
    stash_type(cx, op.stash_type)?;
    let shape = cx.shape(0)?;
    if let Some(shape) = shape {
        cx.axis(op.axis, shape.rank())?;
        checks::expect_broadcasts_to(cx, 1, shape)?;
    }
    checks::outputs(cx, vec![Inferred::maybe_ranked(dtype, shape.cloned())])
}

pub(super) fn lp_normalization(op: &LpNormalization, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    if !matches!(op.p, 1 | 2) {
        return Err(cx.bad_attribute(format!("p must be 1 or 2, it is {}", op.p)));
    }
    if let Some(shape) = cx.shape(0)? {
        cx.axis(op.axis, shape.rank())?;
    }
    checks::like_input(cx, 0)
}

pub(super) fn lrn(op: &LRN, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    channels(cx)?;
    if op.size < 1 {
        return Err(cx.bad_attribute(format!("size must be at least 1, it is {}", op.size)));
    }
    checks::like_input(cx, 0)
}

pub(super) fn mean_variance_normalization(
    op: &MeanVarianceNormalization,
    cx: &mut Inference<'_>,
) -> InferResult {
    checks::float(cx, 0)?;
    if let Some(shape) = cx.shape(0)? {
        for &axis in &op.axes {
            cx.axis(axis, shape.rank())?;
        }
    }
    checks::like_input(cx, 0)
}

/// The loss of `[N, C, d1, …]` scores against `[N, d1, …]` labels with optional weights of size C.
fn loss(cx: &mut Inference<'_>, reduction: LossReduction) -> Result<Inferred, InferError> {
    let dtype = checks::float(cx, 0)?;
    checks::index(cx, 1)?;
    checks::optional_float(cx, 2)?;
    let classes = channels(cx)?;
    if cx.has_input(2) {
        per_channel(cx, classes, 2..3)?;
    }
    let labels = cx.shape(1)?;
    let samples = match (cx.shape(0)?, labels) {
        (Some(scores), Some(labels)) => {
            let without_classes: Vec<&Dim> =
                scores.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, dim)| dim).collect();
            if without_classes.len() != labels.rank() {
                return Err(cx.bad_shape(format!(
                    "labels of shape {labels} do not fit scores of shape {scores}: they have one axis less"
                )));
            }
            let both = without_classes.into_iter().zip(labels);
            let dims: Result<Vec<Dim>, InferError> = both
                .map(|(score, label)| checks::same_dim(cx, "a number of samples", score, label))
                .collect();
            Some(Shape::new(dims?))
        }
        (Some(scores), None) => {
            let dims = scores.iter().enumerate().filter(|(axis, _)| *axis != 1);
            Some(dims.map(|(_, dim)| dim.clone()).collect())
        }
        (None, labels) => labels.cloned(),
    };
    let shape = match reduction {
        LossReduction::None => samples,
        LossReduction::Mean | LossReduction::Sum => Some(Shape::scalar()),
    };
    Ok(Inferred::maybe_ranked(dtype, shape))
}

pub(super) fn negative_log_likelihood_loss(
    op: &NegativeLogLikelihoodLoss,
    cx: &mut Inference<'_>,
) -> InferResult {
    let loss = loss(cx, op.reduction)?;
    checks::outputs(cx, vec![loss])
}

pub(super) fn softmax_cross_entropy_loss(
    op: &SoftmaxCrossEntropyLoss,
    cx: &mut Inference<'_>,
) -> InferResult {
    let loss = loss(cx, op.reduction)?;
    let log_prob = Inferred::maybe_ranked(cx.dtype(0)?, cx.shape(0)?.cloned());
    checks::outputs(cx, vec![loss, log_prob])
}

#[cfg(test)]
mod tests {
    use super::super::InferErrorKind::{BadAttribute, BadShape, BadType, MissingInput};
    use super::super::testing::{check, first, int_list};
    use crate::Attribute;

    #[test]
    fn parameters_are_per_channel() {
        let batch = |x, p| first("BatchNormalization", &[], &[x, p, p, p, p]);
        assert_eq!(batch("f16[n,3,h]", "f32[3]").unwrap(), "f16[n,3,h]");
        assert_eq!(batch("f32[n]", "f32[1]").unwrap(), "f32[n]");
        assert_eq!(batch("f32[*]", "f32[3]").unwrap(), "f32[*]");
        assert_eq!(batch("f32[n,4]", "f32[3]"), Err(BadShape));
        assert_eq!(batch("f32[]", "f32[1]"), Err(BadShape));
        assert_eq!(batch("i32[n,3]", "f32[3]"), Err(BadType));
        let instance = |x, p| first("InstanceNormalization", &[], &[x, p, p]);
        assert_eq!(instance("f32[n,c,h]", "f32[c]").unwrap(), "f32[n,c,h]");
        assert_eq!(instance("f32[n,c,h]", "f32[1,c]"), Err(BadShape));
        let group = |groups, x| {
            first("GroupNormalization", &[("num_groups", Attribute::Int(groups))], &[x, "f32[6]", "f32[6]"])
        };
        assert_eq!(group(3, "f32[n,6,h]").unwrap(), "f32[n,6,h]");
        assert_eq!(group(4, "f32[n,6,h]"), Err(BadAttribute));
        assert_eq!(group(0, "f32[n,6,h]"), Err(BadAttribute));
        assert_eq!(group(i64::MIN, "f32[n,6,h]"), Err(BadAttribute));
    }

    #[test]
    fn training_has_running_statistics() {
        let inputs = ["f16[n,3,h]", "f32[3]", "f32[3]", "f64[3]", "f64[3]"];
        let training = [("training_mode", Attribute::Bool(true))];
        let outputs = check("BatchNormalization", &training, &inputs, 3).unwrap();
        assert_eq!(outputs, ["f16[n,3,h]", "f64[3]", "f64[3]"]);
        assert_eq!(check("BatchNormalization", &[], &inputs, 3), Err(BadAttribute));
        assert_eq!(check("BatchNormalization", &[], &inputs[..4], 1), Err(MissingInput));
    }

    #[test]
    fn layers_have_statistics_of_the_stash_type() {
        let axis = ("axis", Attribute::Int(1));
        let outputs =
            check("LayerNormalization", std::slice::from_ref(&axis), &["f16[n,s,h]", "f16[s,h]"], 3).unwrap();
        assert_eq!(outputs, ["f16[n,s,h]", "f32[n,1,1]", "f32[n,1,1]"]);
        let stash = |number| ("stash_type", Attribute::Int(number));
        let outputs = check("LayerNormalization", &[stash(16)], &["f16[*]", "f16[h]"], 2).unwrap();
        assert_eq!(outputs, ["f16[*]", "bf16[*]"]);
        assert_eq!(first("LayerNormalization", &[stash(7)], &["f32[2]", "f32[2]"]), Err(BadAttribute));
        assert_eq!(first("LayerNormalization", &[], &["f32[n,4]", "f32[3]"]), Err(BadShape));
        assert_eq!(first("LayerNormalization", &[], &["f32[4]", "f32[1,4]"]), Err(BadShape));
        assert_eq!(first("LayerNormalization", &[axis], &["f32[4]", "f32[4]"]), Err(BadAttribute));
        assert_eq!(first("RMSNormalization", &[], &["f32[n,h]", "f16[h]"]).unwrap(), "f16[n,h]");
    }

    #[test]
    fn shapes_are_kept() {
        assert_eq!(first("LpNormalization", &[], &["f32[n,h]"]).unwrap(), "f32[n,h]");
        assert_eq!(first("LpNormalization", &[("p", Attribute::Int(3))], &["f32[n,h]"]), Err(BadAttribute));
        assert_eq!(first("LRN", &[("size", Attribute::Int(3))], &["f32[n,c,h]"]).unwrap(), "f32[n,c,h]");
        assert_eq!(first("LRN", &[("size", Attribute::Int(0))], &["f32[n,c,h]"]), Err(BadAttribute));
        let axes = [("axes", int_list(&[0, 4]))];
        assert_eq!(first("MeanVarianceNormalization", &[], &["f32[n,c,h,w]"]).unwrap(), "f32[n,c,h,w]");
        assert_eq!(first("MeanVarianceNormalization", &axes, &["f32[n,c,h,w]"]), Err(BadAttribute));
    }

    #[test]
    fn losses_have_the_shape_of_the_labels_or_none() {
        let none = [("reduction", Attribute::Str("none".into()))];
        let loss = "NegativeLogLikelihoodLoss";
        assert_eq!(first(loss, &none, &["f32[n,c,7]", "i64[5,d]"]).unwrap(), "f32[5,7]");
        assert_eq!(first(loss, &none, &["f32[*]", "i64[5,d]", "f32[c]"]).unwrap(), "f32[5,d]");
        assert_eq!(first(loss, &[], &["f16[n,c]", "i32[n]"]).unwrap(), "f16[]");
        assert_eq!(first(loss, &[], &["f32[n,c]", "i64[n,d]"]), Err(BadShape));
        assert_eq!(first(loss, &[], &["f32[4,c]", "i64[5]"]), Err(BadShape));
        assert_eq!(first(loss, &[], &["f32[n,4]", "i64[n]", "f32[3]"]), Err(BadShape));
        assert_eq!(first(loss, &[], &["f32[n,4]", "f32[n]"]), Err(BadType));
        let outputs = check("SoftmaxCrossEntropyLoss", &none, &["f32[n,c,d]", "i64[n,d]"], 2).unwrap();
        assert_eq!(outputs, ["f32[n,d]", "f32[n,c,d]"]);
    }
}
