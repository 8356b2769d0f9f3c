//! Inference: convolutions.

use planish_tensor::{DType, Dim, Shape};

use crate::window::WindowAttributes;
use crate::{CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv};

use super::checks::{self, common_type, differ};
use super::{InferError, InferResult, Inference, Inferred};

pub(super) fn conv(op: &Conv, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 3, DType::is_wide_float)?;
    let shape = convolved_shape(cx, 0, 1, &op.window(), op.group)?;
    check_bias(cx, 2, shape.as_ref().and_then(|shape| shape.get(1)))?;
    Ok(vec![Inferred::maybe_ranked(dtype, shape)])
}

/// The shape of input `x_idx` convolved with the weight `w_idx`.
pub(super) fn convolved_shape(
    cx: &mut Inference<'_>,
    x_idx: usize,
    w_idx: usize,
    attributes: &WindowAttributes<'_>,
    group: i64,
) -> Result<Option<Shape>, InferError> {
    check_group(cx, "group", group)?;
    let weight = cx.shape(w_idx)?;
    let Some((batch, channels, spatial)) = image(cx, x_idx)? else { return Ok(None) };
    let (kernel, out_channels) = match weight {
        Some(weight) => {
            let kernel = weight_kernel(cx, weight, spatial, attributes)?;
            let per_group = &weight[1];
            if differ(&(per_group * group), channels) {
                return Err(cx.bad_shape(format!(
                    "{group} groups of {per_group} channels, as weight {weight} has, do not make {channels}"
                )));
            }
            if weight[0].as_const().is_some_and(|out| out % group != 0) {
                return Err(cx.bad_shape(format!("{} output channels are not {group} groups", weight[0])));
            }
            (kernel, weight[0].clone())
        }
        None => (unknown_kernel(cx, spatial, attributes)?, cx.fresh_dim("channels")),
    };
    let axes = attributes.axes(&kernel).map_err(|error| cx.bad_window(error))?;
    let mut dims = vec![batch.clone(), out_channels];
    for (axis, input) in axes.iter().zip(spatial) {
        dims.push(axis.output(input).map_err(|error| cx.bad_window(error))?);
    }
    Ok(Some(dims.into()))
}

pub(super) fn conv_transpose(op: &ConvTranspose, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 3, DType::is_wide_float)?;
    check_group(cx, "group", op.group)?;
    let attributes = op.window();
    let weight = cx.shape(1)?;
    let Some((batch, channels, spatial)) = image(cx, 0)? else {
        return Ok(vec![Inferred::maybe_ranked(dtype, None)]);
    };
    if channels.as_const().is_some_and(|channels| channels % op.group != 0) {
        return Err(cx.bad_shape(format!("{channels} channels are not {} groups", op.group)));
    }
    let (kernel, out_channels) = match weight {
        Some(weight) => {
            let kernel = weight_kernel(cx, weight, spatial, &attributes)?;
            if differ(&weight[0], channels) {
                return Err(
                    cx.bad_shape(format!("weight {weight} does not fit an input of {channels} channels"))
                );
            }
            (kernel, &weight[1] * op.group)
        }
        None => (unknown_kernel(cx, spatial, &attributes)?, cx.fresh_dim("channels")),
    };
    check_bias(cx, 2, Some(&out_channels))?;
    let axes = attributes
        .transposed_axes(&kernel, &op.output_padding, op.output_shape.as_deref())
        .map_err(|error| cx.bad_window(error))?;
    let mut dims = vec![batch.clone(), out_channels];
    for (axis, input) in axes.iter().zip(spatial) {
        dims.push(axis.output(input).map_err(|error| cx.bad_window(error))?);
    }
    Ok(vec![Inferred::tensor(dtype, dims.into())])
}

