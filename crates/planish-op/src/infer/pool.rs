//! Inference: pooling and regions of interest.

use planish_tensor::{DType, Dim, Shape};

use crate::window::WindowAttributes;
use crate::{
    AveragePool, GlobalAveragePool, GlobalLpPool, GlobalMaxPool, LpPool, MaxPool, MaxRoiPool, MaxUnpool,
    RoiAlign,
};

use super::checks::{self, common_type, differ};
use super::conv::image;
use super::{InferError, InferResult, Inference, Inferred};

pub(super) fn average_pool(op: &AveragePool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    Ok(vec![Inferred::maybe_ranked(dtype, pooled_shape(cx, &op.window())?)])
}

pub(super) fn max_pool(op: &MaxPool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, has_maximum)?;
    if !matches!(op.storage_order, 0 | 1) {
        return Err(cx.bad_attribute(format!("storage_order is 0 or 1, found {}", op.storage_order)));
    }
    let shape = pooled_shape(cx, &op.window())?;
    checks::outputs(
        cx,
        vec![Inferred::maybe_ranked(dtype, shape.clone()), Inferred::maybe_ranked(DType::I64, shape)],
    )
}

pub(super) fn lp_pool(op: &LpPool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    check_power(cx, op.p)?;
    Ok(vec![Inferred::maybe_ranked(dtype, pooled_shape(cx, &op.window())?)])
}

pub(super) fn global_average_pool(_op: &GlobalAveragePool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    Ok(vec![Inferred::maybe_ranked(dtype, global_shape(cx)?)])
}

pub(super) fn global_max_pool(_op: &GlobalMaxPool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, has_maximum)?;
    Ok(vec![Inferred::maybe_ranked(dtype, global_shape(cx)?)])
}

pub(super) fn global_lp_pool(op: &GlobalLpPool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, DType::is_wide_float)?;
    check_power(cx, op.p)?;
    Ok(vec![Inferred::maybe_ranked(dtype, global_shape(cx)?)])
}

pub(super) fn max_unpool(op: &MaxUnpool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 1, has_maximum)?;
    checks::index(cx, 1)?;
    if let (Some(x), Some(indices)) = (cx.shape(0)?, cx.shape(1)?)
        && (x.rank() != indices.rank() || x.iter().zip(indices).any(|(a, b)| differ(a, b)))
    {
        return Err(cx.bad_shape(format!("indices of shape {indices} do not fit values of shape {x}")));
    }
    let attributes = op.window();
    let axes =
        attributes.transposed_axes(&attributes.kernel(), &[], None).map_err(|error| cx.bad_window(error))?;
    let rank = axes.len() + 2;
    let x = image(cx, 0)?;
    if x.is_some_and(|(_, _, spatial)| spatial.len() != axes.len()) {
        return Err(cx.bad_attribute(format!("kernel_shape has {} entries, another rank", axes.len())));
    }
    if cx.has_input(2) {
        checks::index(cx, 2)?;
        if cx.shape_of_rank(2, 1)?.is_some_and(|shape| differ(&shape[0], &Dim::from(rank))) {
            return Err(cx.bad_shape(format!("output_shape needs {rank} entries")));
        }
        let shape = match cx.ints(2) {
            Some(ints) if ints.dims.iter().any(|dim| dim.as_const().is_some_and(|size| size < 0)) => {
                return Err(cx.bad_shape("output_shape has a negative entry"));
            }
            Some(ints) => Shape::new(ints.dims),
            None => cx.fresh_shape(rank, "unpooled"),
        };
        return Ok(vec![Inferred::tensor(dtype, shape)]);
    }
    let Some((batch, channels, spatial)) = x else {
        return Ok(vec![Inferred::maybe_ranked(dtype, None)]);
    };
    let mut dims = vec![batch.clone(), channels.clone()];
    for (axis, input) in axes.iter().zip(spatial) {
        dims.push(axis.output(input).map_err(|error| cx.bad_window(error))?);
    }
    Ok(vec![Inferred::tensor(dtype, dims.into())])
}

