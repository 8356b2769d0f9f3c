//! Constants in a float type, refused where more is lost than by rounding.

use planish_tensor::{DType, Tensor, bf16, f16};

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
    judge(to, tensor.to_f64s().into_iter().zip(values.iter().copied()), small)?;
    Ok(tensor)
}

/// The numbers of f32 that are nearest to these among those that a type of 16 bits has, or why it cannot hold them.
pub(crate) fn nearest(to: DType, values: &[f32], small: Small) -> Result<Vec<f32>, &'static str> {
    let round: fn(f32) -> f32 = match to {
        DType::F16 => |value| f16::from_f32(value).to_f32(),
        _ => |value| bf16::from_f32(value).to_f32(),
    };
    let rounded: Vec<f32> = values.iter().map(|value| round(*value)).collect();
    let wide = |(rounded, value): (&f32, &f32)| (f64::from(*rounded), f64::from(*value));
    judge(to, rounded.iter().zip(values).map(wide), small)?;
    Ok(rounded)
}

/// Refuses numbers, rounded and as they were, of which more is lost than by rounding.
fn judge(to: DType, pairs: impl Iterator<Item = (f64, f64)>, small: Small) -> Result<(), &'static str> {
    let Some(unit) = rounding(to) else { return Ok(()) };
    let (mut error, mut norm) = (0.0, 0.0);
    for (rounded, value) in pairs {
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
    Ok(())
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
    fn both_ways_of_rounding_agree() {
        let numbers = [0.1f32, -3.7, 65_000.0, 1e-5, 0.0, f32::NEG_INFINITY];
        let wide = numbers.map(f64::from);
        for to in [DType::F16, DType::BF16] {
            let direct = nearest(to, &numbers, Small::MustStay).unwrap();
            let through = rounded(to, &[6], &wide, Small::MustStay).unwrap().to_f64s();
            assert_eq!(direct.into_iter().map(f64::from).collect::<Vec<_>>(), through);
            assert_eq!(nearest(to, &[3e38, f32::MAX], Small::MayVanish), Err("is too large"));
        }
        assert_eq!(nearest(DType::F16, &[1e-9], Small::MustStay), Err("loses its small values"));
    }

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
