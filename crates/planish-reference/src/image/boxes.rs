//! Boxes on images: crops that are resized, and the suppression of boxes that overlap.

use std::cmp::Ordering;

use planish_op::{CropAndResize, CropAndResizeMode, NonMaxSuppression};
use planish_tensor::Tensor;

use super::taps::cropped_coordinate;
use crate::{EvalErrorKind, EvalResult, Evaluation, nd};

pub(crate) fn crop_and_resize(op: &CropAndResize, cx: &Evaluation<'_>) -> EvalResult {
    let (input, boxes) = (cx.tensor(0)?, cx.tensor(1)?);
    let (batch_indices, crop) = (cx.ints(2)?, cx.ints(3)?);
    if !input.dtype().is_float() {
        return Err(cx.bad_type(input.dtype()));
    }
    let &[n_images, n_channels, height, width] = input.shape() else {
        return Err(cx.bad_shape(format!("images have the shape [N,C,H,W], not {:?}", input.shape())));
    };
    let n_boxes = batch_indices.len();
    if boxes.shape() != [n_boxes, 4] {
        return Err(cx.bad_shape(format!("boxes {:?} do not fit {n_boxes} batch indices", boxes.shape())));
    }
    let (crop_height, crop_width) = match crop.as_slice() {
        &[crop_height, crop_width] => match (usize::try_from(crop_height), usize::try_from(crop_width)) {
            (Ok(crop_height), Ok(crop_width)) => (crop_height, crop_width),
            _ => return Err(cx.error(EvalErrorKind::BadValue, "a crop size cannot be negative")),
        },
        _ => return Err(cx.bad_shape("the crop size must be two numbers, height and width")),
    };
    let in_range = |&idx: &i64| usize::try_from(idx).is_ok_and(|idx| idx < n_images);
    if let Some(idx) = batch_indices.iter().find(|idx| !in_range(idx)) {
        let detail = format!("batch index {idx} is outside of {n_images} images");
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    let shape = [n_boxes, n_channels, crop_height, crop_width];
    if nd::result_len(cx, &shape)? == 0 {
        return Ok(vec![Tensor::zeros(input.dtype(), &shape)?.into()]);
    }
    let (images, boxes) = (input.to_f64s(), boxes.to_f64s());
    let extrapolation = f64::from(op.extrapolation_value);
    let n_rows = n_boxes * n_channels * crop_height;
    let values = nd::fill_blocks(n_rows, crop_width, crop_width.saturating_mul(16), |row, out| {
        let (plane, y) = (row / crop_height, row % crop_height);
        let (crop, channel) = (plane / n_channels, plane % n_channels);
        let [y_start, x_start, y_end, x_end] = [0, 1, 2, 3].map(|place| boxes[4 * crop + place]);
        let image = (batch_indices[crop] as usize * n_channels + channel) * height * width;
        let at_y = inside(cropped_coordinate(y as f64, crop_height, height, (y_start, y_end)), height);
        for (x, out) in out.iter_mut().enumerate() {
            let at_x = inside(cropped_coordinate(x as f64, crop_width, width, (x_start, x_end)), width);
            let pixel = |y: f64, x: f64| images[image + y as usize * width + x as usize];
            *out = match (at_y, at_x, op.mode) {
                (Some(y), Some(x), CropAndResizeMode::Bilinear) => {
                    let lerp = |a: f64, b: f64, at: f64| a + (b - a) * (at - at.floor());
                    let top = lerp(pixel(y.floor(), x.floor()), pixel(y.floor(), x.ceil()), x);
                    let bottom = lerp(pixel(y.ceil(), x.floor()), pixel(y.ceil(), x.ceil()), x);
                    lerp(top, bottom, y)
                }
                // Through f32, so that a half that was meant is one; halves go away from zero.
                (Some(y), Some(x), CropAndResizeMode::Nearest) => {
                    pixel(f64::from((y as f32).round()), f64::from((x as f32).round()))
                }
                _ => extrapolation,
            };
        }
    });
    Ok(vec![Tensor::from_f64s(input.dtype(), &shape, &values)?.into()])
}

/// The coordinate, if it lies between the centres of the first and the last pixel.
fn inside(at: f64, len: usize) -> Option<f64> {
    (at >= 0.0 && at <= len as f64 - 1.0).then_some(at)
}

pub(crate) fn non_max_suppression(op: &NonMaxSuppression, cx: &Evaluation<'_>) -> EvalResult {
    let (boxes, scores) = (cx.tensor(0)?, cx.tensor(1)?);
    for tensor in [boxes, scores] {
        if !tensor.dtype().is_float() {
            return Err(cx.bad_type(tensor.dtype()));
        }
    }
    let fits = match (boxes.shape(), scores.shape()) {
        (&[n_batches, n_boxes, 4], &[batches, n_classes, scored])
            if n_batches == batches && n_boxes == scored =>
        {
            Some((n_batches, n_boxes, n_classes))
        }
        _ => None,
    };
    let Some((n_batches, n_boxes, n_classes)) = fits else {
        let (boxes, scores) = (boxes.shape(), scores.shape());
        let detail = format!("boxes {boxes:?} and scores {scores:?} are not [N,B,4] and [N,C,B]");
        return Err(cx.bad_shape(detail));
    };
    let limit = cx.optional_tensor(2)?.and_then(|limit| limit.to_i64s().first().copied()).unwrap_or(0);
    let limit = usize::try_from(limit).unwrap_or(0);
    let threshold = |idx| {
        let first = |tensor: &Tensor| tensor.to_f64s().first().map(|&value| value as f32);
        cx.optional_tensor(idx).map(|tensor| tensor.and_then(first))
    };
    let iou_threshold = threshold(3)?.unwrap_or(0.0);
    if !(0.0..=1.0).contains(&iou_threshold) {
        let detail = format!("iou_threshold must lie in [0, 1], it is {iou_threshold}");
        return Err(cx.error(EvalErrorKind::BadValue, detail));
    }
    let score_threshold = threshold(4)?;
    let boxes: Vec<Area> = boxes
        .to_f64s()
        .chunks_exact(4)
        .map(|corners| Area::new([0, 1, 2, 3].map(|idx| corners[idx] as f32), op.center_point_box))
        .collect();
    let scores: Vec<f32> = scores.to_f64s().into_iter().map(|score| score as f32).collect();

    let mut selected: Vec<i64> = Vec::new();
    for (idx, scores) in scores.chunks(n_boxes.max(1)).enumerate().take(n_batches * n_classes) {
        let (batch, class) = (idx / n_classes, idx % n_classes);
        let boxes = &boxes[batch * n_boxes..][..n_boxes];
        let mut candidates: Vec<usize> = (0..n_boxes)
            .filter(|&candidate| score_threshold.is_none_or(|threshold| scores[candidate] > threshold))
            .collect();
        // Best score first; equal scores in the order of the boxes.
        candidates.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap_or(Ordering::Equal));
        let mut kept: Vec<usize> = Vec::new();
        for candidate in candidates {
            if kept.len() >= limit {
                break;
            }
            if kept.iter().all(|&other| !boxes[candidate].overlaps(&boxes[other], iou_threshold)) {
                kept.push(candidate);
                selected.extend([batch as i64, class as i64, candidate as i64]);
            }
        }
    }
    Ok(vec![Tensor::new(&[selected.len() / 3, 3], selected)?.into()])
}

