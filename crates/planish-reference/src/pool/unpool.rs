//! Reference: unpooling, which puts every maximum back to where its index says.

use planish_op::MaxUnpool;
use planish_op::window::PlacedAxis;
use planish_tensor::Tensor;

use crate::conv::image_shape;
use crate::{EvalErrorKind, EvalResult, Evaluation, nd};

use super::ordered_input;

/// Indices count the elements of the shape that follows from the windows. Where `output_shape` is another
/// one, ONNX's own example puts that image into the corner of a larger one; so does this.
pub(crate) fn max_unpool(op: &MaxUnpool, cx: &Evaluation<'_>) -> EvalResult {
    let (x, indices, wanted) = (ordered_input(cx)?, cx.tensor(1)?, cx.optional_tensor(2)?);
    if !indices.dtype().is_int() {
        return Err(cx.bad_type(indices.dtype()));
    }
    let (batch, channels, spatial) = image_shape(cx, x.shape())?;
    if indices.shape() != x.shape() || op.kernel_shape.len() != spatial.len() {
        return Err(cx.bad_shape(format!(
            "indices of shape {:?} or a kernel of {:?} do not fit values of shape {:?}",
            indices.shape(),
            op.kernel_shape,
            x.shape()
        )));
    }
    let attributes = op.window();
    let axes: Vec<PlacedAxis> = attributes
        .transposed_axes(&attributes.kernel(), &[], None)
        .and_then(|axes| axes.iter().zip(spatial).map(|(axis, size)| axis.place(*size)).collect())
        .map_err(|error| cx.bad_window(error))?;
    let own: Vec<usize> = [batch, channels].into_iter().chain(axes.iter().map(|axis| axis.input)).collect();
    let n_own = nd::result_len(cx, &own)?;
    let out_shape = match wanted {
        None => own.clone(),
        Some(wanted) => {
            let sizes: Option<Vec<usize>> =
                wanted.to_i64s().into_iter().map(|size| usize::try_from(size).ok()).collect();
            let larger = |sizes: &Vec<usize>| {
                sizes.len() == own.len() && sizes.iter().zip(&own).all(|(wanted, own)| wanted >= own)
            };
            sizes.filter(larger).ok_or_else(|| {
                cx.error(
                    EvalErrorKind::BadValue,
                    format!("output_shape must be at least {own:?} in each entry"),
                )
            })?
        }
    };
    let mut out = vec![0.0; nd::result_len(cx, &out_shape)?];
    let strides = nd::strides(&out_shape);
    for (value, index) in x.to_f64s().into_iter().zip(indices.to_i64s()) {
        let Some(place) = usize::try_from(index).ok().filter(|index| *index < n_own) else {
            return Err(cx.error(EvalErrorKind::BadValue, format!("index {index} is outside {own:?}")));
        };
        let offset: usize =
            nd::unravel(place, &own).iter().zip(&strides).map(|(at, stride)| at * stride).sum();
        out[offset] = value;
    }
    Ok(vec![Tensor::from_f64s(x.dtype(), &out_shape, &out)?.into()])
}
