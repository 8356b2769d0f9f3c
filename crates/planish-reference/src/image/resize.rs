//! Resize: one axis after the other, each output point a weighted sum of input points along that axis.

use planish_op::resize::{LengthRatio, ResizeScale, scaled_len};
use planish_op::{Resize, ResizeAspectPolicy, ResizeCoordinates, ResizeMode};
use planish_tensor::Tensor;

use super::taps::{Axis, Taps};
use crate::cells;
use crate::{EvalError, EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn resize(op: &Resize, cx: &Evaluation<'_>) -> EvalResult {
    let input = cx.tensor(0)?;
    if op.antialias && op.mode == ResizeMode::Nearest {
        return Err(cx.bad_attribute("antialias is for the modes linear and cubic"));
    }
    let axes = axes(op, cx, input)?;
    let shape: Vec<usize> = axes.iter().map(|axis| axis.to_len).collect();
    if nd::result_len(cx, &shape)? == 0 {
        return Ok(vec![Tensor::zeros(input.dtype(), &shape)?.into()]);
    }
    let output = match op.mode {
        ResizeMode::Nearest => nearest(op, cx, input, &axes)?,
        ResizeMode::Linear | ResizeMode::Cubic => interpolated(op, input, &axes, &shape)?,
    };
    Ok(vec![output.into()])
}

/// What happens to each axis of the input.
fn axes(op: &Resize, cx: &Evaluation<'_>, input: &Tensor) -> Result<Vec<Axis>, EvalError> {
    let rank = input.rank();
    let resized = match &op.axes {
        Some(axes) => cx.distinct_axes(axes, rank)?,
        None => (0..rank).collect(),
    };
    let mut axes: Vec<Axis> = input
        .shape()
        .iter()
        .map(|&len| Axis {
            from_len: len,
            to_len: len,
            scale: ResizeScale::Ratio(LengthRatio { to: 1, from: 1 }),
            roi: (0.0, 1.0),
        })
        .collect();
    let targets = targets(op, cx, input, &resized)?;
    for (&axis, (scale, to_len)) in resized.iter().zip(targets) {
        if axes[axis].from_len == 0 && to_len != 0 {
            return Err(cx.bad_shape(format!("an axis of length 0 cannot be resized to {to_len}")));
        }
        axes[axis] = Axis { scale, to_len, ..axes[axis] };
    }
    if op.coordinate_transformation_mode == ResizeCoordinates::TfCropAndResize {
        let roi = cx.tensor(1)?.to_f64s();
        if roi.len() != 2 * resized.len() {
            let detail =
                format!("`roi` has {} numbers for {} axes, two each are needed", roi.len(), resized.len());
            return Err(cx.bad_shape(detail));
        }
        for (idx, &axis) in resized.iter().enumerate() {
            axes[axis].roi = (roi[idx], roi[resized.len() + idx]);
        }
    }
    Ok(axes)
}

/// The scale and the new length of each resized axis.
fn targets(
    op: &Resize,
    cx: &Evaluation<'_>,
    input: &Tensor,
    resized: &[usize],
) -> Result<Vec<(ResizeScale, usize)>, EvalError> {
    let given = |idx| cx.optional_tensor(idx).map(|tensor| tensor.filter(|tensor| !tensor.is_empty()));
    let lens = resized.iter().map(|&axis| input.shape()[axis]);
    let wrong_count = |name: &str, count: usize| {
        cx.bad_shape(format!("{count} `{name}` for {} axes; there must be one per axis", resized.len()))
    };
    match (given(2)?, given(3)?) {
        (Some(_), Some(_)) => Err(cx.bad_shape("only one of the inputs `scales` and `sizes` may be given")),
        // Nothing to resize needs nothing to resize by.
        (None, None) if resized.is_empty() => Ok(Vec::new()),
        (None, None) => Err(cx.bad_shape("one of the inputs `scales` and `sizes` must be given")),
        (Some(scales), None) => {
            let scales = scales.to_f64s();
            if scales.len() != resized.len() {
                return Err(wrong_count("scales", scales.len()));
            }
            let target = |(scale, len)| {
                let known = ResizeScale::from_f32(scale as f32).ok_or_else(|| {
                    let detail = format!("a scale must be a positive number, not {scale}");
                    cx.error(EvalErrorKind::BadValue, detail)
                })?;
                let to_len = scaled_len(len, scale as f32).ok_or_else(|| too_long(cx))?;
                Ok((known, to_len))
            };
            scales.into_iter().zip(lens).map(target).collect()
        }
        (None, Some(sizes)) => {
            let sizes = sizes.to_i64s();
            if sizes.len() != resized.len() {
                return Err(wrong_count("sizes", sizes.len()));
            }
            let ratio = |(size, from)| match usize::try_from(size) {
                Ok(to) => Ok(LengthRatio { to, from }),
                Err(_) => Err(cx.error(EvalErrorKind::BadValue, format!("a size cannot be {size}"))),
            };
            let ratios = sizes.into_iter().zip(lens).map(ratio).collect::<Result<Vec<_>, _>>()?;
            if op.keep_aspect_ratio_policy == ResizeAspectPolicy::Stretch {
                return Ok(ratios.into_iter().map(|ratio| (ResizeScale::Ratio(ratio), ratio.to)).collect());
            }
            let kept = LengthRatio::kept(op.keep_aspect_ratio_policy, &ratios)
                .ok_or_else(|| cx.bad_shape("an axis of length 0 has no aspect ratio to keep"))?;
            let target = |ratio: LengthRatio| {
                let to_len = kept.rounded(ratio.from).ok_or_else(|| too_long(cx))?;
                Ok((ResizeScale::Ratio(kept), to_len))
            };
            ratios.into_iter().map(target).collect()
        }
    }
}

fn too_long(cx: &Evaluation<'_>) -> EvalError {
    cx.error(EvalErrorKind::TooLarge, "the resized length does not fit any memory")
}

/// Every output element is an input element, whatever its type.
fn nearest(op: &Resize, cx: &Evaluation<'_>, input: &Tensor, axes: &[Axis]) -> Result<Tensor, EvalError> {
    let strides = nd::strides(input.shape());
    let picked: Vec<cells::Axis> = axes
        .iter()
        .zip(strides)
        .map(|(axis, stride)| match axis.is_identity(op) {
            true => cells::Axis::all(axis.to_len, stride),
            false => cells::Axis::table(
                axis.nearest(op).into_iter().map(|place| place.unwrap_or(cells::NOWHERE)),
                stride,
            ),
        })
        .collect();
    let outside = Tensor::from_f64s(input.dtype(), &[], &[f64::from(op.extrapolation_value)])?;
    cells::pick(cx, input, &picked, Some(&outside))
}

fn interpolated(op: &Resize, input: &Tensor, axes: &[Axis], shape: &[usize]) -> Result<Tensor, EvalError> {
    let mut data = input.to_f64s();
    let mut lens = input.shape().to_vec();
    let mut outside: Vec<(usize, Vec<bool>)> = Vec::new();
    for (idx, axis) in axes.iter().enumerate() {
        if axis.is_identity(op) {
            continue;
        }
        let taps = axis.taps(op);
        data = along_axis(&data, &lens, idx, &taps);
        lens[idx] = taps.len();
        if taps.outside.contains(&true) {
            outside.push((idx, taps.outside));
        }
    }
    for (axis, outside) in outside {
        let inner = nd::count(&shape[axis + 1..]);
        for (idx, row) in data.chunks_mut(inner).enumerate() {
            if outside[idx % outside.len()] {
                row.fill(f64::from(op.extrapolation_value));
            }
        }
    }
    Ok(Tensor::from_f64s(input.dtype(), shape, &data)?)
}

/// The weighted sums along one axis of a tensor that is not empty.
fn along_axis(data: &[f64], shape: &[usize], axis: usize, taps: &Taps) -> Vec<f64> {
    let (outer, inner) = (nd::count(&shape[..axis]), nd::count(&shape[axis + 1..]));
    let (from_len, to_len, n_taps) = (shape[axis], taps.len(), taps.mean_count());
    if inner == 1 {
        return nd::fill_blocks(outer, to_len, to_len * n_taps, |idx, out| {
            let row = &data[idx * from_len..][..from_len];
            for (x, out) in out.iter_mut().enumerate() {
                *out = taps.of(x).iter().map(|&(place, weight)| row[place] * weight).sum();
            }
        });
    }
    nd::fill_blocks(outer * to_len, inner, inner * n_taps, |idx, out| {
        for &(place, weight) in taps.of(idx % to_len) {
            let row = &data[(idx / to_len * from_len + place) * inner..][..inner];
            for (out, value) in out.iter_mut().zip(row) {
                *out += value * weight;
            }
        }
    })
}
