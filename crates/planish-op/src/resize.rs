//! How long an axis becomes under Resize: one definition for inference and evaluation, so that they agree.

use planish_tensor::Dim;

use crate::ResizeAspectPolicy;

/// Lengths from here on are not all `f32` numbers any more.
const F32_INTEGERS: f64 = (1u64 << 24) as f64;

/// Lengths from here on are not all `f64` numbers any more, and beyond any memory.
const F64_INTEGERS: f64 = (1u64 << 53) as f64;

/// The largest denominator that a scale is recognized with: 1/3, 2/7, 5/4 and the like.
const MAX_DENOMINATOR: usize = 64;

/// By how much an axis grows or shrinks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ResizeScale {
    /// Exactly this quotient.
    Ratio(LengthRatio),
    /// A number that is not a quotient with a small denominator.
    Factor(f32),
}

impl ResizeScale {
    /// The scale that a number of the input `scales` means; `None` if it is not a positive number.
    ///
    /// The number is a decimal or a quotient that was rounded to `f32` (7/5 became 1.39999998). A quotient is
    /// restored, so that a coordinate that should be an integer or a half is exactly that.
    pub fn from_f32(scale: f32) -> Option<ResizeScale> {
        if !(scale > 0.0 && scale.is_finite()) {
            return None;
        }
        let exact = f64::from(scale);
        let quotient = (1..=MAX_DENOMINATOR)
            .map(|from| ((exact * from as f64).round(), from))
            .find(|&(to, from)| to < F32_INTEGERS && (to / from as f64) as f32 == scale);
        Some(match quotient {
            Some((to, from)) => ResizeScale::Ratio(LengthRatio { to: to as usize, from }),
            None => ResizeScale::Factor(scale),
        })
    }
}

/// The length `floor(len * scale)`, where ONNX Runtime and exporters take the product in `f32`: 5 * 1.4 is 7
/// although 1.4 is 1.39999998. `None` if the scale is not a positive number or the result is beyond any
/// memory.
///
/// The region of interest of `tf_crop_and_resize` does not enter: the ONNX text multiplies by its extent, but
/// neither ONNX's own inference and reference nor ONNX Runtime do.
pub fn scaled_len(len: usize, scale: f32) -> Option<usize> {
    match (ResizeScale::from_f32(scale)?, is_floor_exact(scale)) {
        (ResizeScale::Ratio(ratio), true) => {
            usize::try_from(len as u128 * ratio.to as u128 / ratio.from as u128).ok()
        }
        _ => {
            let exact = len as f64 * f64::from(scale);
            let product = if exact < F32_INTEGERS { f64::from(exact as f32) } else { exact };
            (product < F64_INTEGERS).then_some(product as usize)
        }
    }
}

/// The dimension `floor(dim * scale)` of [`scaled_len`]; `None` if it is not an expression of `dim`.
pub fn scaled_dim(dim: &Dim, scale: f32) -> Option<Dim> {
    if let Some(len) = dim.as_usize() {
        return scaled_len(len, scale).map(Dim::from);
    }
    let ResizeScale::Ratio(ratio) = ResizeScale::from_f32(scale).filter(|_| is_floor_exact(scale))? else {
        return None;
    };
    let dim = (dim * Dim::from(ratio.to)).floor_div(&Dim::from(ratio.from));
    (!dim.is_unknown()).then_some(dim)
}

/// Whether products with the restored quotient have the same floor as products in `f32` (of lengths below
/// 2^22, where `f32` still tells neighbours apart).
///
/// With scale = p/q * (1 + e), a product that should be the integer m is m * (1 + e). For e >= 0 it stays at
/// or above m; for e < 0 rounding brings it back to m if |e| is at most half the spacing of `f32`.
fn is_floor_exact(scale: f32) -> bool {
    match ResizeScale::from_f32(scale) {
        Some(ResizeScale::Ratio(ratio)) => {
            f64::from(scale) * ratio.from as f64 / ratio.to as f64 - 1.0 >= -(2f64.powi(-25))
        }
        _ => false,
    }
}

/// A scale that is a quotient of lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LengthRatio {
    /// The length after resizing.
    pub to: usize,
    /// The length before; not 0.
    pub from: usize,
}

impl LengthRatio {
    /// The one scale of all axes under a policy that keeps the aspect ratio: the smallest or the largest of
    /// the axes' own. `None` for [`ResizeAspectPolicy::Stretch`], without axes, or if one has length 0.
    pub fn kept(policy: ResizeAspectPolicy, axes: &[LengthRatio]) -> Option<LengthRatio> {
        if axes.iter().any(|axis| axis.from == 0) {
            return None;
        }
        // a/b < c/d as a*d < c*b, which fits: lengths have at most 64 bits.
        let order = |a: &&LengthRatio, b: &&LengthRatio| {
            (a.to as u128 * b.from as u128).cmp(&(b.to as u128 * a.from as u128))
        };
        match policy {
            ResizeAspectPolicy::Stretch => None,
            ResizeAspectPolicy::NotLarger => axes.iter().min_by(order).copied(),
            ResizeAspectPolicy::NotSmaller => axes.iter().max_by(order).copied(),
        }
    }

