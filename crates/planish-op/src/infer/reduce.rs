//! Inference: reductions and scans along axes.

use planish_tensor::{DType, Dim, Shape};

use super::checks::{self, is_wide_float};
use super::{InferError, InferResult, Inference, Inferred, SymbolicInts};

/// How a reduction treats known integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    Prod,
    Max,
    Min,
    /// Not followed: no shape computation needs it.
    Other,
}

/// The axes that a reduction runs over.
enum Axes {
    /// For each axis whether it is reduced.
    Known(Vec<bool>),
    /// Exactly one, which one is known only at run time.
    One,
    Unknown,
}

/// The ten `Reduce*` operators.
pub(super) fn reduce(noop: bool, keepdims: bool, fold: Fold, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    let ordered = matches!(fold, Fold::Max | Fold::Min);
    let defined = is_wide_float(dtype) || is_whole_int(dtype) || (ordered && dtype == DType::Bool);
    if !defined {
        return Err(cx.bad_type(format!("not defined for elements of type {dtype}")));
    }
    let Some(shape) = cx.shape(0)? else {
        axes(cx, noop, None)?;
        return checks::outputs(cx, vec![Inferred::maybe_ranked(dtype, None)]);
    };
    let reduced = match axes(cx, noop, Some(shape.rank()))? {
        Axes::Known(mask) => {
            if let Some(ints) = reduced_ints(cx, dtype, fold, keepdims, &mask) {
                return checks::outputs(cx, vec![Inferred::ints(dtype, ints)]);
            }
            Some(reduced_shape(shape, &mask, keepdims))
        }
        Axes::One | Axes::Unknown if keepdims => {
            // A dimension of 1 stays 1 whether it is reduced or not.
            let dim = |dim: &Dim| if *dim == 1 { Dim::ONE } else { cx.fresh_dim("reduced") };
            Some(shape.iter().map(dim).collect())
        }
        Axes::One => Some(cx.fresh_shape(shape.rank() - 1, "reduced")),
        Axes::Unknown => None,
    };
    checks::outputs(cx, vec![Inferred::maybe_ranked(dtype, reduced)])
}

/// Integers that are stored in whole bytes, which is what arithmetic is defined on.
fn is_whole_int(dtype: DType) -> bool {
    dtype.is_int() && !dtype.is_sub_byte()
}

/// Reads the axes from input 1, whose values may be unknown; of a known rank they are checked.
fn axes(cx: &Inference<'_>, noop: bool, rank: Option<usize>) -> Result<Axes, InferError> {
    let mut length = Some(0);
    if cx.has_input(1) {
        checks::index(cx, 1)?;
        length = cx.shape_of_rank(1, 1)?.and_then(|shape| shape[0].as_const());
    }
    let Some(rank) = rank else { return Ok(Axes::Unknown) };
    // Nothing to choose from: a scalar, or a single axis that a single entry must mean.
    if rank == 0 {
        for axis in cx.const_ints(1).unwrap_or_default() {
            // As NumPy and ONNX Runtime do, a scalar is taken as one element along axis 0.
            cx.axis(axis, 1)?;
        }
        return Ok(Axes::Known(Vec::new()));
    }
    let given = if length == Some(0) { Some(Vec::new()) } else { cx.const_ints(1) };
    match given {
        Some(axes) if axes.is_empty() => Ok(Axes::Known(vec![!noop; rank])),
        Some(axes) => {
            let mut mask = vec![false; rank];
            for axis in axes {
                mask[cx.axis(axis, rank)?] = true;
            }
            Ok(Axes::Known(mask))
        }
        None if length == Some(1) && rank == 1 => Ok(Axes::Known(vec![true])),
        None if length == Some(1) => Ok(Axes::One),
        // More entries may repeat an axis, so their number says nothing.
        None => Ok(Axes::Unknown),
    }
}

fn reduced_shape(shape: &Shape, mask: &[bool], keepdims: bool) -> Shape {
    let dims = shape.iter().zip(mask);
    if keepdims {
        dims.map(|(dim, &reduced)| if reduced { Dim::ONE } else { dim.clone() }).collect()
    } else {
        dims.filter(|(_, reduced)| !**reduced).map(|(dim, _)| dim.clone()).collect()
    }
}

/// The contents of a reduction of known integers.
fn reduced_ints(
    cx: &Inference<'_>,
    dtype: DType,
    fold: Fold,
    keepdims: bool,
    mask: &[bool],
) -> Option<SymbolicInts> {
    let ints = cx.ints(0).filter(|_| fold != Fold::Other)?;
    let (low, high) = dtype.int_range()?;
    let fits = |dim: &Dim| dim.as_const().is_none_or(|value| (low..=high).contains(&i128::from(value)));
    // `u64` beyond `i64` arrives wrapped, which is negative.
    if !ints.dims.iter().all(fits) {
        return None;
    }
    if mask.first() != Some(&true) {
        return Some(ints);
    }
    let dim = match fold {
        Fold::Sum => ints.dims.iter().sum(),
        Fold::Prod => ints.dims.iter().product(),
        Fold::Max => ints.dims.iter().cloned().reduce(|a, b| a.max(&b))?,
        Fold::Min => ints.dims.iter().cloned().reduce(|a, b| a.min(&b))?,
        Fold::Other => return None,
    };
    // A number that wraps in the element type is left to the evaluation.
    (fits(&dim) && !dim.is_unknown()).then_some(SymbolicInts { dims: vec![dim], is_scalar: !keepdims })
}

/// `ArgMax` and `ArgMin`.
pub(super) fn arg_extreme(axis: i64, keepdims: bool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if !is_wide_float(dtype) && !is_whole_int(dtype) {
        return Err(cx.bad_type(format!("not defined for elements of type {dtype}")));
    }
    let shape = match cx.shape(0)? {
        Some(shape) => {
            let axis = cx.axis(axis, shape.rank())?;
            let mask: Vec<bool> = (0..shape.rank()).map(|idx| idx == axis).collect();
            Some(reduced_shape(shape, &mask, keepdims))
        }
        None => None,
    };
    checks::outputs(cx, vec![Inferred::maybe_ranked(DType::I64, shape)])
}

/// `CumSum` and `CumProd`.
pub(super) fn scan(cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if !is_wide_float(dtype) && !is_whole_int(dtype) {
        return Err(cx.bad_type(format!("not defined for elements of type {dtype}")));
    }
    checks::index(cx, 1)?;
    let axis = cx.const_ints(1);
    if let Some(axes) = &axis
        && axes.len() != 1
    {
        return Err(cx.bad_shape(format!("the axis (input 1) must be one number, it has {}", axes.len())));
    }
    if let (Some(axes), Some(shape)) = (axis, cx.shape(0)?) {
        cx.axis(axes[0], shape.rank())?;
    }
    checks::like_input(cx, 0)
}

/// `Softmax`, `LogSoftmax` and `Hardmax`.
pub(super) fn softmax(axis: i64, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    if let Some(shape) = cx.shape(0)? {
        cx.axis(axis, shape.rank())?;
    }
    checks::like_input(cx, 0)
}