pub(super) fn deform_conv(op: &DeformConv, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 5, DType::is_wide_float)?;
    check_group(cx, "offset_group", op.offset_group)?;
    let shape = convolved_shape(cx, 0, 1, &op.window(), op.group)?;
    let offset = cx.shape(2)?;
    let Some(shape) = shape else { return Ok(vec![Inferred::maybe_ranked(dtype, None)]) };
    check_bias(cx, 3, shape.get(1))?;
    let (x, n_axes) = (cx.shape(0)?, shape.rank() - 2);
    if let Some(channels) = x.and_then(|x| x.get(1)).and_then(Dim::as_const)
        && channels % op.offset_group != 0
    {
        return Err(cx.bad_shape(format!("{channels} channels are not {} offset groups", op.offset_group)));
    }
    let taps: Dim = match (cx.shape(1)?, &op.kernel_shape) {
        (Some(weight), _) => weight.iter().skip(2).product(),
        (None, Some(kernel)) => kernel.iter().map(|size| Dim::from(*size)).product(),
        (None, None) => Dim::UNKNOWN,
    };
    let mask = cx.optional_tensor(4)?.and_then(|ty| ty.shape.as_ref());
    let per_tap = [("offset", offset, Dim::from(n_axes)), ("mask", mask, Dim::ONE)];
    for (name, found, per_tap) in per_tap {
        let Some(found) = found else { continue };
        let mut expected = shape.clone().into_dims();
        expected[1] = per_tap * op.offset_group * &taps;
        let fits = found.rank() == expected.len() && !found.iter().zip(&expected).any(|(a, b)| differ(a, b));
        if !fits {
            let expected = Shape::new(expected);
            return Err(cx.bad_shape(format!("{name} must have shape {expected}, it is {found}")));
        }
    }
    Ok(vec![Inferred::tensor(dtype, shape)])
}

pub(super) fn causal_conv_with_state(_op: &CausalConvWithState, cx: &mut Inference<'_>) -> InferResult {
    let dtype = common_type(cx, 4, DType::is_wide_float)?;
    let (x, weight) = (cx.shape_of_rank(0, 3)?, cx.shape_of_rank(1, 3)?);
    let past = if cx.has_input(3) { cx.shape_of_rank(3, 3)? } else { None };
    let channels = x.map(|x| &x[1]).or(weight.map(|weight| &weight[0]));
    check_bias(cx, 2, channels)?;
    let state_len = weight.map(|weight| &weight[2] - 1);
    if let Some(weight) = weight {
        if channels.is_some_and(|channels| differ(channels, &weight[0])) || differ(&weight[1], &Dim::ONE) {
            return Err(cx.bad_shape(format!("weight {weight} is not one kernel for each channel")));
        }
        if weight[2].as_const().is_some_and(|taps| taps < 1) {
            return Err(cx.bad_shape(format!("weight {weight} has a kernel without taps")));
        }
    }
    let mut state: Vec<Dim> = match (x, past) {
        (Some(x), _) => vec![x[0].clone(), x[1].clone()],
        (None, Some(past)) => vec![past[0].clone(), past[1].clone()],
        (None, None) => vec![cx.fresh_dim("batch"), cx.fresh_dim("channels")],
    };
    state.push(match (state_len, past) {
        (Some(len), _) => len,
        (None, Some(past)) => past[2].clone(),
        (None, None) => cx.fresh_dim("state"),
    });
    if let Some(past) = past
        && past.iter().zip(&state).any(|(a, b)| differ(a, b))
    {
        let state = Shape::new(state);
        return Err(cx.bad_shape(format!("past_state must have shape {state}, it is {past}")));
    }
    checks::outputs(
        cx,
        vec![Inferred::maybe_ranked(dtype, x.cloned()), Inferred::tensor(dtype, state.into())],
    )
}

