//! Attributes of older opsets that became inputs.

use planish_ir::ValueId;
use planish_tensor::Tensor;

use crate::error::ImportError;
use crate::node::NodeImport;

pub(super) fn axes_before_13(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    axes(n, 13)
}

pub(super) fn axes_before_18(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    axes(n, 18)
}

/// `axes` moved from an attribute to the second input in opset `since`.
fn axes(n: &mut NodeImport<'_, '_>, since: i64) -> Result<(), ImportError> {
    let op = n.node.op_type.as_ref();
    if n.opset >= since {
        return n.finish_generic(op, &[]);
    }
    let data = n.required(0)?;
    let axes = match n.ints("axes")? {
        Some(axes) => Some(n.int_vector("axes", axes)?),
        None => None,
    };
    n.finish_with(op, &["axes"], &[Some(data), axes])
}

pub(super) fn split(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let data = n.required(0)?;
    let sizes = match n.ints("split")? {
        Some(sizes) => Some(n.int_vector("split", sizes)?),
        None => n.input(1),
    };
    let mut list = n.op_attributes("Split", &["split"])?;
    // Before opset 18 the number of parts was that of the outputs.
    if sizes.is_none() && !list.iter().any(|(name, _)| name == "num_outputs") {
        let n_outputs = n.node.outputs.len() as i64;
        list.push(("num_outputs".to_string(), planish_op::Attribute::Int(n_outputs)));
    }
    let op = planish_op::Op::from_attributes("Split", &list)?;
    let inputs = if sizes.is_some() { vec![Some(data), sizes] } else { vec![Some(data)] };
    // Split must know of all its parts, the unwanted ones too.
    let outputs: Vec<_> = (0..n.node.outputs.len()).map(crate::node::Out::Node).collect();
    n.add(op, &inputs, &outputs).map(|_| ())
}

/// A scalar constant of the type of `like`.
fn scalar_like(
    n: &mut NodeImport<'_, '_>,
    hint: &str,
    like: ValueId,
    value: f32,
) -> Result<ValueId, ImportError> {
    let dtype = n.type_of(like)?.dtype;
    let tensor = Tensor::from_f64s(dtype, &[], &[f64::from(value)])
        .map_err(|error| ImportError::invalid(error.to_string()))?;
    n.constant(hint, tensor)
}

pub(super) fn clip(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 11 {
        return n.finish_generic("Clip", &[]);
    }
    let data = n.required(0)?;
    let mut bounds = [None, None];
    for (bound, name) in bounds.iter_mut().zip(["min", "max"]) {
        if let Some(value) = n.float(name)? {
            *bound = Some(scalar_like(n, name, data, value)?);
        }
    }
    n.finish_with("Clip", &["min", "max", "consumed_inputs"], &[Some(data), bounds[0], bounds[1]])
}

pub(super) fn pad(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 11 {
        return n.finish_generic("Pad", &[]);
    }
    let data = n.required(0)?;
    let pads = n.ints("pads")?.ok_or_else(|| ImportError::invalid("Pad needs the attribute `pads`"))?;
    let pads = n.int_vector("pads", pads)?;
    let value = n.float_or("value", 0.0)?;
    let value = scalar_like(n, "value", data, value)?;
    n.finish_with("Pad", &["pads", "value"], &[Some(data), Some(pads), Some(value)])
}

pub(super) fn slice(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 10 {
        return n.finish_generic("Slice", &[]);
    }
    let data = n.required(0)?;
    let mut inputs = vec![Some(data)];
    for name in ["starts", "ends"] {
        let values = n
            .ints(name)?
            .ok_or_else(|| ImportError::invalid(format!("Slice needs the attribute `{name}`")))?;
        inputs.push(Some(n.int_vector(name, values)?));
    }
    if let Some(axes) = n.ints("axes")? {
        inputs.push(Some(n.int_vector("axes", axes)?));
    }
    n.finish_with("Slice", &["starts", "ends", "axes"], &inputs)
}

pub(super) fn topk(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 10 {
        return n.finish_generic("TopK", &[]);
    }
    let data = n.required(0)?;
    let k = n.int("k")?.ok_or_else(|| ImportError::invalid("TopK needs the attribute `k`"))?;
    let k = n.int_vector("k", vec![k])?;
    n.finish_with("TopK", &["k"], &[Some(data), Some(k)])
}

pub(super) fn dropout(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 12 {
        return n.finish_generic("Dropout", &[]);
    }
    // Before opset 12 Dropout did nothing at inference, whatever its ratio.
    let data = n.required(0)?;
    n.finish_with("Dropout", &["ratio", "is_test", "consumed_inputs"], &[Some(data)])
}

pub(super) fn dft(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    if n.opset >= 20 {
        return n.finish_generic("DFT", &[]);
    }
    // The axis was an attribute with another default.
    let axis = n.int_or("axis", 1)?;
    let axis = n.constant("axis", Tensor::scalar(axis))?;
    let (data, length) = (n.required(0)?, n.input(1));
    n.finish_with("DFT", &["axis"], &[Some(data), length, Some(axis)])
}

/// A real signal may come without the last axis, as exporters write it and ONNX Runtime takes it.
pub(super) fn stft(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut inputs = n.inputs.clone();
    let signal = n.required(0)?;
    if n.type_of(signal)?.rank() == Some(2) {
        let axes = n.int_vector("axes", vec![2])?;
        inputs[0] = Some(n.temporary(planish_op::Unsqueeze {}, &[Some(signal), Some(axes)])?);
    }
    n.finish_with("STFT", &[], &inputs)
}
