//! Matrix products with quantized weights and real results.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::{Bytes, DType, Tensor};

use crate::error::ImportError;
use crate::node::NodeImport;

/// Real values of an integer product, with both scales and an optional bias.
pub(super) struct IntegerProduct {
    pub(super) a: ValueId,
    pub(super) a_scale: ValueId,
    pub(super) a_zero_point: Option<ValueId>,
    pub(super) b: ValueId,
    pub(super) b_scale: ValueId,
    pub(super) b_zero_point: Option<ValueId>,
    pub(super) bias: Option<ValueId>,
}

impl IntegerProduct {
    /// `((A - za) x (B - zb)) * sa * sb + bias`.
    pub(super) fn build(self, n: &mut NodeImport<'_, '_>) -> Result<ValueId, ImportError> {
        let inputs = [Some(self.a), Some(self.b), self.a_zero_point, self.b_zero_point];
        let product = n.temporary(op::MatMulInteger {}, &inputs)?;
        let dtype = n.type_of(self.b_scale)?.dtype;
        let product = n.cast(product, dtype)?;
        let scale = n.mul_values(self.a_scale, self.b_scale)?;
        let value = n.mul_values(product, scale)?;
        match self.bias {
            Some(bias) => n.add_values(value, bias),
            None => Ok(value),
        }
    }
}

pub(super) fn dynamic_quantize_matmul(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let (data, b, b_scale) = (n.required(0)?, n.required(1)?, n.required(2)?);
    let (b_zero_point, bias) = (n.input(3), n.input(4));
    use crate::node::Out::Temporary;
    let parts = n.add(op::DynamicQuantizeLinear {}, &[Some(data)], &[Temporary, Temporary, Temporary])?;
    let [Some(a), Some(a_scale), a_zero_point] = parts[..] else {
        return Err(ImportError::invalid("DynamicQuantizeLinear has three outputs"));
    };
    let product = IntegerProduct { a, a_scale, a_zero_point, b, b_scale, b_zero_point, bias };
    let value = product.build(n)?;
    n.alias(0, value)
}

pub(super) fn matmul_integer_to_float(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let product = IntegerProduct {
        a: n.required(0)?,
        b: n.required(1)?,
        a_scale: n.required(2)?,
        b_scale: n.required(3)?,
        a_zero_point: n.input(4),
        b_zero_point: n.input(5),
        bias: n.input(6),
    };
    let value = product.build(n)?;
    n.alias(0, value)
}

/// Weights of 2, 4 or 8 bits in blocks along K, transposed: `A x dequantized(B)^T`.
pub(super) fn matmul_n_bits(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let size = |n: &NodeImport<'_, '_>, name: &str| -> Result<usize, ImportError> {
        let value = n.int(name)?.and_then(|value| usize::try_from(value).ok()).filter(|&value| value > 0);
        value.ok_or_else(|| ImportError::invalid(format!("MatMulNBits needs a positive attribute `{name}`")))
    };
    let (k, n_columns, block) = (size(n, "K")?, size(n, "N")?, size(n, "block_size")?);
    let bits = n.int_or("bits", 4)?;
    let dtype = match bits {
        2 => DType::U2,
        4 => DType::U4,
        8 => DType::U8,
        _ => return Err(n.unsupported(Some("weights of a width other than 2, 4 or 8 bits"))),
    };
    if n.input(4).is_some() {
        return Err(n.unsupported(Some("a group index (g_idx) for the weights")));
    }
    let weights = n.required(1)?;
    let Some(weights) = n.constant_of(weights) else {
        return Err(n.unsupported(Some("packed weights that are not a constant")));
    };
    let n_blocks = k.div_ceil(block);
    let codes = Tensor::from_bytes(dtype, &[n_columns, n_blocks * block], weights.bytes().clone())
        .map_err(|error| ImportError::invalid(format!("packed weights: {error}")))?;
    let codes = n.constant("weights", codes)?;
    let scales = n.required(2)?;
    let scales = n.reshape_to(scales, vec![n_columns as i64, n_blocks as i64])?;
    let zero_points = zero_points(n, dtype, n_columns, n_blocks)?;
    let zero_points = n.constant("zero_points", zero_points)?;
    let dequantize = op::DequantizeLinear { output_dtype: None, block_size: block as i64, axis: 1 };
    let mut real = n.temporary(dequantize, &[Some(codes), Some(scales), Some(zero_points)])?;
    if n_blocks * block != k {
        real = n.slice_axis(real, 1, 0, k as i64)?;
    }
    let columns = n.transpose(real, vec![1, 0])?;
    let data = n.required(0)?;
    match n.input(5) {
        Some(bias) => {
            let product = n.temporary(op::MatMul {}, &[Some(data), Some(columns)])?;
            n.make_output(0, op::Add {}, &[Some(product), Some(bias)])
        }
        None => n.make_output(0, op::MatMul {}, &[Some(data), Some(columns)]),
    }
}