/// A box by its edges. All of this is arithmetic on `f32`, as boxes and thresholds are: an overlap that
/// equals the threshold in `f32` must not exceed it for reasons of precision.
#[derive(Clone, Copy, Debug)]
struct Area {
    x: (f32, f32),
    y: (f32, f32),
}

impl Area {
    /// From two opposite corners `[y1, x1, y2, x2]`, or `[x, y, width, height]` around a centre.
    fn new(numbers: [f32; 4], is_centered: bool) -> Area {
        let [a, b, c, d] = numbers;
        if is_centered {
            let (half_width, half_height) = (c / 2.0, d / 2.0);
            Area { x: (a - half_width, a + half_width), y: (b - half_height, b + half_height) }
        } else {
            let ordered = |from: f32, to: f32| if from <= to { (from, to) } else { (to, from) };
            Area { x: ordered(b, d), y: ordered(a, c) }
        }
    }

    fn size(&self) -> f32 {
        (self.x.1 - self.x.0) * (self.y.1 - self.y.0)
    }

    /// Whether intersection over union is above the threshold.
    fn overlaps(&self, other: &Area, threshold: f32) -> bool {
        let width = self.x.1.min(other.x.1) - self.x.0.max(other.x.0);
        let height = self.y.1.min(other.y.1) - self.y.0.max(other.y.0);
        if width <= 0.0 || height <= 0.0 {
            return false;
        }
        let intersection = width * height;
        let union = self.size() + other.size() - intersection;
        intersection > 0.0
            && self.size() > 0.0
            && other.size() > 0.0
            && union > 0.0
            && intersection / union > threshold
    }
}
