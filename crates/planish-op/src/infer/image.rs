//! Inference: resampling and detection.

use planish_tensor::{DType, Dim, Shape};

use crate::resize::{LengthRatio, ResizeScale, scaled_dim};
use crate::{AffineGrid, CropAndResize, GridSample, NonMaxSuppression, Resize, ResizeAspectPolicy};

use super::checks::same_dim;
use super::{InferError, InferResult, Inference, Inferred};

/// Positions of the inputs of Resize.
const SCALES: usize = 2;
const SIZES: usize = 3;

pub(super) fn resize(op: &Resize, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    let by_sizes = match (given(cx, SCALES)?, given(cx, SIZES)?) {
        (Given::Yes, Given::Yes) => {
            return Err(cx.bad_shape("only one of the inputs `scales` and `sizes` may be given"));
        }
        (Given::No, Given::No) => {
            return Err(cx.bad_shape("one of the inputs `scales` and `sizes` must be given"));
        }
        (Given::Yes, _) | (_, Given::No) => Some(false),
        (_, Given::Yes) | (Given::No, _) => Some(true),
        // Both are there and one of them will be empty.
        (Given::Maybe, Given::Maybe) => None,
    };
    let shape = match (&input.shape, by_sizes) {
        (None, by_sizes) => unranked_resize(op, cx, by_sizes)?,
        (Some(shape), by_sizes) => {
            let axes = resized_axes(op, cx, shape.rank())?;
            let lengths = match by_sizes {
                Some(true) => lengths_by_sizes(op, cx, shape, &axes)?,
                Some(false) => lengths_by_scales(cx, shape, &axes)?,
                None => None,
            };
            let mut dims = shape.dims().to_vec();
            for (place, &axis) in axes.iter().enumerate() {
                let known = lengths.as_ref().and_then(|lengths| lengths[place].clone());
                dims[axis] = known.unwrap_or_else(|| cx.fresh_dim("resized"));
            }
            Some(Shape::new(dims))
        }
    };
    Ok(vec![Inferred::maybe_ranked(input.dtype, shape)])
}

enum Given {
    Yes,
    No,
    /// It is there, but may be empty, which means absent.
    Maybe,
}

fn given(cx: &Inference<'_>, idx: usize) -> Result<Given, InferError> {
    if !cx.has_input(idx) {
        return Ok(Given::No);
    }
    Ok(match cx.shape_of_rank(idx, 1)? {
        Some(shape) => match shape[0].as_const() {
            Some(0) => Given::No,
            Some(_) => Given::Yes,
            None => Given::Maybe,
        },
        None => Given::Maybe,
    })
}

/// Sizes for all axes give the rank away, and the number of scales does too.
fn unranked_resize(
    op: &Resize,
    cx: &mut Inference<'_>,
    by_sizes: Option<bool>,
) -> Result<Option<Shape>, InferError> {
    let Some(by_sizes) = by_sizes.filter(|_| op.axes.is_none()) else { return Ok(None) };
    if by_sizes
        && op.keep_aspect_ratio_policy == ResizeAspectPolicy::Stretch
        && let Some(sizes) = cx.ints(SIZES)
    {
        check_sizes(cx, &sizes.dims)?;
        return Ok(Some(Shape::new(sizes.dims)));
    }
    let idx = if by_sizes { SIZES } else { SCALES };
    let rank = cx.shape(idx)?.and_then(|shape| shape.get(0)?.as_usize()).filter(|&rank| rank <= MAX_RANK);
    Ok(rank.map(|rank| cx.fresh_shape(rank, "resized")))
}

/// Ranks beyond this come from hostile files.
const MAX_RANK: usize = 64;

fn resized_axes(op: &Resize, cx: &Inference<'_>, rank: usize) -> Result<Vec<usize>, InferError> {
    let Some(axes) = &op.axes else { return Ok((0..rank).collect()) };
    let axes = axes.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != axes.len() {
        return Err(cx.bad_attribute(format!("`axes` names an axis twice: {axes:?}")));
    }
    Ok(axes)
}

/// One length per axis, `None` where it is not known; `None` if none is known.
type Lengths = Option<Vec<Option<Dim>>>;