/// One zero point per block, as codes; the middle of the range where none are given. Packed rows start at
/// whole bytes.
fn zero_points(
    n: &mut NodeImport<'_, '_>,
    dtype: DType,
    n_columns: usize,
    n_blocks: usize,
) -> Result<Tensor, ImportError> {
    let bits = dtype.bits();
    let invalid = |error: planish_tensor::TensorError| ImportError::invalid(format!("zero points: {error}"));
    let shape = [n_columns, n_blocks];
    let Some(packed) = n.input(3) else {
        let middle = 1u8 << (bits - 1);
        return Tensor::from_codes(dtype, &shape, vec![middle; n_columns * n_blocks]).map_err(invalid);
    };
    let Some(packed) = n.constant_of(packed).filter(|packed| packed.dtype() == DType::U8) else {
        return Err(n.unsupported(Some("zero points that are not packed constants")));
    };
    let row_bytes = (n_blocks * bits).div_ceil(8);
    let mut codes = Vec::with_capacity(n_columns * n_blocks);
    for row in packed.bytes().chunks(row_bytes) {
        let row = Tensor::from_bytes(dtype, &[row.len() * 8 / bits], Bytes::from_vec(row.to_vec()));
        codes.extend(
            row.and_then(|row| Ok(row.codes()?.into_owned())).map_err(invalid)?.into_iter().take(n_blocks),
        );
    }
    Tensor::from_codes(dtype, &shape, codes).map_err(invalid)
}

/// An LSTM with quantized weights, stored as (direction, from, 4 * hidden). The weights keep their steps; the
/// activations, which ONNX Runtime quantizes anew at every step for speed alone, stay real here.
pub(super) fn dynamic_quantize_lstm(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let list = n.op_attributes("LSTM", &[])?;
    let lstm = op::Op::from_attributes("LSTM", &list)?;
    let data = n.required(0)?;
    let (w, r) = (real_weights(n, 1, 8)?, real_weights(n, 2, 10)?);
    let inputs = [Some(data), Some(w), Some(r), n.input(3), n.input(4), n.input(5), n.input(6), n.input(7)];
    let n_inputs = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    n.finish(lstm, &inputs[..n_inputs])
}

/// The weights at input `idx`, with scale and zero point at `scale_idx` (one per direction, or one per
/// direction and column), as LSTM wants them: (direction, 4 * hidden, from).
fn real_weights(n: &mut NodeImport<'_, '_>, idx: usize, scale_idx: usize) -> Result<ValueId, ImportError> {
    let (weights, scale, zero_point) = (n.required(idx)?, n.required(scale_idx)?, n.required(scale_idx + 1)?);
    let dtype = n.type_of(scale)?.dtype;
    let axes = if n.rank_of(scale)? == 1 { vec![1, 2] } else { vec![1] };
    let scale = n.unsqueeze(scale, axes.clone())?;
    let zero_point = n.unsqueeze(zero_point, axes)?;
    let (weights, zero_point) = (n.cast(weights, dtype)?, n.cast(zero_point, dtype)?);
    let centred = n.temporary(op::Sub {}, &[Some(weights), Some(zero_point)])?;
    let real = n.mul_values(centred, scale)?;
    n.transpose(real, vec![0, 2, 1])
}
