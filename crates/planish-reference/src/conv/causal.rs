//! Reference: the causal depthwise convolution that carries its last inputs from call to call.

use planish_op::{CausalConvActivation, CausalConvWithState};
use planish_tensor::Tensor;

use crate::{EvalResult, Evaluation, nd};

pub(crate) fn causal_conv_with_state(op: &CausalConvWithState, cx: &Evaluation<'_>) -> EvalResult {
    let (x, w) = (cx.tensor(0)?, cx.tensor(1)?);
    let (bias, past) = (cx.optional_tensor(2)?, cx.optional_tensor(3)?);
    let inputs: Vec<&Tensor> = [Some(x), Some(w), bias, past].into_iter().flatten().collect();
    let dtype = cx.common_float(&inputs)?;
    let (&[batch, channels, len], &[w_channels, 1, n_taps]) = (x.shape(), w.shape()) else {
        return Err(cx.bad_shape(format!(
            "an input [batch,channels,length] and a weight [channels,1,taps] are needed, found {:?} and {:?}",
            x.shape(),
            w.shape()
        )));
    };
    let Some(state_len) = n_taps.checked_sub(1) else {
        return Err(cx.bad_shape("the kernel has no taps"));
    };
    let state_shape = [batch, channels, state_len];
    if w_channels != channels
        || bias.is_some_and(|bias| bias.shape() != [channels])
        || past.is_some_and(|past| past.shape() != state_shape)
    {
        return Err(cx.bad_shape(format!(
            "weight {:?}, bias or past state do not fit an input of shape {:?}",
            w.shape(),
            x.shape()
        )));
    }
    nd::result_len(cx, &state_shape)?;
    let n_rows = if x.is_empty() && state_len == 0 { 0 } else { batch * channels };
    let (weights, inputs) = (w.to_f64s(), x.to_f64s());
    let bias = bias.map(Tensor::to_f64s);
    let past = past.map_or_else(|| vec![0.0; n_rows * state_len], Tensor::to_f64s);
    // The sequence of one channel with its past in front.
    let padded = |row: usize| -> Vec<f64> {
        let (past, now) = (&past[row * state_len..][..state_len], &inputs[row * len..][..len]);
        past.iter().chain(now).copied().collect()
    };
    let out =
        nd::fill_blocks(if len == 0 { 0 } else { n_rows }, len, len.saturating_mul(n_taps), |row, out| {
            let (padded, channel) = (padded(row), row % channels);
            let taps = &weights[channel * n_taps..][..n_taps];
            let bias = bias.as_ref().map_or(0.0, |bias| bias[channel]);
            for (value, window) in out.iter_mut().zip(padded.windows(n_taps)) {
                let sum = bias + window.iter().zip(taps).map(|(x, w)| x * w).sum::<f64>();
                *value = match op.activation {
                    CausalConvActivation::None => sum,
                    CausalConvActivation::Silu | CausalConvActivation::Swish => sum / (1.0 + (-sum).exp()),
                };
            }
        });
    let state: Vec<f64> = (0..n_rows).flat_map(|row| padded(row).split_off(len)).collect();
    let mut outputs = vec![Tensor::from_f64s(dtype, x.shape(), &out)?.into()];
    if cx.n_outputs() > 1 {
        outputs.push(Tensor::from_f64s(dtype, &state_shape, &state)?.into());
    }
    Ok(outputs)
}
