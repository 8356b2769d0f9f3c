//! What is known of the elements of an element-wise integer operator: arithmetic on dimensions.
//!
//! An element that cannot be told is the unknown dimension; where no element can be told, the content is
//! dropped. Truth values are 0 and 1.

use planish_tensor::{DType, Dim};

use super::super::{Content, Inference, SymbolicInts};

/// The contents that `function` makes of the operands' elements, which broadcast. `None` if an operand is
/// not a known integer or truth value, or nothing is known of the result.
pub(super) fn zip(
    cx: &Inference<'_>,
    operands: impl IntoIterator<Item = usize>,
    output: DType,
    function: impl Fn(&[&Dim]) -> Dim,
) -> Option<Content> {
    let operands = operands.into_iter().map(|idx| known(cx, idx)).collect::<Option<Vec<SymbolicInts>>>()?;
    // The type rule refuses lengths that do not broadcast, so the longest that is not 1 is that of all.
    let lengths = || operands.iter().map(|ints| ints.dims.len());
    let length = lengths().find(|&length| length != 1).unwrap_or(1);
    if lengths().any(|other| other != 1 && other != length) {
        return None;
    }
    let dims: Vec<Dim> = (0..length)
        .map(|place| {
            let args: Option<Vec<&Dim>> = operands
                .iter()
                .map(|ints| ints.dims.get(if ints.dims.len() == 1 { 0 } else { place }))
                .collect();
            args.map_or(Dim::UNKNOWN, |args| within(output, function(&args)))
        })
        .collect();
    let is_scalar = operands.iter().all(|ints| ints.is_scalar);
    let is_useless = !dims.is_empty() && dims.iter().all(Dim::is_unknown);
    (!is_useless).then_some(Content::Ints(SymbolicInts { dims, is_scalar }))
}

fn known(cx: &Inference<'_>, idx: usize) -> Option<SymbolicInts> {
    let dtype = cx.dtype(idx).ok()?;
    (dtype.is_int() || dtype == DType::Bool).then(|| cx.ints(idx)).flatten()
}

/// `dim` if it is a value of `dtype` and does not wrap. Of an expression in a signed type this is taken for
/// granted: exporters compute sizes in it.
fn within(dtype: DType, dim: Dim) -> Dim {
    let fits = match (dim.as_const(), dtype.int_range()) {
        (Some(value), Some((low, high))) => (low..=high).contains(&i128::from(value)),
        (None, Some((0, _))) => dim.is_nonnegative(),
        _ => true,
    };
    if fits { dim } else { Dim::UNKNOWN }
}

/// Division towards zero.
pub(super) fn div(a: &Dim, b: &Dim) -> Dim {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_div(b).map_or(Dim::UNKNOWN, Dim::from),
        // Rounding down is rounding towards zero where nothing is negative or nothing is cut off.
        _ if (a.is_nonnegative() && b.is_nonnegative()) || a.rem(b) == Dim::ZERO => a.floor_div(b),
        _ => Dim::UNKNOWN,
    }
}

/// The remainder with the sign of the dividend, as C has it.
pub(super) fn fmod(a: &Dim, b: &Dim) -> Dim {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => a.checked_rem(b).map_or(Dim::UNKNOWN, Dim::from),
        _ if a.is_nonnegative() && b.is_nonnegative() => a.rem(b),
        _ => Dim::UNKNOWN,
    }
}

pub(super) fn equal(a: &Dim, b: &Dim) -> Dim {
    match () {
        () if a.is_unknown() || b.is_unknown() => Dim::UNKNOWN,
        () if a == b => Dim::ONE,
        () if less(a, b) == Dim::ONE || less(b, a) == Dim::ONE => Dim::ZERO,
        () => Dim::UNKNOWN,
    }
}

pub(super) fn less(a: &Dim, b: &Dim) -> Dim {
    match () {
        () if (b - a - 1).is_nonnegative() => Dim::ONE,
        () if (a - b).is_nonnegative() => Dim::ZERO,
        () => Dim::UNKNOWN,
    }
}

pub(super) fn and(a: &Dim, b: &Dim) -> Dim {
    match (a.as_const(), b.as_const()) {
        (Some(0), _) | (_, Some(0)) => Dim::ZERO,
        (Some(_), Some(_)) => Dim::ONE,
        _ => Dim::UNKNOWN,
    }
}

pub(super) fn not(a: &Dim) -> Dim {
    Dim::ONE - a
}

pub(super) fn or(a: &Dim, b: &Dim) -> Dim {
    not(&and(&not(a), &not(b)))
}

pub(super) fn xor(a: &Dim, b: &Dim) -> Dim {
    not(&equal(a, b))
}

pub(super) fn select(condition: &Dim, x: &Dim, y: &Dim) -> Dim {
    match condition.as_const() {
        Some(0) => y.clone(),
        Some(_) => x.clone(),
        None if x == y => x.clone(),
        None => Dim::UNKNOWN,
    }
}