    /// `len` times the ratio, to the nearest integer, halves up. `None` on overflow.
    pub fn rounded(self, len: usize) -> Option<usize> {
        let doubled = (len as u128).checked_mul(self.to as u128)?.checked_mul(2)?;
        let rounded = doubled.checked_add(self.from as u128)? / (self.from as u128).checked_mul(2)?;
        usize::try_from(rounded).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_scales_round_as_meant() {
        for (len, scale, expected) in [
            (5, 1.4, 7),
            (5, 0.6, 3),
            (4, 0.6, 2),
            (7, 2.0, 14),
            (10, 1.0 / 3.0, 3),
            (9, 1.0 / 3.0, 3),
            // 1.37 is 1.37000000477 in f32 and 0.123 is 0.12300000339.
            (100, 1.37, 137),
            (1000, 0.123, 123),
            (0, 3.0, 0),
        ] {
            assert_eq!(scaled_len(len, scale), Some(expected), "{len} * {scale}");
        }
        assert_eq!(scaled_len(20_000_001, 1.0), Some(20_000_001));
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(scaled_len(3, scale), None);
        }
        assert_eq!(scaled_len(usize::MAX, 1e30), None);
        assert_eq!(scaled_len(usize::MAX, 3.0), None);
    }

    #[test]
    fn symbolic_lengths_are_expressions_where_exact() {
        let n = Dim::symbol("n");
        assert_eq!(scaled_dim(&n, 1.0), Some(n.clone()));
        assert_eq!(scaled_dim(&n, 2.0), Some(&n * 2));
        assert_eq!(scaled_dim(&n, 0.5), Some(n.floor_div(&Dim::from(2))));
        assert_eq!(scaled_dim(&n, 1.5), Some((&n * 3).floor_div(&Dim::from(2))));
        assert_eq!(scaled_dim(&n, 0.123_456_78), None);
        assert_eq!(scaled_dim(&n, f32::NAN), None);
        assert_eq!(scaled_dim(&Dim::from(5), 0.123_456_78), Some(Dim::ZERO));
    }

    #[test]
    fn quotients_are_restored() {
        let ratio = |to, from| Some(ResizeScale::Ratio(LengthRatio { to, from }));
        assert_eq!(ResizeScale::from_f32(1.3), ratio(13, 10));
        assert_eq!(ResizeScale::from_f32(1.0 / 3.0), ratio(1, 3));
        assert_eq!(ResizeScale::from_f32(4.0), ratio(4, 1));
        assert_eq!(ResizeScale::from_f32(0.123), Some(ResizeScale::Factor(0.123)));
        // 63 would be exact, but products in f32 stay below, and so do lengths.
        assert_eq!(scaled_len(27, 7.0 / 3.0), Some(62));
    }

    #[test]
    fn restored_quotients_have_the_floor_of_f32_products() {
        for from in 1..=MAX_DENOMINATOR {
            for to in 1..=40 {
                let scale = to as f32 / from as f32;
                for len in [0, 1, 27, 51, 54, 99, 195, 512, 513, 640, 999, 1920, 65_535] {
                    let expected = (len as f32 * scale) as usize;
                    assert_eq!(scaled_len(len, scale), Some(expected), "{len} * {to}/{from}");
                }
            }
        }
    }

    #[test]
    fn aspect_ratio_is_kept_exactly() {
        let axes = [LengthRatio { to: 7, from: 4 }, LengthRatio { to: 8, from: 5 }];
        let ratio = LengthRatio::kept(ResizeAspectPolicy::NotLarger, &axes).unwrap();
        assert_eq!(ratio, axes[1]);
        // 4 * 8/5 = 6.4 and 5 * 8/5 = 8.
        assert_eq!((ratio.rounded(4), ratio.rounded(5)), (Some(6), Some(8)));
        assert_eq!(LengthRatio::kept(ResizeAspectPolicy::NotSmaller, &axes), Some(axes[0]));
        assert_eq!(LengthRatio::kept(ResizeAspectPolicy::Stretch, &axes), None);
        assert_eq!(LengthRatio::kept(ResizeAspectPolicy::NotLarger, &[LengthRatio { to: 1, from: 0 }]), None);
        // A half goes up.
        assert_eq!(LengthRatio { to: 1, from: 2 }.rounded(3), Some(2));
        assert_eq!(LengthRatio { to: usize::MAX, from: 1 }.rounded(3), None);
    }
}
