//! Reference: convolutions.

mod causal;
mod convolution;
mod deform;
#[cfg(test)]
mod tests;
mod transpose;

pub(crate) use causal::causal_conv_with_state;
pub(crate) use convolution::Convolution;
pub(crate) use deform::deform_conv;
pub(crate) use transpose::{col2im, conv_transpose};

use planish_op::Conv;
use planish_tensor::Tensor;

use crate::{EvalError, EvalResult, Evaluation};

pub(crate) fn conv(op: &Conv, cx: &Evaluation<'_>) -> EvalResult {
    let (x, w, bias) = (cx.tensor(0)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    let inputs: Vec<&Tensor> = [Some(x), Some(w), bias].into_iter().flatten().collect();
    let dtype = cx.common_float(&inputs)?;
    let convolution = Convolution::new(cx, x.shape(), w.shape(), &op.window(), op.group)?;
    let mut out = convolution.compute(&x.to_f64s(), &w.to_f64s());
    let shape = convolution.shape();
    add_bias(cx, bias, &shape, &mut out)?;
    Ok(vec![Tensor::from_f64s(dtype, &shape, &out)?.into()])
}

/// Adds the bias of each channel (axis 1) of a result.
fn add_bias(
    cx: &Evaluation<'_>,
    bias: Option<&Tensor>,
    shape: &[usize],
    out: &mut [f64],
) -> Result<(), EvalError> {
    let Some(bias) = bias else { return Ok(()) };
    if bias.shape() != &shape[1..2] {
        return Err(cx.bad_shape(format!("a bias of shape {:?} does not fit {shape:?}", bias.shape())));
    }
    let bias = bias.to_f64s();
    if out.is_empty() {
        return Ok(());
    }
    let plane = out.len() / (shape[0] * shape[1]);
    for (values, bias) in out.chunks_exact_mut(plane).zip(bias.iter().cycle()) {
        values.iter_mut().for_each(|value| *value += bias);
    }
    Ok(())
}

/// A group count as a number of groups.
fn check_group(cx: &Evaluation<'_>, name: &str, group: i64) -> Result<usize, EvalError> {
    let groups = usize::try_from(group).ok().filter(|groups| *groups >= 1);
    groups.ok_or_else(|| cx.bad_attribute(format!("{name} must be at least 1, found {group}")))
}

/// Batch, channels and spatial sizes, of which there must be at least one.
pub(crate) fn image_shape<'a>(
    cx: &Evaluation<'_>,
    shape: &'a [usize],
) -> Result<(usize, usize, &'a [usize]), EvalError> {
    match shape {
        [batch, channels, spatial @ ..] if !spatial.is_empty() => Ok((*batch, *channels, spatial)),
        _ => Err(cx.bad_shape(format!(
            "batch, channels and at least one spatial axis are needed, the shape is {shape:?}"
        ))),
    }
}
