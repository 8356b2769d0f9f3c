//! DFT and STFT: which signals are transformed, and what of the spectrum is kept.

use planish_op::{DFT, STFT};
use planish_tensor::Tensor;

use super::fourier::{Complex, Fourier};
use crate::movement::single_int;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

/// An optional input that is one integer.
fn scalar(cx: &Evaluation<'_>, idx: usize) -> Result<Option<i64>, EvalError> {
    cx.optional_value(idx).map(|_| single_int(cx, idx)).transpose()
}

/// A number that must be a length of at least one.
fn positive(cx: &Evaluation<'_>, value: i64, what: &str) -> Result<usize, EvalError> {
    match usize::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(cx.error(EvalErrorKind::BadValue, format!("{what} must be positive, it is {value}"))),
    }
}

/// Complex numbers from values with one (real) or two parts each.
fn to_complex(values: &[f64], n_parts: usize) -> Vec<Complex> {
    let number = |parts: &[f64]| Complex { re: parts[0], im: parts.get(1).copied().unwrap_or(0.0) };
    values.chunks_exact(n_parts).map(number).collect()
}

/// A guess of the work of one transform, in steps.
fn transform_steps(len: usize) -> usize {
    len.saturating_mul(64)
}

pub(crate) fn dft(op: &DFT, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    if !input.dtype().is_float() {
        return Err(cx.bad_type(input.dtype()));
    }
    let rank = input.rank();
    let axis = cx.axis(scalar(cx, 2)?.unwrap_or(-2), rank)?;
    let shape = input.shape();
    if axis + 1 == rank {
        return Err(cx.bad_attribute("the last axis holds real and imaginary parts, it is not transformed"));
    }
    let n_parts = shape[rank - 1];
    match (n_parts, op.onesided, op.inverse) {
        (1, true, true) | (2, true, false) | (0 | 3.., ..) => {
            let detail = format!("{n_parts} parts a number; real signals have 1, complex ones and spectra 2");
            return Err(cx.bad_shape(detail));
        }
        _ => {}
    }
    let is_real_inverse = op.onesided && op.inverse;
    let default_len = || match is_real_inverse {
        true => shape[axis].saturating_sub(1).saturating_mul(2) as i64,
        false => shape[axis] as i64,
    };
    let len = positive(cx, scalar(cx, 1)?.unwrap_or_else(default_len), "the length of the transform")?;
    let mut out_shape = shape.to_vec();
    out_shape[axis] = if op.onesided && !op.inverse { len / 2 + 1 } else { len };
    out_shape[rank - 1] = if is_real_inverse { 1 } else { 2 };
    // The whole spectrum is made even where half is kept.
    let mut work_shape = out_shape.clone();
    (work_shape[axis], work_shape[rank - 1]) = (len, 2);
    nd::result_len(cx, &work_shape)?;
    if nd::result_len(cx, &out_shape)? == 0 {
        return Ok(vec![Tensor::zeros(input.dtype(), &out_shape)?.into()]);
    }

    let numbers = to_complex(&input.to_f64s(), n_parts);
    let (n_in, n_out) = (shape[axis], out_shape[axis]);
    let out_parts = out_shape[rank - 1];
    let inner = nd::count(&shape[axis + 1..rank - 1]);
    let n_signals = nd::count(&shape[..axis]) * inner;
    let fourier = Fourier::new(len);
    // One signal after the other; where the transformed axis is not the last, they are interleaved below.
    let spectra = nd::fill_blocks(n_signals, n_out * out_parts, transform_steps(len), |idx, out| {
        let start = idx / inner * n_in * inner + idx % inner;
        let mut signal: Vec<Complex> = (0..n_in.min(len)).map(|n| numbers[start + n * inner]).collect();
        signal.resize(len, Complex::default());
        if is_real_inverse {
            mirror(&mut signal);
        }
        let result = if op.inverse { fourier.inverse(&signal) } else { fourier.forward(&signal) };
        write_parts(&result, out_parts, out);
    });
    let values = if inner == 1 { spectra } else { interleave(&spectra, inner, n_out, out_parts) };
    Ok(vec![Tensor::from_f64s(input.dtype(), &out_shape, &values)?.into()])
}

