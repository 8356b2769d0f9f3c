//! Resampling and indexing operators whose words, defaults or names changed.

use planish_op::{Attribute, Op};
use planish_tensor::Tensor;

use crate::error::ImportError;
use crate::node::NodeImport;

/// The attributes that give Resize the meaning that it had in opset 10 and Upsample always.
fn simple_resize(mode: &str) -> Result<Op, ImportError> {
    // "bilinear" is how opset 7 documents spelled it.
    let mode = if mode == "bilinear" { "linear" } else { mode };
    let words =
        [("mode", mode), ("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "simple")];
    let list = words.map(|(name, word)| (name.to_string(), Attribute::Str(word.to_string())));
    Ok(Op::from_attributes("Resize", &list)?)
}

pub(super) fn resize(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 11 {
        return n.finish_generic("Resize", &[]);
    }
    let (data, scales) = (n.required(0)?, n.required(1)?);
    let mode = n.text("mode")?.unwrap_or_else(|| "nearest".into());
    n.finish(simple_resize(&mode)?, &[Some(data), None, Some(scales)])
}

pub(super) fn upsample(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let data = n.required(0)?;
    let scales = match n.floats("scales")? {
        Some(scales) => n.constant("scales", Tensor::vector(scales))?,
        None => n.required(1)?,
    };
    let mode = n.text("mode")?.unwrap_or_else(|| "nearest".into());
    n.finish(simple_resize(&mode)?, &[Some(data), None, Some(scales)])
}

/// Before opset 20 the modes were called as in PyTorch.
pub(super) fn grid_sample(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut list = n.op_attributes("GridSample", &["mode"])?;
    let mode = n.text("mode")?.unwrap_or_else(|| "linear".into());
    let mode = match mode.as_str() {
        "bilinear" => "linear",
        "bicubic" => "cubic",
        other => other,
    };
    list.push(("mode".to_string(), Attribute::Str(mode.to_string())));
    let op = Op::from_attributes("GridSample", &list)?;
    let inputs = n.inputs.clone();
    n.finish(op, &inputs)
}

/// Before opset 16 coordinates were not shifted by half a pixel.
pub(super) fn roi_align(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    const MODE: &str = "coordinate_transformation_mode";
    let mut list = n.op_attributes("RoiAlign", &[])?;
    if n.opset < 16 {
        list.retain(|(name, _)| name != MODE);
        list.push((MODE.to_string(), Attribute::Str("output_half_pixel".to_string())));
    }
    let op = Op::from_attributes("RoiAlign", &list)?;
    let inputs = n.inputs.clone();
    n.finish(op, &inputs)
}

/// Scatter was renamed to ScatterElements in opset 11.
pub(super) fn scatter(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    n.finish_generic("ScatterElements", &[])
}
