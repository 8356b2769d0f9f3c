//! Matrix products with quantized weights and real results.

use planish_ir::ValueId;
use planish_op as op;
use planish_tensor::{DType, Tensor};

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

/// Weights of 2, 4 or 8 bits in blocks along K: `A x dequantized(B)^T`. They become signed integers of `K x N`, so that
/// the node is what exporters of blocked DequantizeLinear and MatMul write. `accuracy_level` lets others round A; here
/// it stays as it is.
pub(super) fn matmul_n_bits(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let size = |n: &NodeImport<'_, '_>, name: &str| -> Result<usize, ImportError> {
        let value = n.int(name)?.and_then(|value| usize::try_from(value).ok()).filter(|&value| value > 0);
        value.ok_or_else(|| ImportError::invalid(format!("MatMulNBits needs a positive attribute `{name}`")))
    };
    let (k, n_columns, block) = (size(n, "K")?, size(n, "N")?, size(n, "block_size")?);
    let bits = n.int_or("bits", 4)?;
    let dtype = match bits {
        2 => DType::I2,
        4 => DType::I4,
        8 => DType::I8,
        _ => return Err(n.unsupported(Some("weights of a width other than 2, 4 or 8 bits"))),
    };
    if n.input(4).is_some() {
        return Err(n.unsupported(Some("a group index (g_idx) for the weights")));
    }
    let n_blocks = k.div_ceil(block);
    // A row of B is the column of the matrix, in whole blocks.
    let packed = n.required(1)?;
    let Some(codes) = signed_columns(n, packed, dtype, [n_columns, n_blocks * block, k])? else {
        return Err(n.unsupported(Some("packed weights that are not a constant")));
    };
    let codes = n.constant("weights", codes)?;
    let scales = by_blocks(n, 2, n_columns, n_blocks)?;
    let (zero_points, real_zeros) = match n.input(3) {
        None => (None, None),
        Some(zeros) if n.type_of(zeros)?.dtype == DType::U8 => {
            let Some(zeros) = signed_columns(n, zeros, dtype, [n_columns, n_blocks, n_blocks])? else {
                return Err(n.unsupported(Some("zero points that are not constant")));
            };
            (Some(n.constant("zero_points", zeros)?), None)
        }
        Some(_) if !k.is_multiple_of(block) => {
            return Err(n.unsupported(Some("zero points of floats where K is no multiple of block_size")));
        }
        Some(_) => (None, Some(by_blocks(n, 3, n_columns, n_blocks)?)),
    };
    let dequantize = op::DequantizeLinear { output_dtype: None, block_size: block as i64, axis: 0 };
    let integers: Vec<Option<ValueId>> =
        [Some(codes), Some(scales)].into_iter().chain(zero_points.map(Some)).collect();
    let columns = n.temporary(dequantize, &integers)?;
    let data = n.required(0)?;
    let mut terms = n.input(5).into_iter().collect::<Vec<_>>();
    if let Some(zeros) = real_zeros {
        terms.push(zero_point_term(n, data, scales, zeros, block, 1 << (bits - 1))?);
    }
    let Some(last) = terms.pop() else {
        return n.make_output(0, op::MatMul {}, &[Some(data), Some(columns)]);
    };
    let mut sum = n.temporary(op::MatMul {}, &[Some(data), Some(columns)])?;
    for term in terms {
        sum = n.add_values(sum, term)?;
    }
    n.make_output(0, op::Add {}, &[Some(sum), Some(last)])
}

/// The input `idx`, one number for each column and block, as a matrix of blocks by columns.
fn by_blocks(
    n: &mut NodeImport<'_, '_>,
    idx: usize,
    n_columns: usize,
    n_blocks: usize,
) -> Result<ValueId, ImportError> {
    let value = n.required(idx)?;
    let value = n.reshape_to(value, vec![n_columns as i64, n_blocks as i64])?;
    n.transpose(value, vec![1, 0])
}

/// What zero points of floats add where integers are dequantized around their middle:
/// `(middle - zero) · scale` times the sums of A over each block.
fn zero_point_term(
    n: &mut NodeImport<'_, '_>,
    data: ValueId,
    scales: ValueId,
    zeros: ValueId,
    block: usize,
    middle: i64,
) -> Result<ValueId, ImportError> {
    let dtype = n.type_of(scales)?.dtype;
    let zeros = n.cast(zeros, dtype)?;
    let middle = n.number("middle", dtype, middle as f64)?;
    let shift = n.temporary(op::Sub {}, &[Some(middle), Some(zeros)])?;
    let shift = n.mul_values(shift, scales)?;
    // Leading sizes as they are, the last one in blocks.
    let mut shape = vec![0; n.rank_of(data)?.saturating_sub(1)];
    shape.extend([-1, block as i64]);
    let blocks = n.reshape_to(data, shape)?;
    let axes = n.int_vector("axes", vec![-1])?;
    let sum = op::ReduceSum { keepdims: false, noop_with_empty_axes: false };
    let sums = n.temporary(sum, &[Some(blocks), Some(axes)])?;
    n.temporary(op::MatMul {}, &[Some(sums), Some(shift)])
}