pub(super) fn max_roi_pool(op: &MaxRoiPool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 2, DType::is_wide_float)?;
    let [height, width] = op.pooled_shape[..] else {
        return Err(
            cx.bad_attribute(format!("pooled_shape is a height and a width, found {:?}", op.pooled_shape))
        );
    };
    let (x, rois) = (cx.shape_of_rank(0, 4)?, cx.shape_of_rank(1, 2)?);
    region_shape(cx, dtype, x, rois, 5, [height, width])
}

pub(super) fn roi_align(op: &RoiAlign, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 2, DType::is_wide_float)?;
    checks::index(cx, 2)?;
    if op.sampling_ratio < 0 {
        return Err(
            cx.bad_attribute(format!("sampling_ratio must not be negative, found {}", op.sampling_ratio))
        );
    }
    let (x, rois, batches) = (cx.shape_of_rank(0, 4)?, cx.shape_of_rank(1, 2)?, cx.shape_of_rank(2, 1)?);
    if let (Some(rois), Some(batches)) = (rois, batches)
        && differ(&rois[0], &batches[0])
    {
        return Err(cx.bad_shape(format!("{} regions have {} batch indices", rois[0], batches[0])));
    }
    region_shape(cx, dtype, x, rois, 4, [op.output_height, op.output_width])
}

/// One output image per region, each region given by `n_columns` numbers.
fn region_shape(
    cx: &mut Inference<'_>,
    dtype: DType,
    x: Option<&Shape>,
    rois: Option<&Shape>,
    n_columns: i64,
    size: [i64; 2],
) -> InferResult {
    if size.iter().any(|size| *size < 1) {
        return Err(cx.bad_attribute(format!("the output's size must be at least 1x1, found {size:?}")));
    }
    if rois.is_some_and(|rois| differ(&rois[1], &Dim::from(n_columns))) {
        return Err(cx.bad_shape(format!("a region is given by {n_columns} numbers")));
    }
    let n_regions = rois.map(|rois| rois[0].clone()).unwrap_or_else(|| cx.fresh_dim("regions"));
    let channels = x.map(|x| x[1].clone()).unwrap_or_else(|| cx.fresh_dim("channels"));
    let shape = [n_regions, channels, size[0].into(), size[1].into()].into_iter().collect();
    Ok(vec![Inferred::tensor(dtype, shape)])
}

/// The shape of input 0 after pooling.
fn pooled_shape(cx: &Inference<'_>, attributes: &WindowAttributes<'_>) -> Result<Option<Shape>, InferError> {
    let kernel = attributes.kernel();
    let axes = attributes.axes(&kernel).map_err(|error| cx.bad_window(error))?;
    let Some((batch, channels, spatial)) = image(cx, 0)? else { return Ok(None) };
    if axes.len() != spatial.len() {
        return Err(cx.bad_attribute(format!(
            "kernel_shape has {} entries for {} spatial axes",
            axes.len(),
            spatial.len()
        )));
    }
    let mut dims = vec![batch.clone(), channels.clone()];
    for (axis, input) in axes.iter().zip(spatial) {
        dims.push(axis.output(input).map_err(|error| cx.bad_window(error))?);
    }
    Ok(Some(dims.into()))
}

/// The shape of input 0 with every spatial axis reduced to 1. An input without spatial axes stays as it is.
fn global_shape(cx: &Inference<'_>) -> Result<Option<Shape>, InferError> {
    match cx.shape(0)?.map(Shape::dims) {
        None => Ok(None),
        Some([batch, channels, spatial @ ..]) => {
            Ok(Some([batch, channels].into_iter().chain(spatial.iter().map(|_| &Dim::ONE)).collect()))
        }
        Some(_) => Err(cx.bad_shape("input 0 needs batch and channels")),
    }
}

/// ONNX pools 8-bit integers too; wider ones up to 32 bits have the same meaning.
fn has_maximum(dtype: DType) -> bool {
    dtype.is_wide_float() || (dtype.is_int() && (8..=32).contains(&dtype.bits()))
}

fn check_power(cx: &Inference<'_>, p: i64) -> Result<(), InferError> {
    if p < 1 { Err(cx.bad_attribute(format!("p must be at least 1, found {p}"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
