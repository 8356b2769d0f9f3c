//! Normalizations and losses by hand.

use planish_op::{
    BatchNormalization, GroupNormalization, InstanceNormalization, LRN, LayerNormalization, LossReduction,
    LpNormalization, MeanVarianceNormalization, NegativeLogLikelihoodLoss, RMSNormalization,
    SoftmaxCrossEntropyLoss,
};
use planish_tensor::{DType, Tensor};

use crate::EvalErrorKind;
use crate::testing::{assert_near, counting, f32s, one, refusal, run_all};

fn vector(values: &[f32]) -> Tensor {
    Tensor::vector(values.to_vec())
}

const NO_EPSILON: f32 = 0.0;

#[test]
fn batch_normalization_with_given_statistics() {
    let op = BatchNormalization { training_mode: false, momentum: 0.9, epsilon: 1.0 };
    // Two channels of two elements: (x - mean) / sqrt(var + 1) * scale + bias.
    let x = f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let (scale, bias) = (vector(&[2.0, 1.0]), vector(&[10.0, 20.0]));
    let (mean, var) = (vector(&[1.0, 0.0]), vector(&[3.0, 8.0]));
    let inputs = [&x, &scale, &bias, &mean, &var];
    assert_near(&one(op.clone(), &inputs), &[10.0, 11.0, 21.0, 20.0 + 4.0 / 3.0]);
    assert_eq!(run_all(op.clone(), &inputs, 3), Err(EvalErrorKind::BadAttribute));
    assert_eq!(refusal(op.clone(), &[&x, &scale, &bias, &mean, &vector(&[1.0])]), EvalErrorKind::BadShape);
    // A vector is one channel.
    let column = vector(&[1.0, 2.0, 3.0]);
    let ones = vector(&[1.0]);
    assert_near(&one(op.clone(), &[&column, &ones, &ones, &ones, &vector(&[3.0])]), &[1.0, 1.5, 2.0]);
    assert_eq!(refusal(op, &[&Tensor::scalar(1f32), &ones, &ones, &ones, &ones]), EvalErrorKind::BadShape);
}

#[test]
fn batch_normalization_in_training() {
    let op = BatchNormalization { training_mode: true, momentum: 0.5, epsilon: NO_EPSILON };
    let x = f32s(&[2, 1, 2], &[1.0, 3.0, 5.0, 7.0]);
    let running = Tensor::vector(vec![2f64]);
    let inputs = [&x, &vector(&[1.0]), &vector(&[0.0]), &running, &running];
    let outputs = run_all(op.clone(), &inputs, 3).unwrap();
    let deviation = 5f64.sqrt();
    assert_near(&outputs[0], &[-3.0, -1.0, 1.0, 3.0].map(|value| value / deviation));
    // The running statistics keep their own type: (2 + 4) / 2 and (2 + 5) / 2.
    assert_eq!(outputs[1], Tensor::vector(vec![3f64]));
    assert_eq!(outputs[2], Tensor::vector(vec![3.5f64]));
    let empty = Tensor::zeros(DType::F32, &[0, 1, 2]).unwrap();
    let outputs = run_all(op, &[&empty, inputs[1], inputs[2], &running, &running], 3).unwrap();
    assert_eq!(outputs[0], empty);
    assert_near(&outputs[1], &[f64::NAN]);
}

