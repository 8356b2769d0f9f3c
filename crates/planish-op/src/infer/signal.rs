//! Inference: transforms and windows.

use planish_tensor::{DType, Dim, Shape};

use crate::{BlackmanWindow, DFT, HammingWindow, HannWindow, MelWeightMatrix, STFT};

use super::{InferError, InferResult, Inference, Inferred};

/// An input that is one integer.
enum Scalar {
    Absent,
    Unknown,
    Known(Dim),
}

fn scalar(cx: &Inference<'_>, idx: usize) -> Result<Scalar, InferError> {
    let Some(ty) = cx.optional_tensor(idx)? else { return Ok(Scalar::Absent) };
    if !ty.dtype.is_int() {
        return Err(cx.bad_type(format!("input {idx} must be an integer, it is {}", ty.dtype)));
    }
    match cx.ints(idx).map(|ints| ints.dims) {
        None => Ok(Scalar::Unknown),
        Some(dims) => match dims.as_slice() {
            [value] => Ok(Scalar::Known(value.clone())),
            _ => Err(cx.bad_shape(format!("input {idx} must be one number, it has {}", dims.len()))),
        },
    }
}

/// A required input that is one integer; `None` if it is not known.
fn required_scalar(cx: &Inference<'_>, idx: usize) -> Result<Option<Dim>, InferError> {
    cx.tensor(idx)?;
    Ok(match scalar(cx, idx)? {
        Scalar::Known(value) => Some(value),
        Scalar::Absent | Scalar::Unknown => None,
    })
}

/// A length that must be at least `least` where it is a number.
fn check_at_least(cx: &Inference<'_>, len: &Dim, least: i64, what: &str) -> Result<(), InferError> {
    match len.as_const() {
        Some(value) if value < least => {
            Err(cx.bad_shape(format!("{what} must be at least {least}, it is {value}")))
        }
        _ => Ok(()),
    }
}

fn check_float(cx: &Inference<'_>, idx: usize) -> Result<DType, InferError> {
    let dtype = cx.dtype(idx)?;
    if !dtype.is_float() {
        return Err(cx.bad_type(format!("a signal must be of a floating-point type, not {dtype}")));
    }
    Ok(dtype)
}

pub(super) fn dft(op: &DFT, cx: &mut Inference<'_>) -> InferResult {
    let dtype = check_float(cx, 0)?;
    let length = scalar(cx, 1)?;
    let axis = scalar(cx, 2)?;
    let Some(shape) = cx.shape(0)? else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    let rank = shape.rank();
    if rank < 2 {
        return Err(cx.bad_shape(format!("a signal needs an axis and real and imaginary parts, not {shape}")));
    }
    match shape[rank - 1].as_const() {
        Some(2) if op.onesided && !op.inverse => {
            return Err(cx.bad_shape("the one-sided transform takes a real signal (last dimension 1)"));
        }
        Some(1) if op.onesided && op.inverse => {
            return Err(cx.bad_shape("the one-sided inverse takes a complex spectrum (last dimension 2)"));
        }
        None | Some(1 | 2) => {}
        Some(other) => {
            return Err(cx.bad_shape(format!(
                "the last dimension is 1 (real) or 2 (real and imaginary), not {other}"
            )));
        }
    }
    let mut dims = shape.dims().to_vec();
    dims[rank - 1] = if op.onesided && op.inverse { Dim::ONE } else { Dim::from(2) };
    let axis = match axis {
        Scalar::Absent => Some(rank - 2),
        Scalar::Known(axis) => axis.as_const().map(|axis| cx.axis(axis, rank)).transpose()?,
        Scalar::Unknown => None,
    };
    let Some(axis) = axis else {
        // Any axis but the last may have changed.
        dims[..rank - 1].fill_with(|| cx.fresh_dim("dft"));
        return Ok(vec![Inferred::tensor(dtype, Shape::new(dims))]);
    };
    if axis == rank - 1 {
        return Err(cx.bad_attribute("the last axis holds real and imaginary parts, it is not transformed"));
    }
    let length = match length {
        Scalar::Known(length) => length,
        Scalar::Unknown => cx.fresh_dim("dft_length"),
        Scalar::Absent if op.onesided && op.inverse => (shape[axis].clone() - 1) * 2,
        Scalar::Absent => shape[axis].clone(),
    };
    check_at_least(cx, &length, 1, "the length of the transform")?;
    dims[axis] = if op.onesided && !op.inverse { half_spectrum(&length) } else { length };
    Ok(vec![Inferred::tensor(dtype, Shape::new(dims))])
}

/// The number of bins that a real signal of this length determines.
fn half_spectrum(length: &Dim) -> Dim {
    length.floor_div(&Dim::from(2)) + 1
}

