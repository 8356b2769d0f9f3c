//! `Cast` and `BitCast`. Casts between integers carry contents along, so shape computations in `i32` resolve.

use planish_tensor::{DType, Dim};

use crate::infer::{InferResult, Inference, Inferred, SymbolicInts};
use crate::{BitCast, Cast};

fn is_int_like(dtype: DType) -> bool {
    dtype.is_int() || dtype == DType::Bool
}

pub(in crate::infer) fn cast(op: &Cast, cx: &mut Inference<'_>) -> InferResult {
    let x = cx.tensor(0)?;
    if x.dtype == op.to {
        let content = cx.content(0).cloned();
        return Ok(vec![Inferred { content, ..Inferred::maybe_ranked(op.to, x.shape.clone()) }]);
    }
    let ints = if is_int_like(x.dtype) && is_int_like(op.to) { cx.ints(0) } else { None };
    let ints = ints.and_then(|SymbolicInts { dims, is_scalar }| {
        let dims: Option<Vec<Dim>> = dims.iter().map(|dim| cast_dim(dim, op.to)).collect();
        Some(SymbolicInts { dims: dims?, is_scalar })
    });
    let content = ints.and_then(|ints| Inferred::ints(op.to, ints).content);
    Ok(vec![Inferred { content, ..Inferred::maybe_ranked(op.to, x.shape.clone()) }])
}

/// A known integer in another integer type; `None` if it can no longer be told.
///
/// Symbols are sizes, which are taken to fit 32 bits (exporters compute shapes in `i32` as a matter of
/// course), but not fewer.
fn cast_dim(dim: &Dim, to: DType) -> Option<Dim> {
    let Some(value) = dim.as_const() else {
        return match to {
            DType::I64 | DType::I32 => Some(dim.clone()),
            DType::U64 | DType::U32 if dim.is_nonnegative() => Some(dim.clone()),
            _ => None,
        };
    };
    let unused_bits = 64 - to.bits();
    match to {
        DType::Bool => Some(Dim::from(i64::from(value != 0))),
        _ if to.is_signed_int() => Some(Dim::from(value << unused_bits >> unused_bits)),
        _ => i64::try_from((value as u64) << unused_bits >> unused_bits).ok().map(Dim::from),
    }
}

pub(in crate::infer) fn bit_cast(op: &BitCast, cx: &mut Inference<'_>) -> InferResult {
    let x = cx.tensor(0)?;
    if x.dtype.bits() != op.to.bits() {
        let (from, to) = (x.dtype, op.to);
        return Err(cx.bad_attribute(format!("`to` is {to}, which is not as wide as the input's {from}")));
    }
    Ok(vec![Inferred::maybe_ranked(op.to, x.shape.clone())])
}