pub(super) fn col2im(op: &Col2Im, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let columns = cx.shape_of_rank(0, 3)?;
    let (image_shape, block_shape) = (cx.shape_of_rank(1, 1)?, cx.shape_of_rank(2, 1)?);
    let length = |shape: Option<&Shape>| shape.and_then(|shape| shape[0].as_usize());
    let (image, block) = (cx.ints(1), cx.ints(2));
    let Some(n_axes) = length(image_shape).or(length(block_shape)) else {
        return Ok(vec![Inferred::maybe_ranked(dtype, None)]);
    };
    if length(block_shape).is_some_and(|len| len != n_axes) || n_axes == 0 {
        return Err(cx.bad_shape("image_shape and block_shape need one entry for each spatial axis"));
    }
    if let Some(image) = &image
        && image.dims.iter().any(|dim| dim.as_const().is_some_and(|size| size < 0))
    {
        return Err(cx.bad_shape("image_shape has a negative entry"));
    }
    let mut channels = None;
    if let Some(block) = &block {
        let axes = op.window().axes(&block.dims).map_err(|error| cx.bad_window(error))?;
        if let (Some(columns), Some(image)) = (columns, &image) {
            let counts = axes.iter().zip(&image.dims).map(|(axis, size)| axis.output(size));
            let n_blocks: Vec<Dim> =
                counts.collect::<Result<_, _>>().map_err(|error| cx.bad_window(error))?;
            let n_blocks: Dim = n_blocks.iter().product();
            if differ(&n_blocks, &columns[2]) {
                return Err(cx.bad_shape(format!("{n_blocks} blocks fit the image, the input has {columns}")));
            }
        }
        let taps: Dim = block.dims.iter().product();
        if let Some(columns) = columns {
            if columns[1].rem(&taps).as_const().is_some_and(|rest| rest != 0) {
                return Err(cx.bad_shape(format!("input {columns} does not hold blocks of {taps} elements")));
            }
            channels = Some(columns[1].floor_div(&taps));
        }
    }
    let mut dims = vec![
        columns.map(|columns| columns[0].clone()).unwrap_or_else(|| cx.fresh_dim("batch")),
        channels.unwrap_or_else(|| cx.fresh_dim("channels")),
    ];
    dims.extend(match image {
        Some(image) => image.dims,
        None => cx.fresh_shape(n_axes, "image").into_dims(),
    });
    Ok(vec![Inferred::tensor(dtype, dims.into())])
}

/// Batch, channels and spatial axes.
type ImageDims<'a> = (&'a Dim, &'a Dim, &'a [Dim]);

/// The dimensions of input `idx`, which must have at least one spatial axis.
pub(super) fn image<'a>(cx: &Inference<'a>, idx: usize) -> Result<Option<ImageDims<'a>>, InferError> {
    match cx.shape(idx)?.map(Shape::dims) {
        None => Ok(None),
        Some([batch, channels, spatial @ ..]) if !spatial.is_empty() => Ok(Some((batch, channels, spatial))),
        Some(dims) => Err(cx.bad_shape(format!(
            "input {idx} needs batch, channels and at least one spatial axis, its rank is {}",
            dims.len()
        ))),
    }
}

/// The kernel's sizes, from a weight that must have as many spatial axes as the input.
fn weight_kernel(
    cx: &Inference<'_>,
    weight: &Shape,
    spatial: &[Dim],
    attributes: &WindowAttributes<'_>,
) -> Result<Vec<Dim>, InferError> {
    if weight.rank() != spatial.len() + 2 {
        return Err(cx.bad_shape(format!("weight {weight} is not for {} spatial axes", spatial.len())));
    }
    attributes.kernel_of_weight(&weight.dims()[2..]).map_err(|error| cx.bad_window(error))
}

/// The kernel's sizes where the weight's shape is not known.
fn unknown_kernel(
    cx: &mut Inference<'_>,
    spatial: &[Dim],
    attributes: &WindowAttributes<'_>,
) -> Result<Vec<Dim>, InferError> {
    let kernel = match attributes.kernel_shape {
        Some(_) => vec![Dim::UNKNOWN; spatial.len()],
        None => cx.fresh_shape(spatial.len(), "kernel").into_dims(),
    };
    attributes.kernel_of_weight(&kernel).map_err(|error| cx.bad_window(error))
}

fn check_group(cx: &Inference<'_>, name: &str, group: i64) -> Result<(), InferError> {
    if group < 1 {
        return Err(cx.bad_attribute(format!("{name} must be at least 1, found {group}")));
    }
    Ok(())
}

/// An optional bias is a vector with one element for each channel.
fn check_bias(cx: &Inference<'_>, idx: usize, channels: Option<&Dim>) -> Result<(), InferError> {
    if !cx.has_input(idx) {
        return Ok(());
    }
    match (cx.shape_of_rank(idx, 1)?, channels) {
        (Some(bias), Some(channels)) if differ(&bias[0], channels) => {
            Err(cx.bad_shape(format!("a bias of shape {bias} does not fit {channels} channels")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
