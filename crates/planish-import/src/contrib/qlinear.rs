//! Operators on quantized tensors: dequantize, compute, quantize again.

use planish_ir::ValueId;
use planish_op::{Attribute, Op};
use planish_tensor::DType;

use crate::error::ImportError;
use crate::node::NodeImport;

/// The real values of the quantized tensor at input `idx`, whose scale and zero point follow it.
fn real(n: &mut NodeImport<'_, '_>, idx: usize) -> Result<ValueId, ImportError> {
    let (value, scale, zero_point) = (n.required(idx)?, n.required(idx + 1)?, n.input(idx + 2));
    n.dequantize(value, scale, zero_point, 1)
}

/// The type without a zero point is unsigned.
fn finish(n: &mut NodeImport<'_, '_>, value: ValueId, scale_idx: usize) -> Result<(), ImportError> {
    let (scale, zero_point) = (n.required(scale_idx)?, n.input(scale_idx + 1));
    n.quantize_as(0, value, scale, zero_point)
}

pub(super) fn binary(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.trim_start_matches("QLinear").to_string();
    let (a, b) = (real(n, 0)?, real(n, 3)?);
    let value = n.temporary(Op::from_attributes(&op, &[])?, &[Some(a), Some(b)])?;
    finish(n, value, 6)
}

pub(super) fn unary(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.trim_start_matches("QLinear").to_string();
    let list = n.op_attributes(&op, &["opset"])?;
    if op == "Softmax" && n.int_or("opset", 13)? < 13 {
        // Before opset 13 softmax ran over all axes from `axis` on.
        let (data, axis) = (n.required(0)?, n.int_or("axis", -1)?);
        if axis != -1 && axis != n.rank_of(data)? as i64 - 1 {
            return Err(n.unsupported(Some("a quantized softmax over several axes")));
        }
    }
    let data = real(n, 0)?;
    let value = n.temporary(Op::from_attributes(&op, &list)?, &[Some(data)])?;
    finish(n, value, 3)
}

/// Pools, channels last on request.
pub(super) fn pool(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let op = n.node.op_type.trim_start_matches("QLinear").to_string();
    let list = n.op_attributes(&op, &["channels_last"])?;
    let op = Op::from_attributes(&op, &list)?;
    let channels_last = n.int_or("channels_last", 0)? != 0;
    let mut value = real(n, 0)?;
    if !channels_last {
        value = n.temporary(op, &[Some(value)])?;
        return finish(n, value, 3);
    }
    let rank = n.rank_of(value)? as i64;
    value = n.transpose(value, to_channels_first(rank))?;
    value = n.temporary(op, &[Some(value)])?;
    value = n.transpose(value, to_channels_last(rank))?;
    finish(n, value, 3)
}

pub(super) fn to_channels_first(rank: i64) -> Vec<i64> {
    let mut perm = vec![0, rank - 1];
    perm.extend(1..rank - 1);
    perm
}

pub(super) fn to_channels_last(rank: i64) -> Vec<i64> {
    let mut perm = vec![0];
    perm.extend(2..rank);
    perm.push(1);
    perm
}

/// Scale and zero point of the result come first, then three inputs per part.
pub(super) fn concat(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let axis =
        n.int("axis")?.ok_or_else(|| ImportError::invalid("QLinearConcat needs the attribute `axis`"))?;
    let mut parts = Vec::new();
    for idx in (2..n.inputs.len()).step_by(3) {
        parts.push(Some(real(n, idx)?));
    }
    let value = n.temporary(planish_op::Concat { axis }, &parts)?;
    finish(n, value, 0)
}

/// Gemm on quantized operands; the bias is an integer in units of both scales.
pub(super) fn gemm(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let mut list = n.op_attributes("Gemm", &[])?;
    // The scale of B may be per column; with transB its columns are the first axis.
    let column_axis = if n.int_or("transB", 0)? != 0 { 0 } else { 1 };
    let a = real(n, 0)?;
    let (b, b_scale, b_zero) = (n.required(3)?, n.required(4)?, n.input(5));
    let b = n.dequantize(b, b_scale, b_zero, column_axis)?;
    let mut inputs = vec![Some(a), Some(b)];
    if let Some(bias) = n.input(6) {
        let a_scale = n.required(1)?;
        let scale = n.mul_values(a_scale, b_scale)?;
        let bias = n.cast(bias, DType::F32)?;
        inputs.push(Some(n.mul_values(bias, scale)?));
        // alpha scales the integer accumulator, the bias included.
        let alpha = n.float_or("alpha", 1.0)?;
        list.push(("beta".to_string(), Attribute::Float(alpha)));
    }
    let gemm = Op::from_attributes("Gemm", &list)?;
    match n.input(7) {
        Some(_) => {
            let value = n.temporary(gemm, &inputs)?;
            finish(n, value, 7)
        }
        None => n.finish(gemm, &inputs),
    }
}