#[test]
fn instance_and_group_normalization() {
    let x = f32s(&[1, 2, 2], &[1.0, 3.0, 10.0, 30.0]);
    let (scale, bias) = (vector(&[1.0, 2.0]), vector(&[0.0, 5.0]));
    let instance = InstanceNormalization { epsilon: NO_EPSILON };
    assert_near(&one(instance.clone(), &[&x, &scale, &bias]), &[-1.0, 1.0, 3.0, 7.0]);
    let group = |num_groups| GroupNormalization { stash_type: 1, num_groups, epsilon: NO_EPSILON };
    assert_near(&one(group(2), &[&x, &scale, &bias]), &[-1.0, 1.0, 3.0, 7.0]);
    // One group: mean 11, variance (100 + 64 + 1 + 361) / 4.
    let deviation = 131.5f64.sqrt();
    let expected = [-10.0 / deviation, -8.0 / deviation, 5.0 - 2.0 / deviation, 5.0 + 38.0 / deviation];
    assert_near(&one(group(1), &[&x, &scale, &bias]), &expected);
    // A second sample is normalized on its own.
    let both = f32s(&[2, 2, 2], &[1.0, 3.0, 10.0, 30.0, 2.0, 6.0, 20.0, 60.0]);
    assert_near(&one(group(1), &[&both, &scale, &bias]), &[expected, expected].concat());
    assert_eq!(refusal(group(0), &[&x, &scale, &bias]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(group(i64::MIN), &[&x, &scale, &bias]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(group(3), &[&x, &scale, &bias]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(instance, &[&vector(&[1.0]), &scale, &bias]), EvalErrorKind::BadShape);
}

#[test]
fn layer_normalization_and_its_statistics() {
    let op = |axis, stash_type| LayerNormalization { stash_type, epsilon: NO_EPSILON, axis };
    let x = f32s(&[2, 2], &[1.0, 3.0, 0.0, 8.0]);
    let (scale, bias) = (vector(&[1.0, 2.0]), vector(&[10.0, 20.0]));
    let outputs = run_all(op(-1, 16), &[&x, &scale, &bias], 3).unwrap();
    assert_near(&outputs[0], &[9.0, 22.0, 9.0, 22.0]);
    assert_eq!(outputs[1], Tensor::from_f64s(DType::BF16, &[2, 1], &[2.0, 4.0]).unwrap());
    assert_eq!(outputs[2], Tensor::from_f64s(DType::BF16, &[2, 1], &[1.0, 0.25]).unwrap());
    // Over all axes, with a scale that broadcasts over rows; mean 3, variance 9.5.
    let row = f32s(&[2, 1], &[1.0, -1.0]);
    let deviation = 9.5f64.sqrt();
    let expected = [-2.0, 0.0, 3.0, -5.0].map(|value| value / deviation);
    assert_near(&one(op(0, 1), &[&x, &row]), &expected);
    assert_eq!(refusal(op(2, 1), &[&x, &scale]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(op(-1, 7), &[&x, &scale]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(op(-1, 1), &[&x, &vector(&[1.0; 3])]), EvalErrorKind::BadShape);
    assert_eq!(refusal(op(-1, 1), &[&x, &counting(DType::F32, &[1, 1, 2])]), EvalErrorKind::BadShape);
    let empty = Tensor::zeros(DType::F32, &[2, 0]).unwrap();
    let outputs = run_all(op(-1, 1), &[&empty, &vector(&[])], 3).unwrap();
    assert_eq!(outputs[0], empty);
    assert_near(&outputs[1], &[f64::NAN, f64::NAN]);
}

#[test]
fn rms_normalization_has_the_type_of_the_scale() {
    let op = RMSNormalization { stash_type: 1, epsilon: NO_EPSILON, axis: -1 };
    let x = Tensor::from_f64s(DType::F16, &[1, 2], &[3.0, 4.0]).unwrap();
    let y = one(op, &[&x, &vector(&[1.0, 2.0])]);
    assert_eq!(y.dtype(), DType::F32);
    let root = 12.5f64.sqrt();
    assert_near(&y, &[3.0 / root, 8.0 / root]);
}

#[test]
fn lp_normalization_along_an_axis() {
    let x = f32s(&[2, 2], &[3.0, 0.0, -4.0, 0.0]);
    assert_near(&one(LpNormalization { p: 2, axis: 0 }, &[&x]), &[0.6, 0.0, -0.8, 0.0]);
    assert_near(&one(LpNormalization { p: 1, axis: 0 }, &[&x]), &[3.0 / 7.0, 0.0, -4.0 / 7.0, 0.0]);
    assert_eq!(refusal(LpNormalization { p: 3, axis: 0 }, &[&x]), EvalErrorKind::BadAttribute);
}

#[test]
fn local_response_sums_neighbouring_channels() {
    let x = f32s(&[1, 4, 1], &[1.0, 2.0, 3.0, 4.0]);
    let op = |size| LRN { bias: 1.0, beta: 1.0, alpha: size as f32, size };
    // alpha / size is 1, so the divisor is 1 + the sum of squares; an even size reaches further up.
    assert_near(&one(op(3), &[&x]), &[1.0 / 6.0, 2.0 / 15.0, 3.0 / 30.0, 4.0 / 26.0]);
    assert_near(&one(op(2), &[&x]), &[1.0 / 6.0, 2.0 / 14.0, 3.0 / 26.0, 4.0 / 17.0]);
    let huge = LRN { bias: 1.0, beta: 1.0, alpha: 0.0, size: i64::MAX };
    assert_near(&one(huge, &[&x]), &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(refusal(op(0), &[&x]), EvalErrorKind::BadAttribute);
    assert_eq!(refusal(op(1), &[&vector(&[1.0])]), EvalErrorKind::BadShape);
}

#[test]
fn mean_variance_normalization_over_axes() {
    let x = f32s(&[2, 2], &[1.0, 5.0, 3.0, 5.0]);
    let op = |axes: &[i64]| MeanVarianceNormalization { axes: axes.to_vec() };
    assert_near(&one(op(&[0]), &[&x]), &[-1.0, 0.0, 1.0, 0.0]);
    assert_near(&one(op(&[-1]), &[&x]), &[-1.0, 1.0, -1.0, 1.0]);
    assert_eq!(refusal(op(&[0, 2]), &[&x]), EvalErrorKind::BadAttribute);
}

#[test]
fn likelihood_loss_with_weights_and_ignored_labels() {
    let scores = f32s(&[2, 3, 2], &[1.0, 2.0, 2.0, 2.0, 3.0, 2.0, 0.0, 1.0, 2.0, 2.0, 1.0, 2.0]);
    let labels = Tensor::new(&[2, 2], vec![2i64, 1, 0, 2]).unwrap();
    let weights = vector(&[0.2, 0.3, 0.1]);
    let op = |reduction, ignore_index| NegativeLogLikelihoodLoss { ignore_index, reduction };
    assert_near(&one(op(LossReduction::None, None), &[&scores, &labels]), &[-3.0, -2.0, 0.0, -2.0]);
    assert_near(&one(op(LossReduction::Sum, None), &[&scores, &labels, &weights]), &[-1.1]);
    assert_near(&one(op(LossReduction::Mean, None), &[&scores, &labels, &weights]), &[-1.1 / 0.7]);
    assert_near(&one(op(LossReduction::Mean, None), &[&scores, &labels]), &[-7.0 / 4.0]);
    // Ignored samples count neither in the sum nor in the number.
    assert_near(&one(op(LossReduction::Mean, Some(2)), &[&scores, &labels]), &[-1.0]);
    let outside = Tensor::new(&[2, 2], vec![2i32, 1, -1, 2]).unwrap();
    assert_near(&one(op(LossReduction::Sum, Some(-1)), &[&scores, &outside]), &[-7.0]);
    assert_eq!(refusal(op(LossReduction::Sum, None), &[&scores, &outside]), EvalErrorKind::BadValue);
    let wrong = Tensor::new(&[2], vec![0i64, 0]).unwrap();
    assert_eq!(refusal(op(LossReduction::Sum, None), &[&scores, &wrong]), EvalErrorKind::BadShape);
    assert_eq!(
        refusal(op(LossReduction::Sum, None), &[&scores, &labels, &vector(&[1.0])]),
        EvalErrorKind::BadShape
    );
}

#[test]
fn cross_entropy_is_the_loss_of_log_softmax() {
    let scores = f32s(&[1, 2], &[0.0, 3f64.ln()]);
    let labels = Tensor::vector(vec![0i64]);
    let op = SoftmaxCrossEntropyLoss { ignore_index: None, reduction: LossReduction::None };
    let outputs = run_all(op, &[&scores, &labels], 2).unwrap();
    assert_near(&outputs[0], &[4f64.ln()]);
    assert_near(&outputs[1], &[0.25f64.ln(), 0.75f64.ln()]);
}