fn lengths_by_sizes(
    op: &Resize,
    cx: &Inference<'_>,
    shape: &Shape,
    axes: &[usize],
) -> Result<Lengths, InferError> {
    check_count(cx, SIZES, axes.len())?;
    let Some(sizes) = cx.ints(SIZES) else { return Ok(None) };
    check_sizes(cx, &sizes.dims)?;
    let ratios: Option<Vec<LengthRatio>> = sizes
        .dims
        .iter()
        .zip(axes)
        .map(|(size, &axis)| Some(LengthRatio { to: size.as_usize()?, from: shape[axis].as_usize()? }))
        .collect();
    if let Some(ratio) = ratios.iter().flatten().find(|ratio| ratio.from == 0 && ratio.to != 0) {
        return Err(cx.bad_shape(format!("an axis of length 0 cannot be resized to {}", ratio.to)));
    }
    if op.keep_aspect_ratio_policy == ResizeAspectPolicy::Stretch {
        return Ok(Some(sizes.dims.into_iter().map(Some).collect()));
    }
    let Some(ratios) = ratios else { return Ok(None) };
    let kept = LengthRatio::kept(op.keep_aspect_ratio_policy, &ratios)
        .ok_or_else(|| cx.bad_shape("an axis of length 0 has no aspect ratio to keep"))?;
    let lengths = ratios.iter().map(|ratio| kept.rounded(ratio.from).map(|len| Some(Dim::from(len))));
    match lengths.collect() {
        Some(lengths) => Ok(Some(lengths)),
        None => Err(cx.bad_shape("the resized length does not fit any memory")),
    }
}

fn lengths_by_scales(cx: &Inference<'_>, shape: &Shape, axes: &[usize]) -> Result<Lengths, InferError> {
    check_count(cx, SCALES, axes.len())?;
    let Some(scales) = cx.constant(SCALES) else { return Ok(None) };
    let lengths = scales.to_f64s().into_iter().zip(axes).map(|(scale, &axis)| {
        match ResizeScale::from_f32(scale as f32) {
            Some(_) => Ok(scaled_dim(&shape[axis], scale as f32)),
            None => Err(cx.bad_shape(format!("a scale must be a positive number, not {scale}"))),
        }
    });
    lengths.collect::<Result<_, _>>().map(Some)
}

/// Sizes that are numbers must not be negative.
fn check_sizes(cx: &Inference<'_>, sizes: &[Dim]) -> Result<(), InferError> {
    match sizes.iter().find(|size| size.as_const().is_some_and(|size| size < 0)) {
        Some(size) => Err(cx.bad_shape(format!("a size cannot be {size}"))),
        None => Ok(()),
    }
}

/// There must be one scale or size per axis.
fn check_count(cx: &Inference<'_>, idx: usize, n_axes: usize) -> Result<(), InferError> {
    let count = cx.shape(idx)?.and_then(|shape| shape.get(0)?.as_usize());
    match count {
        Some(count) if count != n_axes => {
            let name = if idx == SIZES { "sizes" } else { "scales" };
            Err(cx.bad_shape(format!("{count} `{name}` for {n_axes} axes; there must be one per axis")))
        }
        _ => Ok(()),
    }
}

pub(super) fn grid_sample(_op: &GridSample, cx: &mut Inference<'_>) -> InferResult {
    let input = cx.tensor(0)?;
    let grid = cx.shape(1)?;
    if !cx.dtype(1)?.is_float() {
        return Err(cx.bad_type("the grid must be of a floating-point type"));
    }
    let shape = match (&input.shape, grid) {
        (Some(x), Some(grid)) => {
            if x.rank() < 3 || x.rank() != grid.rank() {
                return Err(cx.bad_shape(format!("an image {x} cannot be sampled at the grid {grid}")));
            }
            let n_spatial = x.rank() - 2;
            same_dim(
                cx,
                "the number of coordinates per grid point",
                &grid[grid.rank() - 1],
                &Dim::from(n_spatial),
            )?;
            let batch = same_dim(cx, "the batch size", &x[0], &grid[0])?;
            let dims = [batch, x[1].clone()].into_iter().chain(grid.dims()[1..=n_spatial].iter().cloned());
            Some(dims.collect())
        }
        _ => None,
    };
    Ok(vec![Inferred::maybe_ranked(input.dtype, shape)])
}

