//! Normalizations of `[N, C, …]` with parameters per channel: batch, instance and group.

use planish_op::{BatchNormalization, GroupNormalization, InstanceNormalization, Value};
use planish_tensor::Tensor;

use super::moments;
use crate::{EvalError, EvalResult, Evaluation, nd};

/// A tensor seen as `n_batches * n_channels` planes of `plane` elements.
struct Planes {
    n_batches: usize,
    n_channels: usize,
    plane: usize,
}

impl Planes {
    /// `None` if the tensor has no elements (its dimensions then need not have a product).
    fn of(cx: &Evaluation<'_>, x: &Tensor) -> Result<Option<Planes>, EvalError> {
        if x.rank() < 2 {
            return Err(
                cx.bad_shape(format!("input 0 must have a batch and a channel axis, it is {:?}", x.shape()))
            );
        }
        let shape = x.shape();
        Ok((!x.is_empty()).then(|| Planes {
            n_batches: shape[0],
            n_channels: shape[1],
            plane: nd::count(&shape[2..]),
        }))
    }
}

/// The elements of a parameter at input `idx`, one per channel.
fn per_channel(cx: &Evaluation<'_>, idx: usize, n_channels: usize) -> Result<Vec<f64>, EvalError> {
    let shape = cx.tensor(idx)?.shape();
    if shape != [n_channels] {
        return Err(cx.bad_shape(format!("input {idx} must have shape [{n_channels}], it has {shape:?}")));
    }
    cx.floats(idx)
}

pub(crate) fn batch_normalization(op: &BatchNormalization, cx: &Evaluation<'_>) -> EvalResult {
    if !op.training_mode && cx.n_outputs() > 1 {
        return Err(cx.bad_attribute("running statistics are outputs in training_mode only"));
    }
    let x = cx.tensor(0)?;
    // ONNX takes a plain vector as N samples of one channel.
    let as_column = if x.rank() == 1 { Some(x.reshaped(&[x.len(), 1])?) } else { None };
    let (x, shape) = (as_column.as_ref().unwrap_or(x), x.shape());
    let n_channels = *x.shape().get(1).unwrap_or(&0);
    let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|idx| per_channel(cx, idx, n_channels));
    let (scale, bias, mean, variance) = (scale?, bias?, mean?, variance?);
    let values = cx.floats(0)?;
    let planes = Planes::of(cx, x)?;

    // What is normalized with: the batch's own moments in training, the given ones otherwise.
    let used: Vec<(f64, f64)> = match (&planes, op.training_mode) {
        (Some(Planes { n_batches, n_channels, plane }), true) => (0..*n_channels)
            .map(|channel| {
                let planes = (0..*n_batches).map(|batch| (batch * n_channels + channel) * plane);
                moments(planes.flat_map(|start| values[start..start + plane].iter().copied()))
            })
            .collect(),
        (None, true) => vec![(f64::NAN, f64::NAN); n_channels],
        (_, false) => mean.iter().copied().zip(variance.iter().copied()).collect(),
    };
    let epsilon = f64::from(op.epsilon);
    let y = match &planes {
        Some(Planes { n_batches, n_channels, plane }) => {
            nd::fill_blocks(n_batches * n_channels, *plane, *plane, |idx, out| {
                let channel = idx % n_channels;
                let (mean, variance) = used[channel];
                let deviation = (variance + epsilon).sqrt();
                for (y, x) in out.iter_mut().zip(&values[idx * plane..]) {
                    *y = (x - mean) / deviation * scale[channel] + bias[channel];
                }
            })
        }
        None => Vec::new(),
    };
    let mut outputs = vec![Value::Tensor(Tensor::from_f64s(x.dtype(), shape, &y)?)];
    if op.training_mode {
        let momentum = f64::from(op.momentum);
        let blend = |old: &f64, new: f64| old * momentum + new * (1.0 - momentum);
        let means: Vec<f64> = mean.iter().zip(&used).map(|(old, (mean, _))| blend(old, *mean)).collect();
        let variances: Vec<f64> =
            variance.iter().zip(&used).map(|(old, (_, variance))| blend(old, *variance)).collect();
        for (idx, running) in [(3, means), (4, variances)] {
            let dtype = cx.tensor(idx)?.dtype();
            outputs.push(Value::Tensor(Tensor::from_f64s(dtype, &[n_channels], &running)?));
        }
    }
    outputs.truncate(cx.n_outputs());
    Ok(outputs)
}

pub(crate) fn instance_normalization(op: &InstanceNormalization, cx: &Evaluation<'_>) -> EvalResult {
    let n_groups = cx.tensor(0)?.shape().get(1).copied().unwrap_or(0);
    by_group(cx, n_groups, op.epsilon)
}

pub(crate) fn group_normalization(op: &GroupNormalization, cx: &Evaluation<'_>) -> EvalResult {
    match usize::try_from(op.num_groups) {
        Ok(n_groups) if n_groups >= 1 => by_group(cx, n_groups, op.epsilon),
        _ => Err(cx.bad_attribute(format!("num_groups must be at least 1, it is {}", op.num_groups))),
    }
}

/// Normalizes each group of channels of each sample, then scales and shifts by channel.
fn by_group(cx: &Evaluation<'_>, n_groups: usize, epsilon: f32) -> EvalResult {
    let x = cx.tensor(0)?;
    let planes = Planes::of(cx, x)?;
    let n_channels = x.shape()[1];
    let (scale, bias) = (per_channel(cx, 1, n_channels)?, per_channel(cx, 2, n_channels)?);
    let values = cx.floats(0)?;
    let y = match planes {
        None => Vec::new(),
        Some(_) if n_channels % n_groups != 0 => {
            return Err(
                cx.bad_attribute(format!("{n_channels} channels do not divide into {n_groups} groups"))
            );
        }
        Some(Planes { n_batches, plane, .. }) => {
            let per_group = n_channels / n_groups;
            let block = per_group * plane;
            nd::fill_blocks(n_batches * n_groups, block, 3 * block, |idx, out| {
                let members = &values[idx * block..][..block];
                let (mean, variance) = moments(members.iter().copied());
                let deviation = (variance + f64::from(epsilon)).sqrt();
                let first = idx % n_groups * per_group;
                let planes = out.chunks_mut(plane).zip(members.chunks(plane));
                for (channel, (out, members)) in (first..).zip(planes) {
                    let (scale, bias) = (scale[channel], bias[channel]);
                    for (y, x) in out.iter_mut().zip(members) {
                        *y = (x - mean) / deviation * scale + bias;
                    }
                }
            })
        }
    };
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &y)?)])
}
