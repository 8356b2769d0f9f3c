//! Normalizations along axes: layer, RMS, Lp, local response and mean-variance.

use planish_op::{
    LRN, LayerNormalization, LpNormalization, MeanVarianceNormalization, RMSNormalization, Value,
};
use planish_tensor::{DType, Tensor};

use super::moments;
use crate::reduce::{Groups, axis_mask, map_lines};
use crate::{EvalError, EvalResult, Evaluation, nd};

/// A parameter that broadcasts to the data: its elements, and strides over the data's shape.
struct Parameter {
    values: Vec<f64>,
    strides: Vec<usize>,
}

impl Parameter {
    fn of(cx: &Evaluation<'_>, idx: usize, target: &[usize]) -> Result<Parameter, EvalError> {
        let shape = cx.tensor(idx)?.shape();
        let fits = shape.len() <= target.len()
            && shape.iter().rev().zip(target.iter().rev()).all(|(dim, goal)| dim == goal || *dim == 1);
        if !fits {
            return Err(
                cx.bad_shape(format!("input {idx} of shape {shape:?} does not broadcast to {target:?}"))
            );
        }
        let values = cx.floats(idx)?;
        // Of an empty parameter nothing is read, and its strides may overflow.
        let strides = match values.is_empty() {
            true => vec![0; target.len()],
            false => nd::broadcast_strides(shape, target),
        };
        Ok(Parameter { values, strides })
    }

    /// Combines each element of a block of the data, which starts at flat index `start`, with its parameter.
    fn combine(&self, shape: &[usize], start: usize, block: &mut [f64], combine: impl Fn(f64, f64) -> f64) {
        nd::for_each_offset(shape, &self.strides, start..start + block.len(), |flat, offset| {
            let value = &mut block[flat - start];
            *value = combine(*value, self.values[offset]);
        });
    }
}

/// The tensor as rows: everything from `axis` on is one row. `None` if there are no elements.
fn rows(x: &Tensor, axis: usize) -> Option<(usize, usize)> {
    (!x.is_empty()).then(|| (nd::count(&x.shape()[..axis]), nd::count(&x.shape()[axis..])))
}

/// The element type that `stash_type` names by its ONNX number.
fn stash_type(cx: &Evaluation<'_>, number: i64) -> Result<DType, EvalError> {
    match number {
        1 => Ok(DType::F32),
        10 => Ok(DType::F16),
        11 => Ok(DType::F64),
        16 => Ok(DType::BF16),
        _ => Err(cx.bad_attribute(format!("stash_type {number} is not a float type"))),
    }
}

pub(crate) fn layer_normalization(op: &LayerNormalization, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let axis = cx.axis(op.axis, x.rank())?;
    let stash = stash_type(cx, op.stash_type)?;
    let scale = Parameter::of(cx, 1, x.shape())?;
    let bias = cx.optional_tensor(2)?.map(|_| Parameter::of(cx, 2, x.shape())).transpose()?;
    let values = cx.floats(0)?;
    let epsilon = f64::from(op.epsilon);
    // Mean and inverse deviation per row; of an empty row NaN.
    let mut of_rows = x.shape().to_vec();
    of_rows[axis..].fill(1);
    let n_rows = nd::output_len(cx, stash, &of_rows)?;
    let row = rows(x, axis).map_or(0, |(_, row)| row);
    let statistics: Vec<f64> = nd::fill_blocks(n_rows, 2, 3 * row, |idx, out| {
        let (mean, variance) = moments(values[idx * row..][..row].iter().copied());
        out.copy_from_slice(&[mean, 1.0 / (variance + epsilon).sqrt()]);
    });
    let y = nd::fill_blocks(if row == 0 { 0 } else { n_rows }, row, row, |idx, out| {
        let start = idx * row;
        let (mean, inverse) = (statistics[2 * idx], statistics[2 * idx + 1]);
        for (y, x) in out.iter_mut().zip(&values[start..]) {
            *y = (x - mean) * inverse;
        }
        scale.combine(x.shape(), start, out, |normalized, scale| normalized * scale);
        if let Some(bias) = &bias {
            bias.combine(x.shape(), start, out, |scaled, bias| scaled + bias);
        }
    });
    let mut outputs = vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &y)?)];
    for place in 0..2 {
        let column: Vec<f64> = statistics.iter().skip(place).step_by(2).copied().collect();
        outputs.push(Value::Tensor(Tensor::from_f64s(stash, &of_rows, &column)?));
    }
    outputs.truncate(cx.n_outputs());
    Ok(outputs)
}

