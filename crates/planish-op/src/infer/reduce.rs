//! Inference: reductions and scans along axes.

use planish_tensor::{DType, Dim, Shape};

use super::checks;
use super::{InferError, InferResult, Inference, Inferred, SymbolicInts};
use crate::{ArgMax, ArgMin, CumProd, CumSum, Hardmax, LogSoftmax, Reduce, Reduction, Softmax};

/// The axes that a reduction runs over.
enum Axes {
    /// For each axis whether it is reduced.
    Known(Vec<bool>),
    /// Exactly one, which one is known only at run time.
    One,
    Unknown,
}

/// The ten `Reduce*` operators.
pub(super) fn reduce(op: Reduce, cx: &mut Inference<'_>) -> InferResult {
    let Reduce { by, noop_with_empty_axes: noop, keepdims } = op;
    let dtype = cx.dtype(0)?;
    let ordered = matches!(by, Reduction::Max | Reduction::Min);
    let defined = dtype.is_wide_float() || dtype.is_whole_int() || (ordered && dtype == DType::Bool);
    if !defined {
        return Err(cx.bad_type(format!("not defined for elements of type {dtype}")));
    }
    let Some(shape) = cx.shape(0)? else {
        axes(cx, noop, None)?;
        return checks::outputs(cx, vec![Inferred::maybe_ranked(dtype, None)]);
    };
    let reduced = match axes(cx, noop, Some(shape.rank()))? {
        Axes::Known(mask) => {
            if let Some(ints) = reduced_ints(cx, dtype, op, &mask) {
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

/// Whether known integers are reduced too; no shape computation needs the others.
fn is_followed(by: Reduction) -> bool {
    matches!(by, Reduction::Sum | Reduction::Prod | Reduction::Max | Reduction::Min)
}

/// The contents of a reduction of known integers.
fn reduced_ints(cx: &Inference<'_>, dtype: DType, op: Reduce, mask: &[bool]) -> Option<SymbolicInts> {
    let ints = cx.ints(0).filter(|_| is_followed(op.by))?;
    let (low, high) = dtype.int_range()?;
    let fits = |dim: &Dim| dim.as_const().is_none_or(|value| (low..=high).contains(&i128::from(value)));
    // `u64` beyond `i64` arrives wrapped, which is negative.
    if !ints.dims.iter().all(fits) {
        return None;
    }
    if mask.first() != Some(&true) {
        return Some(ints);
    }
    let dim = match op.by {
        Reduction::Sum => ints.dims.iter().sum(),
        Reduction::Prod => ints.dims.iter().product(),
        Reduction::Max => ints.dims.iter().cloned().reduce(|a, b| a.max(&b))?,
        Reduction::Min => ints.dims.iter().cloned().reduce(|a, b| a.min(&b))?,
        _ => return None,
    };
    // A number that wraps in the element type is left to the evaluation.
    (fits(&dim) && !dim.is_unknown()).then_some(SymbolicInts { dims: vec![dim], is_scalar: !op.keepdims })
}

pub(super) fn arg_max(op: &ArgMax, cx: &mut Inference<'_>) -> InferResult {
    arg_extreme(op.axis, op.keepdims, cx)
}

pub(super) fn arg_min(op: &ArgMin, cx: &mut Inference<'_>) -> InferResult {
    arg_extreme(op.axis, op.keepdims, cx)
}

fn arg_extreme(axis: i64, keepdims: bool, cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if !dtype.is_wide_float() && !dtype.is_whole_int() {
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

pub(super) fn cum_sum(_: &CumSum, cx: &mut Inference<'_>) -> InferResult {
    scan(cx)
}

pub(super) fn cum_prod(_: &CumProd, cx: &mut Inference<'_>) -> InferResult {
    scan(cx)
}

fn scan(cx: &mut Inference<'_>) -> InferResult {
    let dtype = cx.dtype(0)?;
    if !dtype.is_wide_float() && !dtype.is_whole_int() {
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

pub(super) fn softmax(op: &Softmax, cx: &mut Inference<'_>) -> InferResult {
    along(op.axis, cx)
}

pub(super) fn log_softmax(op: &LogSoftmax, cx: &mut Inference<'_>) -> InferResult {
    along(op.axis, cx)
}

pub(super) fn hardmax(op: &Hardmax, cx: &mut Inference<'_>) -> InferResult {
    along(op.axis, cx)
}

fn along(axis: i64, cx: &mut Inference<'_>) -> InferResult {
    checks::float(cx, 0)?;
    if let Some(shape) = cx.shape(0)? {
        cx.axis(axis, shape.rank())?;
    }
    checks::like_input(cx, 0)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, constant, first, inferred, ints};
    use super::super::{Content, InferErrorKind};
    use crate::{Attribute, Op, ReduceMax, ReduceMin, ReduceProd, ReduceSum};
    use planish_tensor::{DType, Tensor};

    const DROP: (&str, Attribute) = ("keepdims", Attribute::Bool(false));
    const NOOP: (&str, Attribute) = ("noop_with_empty_axes", Attribute::Bool(true));

    #[test]
    fn known_axes_give_known_shapes() {
        assert_eq!(first("ReduceMean", &[], &["f32[n,3,h]", "i64=-1"]).unwrap(), "f32[n,3,1]");
        assert_eq!(first("ReduceMean", &[DROP], &["f16[n,3,h]", "i64=0,2"]).unwrap(), "f16[3]");
        assert_eq!(first("ReduceSum", &[DROP], &["i32[n,3]", "i64=1,1,-1"]).unwrap(), "i32[n]");
        assert_eq!(first("ReduceSum", &[DROP], &["i32[n,3]"]).unwrap(), "i32[]");
        assert_eq!(first("ReduceSum", &[], &["i32[n,3]", "i64="]).unwrap(), "i32[1,1]");
        assert_eq!(first("ReduceSum", &[DROP, NOOP], &["i32[n,3]", "i64[0]"]).unwrap(), "i32[n,3]");
        assert_eq!(first("ReduceL2", &[], &["f64[]", "i64=-1"]).unwrap(), "f64[]");
        assert_eq!(first("ReduceMax", &[], &["bool[n]"]).unwrap(), "bool[1]");
    }

    #[test]
    fn unknown_axes_give_what_is_certain() {
        assert_eq!(first("ReduceSum", &[], &["f32[n,1]", "i64[k]"]).unwrap(), "f32[reduced0,1]");
        assert_eq!(first("ReduceSum", &[DROP], &["f32[n,3,4]", "i64[1]"]).unwrap(), "f32[reduced0,reduced1]");
        assert_eq!(first("ReduceSum", &[DROP], &["f32[n]", "i64[1]"]).unwrap(), "f32[]");
        // Two entries may name the same axis.
        assert_eq!(first("ReduceSum", &[DROP], &["f32[n,3,4]", "i64[2]"]).unwrap(), "f32[*]");
        assert_eq!(first("ReduceSum", &[], &["f32[*]", "i64=0"]).unwrap(), "f32[*]");
    }

    #[test]
    fn reductions_refuse() {
        use InferErrorKind::{BadAttribute, BadShape, BadType};
        assert_eq!(first("ReduceSum", &[], &["f32[2]", "i64=1"]), Err(BadAttribute));
        assert_eq!(first("ReduceSum", &[], &["f32[2]", "i64=-9223372036854775808"]), Err(BadAttribute));
        assert_eq!(first("ReduceSum", &[], &["f32[]", "i64=1"]), Err(BadAttribute));
        assert_eq!(first("ReduceSum", &[], &["f32[2]", "i64[1,1]"]), Err(BadShape));
        assert_eq!(first("ReduceSum", &[], &["f32[2]", "f32[1]"]), Err(BadType));
        assert_eq!(first("ReduceSum", &[], &["bool[2]"]), Err(BadType));
        assert_eq!(first("ReduceSum", &[], &["f8e5m2[2]"]), Err(BadType));
        assert_eq!(check("ReduceSum", &[], &["f32[2]"], 2), Err(BadAttribute));
    }

    /// The contents of a reduction as text.
    fn content(op: impl Into<Op>, dims: &[&str]) -> Option<String> {
        let outputs = inferred(op, &[ints(dims)], 1).unwrap();
        match outputs[0].content.as_ref()? {
            Content::Ints(ints) => Some(format!("{} {}", ints.dims[0], ints.is_scalar)),
            Content::Tensor(_) | Content::Grid(_) => None,
        }
    }

    #[test]
    fn shapes_are_folded() {
        let prod = ReduceProd { noop_with_empty_axes: false, keepdims: false };
        let sum = ReduceSum { noop_with_empty_axes: false, keepdims: true };
        let max = ReduceMax { noop_with_empty_axes: false, keepdims: false };
        let min = ReduceMin { noop_with_empty_axes: false, keepdims: false };
        assert_eq!(content(prod.clone(), &["n", "3", "4"]).unwrap(), "12*n true");
        assert_eq!(content(prod.clone(), &[]).unwrap(), "1 true");
        assert_eq!(content(sum.clone(), &["n", "3", "n"]).unwrap(), "2*n+3 false");
        assert_eq!(content(max.clone(), &["7", "-3"]).unwrap(), "7 true");
        assert_eq!(content(min, &["7", "-3"]).unwrap(), "-3 true");
        // What wraps, and what has no value, is left to the evaluation.
        assert_eq!(content(prod, &["9223372036854775807", "2"]), None);
        assert_eq!(content(max, &[]), None);
        let narrow = constant(Tensor::vector(vec![i32::MAX, 1]));
        assert!(inferred(sum.clone(), &[narrow], 1).unwrap()[0].content.is_none());
        let outputs = inferred(sum, &[constant(Tensor::vector(vec![u64::MAX]))], 1).unwrap();
        assert!(outputs[0].content.is_none());
        assert_eq!(outputs[0].ty, crate::ValueType::tensor(DType::U64, [1usize].into()));
    }

    #[test]
    fn positions_scans_and_softmax() {
        use InferErrorKind::{BadAttribute, BadShape, BadType};
        assert_eq!(first("ArgMax", &[("axis", Attribute::Int(-1)), DROP], &["f32[n,h]"]).unwrap(), "i64[n]");
        assert_eq!(first("ArgMin", &[], &["u8[n,h]"]).unwrap(), "i64[1,h]");
        assert_eq!(first("ArgMin", &[], &["u8[*]"]).unwrap(), "i64[*]");
        assert_eq!(first("ArgMin", &[], &["u8[]"]), Err(BadAttribute));
        assert_eq!(first("ArgMin", &[], &["bool[2]"]), Err(BadType));
        assert_eq!(first("CumSum", &[], &["i32[n,h]", "i64=1"]).unwrap(), "i32[n,h]");
        assert_eq!(first("CumSum", &[], &["i32[n,h]", "i64=2"]), Err(BadAttribute));
        assert_eq!(first("CumProd", &[], &["i32[n,h]", "i64=0,1"]), Err(BadShape));
        assert_eq!(first("Softmax", &[], &["bf16[n,h]"]).unwrap(), "bf16[n,h]");
        assert_eq!(first("Softmax", &[("axis", Attribute::Int(2))], &["f32[n,h]"]), Err(BadAttribute));
        assert_eq!(first("Hardmax", &[], &["i32[n,h]"]), Err(BadType));
    }
}