pub(super) fn stft(op: &STFT, cx: &mut Inference<'_>) -> InferResult {
    let dtype = check_float(cx, 0)?;
    let step = required_scalar(cx, 1)?;
    let frame_length = scalar(cx, 3)?;
    let window = match cx.has_input(2) {
        true => cx.shape_of_rank(2, 1)?.map(|window| window[0].clone()),
        false => None,
    };
    let signal = cx.shape_of_rank(0, 3)?;
    if let Some(parts @ (..=0 | 3..)) = signal.and_then(|signal| signal[2].as_const()) {
        return Err(cx.bad_shape(format!("the last dimension of the signal is 1 or 2, not {parts}")));
    }
    let length = match (frame_length, window) {
        (Scalar::Known(length), Some(window)) => {
            if let (Some(frame), Some(window)) = (length.as_const(), window.as_const())
                && frame != window
            {
                return Err(cx.bad_shape(format!("the window has {window} points, a frame {frame}")));
            }
            Some(if length.as_const().is_some() { length } else { window })
        }
        (Scalar::Known(length), None) => Some(length),
        (_, Some(window)) => Some(window),
        (Scalar::Unknown, None) => None,
        (Scalar::Absent, None) if cx.has_input(2) => None,
        (Scalar::Absent, None) => signal.map(|signal| signal[1].clone()),
    };
    if let Some(length) = &length {
        check_at_least(cx, length, 1, "the frame length")?;
    }
    if let Some(step) = &step {
        check_at_least(cx, step, 1, "the step between frames")?;
    }
    let frames = match (signal, &length, step) {
        (Some(signal), Some(length), Some(step)) => {
            let spare = signal[1].clone() - length.clone();
            check_at_least(cx, &spare, 0, "the signal's length beyond one frame")?;
            Some(spare.floor_div(&step) + 1).filter(|frames| !frames.is_unknown())
        }
        _ => None,
    };
    let bins = length.map(|length| if op.onesided { half_spectrum(&length) } else { length });
    let dims = [
        signal.map_or_else(|| cx.fresh_dim("batch"), |signal| signal[0].clone()),
        frames.unwrap_or_else(|| cx.fresh_dim("frames")),
        bins.unwrap_or_else(|| cx.fresh_dim("bins")),
        Dim::from(2),
    ];
    Ok(vec![Inferred::tensor(dtype, dims.into_iter().collect())])
}

fn window(dtype: DType, cx: &mut Inference<'_>) -> InferResult {
    if dtype == DType::Bool {
        return Err(cx.bad_type("a window holds numbers, not booleans"));
    }
    let size = match required_scalar(cx, 0)? {
        Some(size) => {
            check_at_least(cx, &size, 0, "the size of a window")?;
            size
        }
        None => cx.fresh_dim("window"),
    };
    Ok(vec![Inferred::tensor(dtype, [size].into_iter().collect())])
}

pub(super) fn blackman_window(op: &BlackmanWindow, cx: &mut Inference<'_>) -> InferResult {
    window(op.output_datatype, cx)
}

pub(super) fn hamming_window(op: &HammingWindow, cx: &mut Inference<'_>) -> InferResult {
    window(op.output_datatype, cx)
}

pub(super) fn hann_window(op: &HannWindow, cx: &mut Inference<'_>) -> InferResult {
    window(op.output_datatype, cx)
}

pub(super) fn mel_weight_matrix(op: &MelWeightMatrix, cx: &mut Inference<'_>) -> InferResult {
    if op.output_datatype == DType::Bool {
        return Err(cx.bad_type("weights are numbers, not booleans"));
    }
    let number = |idx, what: &str, least| {
        let value = required_scalar(cx, idx)?;
        value.iter().try_for_each(|value| check_at_least(cx, value, least, what))?;
        Ok(value)
    };
    let bands = number(0, "the number of mel bands", 0)?;
    let length = number(1, "the length of the transform", 1)?;
    number(2, "the sample rate", 1)?;
    for idx in [3, 4] {
        check_float(cx, idx)?;
    }
    let dims = [
        length.as_ref().map_or_else(|| cx.fresh_dim("bins"), half_spectrum),
        bands.unwrap_or_else(|| cx.fresh_dim("bands")),
    ];
    Ok(vec![Inferred::tensor(op.output_datatype, dims.into_iter().collect())])
}

#[cfg(test)]
mod tests {
    use planish_tensor::Tensor;

    use super::super::InferErrorKind::{BadAttribute, BadShape, BadType, MissingInput};
    use super::super::testing::{ABSENT, constant, ints, of, output};
    use super::*;

    fn int(value: i64) -> super::super::testing::Input {
        constant(Tensor::scalar(value))
    }

    const FORWARD: DFT = DFT { inverse: false, onesided: false };
    const REAL: DFT = DFT { inverse: false, onesided: true };
    const REAL_INVERSE: DFT = DFT { inverse: true, onesided: true };