pub(super) fn affine_grid(_op: &AffineGrid, cx: &mut Inference<'_>) -> InferResult {
    let theta = cx.tensor(0)?;
    let matrix = cx.shape_of_rank(0, 3)?;
    if !theta.dtype.is_float() {
        return Err(cx.bad_type("the matrices must be of a floating-point type"));
    }
    let sizes = cx.ints(1);
    let n_sizes = match &sizes {
        Some(sizes) => Some(sizes.dims.len()),
        None => cx.shape_of_rank(1, 1)?.and_then(|shape| shape[0].as_usize()),
    };
    let from_matrix = matrix.and_then(|matrix| matrix[1].as_usize());
    let Some(n_spatial) = n_sizes.map(|count| count.wrapping_sub(2)).or(from_matrix) else {
        return Ok(vec![Inferred::maybe_ranked(theta.dtype, None)]);
    };
    if n_spatial != 2 && n_spatial != 3 {
        return Err(cx.bad_shape("sizes are (N, C, H, W) or (N, C, D, H, W)"));
    }
    if let Some(matrix) = matrix {
        same_dim(cx, "the number of rows of a matrix", &matrix[1], &Dim::from(n_spatial))?;
        same_dim(cx, "the number of columns of a matrix", &matrix[2], &Dim::from(n_spatial + 1))?;
    }
    let dims = match sizes {
        Some(sizes) => {
            check_sizes(cx, &sizes.dims)?;
            let batch = match matrix {
                Some(matrix) => same_dim(cx, "the batch size", &sizes.dims[0], &matrix[0])?,
                None => sizes.dims[0].clone(),
            };
            [batch].into_iter().chain(sizes.dims[2..].iter().cloned()).collect()
        }
        None => {
            let batch = matrix.map_or_else(|| cx.fresh_dim("batch"), |matrix| matrix[0].clone());
            let mut dims = vec![batch];
            dims.extend((0..n_spatial).map(|_| cx.fresh_dim("grid")));
            dims
        }
    };
    let mut dims: Vec<Dim> = dims;
    dims.push(Dim::from(n_spatial));
    Ok(vec![Inferred::tensor(theta.dtype, Shape::new(dims))])
}

pub(super) fn crop_and_resize(_op: &CropAndResize, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if !dtype.is_float() {
        return Err(cx.bad_type(format!("images of type {dtype} cannot be cropped and resized")));
    }
    let image = cx.shape_of_rank(0, 4)?;
    let boxes = cx.shape_of_rank(1, 2)?;
    let batch = cx.shape_of_rank(2, 1)?;
    if let Some(boxes) = boxes {
        same_dim(cx, "the number of coordinates per box", &boxes[1], &Dim::from(4))?;
    }
    let n_boxes = match (boxes, batch) {
        (Some(boxes), Some(batch)) => Some(same_dim(cx, "the number of boxes", &boxes[0], &batch[0])?),
        (Some(dims), None) | (None, Some(dims)) => Some(dims[0].clone()),
        (None, None) => None,
    };
    let crop = match cx.ints(3) {
        Some(crop) => match crop.dims.as_slice() {
            [height, width] if !crop.is_scalar => {
                check_sizes(cx, &crop.dims)?;
                [Some(height.clone()), Some(width.clone())]
            }
            _ => return Err(cx.bad_shape("the crop size must be two numbers, height and width")),
        },
        None => {
            if let Some(shape) = cx.shape_of_rank(3, 1)? {
                same_dim(cx, "the length of the crop size", &shape[0], &Dim::from(2))?;
            }
            [None, None]
        }
    };
    let [height, width] = crop;
    let dims = [
        n_boxes.unwrap_or_else(|| cx.fresh_dim("boxes")),
        image.map_or_else(|| cx.fresh_dim("channels"), |image| image[1].clone()),
        height.unwrap_or_else(|| cx.fresh_dim("crop_height")),
        width.unwrap_or_else(|| cx.fresh_dim("crop_width")),
    ];
    Ok(vec![Inferred::tensor(dtype, dims.into_iter().collect())])
}

pub(super) fn non_max_suppression(_op: &NonMaxSuppression, cx: &mut Inference<'_>) -> InferResult {
    for idx in [0, 1] {
        let dtype = cx.dtype(idx)?;
        if !dtype.is_float() {
            return Err(cx.bad_type(format!("boxes and scores must be floats, input {idx} is {dtype}")));
        }
    }
    let boxes = cx.shape_of_rank(0, 3)?;
    let scores = cx.shape_of_rank(1, 3)?;
    if let Some(boxes) = boxes {
        same_dim(cx, "the number of coordinates per box", &boxes[2], &Dim::from(4))?;
    }
    if let (Some(boxes), Some(scores)) = (boxes, scores) {
        same_dim(cx, "the batch size", &boxes[0], &scores[0])?;
        same_dim(cx, "the number of boxes", &boxes[1], &scores[2])?;
    }
    // Without a limit, or with limit 0, nothing is selected.
    let limit =
        if cx.has_input(2) { cx.const_ints(2).and_then(|limit| limit.first().copied()) } else { Some(0) };
    let n_selected = if limit.is_some_and(|limit| limit <= 0) { Dim::ZERO } else { cx.fresh_dim("selected") };
    Ok(vec![Inferred::tensor(DType::I64, [n_selected, Dim::from(3)].into_iter().collect())])
}

#[cfg(test)]
mod tests;
