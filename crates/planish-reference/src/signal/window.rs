//! Windows that fade a frame in and out, and the weights that gather a spectrum into mel bands.

use std::f64::consts::PI;

use planish_op::{BlackmanWindow, HammingWindow, HannWindow, MelWeightMatrix};
use planish_tensor::{DType, Tensor};

use crate::movement::single_int;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn hann_window(op: &HannWindow, cx: &Evaluation<'_>) -> EvalResult {
    window(cx, op.periodic, op.output_datatype, |turn| (PI * turn).sin().powi(2))
}

pub(crate) fn hamming_window(op: &HammingWindow, cx: &Evaluation<'_>) -> EvalResult {
    const ALPHA: f64 = 25.0 / 46.0;
    window(cx, op.periodic, op.output_datatype, |turn| ALPHA - (1.0 - ALPHA) * (2.0 * PI * turn).cos())
}

pub(crate) fn blackman_window(op: &BlackmanWindow, cx: &Evaluation<'_>) -> EvalResult {
    let value = |turn: f64| 0.42 - 0.5 * (2.0 * PI * turn).cos() + 0.08 * (4.0 * PI * turn).cos();
    window(cx, op.periodic, op.output_datatype, value)
}

/// `value` at n/N turns for each point n, where N is the size, or one less for a symmetric window. A
/// symmetric window of one point is 0/0 in ONNX too.
fn window(cx: &Evaluation<'_>, periodic: bool, dtype: DType, value: impl Fn(f64) -> f64) -> EvalResult {
    let size = required(cx, 0, "the size of a window", 0)?;
    nd::result_len(cx, &[size])?;
    let period = if periodic { size as f64 } else { size as f64 - 1.0 };
    let values = (0..size).map(|n| value(n as f64 / period)).collect();
    Ok(vec![cast(dtype, &[size], values)?.into()])
}

/// Numbers as elements of `dtype`. Integers lose the fraction, as in a Cast.
fn cast(dtype: DType, shape: &[usize], mut values: Vec<f64>) -> Result<Tensor, EvalError> {
    if dtype.is_int() {
        values.iter_mut().for_each(|value| *value = value.trunc());
    }
    Ok(Tensor::from_f64s(dtype, shape, &values)?)
}

/// A required input that is one integer of at least `least`.
fn required(cx: &Evaluation<'_>, idx: usize, what: &str, least: usize) -> Result<usize, EvalError> {
    let value = single_int(cx, idx)?;
    match usize::try_from(value) {
        Ok(value) if value >= least => Ok(value),
        _ => {
            let detail = format!("{what} must be at least {least}, it is {value}");
            Err(cx.error(EvalErrorKind::BadValue, detail))
        }
    }
}

pub(crate) fn mel_weight_matrix(op: &MelWeightMatrix, cx: &Evaluation<'_>) -> EvalResult {
    let n_bands = required(cx, 0, "the number of mel bands", 0)?;
    let len = required(cx, 1, "the length of the transform", 1)?;
    let sample_rate = required(cx, 2, "the sample rate", 1)?;
    let edge = |idx| match cx.tensor(idx)?.to_f64s().as_slice() {
        &[hertz] => Ok(hertz),
        values => Err(cx.bad_shape(format!("input {idx} must be one number, it has {}", values.len()))),
    };
    let (lower, upper) = (edge(3)?, edge(4)?);
    let n_bins = len / 2 + 1;
    let shape = [n_bins, n_bands];
    nd::result_len(cx, &shape)?;
    nd::result_len(cx, &[n_bands.saturating_add(2)])?;

    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(upper) - mel(lower)) / (n_bands as f64 + 2.0);
    // The spectrum bin that point `n` of the bands, evenly spaced in mel, falls into.
    let bin = |n: usize| {
        let hertz = 700.0 * (10f64.powf((mel(lower) + n as f64 * step) / 2595.0) - 1.0);
        let bin = ((len as f64 + 1.0) * hertz / sample_rate as f64).floor();
        if bin >= 0.0 && bin <= n_bins as f64 {
            return Ok(bin as usize);
        }
        let detail = format!("{lower} Hz to {upper} Hz reach beyond the {n_bins} bins of the spectrum");
        Err(cx.error(EvalErrorKind::BadValue, detail))
    };
    let mut weights = vec![0.0; n_bins * n_bands];
    for band in 0..n_bands {
        let (low, center, high) = (bin(band)?, bin(band + 1)?, bin(band + 2)?);
        if center >= n_bins {
            let detail = format!("the centre of band {band} lies beyond the {n_bins} bins of the spectrum");
            return Err(cx.error(EvalErrorKind::BadValue, detail));
        }
        if low == center {
            weights[center * n_bands + band] = 1.0;
        } else {
            for bin in low..=center {
                weights[bin * n_bands + band] = (bin - low) as f64 / (center - low) as f64;
            }
        }
        for bin in center..high {
            weights[bin * n_bands + band] = (high - bin) as f64 / (high - center) as f64;
        }
    }
    Ok(vec![cast(op.output_datatype, &shape, weights)?.into()])
}