/// Completes the lower half of a spectrum to the spectrum of a real signal: X[n-k] is the conjugate of X[k].
/// The parts of X[0] and X[n/2] that no real signal has fall away with the imaginary part of the result.
fn mirror(spectrum: &mut [Complex]) {
    let len = spectrum.len();
    for k in 1..len.div_ceil(2) {
        spectrum[len - k] = spectrum[k].conjugate();
    }
}

fn write_parts(numbers: &[Complex], n_parts: usize, out: &mut [f64]) {
    for (out, number) in out.chunks_exact_mut(n_parts).zip(numbers) {
        out[0] = number.re;
        if let Some(im) = out.get_mut(1) {
            *im = number.im;
        }
    }
}

/// From [signal][point][part] to [point][signal][part], for each group of `inner` signals.
fn interleave(values: &[f64], inner: usize, len: usize, n_parts: usize) -> Vec<f64> {
    nd::fill_blocks(values.len() / n_parts, n_parts, n_parts, |idx, out| {
        let (group, point, signal) = (idx / (len * inner), idx / inner % len, idx % inner);
        let start = ((group * inner + signal) * len + point) * n_parts;
        out.copy_from_slice(&values[start..start + n_parts]);
    })
}

pub(crate) fn stft(op: &STFT, cx: &Evaluation<'_>) -> EvalResult {
    let signal = cx.tensor(0)?;
    if !signal.dtype().is_float() {
        return Err(cx.bad_type(signal.dtype()));
    }
    let &[n_batches, signal_len, n_parts @ (1 | 2)] = signal.shape() else {
        let detail = format!("a signal has the shape [batch, length, 1 or 2], not {:?}", signal.shape());
        return Err(cx.bad_shape(detail));
    };
    let step = positive(cx, single_int(cx, 1)?, "the step between frames")?;
    let window = cx.optional_tensor(2)?;
    if let Some(window) = window.filter(|window| window.rank() != 1) {
        return Err(cx.bad_shape(format!("a window has one axis, not the shape {:?}", window.shape())));
    }
    let len = match (scalar(cx, 3)?, window) {
        (Some(len), _) => positive(cx, len, "the frame length")?,
        (None, Some(window)) => window.len(),
        (None, None) => signal_len,
    };
    if let Some(window) = window.filter(|window| window.len() != len) {
        return Err(cx.bad_shape(format!("the window has {} points, a frame {len}", window.len())));
    }
    if len == 0 || len > signal_len {
        return Err(cx.bad_shape(format!("frames of {len} points do not fit a signal of {signal_len}")));
    }
    let n_frames = (signal_len - len) / step + 1;
    let n_bins = if op.onesided { len / 2 + 1 } else { len };
    let shape = [n_batches, n_frames, n_bins, 2];
    if nd::result_len(cx, &shape)? == 0 {
        return Ok(vec![Tensor::zeros(signal.dtype(), &shape)?.into()]);
    }
    let weights = window.map(|window| window.to_f64s());
    let numbers = to_complex(&signal.to_f64s(), n_parts);
    let fourier = Fourier::new(len);
    let values = nd::fill_blocks(n_batches * n_frames, n_bins * 2, transform_steps(len), |idx, out| {
        let start = idx / n_frames * signal_len + idx % n_frames * step;
        let mut frame = numbers[start..start + len].to_vec();
        if let Some(weights) = &weights {
            frame.iter_mut().zip(weights).for_each(|(number, &weight)| *number = number.scaled(weight));
        }
        write_parts(&fourier.forward(&frame), 2, out);
    });
    Ok(vec![Tensor::from_f64s(signal.dtype(), &shape, &values)?.into()])
}