    #[test]
    fn dft_changes_one_axis_and_the_parts() {
        let signal = || of("f32[b,n,1]");
        assert_eq!(output(FORWARD, &[signal()]).unwrap(), "f32[b,n,2]");
        assert_eq!(output(REAL, &[signal()]).unwrap(), "f32[b,floordiv(n,2)+1,2]");
        assert_eq!(output(REAL, &[signal(), int(17)]).unwrap(), "f32[b,9,2]");
        assert_eq!(output(FORWARD, &[signal(), int(16), int(0)]).unwrap(), "f32[16,n,2]");
        assert_eq!(output(FORWARD, &[signal(), ABSENT, int(-3)]).unwrap(), "f32[b,n,2]");
        assert_eq!(output(REAL_INVERSE, &[of("f32[b,m,2]")]).unwrap(), "f32[b,2*m-2,1]");
        assert_eq!(output(REAL_INVERSE, &[of("f32[1,5,2]"), int(9)]).unwrap(), "f32[1,9,1]");
        assert_eq!(output(FORWARD, &[signal(), of("i64[]")]).unwrap(), "f32[b,dft_length0,2]");
        assert_eq!(output(FORWARD, &[signal(), ABSENT, of("i64[]")]).unwrap(), "f32[dft0,dft1,2]");
        assert_eq!(output(FORWARD, &[of("bf16[*]")]).unwrap(), "bf16[*]");
    }

    #[test]
    fn dft_refuses_what_it_cannot_transform() {
        assert_eq!(output(REAL, &[of("f32[1,8,2]")]), Err(BadShape));
        assert_eq!(output(REAL_INVERSE, &[of("f32[1,8,1]")]), Err(BadShape));
        assert_eq!(output(FORWARD, &[of("f32[1,8,3]")]), Err(BadShape));
        assert_eq!(output(FORWARD, &[of("f32[8]")]), Err(BadShape));
        assert_eq!(output(FORWARD, &[of("i32[1,8,1]")]), Err(BadType));
        assert_eq!(output(FORWARD, &[of("f32[1,8,1]"), int(0)]), Err(BadShape));
        assert_eq!(output(REAL_INVERSE, &[of("f32[1,1,2]")]), Err(BadShape));
        assert_eq!(output(FORWARD, &[of("f32[1,8,1]"), ABSENT, int(-1)]), Err(BadAttribute));
        assert_eq!(output(FORWARD, &[of("f32[1,8,1]"), ABSENT, int(i64::MIN)]), Err(BadAttribute));
        assert_eq!(output(FORWARD, &[of("f32[1,8,1]"), ints(&["1", "2"])]), Err(BadShape));
        assert_eq!(output(FORWARD, &[]), Err(MissingInput));
    }

    #[test]
    fn stft_counts_frames() {
        let op = STFT { onesided: true };
        assert_eq!(
            output(op.clone(), &[of("f32[1,128,1]"), int(8), ABSENT, int(16)]).unwrap(),
            "f32[1,15,9,2]"
        );
        assert_eq!(
            output(op.clone(), &[of("f32[1,128,1]"), int(8), of("f32[16]")]).unwrap(),
            "f32[1,15,9,2]"
        );
        assert_eq!(
            output(STFT { onesided: false }, &[of("f32[b,n,2]"), int(8), ABSENT, int(16)]).unwrap(),
            "f32[b,floordiv(n,8)-1,16,2]"
        );
        assert_eq!(output(op.clone(), &[of("f32[*]"), of("i64[]")]).unwrap(), "f32[batch0,frames1,bins2,2]");
        assert_eq!(output(op.clone(), &[of("f32[1,8,1]"), int(0), ABSENT, int(4)]), Err(BadShape));
        assert_eq!(output(op.clone(), &[of("f32[1,8,1]"), int(1), ABSENT, int(9)]), Err(BadShape));
        assert_eq!(output(op, &[of("f32[1,8,1]"), int(1), of("f32[4]"), int(5)]), Err(BadShape));
    }

    #[test]
    fn windows_and_mel_weights_take_their_sizes_from_contents() {
        let hann = HannWindow { periodic: true, output_datatype: DType::F16 };
        assert_eq!(output(hann.clone(), &[int(10)]).unwrap(), "f16[10]");
        assert_eq!(output(hann.clone(), &[ints(&["n"])]).unwrap(), "f16[n]");
        assert_eq!(output(hann.clone(), &[of("i32[]")]).unwrap(), "f16[window0]");
        assert_eq!(output(hann.clone(), &[int(-1)]), Err(BadShape));
        assert_eq!(output(hann, &[of("f32[]")]), Err(BadType));
        let mel = MelWeightMatrix { output_datatype: DType::F32 };
        let edge = || of("f32[]");
        assert_eq!(output(mel.clone(), &[int(8), int(16), int(8192), edge(), edge()]).unwrap(), "f32[9,8]");
        assert_eq!(output(mel, &[int(8), int(16), int(0), edge(), edge()]), Err(BadShape));
        assert_eq!(
            output(MelWeightMatrix { output_datatype: DType::F32 }, &[int(8), int(16)]),
            Err(MissingInput)
        );
    }
}
