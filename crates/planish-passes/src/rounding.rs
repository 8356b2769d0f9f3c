//! Constants in a float type, refused where more is lost than by rounding.

use planish_tensor::{DType, Tensor};

/// Rounding a tensor may change it by this many units of the type's own rounding, in the L2 norm. Normal numbers
/// change by less than one; two means that some have fallen out of the type's range.
const MAX_ROUNDINGS: f64 = 2.0;

/// Whether numbers may become zero that are too small for the type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Small {
    /// They are added to sums of products, where they would be lost too.
    MayVanish,
    MustStay,
}

/// A tensor of these numbers, or why the type cannot hold them.
pub(crate) fn rounded(
    to: DType,
    shape: &[usize],
    values: &[f64],
    small: Small,
) -> Result<Tensor, &'static str> {
    let tensor = Tensor::from_f64s(to, shape, values).map_err(|_| "cannot be stored")?;
    let Some(unit) = rounding(to) else { return Ok(tensor) };
    let (mut error, mut norm) = (0.0, 0.0);
    for (rounded, value) in tensor.to_f64s().into_iter().zip(values) {
        if rounded.is_finite() != value.is_finite() {
            return Err("is too large");
        }
        if value.is_finite() {
            error += (rounded - value).powi(2);
            norm += value * value;
        }
    }
    if small == Small::MustStay && error > norm * (MAX_ROUNDINGS * unit).powi(2) {
        return Err("loses its small values");
    }
    Ok(tensor)
}

/// Half the distance between 1 and the next number, of types of 16 bits.
fn rounding(dtype: DType) -> Option<f64> {
    match dtype {
        DType::BF16 => Some(2f64.powi(-8)),
        DType::F16 => Some(2f64.powi(-11)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_type_cannot_hold_is_refused() {
        let to = |dtype, values: &[f64], small| {
            rounded(dtype, &[values.len()], values, small).map(|t| t.to_f64s())
        };
        assert_eq!(to(DType::F16, &[1.0, -0.25], Small::MustStay), Ok(vec![1.0, -0.25]));
        assert_eq!(to(DType::F16, &[1e6, 0.0], Small::MayVanish), Err("is too large"));
        assert_eq!(to(DType::F16, &[1e-9, 3e-9], Small::MustStay), Err("loses its small values"));
        assert_eq!(to(DType::F16, &[1e-9, 3e-9], Small::MayVanish), Ok(vec![0.0, 0.0]));
        // Beside large ones small numbers do not count.
        assert!(to(DType::F16, &[1e-9, 1.0], Small::MustStay).is_ok());
        assert!(to(DType::BF16, &[1e6, 1e-9], Small::MustStay).is_ok());
        assert_eq!(to(DType::F64, &[1e-300], Small::MustStay), Ok(vec![1e-300]));
    }
}