pub(crate) fn rms_normalization(op: &RMSNormalization, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let axis = cx.axis(op.axis, x.rank())?;
    stash_type(cx, op.stash_type)?;
    let scale = Parameter::of(cx, 1, x.shape())?;
    let values = cx.floats(0)?;
    let (n_rows, row) = rows(x, axis).unwrap_or((0, 0));
    let y = nd::fill_blocks(n_rows, row, 3 * row, |idx, out| {
        let start = idx * row;
        let members = &values[start..][..row];
        let mean_square = members.iter().map(|value| value * value).sum::<f64>() / row as f64;
        let root = (mean_square + f64::from(op.epsilon)).sqrt();
        for (y, x) in out.iter_mut().zip(members) {
            *y = x / root;
        }
        scale.combine(x.shape(), start, out, |normalized, scale| normalized * scale);
    });
    Ok(vec![Value::Tensor(Tensor::from_f64s(cx.tensor(1)?.dtype(), x.shape(), &y)?)])
}

pub(crate) fn lp_normalization(op: &LpNormalization, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let axis = cx.axis(op.axis, x.rank())?;
    let norm: fn(&[f64]) -> f64 = match op.p {
        1 => |line| line.iter().map(|value| value.abs()).sum(),
        2 => |line| line.iter().map(|value| value * value).sum::<f64>().sqrt(),
        p => return Err(cx.bad_attribute(format!("p must be 1 or 2, it is {p}"))),
    };
    let y = map_lines(&cx.floats(0)?, x.shape(), axis, |line| {
        let norm = norm(line);
        // ONNX defines the quotient by a zero norm as zero.
        line.iter_mut().for_each(|value| *value = if norm == 0.0 { 0.0 } else { *value / norm });
    });
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &y)?)])
}

pub(crate) fn lrn(op: &LRN, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    if x.rank() < 2 {
        return Err(cx.bad_shape(format!("input 0 needs a channel axis, its shape is {:?}", x.shape())));
    }
    let reach = match usize::try_from(op.size) {
        Ok(size) if size >= 1 => size - 1,
        _ => return Err(cx.bad_attribute(format!("size must be at least 1, it is {}", op.size))),
    };
    let (before, after) = (reach / 2, reach.div_ceil(2));
    let (bias, beta) = (f64::from(op.bias), f64::from(op.beta));
    let factor = f64::from(op.alpha) / op.size as f64;
    let y = map_lines(&cx.floats(0)?, x.shape(), 1, |line| {
        let squares: Vec<f64> = line.iter().map(|value| value * value).collect();
        for (channel, value) in line.iter_mut().enumerate() {
            let first = channel.saturating_sub(before);
            let end = channel.saturating_add(after).min(squares.len() - 1) + 1;
            let sum: f64 = squares[first..end].iter().sum();
            *value /= (bias + factor * sum).powf(beta);
        }
    });
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &y)?)])
}

/// What ONNX's function body adds to the deviation, so that constant data gives zero.
const DEVIATION_FLOOR: f64 = 1e-9;

pub(crate) fn mean_variance_normalization(op: &MeanVarianceNormalization, cx: &Evaluation<'_>) -> EvalResult {
    let x = cx.tensor(0)?;
    let mut reduced = axis_mask(cx, &op.axes, x.rank())?;
    // The function body reduces over all axes when none is named.
    if op.axes.is_empty() {
        reduced.fill(true);
    }
    let values = cx.floats(0)?;
    let mut y = values.clone();
    if !values.is_empty() {
        let groups = Groups::new(cx, x.shape(), &reduced, DType::F64)?;
        let means = groups.fold(&values, |group| moments(group.iter()).0);
        let deviations = groups.fold(&values, |group| moments(group.iter()).1.sqrt() + DEVIATION_FLOOR);
        let strides = nd::broadcast_strides(groups.result_shape(true), x.shape());
        nd::for_each_offset(x.shape(), &strides, 0..y.len(), |flat, group| {
            y[flat] = (values[flat] - means[group]) / deviations[group];
        });
    }
    Ok(vec![Value::Tensor(Tensor::from_f64s(x.dtype(), x.shape(), &y)?)])
}