/// Constant bytes that hold rows of `stored` integers each, rows from whole bytes on, without a sign: the first `kept`
/// of each as a column of a matrix, less the middle of their range. `None` where they are not constant.
fn signed_columns(
    n: &mut NodeImport<'_, '_>,
    packed: ValueId,
    dtype: DType,
    [n_rows, stored, kept]: [usize; 3],
) -> Result<Option<Tensor>, ImportError> {
    let Some(packed) = n.constant_of(packed) else { return Ok(None) };
    let invalid =
        |error: planish_tensor::TensorError| ImportError::invalid(format!("packed integers: {error}"));
    let bits = dtype.bits();
    let row_bytes = (stored * bits).div_ceil(8);
    let per_row = row_bytes * 8 / bits;
    let rows = Tensor::from_bytes(dtype, &[n_rows, per_row], packed.bytes().clone()).map_err(invalid)?;
    let rows = rows.codes().map_err(invalid)?;
    let middle = 1u8 << (bits - 1);
    let mut columns = vec![0u8; kept * n_rows];
    // A tile at a time: both sides then stay in cache.
    const TILE: usize = 64;
    for first in (0..n_rows).step_by(TILE) {
        for from in (0..kept).step_by(TILE) {
            for row in first..n_rows.min(first + TILE) {
                for at in from..kept.min(from + TILE) {
                    columns[at * n_rows + row] = rows[row * per_row + at] ^ middle;
                }
            }
        }
    }
    Tensor::from_codes(dtype, &[kept, n_rows], columns).map(Some).map_err(invalid)
}

/// An LSTM with quantized weights, stored as (direction, from, 4 * hidden). The weights stay integers; the activations, which
/// ONNX Runtime quantizes anew at every step for speed alone, stay real here.
pub(super) fn dynamic_quantize_lstm(n: &mut NodeImport<'_, '_>) -> Result<(), ImportError> {
    let list = n.op_attributes("LSTM", &[])?;
    let lstm = op::Op::from_attributes("LSTM", &list)?;
    let data = n.required(0)?;
    let (w, r) = (dequantized_weights(n, 1, 8)?, dequantized_weights(n, 2, 10)?);
    let inputs = [Some(data), Some(w), Some(r), n.input(3), n.input(4), n.input(5), n.input(6), n.input(7)];
    let n_inputs = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    n.finish(lstm, &inputs[..n_inputs])
}

/// The weights at input `idx`, with scale and zero point at `scale_idx` (one per direction, or one per
/// direction and column), as LSTM wants them: (direction, 4 * hidden, from), each row one block.
fn dequantized_weights(
    n: &mut NodeImport<'_, '_>,
    idx: usize,
    scale_idx: usize,
) -> Result<ValueId, ImportError> {
    let (weights, scale, zero_point) = (n.required(idx)?, n.required(scale_idx)?, n.required(scale_idx + 1)?);
    let shape = n.shape_of(weights)?;
    let sizes: Vec<i64> = shape.iter().filter_map(|dim| dim.as_const()).collect();
    let &[dirs, from, columns] = &sizes[..] else {
        return Err(n.unsupported(Some("weights whose sizes are not known")));
    };
    let mut by_rows = |value: ValueId| {
        let value = if n.rank_of(value)? == 1 {
            let value = n.reshape_to(value, vec![dirs, 1, 1])?;
            let shape = n.int_vector("shape", vec![dirs, columns, 1])?;
            n.temporary(op::Expand {}, &[Some(value), Some(shape)])?
        } else {
            n.reshape_to(value, vec![dirs, columns, 1])?
        };
        Ok::<ValueId, ImportError>(value)
    };
    let (scale, zero_point) = (by_rows(scale)?, by_rows(zero_point)?);
    let weights = n.transpose(weights, vec![0, 2, 1])?;
    let dequantize = op::DequantizeLinear { output_dtype: None, block_size: from, axis: 2 };
    n.temporary(dequantize, &[Some(weights), Some(scale), Some(zero_point)])
}
